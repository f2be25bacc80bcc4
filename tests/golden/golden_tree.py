# SPDX-License-Identifier: Apache-2.0
# The input of the golden stores, and a description of a tree that two trees share only if a restore may not tell them
# apart: names, types, modes, times, link targets, contents.
import hashlib
import json
import os
import random
import shutil
import stat
import struct
import sys

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
WHEN = 1_000_000_000


def put(path, content, mode=0o644):
    os.makedirs(os.path.dirname(path) or b".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)


def take(top, fixture, name=None):
    target = os.path.join(top, os.fsencode(name or fixture))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(os.path.join(FIXTURES, fixture), target)
    os.chmod(target, 0o644)


def single(top, step):
    for fixture in ("many.safetensors", "array.npy", "arrays.npz", "aliases.pt", "exotic.pt"):
        take(top, fixture)
    take(top, "torch113.pt", "nested/deep er/torch113.pt")
    take(top, "legacy_state.pth", "nested/legacy_state.pth")
    take(top, "dcp/.metadata", "dcp/.metadata")
    take(top, "dcp/__0_0.distcp", "dcp/__0_0.distcp")
    put(top + b"/log.txt", b"step %d\n" % step)
    put(top + b"/empty", b"")
    put(top + b"/script.sh", b"#!/bin/sh\n", 0o755)
    put(top + b"/secret", b"x", 0o600)
    put(top + b"/odd\n\xff name", b"a name with a newline and a byte that is not UTF-8")
    put(top + "/größe".encode(), b"a name in UTF-8")
    put(top + b"/noise.bin", random.Random(1).randbytes(70000) + b"%d" % step)
    os.makedirs(top + b"/nothing in it")
    os.link(top + b"/log.txt", top + b"/nested/same log.txt")
    os.symlink(b"deep er/torch113.pt", top + b"/nested/latest")
    os.symlink(b"../log.txt", top + b"/nested/up")


def ranks(top, rank):
    take(top, f"fsdp2-rank{rank}.pt", "model.pt")
    put(top + b"/rank", b"%d\n" % rank)


def suspect(top, step):
    take(top, "single.pt", "good.pt")
    with open(os.path.join(FIXTURES, "list.pt"), "rb") as file:
        whole = file.read()
    put(top + b"/list.pt", whole if step == 1 else whole[:-40])


def retired(top, step):
    take(top, "single.pt", "model.pt")
    put(top + b"/step", b"%d\n" % step)


def safetensors(path, tensors):
    """tensors: (name, dtype, shape, bytes)"""
    header, data = {}, b""
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    put(path, struct.pack("<Q", len(text)) + text + data)


def typed(top, step):
    """A step of training in small: all that a codec is made for. Sums of random integers, so that no mathematical
    library has a say in the bits."""
    count = 33000
    rng = random.Random(7)
    bell = lambda: sum(rng.getrandbits(16) for _ in range(4)) - 4 * 32767.5
    scale = [2.0 ** -rng.randrange(18, 26) for _ in range(count)]
    weights = [bell() * s for s in scale]
    squares = [abs(bell()) * 2.0 ** -40 for _ in range(count)]
    table = [rng.getrandbits(16) for _ in range(count)]
    for _ in range(step - 1):
        weights = [w + bell() * 2.0 ** -40 for w in weights]
        squares = [v * 0.99 + abs(bell()) * 2.0 ** -50 for v in squares]
        for _ in range(count // 100):
            table[rng.randrange(count)] ^= 1 << rng.randrange(6)
    master = struct.pack(f"<{count}f", *weights)
    bits = struct.unpack(f"<{count}I", master)
    half = struct.pack(f"<{count}H", *((u + 0x7fff + (u >> 16 & 1)) >> 16 for u in bits))
    moment = struct.pack(f"<{count}f", *squares)
    frozen = struct.pack(f"<{count}H", *(random.Random(9).getrandbits(16) for _ in range(count)))
    counters = struct.pack("<9000q", *(1_000_000 * i + step * 17 for i in range(9000)))
    safetensors(top + b"/model.safetensors",
                [("copy", "BF16", [count], half), ("master", "F32", [count], master), ("frozen", "BF16", [count], frozen),
                 ("tied", "F32", [count], master)])
    safetensors(top + b"/optimizer-%d.safetensors" % step,
                [("moment", "F32", [count], moment), ("table", "BF16", [count], struct.pack(f"<{count}H", *table)),
                 ("counters", "I64", [9000], counters)])
    put(top + b"/log.txt", b"".join(b"step %d of many: loss %d\n" % (i, i * 37 % 100) for i in range(3000 + step)))


def make(kind, number, top):
    top = os.fsencode(top)
    os.makedirs(top)
    globals()[kind](top, number)
    paths = [os.path.join(base, name) for base, dirs, files in os.walk(top) for name in dirs + files]
    for path in sorted(paths, reverse=True):
        os.utime(path, (WHEN, WHEN), follow_symlinks=False)


def describe(top):
    top = os.fsencode(top)
    tree, first = {}, {}
    for base, dirs, files in os.walk(top):
        dirs.sort()
        for name in sorted(dirs + files):
            path = os.path.join(base, name)
            status = os.lstat(path)
            relative = os.fsdecode(os.path.relpath(path, top))
            entry = {"mode": oct(stat.S_IMODE(status.st_mode)), "mtime_ns": status.st_mtime_ns}
            if stat.S_ISLNK(status.st_mode):
                entry = {"link": os.fsdecode(os.readlink(path)), "mtime_ns": status.st_mtime_ns}
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    entry["sha256"] = hashlib.sha256(file.read()).hexdigest()
                entry["size"] = status.st_size
                if status.st_nlink > 1:
                    first.setdefault(status.st_ino, []).append(relative)
            tree[relative] = entry
    for names in first.values():
        for name in names:
            tree[name]["same_file_as"] = min(names)
    return tree


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        json.dump({name: describe(name) for name in sys.argv[2:]}, sys.stdout, indent=1, sort_keys=True)
        print()
