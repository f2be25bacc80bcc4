# SPDX-License-Identifier: Apache-2.0
# Brings storages of accelerators to the host as they are at the call. A copy runs on a stream of its own, after what
# the current stream has been given so far; whoever overwrites the source later waits for it on the device, not on the
# host: the current stream at once, other streams where before_update() is called.
import threading

import torch


class TorchDevice:
    """One kind of device ("cuda", "xpu", ...) through what PyTorch has for all of them: streams and events."""

    def __init__(self, module):
        self.module = module
        self.streams = {}  # by index

    def host_buffer(self, size):
        """uint8 memory of the host that copies can be made to in the background."""
        try:
            return torch.empty(size, dtype=torch.uint8, pin_memory=True)
        except RuntimeError:  # pinned memory is short, or this device has none
            return torch.empty(size, dtype=torch.uint8)

    def current_stream(self, index):
        return self.module.current_stream(index)

    def copies(self, index, pairs):
        """Begins to copy each (host buffer, storage), and gives the event that ends it."""
        with self.module.device(index):
            stream = self.streams.get(index)
            if stream is None:
                stream = self.streams[index] = self.module.Stream(index)
            stream.wait_stream(self.current_stream(index))
            with self.module.stream(stream):
                for host, storage in pairs:
                    source = torch.empty(0, dtype=torch.uint8, device=storage.device)
                    source.set_(storage)
                    source.record_stream(stream)  # the allocator mustn't give it away before the copy is done
                    host.copy_(source, non_blocking=True)
                event = self.module.Event()
                event.record(stream)
        return event

    def wait_for(self, event, index, stream=None):
        """The stream does nothing from now on until the event; the host goes on."""
        (stream or self.current_stream(index)).wait_event(event)

    def synchronize(self, event):
        event.synchronize()


class PlainDevice:
    """One that has no streams: its copies are done when they return."""

    def host_buffer(self, size):
        return torch.empty(size, dtype=torch.uint8)

    def copies(self, index, pairs):
        for host, storage in pairs:
            host.copy_(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage))

    def wait_for(self, event, index, stream=None):
        pass

    def synchronize(self, event):
        pass


def device_of(kind):
    get = getattr(torch, "get_device_module", None)
    module = get(kind) if get else getattr(torch, kind)
    return TorchDevice(module) if hasattr(module, "Stream") and hasattr(module, "stream") else PlainDevice()


class Pool:
    """Host buffers that are used again: pinning memory takes long. No more than `limit` bytes are out at a time, unless
    one save takes more than that."""

    def __init__(self, limit):
        self.limit = limit
        self._free = []
        self._out = 0
        self._changed = threading.Condition()

    def reserve(self, size, give_up):
        """Waits for room. `give_up` is asked now and then, and raises if there's no point in waiting."""
        with self._changed:
            while self._out and self._out + size > self.limit:
                self._changed.wait(0.1)
                give_up()
            self._out += size

    def take(self, device, size):
        """A buffer of at least that size, of what was reserved."""
        with self._changed:
            # The smallest that is large enough, without wasting half of it.
            fits = [buffer for buffer in self._free if size <= buffer.numel() <= 2 * size]
            if fits:
                best = min(fits, key=torch.Tensor.numel)
                self._free = [buffer for buffer in self._free if buffer is not best]
                return best
            while self._free and self._out + sum(map(torch.Tensor.numel, self._free)) > self.limit:
                self._free.pop(0)
        return device.host_buffer(size)

    def give_back(self, buffers, size):
        with self._changed:
            self._out -= size
            self._free.extend(buffers)
            self._changed.notify_all()


class Copies:
    """The device storages of one save, on their way to the host."""

    def __init__(self, pool):
        self.pool = pool
        self.buffers = []
        self.size = 0
        self.events = []  # (device, event, index)

    def begin(self, storages, device_of, give_up=lambda: None):
        """`storages`: FrozenStorages that aren't in the host's memory. Waits for room, not for the copies."""
        by_device = {}
        for storage in storages:
            by_device.setdefault((storage.real_device.type, storage.real_device.index), []).append(storage)
        size = sum(_room_for(storage) for storage in storages)
        self.pool.reserve(size, give_up)
        self.size = size
        for (kind, index), some in by_device.items():
            device = device_of(kind)
            pairs = []
            for together in _packs(some):
                buffer = self.pool.take(device, sum(map(_room_for, together)))
                self.buffers.append(buffer)
                at = 0
                for storage in together:
                    storage.host = buffer[at:at + storage.size]
                    at += _room_for(storage)
                    pairs.append((storage.host, storage.keep))
            event = device.copies(index, pairs)
            self.events.append((device, event, index))
            device.wait_for(event, index)

    def before_update(self, stream=None):
        for device, event, index in self.events:
            device.wait_for(event, index, stream)

    def finish(self):
        """Waits on the host until all is there."""
        for device, event, index in self.events:
            device.synchronize(event)

    def release(self):
        buffers, self.buffers = self.buffers, []
        size, self.size = self.size, 0
        self.pool.give_back(buffers, size)


def _room_for(storage):
    return -(-storage.size // 64) * 64


def _packs(storages):
    """Many small ones share a buffer."""
    pack, size = [], 0
    for storage in storages:
        if pack and size + _room_for(storage) > _pack_size:
            yield pack
            pack, size = [], 0
        pack.append(storage)
        size += _room_for(storage)
    if pack:
        yield pack


_pack_size = 1 << 28
