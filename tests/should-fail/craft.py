# SPDX-License-Identifier: Apache-2.0
# Takes a store's files apart and puts them together again with right checksums, so that a test can say one false thing
# in them and nothing else is wrong. Written from ckpt-format(5).
import ctypes
import json
import struct


class _Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_128bits.restype = _Hash128
_xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_zstd = ctypes.CDLL("libzstd.so.1")
_zstd.ZSTD_decompress.restype = ctypes.c_size_t
_zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
_zstd.ZSTD_compress.restype = ctypes.c_size_t
_zstd.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]


def hash128(data):
    data = bytes(data)
    got = _xxhash.XXH3_128bits(data, len(data))
    return struct.pack(">QQ", got.high, got.low)


def hash64(data):
    data = bytes(data)
    return _xxhash.XXH3_64bits(data, len(data))


def unzstd(data, size):
    out = ctypes.create_string_buffer(max(size, 1))
    got = _zstd.ZSTD_decompress(out, size, data, len(data))
    assert got == size, got
    return out.raw[:size]


def zstd(data):
    out = ctypes.create_string_buffer(len(data) + 1024)
    size = _zstd.ZSTD_compress(out, len(out), data, len(data), 1)
    return out.raw[:size]


# CBOR, as much of it as the format uses.
def _head(major, value):
    for info, code, limit in ((None, "B", 24), (24, "B", 1 << 8), (25, "H", 1 << 16), (26, "I", 1 << 32), (27, "Q", 1 << 64)):
        if value < limit:
            if info is None:
                return bytes([major << 5 | value])
            return bytes([major << 5 | info]) + struct.pack(">" + code, value)
    raise ValueError(value)


class Verbatim(bytes):
    """CBOR that goes in as it is."""


def cbor(value):
    if isinstance(value, Verbatim):
        return bytes(value)
    if isinstance(value, bool) or value is None:
        return {False: b"\xf4", True: b"\xf5", None: b"\xf6"}[value]
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    if isinstance(value, (bytes, bytearray)):
        return _head(2, len(value)) + bytes(value)
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogateescape")
        return _head(3, len(text)) + text
    if isinstance(value, list):
        return _head(4, len(value)) + b"".join(map(cbor, value))
    if isinstance(value, dict):
        return _head(5, len(value)) + b"".join(cbor(k) + cbor(v) for k, v in value.items())
    raise TypeError(value)


def uncbor(data, at=0):
    major, info = data[at] >> 5, data[at] & 31
    at += 1
    value = info
    if info >= 24:
        size = 1 << (info - 24)
        value = int.from_bytes(data[at:at + size], "big")
        at += size
    if major == 0:
        return value, at
    if major == 1:
        return -1 - value, at
    if major in (2, 3):
        raw = data[at:at + value]
        return (raw if major == 2 else raw.decode("utf-8", "surrogateescape")), at + value
    if major == 4:
        out = []
        for _ in range(value):
            item, at = uncbor(data, at)
            out.append(item)
        return out, at
    if major == 5:
        out = {}
        for _ in range(value):
            key, at = uncbor(data, at)
            out[key], at = uncbor(data, at)
        return out, at
    return {20: False, 21: True, 22: None}[info], at


# Columns of a table: packed numbers, or texts with their ends.
def numbers(table, column, code):
    size = struct.calcsize("<" + code)
    return list(struct.unpack(f"<{len(table[column]) // size}{code}", table[column]))


def set_numbers(table, column, code, values):
    table[column] = struct.pack(f"<{len(values)}{code}", *values)


def texts(table, column):
    out, begin = [], 0
    for end in numbers(table, column + "_end", "Q"):
        out.append(table[column][begin:end])
        begin = end
    return out


def set_texts(table, column, values):
    table[column] = b"".join(values)
    ends, at = [], 0
    for value in values:
        at += len(value)
        ends.append(at)
    set_numbers(table, column + "_end", "Q", ends)


FILE_NUMBERS = {"type": "B", "mode": "I", "size": "Q", "mtime_ns": "q", "kind": "B", "blocks": "Q", "extents": "Q",
                "tensors": "Q"}
FILE_TEXTS = ("path", "target", "note")


def align(size, to):
    return -size % to


