# SPDX-License-Identifier: Apache-2.0
# A rank for tests of ckpt-run, without any library: counts steps, saves its shard every few of them with ckpt-save, and
# says so as sd_notify does. It looks at the requests of ckpt-run's shared page. Ends with 0 after STEPS, or when asked.
# Once the file FAIL exists and step FAIL_STEP is done, the rank FAIL_RANK removes it and fails.
import mmap
import os
import socket
import struct
import subprocess
import sys
import time

steps, pause, every = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
environment = os.environ
rank, world, attempt = int(environment["RANK"]), int(environment["WORLD_SIZE"]), environment["CKPT_ATTEMPT"]
store, resume = environment["CKPT_STORE"], environment["CKPT_RESUME"]
told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
address = environment["NOTIFY_SOCKET"]
address = "\0" + address[1:] if address.startswith("@") else address


def tell(text):
    try:
        told.sendto(text.encode(), address)
    except OSError:
        pass


class Page:
    """lib/run/control_page.hpp: two kinds of lines of 64 bytes, and words of 8."""

    def __init__(self, path, local_rank):
        file = os.open(path, os.O_RDWR)
        self.words = memoryview(mmap.mmap(file, os.fstat(file).st_size)).cast("Q")
        self.own = 8 + 8 * local_rank
        self.words[self.own] = 1

    def finish(self, step):
        self.words[self.own + 1] = step + 1
        while True:
            proposed = self.words[3]
            if proposed in (0, self.words[self.own + 2]) or step + 1 < proposed:
                return 0
            if self.words[4] == proposed:
                request = self.words[2]
                self.words[self.own + 2] = proposed
                return request
            time.sleep(0.001)


def save(step):
    with open(f"state-{attempt}-{rank}", "w") as f:
        f.write(f"{step} {rank} {world}\n")
    done = subprocess.run(["ckpt-save", f"--rank={rank}", f"--world-size={world}", f"--attempt={attempt}",
                           *([f"--resumed-from={start}"] if resume else []), f.name, f"{store}@{step}"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        with open("refused", "a") as f:
            f.write(f"{attempt} {rank} {step} {done.returncode} {done.stderr!r}\n")
        sys.exit(3)


start = int(resume.rpartition("@")[2]) if resume else 0
page = None if environment.get("PLAIN") else Page(environment["CKPT_CONTROL"], int(environment["LOCAL_RANK"]))
with open("started", "a") as f:
    f.write(f"{attempt} {rank} {world} {start} {environment['MASTER_ADDR']} {environment['MASTER_PORT']}\n")
step = start
tell("WATCHDOG=1")
while step < steps:
    time.sleep(pause)
    step += 1
    tell(f"WATCHDOG=1\nSTATUS=step {step}")
    request = page.finish(step) if page else 0
    if request or step % every == 0 or step == steps:
        save(step)
    if rank == int(environment.get("FAIL_RANK", -1)) and step >= int(environment["FAIL_STEP"]):
        try:
            os.unlink("FAIL")
        except OSError:
            continue
        sys.exit(7)
    if request == 2:
        sys.exit(0)
