# SPDX-License-Identifier: Apache-2.0
# Syncs that die: sender and receiver are killed at random moments, and at any call that the receiving side makes to
# the disk the process is killed or the call fails. Nothing half is ever visible, both stores verify, and the next sync
# goes on from what arrived. CKPT_KILL_ROUNDS: how many kills a test does. CKPT_TEST_EVERY=1: at every call.
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
import tap
from faults_test import PRELOADED
from sampling import sampled
from sync_support import *  # noqa: F403
from tap import check, run

ROUNDS = int(os.environ.get("CKPT_KILL_ROUNDS", "30"))
SEED = int(os.environ.get("CKPT_KILL_SEED", str(random.randrange(1 << 30))))
MODES = {
    "a kill": dict(CKPT_FAULT_MODE="kill"),
    "an I/O error": dict(CKPT_FAULT_MODE="fail", CKPT_FAULT_ERRNO=str(errno.EIO)),
    "a full disk": dict(CKPT_FAULT_MODE="fail", CKPT_FAULT_ERRNO=str(errno.ENOSPC), CKPT_FAULT_STICKY="1"),
}


def source():
    noise_store("a", (1, 2, 3), size=1500000)
    drift_store("a", 4, first=4)
    return sum(len(data) for name, data in committed_content("a").items() if name.endswith(".ckpt"))


def in_parts(store):
    """Bytes of containers that arrived and aren't committed."""
    return sum(os.path.getsize(f"{store}/.pending/{d}/{f}") for d in underway(store)
               for f in os.listdir(f"{store}/.pending/{d}") if ".ckpt" in f)


def stored(store):
    return sum(len(data) for name, data in committed_content(store).items() if name.endswith(".ckpt"))


def far_side(pid):
    """The server among a process's descendants, if it's there yet."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            children = f.read().split()
        for child in children:
            with open(f"/proc/{child}/cmdline", "rb") as f:
                if b"--server\0" in f.read():
                    return int(child)
            found = far_side(child)
            if found:
                return found
    except OSError:
        pass
    return None


def kill_loop(command, victim, size):
    """Kills until it's done, then begins anew; what arrived never goes away again."""
    rng = random.Random(SEED)
    held = kills = done = resumed = 0
    begin = time.monotonic()
    run(*command, stderr=None)
    limit = (time.monotonic() - begin) * 1.1
    shutil.rmtree("b")
    while kills < ROUNDS:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(rng.uniform(0, limit))
        target = process.pid if victim == "sender" else far_side(process.pid)
        if target is not None and process.poll() is None:
            try:
                os.kill(target, signal.SIGKILL)
                kills += 1
            except ProcessLookupError:
                pass
        _, err = process.communicate(timeout=120)
        check(process.returncode in (0, 75, -signal.SIGKILL), f"{process.returncode} {err!r} (seed {SEED})")
        if os.path.exists("b/ckpt-store.json"):
            run("ckpt-verify", "b", stdout=False, stderr=False)
            # The far side may still be at the last bytes that were on their way.
            now = stored("b") + in_parts("b")
            check(now >= held - (1 << 20), f"of {held} bytes {now} are left (seed {SEED})")
            resumed += held > 0
            held = now
        if process.returncode == 0:
            alike("a", "b")
            sound("b")
            done += 1
            shutil.rmtree("b")
            held = 0
    before = in_parts("b") + stored("b") if os.path.isdir("b") else 0
    got = moved(*command[1:], stderr=None)
    check(got <= size - before + (1 << 16), f"{got} bytes moved, though {before} of {size} were there (seed {SEED})")
    check(resumed > 0, "no sync ever went on from another's part")
    alike("a", "b")
    sound("a", "b")
    nothing_left("b")


def test_local_syncs_are_killed():
    size = source()
    kill_loop(["ckpt-sync", "a", "b"], "sender", size)


def test_senders_over_a_shell_are_killed():
    size = source()
    kill_loop(["ckpt-sync", *shell(), "a", "host:b"], "sender", size)


def test_receivers_over_a_shell_are_killed():
    size = source()
    kill_loop(["ckpt-sync", *shell(), "a", "host:b"], "receiver", size)


def test_sources_over_a_shell_are_killed():
    size = source()
    kill_loop(["ckpt-sync", *shell(), "host:a", "b"], "receiver", size)