class Container:
    """Edit .catalog, .blocks (raw bytes), .files(); hooks change what build() derives from them."""

    def __init__(self, data):
        footer = data[-128:]
        index_at, index_size = struct.unpack_from("<QQ", footer, 0)
        self.index, _ = uncbor(data[index_at:index_at + index_size])
        record = self.index["catalog"]
        place, stored, raw = (numbers(record, key, "Q")[0] for key in ("place", "stored_size", "raw_size"))
        packed = data[place:place + stored]
        self.catalog, _ = uncbor(unzstd(packed, raw) if record["codec"] == b"\x01" else packed)
        self.blocks = []
        table = self.index["blocks"]
        for place, stored, raw, codec in zip(numbers(table, "place", "Q"), numbers(table, "stored_size", "Q"),
                                             numbers(table, "raw_size", "Q"), table["codec"]):
            packed = data[place:place + stored]
            self.blocks.append(unzstd(packed, raw) if codec == 1 else packed)
        self.edit_header = self.edit_footer = self.edit_index = self.edit_frames = lambda _: None
        self.catalog_cbor = self.index_cbor = self.root = None
        self.catalog_zstd = False  # stored as a zstd frame whose raw size is then said to be this
        self.encode = {}           # block number: (codec, stored bytes)

    def files(self):
        table = self.catalog["files"]
        columns = {name: numbers(table, name, code) for name, code in FILE_NUMBERS.items()}
        columns.update({name: texts(table, name) for name in FILE_TEXTS})
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def set_files(self, files):
        table = self.catalog["files"]
        for name, code in FILE_NUMBERS.items():
            set_numbers(table, name, code, [f[name] for f in files])
        for name in FILE_TEXTS:
            set_texts(table, name, [f[name] for f in files])

    def root_of(self, hashes):
        out, at = b"", 0
        sizes = numbers(self.catalog["blocks"], "size", "Q")
        for f in self.files():
            out += struct.pack("<BI", f["type"], f["mode"])
            for key in ("path", "target"):
                out += struct.pack("<Q", len(f[key])) + f[key]
            out += struct.pack("<QQ", f["size"], f["blocks"])
            for _ in range(min(f["blocks"], len(sizes) - at)):
                out += struct.pack("<Q", sizes[at]) + (hashes[at] if at < len(hashes) else bytes(16))
                at += 1
        return hash128(out)

    def _frame(self, out, kind, first, entries, payload):
        out += bytes(align(len(out), 8))
        bare = 48 + 40 * len(entries)
        size = bare + align(len(out) + bare, 4096 if len(payload) >= 65536 else 8)
        head = bytearray(struct.pack("<IHHQQQIIQ", 0x52464B43, kind, 0, size, len(payload), first, len(entries), 40, 0))
        for raw, stored, codec, digest in entries:
            head += struct.pack("<QQQ", raw, stored, codec) + digest
        head += bytes(size - len(head))
        if kind == 2:
            self.edit_frames(head)
        struct.pack_into("<Q", head, 40, hash64(head))
        place = len(out)
        out += head + payload
        return place, place + size

    def build(self):
        header = bytearray(64)
        header[:8] = b"\x89CKPT\r\n\x1a"
        struct.pack_into("<HH", header, 8, 1, 0)
        self.edit_header(header)
        struct.pack_into("<Q", header, 56, hash64(header[:56]))
        out = bytearray(header)

        raw = cbor(self.catalog) if self.catalog_cbor is None else self.catalog_cbor
        stored, codec, raw_size = raw, 0, len(raw)
        if self.catalog_zstd:
            stored, codec, raw_size = zstd(raw), 1, self.catalog_zstd
        _, place = self._frame(out, 1, 0, [(raw_size, len(stored), codec, hash128(raw))], stored)
        one = lambda code, value: struct.pack("<" + code, value)
        catalog = {"raw_size": one("Q", raw_size), "stored_size": one("Q", len(stored)), "place": one("Q", place),
                   "codec": one("B", codec), "hash": hash128(raw)}

        hashes = [hash128(b) for b in self.blocks]
        stored = [self.encode.get(i, (0, b)) for i, b in enumerate(self.blocks)]
        entries = [(len(b), len(s), c, h) for b, (c, s), h in zip(self.blocks, stored, hashes)]
        frames = {name: b"" for name in ("place", "payload", "payload_size", "blocks")}
        places = []
        if entries:
            payload = b"".join(s for _, s in stored)
            frame, at = self._frame(out, 2, 0, entries, payload)
            frames = {"place": one("Q", frame), "payload": one("Q", at), "payload_size": one("Q", len(payload)),
                      "blocks": one("Q", len(entries))}
            for _, s in stored:
                places.append(at)
                at += len(s)
        blocks = {}
        set_numbers(blocks, "raw_size", "Q", [e[0] for e in entries])
        set_numbers(blocks, "stored_size", "Q", [e[1] for e in entries])
        set_numbers(blocks, "place", "Q", places)
        blocks["codec"] = bytes(e[2] for e in entries)
        blocks["hash"] = b"".join(hashes)
        root = self.root_of(hashes) if self.root is None else self.root
        index = {"catalog": catalog, "frames": frames, "blocks": blocks, "shard": {"root": root}}
        self.edit_index(index)
        self.built_root = root

        out += bytes(align(len(out), 8))
        packed = cbor(index) if self.index_cbor is None else self.index_cbor
        index_at = len(out)
        out += packed
        out += bytes(align(len(out), 8))
        sums = b"".join(struct.pack("<Q", hash64(out[i:i + 65536])) for i in range(0, len(out), 65536))
        footer = bytearray(128)
        struct.pack_into("<QQ", footer, 0, index_at, len(packed))
        footer[16:32] = hash128(packed)
        struct.pack_into("<QQ", footer, 32, len(out), len(sums))
        footer[48:64] = hash128(sums)
        struct.pack_into("<Q", footer, 64, len(out) + len(sums) + 128)
        struct.pack_into("<HH", footer, 96, 1, 0)
        self.edit_footer(footer)
        footer[104:120] = hash128(footer[:104])
        footer[120:] = b"\x1a\n\rTPKC\x89"
        self.digest = bytes(footer[104:120])
        return bytes(out + sums + footer)


def seal(text):
    """A JSON text without its last brace gets its checksum and the brace."""
    body = text.rstrip()
    assert body.endswith("}")
    body = body[:-1].rstrip() + ",\n"
    return body + '  "xxh3_128": "' + hash128(body.encode("utf-8", "surrogateescape")).hex() + '"\n}\n'


def seal_object(value):
    value = {k: v for k, v in value.items() if k != "xxh3_128"}
    return seal(json.dumps(value, indent=2))


def checkpoint_id(shards):
    out = b""
    for rank, shard in enumerate(shards):
        out += struct.pack("<I", rank) + bytes.fromhex(shard["root"])
    return hash128(out).hex()
