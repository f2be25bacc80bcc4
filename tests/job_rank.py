#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# A rank of a job for tests of ckpt-run: a training without PyTorch, whose state after a step follows from all steps before
# and from the world size, so that what was lost or done twice shows in the end. It tells of each step as sd_notify has it,
# looks for requests in the control page, and saves with ckpt-save.
#
#   job_rank.py --steps=N [--pause=SECONDS] [--save-every=N] [--fail=ATTEMPT,RANK,STEP,HOW]...
#
# HOW: kill, stop (SIGSTOP), silent, exit-N, segv, idle (lives on, and takes no part in the steps any more). RANK or
# ATTEMPT may be '*'. At the end each rank writes its state to final-RANK. --deaf: knows nothing of heartbeats and
# requests, as a script that was written for torchrun.
import argparse
import hashlib
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LOCAL_RANK, ATTEMPT = int(os.environ["LOCAL_RANK"]), os.environ["CKPT_ATTEMPT"]
STORE, RESUME = os.environ["CKPT_STORE"], os.environ["CKPT_RESUME"]

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--pause", type=float, default=0.05)
parser.add_argument("--save-every", type=int, default=0)
parser.add_argument("--fail", action="append", default=[])
parser.add_argument("--deaf", action="store_true")
parser.add_argument("--save-option", action="append", default=[])
given = parser.parse_args()


class Line:
    """The words of the control page, each with one writer; see lib/run/control_page.cpp."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.connect(os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
        with open(os.environ["CKPT_CONTROL"], "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 0)
        self.own = 64 + 64 * LOCAL_RANK
        self.put(self.own, 1)

    def get(self, at):
        return struct.unpack_from("<Q", self.page, at)[0]

    def put(self, at, value):
        struct.pack_into("<Q", self.page, at, value)

    def finish(self, step):
        self.put(self.own + 8, step + 1)
        self.socket.send(b"WATCHDOG=1\nSTATUS=step %d loss %.3f" % (step, 1 / (step + 1)))
        while True:
            proposed, request, agreed = self.get(24), self.get(16), self.get(32)
            if proposed == 0 or proposed == self.get(self.own + 16) or step + 1 < proposed:
                return ""
            if agreed == proposed:
                self.put(self.own + 16, proposed)
                return ("", "save", "stop")[request]
            time.sleep(0.001)


def fail(how, line):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "idle":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        while True:
            line.socket.send(b"WATCHDOG=1")
            time.sleep(0.1)
    if how == "silent":
        time.sleep(1000)
    if how.startswith("exit-"):
        print(f"rank {RANK} fails as it was told", flush=True)
        sys.exit(int(how[5:]))
    sys.exit(f"no such way to fail: {how}")


def save(state, step):
    name = f"{os.environ.get('JOB_SCRATCH', '.')}/state-{RANK}"
    with open(name, "w") as file:
        file.write(state)
    subprocess.run(["ckpt-save", f"--attempt={ATTEMPT}", f"--rank={RANK}", f"--world-size={WORLD}", "--replace",
                    *given.save_option, name, f"{STORE}@{step}"], check=True, stdout=subprocess.DEVNULL)


def resume():
    if not RESUME:
        return "", 0
    step = int(RESUME.rsplit("@", 1)[1])
    def output(*command):
        return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
    shards = int(output("ckpt-ls", "--get=shards", RESUME))
    return output("ckpt-restore", f"--rank={RANK % shards}", "-o", "-", RESUME), step


def main():
    line = None if given.deaf else Line()
    state, step = resume()
    print(f"rank {RANK} of {WORLD} goes on from step {step}", flush=True)
    while step < given.steps:
        time.sleep(given.pause)
        step += 1
        state = hashlib.sha256(f"{state} {step} {RANK} {WORLD}".encode()).hexdigest()
        for failure in given.fail:
            attempt, rank, at, how = failure.split(",")
            if attempt in ("*", ATTEMPT) and rank in ("*", str(RANK)) and step == int(at):
                fail(how, line)
        request = line.finish(step) if line else ""
        if request or (given.save_every and step % given.save_every == 0):
            save(state, step)
        if request == "stop":
            return
    with open(f"final-{RANK}", "w") as file:
        file.write(state)


main()
