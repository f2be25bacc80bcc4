# SPDX-License-Identifier: Apache-2.0
# What happens when something goes wrong, takes long or is used wrongly, and accelerators' copies on a simulated one.
import gc
import os
import pickle
import queue
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref

import torch_support as support
from torch_support import check, ckpt, torch

from tap import main


def raises(kind, function, *arguments, code=None, **more):
    try:
        function(*arguments, **more)
    except kind as failure:
        check(code is None or failure.code == code, lambda: f"{failure.code}: {failure}")
        return failure
    raise AssertionError(f"no {kind.__name__}")


def script(text, *arguments):
    """Runs a Python program that has the module."""
    program = "import os, sys\nsys.path[:0] = " + repr(sys.path[:3]) + "\nimport ckpt, torch\n" + textwrap.dedent(text)
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120)


def failing_save(**more):
    """A saver and a save that fails in the background: the step is taken by other content."""
    with ckpt.Saver("store") as saver:
        saver.save({"a": torch.zeros(3)}, 1)
    saver = ckpt.Saver("store", **more)
    return saver, saver.save({"a": torch.ones(3)}, 1)


def settle(handle):
    handle._over.wait(60)


def test_a_step_that_is_saved_twice_with_the_same_content_is_fine():
    with ckpt.Saver("store") as saver:
        for _ in range(2):
            saver.save({"a": torch.zeros(3)}, 1).wait(60)


def test_a_failure_in_the_background_is_raised_by_the_saves_wait():
    saver, handle = failing_save()
    failure = raises(ckpt.Error, handle.wait, 60, code="exists")
    check(failure.handle is handle and handle.state == "failed" and handle.done(), handle)
    settle(handle)
    saver.close()  # it was told


def test_a_failure_in_the_background_is_raised_by_the_next_save():
    saver, handle = failing_save()
    settle(handle)
    failure = raises(ckpt.Error, saver.save, {}, 2)
    check(failure.handle is handle, "another's failure")
    saver.save({}, 2).wait(60)
    saver.close()


def test_a_failure_in_the_background_is_raised_by_close():
    saver, _ = failing_save()
    raises(ckpt.Error, saver.close)
    saver.close()


def test_a_failure_in_the_background_is_raised_by_the_savers_wait():
    saver, _ = failing_save()
    raises(ckpt.Error, saver.wait, 60)
    saver.close()


def test_a_failure_warns_where_that_is_asked_for():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        saver, handle = failing_save(on_error="warn")
        saver.close()
    check(len([w for w in caught if "step 1" in str(w.message)]) == 1, [str(w.message) for w in caught])


def test_a_failure_goes_to_a_function_where_that_is_asked_for():
    told = []
    saver, handle = failing_save(on_error=lambda *what: told.append(what))
    saver.close()
    check(len(told) == 1 and told[0][0] is handle and isinstance(told[0][1], ckpt.Error), told)


def test_what_cannot_be_pickled_is_raised_by_the_call_and_leaves_nothing():
    with ckpt.Saver("store") as saver:
        for bad in (lambda: None, threading.Lock(), [{"a": (x for x in ())}]):
            raises((TypeError, AttributeError, pickle.PicklingError), saver.save, {"a": bad}, 1)
        check(not saver.pending(), "something is pending")
        saver.save({"a": 1}, 1).wait(60)


def test_a_store_that_cannot_be_made_is_an_error_of_the_constructor():
    open("file", "w").close()
    raises(ckpt.Error, ckpt.Saver, "file/store")


def test_wrong_arguments_are_refused():
    raises(ckpt.Error, ckpt.Saver, "store", 3, 2, code="invalid")
    raises(ckpt.Error, ckpt.Saver, "store", capture="no", code="invalid")
    raises(ckpt.Error, ckpt.Saver, "store", on_error="no", code="invalid")
    with ckpt.Saver("store") as saver:
        raises(ckpt.Error, saver.save, {}, -1, code="invalid")
        raises(ckpt.Error, saver.save, {}, "1", code="invalid")
        raises(ckpt.Error, saver.save, {}, 1, name="../state.pt")
    raises(ckpt.Error, saver.save, {}, 1, code="invalid")


def test_loading_what_is_not_there_is_not_found():
    raises(ckpt.NotFound, ckpt.load, "store")
    with ckpt.Saver("store") as saver:
        saver.save({}, 1)
    raises(ckpt.NotFound, ckpt.load, "store", 2)
    raises(ckpt.NotFound, ckpt.load, "store", 1, name="other.pt")
    raises(ckpt.NotFound, ckpt.load, "store", 1, rank=1)


def test_load_waits_for_the_own_pending_saves():
    saver = ckpt.Saver("store")
    saver.save({"a": torch.ones(1 << 22)}, 1)
    check((ckpt.load("./store")["a"] == 1).all(), "other values")
    saver.close()


