# SPDX-License-Identifier: Apache-2.0
# What ckpt-run says to the ranks that it starts (torchrun says a part of it), in the environment, and a rank's line to
# it: datagrams that say how far it is, and shared memory through which it's asked.
import ctypes
import os

from ._library import REQUESTS, Error, JobOptions, bytes_of, error, library


def text(name):
    """None if it isn't set, or empty."""
    return os.environ.get(name) or None


def number(name, most=2**32 - 1):
    given = text(name)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 20 and int(given) <= most):
        raise Error(f"{name} is '{given}', which is no number up to {most}")
    return int(given)


def resume_address():
    """(store, step) of CKPT_RESUME, or None: there's nothing to go on from."""
    given = text("CKPT_RESUME")
    if given is None:
        return None
    store, _, step = given.rpartition("@")
    if not (store and step.isascii() and step.isdigit() and len(step) <= 10):
        raise Error(f"CKPT_RESUME is '{given}', which is no STORE@STEP")
    return store, int(step)


def resumed_from():
    """The step that this life of the job began from; None if no one said so."""
    address = resume_address()
    if address is not None:
        return address[1]
    return 0 if "CKPT_RESUME" in os.environ else None


def is_jobs_store(store):
    given = text("CKPT_STORE")
    return given is not None and os.path.realpath(given) == os.path.realpath(store)


def alive_seconds():
    """Between signs of life: a third of the time after which the supervisor would act, at most a second."""
    process, microseconds = number("WATCHDOG_PID", 2**31 - 1), number("WATCHDOG_USEC", 2**63)
    return 1 if microseconds is None or process not in (None, os.getpid()) else min(1, microseconds / 3e6)


class Line:
    """To the supervisor. Without one all that's said is dropped, and nothing is asked. Thread-safe."""

    def __init__(self):
        self.job = None
        options = JobOptions()
        library.job_defaults(ctypes.byref(options))
        options.struct_size = ctypes.sizeof(options)
        # One after the other, so that a failure names the variable.
        self._open("NOTIFY_SOCKET", options, "notify_socket")
        if text("CKPT_CONTROL"):
            options.local_rank = number("LOCAL_RANK") or 0
            self._open("CKPT_CONTROL", options, "control")

    def _open(self, name, options, member):
        given = text(name)
        setattr(options, member, None if given is None else bytes_of(given))
        self._free()
        job = ctypes.c_void_p()
        try:
            library.job_open(ctypes.byref(options), ctypes.byref(job))
        except Error as failure:
            raise error(failure.code, f"{name} is '{given}': {failure.args[0]}", failure.hint) from None
        self.job = job

    def step(self, step, status):
        request = ctypes.c_int()
        library.job_step(self.job, step, bytes_of(status.replace("\0", " ")), ctypes.byref(request))
        return REQUESTS[request.value]

    def extend(self, seconds):
        library.job_extend(self.job, seconds)

    def _free(self):
        job, self.job = self.job, None
        if job:
            library.job_free(job)

    __del__ = _free


def status_of(values):
    """{"loss": 1.93} as "loss 1.93"."""
    return " ".join(f"{name} {_value(value)}" for name, value in values.items())


def _value(value):
    if hasattr(value, "item"):  # of a tensor or an array
        value = value.item()
    return format(value, ".6g") if isinstance(value, float) else str(value)
