# SPDX-License-Identifier: Apache-2.0
# Python tests that speak TAP: each function test_* of the calling module is one test, in a scratch directory of its
# own; its name states its condition. An exception fails it, Skip skips it.
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback

TESTS = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(TESTS, "fixtures")

for name in ("WORLD_SIZE", "CKPT_JOBS", "SOURCE_DATE_EPOCH", "NO_COLOR", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
             "CKPT_STORE", "CKPT_ATTEMPT", "CKPT_RESUME", "CKPT_CONTROL", "CKPT_INTERVAL", "NOTIFY_SOCKET",
             "WATCHDOG_USEC", "WATCHDOG_PID"):
    os.environ.pop(name, None)


class Skip(Exception):
    pass


def check(condition, message):
    if not condition:
        raise AssertionError(message() if callable(message) else message)


def finish(command, timeout, **more):
    """subprocess.run with a timer of its own: with subprocess's, the wait for the end of a process sleeps in steps that
    are longer than most commands take."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    timer = threading.Timer(timeout, process.kill)
    timer.start()
    try:
        out, err = process.communicate()
    finally:
        in_time = timer.is_alive()
        timer.cancel()
    check(in_time, lambda: f"still running after {timeout} s: {command}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def run(*command, expect=(0,), env=None, stdout=None, stderr=None, timeout=300, **more):
    """Runs a command; demands one of the exit statuses, and where given how its streams look (False: empty)."""
    done = finish(command, timeout, env=dict(os.environ, **(env or {})), **more)
    what = lambda: f"{done.returncode} from {command}\nstdout: {done.stdout[:1500]!r}\nstderr: {done.stderr[:1500]!r}"
    if expect is not None:
        check(done.returncode in expect, lambda: f"not one of {expect}: {what()}")
    for stream, wanted in ((done.stdout, stdout), (done.stderr, stderr)):
        if wanted is not None:
            check(bool(stream) == wanted, lambda: f"streams aren't as expected: {what()}")
    return done


def main(tests=None):
    if tests is None:
        module = sys.modules["__main__"]
        tests = [(name[5:].replace("_", " "), value) for name, value in vars(module).items()
                 if name.startswith("test_")]
    wanted = sys.argv[1:]
    if wanted:
        tests = [(name, f) for name, f in tests if any(w.replace("_", " ") in name for w in wanted)]
    print(f"1..{len(tests)}", flush=True)
    failed = False
    top = tempfile.mkdtemp(prefix="ckpt-test.")
    try:
        for n, (name, function) in enumerate(tests, 1):
            scratch = os.path.join(top, str(n))
            os.mkdir(scratch)
            os.chdir(scratch)
            try:
                function()
                print(f"ok {n} - {name}", flush=True)
            except Skip as reason:
                print(f"ok {n} - {name} # SKIP {reason}", flush=True)
            except Exception:
                failed = True
                print(f"not ok {n} - {name}")
                for line in traceback.format_exc().splitlines()[-14:]:
                    print("# " + line)
                sys.stdout.flush()
            os.chdir(top)
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        shutil.rmtree(top, ignore_errors=True)
    sys.exit(1 if failed else 0)
