#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Speed as ratios to what else one would run on this machine: each figure and its peer in turn, five times each, medians.

usage: bench.py NAME...      (save restore verify startup list tiny; run by `meson test --benchmark`)

CKPT_BENCH_SIZE (MiB, default 2048) is the size of the checkpoint, CKPT_BENCH_DIR a directory on the disk to measure.
Nothing here passes or fails by a time: the numbers are printed beside their targets.
"""
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

ROUNDS = 5
SIZE = int(os.environ.get("CKPT_BENCH_SIZE", "2048")) << 20
DISK = tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("CKPT_BENCH_DIR", os.getcwd()))
MEMORY = tempfile.mkdtemp(prefix="ckpt-bench-", dir="/dev/shm")


class Usage:
    """What one run of a command took: wall and CPU seconds, peak memory in MiB."""

    def __init__(self, argv, before=None):
        if before:
            before()
        start = time.perf_counter()
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        error = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        self.wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{argv[0]} ended with {process.returncode}: {error.decode()}")
        self.cpu = usage.ru_utime + usage.ru_stime
        self.memory = usage.ru_maxrss / 1024


def in_turn(ours, peer):
    """[(ours, peer)], run one after the other."""
    return [(ours(), peer()) for _ in range(ROUNDS)]


def report(name, pairs, target, size=None):
    ratio = statistics.median(a.wall / b.wall for a, b in pairs)
    ours = statistics.median(a.wall for a, _ in pairs)
    peer = statistics.median(b.wall for _, b in pairs)
    line = f"{name}: {ratio:.2f} times the peer (target {target}); {ours:.3f} s and {peer:.3f} s"
    if size:
        cpu = statistics.median((a.cpu - b.cpu) for a, b in pairs) / (size / 2**30)
        line += f"; CPU beyond the peer's {cpu:.2f} s/GiB (target 0.5); peak {max(a.memory for a, _ in pairs):.0f} MiB"
    print(line, flush=True)


def tensors_file(path, size, count=32):
    """A safetensors file of random float32 tensors, in the page cache."""
    each = size // count // 4096 * 4096
    header = {f"layers.{i}.weight": {"dtype": "F32", "shape": [each // 4], "data_offsets": [i * each, (i + 1) * each]}
              for i in range(count)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        piece = os.urandom(min(each, 8 << 20))
        for i in range(count):
            left = each
            while left:
                out.write(piece[: min(left, len(piece))])
                left -= min(left, len(piece))
        out.flush()
        os.fsync(out.fileno())
    warm(path)


def warm(path):
    with open(path, "rb") as file:
        while file.read(8 << 20):
            pass


def drop(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def fresh(*paths):
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        if os.path.exists(path):
            os.unlink(path)
    os.sync()


def bench_save():
    source, copy, store = f"{DISK}/state.safetensors", f"{DISK}/copy", f"{DISK}/store"
    tensors_file(source, SIZE)
    pairs = in_turn(
        lambda: Usage(["ckpt-save", "--encode=raw", source, f"{store}@1"], lambda: fresh(store, copy)),
        lambda: Usage(["dd", f"if={source}", f"of={copy}", "bs=8M", "oflag=direct", "conv=fsync", "status=none"],
                      lambda: fresh(store, copy)))
    report("save to disk, against dd oflag=direct conv=fsync", pairs, "1.15", SIZE)


def saved_container():
    source, store = f"{DISK}/state.safetensors", f"{DISK}/store"
    if not os.path.exists(source):
        tensors_file(source, SIZE)
    fresh(store)
    subprocess.run(["ckpt-save", "--encode=raw", source, f"{store}@1"], check=True, stdout=subprocess.DEVNULL)
    return store, f"{store}/0000000001/shard-00000-of-00001.ckpt"


def bench_restore():
    store, container = saved_container()
    out, copy = f"{MEMORY}/out", f"{MEMORY}/copy"

    def cold():
        fresh(out, copy)
        drop(container)

    pairs = in_turn(
        lambda: Usage(["ckpt-restore", f"{store}@1", out], cold),
        lambda: Usage(["dd", f"if={container}", f"of={copy}", "bs=8M", "iflag=direct", "status=none"], cold))
    if subprocess.run(["cmp", f"{DISK}/state.safetensors", f"{out}/state.safetensors"]).returncode != 0:
        fresh(out)
        subprocess.run(["ckpt-restore", f"{store}@1", out], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmp", f"{DISK}/state.safetensors", f"{out}/state.safetensors"], check=True)
    report("restore to tmpfs, cold, against dd iflag=direct to tmpfs", pairs, "1.15", SIZE)
    fresh(out, copy)


def bench_verify():
    store, container = saved_container()
    pairs = in_turn(
        lambda: Usage(["ckpt-verify", f"{store}@1"], lambda: drop(container)),
        lambda: Usage(["dd", f"if={container}", "of=/dev/null", "bs=8M", "iflag=direct", "status=none"],
                      lambda: drop(container)))
    report("verify cold, against dd iflag=direct", pairs, "1.15", SIZE)
    warm(container)
    pairs = in_turn(lambda: Usage(["ckpt-verify", f"{store}@1"]), lambda: Usage(["xxhsum", "-H2", container]))
    report("verify hot, against xxhsum -H2", pairs, "0.59", SIZE)


def bench_startup():
    runs = 200

    def loop(argv):
        start = time.perf_counter()
        for _ in range(runs):
            subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
        return (time.perf_counter() - start) / runs * 1000

    for tool in ("ckpt-save", "ckpt-restore", "ckpt-verify", "ckpt-ls"):
        times = [(loop([tool, "--version"]), loop(["/bin/true"])) for _ in range(ROUNDS)]
        beyond = statistics.median(a - b for a, b in times)
        print(f"start-up of {tool}: {beyond:.1f} ms beyond /bin/true (target 5)", flush=True)


def bench_list():
    store, source = f"{DISK}/many", f"{DISK}/small.bin"
    with open(source, "wb") as out:
        out.write(os.urandom(1000))
    fresh(store)
    for step in range(1000):
        subprocess.run(["ckpt-save", "--encode=raw", source, f"{store}@{step}"], check=True, stdout=subprocess.DEVNULL)
    times = [Usage(["ckpt-ls", store]).wall for _ in range(ROUNDS)]
    print(f"1,000 checkpoints listed in {statistics.median(times) * 1000:.0f} ms (target 50)", flush=True)


def tiny_tensors(path, count):
    """A torch file of `count` tensors of 16 floats, as torch.save lays it out."""
    out = bytearray(b"\x80\x02}q\x00(")
    memo = 1
    for i in range(count):
        name = f"layer.{i}.bias".encode()
        key = str(i).encode()
        out += b"X" + struct.pack("<I", len(name)) + name
        out += b"ctorch._utils\n_rebuild_tensor_v2\n((" + b"X\x07\x00\x00\x00storage" + b"ctorch\nFloatStorage\n"
        out += b"X" + struct.pack("<I", len(key)) + key + b"X\x03\x00\x00\x00cpuK\x10tQK\x00K\x10\x85K\x01\x85\x89"
        out += b"ccollections\nOrderedDict\n)RtR"
        memo += 1
    out += b"u."
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("tiny/data.pkl", bytes(out))
        archive.writestr("tiny/byteorder", "little")
        payload = os.urandom(64)
        for i in range(count):
            archive.writestr(f"tiny/data/{i}", payload)
        archive.writestr("tiny/version", "3\n")


def bench_tiny():
    source, copy, store = f"{DISK}/tiny.pt", f"{DISK}/copy", f"{DISK}/tiny-store"
    tiny_tensors(source, 100_000)
    warm(source)
    pairs = in_turn(
        lambda: Usage(["ckpt-save", source, f"{store}@1"], lambda: fresh(store, copy)),
        lambda: Usage(["sh", "-c", f"cp {source} {copy} && sync {copy}"], lambda: fresh(store, copy)))
    found = subprocess.run(["ckpt-ls", "--get=tensors", f"{store}@1"], check=False, capture_output=True, text=True).stdout
    report(f"100,000 tiny tensors ({os.path.getsize(source) >> 20} MiB), against cp and fsync", pairs, "2")
    if found.strip() not in ("", "100000"):
        sys.exit(f"only {found.strip()} tensors were found")


def main():
    try:
        for name in sys.argv[1:]:
            globals()[f"bench_{name}"]()
    finally:
        shutil.rmtree(DISK, ignore_errors=True)
        shutil.rmtree(MEMORY, ignore_errors=True)


if __name__ == "__main__":
    main()
