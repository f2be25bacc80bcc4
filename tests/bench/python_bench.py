# SPDX-License-Identifier: Apache-2.0
# What save() costs the trainer in Python: the walk and the whole call, for many small tensors and for a few large ones.
import os
import shutil
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "lib", "python"))

try:
    import torch
except ImportError:
    print("there's no PyTorch here")
    sys.exit(0)

import ckpt  # noqa: E402


def small(count=3000):
    """`count` parameters of 64 floats, and AdamW's state of them: four times as many tensors."""
    return {"model": {f"layers.{n}.weight": torch.nn.Parameter(torch.randn(64)) for n in range(count)},
            "optimizer": {"state": {n: {"step": torch.tensor(1.0), "exp_avg": torch.randn(64),
                                        "exp_avg_sq": torch.randn(64)} for n in range(count)}}}


def large(gigabytes=1):
    return {f"layer {n}": torch.randn(1 << 26) for n in range(4 * gigabytes)}


def measure(name, state, rounds):
    store = tempfile.mkdtemp(prefix="ckpt-bench.", dir=os.environ.get("CKPT_BENCH_DIR"))
    try:
        walks, calls, freezes, describes = [], [], [], []
        with ckpt.Saver(store, encode="raw", base_step=False) as saver:
            for step in range(rounds):
                begun = time.perf_counter()
                handle = saver.save(state, step)
                calls.append(time.perf_counter() - begun)
                handle.wait()
                timings = handle.timings
                walks.append(timings["walk_seconds"])
                freezes.append(timings["freeze_seconds"])
                describes.append(timings["describe_seconds"])
        beyond = [call - freeze for call, freeze in zip(calls, freezes)]
        figures = (("call", calls), ("walk", walks), ("freeze", freezes), ("beyond the capture", beyond),
                   ("describe", describes))
        print(f"{name}: {timings['tensors']} tensors, {timings['raw_bytes'] >> 20} MiB, "
              f"{timings['why_copied'] or 'protected'}; median of {rounds}, and the worst")
        for what, seconds in figures:
            print(f"  {what:20} {statistics.median(seconds) * 1e3:9.1f} ms {max(seconds) * 1e3:9.1f} ms")
    finally:
        shutil.rmtree(store)


measure("small", small(), 10)
measure("large", large(), 4)
