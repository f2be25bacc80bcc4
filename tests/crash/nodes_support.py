# SPDX-License-Identifier: Apache-2.0
# Several ckpt-run, each a node of one job, as the tests of static and of elastic nodes need them.
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import tap
from tap import check, run

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_rank.py")
OWN = ("ckpt-run", "ckpt-ranks", "ckpt-store", "ckpt-link")
PYTHON = "/usr/bin/python3"


def until(condition, what, limit=90):
    end = time.monotonic() + limit
    while True:
        if condition():
            return
        check(time.monotonic() < end, lambda: f"not in {limit} s: {what}\n{everything()}")
        time.sleep(0.05)


def text(path):
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as f:
        return f.read()
    return ""


def everything():
    return "\n".join(f"{n}: {text(n)[-1500:]}" for n in sorted(os.listdir(".")) if n.endswith(".err") or n in ("started", "refused"))


def stat_of(pid):
    return text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def tree(root):
    """A process and all below it."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_of(name)
            if fields:
                children.setdefault(int(fields[1]), []).append(int(name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


class Node:
    def __init__(self, name, *options, steps=60, pause=0.05, every=5, nproc=1, inside=(), env=None):
        self.name = name
        self.out, self.err = open(f"{name}.out", "wb"), open(f"{name}.err", "wb")
        self.process = subprocess.Popen(
            [*inside, "ckpt-run", "--store=s", f"--nproc={nproc}", "--log-json", "--json", f"--log-dir=log-{name}", *options,
             "--", PYTHON, RANK, str(steps), str(pause), str(every)],
            stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err, env=dict(os.environ, **(env or {})))

    def send(self, number):
        for pid in [p for p in tree(self.process.pid) if text(f"/proc/{p}/comm").strip() in OWN]:
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def kill(self):
        """As if the machine were off."""
        for pid in tree(self.process.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def end(self, *expect, limit=120):
        try:
            self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"node {self.name} still runs\n{everything()}") from None
        check(self.process.returncode in expect, lambda: f"node {self.name}: {self.process.returncode}\n{everything()}")

    def events(self, kind):
        found = []
        for line in text(f"{self.name}.err").splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event.get("type") == kind:
                    found.append(event)
        return found

    def summary(self):
        """What it says of the whole run; nothing if it ended for an error of its own."""
        records = [json.loads(line) for line in text(f"{self.name}.out").splitlines()]
        return next((record for record in records if "outcome" in record), {})


@contextlib.contextmanager
def nodes_that_end():
    """A list for nodes: none of it outlives the test."""
    nodes = []
    try:
        yield nodes
    finally:
        for node in nodes:
            node.send(signal.SIGCONT)
            if node.process.poll() is None:
                node.kill()


def started():
    """(attempt, rank, world size, step it began from) of each rank that ever ran, in order."""
    return [tuple(int(word) for word in line.split()[:4]) for line in text("started").splitlines()]


def attempts():
    return sorted({line[0] for line in started()})


def attempt_runs(attempt, ranks):
    return len({rank for a, rank, *_ in started() if a == attempt}) == ranks


def checkpoints():
    if not os.path.isdir("s"):
        return []
    done = run("ckpt-ls", "--json", "s", expect=None)
    found = [json.loads(line) for line in done.stdout.splitlines() if b'"checkpoint"' in line]
    return sorted((c["step"], c["attempt"], c["world_size"]) for c in found)


def newest():
    return max((step for step, *_ in checkpoints()), default=0)


def check_store(last):
    """All there up to `last`, intact, and no step of an earlier attempt after one of a later."""
    run("ckpt-verify", "--deep", "s", stdout=False)
    there = checkpoints()
    check(there and there[-1][0] == last, lambda: f"the last is not {last}: {there}\n{everything()}")
    by_step = [attempt for _, attempt, _ in there]
    check(by_step == sorted(by_step), lambda: f"attempts go down: {there}")
    # What a restart began from was never behind what was committed before.
    begun = {}
    for attempt, _, _, step in started():
        check(begun.setdefault(attempt, step) == step, lambda: f"attempt {attempt} began from two steps: {started()}")
    for attempt, step in begun.items():
        kept = [s for s, a, _ in there if a < attempt]
        check(all(s <= step for s in kept), lambda: f"attempt {attempt} began before what was kept: {there} {begun}")
    return begun
