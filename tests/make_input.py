# SPDX-License-Identifier: Apache-2.0
# Makes small input files of the kinds that trainers write, without PyTorch: the same seed gives the same bytes.
# make_input.py torch|safetensors|noise|dir SEED PATH [BYTES], or drift STEP PATH [RANK]
import array
import io
import json
import os
import pickle
import random
import struct
import sys
import types
import zipfile


def floats(seed, count):
    rng = random.Random(seed)
    return struct.pack(f"<{count}f", *(rng.gauss(0, 1) for _ in range(count)))


def noise(seed, size):
    return random.Random(seed).randbytes(size)


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def safetensors(path, seed, count=2000, name="w"):
    weight, bias = floats(seed, count), floats(seed + 1, 10)
    step = struct.pack("<q", seed)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for key, dtype, shape, data in ((f"{name}.weight", "F32", [count // 10, 10], weight),
                                    (f"{name}.bias", "F32", [10], bias), ("step", "I64", [], step)):
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    put(path, struct.pack("<Q", len(text)) + text + weight + bias + step)


# The pickle names torch's functions, so modules of that name must be there while it's made; none of torch is needed.
def _fake_torch():
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2():
        pass

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    torch._utils = utils
    for name in ("FloatStorage", "LongStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    return torch, utils


def torch(path, seed, count=2000, shape=None, columns=False):
    """With `columns` the weight is two tensors, the even elements and the odd ones, of which one is NaN."""
    module, utils = _fake_torch()

    class Storage:
        def __init__(self, key, kind, data, numel):
            self.key, self.kind, self.data, self.numel = key, kind, data, numel

    class Tensor:
        def __init__(self, storage, shape, offset=0, stride=None):
            if stride is None:
                stride = [1] * len(shape)
                for i in range(len(shape) - 2, -1, -1):
                    stride[i] = stride[i + 1] * shape[i + 1]
            self.args = (storage, offset, tuple(shape), tuple(stride), False, {})

        def __reduce__(self):
            return utils._rebuild_tensor_v2, self.args

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            if isinstance(obj, Storage):
                return "storage", obj.kind, obj.key, "cpu", obj.numel

    storages = [Storage("0", module.FloatStorage, floats(seed, count), count),
                Storage("1", module.FloatStorage, floats(seed + 1, 10), 10),
                Storage("2", module.LongStorage, struct.pack("<q", seed), 1)]
    state = {"model": {"weight": Tensor(storages[0], shape or [count // 10, 10]), "bias": Tensor(storages[1], [10])},
             "step": Tensor(storages[2], []), "epoch": seed, "lr": 0.1}
    if columns:
        storages[0].data = storages[0].data[:4] + struct.pack("<f", float("nan")) + storages[0].data[8:]
        del state["model"]["weight"]
        for offset, name in enumerate(("even", "odd")):
            state["model"][name] = Tensor(storages[0], [count // 2], offset, [2])
    out = io.BytesIO()
    saved = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update({"torch": module, "torch._utils": utils})
    try:
        Pickler(out, 2).dump(state)
    finally:
        for name, old in saved.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        def add(name, data):
            z.writestr(zipfile.ZipInfo("archive/" + name, (1980, 1, 1, 0, 0, 0)), data)
        add("data.pkl", out.getvalue())
        add("byteorder", b"little")
        for storage in storages:
            add("data/" + storage.key, storage.data)
        add("version", b"3\n")


def arrays(path, tensors):
    """A safetensors file of (dtype, array) by name."""
    header, at = {}, 0
    for name, (dtype, values) in tensors.items():
        size = len(values) * values.itemsize
        header[name] = {"dtype": dtype, "shape": [len(values)], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            values.tofile(file)


def as_bfloat16(floats_bits):
    """The bits of finite numbers, rounded."""
    return array.array("H", ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 for bits in floats_bits))


def drift(path, step, rank=0, count=30000):
    """Weights that change little from step to step, with a bfloat16 copy; a moment that's new at each; a table that
    all steps and ranks have in common."""
    start, way = random.Random(f"start {rank}"), random.Random(f"way {rank}")
    weights = struct.pack(f"<{count}f", *(start.gauss(0, 1) + step * 1e-5 * way.gauss(0, 1) for _ in range(count)))
    copy = as_bfloat16(array.array("I", weights)).tobytes()
    header, data = {}, b""
    for name, dtype, size, part in (("w", "F32", 4, weights), ("copy", "BF16", 2, copy),
                                    ("moment", "F32", 4, floats(f"{rank} {step}", count)),
                                    ("table", "F32", 4, floats("table", count))):
        header[name] = {"dtype": dtype, "shape": [len(part) // size], "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    put(path, struct.pack("<Q", len(text)) + text + data)


def directory(path, seed, count=2000):
    """A tree as a trainer leaves it: typed files, an opaque one, an empty one, an empty directory."""
    os.makedirs(os.path.join(path, "sub", "empty"), exist_ok=True)
    torch(os.path.join(path, "state.pt"), seed, count)
    safetensors(os.path.join(path, "sub", "model.safetensors"), seed, count)
    put(os.path.join(path, "rng.bin.txt"), noise(seed, 777))
    put(os.path.join(path, "empty.txt"), b"")


if __name__ == "__main__":
    kind, seed, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    size = int(sys.argv[4]) if len(sys.argv) > 4 else None
    if kind == "noise":
        put(path, noise(seed, size or 1000))
    elif kind == "drift":
        drift(path, seed, rank=size or 0)
    else:
        {"torch": torch, "safetensors": safetensors, "dir": directory}[kind](path, seed, *([size] if size else []))
