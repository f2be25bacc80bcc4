# SPDX-License-Identifier: Apache-2.0
# What is stored is the state at the call, whoever overwrites it right after: collectives in place and threads, on both
# ways of capture (where memory can be write-protected), also where memory is short. CKPT_TORN_ROUNDS says how many times.
import os
import shutil
import socket
import subprocess
import sys

from torch_support import HERE, check, run
from tap import Skip, main  # noqa: E402

ROUNDS = int(os.environ.get("CKPT_TORN_ROUNDS", "2"))
AT_ONCE = 10
MEMORY_GROUPS = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"

# Tensor i of rank r at step s is made of numbers that say so, and is overwritten as soon as save() is back.
WORKER = """
import os, sys, threading, torch, torch.distributed as dist
import ckpt
how, rounds, memory, mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
if world > 1:
    dist.init_process_group("gloo")
sizes = [mib << 17, mib << 16, 70001, 1023, 17, 0, 1]
state = {f"t{i}": torch.empty(size) for i, size in enumerate(sizes)}
state["view"] = state["t1"][3:-5:2]

def fill(step):
    for i in range(len(sizes)):
        tensor = state[f"t{i}"]
        torch.arange(float(tensor.numel()), out=tensor)
        tensor += step * 1000 + rank * 100 + i

def overwrite_by_collectives(step):
    for i in range(len(sizes)):
        if i % 2 == 0:
            dist.all_reduce(state[f"t{i}"])
        else:
            dist.broadcast(state[f"t{i}"], step % world)

def overwrite_by_threads(step):
    def work(first):
        for i in range(first, len(sizes), 3):
            state[f"t{i}"].fill_(-1.0)
    threads = [threading.Thread(target=work, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

overwrite = {"collectives": overwrite_by_collectives, "threads": overwrite_by_threads}[how]
for capture in ("auto", "copy"):
    with ckpt.Saver(capture, rank, world, capture=capture, memory=memory << 20, encode="raw") as saver:
        for step in range(1, rounds + 1):
            fill(step)
            handle = saver.save(state, step)
            overwrite(step)
            if step % 2 == 0:   # else the next one finds it still at work
                handle.wait(300)
        handle.wait(300)
    timings = handle.timings
    is_protected = timings["protected_bytes"] > timings["copied_bytes"]
    assert is_protected == (capture == "auto" and ckpt.can_protect()[0]), timings  # else one way is tested twice
"""

# Looks at the ranks' files as ckpt-restore gives them back.
READER = """
import sys, torch
for path in sys.argv[1:]:
    _, step, rank = path.split("-")
    state = torch.load(path + "/state.pt")
    for i in range(7):
        tensor = state[f"t{i}"]
        expected = torch.arange(float(tensor.numel())) + (int(step) * 1000 + int(rank) * 100 + i)
        assert torch.equal(tensor, expected), (path, i, (tensor != expected).nonzero()[:5])
    assert torch.equal(state["view"], state["t1"][3:-5:2]), (path, "view")
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(how, world, memory=0, mib=8, wrapper=()):
    """Saves in both ways, overwrites, and looks at what was stored: in stores that stay small, however often."""
    for done in range(0, ROUNDS, AT_ONCE):
        train_some(how, world, memory, mib, min(AT_ONCE, ROUNDS - done), wrapper)


def train_some(how, world, memory, mib, rounds, wrapper):
    common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
              "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.path.join(HERE, "..", "..", "lib", "python")}
    ranks = [subprocess.Popen([*wrapper, sys.executable, "-c", WORKER, how, str(rounds), str(memory), str(mib)],
                              env=dict(os.environ, RANK=str(rank), **common), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
             for rank in range(world)]
    for rank, process in enumerate(ranks):
        out, _ = process.communicate(timeout=800)
        check(process.returncode == 0, lambda: f"rank {rank} ended with {process.returncode}: {out[-2000:]!r}")
    restored = []
    for capture in ("auto", "copy"):
        for step in range(1, rounds + 1):
            for rank in range(world):
                restored.append(f"{capture}-{step}-{rank}")
                run("ckpt-restore", f"--rank={rank}", f"{capture}@{step}", restored[-1])
    run(sys.executable, "-c", READER, *restored, stderr=False)
    for path in ("auto", "copy", *restored):
        shutil.rmtree(path)


def test_collectives_that_overwrite_what_is_saved_do_not_tear_it():
    train("collectives", 2)


def test_threads_that_overwrite_what_is_saved_do_not_tear_it_where_little_can_be_set_aside():
    train("threads", 1, memory=4, mib=32)


class MemoryGroup:
    """A control group of the first or second version that has so much memory."""

    def __init__(self, mib):
        self.path = None
        self.size = mib << 20
        for top in MEMORY_GROUPS:
            limit = {"memory.limit_in_bytes", "memory.max"}
            path = os.path.join(top, f"ckpt-torn-{os.getpid()}")
            try:
                os.mkdir(path)
                name = limit.intersection(os.listdir(path)).pop()
                with open(os.path.join(path, name), "w") as file:
                    file.write(str(self.size))
            except (OSError, KeyError):
                if os.path.isdir(path):
                    os.rmdir(path)
                continue
            self.path = path
            return
        raise Skip("no control group of memory can be made here")

    def __enter__(self):
        """Runs a command in it, beside one that reads a file of twice the size over and over."""
        with open("large", "w") as file:
            file.truncate(2 * self.size)
        return ("sh", "-c", f'''echo $$ >{self.path}/cgroup.procs || exit
            while :; do cat large; done >/dev/null & reader=$!
            "$@"; status=$?
            kill $reader; wait $reader
            exit $status''', "sh")

    def __exit__(self, *_):
        os.rmdir(self.path)

    def has_been_short(self):
        if os.path.exists(f"{self.path}/memory.failcnt"):
            with open(f"{self.path}/memory.failcnt") as file:
                return int(file.read()) > 0
        with open(f"{self.path}/memory.events") as file:
            return int(dict(line.split() for line in file)["max"]) > 0


def test_memory_that_is_short_tears_nothing():
    group = MemoryGroup(400)
    with group as wrapper:
        train("threads", 1, mib=160, wrapper=wrapper)
        check(group.has_been_short(), "there was memory enough")


main()
