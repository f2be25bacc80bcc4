# SPDX-License-Identifier: Apache-2.0
# The demo's trainer without ckpt-run: its ranks are started here, with the environment that ckpt-run would set. However
# a model is split, it learns the same; and a run that was killed ends as the one that never was, to the bit.
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check, main, run

TRAINER = os.environ["CKPT_DEMO_TRAINER"]
TINY = ["--layers=2", "--width=32", "--heads=2", "--context=16", "--batch=6", "--lr=0.01", "--steps=40"]
PATIENCE = 120  # seconds; a run takes two, on a machine that has nothing else to do


class Ranks:
    def __init__(self, count, *options, store="", resume="", attempt=1, control=""):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.ranks = []
        for rank in range(count):
            env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count),
                       LOCAL_WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                       CKPT_STORE=store, CKPT_RESUME=resume, CKPT_ATTEMPT=str(attempt),
                       CKPT_CONTROL=control)
            self.ranks.append(subprocess.Popen([TRAINER, *TINY, *options], env=env, text=True, stdin=subprocess.DEVNULL,
                                               stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        self.timer = threading.Timer(PATIENCE, self.kill)
        self.timer.start()

    def kill(self):
        for rank in self.ranks:
            rank.kill()

    def read_until(self, text):
        for line in self.ranks[0].stdout:
            if text in line:
                return
        check(False, f"rank 0 ended without saying '{text}'")

    def finish(self, expect=0):
        """What each rank has said."""
        said = [rank.communicate() for rank in self.ranks]
        self.timer.cancel()
        codes = [rank.returncode for rank in self.ranks]
        check(all(code == expect for code in codes), f"exit statuses {codes}: {said}")
        return [out + err for out, err in said]


def end_of(count, *options, **more):
    """Step, loss and digest that a run ends with."""
    said = Ranks(count, *options, **more).finish()
    found = re.search(r"^final step (\d+) loss (\S+) digest (\w+)$", said[0], re.M)
    check(found, said)
    return int(found[1]), float(found[2]), found[3]


def alone():
    """The loss of a run that nothing is done to, and of which others differ by rounding only."""
    if not hasattr(alone, "end"):
        alone.end = end_of(1)
    return alone.end


def check_same_loss(end, what):
    check(end[0] == 40 and abs(end[1] - alone()[1]) < 0.02, f"{what}: {end}, and {alone()} on one rank")


def saved_steps(store):
    lines = run("ckpt-ls", "--json", store).stdout.decode().splitlines()
    return [record["step"] for record in map(json.loads, lines) if record["type"] == "checkpoint"]


def test_one_rank_learns_and_ends_the_same_twice():
    check(alone()[0] == 40 and alone()[1] < 4, alone())
    check(end_of(1) == alone(), "another end")


def test_two_ranks_end_the_same_twice_and_hold_the_same():
    said = [Ranks(2, "--digest").finish() for _ in range(2)]
    ends = {re.search("final .*", text)[0] for ranks in said for text in ranks}
    check(len(ends) == 1, ends)


def test_ranks_that_split_the_data_learn_the_same():
    check_same_loss(end_of(4), "four ranks, which can't have as many samples each")


def test_ranks_that_split_layers_learn_the_same():
    check_same_loss(end_of(2, "--tp=2"), "tp=2")


def test_ranks_that_share_out_the_layers_learn_the_same():
    check_same_loss(end_of(2, "--pp=2"), "pp=2")


def test_all_three_splits_together_learn_the_same():
    check_same_loss(end_of(8, "--tp=2", "--pp=2"), "dp=2, tp=2, pp=2")


def test_a_run_that_is_killed_and_resumed_ends_as_if_nothing_had_been():
    undisturbed = end_of(2, store="whole")
    check_same_loss(undisturbed, "two ranks")
    first = Ranks(2, "--save-every=10", "--steps=100000", store="runs")
    first.read_until("step 20 ")
    while not os.path.exists("runs") or 20 not in saved_steps("runs"):
        check(first.ranks[0].poll() is None, "rank 0 has ended")
        time.sleep(0.05)
    first.ranks[1].kill()
    first.ranks[1].wait()
    said = first.ranks[0].communicate()[1]
    first.timer.cancel()
    check(first.ranks[0].returncode == 1 and "rank 0: cannot sum over the ranks: " in said, said)
    check(end_of(2, store="runs", resume="runs@20", attempt=2) == undisturbed, "another end")
    check(max(saved_steps("runs")) == 40, saved_steps("runs"))
    run("ckpt-verify", "--deep", "runs", stdout=False, stderr=False)
    compared = run("ckpt-diff", "-q", "whole@40", "runs@40", expect=(0, 1))
    check(compared.returncode == 0, "the checkpoints differ")


def test_what_is_saved_in_one_split_is_resumed_in_another():
    for before, after in ([2, "--tp=2"], [1]), ([2, "--pp=2"], [1]), ([3], [4, "--tp=2"]):
        store = "-".join(str(word) for word in before)
        end_of(*before, "--steps=20", store=store)
        check_same_loss(end_of(*after, store=store, resume=f"{store}@20", attempt=2), f"{before}, then {after}")


def test_a_checkpoint_holds_each_tensor_once_however_many_ranks_hold_it():
    end_of(1, "--steps=2", store="one")
    end_of(4, "--steps=2", "--tp=2", store="four")
    size = {}
    for store in "one", "four":
        records = map(json.loads, run("ckpt-ls", "--json", store).stdout.decode().splitlines())
        size[store] = next(record["raw_bytes"] for record in records if record["type"] == "checkpoint")
    check(size["four"] < 1.2 * size["one"], size)


def page_that_asks_to_stop_at(step, ranks):
    """As lib/run/control_page.cpp has it when that has been agreed; a line of it for each rank."""
    with open(f"page{ranks}", "wb") as page:
        page.write(struct.pack("=5Q24x", 0x316E757274706B63, ranks, 2, step + 1, step + 1) + bytes(ranks * 64))
    return os.path.abspath(page.name)


def test_ranks_that_are_asked_to_stop_save_that_step_and_end_with_0():
    said = Ranks(2, store="runs", control=page_that_asks_to_stop_at(7, 2)).finish()
    check("stopped step 7 loss " in said[0], said)
    check(saved_steps("runs") == [7], saved_steps("runs"))


def test_a_loss_that_is_not_finite_ends_all_ranks_with_3():
    said = Ranks(2, "--nan-at=7").finish(expect=3)
    check(all("step 7: the loss or its gradient isn't finite" in text for text in said), said)


def test_what_cannot_be_is_refused():
    for options, status in (["--tp=3"], 2), (["--foo"], 2), (["--steps=x"], 2), (["--text=/nonexistent"], 1):
        run(TRAINER, *options, expect=(status,), stdout=False, stderr=True)
    said = Ranks(3, "--tp=2").finish(expect=1)
    check("--multiple-of=2" in said[0], said)


main()
