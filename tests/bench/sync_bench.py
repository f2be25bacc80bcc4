#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What copies cost: to a second local store, over a pipe, with nothing to do, on the wire, in memory, over slow links.

usage: sync_bench.py NAME...      (copy pipe idle wire memory links; run by `meson test --benchmark`)

CKPT_BENCH_SIZE (MiB, default 1024) and CKPT_BENCH_DIR as for bench.py, of which this uses the tools. Each figure is
printed beside its target; nothing passes or fails by a time. `pipe` needs rsync.
"""
import os
import shutil
import statistics
import struct
import subprocess
import sys
import threading
import time

os.environ.setdefault("CKPT_BENCH_SIZE", "1024")
from bench import DISK, MEMORY, ROUNDS, SIZE, Usage, fresh, in_turn, report, tensors_file, warm  # noqa: E402

SHARD = "0000000001/shard-00000-of-00001.ckpt"
# Passes one direction on, at most so many bytes a second, and appends to a file how many there were.
PASS = '''#!/usr/bin/python3
import os, sys, time
rate, note, done, begin = float(sys.argv[1]), sys.argv[2], 0, time.monotonic()
while True:
    data = os.read(0, 1 << 18)
    if not data:
        break
    done += len(data)
    while data:
        data = data[os.write(1, data):]
    if rate:
        time.sleep(max(0, begin + done / rate - time.monotonic()))
with open(note, "a") as f:
    f.write(f"{done}\\n")
'''


def script(name, text):
    path = f"{DISK}/{name}"
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, 0o755)
    return path


def pipe_shell():
    return script("rsh", '#!/bin/sh\nshift\nexec sh -c "$*"\n')


def filtered_shell(rate):
    script("pass", PASS)
    return script("slow", f'#!/bin/sh\nshift\n{DISK}/pass {rate} {DISK}/in | sh -c "$*" | {DISK}/pass 0 {DISK}/out\n')


def store_of(size, path):
    source = f"{DISK}/state.safetensors"
    tensors_file(source, size)
    subprocess.run(["ckpt-save", "--encode=raw", source, f"{path}@1"], check=True, stdout=subprocess.DEVNULL)
    os.unlink(source)
    warm(f"{path}/{SHARD}")


def bench_copy():
    store, second, copy = f"{DISK}/store", f"{DISK}/second", f"{DISK}/copy"
    store_of(SIZE, store)
    pairs = in_turn(
        lambda: Usage(["ckpt-sync", store, second], lambda: fresh(second, copy)),
        lambda: Usage(["sh", "-c", f"cp {store}/{SHARD} {copy} && sync {copy}"], lambda: fresh(second, copy)))
    report("sync to a second local store, against cp and fsync", pairs, "1.1", SIZE)


def bench_pipe():
    store, second, copy = f"{DISK}/store", f"{DISK}/second", f"{DISK}/copy"
    if shutil.which("rsync") is None:
        print("sync over a pipe: not measured, no rsync", flush=True)
        return
    store_of(SIZE, store)
    rsh = pipe_shell()
    for name, more in (("rsync -W --inplace", []), ("rsync -W --inplace --fsync", ["--fsync"])):
        pairs = in_turn(
            lambda: Usage(["ckpt-sync", "-e", rsh, store, f"host:{second}"], lambda: fresh(second, copy)),
            lambda: Usage(["rsync", "-W", "--inplace", *more, "-e", rsh, f"{store}/{SHARD}", f"host:{copy}"],
                          lambda: fresh(second, copy)))
        report(f"sync over a pipe, against {name}", pairs, "1.15", SIZE)


def bench_idle():
    """The store is made by copying one checkpoint's directory: what it's about is how many there are."""
    many, second = f"{MEMORY}/many", f"{MEMORY}/second"
    for step in range(1000):
        with open(f"{MEMORY}/x", "w", encoding="utf-8") as f:
            f.write(str(step))
        subprocess.run(["ckpt-save", "--base=none", f"{MEMORY}/x", f"{many}@{step}"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ckpt-sync", many, second], check=True)
    rsh = pipe_shell()
    for name, arguments in (("local", [many, second]), ("over a pipe", ["-e", rsh, many, f"host:{second}"])):
        walls = [Usage(["ckpt-sync", *arguments]).wall for _ in range(ROUNDS)]
        print(f"nothing to do over 1,000 checkpoints, {name}: {statistics.median(walls) * 1000:.1f} ms (target 50 ms local)",
              flush=True)


def bench_wire():
    store, second = f"{DISK}/store", f"{DISK}/second"
    count = SIZE // 64
    header = f'{{"w":{{"dtype":"F32","shape":[{count}],"data_offsets":[0,{count * 4}]}}}}'.encode()
    header += b" " * (-len(header) % 8)
    data = bytearray(os.urandom(count * 4))
    for step in (1, 2):
        with open(f"{DISK}/w.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header + data)
        subprocess.run(["ckpt-save", f"{DISK}/w.safetensors", f"{store}@{step}"], check=True, stdout=subprocess.DEVNULL)
        for at in range(0, len(data), 4):
            data[at] = data[at] ^ 1 if at % 16 == 0 else data[at]
    subprocess.run(["ckpt-sync", f"{store}@1", second], check=True)
    for note in ("in", "out"):
        fresh(f"{DISK}/{note}")
    subprocess.run(["ckpt-sync", "-e", filtered_shell(0), f"{store}", f"host:{second}"], check=True)
    passed = 0
    for note in ("in", "out"):
        end = time.monotonic() + 10
        while not os.path.exists(f"{DISK}/{note}") and time.monotonic() < end:
            time.sleep(0.01)
        with open(f"{DISK}/{note}", encoding="utf-8") as f:
            passed += sum(map(int, f))
    size = os.path.getsize(f"{store}/0000000002/shard-00000-of-00001.ckpt")
    print(f"a delta on the wire: {passed / size:.4f} times the container (target 1.02); {passed} of {size} bytes", flush=True)


class Anonymous:
    """The most anonymous memory of ckpt-sync processes, in MiB, by the role that their arguments tell."""

    def __enter__(self):
        self.peak, self.stop = {"near": 0.0, "far": 0.0}, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.stop.is_set():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as f:
                        command = f.read()
                    if not command.startswith(b"ckpt-sync\0"):
                        continue
                    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
                        anonymous = next(int(line.split()[1]) for line in f if line.startswith("RssAnon"))
                except (OSError, StopIteration):
                    continue
                role = "far" if b"--server" in command else "near"
                self.peak[role] = max(self.peak[role], anonymous / 1024)
            time.sleep(0.002)

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def bench_memory():
    store = f"{DISK}/store"
    store_of(SIZE, store)
    rsh = pipe_shell()
    cases = (("sent over a pipe", [store, f"host:{DISK}/b"]), ("fetched over a pipe", [f"host:{store}", f"{DISK}/c"]),
             ("three destinations", [store, f"host:{DISK}/d", f"host:{DISK}/e", f"{DISK}/f"]))
    for name, arguments in cases:
        with Anonymous() as memory:
            subprocess.run(["ckpt-sync", "-e", rsh, *arguments], check=True)
        print(f"anonymous memory, {name}: {memory.peak['near']:.0f} MiB here, {memory.peak['far']:.0f} MiB there "
              "(target 256)", flush=True)
        fresh(*(f"{DISK}/{n}" for n in "bcdef"))


def bench_links():
    store = f"{DISK}/store"
    size = min(SIZE, 256 << 20)
    store_of(size, store)
    rsh = filtered_shell(size / 5)  # five seconds each
    targets = [f"{DISK}/b", f"{DISK}/c"]
    pairs = [(Usage(["ckpt-sync", "-e", rsh, store, *(f"host:{t}" for t in targets)], lambda: fresh(*targets)),
              Usage(["ckpt-sync", "-e", rsh, store, f"host:{targets[0]}"], lambda: fresh(*targets))) for _ in range(3)]
    report("two destinations behind slow links, against one", pairs, "1.1")


def main():
    try:
        for name in sys.argv[1:]:
            globals()["bench_" + name]()
            shutil.rmtree(DISK)
            os.mkdir(DISK)
    finally:
        shutil.rmtree(DISK, ignore_errors=True)
        shutil.rmtree(MEMORY, ignore_errors=True)


if __name__ == "__main__":
    main()