def test_a_set_that_lacks_a_rank_is_written_but_not_durable():
    savers = [ckpt.Saver("store", rank, 2) for rank in range(2)]
    handle = savers[0].save({"a": torch.zeros(2)}, 1)
    savers[0].wait(60)
    check(handle.state == "written" and handle.done(), handle)
    raises(ckpt.TimedOut, handle.wait, 0.2)
    savers[1].save({"a": torch.ones(2)}, 1).wait(60)
    handle.wait(60)
    check(handle.state == "durable", handle)
    for saver in savers:
        saver.close()


def test_a_forks_child_is_told_that_it_cannot_use_the_saver():
    saver = ckpt.Saver("store")
    handle = saver.save({"a": torch.zeros(3)}, 1)
    child = os.fork()
    if not child:
        said = 1
        try:
            for call in (lambda: saver.save({}, 2), lambda: handle.state, lambda: handle.wait(1), saver.close):
                failure = raises(ckpt.Error, call, code="invalid")
                assert "fork" in str(failure)
            said = 0
        finally:
            os._exit(said)
    check(os.waitpid(child, 0)[1] == 0, "the child saw otherwise")
    saver.close()


def test_saves_from_several_threads_are_all_stored():
    with ckpt.Saver("store") as saver:
        def work(first):
            for step in range(first, first + 50, 5):
                saver.save({"a": torch.full((100,), step)}, step)
        threads = [threading.Thread(target=work, args=(1 + n,)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for step in range(1, 51):
        check((ckpt.load("store", step)["a"] == step).all(), step)


def test_pending_saves_are_finished_when_the_interpreter_exits():
    done = script("""
        saver = ckpt.Saver("store")
        saver.save({"a": torch.ones(1 << 22)}, 1)
    """)
    check(done.returncode == 0 and not done.stderr and not done.stdout, done)
    check((ckpt.load("store")["a"] == 1).all(), "other values")


def test_saves_that_are_not_finished_at_exit_are_named():
    done = script("""
        saver = ckpt.Saver("store", close_timeout=0)
        ckpt._archive.records_of = lambda *a: __import__("time").sleep(60)
        saver.save({"a": torch.ones(100)}, 7)
    """)
    check("store@7" in done.stderr and not done.stdout, done)


def test_failures_that_nobody_was_told_of_are_named_at_exit():
    done = script("""
        with ckpt.Saver("store") as saver:
            saver.save({}, 1)
        saver = ckpt.Saver("store")
        saver.save({"a": 1}, 1)
    """)
    check("store@1" in done.stderr and not done.stdout, done)


def test_close_gives_up_after_its_time_and_can_be_called_again():
    saver = ckpt.Saver("store")
    goes_on = threading.Event()
    records_of = ckpt._archive.records_of
    ckpt._archive.records_of = lambda *what: goes_on.wait() and records_of(*what)
    try:
        handle = saver.save({"a": torch.ones(3)}, 1)
        raises(ckpt.TimedOut, handle.wait, 0.05)
        failure = raises(ckpt.TimedOut, saver.close, 0.05, code="timed-out")
        check(failure.handle is handle and saver.pending() == [handle], failure)
    finally:
        ckpt._archive.records_of = records_of
        goes_on.set()
    saver.close()
    check(handle.state == "durable", handle)


def test_memory_is_let_go_when_a_save_is_over():
    array = support.numpy.ones(1000)
    tensor = torch.from_numpy(array)
    gone = weakref.ref(array)
    gc.disable()
    try:
        with ckpt.Saver("store") as saver:
            handle = saver.save({"a": tensor, "b": torch.nn.Parameter(tensor), "c": support.Counter()}, 1)
            del array, tensor
            check(gone() is not None, "nobody kept it")
            settle(handle)
            check(gone() is None, "someone still has it")
    finally:
        gc.enable()


def test_timings_say_what_took_how_long():
    with ckpt.Saver("store") as saver:
        handle = saver.save({"a": torch.ones(1 << 20)}, 1)
        handle.wait(60)
        timings = handle.timings
    check(timings["protected_bytes"] + timings["copied_bytes"] >= 1 << 22, timings)
    check(timings["raw_bytes"] > 1 << 22 and 0 < timings["stored_bytes"] < 1 << 22, timings)
    check(timings["walk_seconds"] > 0 and timings["durable_seconds"] > 0 and len(timings["id"]) == 32, timings)
    with ckpt.Checkpoint("store") as checkpoint:
        check(checkpoint.id == timings["id"] and checkpoint.step == 1 and checkpoint.world_size == 1, checkpoint)


# A device whose streams are threads: what they're given happens later, in order.

class Stream:
    def __init__(self):
        self.queue = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            self.queue.get()()

    def give(self, work):
        self.queue.put(work)

    def record(self):
        event = threading.Event()
        self.give(event.set)
        return event


class SlowDevice(ckpt._devices.TorchDevice):
    def __init__(self):
        self.current = Stream()
        self.side = Stream()
        self.copied = 0
        self.allocated = 0

    def host_buffer(self, size):
        self.allocated += size
        return torch.full((size,), 99, dtype=torch.uint8)

    def current_stream(self, index):
        return self.current

    def copies(self, index, pairs):
        self.side.give(self.current.record().wait)

        def copy():
            for host, storage in pairs:
                time.sleep(0.05)
                host.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
                self.copied += 1
        self.side.give(copy)
        return self.side.record()

    def wait_for(self, event, index, stream=None):
        (stream or self.current).give(event.wait)

    def synchronize(self, event):
        event.wait()


def on_slow_device(saver, large=100):
    """Storages of at least so many bytes count as the device's."""
    device = saver._devices["cuda"] = SlowDevice()
    add = ckpt._freeze.Freezer._add_storage

    def sorted_out(freezer, storage, key, is_cpu):
        if storage.nbytes() < large:
            return add(freezer, storage, key, is_cpu)
        add(freezer, storage, key, False)
        freezer.storages[key].real_device = torch.device("cuda", 0)
        if freezer.storages[key] not in freezer.elsewhere:
            freezer.elsewhere.append(freezer.storages[key])
    ckpt._freeze.Freezer._add_storage = sorted_out
    return device, lambda: setattr(ckpt._freeze.Freezer, "_add_storage", add)


def test_device_copies_are_ordered_after_the_current_stream_and_before_its_later_work():
    with ckpt.Saver("store") as saver:
        device, undo = on_slow_device(saver)
        try:
            tensors = [torch.zeros(1000) for _ in range(3)]
            small = torch.ones(3)
            other = Stream()
            for tensor in tensors:
                device.current.give(lambda t=tensor: (time.sleep(0.05), t.fill_(1)))
            begun = time.monotonic()
            handle = saver.save({"tensors": tensors, "small": small}, 1)
            check(time.monotonic() - begun < 0.1 and device.copied == 0, "save() waited for the device")
            small.fill_(2)
            device.current.give(lambda: tensors[0].fill_(2))
            handle.before_update(other)
            other.give(lambda: tensors[1].fill_(2))
            saver.before_update(other)
            handle.wait(60)
            last = other.record()
            last.wait()
        finally:
            undo()
    loaded = ckpt.load("store", map_location="cpu")
    check(all((t == 1).all() for t in loaded["tensors"]), loaded)
    check((loaded["small"] == 1).all(), loaded)
    check((tensors[1] == 2).all(), "the later work was lost")


def test_device_sources_are_kept_until_they_are_copied():
    with ckpt.Saver("store") as saver:
        device, undo = on_slow_device(saver)
        try:
            handle = saver.save([torch.ones(5000)], 1)
            noise = [torch.zeros(5000) for _ in range(20)]
            handle.wait(60)
        finally:
            undo()
    check((ckpt.load("store")[0] == 1).all() and noise, "the source was given away")


def test_saving_waits_where_pinned_memory_is_short():
    with ckpt.Saver("store", pinned=5000) as saver:
        device, undo = on_slow_device(saver)
        try:
            handles = []
            for step in range(1, 5):
                handles.append(saver.save([torch.full((1000,), step)], step))
                check(device.copied >= step - 1, "more was on its way than there's room for")
        finally:
            undo()
    for step in range(1, 5):
        check((ckpt.load("store", step)[0] == step).all(), step)


def test_a_state_larger_than_the_pinned_memory_is_saved_all_the_same():
    with ckpt.Saver("store", pinned=1000) as saver:
        device, undo = on_slow_device(saver)
        try:
            state = [torch.full((500,), n) for n in range(4)]
            for step in range(1, 4):
                saver.save(state, step)
        finally:
            undo()
    check(support.same(ckpt.load("store"), state), "other values")


def test_pinned_memory_is_used_again():
    with ckpt.Saver("store") as saver:
        device, undo = on_slow_device(saver)
        try:
            state = [torch.full((500,), n) for n in range(4)]
            saver.prepare(state)
            before = device.allocated
            check(before >= 16000, before)
            for step in range(1, 4):
                saver.save(state, step).wait(60)
            check(device.allocated == before, (device.allocated, before))
        finally:
            undo()
    check(support.same(ckpt.load("store"), state), "other values")


def test_device_copies_are_stored_from_where_they_are_and_given_back_then():
    with ckpt.Saver("store") as saver:
        device, undo = on_slow_device(saver)
        try:
            state = [torch.full((1 << 20,), 3.0), torch.full((5,), 4.0)]
            handle = saver.save(state, 1)
            check(saver._pool._out >= 1 << 22, "it was given back before it was read")
            handle.wait(60)
            check(saver._pool._out == 0, "it wasn't given back")
            check(handle.timings["copied_bytes"] < 4096, handle.timings)
        finally:
            undo()
    check(support.same(ckpt.load("store"), state), "other values")


if __name__ == "__main__":
    main()
