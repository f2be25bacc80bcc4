#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a save in the background costs: the trainer's stall, the whole way into the store, and a loop's speed meanwhile.

usage: spool_bench.py NAME...      (stall through loop; run by `meson test --benchmark`)

CKPT_BENCH_SIZE (MiB, default 4096 for stalls, 2048 else) and CKPT_BENCH_DIR as for bench.py, of which this uses the
tools. Each figure is printed beside its target; nothing passes or fails by a time.
"""
import fcntl
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time

os.environ.setdefault("CKPT_BENCH_SIZE", "4096" if "stall" in sys.argv else "2048")
from bench import DISK, MEMORY, ROUNDS, SIZE, Usage, fresh, report, tensors_file  # noqa: E402


class NoWorker:
    """No worker drains a spool while this lives, so that it has no part in what is measured."""

    def __init__(self, spool):
        os.makedirs(spool, exist_ok=True)
        self.file = open(os.path.join(spool, "lock"), "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def end(self):
        time.sleep(0.2)
        self.file.close()


def stalls(name, place, arguments, target, consume):
    """Milliseconds that ckpt-save takes beyond its start-up; for copies the ratio to cp."""
    source, store, spool, copy = (f"{place}/{n}" for n in ("state.safetensors", "store", "spool", "copy"))
    if not os.path.exists(source):
        tensors_file(source, SIZE)
        os.sync()
    start_up = statistics.median(Usage(["ckpt-save", "--version"]).wall for _ in range(ROUNDS))
    fresh(store, spool)
    held = NoWorker(spool)
    # The store and its spool are made by the first save of a training.
    subprocess.run(["ckpt-save", "--detach", f"--spool={spool}", "/etc/hostname", f"{store}@0"], check=True, stdout=subprocess.DEVNULL)
    walls, peers = [], []
    for step in range(1, ROUNDS + 1):
        os.sync()
        walls.append(Usage(["ckpt-save", "--detach", *arguments, f"--spool={spool}", source, f"{store}@{step}"]).wall)
        staged = next(e for e in os.listdir(f"{spool}/staged") if e.startswith(f"{step:010}"))
        if consume:
            os.rename(f"{spool}/staged/{staged}/tree/state.safetensors", source)
        shutil.rmtree(f"{spool}/staged/{staged}")
        if not consume and "reflink" not in name:
            os.sync()
            peers.append(Usage(["cp", source, copy]).wall)
            os.unlink(copy)
    held.end()
    if peers:
        ratio = statistics.median(a / b for a, b in zip(walls, peers))
        print(f"{name}: {ratio:.2f} times cp (target {target}); {statistics.median(walls):.3f} s", flush=True)
    else:
        beyond = (statistics.median(walls) - start_up) * 1000
        print(f"{name}: {beyond:.1f} ms beyond start-up (target {target}) for {SIZE >> 20} MiB", flush=True)


def bench_stall():
    stalls("stall, renamed", DISK, ["--consume"], "20 ms", True)
    stalls("stall, copied", DISK, [], "1.1", False)
    image, mount = f"{DISK}/image", f"{DISK}/mount"
    os.makedirs(mount, exist_ok=True)
    with open(image, "wb") as f:
        f.truncate(SIZE * 3)
    if subprocess.run(["mkfs.btrfs", "-q", image], check=False).returncode or subprocess.run(["mount", "-o", "loop", image, mount], check=False).returncode:
        print("stall, reflinked: not measured, no file system that clones can be mounted", flush=True)
        return
    try:
        stalls("stall, reflinked", mount, [], "20 ms", False)
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


def bench_through():
    source, store, spool = f"{DISK}/state.safetensors", f"{DISK}/store", f"{DISK}/spool"
    tensors_file(source, SIZE)
    keep = f"{DISK}/keep"

    def in_background():
        fresh(store)
        start = time.perf_counter()
        subprocess.run(["ckpt-save", "--encode=raw", "--detach", "--consume", source, f"{store}@1"], check=True, stdout=subprocess.DEVNULL)
        staged = next(os.path.join(base, "state.safetensors") for base, _, files in os.walk(f"{store}/.spool") if "state.safetensors" in files)
        os.link(staged, keep)  # the input back for the next round
        subprocess.run(["ckpt-wait", store], check=True)
        usage = Usage(["true"])
        usage.wall = time.perf_counter() - start
        os.rename(keep, source)
        return usage

    def direct():
        return Usage(["ckpt-save", "--encode=raw", source, f"{store}@1"], lambda: fresh(store))

    pairs = [(in_background(), direct()) for _ in range(ROUNDS)]
    report("through the spool, against a direct save", pairs, "1.0")


def bench_loop():
    """Rounds of a loop that computes, alone and while saves drain, on a machine with a free core."""
    source, store = f"{DISK}/state.safetensors", f"{DISK}/store"
    tensors_file(source, SIZE // 2)
    data = os.urandom(1 << 20)

    def rounds(until):
        count = 0
        start = time.perf_counter()
        while not until(time.perf_counter() - start):
            hashlib.sha256(data).digest()
            count += 1
        return count / (time.perf_counter() - start)

    ratios = []
    for step in range(ROUNDS):
        fresh(store)
        alone = rounds(lambda seconds: seconds > 3)
        subprocess.run(["ckpt-save", "--detach", source, f"{store}@{step}"], check=True, stdout=subprocess.DEVNULL)
        done = threading.Event()
        waiter = threading.Thread(target=lambda: (subprocess.run(["ckpt-wait", store], check=True), done.set()))
        waiter.start()
        beside = rounds(lambda seconds: done.is_set() and seconds > 0.2)
        waiter.join()
        again = rounds(lambda seconds: seconds > 3)
        ratios.append((alone + again) / 2 / beside)
    print(f"loop beside a save that drains: {statistics.median(ratios):.3f} times as long as alone (target 1.03)", flush=True)


def main():
    benches = {"stall": bench_stall, "through": bench_through, "loop": bench_loop}
    try:
        for name in sys.argv[1:]:
            benches[name]()
    finally:
        shutil.rmtree(DISK, ignore_errors=True)
        shutil.rmtree(MEMORY, ignore_errors=True)


if __name__ == "__main__":
    main()
