# SPDX-License-Identifier: Apache-2.0
# Handle: one save, from the call that made it until it's safe.
import ctypes
import os
import threading
import time

from . import _library
from ._library import STATES, Error, TimedOut, Timings, error, library

over = ("written", "durable", "skipped", "failed")


class Handle:
    """One save, on its way. Thread-safe.

    step      the step it was saved as
    address   STORE@STEP, as the commands take it
    timings   how long what took; see there
    """

    def __init__(self, saver, step):
        self._saver = saver
        self._save = ctypes.c_void_p()
        self._failure = None
        self._frozen = threading.Event()   # or it failed
        self._started = threading.Event()  # or it failed
        self._handed_over = False
        self._over = threading.Event()
        self._seconds = {}
        self._copies = None
        self._keep = None
        self._was_told = False
        self._last = None  # its timings, once the library knows no more of it
        self.step = step
        self.address = f"{saver.store}@{step}"

    def __repr__(self):
        return f"<ckpt.Handle {self.address} {self.state}>"

    @property
    def state(self):
        """"staged": what was saved may be overwritten. "writing", "written": this rank's shard is on stable storage,
        other ranks' aren't yet. "durable": the checkpoint is committed, on stable storage. "failed", "skipped"."""
        if self._failure is not None:
            return "failed"
        self._saver._check_process()
        return STATES[library.save_state(self._save)]

    @property
    def timings(self):
        """A dict, of seconds and bytes. The stall: walk_seconds (the state looked through) and freeze_seconds (its
        memory protected or copied), and afterwards fault_seconds (writers that waited for a page to be set aside,
        added up over threads), of these wait_seconds for room. In the background: describe_seconds (pickling),
        write_seconds, durable_seconds (from the call until it's durable; 0 until then). protected_bytes were kept
        without a copy, copied_bytes copied, why_copied says why; aside_bytes copied as they were about to be written
        to, peak_aside_bytes the most at a time; waves. raw_bytes and stored_bytes; tensors; id of the checkpoint once
        it's durable. at_once, if it's there, says why all was written to memory during the call."""
        self._saver._check_process()
        timings = self._last or self._ask_timings()
        known = {name: getattr(timings, name) for name, _ in Timings._fields_[1:]}
        for name in ("why_copied", "warning", "id"):
            known[name] = _library.text_of(known[name])
        known.update(self._seconds)
        return known

    def done(self):
        """Whether nothing more happens here: this rank's shard is safe, or the save failed or was skipped."""
        return self._over.is_set() or self.state in over

    def wait(self, timeout=None):
        """Returns when the checkpoint is durable (with several ranks: when all of them have written), or was skipped.
        Raises the save's failure, or ckpt.TimedOut after `timeout` seconds while the work goes on."""
        self._saver._check_process()
        self._wait(timeout, True)

    def before_update(self, stream=None):
        """Makes a stream (of the accelerator; default: the current one) wait for this save's copies before what it's
        given next. save() does that itself for the stream that was current then; call it for other streams that
        overwrite what was saved, and before a graph is replayed."""
        copies = self._copies
        if copies:
            copies.before_update(stream)

    def _wait(self, timeout, until_durable):
        end = None if timeout is None else time.monotonic() + timeout
        left = lambda: 0.25 if end is None else min(0.25, max(0, end - time.monotonic()))
        while not self._started.wait(left()):
            if end is not None and time.monotonic() >= end:
                raise self._named(error("timed-out", f"step {self.step} isn't described yet"))
        while True:
            if self._failure is not None:
                self._saver._told(self)
                raise self._failure
            try:
                # In slices, so that signals get through.
                library.save_wait(self._save, left(), int(until_durable))
                self._give_back()
                return
            except TimedOut as failure:
                if end is not None and time.monotonic() >= end:
                    raise self._named(failure)
            except Error as failure:
                self._fail(failure)

    def _give_back(self, is_released=False):
        """The copies of accelerators' tensors, once the library has read them."""
        with self._saver._lock:
            copies = self._copies
            if not copies or not (is_released or library.save_released(self._save)):
                return
            self._copies = None
        copies.release()

    def _ask_timings(self):
        timings = Timings(struct_size=ctypes.sizeof(Timings))
        library.save_timings(self._save, ctypes.byref(timings))
        return timings

    def _drop(self):
        """Ends a save that was never handed over: what it froze is let go."""
        self._last = self._ask_timings()
        save, self._save = self._save, None
        library.save_free(save)

    def _named(self, failure):
        failure.handle = self
        return failure

    def _fail(self, failure):
        if self._failure is None:
            if isinstance(failure, Error):
                failure.handle = self
            self._failure = failure

    def __del__(self):
        if self._save and self._saver._pid == os.getpid():
            library.save_free(self._save)
