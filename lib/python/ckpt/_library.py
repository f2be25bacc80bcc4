# SPDX-License-Identifier: Apache-2.0
# libckpt through ctypes: ckpt/ckpt.h written down once more, and its statuses as exceptions. Every call lets the
# interpreter's lock go.
import ctypes
import os
from ctypes import (CDLL, POINTER, Structure, byref, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32,
                    c_uint64, c_void_p)

UNSET = 2**64 - 1

STATUSES = ("ok", "invalid", "not-found", "exists", "malformed", "damaged", "unsupported", "no-space", "busy", "io",
            "interrupted", "no-memory", "timed-out")
STATES = ("new", "staged", "writing", "written", "durable", "failed", "skipped")
KEEP_BEST, KEEP_STEADY = 0, 2  # of enum ckpt_keep
REQUESTS = ("", "save", "stop")
CAPTURES = {"auto": 0, "copy": 1, "protect": 2}


class Error(Exception):
    """What went wrong, in words; `hint` is what can be done about it, or "". `code` is chosen by what the caller can
    do:

    "invalid"      the call is wrong: mend the call
    "not-found"    a file, store, checkpoint or tensor isn't there
    "exists"       the step is taken by other content
    "malformed"    an input isn't what it claims to be
    "damaged"      stored bytes fail their check
    "unsupported"  written by a newer version, or not possible here
    "no-space"     disk or quota full
    "busy"         temporary: try again
    "io"           the operating system refused
    "interrupted"
    "no-memory"
    "timed-out"    not there yet; the work goes on (a TimeoutError as well)

    Where it's about one save, `handle` is that save's."""

    def __init__(self, message, code="invalid", hint=""):
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.handle = None

    def __str__(self):
        text = super().__str__()
        return f"{text} (hint: {self.hint})" if self.hint else text


class NotFound(Error, LookupError):
    """A file, store, checkpoint or tensor isn't there."""


class Damaged(Error):
    """Stored bytes fail their check."""


class TimedOut(Error, TimeoutError):
    """Not there yet; the work goes on."""


_CLASSES = {"not-found": NotFound, "damaged": Damaged, "timed-out": TimedOut}


def error(code, message, hint=""):
    return _CLASSES.get(code, Error)(message, code, hint)


class SaverOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("store", c_char_p),
        ("rank", c_uint32),
        ("world_size", c_uint32),
        ("attempt", c_uint64),
        ("resumed_from", c_uint64),
        ("encode", c_char_p),
        ("base_step", c_uint64),
        ("use_base", c_int),
        ("check", c_int),
        ("capture", c_int),
        ("memory", c_uint64),
        ("local_world_size", c_uint32),
        ("jobs", c_uint32),
        ("fixed_time", c_int64),
        ("job", c_void_p),
        ("alive_seconds", c_double),
        ("reserved", c_void_p * 6),
    ]


class JobOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("notify_socket", c_char_p),
        ("control", c_char_p),
        ("local_rank", c_uint32),
        ("reserved", c_void_p * 8),
    ]


class Timings(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("freeze_seconds", c_double),
        ("fault_seconds", c_double),
        ("wait_seconds", c_double),
        ("write_seconds", c_double),
        ("durable_seconds", c_double),
        ("protected_bytes", c_uint64),
        ("copied_bytes", c_uint64),
        ("aside_bytes", c_uint64),
        ("peak_aside_bytes", c_uint64),
        ("waves", c_uint64),
        ("raw_bytes", c_uint64),
        ("stored_bytes", c_uint64),
        ("why_copied", c_char * 128),
        ("warning", c_char * 256),
        ("id", c_char * 33),
    ]


class TensorInfo(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("dims", c_uint32),
        ("shape", POINTER(c_int64)),
    ]


