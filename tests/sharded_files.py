# SPDX-License-Identifier: Apache-2.0
# Torch files of ranks that each hold a part of their tensors, as ShardedTensors. Written without PyTorch.
import struct
import zipfile


# Just enough of pickle for a ShardedTensor in a torch zip.
def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    return b"J" + struct.pack("<i", value)


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


def sequence(items, kind=b"t"):
    return (b"](" if kind == b"e" else b"(") + b"".join(items) + kind


def mapping(items):
    return b"}(" + b"".join(text(key) + value for key, value in items) + b"u"


def instance(kind, state):
    return name("torch.distributed._shard.sharded_tensor.api", kind) + b")\x81" + state + b"b"


def row_major(shape):
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return strides


class Rank:
    """A file of one rank: floats, in shards of a whole."""

    def __init__(self):
        self.items, self.records = [], []

    def view(self, shape, data):
        key = str(len(self.records))
        self.records.append(data)
        storage = sequence([text("storage"), name("torch", "FloatStorage"), text(key), text("cpu"),
                            number(len(data) // 4)]) + b"Q"
        return name("torch._utils", "_rebuild_tensor_v2") + sequence(
            [storage, number(0), sequence(map(number, shape)), sequence(map(number, row_major(shape))), b"\x89",
             b"}"]) + b"R"

    def plain(self, key, shape, data):
        self.items.append((key, self.view(shape, data)))

    def sharded(self, key, whole, shards):
        """Each shard as its offsets, shape and bytes."""
        parts = [instance("Shard", mapping([("tensor", self.view(shape, data)), ("metadata", instance(
            "ShardMetadata", mapping([("shard_offsets", sequence(map(number, offsets), b"e"))])))]))
                 for offsets, shape, data in shards]
        metadata = instance("ShardedTensorMetadata", mapping(
            [("size", name("torch", "Size") + sequence([sequence(map(number, whole))]) + b"R")]))
        self.items.append((key, instance("ShardedTensor", sequence(
            [sequence(parts, b"e"), metadata, b"N", b"N", b"\x89"]))))

    def write(self, path):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02" + mapping(self.items) + b".")
            for key, data in enumerate(self.records):
                archive.writestr(f"archive/data/{key}", data)
            archive.writestr("archive/version", "3\n")
        return path


def floats(count, first=0):
    return struct.pack(f"<{count}f", *range(first, first + count))
