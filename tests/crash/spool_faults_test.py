# SPDX-License-Identifier: Apache-2.0
# Fault injection on the way through a spool: at any call of a hand-over, and of the draining of it, the process is
# killed or the call fails. What was accepted is stored in the end, bit for bit; what wasn't is back where it was.
# CKPT_TEST_EVERY=1: at every call.
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
import tap
from faults_test import PRELOADED, content
from sampling import sampled
from tap import check, run

SPOOL = "world/spool"
MODES = {
    "a kill": dict(CKPT_FAULT_MODE="kill"),
    "an I/O error": dict(CKPT_FAULT_MODE="fail", CKPT_FAULT_ERRNO=str(errno.EIO)),
    "a full disk": dict(CKPT_FAULT_MODE="fail", CKPT_FAULT_ERRNO=str(errno.ENOSPC), CKPT_FAULT_STICKY="1"),
}


class NoWorker:
    """While this lives no worker drains the spool: workers that were started give up."""

    def __enter__(self):
        os.makedirs(SPOOL, exist_ok=True)
        self.file = open(os.path.join(SPOOL, "lock"), "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        while workers():
            time.sleep(0.01)
        self.file.close()


def workers():
    """Those of this test's spool."""
    log = os.path.realpath(os.path.join(SPOOL, "worker.log"))
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{process}/fd/2") == log:
                found.append(process)
        except OSError:
            continue
    return found


def entries(stage):
    path = os.path.join(SPOOL, stage)
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def with_faults(command, mode, at):
    if os.path.exists("log"):
        os.remove("log")
    return run(*command, expect=None, timeout=120,
               env=dict(mode, LD_PRELOAD=PRELOADED, CKPT_FAULT_DIR="world", CKPT_FAULT_AT=str(at), CKPT_FAULT_LOG="log"))


def calls_of(command):
    check(with_faults(command, dict(CKPT_FAULT_MODE="count"), 0).returncode == 0, "the operation fails without a fault")
    with open("log") as f:
        return [line.split(" ", 2)[1:] for line in f]


def drain():
    run("ckpt-serve", "--until-idle", "--spool=" + SPOOL, "world/st", stderr=None)


def stored():
    """What step 1 holds, or None."""
    if not os.path.isdir("world/st/0000000001"):
        return None
    shutil.rmtree("out", ignore_errors=True)
    run("ckpt-restore", "world/st@1", "out", stderr=False)
    return content("out")


def held(source):
    """What is at an input's place, as a restore would give it."""
    if os.path.isfile(source):
        with open(source, "rb") as f:
            return {os.path.basename(source): (os.stat(source).st_mode, f.read())}
    return content(source) if os.path.isdir(source) else None


def no_copies_left():
    for stage in ("tmp", "incoming", "staged", "failed"):
        check(not entries(stage), f"left in {stage}: {entries(stage)}")


def hand_over_case(arguments, source, mode):
    """`source` is the one input, in world/."""
    def test():
        make_input.directory("input", 1, 500)
        os.mkdir("world")
        if source.endswith("dir"):
            shutil.copytree("input", source, symlinks=True)
        else:
            make_input.torch(source, 1, 500)
        # The store and the spool are there: what makes them is watched in faults_test.py.
        with NoWorker():
            run("ckpt-save", "--detach", "--base=none", "--spool=" + SPOOL, "input", "world/st@0", stderr=None)
        drain()
        begin = "begin"
        shutil.copytree("world", begin, symlinks=True)
        original = held(source)
        command = ("ckpt-save", "--detach", *arguments, "--spool=" + SPOOL, source, "world/st@1")

        def begin_again():
            shutil.rmtree("world")
            shutil.copytree(begin, "world", symlinks=True)

        begin_again()
        with NoWorker():
            log = calls_of(command)
        check(len(log) > 5, "the shim sees no calls")
        for at in sampled(range(1, len(log) + 1)):
            begin_again()
            with NoWorker():
                done = with_faults(command, mode, at)
            where = f"at call {at} of {len(log)} ({' '.join(log[at - 1]).strip()}): "
            claimed = done.returncode == 0 or bool(done.stdout)
            killed = mode["CKPT_FAULT_MODE"] == "kill"
            check(done.returncode in ((0, -signal.SIGKILL) if killed else (0, 2)), where + f"exit {done.returncode}: {done.stderr}")
            drain()
            now, there = stored(), held(source)
            check(now in (None, original), where + "something else was stored")
            if claimed:
                check(now == original, where + f"what was accepted isn't stored; {done.stderr}")
            elif now is None:
                check(there == original, where + "the input is neither stored nor back")
            if not killed and not claimed:
                check(now is None or entries("failed") == [], where + "refused, and yet taken")
            check(now is not None or there is not None, where + "the input is lost")
            no_copies_left()
            run("ckpt-verify", "--deep", "world/st", stdout=False, stderr=False)
    return test


def drain_case(mode):
    def test():
        make_input.directory("input", 1, 500)
        os.mkdir("world")
        run("ckpt-save", "--base=none", "input", "world/st@0", stderr=False)
        make_input.directory("input", 2, 500)
        original = content("input")
        with NoWorker():
            run("ckpt-save", "--detach", "--spool=" + SPOOL, "input", "world/st@1", stderr=None)
            run("true")
        # Workers that were started while the lock was held have given up by now, or the first drain waits for them.
        shutil.copytree("world", "begin", symlinks=True)
        check(entries("staged"), "it was drained already")
        command = ("ckpt-serve", "--until-idle", "--spool=" + SPOOL, "world/st")

        def begin_again():
            shutil.rmtree("world")
            shutil.copytree("begin", "world", symlinks=True)

        begin_again()
        log = calls_of(command)
        check(stored() == original, "something else was stored without a fault")
        for at in sampled(range(1, len(log) + 1)):
            begin_again()
            sticky = "CKPT_FAULT_STICKY" in mode
            where = f"at call {at} of {len(log)} ({' '.join(log[at - 1]).strip()}): "
            if sticky:
                # It waits for space as long as it takes: so it's ended.
                done = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=dict(os.environ, **mode, LD_PRELOAD=PRELOADED, CKPT_FAULT_DIR="world", CKPT_FAULT_AT=str(at)))
                try:
                    done.communicate(timeout=0.4)
                except subprocess.TimeoutExpired:
                    done.terminate()
                    done.communicate(timeout=60)
                code = done.returncode
                check(code in (0, 2, -signal.SIGTERM), where + f"exit {code}")
            else:
                code = with_faults(command, mode, at).returncode
                check(code in (0, 2, -signal.SIGKILL), where + f"exit {code}")
            for entry in entries("failed"):  # failed twice: the user looks and tries it again
                os.rename(os.path.join(SPOOL, "failed", entry), os.path.join(SPOOL, "staged", entry))
            drain()
            check(stored() == original, where + "what was accepted isn't stored")
            no_copies_left()
            run("ckpt-verify", "--deep", "world/st", stdout=False, stderr=False)
    return test


if __name__ == "__main__":
    cases = []
    for word, mode in MODES.items():
        cases += [
            (f"{word} at any call of a hand-over of a file by renaming", hand_over_case(["--consume"], "world/file.pt", mode)),
            (f"{word} at any call of a hand-over of a directory by renaming", hand_over_case(["--consume"], "world/dir", mode)),
            (f"{word} at any call of a hand-over of a directory by copying", hand_over_case([], "world/dir", mode)),
            (f"{word} at any call of draining", drain_case(mode)),
        ]
    tap.main(cases)
