# SPDX-License-Identifier: Apache-2.0
# Saver: what save() does during the call is the walk, the list of ranges and the freezing; a thread of its own then
# describes the file, another follows the saves until they're safe. All of them, and the library's, start in the
# constructor.
import array
import atexit
import ctypes
import fnmatch
import gc
import io
import os
import queue
import sys
import threading
import time
import warnings
import zlib

import torch

from . import _archive, _devices, _freeze, _job, _names
from ._library import CAPTURES, KEEP_BEST, KEEP_STEADY, UNSET, Error, SaverOptions, TimedOut, bytes_of, error, library
from .handle import Handle

_savers = set()  # those that aren't closed; a saver that nobody refers to goes on with what it was given


class Saver:
    """Saves the states of one rank of a training run into a store, while the training goes on.

        saver = ckpt.Saver("runs/a", rank, world_size)
        handle = saver.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, step)

    store             the directory; made if it isn't there. Default: CKPT_STORE
    rank, world_size  a checkpoint exists when all ranks have saved the step; no rank ever waits for another. Default:
                      RANK and WORLD_SIZE, else 0 and 1
    attempt           which life of the job this is; default: CKPT_ATTEMPT, else the highest that the store records
    resumed_from      the step that this life began from: newer ones of lower attempts are retired. Default: that of
                      CKPT_RESUME
    encode            "raw", "fast" or "best"
    base_step         what differences are kept against; default: the newest good checkpoint; False: none are kept
    capture           "auto": memory is write-protected where that's possible, and copied elsewhere. "copy": always
                      copied; for memory that devices or other processes write to. "protect": an error where it can't be
    memory            bytes that may be set aside; 0: a quarter of what this process may still take. Give it where
                      everything is copied: its pages are then made here, and not by the first save
    local_world_size  how many ranks on this node share that quarter; default: LOCAL_WORLD_SIZE, else 1
    jobs              threads that read, hash and encode; 0: all cores but one
    check             whether what was encoded is decoded and compared
    pinned            bytes of pinned memory that copies from accelerators may take, from the call until they're
                      stored; beyond that save() waits. More only where one save alone is larger. 0: a quarter of the
                      machine's memory, which the ranks on this node share, too
    on_error          what is done about a failure in the background: "raise": it's raised by the next save(), wait() or
                      close(); "warn": that warns instead; or a function that is called with the handle and the
                      exception, from another thread
    close_timeout     seconds that close(), and the end of the interpreter, wait for pending saves

    The variables named above are what ckpt-run sets (torchrun, in part). CKPT_ATTEMPT and CKPT_RESUME are of the store
    that CKPT_STORE names, and say nothing of another. Through NOTIFY_SOCKET and CKPT_CONTROL a saver is its rank's line
    to ckpt-run: step() and extend_timeout() go there, and signs of life while the bytes of a save move. A malformed
    variable raises ckpt.Error.

    All that's slow to start starts here. Thread-safe; saves are written in the order of their calls. After a fork the
    child can't use it: ckpt.Error. A context manager that closes."""

    def __init__(self, store=None, rank=None, world_size=None, *, attempt=None, resumed_from=None, encode="fast",
                 base_step=None, capture="auto", memory=0, local_world_size=None, jobs=0, check=True, pinned=0,
                 on_error="raise", close_timeout=600):
        if capture not in CAPTURES:
            raise Error(f"capture is one of {', '.join(CAPTURES)}, not {capture!r}")
        if on_error not in ("raise", "warn") and not callable(on_error):
            raise Error("on_error is 'raise', 'warn' or a function")
        if store is None:
            store = _job.text("CKPT_STORE")
        if store is None:
            raise Error("there's no store: none is given, and CKPT_STORE isn't set")
        if rank is None:
            rank = _job.number("RANK") or 0
        if world_size is None:
            world_size = _or(_job.number("WORLD_SIZE"), 1)
        if local_world_size is None:
            local_world_size = _or(_job.number("LOCAL_WORLD_SIZE"), 1)
        if _job.is_jobs_store(store):
            attempt = _or(attempt, _job.number("CKPT_ATTEMPT", UNSET - 1))
            resumed_from = _or(resumed_from, _job.resumed_from())
        self.store = os.fspath(store)
        self._place = os.path.abspath(self.store)
        self.rank = rank
        self.world_size = world_size
        self.close_timeout = close_timeout
        self._on_error = on_error
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()       # over all below
        self._saving = threading.Lock()     # one save() at a time
        self._pending = []                  # handles that aren't over or whose memory is still looked at
        self._failed = []                   # handles whose failure nobody was told of
        self._pool = _devices.Pool(pinned or _quarter_of_memory()
                                   // max(1, _number("local_world_size", local_world_size, 4)))
        self._devices = {}
        self._saver = ctypes.c_void_p()

        options = SaverOptions()
        library.saver_defaults(ctypes.byref(options))
        options.struct_size = ctypes.sizeof(options)
        options.store = bytes_of(self.store)
        for name, value in (("rank", rank), ("world_size", world_size), ("local_world_size", local_world_size),
                            ("jobs", jobs), ("memory", memory), ("attempt", attempt), ("resumed_from", resumed_from)):
            if value is not None:
                setattr(options, name, _number(name, value, getattr(SaverOptions, name).size))
        options.encode = encode.encode()
        if base_step is False:
            options.use_base = 0
        elif base_step is not None:
            options.base_step = _number("base_step", base_step, 8)
        options.check = int(check)
        options.capture = CAPTURES[capture]
        self._line = _job.Line()
        options.job = self._line.job
        options.alive_seconds = _job.alive_seconds()
        library.saver_open(ctypes.byref(options), ctypes.byref(self._saver))

        for kind in ("cuda", "xpu"):
            module = getattr(torch, kind, None)
            if module is not None and module.is_available():
                self._device(kind)
        self._to_describe = queue.SimpleQueue()
        self._to_follow = queue.SimpleQueue()
        self._threads = [threading.Thread(target=work, name=f"ckpt-{name}", daemon=True)
                         for work, name in ((self._describe_all, "describe"), (self._follow_all, "follow"))]
        for thread in self._threads:
            thread.start()
        _savers.add(self)

    def __repr__(self):
        return f"<ckpt.Saver {self.store} rank {self.rank} of {self.world_size}{' closed' if self._closed else ''}>"

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()

    def save(self, state, step, *, name="state.pt", replicated=False, meta=None):
        """Saves a state_dict, or whatever torch.save takes, as it is now; from the return on it may be overwritten.
        Gives a Handle. What gets stored is the file that torch.save would have written, aliases and all; ckpt-restore
        gives it back under `name`.

        `replicated` says which tensors are the same on every rank: True: all but DTensors; patterns (fnmatch) over
        their dotted names, as `ckpt-ls --tensors` shows them; False: none. Of these each rank writes only the ones
        that fall to it by their name's hash, and the others' shape; ckpt.load() gets them from the other ranks.

        `meta` is kept beside it: a dict of short strings, as ckpt-save's --meta.

        Storages mustn't be resized or their memory unmapped until the handle is done (capture="copy" copies what it
        is given before save() returns)."""
        self._check_open()
        self._tell()
        with self._saving:
            self._check_open()
            return self._begin(state, _number("step", step, 8), name, replicated, meta or {})

    def step(self, step, **values):
        """Tells ckpt-run that a step is finished, and with it that this rank is alive; `values` are shown beside it:
        saver.step(n, loss=1.93), in a line of 200 bytes at most. A tensor among them is waited for.

        Returns what is asked of all ranks of the node at the same step: "save": save() this one; "stop": save() it,
        close(), and end with status 0; "", which is true of nothing: go on. Without ckpt-run always "". Call it once
        after each step, with growing numbers."""
        self._check_process()
        return self._line.step(_number("step", step, 8), _job.status_of(values))

    def extend_timeout(self, seconds):
        """Tells ckpt-run that what follows, an evaluation say, takes up to so many seconds: this rank isn't taken for
        dead before."""
        self._check_process()
        self._line.extend(float(seconds))

    def prepare(self, state):
        """Gets the pinned memory that saves of such a state will need: it takes long, and so the first save doesn't.
        Only for states on accelerators."""
        self._check_open()
        freezer = _freeze.Freezer()
        freezer.freeze(state)
        if freezer.elsewhere:
            copies = _devices.Copies(self._pool)
            try:
                copies.begin(freezer.elsewhere, self._device, self._check_open)
                copies.finish()
            finally:
                copies.release()

    def wait(self, timeout=None):
        """Waits until all that was saved is safe: on this rank (another rank's shard may still be missing). Raises
        what failed, or ckpt.TimedOut."""
        self._check_open()
        end = None if timeout is None else time.monotonic() + timeout
        for handle in self._not_over():
            try:
                handle._wait(None if end is None else max(0, end - time.monotonic()), False)
            except TimedOut:
                raise
            except Exception:
                with self._lock:
                    self._failed.append(handle)
        self._tell()

    def pending(self):
        """The handles of saves that aren't safe yet on this rank."""
        return [handle for handle in self._not_over() if not handle.done()]

    def before_update(self, stream=None):
        """Handle.before_update() of all saves that are pending."""
        for handle in self._not_over():
            handle.before_update(stream)

    def close(self, timeout=None):
        """Waits for all saves, up to `timeout` seconds (default: close_timeout), then ends the threads. On
        ckpt.TimedOut the saver stays open. A failure that no one has been told of is raised after all else is done.
        Closing again does nothing."""
        if self._closed:
            return
        self._check_process()
        end = time.monotonic() + (self.close_timeout if timeout is None else timeout)
        left = lambda: max(0, end - time.monotonic())
        if not self._saving.acquire(timeout=left()):
            raise error("timed-out", f"another thread is still in save() of {self.store}")
        try:
            if self._closed:
                return
            for handle in self._not_over():
                if not handle._over.wait(left()):
                    raise handle._named(error("timed-out", f"step {handle.step} is still on its way to {self.store}"))
            try:
                library.saver_close(self._saver, left())
            except TimedOut:
                raise
            except Error:
                pass  # of a save, and so known from its handle
            self._closed = True
            self._to_describe.put(None)
            self._to_follow.put(None)
        finally:
            self._saving.release()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        _savers.discard(self)
        self._tell(last=True)

    # The call.

    def _begin(self, state, step, name, replicated, meta):
        begun = time.perf_counter()
        handle = Handle(self, step)
        library.save_new(self._saver, step, ctypes.byref(handle._save))
        for key, value in meta.items():
            library.save_meta(handle._save, bytes_of(key), bytes_of(str(value)))
        freezer = _freeze.Freezer()
        if replicated:
            self._leave_to_others(state, replicated, freezer)
        try:
            frozen = _without_collecting(freezer.freeze, state)
        except RecursionError:
            handle._seconds["at_once"] = "it's nested too deeply to be walked"
            freezer, frozen = None, _at_once(state)
        path = bytes_of(name)
        if freezer:
            library.save_archive(handle._save, path, os.path.splitext(os.path.basename(path))[0] or b"archive")
        else:
            library.save_file(handle._save, path, frozen, len(frozen))
        first = 0
        if freezer and freezer.sizes:
            first = _add_ranges(handle._save, freezer.addresses, freezer.sizes)
        elsewhere = freezer.elsewhere if freezer else []
        if elsewhere:
            handle._copies = _devices.Copies(self._pool)
            try:
                handle._copies.begin(elsewhere, self._device, self._check_open)
                _add_copies(handle._save, elsewhere, first)
            except BaseException:
                handle._copies.finish()
                handle._copies.release()
                raise
        handle._seconds["walk_seconds"] = time.perf_counter() - begun
        handle._seconds["tensors"] = freezer.tensors if freezer else 0
        handle._keep = freezer
        with self._lock:
            self._pending.append(handle)
        self._to_describe.put((handle, freezer, frozen, first))
        try:
            library.save_freeze(handle._save)
            handle._frozen.set()
        except BaseException as failure:
            handle._was_told = True
            handle._fail(failure)
            handle._frozen.set()
            handle._started.wait()
            raise
        return handle

    def _leave_to_others(self, state, replicated, freezer):
        patterns = ["*"] if replicated is True else [replicated] if isinstance(replicated, str) else list(replicated)
        for name, tensor in _names.tensors_of(state).items():
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type == "meta":
                continue
            if name in patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                if zlib.crc32(name.encode("utf-8", "surrogateescape")) % self.world_size != self.rank:
                    freezer.replace(tensor, _shape_of(tensor))

    def _device(self, kind):
        device = self._devices.get(kind)
        if device is None:
            device = self._devices[kind] = _devices.device_of(kind)
        return device

    # In the background.

    def _describe_all(self):
        while True:
            job = self._to_describe.get()
            if job is None:
                return
            self._describe(*job)
            del job

    def _describe(self, handle, freezer, frozen, first):
        begun = time.perf_counter()
        save = handle._save
        handed_over = False
        # The call isn't kept from its end by the work here; but it may be in need of it, to get room.
        handle._frozen.wait(0.1)
        try:
            if handle._copies:
                handle._copies.finish()
            for record, data, size in _archive.records_of(frozen, freezer) if freezer else ():
                _add_record(save, record.encode(), data, size, first)
            handle._seconds["describe_seconds"] = time.perf_counter() - begun
            if handle._failure is None:
                library.save_start(save)
                handed_over = True
        except BaseException as failure:
            handle._fail(failure)
        handle._keep = freezer and freezer.forget()
        handle._handed_over = handed_over
        handle._started.set()
        self._to_follow.put(handle)

    def _follow_all(self):
        while True:
            handle = self._to_follow.get()
            if handle is None:
                return
            while handle._failure is None:
                try:
                    library.save_wait(handle._save, 0.05 if handle._copies else 3600, 0)
                    break
                except TimedOut:
                    # What was read is free for the next save, long before this one is on stable storage.
                    handle._give_back()
                except Error as failure:
                    handle._fail(failure)
            failed = handle._failure
            # Not before the library is done with the memory.
            if not handle._handed_over:
                handle._frozen.wait()
                handle._drop()
            while handle._save and library.save_released(handle._save) == 0:
                time.sleep(0.01)
            handle._keep = None
            handle._give_back(is_released=True)
            with self._lock:
                self._pending.remove(handle)
                if failed is not None and not callable(self._on_error) and not handle._was_told:
                    self._failed.append(handle)
            handle._over.set()
            if failed is not None and callable(self._on_error):
                try:
                    self._on_error(handle, failed)
                except Exception as other:
                    warnings.warn(f"ckpt: on_error raised {other!r} for {failed!r}")
            del handle, failed

    # Failures.

    def _not_over(self):
        with self._lock:
            return list(self._pending)

    def _told(self, handle):
        with self._lock:
            handle._was_told = True
            self._failed = [other for other in self._failed if other is not handle]

    def _tell(self, last=False):
        with self._lock:
            failed, self._failed = self._failed, []
        if not failed:
            return
        if self._on_error == "warn":
            for handle in failed:
                warnings.warn(f"ckpt: step {handle.step} was not saved: {handle._failure}", stacklevel=3)
            return
        first = failed[0]._failure
        if last and len(failed) > 1:
            steps = ", ".join(str(handle.step) for handle in failed)
            failure = error(getattr(first, "code", "io"), f"steps {steps} were not saved; the first: {first}")
            raise failed[0]._named(failure) from first
        with self._lock:
            self._failed = failed[1:] + self._failed
            failed[0]._was_told = True
        raise first

    def _check_process(self):
        if self._pid != os.getpid():
            raise Error("this saver belongs to the process that was forked from; make one of its own here")

    def _check_open(self):
        self._check_process()
        if self._closed:
            raise Error("the saver is closed")


def wait_for_own(store):
    """Until what this process saved to the store can be loaded, as far as it's up to this process."""
    for saver in list(_savers):
        if saver._pid == os.getpid() and _same(saver._place, store):
            for handle in saver._not_over():
                handle._over.wait()


def _same(one, other):
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _number(name, value, size):
    try:
        number = value.__index__()
    except AttributeError:
        raise Error(f"{name} is a number, not {value!r}") from None
    if not 0 <= number < 256**size:
        raise Error(f"{name} can't be {number}")
    return number


def _or(value, otherwise):
    return otherwise if value is None else value


def _quarter_of_memory():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


def _without_collecting(function, argument):
    """So many new objects, and none of them garbage: looking for some would take longer than making them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return function(argument)
    finally:
        if collects:
            gc.enable()


def _at_once(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _add_ranges(save, addresses, sizes, keep=KEEP_BEST):
    """Gives the number of the first."""
    addresses, sizes = array.array("Q", addresses), array.array("Q", sizes)
    first = ctypes.c_uint64()
    library.save_memories(save, addresses.buffer_info()[0], sizes.buffer_info()[0], len(sizes), keep,
                          ctypes.byref(first))
    return first.value


def _add_copies(save, storages, first):
    """Copies that devices still make: they're there when the save is started, and nobody writes to them afterwards."""
    at = _add_ranges(save, [storage.host.data_ptr() for storage in storages],
                     [storage.size for storage in storages], KEEP_STEADY) - first
    for storage in storages:
        storage.position = at
        at += 1


def _add_record(save, name, data, size, first):
    if isinstance(data, bytes):
        library.save_record(save, name, data, size)
    elif data.position is not None:
        library.save_record_of(save, name, first + data.position, size)
    elif size == 0:
        library.save_record(save, name, b"", 0)
    else:
        raise Error(f"record {name.decode()} has no memory to be read from")


def _shape_of(tensor):
    shape = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(shape, tensor.requires_grad)
    return shape.requires_grad_(tensor.requires_grad)


def _at_exit():
    ends = {}
    for saver in list(_savers):
        if saver._pid != os.getpid():
            continue
        try:
            ends.setdefault("at", time.monotonic() + saver.close_timeout)
            saver.close(max(0, ends["at"] - time.monotonic()))
        except TimedOut:
            for handle in saver.pending():
                print(f"ckpt: still {handle.state} at exit, may be lost: {handle.address}", file=sys.stderr)
        except BaseException as failure:
            print(f"ckpt: not saved: {getattr(getattr(failure, 'handle', None), 'address', saver.store)}: {failure}",
                  file=sys.stderr)


atexit.register(_at_exit)