_Handle = c_void_p
# name: (what it returns, its parameters); those that return a status are checked
_FUNCTIONS = {
    "ckpt_message": (c_char_p, []),
    "ckpt_hint": (c_char_p, []),
    "ckpt_version": (c_char_p, []),
    "ckpt_saver_defaults": (None, [POINTER(SaverOptions)]),
    "ckpt_saver_open": ("status", [POINTER(SaverOptions), POINTER(_Handle)]),
    "ckpt_saver_close": ("status", [_Handle, c_double]),
    "ckpt_saver_pending": (c_size_t, [_Handle]),
    "ckpt_can_protect": (c_int, []),
    "ckpt_save_new": ("status", [_Handle, c_uint64, POINTER(_Handle)]),
    "ckpt_save_meta": ("status", [_Handle, c_char_p, c_char_p]),
    "ckpt_save_memories": ("status", [_Handle, c_void_p, c_void_p, c_size_t, c_int, POINTER(c_uint64)]),
    "ckpt_save_freeze": ("status", [_Handle]),
    "ckpt_save_file": ("status", [_Handle, c_char_p, c_void_p, c_uint64]),
    "ckpt_save_archive": ("status", [_Handle, c_char_p, c_char_p]),
    "ckpt_save_record": ("status", [_Handle, c_char_p, c_char_p, c_uint64]),
    "ckpt_save_record_of": ("status", [_Handle, c_char_p, c_uint64, c_uint64]),
    "ckpt_save_start": ("status", [_Handle]),
    "ckpt_save_state": (c_int, [_Handle]),
    "ckpt_save_released": (c_int, [_Handle]),
    "ckpt_save_wait": ("status", [_Handle, c_double, c_int]),
    "ckpt_save_free": (None, [_Handle]),
    "ckpt_save_timings": ("status", [_Handle, POINTER(Timings)]),
    "ckpt_job_defaults": (None, [POINTER(JobOptions)]),
    "ckpt_job_open": ("status", [POINTER(JobOptions), POINTER(_Handle)]),
    "ckpt_job_step": ("status", [_Handle, c_uint64, c_char_p, POINTER(c_int)]),
    "ckpt_job_extend": ("status", [_Handle, c_double]),
    "ckpt_job_free": (None, [_Handle]),
    "ckpt_load_open": ("status", [c_char_p, c_char_p, POINTER(_Handle)]),
    "ckpt_load_free": (None, [_Handle]),
    "ckpt_load_step": (c_uint64, [_Handle]),
    "ckpt_load_world_size": (c_uint32, [_Handle]),
    "ckpt_load_id": (c_char_p, [_Handle]),
    "ckpt_load_file_size": ("status", [_Handle, c_uint32, c_char_p, POINTER(c_uint64)]),
    "ckpt_load_file": ("status", [_Handle, c_uint32, c_char_p, c_void_p, c_uint64]),
    "ckpt_load_tensor_count": (c_size_t, [_Handle]),
    "ckpt_load_tensor_at": ("status", [_Handle, c_size_t, POINTER(TensorInfo)]),
    "ckpt_load_find": ("status", [_Handle, c_char_p, POINTER(TensorInfo)]),
    "ckpt_load_slice": ("status", [_Handle, c_char_p, POINTER(c_int64), POINTER(c_int64), POINTER(c_int64), c_void_p]),
}


class Library:
    """The functions of ckpt.h without their prefix; a status other than CKPT_OK raises Error."""

    def __init__(self):
        path = os.environ.get("CKPT_LIBRARY") or "libckpt.so.0"
        try:
            loaded = CDLL(path)
        except OSError as failure:
            raise ImportError(f"cannot load {path}: {failure}; install libckpt where the loader looks for libraries, "
                              "or name it in LD_LIBRARY_PATH or CKPT_LIBRARY") from failure
        for name, (result, parameters) in _FUNCTIONS.items():
            try:
                function = getattr(loaded, name)
            except AttributeError:
                raise ImportError(f"{path} has no {name}: it's of another version than this module") from None
            function.argtypes = parameters
            function.restype = c_int if result == "status" else result
            if result == "status":
                function.errcheck = self._check
            setattr(self, name[len("ckpt_"):], function)

    def _check(self, status, function, arguments):
        if status:
            code = STATUSES[status] if status < len(STATUSES) else "invalid"
            raise error(code, text_of(self.message()), text_of(self.hint()))
        return status


def text_of(some):
    return (some or b"").decode("utf-8", "replace")


def bytes_of(text):
    """A path or a name for the library."""
    some = os.fsencode(text)
    if b"\0" in some:
        raise Error(f"there's a NUL in {text!r}")
    return some


def integers(values):
    return (c_int64 * len(values))(*values)


def address_of(buffer):
    """Of a writable buffer's first byte."""
    return ctypes.addressof(c_char.from_buffer(buffer))


library = Library()
