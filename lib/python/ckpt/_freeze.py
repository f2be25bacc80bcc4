# SPDX-License-Identifier: Apache-2.0
# The walk: takes a state as it is now and gives back one that pickles to the very same bytes at any later time. Plain
# containers are copied, tensors become aliases of their storage, and of any other object that is kept what pickle asks
# it for (its __reduce_ex__), walked in its turn; a stand-in then answers for it. What pickle shares stays shared: like
# pickle's, the memo goes by identity.
import copyreg
import pickle
import time
import types
from collections import OrderedDict

import torch

PROTOCOL = torch.serialization.DEFAULT_PROTOCOL

_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
_TypedStorage = torch.storage.TypedStorage
_STORAGES = (torch.UntypedStorage, _TypedStorage)
_STRIDED = torch.strided
_untyped_storage = getattr(_Tensor, "untyped_storage", None) or _Tensor._storage
_is_nested = hasattr(_Tensor, "is_nested")

# Immutable, and nothing mutable in them.
_ATOMS = {type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range, torch.Size,
          torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme}
try:
    import numpy
    _ATOMS.update(kind for kind in getattr(numpy, "sctypeDict", {}).values()
                  if not issubclass(kind, (numpy.void, numpy.object_)))
except ImportError:
    pass
_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType)

# Devices whose tensors torch.save doesn't write as storages.
_WITHOUT_STORAGE = frozenset(["meta", "xla", "ort", "hpu", "maia", "mtia", "lazy"])


class _Address(int):
    """What FrozenStorage.data_ptr() returns: older versions of PyTorch pass on that alone."""
    storage = None


class FrozenStorage:
    """Stands for a storage as it was at the walk: where it is and how large, whatever becomes of the storage itself.
    `keep` is what holds the memory. What PyTorch asks a storage for while it writes one is answered here."""

    __slots__ = ("_freezer", "keep", "_cdata", "address", "size", "real_device", "position", "host")

    def __init__(self, freezer, keep, identity, address, size, position=None):
        self._freezer = freezer
        self.keep = keep
        self._cdata = identity
        self.address = address
        self.size = size
        self.real_device = _CPU if position is not None else keep.device
        self.position = position  # among the save's ranges of memory
        self.host = None   # what holds its copy, where it's of an accelerator

    @property
    def device(self):
        # Once the pickle is written, what's left to write is in the host's memory.
        return _CPU if self._freezer.pickled else self.real_device

    def data_ptr(self):
        address = _Address(self.address)
        address.storage = self
        return address

    def nbytes(self):
        return self.size

    def cpu(self):
        return self

    def __getattr__(self, name):
        return getattr(self.keep, name)


_CPU = torch.device("cpu")


class _TypedStandIn(_TypedStorage):
    """A TypedStorage over a FrozenStorage; also of an UntypedStorage, which PyTorch writes as one of bytes."""

    dtype = _untyped_storage = None  # attributes, whatever they are in the class above

    def __new__(cls, *args, **more):
        return object.__new__(cls)

    def __init__(self, frozen, dtype, kind):
        self._untyped_storage = frozen
        self.dtype = dtype
        self._kind = kind

    @property
    def _storage(self):  # _untyped_storage of PyTorch 1.13
        return self._untyped_storage

    @property
    def device(self):
        return self._untyped_storage.device

    def pickle_storage_type(self):
        return self._kind

    _pickle_storage_type = pickle_storage_type

    def size(self):
        return self._untyped_storage.size // _size_of(self.dtype)

    _size = size

    def __getattr__(self, name):
        raise AttributeError(name)


def _size_of(dtype):
    return torch._utils._element_size(dtype)


class _FrozenTensor(tuple):
    """An exact Tensor or Parameter without attributes: (freezer, alias, class, requires_grad), a tuple since there are
    many. What's slow about it is done when it's pickled."""
    __slots__ = ()

    def __reduce_ex__(self, protocol):
        freezer, tensor, kind, requires_grad = self
        freezer.take_turns()
        if kind is _Parameter:
            tensor = _Tensor._make_subclass(_Parameter, tensor, requires_grad)
        elif requires_grad:
            tensor.requires_grad_(True)
        function, arguments, *more = tensor.__reduce_ex__(protocol)
        return (function, tuple([_part(freezer, part) for part in arguments]), *more)

    # As a key it's itself, and nothing else.
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def _part(freezer, part):
    if isinstance(part, _STORAGES):
        return freezer.stand_in(part, known=True)
    if isinstance(part, _Tensor):  # the data of a parameter
        return _FrozenTensor((freezer, part, _Tensor, part.requires_grad))
    return part