def test_two_syncs_to_one_store_are_killed_in_turn():
    source()
    rng = random.Random(SEED)
    rsh = shell()
    begin = time.monotonic()
    run("ckpt-sync", "a", "b")
    limit = (time.monotonic() - begin) * 2
    shutil.rmtree("b")
    for _ in range(ROUNDS // 3):
        both = [subprocess.Popen(c, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for c in (["ckpt-sync", "a", "b"], ["ckpt-sync", *rsh, "a", "host:b"])]
        time.sleep(rng.uniform(0, limit))
        rng.choice(both).kill()
        for process in both:
            _, err = process.communicate(timeout=120)
            check(process.returncode in (0, 75, -signal.SIGKILL), f"{process.returncode} {err!r} (seed {SEED})")
        alike_in_the_end = any(process.returncode == 0 for process in both)
        if os.path.exists("b/ckpt-store.json"):
            run("ckpt-verify", "b", stdout=False, stderr=False)
        if alike_in_the_end:
            alike("a", "b")
            shutil.rmtree("b")
    sync("a", "b")
    alike("a", "b")
    sound("b")
    nothing_left("b")


def with_faults(command, mode, at):
    if os.path.exists("log"):
        os.remove("log")
    return run(*command, expect=None, timeout=120,
               env=dict(mode, LD_PRELOAD=PRELOADED, CKPT_FAULT_DIR="world", CKPT_FAULT_AT=str(at), CKPT_FAULT_LOG="log"))


def fault_case(mode, prepare, options=(), gather=False):
    def test():
        os.mkdir("world")
        before, after = prepare()
        shutil.copytree("world", "begin", symlinks=True)
        command = ("ckpt-sync", "--json", *options, "a", "world/b")

        def begin_again():
            shutil.rmtree("world")
            shutil.copytree("begin", "world", symlinks=True)

        check(with_faults(command, dict(CKPT_FAULT_MODE="count"), 0).returncode == 0, "it fails without a fault")
        with open("log") as f:
            log = [line.split(" ", 2)[1:] for line in f]
        check(len(log) > 5 and ids("world/b") == after, "the shim sees no calls")
        for at in sampled(range(1, len(log) + 1)):
            begin_again()
            done = with_faults(command, mode, at)
            where = f"at call {at} of {len(log)} ({' '.join(log[at - 1]).strip()}): "
            check(done.returncode in (0, 2, 75, -signal.SIGKILL), where + f"exit {done.returncode}: {done.stderr}")
            if os.path.exists("world/b/ckpt-store.json"):
                run("ckpt-verify", "--deep", "world/b", stdout=False, stderr=False)
                now = {(s, i) for s, i in ids("world/b").items()}
                check(now <= set(before.items()) | set(after.items()), where + "something else is visible")
                check(done.returncode != 0 or now == set(after.items()), where + "it claims to be done")
            held = in_parts("world/b") if os.path.isdir("world/b") else 0
            there = set(ids("world/b").items()) if os.path.exists("world/b/ckpt-store.json") else set()
            lacking = sum(os.path.getsize(f"a/{s:010}/{f}") for s, i in after.items() if (s, i) not in there and os.path.isdir(f"a/{s:010}")
                          for f in os.listdir(f"a/{s:010}") if f.endswith(".ckpt"))
            got = moved(*options, "a", "world/b")
            if not gather:
                check(got <= lacking - held + (1 << 16), where + f"{got} bytes moved, {held} of {lacking} were there")
            check(ids("world/b") == after, where + "the next sync doesn't bring it")
            run("ckpt-verify", "--deep", "world/b", stdout=False, stderr=False)
            if underway("world/b"):  # the next one that brings something removes it
                shutil.copytree("a", "more", symlinks=True)
                make_input.put("x", b"more")
                save("more@9", "x", "--base=none")
                sync("more@9", "world/b")
                shutil.rmtree("more")
                left = [n for n in underway("world/b") if ".new." not in n]
                check(not left, where + f"left: {left}")
    return test


def a_full_one_and_a_delta():
    drift_store("a", 2, size=3000)
    sync("a@1", "world/b")
    drift_store("a", 1, size=3000, first=3)
    return ids("world/b"), ids("a")


def a_new_store():
    noise_store("a", (1,), size=50000)
    return {}, ids("a")


def another_content():
    make_input.put("x", b"one")
    save("a@1", "x")
    make_input.put("x", b"two")
    save("world/b@1", "x")
    return ids("world/b"), ids("a")


def retired_ones():
    noise_store("a", (1, 2), size=3000)
    sync("a", "world/b")
    before = ids("world/b")
    make_input.put("x", b"another")
    save("a@2", "x", "--attempt=1", "--resumed-from=1")
    return before, ids("a")


def the_last_shard():
    for rank in range(2):
        make_input.drift(f"r{rank}", 1, rank, 2000)
        run("ckpt-save", f"--rank={rank}", "--world-size=2", f"r{rank}", ("world/b@1", "a@1")[rank], stderr=False)
        run("ckpt-save", f"--rank={rank}", "--world-size=2", f"r{rank}", "whole@1", stderr=False)
    return {}, ids("whole")


if __name__ == "__main__":
    cases = [(name[5:].replace("_", " "), value) for name, value in list(globals().items()) if name.startswith("test_")]
    for word, mode in MODES.items():
        cases += [
            (f"{word} at any call of receiving into a new store", fault_case(mode, a_new_store)),
            (f"{word} at any call of receiving deltas", fault_case(mode, a_full_one_and_a_delta)),
            (f"{word} at any call of receiving another content", fault_case(mode, another_content, ["--replace"])),
            (f"{word} at any call of receiving what is retired", fault_case(mode, retired_ones)),
            (f"{word} at any call of gathering the last shard", fault_case(mode, the_last_shard, ["--gather"], True)),
        ]
    tap.main(cases)
