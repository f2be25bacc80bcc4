#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What deltas save on real training series, beside what else one would run: stored bytes / raw bytes, and seconds.

usage: delta_bench.py SERIES   (or CKPT_SERIES=SERIES, which `meson test --benchmark` passes on)

SERIES has a directory for each series with files step00200.pt, 201, 300 and 310: adam (fp32 weights and moments), bf16,
adapter, sparse. Every restore is compared bit for bit. zstd and xdelta3 are run where they're installed.
"""
import filecmp
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

PAIRS = ((None, 300), (300, 310), (200, 201))
LIMITS = {("adam", 300): 0.825, ("adam", 310): 0.735, ("adam", 201): 0.672, ("bf16", 300): 0.665, ("bf16", 310): 0.42,
          ("bf16", 201): 0.23, ("adapter", 310): 0.0145, ("sparse", 310): 0.0205}


def timed(*command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def stored(store, step):
    directory = f"{store}/{step:010}"
    return sum(os.path.getsize(f"{directory}/{name}") for name in os.listdir(directory) if name.endswith(".ckpt"))


def ours(path, base, step, encode, raw):
    shutil.rmtree("st", ignore_errors=True)
    if base is not None:
        timed("ckpt-save", f"--encode={encode}", path(base), f"st@{base}")
    wall, cpu = timed("ckpt-save", f"--encode={encode}", path(step), f"st@{step}")
    shutil.rmtree("out", ignore_errors=True)
    back, back_cpu = timed("ckpt-restore", f"st@{step}", "out")
    if not filecmp.cmp(f"out/{os.path.basename(path(step))}", path(step), shallow=False):
        sys.exit(f"{path(step)} came back with other bytes")
    rate = lambda seconds: raw / seconds / 1e9
    return (f"{encode} {stored('st', step) / raw:.4f} (save {rate(wall):.2f} GB/s, {rate(cpu):.2f} a core; "
            f"restore {rate(back):.2f}, {rate(back_cpu):.2f} a core)")


def peer(name, command, raw):
    if shutil.which(command[0]) is None:
        return f"{name} not installed"
    if os.path.exists("peer"):
        os.remove("peer")
    wall, _ = timed(*command)
    return f"{name} {os.path.getsize('peer') / raw:.4f} ({raw / wall / 1e9:.2f} GB/s)"


def chain(path, raw):
    """Eight copies, each stored against the one before: how fast the end of the longest chain comes back."""
    shutil.rmtree("st", ignore_errors=True)
    order = (200, 201, 210, 300, 310, 300, 210, 201, 200)
    for step, source in enumerate(order, 1):
        timed("ckpt-save", path(source), f"st@{step}")
    shutil.rmtree("out", ignore_errors=True)
    wall, cpu = timed("ckpt-restore", f"st@{len(order)}", "out")
    return f"{raw / wall / 1e9:.2f} GB/s, {raw / cpu / 1e9:.2f} a core (target 0.8 a core)"


def main(series):
    os.chdir(tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("CKPT_BENCH_DIR", os.getcwd())))
    here = os.getcwd()
    try:
        for kind in ("adam", "bf16", "adapter", "sparse"):
            path = lambda step: f"{series}/{kind}/step{step:05}.pt"
            for base, step in PAIRS:
                raw = os.path.getsize(path(step))
                what = f"{kind} {step}" + (f" after {base}" if base else " on its own")
                limit = LIMITS.get((kind, step))
                print(f"{what}" + (f" (target {limit})" if limit else ""), flush=True)
                for encode in ("fast", "best"):
                    print("  ", ours(path, base, step, encode, raw), flush=True)
                print("  ", peer("zstd -3", ["zstd", "-q", "-f", "-3", "-T1", path(step), "-o", "peer"], raw), flush=True)
                if base:
                    print("  ", peer("zstd -3 --patch-from", ["zstd", "-q", "-f", "-3", "-T1", "--long=27",
                                                              f"--patch-from={path(base)}", path(step), "-o", "peer"], raw),
                          flush=True)
                    print("  ", peer("xdelta3 -3", ["xdelta3", "-f", "-3", "-e", "-s", path(base), path(step), "peer"], raw),
                          flush=True)
            print(f"{kind}: a chain of eight is restored at {chain(path, raw)}", flush=True)
    finally:
        shutil.rmtree(here)


where = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CKPT_SERIES")
if not where:
    print("no series of checkpoints: CKPT_SERIES=DIR names one")
    sys.exit(77)
main(os.path.abspath(where))
