# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a training that goes on meanwhile.

    import ckpt

    saver = ckpt.Saver("runs/a", rank, world_size)
    for step in range(first, last):
        ...
        if step % 100 == 0:
            saver.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, step)
    saver.close()

save() takes what torch.save takes, stores the file that torch.save would have written, and returns after milliseconds;
from then on the state may be overwritten. No collective is called. At the next start:

    state = ckpt.load("runs/a")                   # as torch.load gives it
    ckpt.load_into(model.state_dict(), "runs/a")  # or in place, on any number of ranks

Under ckpt-run, which says where to save, as which rank, and what to go on from:

    saver = ckpt.Saver()
    state = ckpt.resume()           # None: begin from zero
    for step in range((ckpt.resume_step() or 0) + 1, last):
        ...
        asked = saver.step(step, loss=loss)
        if asked:                   # "save", or "stop": save and end; of all ranks at the same step
            saver.save(..., step)
        if asked == "stop":
            break
    saver.close()

The work is done by libckpt.so.0, which is found as the loader finds libraries; the environment variable CKPT_LIBRARY
may name it. Works with Python from 3.9 and PyTorch from 1.13. Whatever fails raises ckpt.Error, the state's own
pickling errors aside. Nothing is ever printed, except at exit on stderr: what could not be saved.
"""
from ._library import Damaged, Error, NotFound, TimedOut, library, text_of
from .loading import Checkpoint, load, load_into, resume, resume_step
from .handle import Handle
from .saver import Saver

__version__ = text_of(library.version())
__all__ = ["Checkpoint", "Damaged", "Error", "Handle", "NotFound", "Saver", "TimedOut", "can_protect",
           "load", "load_into", "resume", "resume_step"]


def can_protect():
    """(True, "") if memory can be write-protected here; (False, why) if it will be copied."""
    able = bool(library.can_protect())
    return able, "" if able else text_of(library.message())
