# SPDX-License-Identifier: Apache-2.0
# What the tests of the Python module share: the module itself, states of all sorts, files compared record by record.
import argparse
import collections
import enum
import os
import random
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "..", "..", "lib", "python")]

try:
    import torch
except ImportError:
    print("1..0 # SKIP there's no PyTorch here")
    sys.exit(0)

import numpy  # noqa: E402

import ckpt  # noqa: E402
from tap import check, run  # noqa: E402


def records(path):
    """[(name without the archive's, bytes)] in the archive's order."""
    with zipfile.ZipFile(path) as archive:
        found = [(info.filename.split("/", 1)[1], archive.read(info)) for info in archive.infolist()]
    # A hash of the other records' checksums in newer versions.
    return [(name, data) for name, data in found if name != ".data/serialization_id"]


def check_same_file(path, reference):
    ours, theirs = records(path), records(reference)
    check([n for n, _ in ours] == [n for n, _ in theirs], lambda: f"{[n for n, _ in ours]} {[n for n, _ in theirs]}")
    for (name, data), (_, expected) in zip(ours, theirs):
        check(data == expected, lambda: f"record {name} differs: {data[:300]!r}\n{expected[:300]!r}")


def restored(store, step=None, name="state.pt"):
    """The path of the file as ckpt-restore gives it back."""
    target = f"restored-{step}"
    run("ckpt-restore", store if step is None else f"{store}@{step}", target)
    return os.path.join(target, name)


def same(one, other):
    """Equal to the bit, all the way down."""
    if isinstance(one, torch.Tensor):
        return (type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape
                and one.requires_grad == other.requires_grad
                and one.detach().contiguous().numpy().tobytes() == other.detach().contiguous().numpy().tobytes())
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


Point = collections.namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1


class Counter:
    def __init__(self):
        self.count = [1, 2]
        self.weight = torch.ones(3)
        self.unsaved = lambda: None

    def __getstate__(self):
        return {"count": self.count, "weight": self.weight}

    def __setstate__(self, state):
        self.__dict__.update(state)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = {"x": torch.arange(3)}
        self.b = bytearray(b"abc")


class Named(dict):
    def __init__(self, *some):
        super().__init__(*some)
        self.label = "named"


class Listed(list):
    pass


class Labelled(torch.Tensor):
    pass


class Wrapper(torch.Tensor):
    """Without a storage of its own, as DTensor."""

    @staticmethod
    def __new__(cls, inner, spec):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made._local_tensor = inner
        made._spec = spec
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), more=None):
        raise NotImplementedError(function)

    def __repr__(self):
        return "Wrapper"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 5)
        self.norm = torch.nn.BatchNorm1d(5)
        self.second = torch.nn.Linear(5, 6, bias=False)
        self.tied = torch.nn.Linear(6, 5, bias=False)
        self.tied.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x)))) + 0.1 * self.second(self.tied(x))


def trained(steps=2):
    torch.manual_seed(7)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        step_of(model, optimizer)
    return model, optimizer


def step_of(model, optimizer):
    loss = (model(torch.randn(8, 6)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def states():
    """name: a function that makes such a state."""
    def training():
        model, optimizer = trained()
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2,
                "rng": torch.get_rng_state(), "python": random.getstate(), "numpy": numpy.random.get_state()}

    def views():
        base = torch.arange(24, dtype=torch.float32)
        array = numpy.arange(6.0)
        overlapping = [torch.from_numpy(array), torch.from_numpy(array), torch.from_numpy(array[2:])]
        return [overlapping, base, base[3:7], base.view(4, 6).t(), base[::2], base.view(4, 6)[1:3, 2:5], base]

    def shared():
        twice = ["x"]
        pair = (twice, 1)
        whole = {"a": twice, "b": twice, "c": pair, "d": pair, "text": "word", "again": "word"}
        whole["self"] = whole
        ring = []
        ring.append((ring,))
        return [whole, ring, ring[0]]

    def kinds():
        made = {str(dtype): torch.arange(5).to(dtype) for dtype in
                (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.bool, torch.complex64)}
        conjugate = torch.tensor([1 + 2j, 3 - 1j])
        made.update({"0-d": torch.tensor(3.5), "empty": torch.empty(0), "hollow": torch.empty(3, 0, 2),
                     "conjugate": conjugate.conj(), "negative": torch._neg_view(torch.ones(2)),
                     "expanded": torch.ones(1).expand(4), "grad": torch.ones(2, requires_grad=True),
                     "not a leaf": torch.ones(2, requires_grad=True) * 2, "meta": torch.empty(2, 3, device="meta"),
                     "sparse": torch.eye(3).to_sparse(), "csr": torch.eye(3).to_sparse_csr(),
                     "quantised": torch.quantize_per_tensor(torch.randn(4), 0.1, 2, torch.qint8),
                     "by channel": torch.quantize_per_channel(torch.randn(2, 3), torch.tensor([.1, .2]),
                                                              torch.tensor([0, 1]), 0, torch.qint8)})
        return made

    def objects():
        attributed = torch.ones(2)
        attributed.note = ["kept where torch keeps it"]
        return {"namespace": argparse.Namespace(lr=1e-3, sizes=[1, 2], t=torch.zeros(2)), "set": {1, "a", None},
                "frozen": frozenset([3, 4]), "default": collections.defaultdict(list, {"k": [torch.ones(1)]}),
                "point": Point(1, torch.ones(2)), "counter": Counter(), "slotted": Slotted(), "named": Named({"a": 1}),
                "listed": Listed([1, 2]), "array": numpy.arange(6).reshape(2, 3),
                "fortran": numpy.ones((2, 3), order="F"),
                "scalar": numpy.float32(1.5), "strings": numpy.array(["a", None], dtype=object), "bytes": b"\0\xff",
                "bytearray": bytearray(b"abc"), "empty": [(), {}, [], set(), "", b"", bytearray()],
                "colour": Colour.RED,
                "class": Counter, "function": step_of, "builtin": len, "none": type(None), "complex": 1j, "big": 2**70,
                "ellipsis": ..., "size": torch.Size([1, 2]), "dtype": torch.float32, "device": torch.device("cpu"),
                "layout": torch.strided, "range": range(3), "slice": slice(1, 2), "deque": collections.deque([1], 3),
                "counted": collections.Counter("aab"), 3: "number", (1, "k"): "tuple", None: "none", 1.5: "float",
                "attributed": attributed, "labelled": torch.ones(2).as_subclass(Labelled),
                "wrapper": Wrapper(torch.arange(4.0), {"mesh": torch.tensor([0, 1])}),
                "storage": torch.arange(3).storage(), "path": __import__("pathlib").PurePosixPath("a/b"),
                "untyped": torch.UntypedStorage(4).fill_(7), "generator": random.Random(3)}

    def module():
        model, _ = trained()
        return model

    def metadata():
        state = trained()[0].state_dict()
        check(state._metadata, "state_dict() lost its metadata")
        return state

    return {"training": training, "views": views, "shared": shared, "kinds": kinds, "objects": objects,
            "module": module, "metadata": metadata, "a tensor": lambda: torch.arange(5), "nothing": lambda: None,
            "deep": lambda: nested(300), "too deep": lambda: nested(450)}


def nested(depth):
    inner = [torch.ones(2)]
    for _ in range(depth):
        inner = [inner]
    return inner