class _FrozenObject:
    """Answers pickle as the object itself did at the walk."""
    __slots__ = ("_class", "_reduced")

    def __init__(self, kind):
        self._class = kind

    @property
    def __class__(self):  # pickle looks whether __newobj__ makes the same
        return self._class

    def __reduce_ex__(self, protocol):
        function, arguments, state, items, pairs, *setter = self._reduced
        return (function, arguments, state, None if items is None else iter(items),
                None if pairs is None else iter(pairs), *setter)


class Freezer:
    """One walk. Not thread-safe."""

    def __init__(self):
        self.storages = {}    # by StorageImpl: FrozenStorage, where it's needed
        self.elsewhere = []   # of these, those that aren't in the host's memory
        self.addresses = []   # what is in the host's memory
        self.sizes = []
        self._keep = []
        self._positions = {}  # in these lists, by StorageImpl
        self.pickled = False  # nothing is left to write but storages
        self.tensors = 0
        self._turn = 0
        self._memo = {}       # by id: what became of it, and itself, so that no other gets its id

    def replace(self, tensor, by):
        """Before the walk: what stands where the tensor stood."""
        self._memo[id(tensor)] = (self.freeze(by), tensor)

    def freeze(self, what):
        kind = type(what)
        if kind in _ATOMS:
            return what
        known = self._memo.get(id(what))
        if known is not None:
            return known[0]
        if kind is _Tensor or kind is _Parameter:
            return self._tensor(what, kind)
        if kind is dict:
            return self._dict(what)
        if kind is list:
            return self._list(what)
        if kind is tuple:
            return self._tuple(what)
        if kind is OrderedDict:
            return self._ordered(what)
        if kind is set or kind is frozenset:
            return self._object(what, (kind, (list(what),)))
        if kind is bytearray:
            return self._remember(what, bytearray(what))
        if isinstance(what, _STORAGES):
            return self._remember(what, self.stand_in(what))
        if isinstance(what, _Tensor):
            self._refuse_partial(what)
        if isinstance(what, _BY_NAME) and kind not in copyreg.dispatch_table:
            pickle.dumps(what, PROTOCOL)  # raises if it can't be found by name
            return self._remember(what, what)
        reduce = copyreg.dispatch_table.get(kind)
        reduced = what.__reduce_ex__(PROTOCOL) if reduce is None else reduce(what)
        if isinstance(reduced, str):
            pickle.dumps(what, PROTOCOL)
            return self._remember(what, what)
        return self._object(what, reduced)

    def forget(self):
        """All but what holds the memory: what refers to this in a circle would be there until someone looks for it."""
        self._memo.clear()
        self.storages.clear()
        self.elsewhere.clear()
        return self._keep

    def take_turns(self):
        """Lets other threads have the interpreter now and then, rather than when they have waited for long enough."""
        self._turn += 1
        if self._turn % 32 == 0:
            time.sleep(0)

    def stand_in(self, storage, known=False):
        """For a typed or untyped storage. `known`: it must have been met in the walk."""
        if isinstance(storage, _TypedStorage):
            untyped = storage._storage if not hasattr(storage, "_untyped_storage") else storage._untyped_storage
            kind = getattr(storage, "_pickle_storage_type", None) or storage.pickle_storage_type
            return _TypedStandIn(self._storage(untyped, known), storage.dtype, kind())
        return _TypedStandIn(self._storage(storage, known), torch.uint8, "UntypedStorage")

    # What follows makes one kind of thing each.

    def _remember(self, what, frozen):
        self._memo[id(what)] = (frozen, what)
        return frozen

    def _tensor(self, tensor, kind):
        if (not tensor.is_cpu and tensor.device.type in _WITHOUT_STORAGE or tensor.layout is not _STRIDED
                or tensor.is_quantized or tensor.__dict__ or _is_nested and tensor.is_nested):
            return self._object(tensor, tensor.__reduce_ex__(PROTOCOL))
        alias = tensor.detach()
        storage = _untyped_storage(alias)
        key = storage._cdata
        if key not in self._positions:
            self._add_storage(storage, key, tensor.is_cpu)
        self.tensors += 1
        frozen = _FrozenTensor((self, alias, kind, tensor.requires_grad))
        self._memo[id(tensor)] = (frozen, tensor)
        return frozen

    def _add_storage(self, storage, key, is_cpu):
        address, size = storage.data_ptr(), storage.nbytes()
        if is_cpu and size and address:
            self._positions[key] = len(self.sizes)
            self.addresses.append(address)
            self.sizes.append(size)
            self._keep.append(storage)
        elif key not in self.storages:
            frozen = self.storages[key] = FrozenStorage(self, storage, key, address, size)
            if size and not is_cpu and storage.device.type != "meta":
                self.elsewhere.append(frozen)

    def _storage(self, storage, known=False):
        key = storage._cdata
        if key not in self.storages:
            if key not in self._positions:
                if known:
                    raise RuntimeError("a tensor turned out to have another storage than it had when it was saved")
                self._add_storage(storage, key, storage.device.type == "cpu")
            at = self._positions.get(key)
            if at is not None:
                self.storages[key] = FrozenStorage(self, self._keep[at], key, self.addresses[at], self.sizes[at], at)
        return self.storages[key]

    def _dict(self, what):
        frozen = self._remember(what, {})
        freeze = self.freeze
        for key, value in list(what.items()):
            frozen[key if type(key) in _ATOMS else freeze(key)] = value if type(value) in _ATOMS else freeze(value)
        return frozen

    def _list(self, what):
        frozen = self._remember(what, what[:])
        if not _ATOMS.issuperset(map(type, frozen)):
            frozen[:] = [value if type(value) in _ATOMS else self.freeze(value) for value in frozen[:]]
        return frozen

    def _tuple(self, what):
        if _ATOMS.issuperset(map(type, what)):
            return self._remember(what, what)
        frozen = [value if type(value) in _ATOMS else self.freeze(value) for value in what]
        known = self._memo.get(id(what))  # it was met again inside itself
        if known is not None:
            return known[0]
        if all(map(lambda new, old: new is old, frozen, what)):
            return self._remember(what, what)
        return self._remember(what, tuple(frozen))

    def _ordered(self, what):
        frozen = self._remember(what, OrderedDict())
        freeze = self.freeze
        for key, value in list(what.items()):
            frozen[key if type(key) in _ATOMS else freeze(key)] = value if type(value) in _ATOMS else freeze(value)
        if what.__dict__:
            frozen.__dict__ = freeze(what.__dict__)
        return frozen

    def _object(self, what, reduced):
        # Made before its parts are walked, since they may refer to it.
        frozen = self._remember(what, _FrozenObject(type(what)))
        function, arguments, state, items, pairs, *setter = (*reduced, None, None, None)[:max(5, len(reduced))]
        freeze = self.freeze
        parts = [freeze(function), self._arguments(arguments), freeze(state),
                 None if items is None else [freeze(item) for item in items],
                 None if pairs is None else [(freeze(key), freeze(value)) for key, value in pairs]]
        parts.extend(map(freeze, setter))
        frozen._reduced = tuple(parts)
        return frozen

    def _arguments(self, arguments):
        frozen = self.freeze(arguments)
        # Such a stand-in would not be a tuple.
        if isinstance(arguments, tuple) and type(frozen) is _FrozenObject:
            return tuple(self.freeze(argument) for argument in arguments)
        return frozen

    def _refuse_partial(self, tensor):
        for placement in getattr(tensor, "placements", None) or ():
            if type(placement).__name__ in ("Partial", "_Partial", "_NormPartial", "_MaskPartial"):
                from ._library import error
                raise error("unsupported", "a DTensor whose placement is Partial has no value until it's reduced",
                            "redistribute it to Shard or Replicate before it's saved")
