# SPDX-License-Identifier: Apache-2.0
# ckpt-serve: what it drains, how it speaks to a service manager and to Prometheus, how it ends, and who takes over.
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
import tap
from tap import check, run

SPOOL = os.path.join("st", ".spool", re.sub(r"[/.]", "_", socket.gethostname()))


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, f"after {seconds} s still not: {what}")
        time.sleep(0.02)


class Held:
    """No worker drains the spool while this lives."""

    def __enter__(self):
        os.makedirs(SPOOL, exist_ok=True)
        self.file = open(os.path.join(SPOOL, "lock"), "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        time.sleep(0.2)  # until the workers that were started have given up
        self.file.close()


class Server:
    def __init__(self, *arguments, env=None, **more):
        self.process = subprocess.Popen(["ckpt-serve", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=dict(os.environ, **(env or {})), **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self, signal_number=signal.SIGTERM):
        self.process.send_signal(signal_number)
        self.out, self.err = self.process.communicate(timeout=60)
        return self.process.returncode


def stage(step, seed=None, *options, size=20000):
    make_input.torch("state.pt", seed or step, size)
    run("ckpt-save", "--detach", "--consume", *options, "state.pt", f"st@{step}", stderr=False)


def stage_held(*steps):
    with Held():
        for step in steps:
            stage(step)


def steps():
    return sorted(int(name) for name in os.listdir("st") if name.isdigit())


def staged():
    path = os.path.join(SPOOL, "staged")
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def metrics(path="m.prom"):
    found = {}
    if os.path.exists(path):
        with open(path) as f:
            for line in f:
                if not line.startswith("#"):
                    name, value = line.rsplit(" ", 1)
                    found[name] = float(value)
    return found


def value(name, *labels):
    for key, number in metrics().items():
        if key.split("{")[0] == name and all(label in key for label in labels):
            return number
    return None


def test_a_server_that_ends_when_idle_drains_all():
    stage_held(1, 2, 3)
    run("ckpt-serve", "--until-idle", "st", stdout=False, stderr=False)
    check(steps() == [1, 2, 3], steps())


def test_a_server_takes_what_is_staged_while_it_runs():
    stage_held(1)
    with Server("st") as server:
        until(lambda: steps() == [1], "the first is stored")
        stage(2)
        until(lambda: steps() == [1, 2], "the second is stored")
        check(server.end() == -signal.SIGTERM, server.process.returncode)


def test_records_tell_what_became_of_each_save():
    stage_held(1, 2)
    out = run("ckpt-serve", "--until-idle", "--json", "st", stderr=False).stdout
    records = [json.loads(line) for line in out.splitlines()]
    served = [r for r in records if r["type"] == "served"]
    check([r["step"] for r in served] == [1, 2], served)
    check(all(r["state"] == "durable" and r["raw_bytes"] > 80000 and r["stall_seconds"] > 0 for r in served), served)


def test_a_service_manager_hears_that_it_is_ready_what_it_does_and_that_it_lives():
    stage_held(1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("notify")
        manager.settimeout(30)
        with Server("st", env=dict(NOTIFY_SOCKET=os.path.abspath("notify"), WATCHDOG_USEC="300000")) as server:
            heard = b""
            while heard.count(b"WATCHDOG=1") < 5 or b"1 saves served" not in heard:
                heard += manager.recv(4096) + b"\n"
            check(heard.count(b"READY=1\n") == 1, heard)
            check(re.search(rb"STATUS=1 saves served, 0 waiting\n", heard), heard)
            server.end()


def test_a_malformed_notify_socket_is_trouble():
    stage_held(1)
    done = run("ckpt-serve", "--until-idle", "st", expect=(2,), env=dict(NOTIFY_SOCKET="no/path"))
    check(b"NOTIFY_SOCKET" in done.stderr, done.stderr)


def test_metrics_count_saves_times_and_what_waits():
    stage_held(1, 2)
    run("ckpt-serve", "--until-idle", "--metrics-file=m.prom", "st", stderr=False)
    check(value("ckpt_serve_saves_total", 'rank="0"', 'state="durable"') == 2, metrics())
    check(value("ckpt_serve_durable_step") == 2 and value("ckpt_serve_durable_age_seconds") < 60, metrics())
    check(value("ckpt_serve_raw_bytes_total", 'rank="0"') > 160000, metrics())
    for name in ("stall", "write", "commit", "total"):
        check(value(f"ckpt_serve_{name}_seconds_count") == 2, name)
        check(value(f"ckpt_serve_{name}_seconds_bucket", 'le="+Inf"') == 2, name)
    check(value("ckpt_serve_bytes_per_second_sum") > 0, metrics())
    check(value("ckpt_serve_dead_letters") == 0, metrics())


def test_a_save_that_fails_costs_itself_only():
    with Held():
        make_input.torch("whole.pt", 1)
        with open("whole.pt", "rb") as f:
            make_input.put("cut.pt", f.read()[:3000])
        run("ckpt-save", "--detach", "cut.pt", "st@1", stderr=False)
        stage(2)
    done = run("ckpt-serve", "--until-idle", "--metrics-file=m.prom", "st", stderr=True)
    check(b"step 1 rank 0 failed twice and is kept aside" in done.stderr, done.stderr)
    check(steps() == [2], steps())
    check(value("ckpt_serve_dead_letters") == 1 and value("ckpt_serve_saves_total", 'state="failed"') == 1, metrics())
    check(value("ckpt_serve_retries_total") == 1, metrics())


def test_what_is_asked_to_end_leaves_the_rest_staged():
    with Held():
        make_input.put("big", make_input.noise(1, 1 << 20) * 200)
        run("ckpt-save", "--detach", "--consume", "--encode=raw", "big", "st@1", stderr=False)
        stage(2)
    with Server("--jobs=1", "st") as server:
        time.sleep(0.03)
        check(server.end() == -signal.SIGTERM, server.process.returncode)
        check(not server.err, server.err)
    left = staged()
    check(len(left) + len(steps()) == 2, f"{left} {steps()}")
    run("ckpt-serve", "--until-idle", "st", stderr=False)
    check(steps() == [1, 2], steps())
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


def test_another_server_takes_over_within_a_second_of_a_death():
    stage_held(1)
    with Server("st") as first, Server("st") as second:
        until(lambda: steps() == [1], "the first is stored")
        first.process.kill()
        second_lives = second.process.poll() is None
        killed = time.monotonic()
        stage(2)
        until(lambda: steps() == [1, 2], "the second is stored")
        check(second_lives and time.monotonic() - killed < 30, "nobody took over")


def test_servers_and_workers_at_once_store_everything_once():
    servers = [Server("st") for _ in range(3)] if os.path.isdir("st") else []
    stage_held(1)
    servers += [Server("st") for _ in range(3)]
    try:
        for step in range(2, 12):
            stage(step)
            if step in (4, 7):
                servers.pop(0).__exit__()
        run("ckpt-wait", "--timeout=120", "st", stdout=False, stderr=False)
    finally:
        for server in servers:
            server.__exit__()
    check(steps() == list(range(1, 12)), steps())
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


def test_a_server_prunes_in_idle_time():
    stage_held(1, 2, 3, 4)
    with Server("--prune=--keep-last=2", "st") as server:
        until(lambda: steps() == [3, 4], "pruned")
        stage(5)
        until(lambda: steps() == [4, 5], "pruned again")
        server.end()
        check(not server.err, server.err)


def test_a_policy_that_says_nothing_is_refused():
    stage_held(1)
    for policy in ("", "--dry-run", "--keep-last=x", "--pin=1 --keep-last=1", "--keep-last=1 st", "--keep-best='1:loss"):
        run("ckpt-serve", "--until-idle", "--prune=" + policy, "st", expect=(2,), stdout=False, stderr=True)


def test_a_scrub_finds_damage():
    stage_held(1, 2)
    run("ckpt-serve", "--until-idle", "st", stderr=False)
    shard = "st/0000000001/" + next(n for n in os.listdir("st/0000000001") if n.endswith(".ckpt"))
    os.chmod(shard, 0o644)
    with open(shard, "r+b") as f:
        f.seek(5000)
        f.write(b"\0\1\2\3")
    with Server("--scrub=1G", "--metrics-file=m.prom", "st") as server:
        until(lambda: (value("ckpt_serve_chore_failures_total", 'chore="scrub"') or 0) >= 1, "damage is counted")
        server.end()
        check(b"'st@1' is damaged" in server.err, server.err)
    check(b"damaged" in run("ckpt-ls", "st").stdout, "the store has no record of it")


def test_a_scrub_keeps_to_its_rate():
    make_input.put("noise", make_input.noise(1, 3 << 20))
    run("ckpt-save", "--encode=raw", "noise", "st@1", stderr=False)
    begin = time.monotonic()
    run("ckpt-verify", "--bwlimit=3M", "st", stdout=False, stderr=False)
    check(time.monotonic() - begin > 0.7, "faster than it may be")


def test_a_server_compresses_in_idle_time():
    stage_held(1, 2)
    run("ckpt-serve", "--until-idle", "st", stderr=False)
    with open("st/0000000002/manifest.json") as f:
        before = f.read()
    with Server("--compress", "st") as server:
        until(lambda: open("st/0000000002/manifest.json").read() != before, "encoded anew")
        server.end()
        check(not server.err, server.err)
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


def test_a_store_that_is_not_there_is_trouble():
    done = run("ckpt-serve", "--until-idle", "nothing", expect=(2,), stdout=False, stderr=True)
    check(b"nothing" in done.stderr, done.stderr)


if __name__ == "__main__":
    tap.main()
