# SPDX-License-Identifier: Apache-2.0
# Under a supervisor: what its variables say is what a saver does, steps and signs of life reach it, what it asks for is
# told at the step it's asked of. The supervisor is made here: a socket, and the control page's words.
import contextlib
import json
import mmap
import os
import socket
import struct
import threading
import time

import torch_support  # noqa: F401
from torch_support import check, ckpt, torch

from tap import main, run

VARIABLES = ("CKPT_STORE", "CKPT_ATTEMPT", "CKPT_RESUME", "CKPT_CONTROL", "NOTIFY_SOCKET", "WATCHDOG_USEC",
             "WATCHDOG_PID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@contextlib.contextmanager
def environment(**variables):
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        yield
    finally:
        for name in VARIABLES:
            os.environ.pop(name, None)


class Supervisor:
    def __init__(self, ranks=1):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0ckpt-test-{os.getpid()}-{id(self)}")
        self.name = "@" + self.socket.getsockname()[1:].decode()
        with open("control", "wb+") as file:
            file.truncate(64 * (1 + ranks))
            self.page = mmap.mmap(file.fileno(), 0)
        self.page[:16] = struct.pack("8sQ", b"ckptrun1", ranks)

    def variables(self, local_rank=0):
        return dict(NOTIFY_SOCKET=self.name, CKPT_CONTROL=os.path.abspath("control"), LOCAL_RANK=local_rank)

    def ask(self, request, step):
        self.page[16:40] = struct.pack("QQQ", request, step + 1, step + 1)

    def rank(self, local_rank):
        """(joined, the last step, the answered step)"""
        joined, finished, answered = struct.unpack_from("QQQ", self.page, 64 * (1 + local_rank))
        return bool(joined), finished - 1, answered - 1

    def heard(self, seconds=0.0):
        """All that comes until it's quiet for so long."""
        datagrams = []
        while True:
            self.socket.settimeout(seconds or 1e-6)
            try:
                datagrams.append(self.socket.recv(4096).decode())
            except (TimeoutError, socket.timeout):
                return datagrams


def raises(function, *arguments, **more):
    try:
        function(*arguments, **more)
    except ckpt.Error as failure:
        check(failure.code in ("invalid", "not-found", "malformed"), failure.code)
        return str(failure)
    raise AssertionError("it wasn't refused")


def listed(store):
    lines = run("ckpt-ls", "--json", store).stdout.splitlines()
    return [record for record in map(json.loads, lines) if record["type"] == "checkpoint"]


def test_without_a_supervisor_nothing_is_asked_and_all_is_as_ever():
    with environment():
        with ckpt.Saver("store") as saver:
            check(saver.step(1) == "" and saver.step(2, loss=1.5) == "", "something is asked")
            saver.extend_timeout(10)
            saver.save({"a": 1}, 1)
            check((saver.rank, saver.world_size) == (0, 1), saver)
        check(ckpt.resume() is None and ckpt.resume_step() is None, "there's something to resume")
        check("CKPT_STORE" in raises(ckpt.Saver), "another refusal")


def test_a_step_is_told_with_its_values_on_one_line():
    supervisor = Supervisor()
    with environment(NOTIFY_SOCKET=supervisor.name), ckpt.Saver("store") as saver:
        check(saver.step(1200, loss=1.9312345678, lr=1e-4, epoch=3) == "", "something is asked")
        saver.step(torch.tensor(7), loss=torch.tensor(0.5), note="a\nREADY=1\0")
        saver.step(8)
        saver.extend_timeout(1.5)
        check(supervisor.heard() == ["WATCHDOG=1\nSTATUS=step 1200 loss 1.93123 lr 0.0001 epoch 3",
                                     "WATCHDOG=1\nSTATUS=step 7 loss 0.5 note a READY=1",
                                     "WATCHDOG=1\nSTATUS=step 8", "EXTEND_TIMEOUT_USEC=1500000"], "other words")
        raises(saver.step, -1)
        raises(saver.step, "1")
        raises(saver.extend_timeout, -1)


def test_what_is_asked_is_told_once_at_its_step():
    supervisor = Supervisor(ranks=2)
    with environment(**supervisor.variables(local_rank=1)), ckpt.Saver("store") as saver:
        check(supervisor.rank(1)[0] and not supervisor.rank(0)[0], "it joined as another")
        supervisor.ask(1, 3)
        check([saver.step(n) for n in range(1, 6)] == ["", "", "save", "", ""], "asked at another step")
        check(supervisor.rank(1) == (True, 5, 3), supervisor.rank(1))
        supervisor.ask(2, 6)
        check([saver.step(n) for n in (6, 7)] == ["stop", ""], "asked at another step")


def test_a_supervisor_that_is_gone_is_no_failure():
    with environment(NOTIFY_SOCKET=os.path.abspath("none")), ckpt.Saver("store") as saver:
        saver.step(1)
        saver.save({"a": torch.ones(1 << 20)}, 1).wait(60)


def test_what_is_not_given_comes_from_the_environment():
    with environment(CKPT_STORE="store", RANK=1, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2, CKPT_ATTEMPT=3, CKPT_RESUME=""):
        with ckpt.Saver() as one, ckpt.Saver(rank=0) as other:
            check((one.store, one.rank, one.world_size) == ("store", 1, 2), one)
            check((other.rank, other.world_size) == (0, 2), other)
            one.save({"a": 1}, 5)
            other.save({"a": 0}, 5).wait(60)
    found = listed("store")
    check([(c["step"], c["attempt"], c["world_size"]) for c in found] == [(5, 3, 2)], found)
    with environment(RANK=1, WORLD_SIZE=2):
        with ckpt.Saver("alone", 0, 1, attempt=2) as saver:
            saver.save({}, 1).wait(60)
    check([(c["attempt"], c["world_size"]) for c in listed("alone")] == [(2, 1)], "the environment won")


def test_what_is_newer_than_the_step_resumed_from_is_retired():
    def life(attempt, resume, steps, store=None, **more):
        with environment(CKPT_STORE="store", CKPT_ATTEMPT=attempt, CKPT_RESUME=resume), ckpt.Saver(store, **more) as saver:
            for step in steps:
                saver.save({"a": attempt}, step)
    steps = lambda store="store": [(c["step"], c["attempt"]) for c in listed(store)]
    life(1, "", (10, 20, 30))
    check(sorted(steps()) == [(10, 1), (20, 1), (30, 1)], steps())
    life(2, "store@10", (15,), "./store")  # the same place by another name
    check(sorted(steps()) == [(10, 1), (15, 2)], steps())
    life(3, "store@10", (40,), resumed_from=15)
    check(sorted(steps()) == [(10, 1), (15, 2), (40, 3)], steps())
    # From zero, and over what was there.
    life(4, "", (10,))
    check(steps() == [(10, 4)], steps())
    # Another store's lives are its own.
    life(1, "", (10, 20), "other")
    life(2, "store@10", (30,), "other")
    check(sorted(steps("other")) == [(10, 0), (20, 0), (30, 0)], steps("other"))


def test_a_malformed_variable_is_named():
    supervisor = Supervisor()
    fine = supervisor.variables()
    for name, value in (("NOTIFY_SOCKET", "relative"), ("NOTIFY_SOCKET", "@" + 200 * "x"), ("RANK", "x"), ("RANK", "-1"),
                        ("WORLD_SIZE", "1.5"), ("LOCAL_WORLD_SIZE", str(2**32)), ("CKPT_ATTEMPT", "one"),
                        ("CKPT_RESUME", "store"), ("CKPT_RESUME", "@3"), ("CKPT_RESUME", "store@latest"),
                        ("CKPT_CONTROL", os.path.abspath("none")), ("CKPT_CONTROL", "/dev/null"), ("LOCAL_RANK", "a"),
                        ("WATCHDOG_USEC", "soon"), ("WATCHDOG_PID", "me")):
        with environment(**dict(fine, CKPT_STORE="store", **{name: value})):
            check(name in raises(ckpt.Saver), f"{name} isn't named")
            if name == "CKPT_RESUME":
                check(name in raises(ckpt.resume) and name in raises(ckpt.resume_step), f"{name} isn't named")
    with environment(**dict(fine, LOCAL_RANK=1)):
        check("CKPT_CONTROL" in raises(ckpt.Saver, "store"), "CKPT_CONTROL isn't named")


def test_resume_gives_what_this_rank_goes_on_from():
    for rank in range(2):
        with ckpt.Saver("store", rank, 2) as saver:
            for step in (1, 2):
                saver.save({"rank": rank, "a": torch.full((3,), step)}, step)
    with environment(CKPT_RESUME=os.path.abspath("store") + "@1", RANK=1):
        check(ckpt.resume_step() == 1, ckpt.resume_step())
        state = ckpt.resume()
        check(state["rank"] == 1 and (state["a"] == 1).all(), state)
        check(ckpt.resume(rank=0)["rank"] == 0, "another rank's")
    with environment(CKPT_RESUME="store@2"):
        check(ckpt.resume(weights_only=False)["rank"] == 0, "another rank's")
    with environment(CKPT_RESUME="store@3"):
        raises(ckpt.resume)
    with environment(CKPT_RESUME=""):
        check(ckpt.resume() is None and ckpt.resume_step() is None, "there's something to resume")


def test_a_save_gives_signs_of_life_while_its_bytes_move_and_not_afterwards():
    supervisor = Supervisor()
    # Of each piece that moves, practically.
    with environment(NOTIFY_SOCKET=supervisor.name, WATCHDOG_USEC=30), ckpt.Saver("store", 0, 2) as saver:
        handle = saver.save({"a": torch.rand(4 << 20)}, 1)
        saver.wait(60)
        heard = supervisor.heard()
        check(len(heard) > 1 and set(heard) == {"WATCHDOG=1"}, heard)
        # The other rank never comes: nothing moves.
        try:
            handle.wait(0.2)
            check(False, "it's durable")
        except ckpt.TimedOut:
            pass
        check(not supervisor.heard(), "what hangs is said to be alive")


def test_a_save_that_hangs_gives_no_sign_of_life():
    supervisor = Supervisor()
    goes_on = threading.Event()
    records_of = ckpt._archive.records_of
    ckpt._archive.records_of = lambda *what: goes_on.wait() and records_of(*what)
    try:
        variables = dict(NOTIFY_SOCKET=supervisor.name, WATCHDOG_USEC=30)
        with environment(**variables), ckpt.Saver("store", close_timeout=10) as saver:
            saver.save({"a": torch.ones(3 << 20)}, 1)
            check(not supervisor.heard(0.3), "what hangs is said to be alive")
            goes_on.set()
            saver.wait(60)
            check(supervisor.heard(), "what goes on isn't")
    finally:
        ckpt._archive.records_of = records_of
        goes_on.set()


def test_signs_of_life_are_no_more_often_than_the_watchdog_needs():
    for variables in (dict(), dict(WATCHDOG_USEC=10**9), dict(WATCHDOG_USEC=30, WATCHDOG_PID=1)):
        supervisor = Supervisor()
        with environment(NOTIFY_SOCKET=supervisor.name, **variables), ckpt.Saver("store") as saver:
            begun = time.monotonic()
            saver.save({"a": torch.rand(4 << 20)}, 1, meta={"of": str(variables)})
            saver.wait(60)
            count = len(supervisor.heard())
            check(1 <= count <= 2 + time.monotonic() - begun, count)
        run("rm", "-rf", "store")


def test_save_gives_signs_of_life_while_it_waits_for_memory():
    supervisor = Supervisor()
    with environment(NOTIFY_SOCKET=supervisor.name, WATCHDOG_USEC=30):
        with ckpt.Saver("store", capture="copy", memory=4 << 20) as saver:
            handle = saver.save([torch.rand(4 << 20)], 1)
            check(supervisor.heard() and handle.timings["waves"] > 1, handle.timings)


def test_a_forks_child_says_nothing():
    supervisor = Supervisor()
    with environment(**supervisor.variables()), ckpt.Saver("store") as saver:
        child = os.fork()
        if not child:
            said = 1
            try:
                said = 0 if "fork" in raises(saver.step, 1) and "fork" in raises(saver.extend_timeout, 1) else 1
            finally:
                os._exit(said)
        check(os.waitpid(child, 0)[1] == 0, "the child saw otherwise")
        check(not supervisor.heard() and supervisor.rank(0)[1] == -1, "the child was heard")


if __name__ == "__main__":
    main()
