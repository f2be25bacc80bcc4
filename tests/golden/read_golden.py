#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The reader of last resort: checks a checkpoint and gives back its files, with Python's standard library, libxxhash
and libzstd alone. Written from ckpt-format(5), and meant to stay that short.

usage: read_golden.py CHECKPOINT-DIRECTORY [DEST]

Every byte of the containers is checked. With DEST, the files of rank R go to DEST/rank-RRRRR, of a single rank to DEST.
"""
import ctypes
import json
import os
import struct
import sys


class Bad(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Bad(what)


class _Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_128bits.restype = _Hash128
xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
xxhash.XXH3_64bits.restype = ctypes.c_uint64
xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
libzstd = ctypes.CDLL("libzstd.so.1")
libzstd.ZSTD_decompress.restype = ctypes.c_size_t
libzstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]


def xxh128(data):
    got = xxhash.XXH3_128bits(data, len(data))
    return struct.pack(">QQ", got.high, got.low)


def xxh64(data):
    return xxhash.XXH3_64bits(data, len(data))


def unpack(frame, raw_size):
    out = ctypes.create_string_buffer(max(raw_size, 1))
    need(libzstd.ZSTD_decompress(out, raw_size, frame, len(frame)) == raw_size, "zstd frame")
    return out.raw[:raw_size]


def decode(codec, stored, raw_size, digest, base):
    """A block or a section as it was before it was encoded; base(size) gives that many bytes of its base."""
    if codec == 0:
        raw = stored
    elif codec == 1:
        raw = unpack(stored, raw_size)
    elif codec == 2:
        raw = typed_block(stored, raw_size, base and base(raw_size))
    elif codec == 3:
        raw = base(raw_size)
    elif codec == 4:
        raw = typed_block(stored, raw_size, base(2 * raw_size))
    else:
        raise Bad(f"codec {codec}")
    need(len(raw) == raw_size and xxh128(raw) == digest, "raw hash")
    return raw


# --- typed blocks --------------------------------------------------------------------------------------------------

def to_bfloat16(u):
    if u & 0x7fffffff > 0x7f800000:
        return 0x7fc0
    return (u + 0x7fff + (u >> 16 & 1)) >> 16 & 0xffff


def to_float16(u):
    if u & 0x7fffffff > 0x7f800000:
        return u >> 16 & 0x8000 | 0x7e00
    value = struct.unpack("<f", struct.pack("<I", u))[0]
    try:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    except OverflowError:
        return u >> 16 & 0x8000 | 0x7c00


def numbers(data, width):
    return [int.from_bytes(data[i:i + width], "little") for i in range(0, len(data), width)]


def take_stream(data, at, size):
    """The next stream, of `size` bytes, and where it ends."""
    method, stored = struct.unpack("<BI", data[at:at + 5])
    at += 5
    body = data[at:at + stored]
    need(len(body) == stored, "a stream ends early")
    if method == 0:
        need(stored == size, "size of a stream")
    elif method == 1:
        need(stored == 1 and size > 0, "a constant stream")
        body = body * size
    elif method == 2:
        body = unpack(body, size)
    else:
        raise Bad(f"stream method {method}")
    return body, at + stored


def typed_block(data, raw_size, base):
    kind, width, lead, predictor, rounding, count, zero = struct.unpack("<BBBBBBH", data[:8])
    need(kind <= 1 and width in (1, 2, 4, 8) and lead < width and predictor <= 2 and rounding <= 2 and zero == 0,
         "head of a typed block")
    need((predictor == 0) == (base is None), "a predictor without a base, or the other way round")
    groups = [struct.unpack("<BBBBIQ", data[8 + 16 * g:24 + 16 * g]) for g in range(count)]
    elements = (raw_size - lead) // width
    need(groups[-1][0] == 255 and sum(g[4] for g in groups) == elements, "groups")
    at = 8 + 16 * count
    tail = (raw_size - lead) % width
    front, back = data[at:at + lead], data[at + lead:at + lead + tail]
    at += lead + tail

    bits = 8 * width
    mask, high = (1 << bits) - 1, 1 << bits - 1
    predicted = None
    if rounding:
        predicted = [(to_bfloat16 if rounding == 1 else to_float16)(u) for u in numbers(base, 4)]
    elif base is not None:
        predicted = numbers(base[lead:lead + elements * width], width)

    residuals = []  # a list for each group
    for _, form, sign, _, size, center in groups:
        stored = size
        if form == 1:
            bitmap, at = take_stream(data, at, (size + 7) // 8)
            flags = [bitmap[i // 8] >> i % 8 & 1 for i in range(size)]
            stored = sum(flags)
        planes = []
        for _ in range(width):
            plane, at = take_stream(data, at, stored)
            planes.append(plane)
        values = [int.from_bytes(bytes(column), "little") for column in zip(*planes)]
        if form == 1:
            left = iter(values)
            values = [next(left) if flag else 0 for flag in flags]
        if sign == 1:
            values = [r >> 1 ^ (mask if r & 1 else 0) for r in values]
        residuals.append(iter([(r + center) & mask for r in values]))
    need(at == len(data), "bytes behind the last stream")

    def order(x):
        return x ^ (mask if x & high else high) if kind else x

    def unorder(m):
        return m ^ (high if m & high else mask) if kind else m

    out = [front]
    for i in range(elements):
        group = 0
        if count > 1:
            key = predicted[i] << 1 >> bits - 8 & 0xff
            group = next(g for g in range(count) if key <= groups[g][0])
        r = next(residuals[group])
        if predictor == 1:
            r = unorder((order(predicted[i]) + r) & mask)
        elif predictor == 2:
            r ^= predicted[i]
        elif kind:
            r = r >> 1 | (r & 1) << bits - 1
        out.append(r.to_bytes(width, "little"))
    return b"".join(out) + back


# --- sealed JSON ---------------------------------------------------------------------------------------------------

def sealed_json(path, kind):
    with open(path, "rb") as file:
        text = file.read()
    need(text.endswith(b'"\n}\n'), f"{path} is cut short")
    body, last = text[:-51], text[-51:]
    need(last.startswith(b'  "xxh3_128": "'), f"{path} has no seal")
    need(last[15:47].decode() == xxh128(body).hex(), f"{path} doesn't match its seal")
    value = json.loads(text)
    need(value["format"] == kind, f"{path} is not a {kind}")
    need(value["version"][0] == 1, f"{path} has version {value['version']}")
    need(value["incompat"] & ~3 == 0, f"{path} needs a feature that isn't known")
    return value


# --- CBOR ----------------------------------------------------------------------------------------------------------

def cbor(data, at=0, depth=0):
    need(depth < 8, "CBOR is too deep")
    major, value = data[at] >> 5, data[at] & 31
    at += 1
    if value >= 24:
        need(value <= 27, "CBOR of indefinite length")
        size = 1 << (value - 24)
        value, at = int.from_bytes(data[at:at + size], "big"), at + size
    if major == 0:
        return value, at
    if major == 1:
        return -1 - value, at
    if major in (2, 3):
        piece = data[at:at + value]
        need(len(piece) == value, "CBOR ends early")
        return (piece if major == 2 else piece.decode("utf-8", "surrogateescape")), at + value
    if major == 4:
        items = []
        for _ in range(value):
            item, at = cbor(data, at, depth + 1)
            items.append(item)
        return items, at
    if major == 5:
        items = {}
        for _ in range(value):
            key, at = cbor(data, at, depth + 1)
            items[key], at = cbor(data, at, depth + 1)
        return items, at
    need(major == 7 and value in (20, 21, 22), "CBOR of a sort that isn't used")
    return {20: False, 21: True, 22: None}[value], at


def document(data):
    value, end = cbor(data)
    need(end == len(data) and isinstance(value, dict), "CBOR is not one map")
    return value


def column(table, name, code):
    packed = table[name]
    need(len(packed) % struct.calcsize(code) == 0, f"column {name}")
    return [value for value, in struct.iter_unpack("<" + code, packed)]


def texts(table, name):
    found, begin = [], 0
    for end in column(table, name + "_end", "Q"):
        need(begin <= end <= len(table[name]), f"column {name}")
        found.append(table[name][begin:end])
        begin = end
    need(begin == len(table[name]), f"column {name}")
    return found


def digests(table, name):
    return [table[name][i:i + 16] for i in range(0, len(table[name]), 16)]


# --- container -----------------------------------------------------------------------------------------------------

class Container:
    def __init__(self, path, store):
        with open(path, "rb") as file:
            self.data = file.read()
        self.store = store
        self.check_ends()
        self.check_sums()
        self.catalog = None
        self.blocks = []  # (raw size, digest, codec, place, stored size, base)
        self.decoded = {}
        self.read_frames()
        self.check_index()

    def check_ends(self):
        data = self.data
        need(len(data) >= 64 + 128, "too short")
        header, footer = data[:64], data[-128:]
        need(header[:8] == bytes.fromhex("89434b50540d0a1a"), "header magic")
        major, minor, zero, _, _, incompat, z1, z2, checksum = struct.unpack("<HHIQQQQQQ", header[8:])
        need(checksum == xxh64(header[:56]), "header checksum")
        need(major == 1 and incompat & ~3 == 0, f"version {major}.{minor}, incompat flags {incompat:x}")
        need(zero == z1 == z2 == 0, "reserved field of the header")

        need(footer[120:] == bytes.fromhex("1a0a0d54504b4389"), "footer magic")
        need(footer[104:120] == xxh128(footer[:104]), "footer checksum")
        index_at, index_size = struct.unpack("<QQ", footer[:16])
        sums_at, sums_size = struct.unpack("<QQ", footer[32:48])
        size, _, _, incompat, major, minor, zero = struct.unpack("<QQQQHHI", footer[64:104])
        need(major == 1 and incompat & ~3 == 0 and zero == 0, f"version {major}.{minor}, incompat flags {incompat:x}")
        need(size == len(data) and sums_at + sums_size == size - 128, "places in the footer")
        self.index_at, self.sums_at = index_at, sums_at
        self.index = data[index_at:index_at + index_size]
        self.sums = data[sums_at:sums_at + sums_size]
        need(xxh128(self.index) == footer[16:32], "index checksum")
        need(xxh128(self.sums) == footer[48:64], "sums checksum")
        self.digest = footer[104:120]

    def check_sums(self):
        stored = [value for value, in struct.iter_unpack("<Q", self.sums)]
        parts = [self.data[at:min(at + 65536, self.sums_at)] for at in range(0, self.sums_at, 65536)]
        need(stored == [xxh64(part) for part in parts], "sums")

    def read_frames(self):
        """In one pass from the front, as from a pipe."""
        data, at = self.data, 64
        while True:
            at = self.skip_to_8(at)
            if data[at:at + 4] != b"CKFR":
                break
            kind, zero, size, payload_size, first, count, entry_size, checksum = struct.unpack("<HHQQQIIQ",
                                                                                               data[at + 4:at + 48])
            header = data[at:at + size]
            need(checksum == xxh64(header[:40] + bytes(8) + header[48:]), "frame header checksum")
            need(zero == 0 and kind in (1, 2), "frame header")
            need(entry_size >= 40 and 48 + count * entry_size <= size, "frame header size")
            need(not any(header[48 + count * entry_size:]), "frame header padding")
            at += size
            end = at + payload_size
            need(kind != 2 or first == len(self.blocks), "block numbers")
            for i in range(count):
                entry = 48 + i * entry_size
                raw_size, stored_size, codec, depth, zero, zero2 = struct.unpack("<QQBBHI", header[entry:entry + 24])
                need(zero == zero2 == 0 and depth <= 8, "frame entry")
                digest = header[entry + 24:entry + 40]
                base = struct.unpack("<IIQ16s", header[entry + 40:entry + 72]) if depth > 0 else None
                if kind == 1:
                    need(self.catalog is None and not self.blocks, "a second catalog")
                    self.catalog = document(decode(codec, data[at:at + stored_size], raw_size, digest, None))
                else:
                    self.blocks.append((raw_size, digest, codec, at, stored_size, base))
                at += stored_size
            need(at == end, "frame payload")
        need(at == self.index_at, "place of the index")
        need(self.skip_to_8(at + len(self.index)) == self.sums_at, "place of the sums")
        need(self.catalog is not None, "no catalog")

    def raw(self, number, depth=0):
        """The bytes of a block."""
        if number not in self.decoded:
            need(depth <= 8, "a chain of bases that is too long")
            raw_size, digest, codec, at, stored_size, base = self.blocks[number]
            stored = self.data[at:at + stored_size]
            find = base and (lambda size: self.base_bytes(base, size, depth + 1))
            self.decoded[number] = decode(codec, stored, raw_size, digest, find)
        return self.decoded[number]

    def base_bytes(self, base, size, depth):
        row, rank, number, digest = base
        container = self
        if row != 0xffffffff:
            bases = self.catalog["bases"]
            container = find_container(self.store, digests(bases, "id")[row], column(bases, "step", "Q")[row], rank)
        need(container.blocks[number][1] == digest, "hash of a base")
        found = container.raw(number, depth)
        if len(found) < size:
            found += container.raw(number + 1, depth)
        need(len(found) == size, "size of a base")
        return found

    def skip_to_8(self, at):
        end = (at + 7) // 8 * 8
        need(not any(self.data[at:end]), "padding")
        return end

    def entries(self):
        """(path, type, mode, size, mtime, target, numbers of its blocks) in order."""
        files, first = self.catalog["files"], 0
        rows = zip(texts(files, "path"), column(files, "type", "B"), column(files, "mode", "I"),
                   column(files, "size", "Q"), column(files, "mtime_ns", "q"), texts(files, "target"),
                   column(files, "blocks", "Q"))
        previous = b""
        for path, kind, mode, size, mtime, target, count in rows:
            need(path > previous, "paths out of order")
            previous = path
            yield path, kind, mode, size, mtime, target, range(first, first + count)
            first += count
        need(first == len(self.blocks), "blocks without a file")

    def root(self):
        out = b""
        for path, kind, mode, size, _, target, blocks in self.entries():
            out += struct.pack("<BIQ", kind, mode, len(path)) + path
            out += struct.pack("<Q", len(target)) + target
            out += struct.pack("<QQ", size, len(blocks))
            for number in blocks:
                out += struct.pack("<Q", self.blocks[number][0]) + self.blocks[number][1]
        return xxh128(out)

    def check_index(self):
        """The index says what the frames say."""
        index = document(self.index)
        need(column(index["blocks"], "raw_size", "Q") == [b[0] for b in self.blocks], "raw sizes of the index")
        need(digests(index["blocks"], "hash") == [b[1] for b in self.blocks], "hashes of the index")
        need(column(self.catalog["blocks"], "size", "Q") == [b[0] for b in self.blocks], "sizes of the catalog")
        need(index["shard"]["root"] == self.root(), "root")


# --- checkpoint ----------------------------------------------------------------------------------------------------

def restore(container, dest):
    root = os.path.realpath(os.fsencode(dest))
    directories, later = [], []
    os.makedirs(root, exist_ok=True)
    for path, kind, mode, size, mtime, target, blocks in container.entries():
        need(path and not path.startswith(b"/") and all(p not in (b"", b".", b"..") for p in path.split(b"/")),
             f"unsafe path {path!r}")
        name = os.path.join(root, path)
        os.makedirs(os.path.dirname(name), exist_ok=True)
        need(os.path.realpath(os.path.dirname(name)).startswith(root), f"{path!r} leaves the tree")
        if kind == 1:
            os.makedirs(name, exist_ok=True)
            directories.append((name, mode, mtime))
        elif kind == 0:
            with open(name, "xb") as file:
                for number in blocks:
                    file.write(container.raw(number))
                need(file.tell() == size, f"size of {path!r}")
            os.chmod(name, mode)
            os.utime(name, ns=(mtime, mtime))
        else:
            later.append((kind, name, target, mtime))
    # Links last: no file is written through one.
    for kind, name, target, mtime in later:
        if kind == 2:
            os.symlink(target, name)
            os.utime(name, ns=(mtime, mtime), follow_symlinks=False)
        else:
            os.link(os.path.join(root, target), name)
    for name, mode, mtime in reversed(directories):
        os.chmod(name, mode)
        os.utime(name, ns=(mtime, mtime))


containers = {}  # those that were needed as bases


def find_container(store, identity, step, rank):
    key = (os.path.realpath(store), identity, step, rank)
    if key not in containers:
        retired = os.path.join(store, ".retired")
        places = [os.path.join(store, f"{step:010}")]
        places += [os.path.join(retired, name) for name in (os.listdir(retired) if os.path.isdir(retired) else [])]
        for place in places:
            if not os.path.exists(os.path.join(place, "manifest.json")):
                continue
            manifest = sealed_json(os.path.join(place, "manifest.json"), "ckpt-manifest")
            if (manifest["id"], manifest["step"]) == (identity.hex(), step):
                containers[key] = Container(os.path.join(place, manifest["shards"][rank]["file"]), store)
                break
        need(key in containers, f"the base of step {step} is gone")
    return containers[key]


def store_of(directory):
    store = os.path.dirname(os.path.abspath(directory))
    return os.path.dirname(store) if os.path.basename(store) == ".retired" else store


def read_checkpoint(directory, dest=None):
    manifest = sealed_json(os.path.join(directory, "manifest.json"), "ckpt-manifest")
    need([s["rank"] for s in manifest["shards"]] == list(range(manifest["world_size"])), "ranks")
    roots = b""
    for shard in manifest["shards"]:
        rank = shard["rank"]
        container = Container(os.path.join(directory, shard["file"]), store_of(directory))
        need(len(container.data) == shard["size"], f"size of shard {rank}")
        need(container.digest.hex() == shard["digest"], f"digest of shard {rank}")
        need(container.root().hex() == shard["root"], f"root of shard {rank}")
        info = container.catalog["shard"]
        for number in range(len(container.blocks)):
            container.raw(number)
        need((info["step"], info["rank"], info["world_size"]) == (manifest["step"], rank, manifest["world_size"]),
             f"shard {rank} belongs to something else")
        roots += struct.pack("<I", rank) + container.root()
        if dest is not None:
            restore(container, dest if manifest["world_size"] == 1 else os.path.join(dest, f"rank-{rank:05}"))
    need(xxh128(roots).hex() == manifest["id"], "id")
    return manifest


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        sealed_json(os.path.join(store_of(sys.argv[1]), "ckpt-store.json"), "ckpt-store")
        read_checkpoint(*sys.argv[1:])
    except (Bad, OSError, KeyError, IndexError, ValueError, struct.error) as error:
        print(f"read_golden.py: {sys.argv[1]}: {error!r}", file=sys.stderr)
        sys.exit(1)
