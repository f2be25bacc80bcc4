# SPDX-License-Identifier: Apache-2.0
# What the tests of ckpt-sync share: stores to sync, remote shells that do something to what passes, and a peer that
# speaks the wire format, so that it can also speak it wrongly.
import ctypes
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time

import make_input
import tap
from tap import check, run

# RSH HOST COMMAND, with nothing on the way. What passes can be put through a filter in either direction.
LOCAL_SHELL = '#!/bin/sh\nshift\nexec sh -c "$*"\n'

# Passes one direction's bytes on and does to them what is asked for: cut after N bytes, flip a bit of the Nth, after N
# stall for ever, or say that so much passed ("reached") and wait for "go".
FILTER = '''#!/usr/bin/python3
import os, sys, time
how, at = sys.argv[1], int(sys.argv[2])
done, parent = 0, os.getppid()
def wait_for(condition):
    while not condition() and os.getppid() == parent:
        time.sleep(0.01)
while True:
    data = os.read(0, 65536)
    if not data:
        break
    if how == "cut" and done + len(data) >= at:
        data = data[:at - done]
    elif how == "flip" and done <= at < done + len(data):
        data = bytearray(data)
        data[at - done] ^= 16
    done += len(data)
    while data:
        try:
            data = data[os.write(1, data):]
        except BrokenPipeError:
            sys.exit(0)
    if done < at:
        continue
    if how == "cut":
        sys.exit(0)
    if how == "stall":
        wait_for(lambda: False)
        sys.exit(0)
    if how == "wait" and not os.path.exists("reached"):
        open("reached", "w").close()
        wait_for(lambda: os.path.exists("go"))
'''


def script(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, 0o755)
    return os.path.abspath(path)


def shell():
    """-e with a shell that runs commands here."""
    return ["-e", script("rsh", LOCAL_SHELL)]


def filtering_shell(how, at, direction="in"):
    """One that puts what goes to the far side ("in"), or comes from it ("out"), through the filter."""
    script("filter", FILTER)
    run_it = 'sh -c "$*"'
    pipe = f"./filter {how} {at} | {run_it}" if direction == "in" else f"{run_it} | ./filter {how} {at}"
    return ["-e", script("filtering", f"#!/bin/sh\nshift\n{pipe}\n")]


def save(address, source, *options):
    run("ckpt-save", *options, source, address, stderr=False)


def drift_store(store, count, size=8000, first=1, options=()):
    """Deltas, after a full checkpoint."""
    for step in range(first, first + count):
        make_input.drift("state.st", step, count=size)
        save(f"{store}@{step}", "state.st", *options)


def noise_store(store, steps, size=300000):
    for step in steps:
        make_input.put("noise.bin", make_input.noise(step, size))
        save(f"{store}@{step}", "noise.bin", "--base=none")


def sync(*arguments, expect=(0,), stderr=False, **more):
    return run("ckpt-sync", *arguments, expect=expect, stderr=stderr, **more)


def records(*arguments, kind="item", expect=(0,), stderr=None):
    lines = sync("--json", *arguments, expect=expect, stderr=stderr).stdout.decode().splitlines()
    return [r for r in map(json.loads, lines) if r["type"] == kind]


def moved(*arguments, **more):
    """Bytes of containers that a sync moves to its destination."""
    return records(*arguments, kind="destination", **more)[0]["moved_bytes"]


def steps(store):
    return sorted(int(name) for name in os.listdir(store) if name.isdigit()) if os.path.isdir(store) else []


def retired(store):
    top = os.path.join(store, ".retired")
    return sorted(os.listdir(top)) if os.path.isdir(top) else []


def ids(store, *options):
    out = run("ckpt-ls", "--format=tsv", *options, store, stderr=False).stdout.decode()
    return {int(line.split("\t")[0]): line.split("\t")[2] for line in out.splitlines()}


