# SPDX-License-Identifier: Apache-2.0
# Reading a store: a whole file as torch.load gives it, or tensors straight into those of a state that's there already,
# by name and place, from whichever shards hold them.
import ctypes
import inspect
import io
import mmap
import os

import torch

from . import _job, _names, _sharding
from ._library import Error, NotFound, TensorInfo, address_of, bytes_of, error, integers, library, text_of
from .saver import wait_for_own

_UNSAFE = "weights_only" not in inspect.signature(torch.load).parameters


class Checkpoint:
    """A checkpoint that's open for reading; a context manager. Thread-safe.

        with ckpt.Checkpoint("runs/a") as checkpoint:
            checkpoint.step, checkpoint.world_size, checkpoint.id
            weight = checkpoint.tensor("model.weight")

    `step` is a number, or what may follow the @ of an address: "latest", "latest~1", "id:PREFIX"; None is the newest
    that is neither lossy nor suspect. Pending saves of this process to the same store are waited for first."""

    def __init__(self, store, step=None):
        self._load = ctypes.c_void_p()
        self.store = os.fspath(store)
        wait_for_own(self.store)
        selector = None if step is None else bytes_of(str(step))
        library.load_open(bytes_of(self.store), selector, ctypes.byref(self._load))
        self.step = library.load_step(self._load)
        self.world_size = library.load_world_size(self._load)
        self.id = text_of(library.load_id(self._load))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()

    def close(self):
        load, self._load = self._load, None
        if load:
            library.load_free(load)

    __del__ = close

    def read(self, name="state.pt", rank=0):
        """A rank's file, decoded and checked: a writable buffer."""
        size = ctypes.c_uint64()
        library.load_file_size(self._load, rank, bytes_of(name), ctypes.byref(size))
        buffer = mmap.mmap(-1, size.value) if size.value else bytearray(1)
        where = address_of(buffer)
        library.load_file(self._load, rank, bytes_of(name), where, size.value)
        return memoryview(buffer)[:size.value]

    def tensors(self):
        """{name: (dtype, shape)} of all tensors, joined over the ranks."""
        info = TensorInfo(struct_size=ctypes.sizeof(TensorInfo))
        found = {}
        for index in range(library.load_tensor_count(self._load)):
            library.load_tensor_at(self._load, index, ctypes.byref(info))
            found[_text(info.name)] = (getattr(torch, info.dtype.decode(), None), tuple(info.shape[:info.dims]))
        return found

    def find(self, name):
        """(dtype, shape) of a tensor. ckpt.NotFound."""
        info = TensorInfo(struct_size=ctypes.sizeof(TensorInfo))
        library.load_find(self._load, bytes_of(name), ctypes.byref(info))
        dtype = getattr(torch, info.dtype.decode(), None)
        if dtype is None:
            raise error("unsupported", f"{name} is of type {info.dtype.decode()}, which this PyTorch hasn't")
        return dtype, tuple(info.shape[:info.dims])

    def tensor(self, name, offsets=None, shape=None):
        """The whole of a tensor, or the box of it that begins at `offsets`, from whichever ranks hold it."""
        dtype, whole = self.find(name)
        offsets = tuple(offsets or [0] * len(whole))
        shape = tuple(shape if shape is not None else [n - o for n, o in zip(whole, offsets)])
        into = torch.empty(shape, dtype=dtype)
        self._slice(name, offsets, into)
        return into

    def fill(self, name, tensor):
        """Reads a tensor into one that's there: whole, or a DTensor's part. Shapes must agree; another dtype or device
        is converted to."""
        if _sharding.is_dtensor(tensor):
            into, offsets = _sharding.box_of(tensor)
        else:
            into, offsets = tensor, [0] * tensor.dim()
        dtype, whole = self.find(name)
        if whole != tuple(tensor.shape):
            raise error("invalid", f"{name} is of shape {whole}, to be read into one of shape {tuple(tensor.shape)}")
        if into.numel() == 0:
            return
        into = into.detach()
        if into.is_cpu and into.dtype == dtype and into.layout is torch.strided and not into.is_quantized \
                and not into.is_conj() and not into.is_neg() and not _overlaps(into):
            self._slice(name, offsets, into)
            return
        read = torch.empty(into.shape, dtype=dtype)
        self._slice(name, offsets, read)
        with torch.no_grad():
            into.copy_(read)

    def _slice(self, name, offsets, into):
        if into.numel():
            library.load_slice(self._load, bytes_of(name), integers(offsets), integers(into.shape),
                               integers(into.stride()), into.data_ptr())


def load(store, step=None, weights_only=True, *, rank=0, map_location="cpu", name="state.pt"):
    """What was saved, as torch.load gives it. `step` as in Checkpoint; `weights_only` and `map_location` as in
    torch.load: weights_only=False runs what the file says, so only for files that you trust.

    `rank` is whose file. Tensors that another rank wrote for all (Saver.save(replicated=)) are fetched from there; a
    DTensor comes as that rank's part. To resume on another number of ranks, see load_into()."""
    with Checkpoint(store, step) as checkpoint:
        buffer = checkpoint.read(name, rank)
        more = {} if _UNSAFE else {"weights_only": weights_only}
        state = torch.load(_File(buffer), map_location=map_location, **more)
        return _fill_in(state, checkpoint, map_location)


def load_into(state_dict, store, step=None, *, strict=True):
    """Fills the tensors of a state_dict in place, by their dotted names: whole ones from whichever ranks hold them, of
    DTensors the part that belongs here. So a job that was saved on 8 ranks resumes on 6, or on 1. Numbers and other
    objects aren't touched: load() gives those.

    Returns two lists: names in state_dict that the checkpoint lacks, and the other way round. The first is an error
    (ckpt.NotFound, before anything is filled) unless strict=False."""
    with Checkpoint(store, step) as checkpoint:
        wanted = _names.tensors_of(state_dict)
        there = checkpoint.tensors()
        missing = [name for name in wanted if name not in there]
        if missing and strict:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise NotFound(f"{checkpoint.store}@{checkpoint.step} has no {', '.join(missing[:3])}{more}", "not-found",
                           "strict=False leaves them as they are")
        for name, tensor in wanted.items():
            if name in there:
                checkpoint.fill(name, tensor)
        return missing, [name for name in there if name not in wanted]


def resume(weights_only=True, *, rank=None, map_location="cpu", name="state.pt"):
    """What this rank goes on from: the state of the checkpoint that ckpt-run chose (CKPT_RESUME), as load() gives it;
    None if there's none, so that the training begins from zero, and where no one said. `rank`: default RANK, else 0;
    the rest as in load(). For another number of ranks than has saved: load_into(..., step=ckpt.resume_step())."""
    address = _job.resume_address()
    if address is None:
        return None
    if rank is None:
        rank = _job.number("RANK") or 0
    return load(*address, weights_only, rank=rank, map_location=map_location, name=name)


def resume_step():
    """The step of the checkpoint that resume() gives; None if there's none."""
    address = _job.resume_address()
    return None if address is None else address[1]


class _File(io.RawIOBase):
    """A file over a buffer, without a copy of it."""

    def __init__(self, buffer):
        self._buffer = buffer
        self._at = 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._at

    def seek(self, offset, whence=os.SEEK_SET):
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._buffer)}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, into):
        some = self._buffer[self._at:self._at + len(into)]
        into[:len(some)] = some
        self._at += len(some)
        return len(some)


def _fill_in(state, checkpoint, map_location):
    """Meta tensors stand for what other ranks wrote."""
    found = {}
    for name, tensor, container, key in list(_names.places_of(state)):
        if tensor.device.type != "meta":
            continue
        if id(tensor) not in found:
            try:
                found[id(tensor)] = (_whole(checkpoint, name, tensor, map_location), tensor)
            except Error as failure:
                if failure.code not in ("not-found", "unsupported"):
                    raise
                found[id(tensor)] = (tensor, tensor)  # it was one when it was saved
        if container is None:
            return found[id(tensor)][0]
        if not isinstance(container, tuple):
            container[key] = found[id(tensor)][0]
    return state


def _whole(checkpoint, name, meta, map_location):
    checkpoint.find(name)
    whole = torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype)
    checkpoint.fill(name, whole)
    if isinstance(map_location, (str, torch.device)):
        whole = whole.to(map_location)
    if isinstance(meta, torch.nn.Parameter):
        return torch.nn.Parameter(whole, meta.requires_grad)
    return whole.requires_grad_(meta.requires_grad)


def _overlaps(tensor):
    """Whether two elements may share memory."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1:
            if stride < reach:
                return True
            reach = stride * size
    return False


def _text(name):
    return os.fsdecode(name)