def manifest_of(store, step):
    with open(f"{store}/{step:010}/manifest.json", encoding="utf-8") as f:
        return json.load(f)


def depends_on(store, step):
    """Steps."""
    return [base["step"] for base in manifest_of(store, step)["depends_on"]]


def committed_content(store):
    """Every file of what is committed or retired."""
    found = {}
    for base, _, files in os.walk(store):
        relative = os.path.relpath(base, store)
        if not re.match(r"(\.retired/)?\d", relative):
            continue
        for name in files:
            with open(os.path.join(base, name), "rb") as f:
                found[os.path.join(relative, name)] = f.read()
    return found


def alike(a, b):
    left, right = committed_content(a), committed_content(b)
    check(left == right, lambda: f"'{a}' and '{b}' differ: {sorted(left.keys() ^ right.keys())}, or contents")


def sound(*stores):
    for store in stores:
        run("ckpt-verify", "--deep", store, stdout=False, stderr=False)


def underway(store):
    top = os.path.join(store, ".pending")
    return [n for n in os.listdir(top) if n.startswith("sync-")] if os.path.isdir(top) else []


def nothing_left(store):
    check(not underway(store), lambda: f"left in .pending: {underway(store)}")
    for place in (".pins", ".pending/tmp", ".trash"):
        top = os.path.join(store, place)
        check(not os.path.isdir(top) or not os.listdir(top), lambda: f"left in {place}: {os.listdir(top)}")


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, f"after {seconds} s still not: {what}")
        time.sleep(0.01)


# --- The wire format, from wire.hpp and ckpt-sync(1) ---

_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

HELLO, INVENTORY, MANIFEST, READ, READ_BLOCK, PREPARE, WRITE, COMMIT, RETIRE, REMOVE, PREPARE_SHARD = 1, *range(16, 26)
DONE, FAILURE, ALIVE = 64, 65, 66


def message(kind, payload=b"", size=None, checksum=None):
    if checksum is None:
        checksum = _xxhash.XXH3_64bits(payload, len(payload)) ^ (kind * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
    return struct.pack("<IBBBBQ", len(payload) if size is None else size, kind, 0, 0, 0, checksum) + payload


def number(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(data)) + data


def hello(version=1, name="ckpt-sync"):
    return message(HELLO, text(name) + number(version, 0))


def checkpoint(identity, step):
    return text(identity) + number(step)


def entry(identity, step, is_retired=0, stored=1000, bases=()):
    data = checkpoint(identity, step) + number(is_retired, 0, stored, stored, len(bases))
    return data + b"".join(checkpoint(*base) for base in bases)


def inventory(*entries, is_store=1):
    return number(is_store, 0, len(entries)) + b"".join(entries) + number(0)


class Peer:
    """The far end of a pipe, for who speaks to `ckpt-sync --server` directly."""

    def __init__(self, store, *options):
        self.process = subprocess.Popen(["ckpt-sync", "--server", *options, store], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def send(self, data):
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def receive(self):
        """(type, payload), or nothing at the end."""
        while True:
            head = self.process.stdout.read(16)
            if len(head) < 16:
                return None
            size, kind = struct.unpack_from("<IB", head)
            payload = self.process.stdout.read(size)
            if kind != ALIVE:
                return kind, payload

    def ask(self, kind, payload=b""):
        self.send(message(kind, payload))
        return self.receive()

    def greet(self):
        self.send(hello())
        check(self.receive()[0] == HELLO, "the server doesn't say hello")
        return self

    def end(self):
        """Hangs up; the exit status and what was said."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdin = None
        timer = threading.Timer(60, self.process.kill)
        timer.start()
        _, err = self.process.communicate()
        timer.cancel()
        return self.process.returncode, err.decode("utf-8", "replace")


def sealed(value):
    """A manifest's text, with its checksum."""
    sys.path.insert(0, os.path.join(tap.TESTS, "should-fail"))
    from craft import seal_object
    return seal_object(value)
