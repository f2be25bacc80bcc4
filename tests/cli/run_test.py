# SPDX-License-Identifier: Apache-2.0
# ckpt-run as users meet it: ranks that die, hang, are stopped or run out of luck; stores that are damaged, full or
# read-only; signals; slots; logs. The ranks are tests/job_rank.py, whose states tell if a step was lost or done twice.
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import TESTS, Skip, check, main, run

RANK = os.path.join(TESTS, "job_rank.py")
QUICK = ("--backoff=0.05",)


def expected(steps, rank, world):
    state = ""
    for step in range(1, steps + 1):
        state = hashlib.sha256(f"{state} {step} {rank} {world}".encode()).hexdigest()
    return state


def check_final(steps, world):
    for rank in range(world):
        with open(f"final-{rank}") as file:
            check(file.read() == expected(steps, rank, world), f"rank {rank} ended with another state")


def ckpt_run(*options, command=(), expect=(0,), **more):
    return run("ckpt-run", "--store=s", "--log-dir=logs", "--log-json", *QUICK, *options, "--", *command, expect=expect,
               **more)


def job(*options, ranks=2, steps=10, rank_options=("--save-every=1",), **more):
    return ckpt_run(f"--nproc={ranks}", *options, command=(RANK, f"--steps={steps}", *rank_options), **more)


def events(done, kind=None):
    found = [json.loads(line) for line in done.stderr.splitlines()]
    return [event for event in found if kind is None or event["type"] == kind]


def only(found):
    check(len(found) == 1, found)
    return found[0]


def attempts():
    lines = run("ckpt-ls", "--json", "s").stdout.splitlines()
    return [r["attempt"] for r in map(json.loads, lines) if r["type"] == "checkpoint"]


def log(attempt, rank):
    name = f"logs/attempt-{attempt}/rank-{rank}.log"
    if not os.path.exists(name):
        return ""
    with open(name) as file:
        return file.read()


def save_steps(*steps, size=3000000):
    for step in steps:
        with open("state", "wb") as file:
            file.write(os.urandom(size))
        run("ckpt-save", "state", f"s@{step}")


def damage(step):
    with open(f"s/{step:010d}/shard-00000-of-00001.ckpt", "r+b") as file:
        file.seek(100000)
        byte = file.read(4)
        file.seek(100000)
        file.write(bytes(b ^ 255 for b in byte))


class Running:
    """ckpt-run in the background, with the events of its standard error."""

    def __init__(self, *options, command, env=None):
        self.errors = open("errors", "w+")
        self.process = subprocess.Popen(["ckpt-run", "--store=s", "--log-dir=logs", "--log-json", *QUICK, *options, "--",
                                         *command], stderr=self.errors, stdin=subprocess.DEVNULL,
                                        env=dict(os.environ, **(env or {})))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.errors.close()

    def events(self, kind):
        with open("errors") as file:
            whole = [json.loads(line) for line in file.read().splitlines(keepends=True) if line.endswith("\n")]
        return [event for event in whole if event["type"] == kind]

    def wait_for(self, condition, what):
        deadline = time.monotonic() + 60
        while True:
            # In this order: the last that it did may be what is waited for.
            has_ended = self.process.poll() is not None
            if condition():
                return
            check(not has_ended, f"it ended before {what}: {self.process.returncode}")
            check(time.monotonic() < deadline, f"{what} never came")
            time.sleep(0.02)

    def end(self):
        return self.process.wait(timeout=60)


def ranks_running():
    found = subprocess.run(["pgrep", "-f", RANK], stdout=subprocess.PIPE).stdout.split()
    return [int(pid) for pid in found]


def test_ranks_get_the_environment_of_torchrun_and_what_ckpt_adds():
    ckpt_run("--nproc=2", "--run-id=me", "--heartbeat=7", "--interval=90", "--nproc=3", command=("env",))
    variables = dict(line.split("=", 1) for line in log(1, 2).splitlines() if "=" in line)
    for name, value in {"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "0",
                        "GROUP_WORLD_SIZE": "1", "ROLE_RANK": "2", "ROLE_WORLD_SIZE": "3", "ROLE_NAME": "default",
                        "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_RUN_ID": "me",
                        "TORCHELASTIC_USE_AGENT_STORE": "False", "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1",
                        "CKPT_STORE": os.path.abspath("s"), "CKPT_ATTEMPT": "1", "CKPT_RESUME": "",
                        "CKPT_INTERVAL": "90.000", "WATCHDOG_USEC": "7000000"}.items():
        check(variables.get(name) == value, f"{name} is {variables.get(name)!r}")
    check(1024 <= int(variables["MASTER_PORT"]) < 65536, variables["MASTER_PORT"])
    check("CKPT_RESUME_DIR" not in variables and "WATCHDOG_PID" not in variables, variables)


def test_a_job_that_never_fails_says_nothing():
    run("ckpt-run", "--store=s", "--nproc=2", "--", RANK, "--steps=3", stderr=False)
    check_final(3, 2)


def test_a_killed_rank_costs_no_step_that_was_durable():
    done = job(rank_options=("--save-every=2", "--fail=1,1,7,kill"))
    failed = only(events(done, "failed"))
    check((failed["rank"], failed["signal"], failed["cause"], failed["step"]) == (1, 9, "signal", 6), failed)
    restored = events(done, "restored")[-1]
    # The other rank needn't have saved step 6 by then, as nothing keeps them in step.
    check(restored["step"] in (4, 6) and restored["attempt"] == 2, restored)
    check_final(10, 2)


def test_a_stopped_rank_is_the_silent_one_and_the_others_are_not_blamed():
    done = job("--heartbeat=1", rank_options=("--save-every=1", "--fail=1,1,5,stop"))
    lost = only(events(done, "heartbeat_lost"))
    check(lost["rank"] == 1 and "stopped by a signal" in lost["message"], lost)
    check_final(10, 2)


def test_a_silent_rank_leaves_a_stack_trace_in_its_log():
    done = job("--heartbeat=1", rank_options=("--save-every=1", "--fail=1,0,5,silent"))
    check("Fatal Python error: Aborted" in log(1, 0) and "in fail" in log(1, 0), log(1, 0))
    check(any("in fail" in event["message"] for event in events(done, "output")), events(done, "output"))
    check_final(10, 2)


def test_a_rank_that_never_beats_is_not_called_silent():
    job("--heartbeat=0.3", rank_options=("--save-every=3", "--pause=0.2", "--deaf"), steps=6)
    check_final(6, 2)


def test_a_rank_that_does_not_begin_in_time_is_a_failure():
    done = ckpt_run("--start-timeout=0.5", command=("sleep", "100"), expect=(2,))
    check([event["cause"] for event in events(done, "failed")] == ["slow_start"] * 3, events(done, "failed"))


def test_failures_are_not_counted_while_the_job_comes_further():
    fails = [f"--fail={attempt},{attempt % 2},{attempt * 2 + 1},exit-3" for attempt in range(1, 8)]
    done = job(rank_options=("--save-every=1", *fails), steps=20)
    check(len(events(done, "failed")) == 7 and attempts()[-1] == 8, done.stderr)
    check_final(20, 2)


def test_the_last_lines_of_the_first_failure_are_shown():
    done = job(rank_options=("--save-every=1", "--fail=1,1,3,exit-5"))
    shown = [event["message"] for event in events(done, "output")]
    check("rank 1: rank 1 fails as it was told" in shown, shown)


def test_a_rank_that_is_given_up_gives_its_status():
    for how, status in (("exit-1", 1), ("exit-7", 7), ("exit-125", 125), ("exit-126", 2), ("segv", 2), ("kill", 2)):
        done = job("--max-restarts=0", rank_options=(f"--fail=*,1,2,{how}",), expect=(status,))
        check("restarted" not in done.stderr.decode(), done.stderr)


def test_max_restarts_ends_it_with_the_status_of_the_last_failure():
    done = job("--max-restarts=2", "--json", rank_options=("--fail=*,0,2,exit-9",), expect=(9,))
    summary = json.loads(done.stdout.splitlines()[-2])
    check((summary["outcome"], summary["restarts"], summary["exit_status"]) == ("failed", 2, 9), summary)


def test_no_progress_ends_it_and_says_so():
    done = job("--json", rank_options=("--fail=*,0,1,exit-9",), expect=(9,))
    summary = json.loads(done.stdout.splitlines()[-2])
    check(summary["outcome"] == "no_progress" and "without a new checkpoint" in summary["detail"], summary)
    check(summary["lost_seconds"] <= summary["seconds"], "some time is lost twice")
    check(len(events(done, "failed")) == 3, done.stderr)


def test_a_checkpoint_from_which_it_keeps_dying_is_marked_and_the_one_before_taken():
    save_steps(1, 2, 3)
    script = 'case $CKPT_RESUME in *@3) exit 4;; esac; echo "from $CKPT_RESUME"'
    done = ckpt_run(command=("sh", "-c", script))
    check(only(events(done, "poisoned"))["step"] == 3, done.stderr)
    check(len(events(done, "failed")) == 3 and "s@2" in log(4, 0), done.stderr)
    retired = [json.loads(line) for line in run("ckpt-ls", "--retired", "--json", "s").stdout.splitlines()]
    poisoned = only([r for r in retired if r["type"] == "checkpoint" and r["step"] == 3])
    check("poisoned" in poisoned["marks"], poisoned)


def test_what_keeps_dying_whatever_it_resumes_from_does_not_spoil_all_checkpoints():
    save_steps(*range(1, 7))
    done = ckpt_run("--max-retries-per-step=1", command=("sh", "-c", "exit 4"), expect=(4,))
    check(len(events(done, "poisoned")) == 2, done.stderr)
    check(run("ckpt-ls", "--get=step", "s@latest").stdout.strip() == b"4", run("ckpt-ls", "s").stdout)


def test_the_only_checkpoint_is_never_given_up():
    save_steps(1)
    done = ckpt_run(command=("sh", "-c", "exit 4"), expect=(4,))
    check(not events(done, "poisoned"), done.stderr)
    check(run("ckpt-ls", "--get=step", "s@latest").stdout.strip() == b"1", "it's not there any more")


def test_a_damaged_checkpoint_is_passed_over_and_named():
    save_steps(1, 2, 3)
    damage(3)
    done = ckpt_run("--verify=stored", command=("sh", "-c", 'echo "from $CKPT_RESUME"'))
    check(only(events(done, "passed_over"))["step"] == 3 and "s@2" in log(1, 0), done.stderr)


def test_a_damaged_checkpoint_is_mended_from_a_replica():
    save_steps(1, 2, 3)
    run("ckpt-sync", "s", "r")
    damage(3)
    ckpt_run("--verify=stored", "--from=r", command=("sh", "-c", 'echo "from $CKPT_RESUME"'))
    check("s@3" in log(1, 0), log(1, 0))
    run("ckpt-verify", "s@3", stdout=False, stderr=False)


def test_a_lost_store_comes_back_from_a_replica():
    save_steps(1, 2, 3)
    os.rename("s", "r")
    ckpt_run("--from=nowhere", "--from=r", command=("sh", "-c", 'echo "from $CKPT_RESUME"'))
    check("s@3" in log(1, 0), log(1, 0))


def test_nothing_begins_from_zero_where_no_checkpoint_is_good():
    save_steps(1)
    damage(1)
    done = ckpt_run("--verify=stored", command=("touch", "ran"), expect=(2,))
    check("none that is good" in done.stderr.decode() and not os.path.exists("ran"), done.stderr)


def test_a_quick_look_that_passes_damage_becomes_a_thorough_one():
    save_steps(1, 2)
    damage(2)
    script = 'ckpt-restore --rank=0 -o - "$CKPT_RESUME" >/dev/null'
    done = ckpt_run("--max-retries-per-step=9", command=("sh", "-c", script))
    check(only(events(done, "passed_over"))["step"] == 2, done.stderr)
    check(not events(done, "poisoned"), done.stderr)


def test_what_is_newer_and_of_an_earlier_life_is_retired():
    save_steps(1, 2, 3)
    damage(3)
    ckpt_run("--verify=stored", command=("sh", "-c", "ckpt-save --attempt=$CKPT_ATTEMPT state $CKPT_STORE@3"))
    check(attempts() == [0, 0, 1], attempts())


def test_files_are_restored_once_and_what_is_there_is_kept():
    save_steps(1)
    check_it = ("sh", "-c", 'cmp state "$CKPT_RESUME_DIR/state" && exit $((CKPT_ATTEMPT == 1))')
    ckpt_run("--restore-to=d", command=check_it)
    before = os.stat("d/state").st_ino
    ckpt_run("--restore-to=d", command=("true",))
    check(os.stat("d/state").st_ino == before, "what was there is written again")


def test_what_is_staged_is_drained_before_a_checkpoint_is_chosen():
    script = """if [ $CKPT_ATTEMPT = 1 ]; then
      head -c 30000000 /dev/urandom > big
      ckpt-save --detach --consume --attempt=1 big $CKPT_STORE@7
      kill -9 $$
    fi"""
    done = ckpt_run(command=("sh", "-c", script))
    check(events(done, "restored")[-1]["step"] == 7, done.stderr)


def test_a_full_disk_ends_it_with_the_reason_and_poisons_nothing():
    if os.geteuid() != 0:
        raise Skip("mounting needs root")
    os.mkdir("m")
    run("mount", "-t", "tmpfs", "-o", "size=2600K", "none", "m")
    try:
        with open("state", "wb") as file:
            file.write(os.urandom(1000000))
        run("ckpt-save", "state", "m/s@1")
        run("ckpt-save", "--encode=raw", "--base=none", "state", "m/s@2")
        script = "head -c 1000000 /dev/urandom > new; ckpt-save --attempt=$CKPT_ATTEMPT new $CKPT_STORE@3"
        done = run("ckpt-run", "--store=m/s", "--backoff=0.05", "--", "sh", "-c", script, expect=(2,))
        check("has room for" in done.stderr.decode().splitlines()[-1], done.stderr)
        check(b"poisoned" not in run("ckpt-ls", "m/s").stdout, "a checkpoint is blamed")
    finally:
        run("umount", "-l", "m")


def test_a_store_that_can_not_be_written_to_is_said():
    if os.geteuid() != 0:
        raise Skip("mounting needs root")
    os.mkdir("m")
    run("mount", "-t", "tmpfs", "none", "m")
    try:
        save_steps(1, size=1000)
        run("ckpt-save", "state", "m/s@1")
        run("mount", "-o", "remount,ro", "m")
        done = run("ckpt-run", "--store=m/s", "--", "touch", "ran", expect=(2,))
        check("Read-only file system" in done.stderr.decode() and not os.path.exists("ran"), done.stderr)
    finally:
        run("umount", "-l", "m")


def test_a_command_that_can_not_be_run_is_said_at_once():
    done = ckpt_run(command=("/there/is/none",), expect=(2,))
    check("cannot run '/there/is/none': No such file" in only(events(done, "error"))["message"], done.stderr)


def test_asked_to_end_the_ranks_save_the_same_step_and_it_dies_of_that_signal():
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        with Running("--nproc=3", command=(RANK, "--steps=10000", "--pause=0.01")) as running:
            running.wait_for(lambda: len(ranks_running()) >= 3, "three ranks")
            time.sleep(0.7)
            running.process.send_signal(signal_number)
            check(running.end() == -signal_number, running.process.returncode)
            check(not running.events("failed") and not running.events("warning"), running.events("warning"))
        listed = [json.loads(line) for line in run("ckpt-ls", "--json", "s").stdout.splitlines()]
        check(listed[-2]["shards"] == 3 and not ranks_running(), listed)
        check(not run("ckpt-ls", "--pending", "--format=tsv", "s").stdout, "ranks saved different steps")
    check(len(attempts()) == 2, attempts())


def test_ranks_that_do_not_look_for_requests_get_sigterm():
    with Running("--nproc=2", command=("sh", "-c", "trap 'touch asked-$RANK; exit 0' TERM; while :; do sleep 0.05; done")) as running:
        running.wait_for(lambda: running.events("started"), "the start")
        time.sleep(0.5)
        running.process.terminate()
        check(running.end() == -signal.SIGTERM, running.process.returncode)
        check(os.path.exists("asked-0") and os.path.exists("asked-1"), os.listdir("."))


def test_grace_ends_what_does_not_end_and_says_that_it_is_not_safe():
    script = f"trap '' TERM; exec {RANK} --steps=100000 --pause=0.2 --fail=1,0,3,silent"
    with Running("--nproc=2", "--grace=1", command=("sh", "-c", script)) as running:
        running.wait_for(lambda: running.events("started"), "the start")
        time.sleep(1.5)
        running.process.terminate()
        check(running.end() == -signal.SIGTERM, running.process.returncode)
        check(any("not durable" in w["message"] for w in running.events("warning")), running.events("warning"))
        check(not ranks_running(), "ranks survive")


def test_another_signal_may_ask_to_end_and_others_go_to_the_ranks():
    script = "trap 'touch got-usr1' USR1; trap 'touch got-usr2' USR2; trap 'touch got-term; exit 0' TERM; touch on; while :; do sleep 0.05; done"
    with Running("--preempt-signal=USR2", command=("sh", "-c", script)) as running:
        running.wait_for(lambda: os.path.exists("on"), "the start")
        running.process.send_signal(signal.SIGUSR1)
        running.wait_for(lambda: os.path.exists("got-usr1"), "USR1")
        running.process.send_signal(signal.SIGUSR2)
        check(running.end() == -signal.SIGUSR2, running.process.returncode)
        check(os.path.exists("got-term") and not os.path.exists("got-usr2"), os.listdir("."))


def test_saves_are_asked_for_in_the_given_rhythm():
    job("--interval=0.3", rank_options=("--pause=0.05",), steps=30)
    check(len(attempts()) >= 3, attempts())
    check_final(30, 2)
    check(not run("ckpt-ls", "--pending", "--format=tsv", "s").stdout, "ranks saved different steps")


def test_an_automatic_interval_follows_from_what_saves_cost():
    save_steps(1)
    ckpt_run("--interval=auto", command=("sh", "-c", 'echo "$CKPT_INTERVAL"'))
    # A save of some milliseconds, and a failure a day until one is seen: a minute or so.
    check(1 < float(log(1, 0)) < 3600, log(1, 0))


def test_no_orphan_survives_whoever_is_killed():
    for victim in ("ckpt-run", "ckpt-ranks"):
        script = "sleep 7531 & setsid sleep 7532 & (setsid sleep 7533 &) ; touch on; wait"
        with Running(command=("sh", "-c", script)) as running:
            running.wait_for(lambda: os.path.exists("on"), "the start")
            time.sleep(0.3)
            if victim == "ckpt-run":
                running.process.kill()
            else:
                subprocess.run(["pkill", "-9", "-P", str(running.process.pid), "-x", victim], check=True)
            running.process.wait(timeout=30)
            deadline = time.monotonic() + 20
            while subprocess.run(["pgrep", "-f", "^sleep 753[123]"], stdout=subprocess.PIPE).stdout:
                check(time.monotonic() < deadline, f"orphans survive the death of {victim}")
                time.sleep(0.05)
            check(victim == "ckpt-run" or running.process.returncode == 2, running.process.returncode)
        os.remove("on")


def test_a_worker_finishes_what_was_handed_to_it_when_all_else_is_killed():
    script = """head -c 60000000 /dev/urandom > big
    ckpt-save --detach --consume --attempt=$CKPT_ATTEMPT big $CKPT_STORE@5
    kill -9 $PPID; sleep 100"""
    ckpt_run(command=("sh", "-c", script), expect=(2,))
    run("ckpt-wait", "--timeout=60", "s@5")
    run("ckpt-verify", "--deep", "s", stdout=False, stderr=False)


def test_a_slot_that_keeps_failing_is_left_out_and_comes_back_when_it_passes():
    open("unfit", "w").close()
    check_slot = '[ "$LOCAL_RANK" != 1 ] || [ ! -e unfit ] || [ ! -e sick ]'
    script = f"""touch sick-$CKPT_ATTEMPT
    [ "$WORLD_SIZE" = 3 ] && [ "$LOCAL_RANK" = 1 ] && [ -e unfit ] && touch sick && exit 3
    echo "devices $CUDA_VISIBLE_DEVICES"
    exec {RANK} --steps=$([ -e unfit ] && echo 60 || echo 5) --save-every=5"""
    options = ("--nproc=2:3", "--max-retries-per-step=2", f"--health-check={check_slot}", "--health-interval=0.5")
    with Running(*options, command=("sh", "-c", script)) as running:
        running.wait_for(lambda: running.events("left_out"), "a slot left out")
        running.wait_for(lambda: [e for e in running.events("restored") if e["ranks"] == 2], "two ranks")
        two = only([e for e in running.events("restored") if e["ranks"] == 2])
        for rank in (0, 1):
            running.wait_for(lambda: "goes on" in log(two["attempt"], rank), "a rank that has looked")
        os.remove("unfit")
        running.wait_for(lambda: [e for e in running.events("resized") if e["ranks"] == 3], "three ranks again")
        check(running.end() == 0, running.process.returncode)
        check("devices 0,2" in log(two["attempt"], 0), log(two["attempt"], 0))


def test_ranks_come_in_groups():
    ckpt_run("--nproc=1:5", "--multiple-of=2", command=("sh", "-c", "echo $WORLD_SIZE"))
    check(log(1, 3).strip() == "4" and not os.path.exists("logs/attempt-1/rank-4.log"), os.listdir("logs/attempt-1"))


def test_too_few_fit_slots_end_it():
    done = ckpt_run("--nproc=2", "--health-check=[ $LOCAL_RANK = 0 ]", "--health-interval=0.1", command=("touch", "ran"),
                    expect=(2,))
    check("1 of 2 slots pass the health check" in events(done, "error")[-1]["message"], done.stderr)
    check(not os.path.exists("ran"), "it ran all the same")


def test_logs_are_rotated_by_size():
    ckpt_run("--log-size=10K", "--log-files=2", command=("sh", "-c", "for i in $(seq 5000); do echo line $i; done"))
    check(sorted(os.listdir("logs/attempt-1")) == ["rank-0.log", "rank-0.log.1", "rank-0.log.2"], os.listdir("logs/attempt-1"))
    check(log(1, 0).endswith("line 5000\n"), log(1, 0)[-100:])
    check(all(os.path.getsize(f"logs/attempt-1/{name}") <= 75000 for name in os.listdir("logs/attempt-1")), "too long")


def test_of_a_line_that_never_ends_the_end_is_shown():
    done = ckpt_run("--max-restarts=0", command=("sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x; printf end; exit 3"),
                    expect=(3,))
    shown = only(events(done, "output"))["message"]
    check(len(shown) < 2100 and shown.endswith("xend"), f"{len(shown)}: {shown[:100]}")


def test_metrics_tell_steps_losses_and_restarts_by_cause():
    job("--metrics-file=m.prom", rank_options=("--save-every=1", "--fail=1,1,4,kill"))
    with open("m.prom") as file:
        text = file.read()
    store = os.path.abspath("s")
    for line in (f'ckpt_run_restarts_total{{store="{store}",cause="signal"}} 1', f'ckpt_run_attempt{{store="{store}"}} 2'):
        check(line in text, text)
    check("ckpt_run_lost_seconds_total" in text and "ckpt_run_steps_redone_total" in text, text)


def test_metrics_are_text_whatever_the_store_is_called():
    store = b"s\xff\n\"x"
    run("ckpt-run", b"--store=" + store, "--metrics-file=m.prom", "--", "true")
    with open("m.prom", encoding="utf-8") as file:
        check('/s?\\n\\"x"} 1\n' in file.read(), open("m.prom").read())


def hanging():
    if "CKPT_HANGING_DISK" not in os.environ:
        raise Skip("CKPT_HANGING_DISK isn't set")
    preloaded = [os.environ["CKPT_HANGING_DISK"], *filter(None, [os.environ.get("LD_PRELOAD")])]
    return {"LD_PRELOAD": ":".join(preloaded), "CKPT_HANG_IF": os.path.abspath("hangs"), "CKPT_HANG_PATH": "/s/"}


def test_a_store_that_hangs_is_given_up_in_time():
    environment = hanging()
    save_steps(1)
    open("hangs", "w").close()
    done = ckpt_run("--store-timeout=1", command=("touch", "ran"), expect=(75,), env=environment)
    check("does not answer" in done.stderr.decode() and not os.path.exists("ran"), done.stderr)


def test_a_store_that_hangs_later_lets_the_ranks_run_and_then_ends_it():
    environment = hanging()
    save_steps(1)
    ckpt_run("--store-timeout=1", command=("sh", "-c", "touch hangs; sleep 2; touch ran"), expect=(75,), env=environment)
    check(os.path.exists("ran"), "the ranks were not left alone")


def run_with_ignored(signal_number, *command, **more):
    def ignore():
        signal.signal(signal_number, signal.SIG_IGN)
    return subprocess.run(["ckpt-run", "--store=s", *QUICK, "--", *command], preexec_fn=ignore, timeout=30,
                          stdin=subprocess.DEVNULL, **more)


def test_started_with_sigchld_ignored_it_sees_the_end_all_the_same():
    check(run_with_ignored(signal.SIGCHLD, "true").returncode == 0, "another status")


def test_a_hang_up_that_nohup_set_aside_does_not_reach_the_ranks():
    done = run_with_ignored(signal.SIGHUP, "sh", "-c", "kill -HUP $(ps -o ppid= $PPID); sleep 0.5; touch lived",
                            stderr=subprocess.PIPE)
    check(done.returncode == 0 and os.path.exists("lived") and not done.stderr, done.stderr)


def test_as_first_process_of_a_container_it_ends_with_the_status_of_a_signal():
    if os.geteuid() != 0:
        raise Skip("a namespace needs root")
    done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "ckpt-run", "--store=s", "--", "sh", "-c",
                           "kill -TERM 1; sleep 10"], stderr=subprocess.PIPE, timeout=30)
    check((done.returncode, done.stderr) == (128 + signal.SIGTERM, b""), done)


def test_the_report_knows_the_last_save():
    done = job("--json", steps=3)
    check(json.loads(done.stdout.splitlines()[-2])["durable_step"] == 3, done.stdout)


def test_two_jobs_in_one_store_do_not_take_turns():
    with Running("--max-retries-per-step=20", command=(RANK, "--steps=10000", "--save-every=1")) as running:
        running.wait_for(lambda: running.events("durable"), "a save")
        ckpt_run(command=(RANK, "--steps=40", "--save-every=1"), timeout=60)
        check(running.end() == 2, running.process.returncode)
        check("another job has opened store" in only(running.events("error"))["message"], running.events("error"))
        check(len(running.events("failed")) <= 1, running.events("failed"))


def test_a_health_check_is_of_no_interest_once_the_job_is_over():
    done = ckpt_run("--health-check=[ ! -e over ]", "--health-interval=20", command=("touch", "over"))
    check(not events(done, "left_out"), done.stderr)


def test_a_rank_that_has_ended_or_takes_no_part_does_not_keep_others_from_saves():
    for how in ("exit-0", "idle"):
        options = ("--steps=100000", "--pause=0.02", f"--fail=*,1,3,{how}")
        with Running("--nproc=2", "--interval=0.2", "--grace=2", command=(RANK, *options)) as running:
            running.wait_for(lambda: len(running.events("asked")) > 3, "four saves")
            running.process.terminate()
            check(running.end() == -signal.SIGTERM, running.process.returncode)


def test_asked_to_end_between_two_attempts_it_says_what_is_not_durable():
    with Running("--backoff=60", command=(RANK, "--fail=*,0,5,kill", "--fail=*,0,3,kill")) as running:
        running.wait_for(lambda: running.events("waiting"), "the pause")
        running.process.terminate()
        check(running.end() == -signal.SIGTERM, running.process.returncode)
        check("not durable" in only(running.events("warning"))["message"], running.events("warning"))


def test_ranks_that_were_started_go_when_another_can_not_be():
    os.makedirs("logs/attempt-1/rank-1.log")
    script = "(setsid sleep 7534 &); sleep 7534"
    ckpt_run("--nproc=2", command=("sh", "-c", script), expect=(2,))
    check(not subprocess.run(["pgrep", "-f", "^sleep 7534"], stdout=subprocess.PIPE).stdout, "orphans survive")


def test_logs_that_can_not_be_made_any_more_do_not_end_a_training():
    script = "[ $CKPT_ATTEMPT = 2 ] && touch again && exit 0; rm -r logs; touch logs; exit 1"
    done = ckpt_run(command=("sh", "-c", script + "; echo x"))
    check(os.path.exists("again"), done.stderr)


def test_descriptors_that_come_with_a_heartbeat_are_closed():
    # As sd_notify_barrier(3) has it: who sent the pipe waits until it's closed.
    script = """import array, os, select, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(os.environ["NOTIFY_SOCKET"].replace("@", chr(0), 1))
for _ in range(50):
    read_end, write_end = os.pipe()
    s.sendmsg([b"BARRIER=1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [write_end]))])
    os.close(write_end)
    assert select.select([read_end], [], [], 10)[0], "no one closes it"
    os.close(read_end)
"""
    ckpt_run(command=("python3", "-c", script))


def test_a_rank_that_ruins_what_it_shares_with_ckpt_run_ends_no_one_else():
    script = """import mmap, os, sys
with open(os.environ["CKPT_CONTROL"], "r+b") as file:
    try:
        file.truncate(0)
        sys.exit("it can be cut")
    except PermissionError:
        pass
    page = mmap.mmap(file.fileno(), 0)
    for byte in range(256):
        for _ in range(20):
            page[:] = bytes([byte]) * len(page)
"""
    ckpt_run("--interval=0.01", command=("python3", "-c", script))


def test_what_a_rank_says_without_end_leaves_others_time_to_be_heard():
    flood = """import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(os.environ["NOTIFY_SOCKET"].replace("@", chr(0), 1))
os.fork(), os.fork()
while True:
    s.send(b"STATUS=step 18446744073709551615")
"""
    script = f"""if [ $RANK = 1 ]; then exec {RANK} --steps=20 --fail=*,1,5,exit-3; else exec python3 -c '{flood}'; fi"""
    with Running("--nproc=2", command=("sh", "-c", script)) as running:
        running.wait_for(lambda: running.events("failed"), "a failure")
        check(only(running.events("failed")[:1])["rank"] == 1, running.events("failed"))


def test_asked_to_end_while_files_are_restored_it_ends_at_once():
    environment = dict(hanging(), CKPT_HANG_PATH="restored-here")
    save_steps(1)
    open("hangs", "w").close()
    with Running("--restore-to=restored-here", "--interval=0.01", command=("touch", "ran"), env=environment) as running:
        running.wait_for(lambda: running.events("restored"), "the choice")
        time.sleep(0.5)
        running.process.terminate()
        check(running.process.wait(timeout=10) == -signal.SIGTERM, running.process.returncode)
    check(not os.path.exists("ran"), "it ran")


def test_usage_errors_are_said():
    for words in (("--", "true"), ("--store=s",), ("--store=s@5", "--", "true"), ("--store=s", "--nproc=3:2", "--", "true"),
                  ("--store=s", "--nproc=0", "--", "true"), ("--store=s", "--json", "--", "true"),
                  ("--store=s", "--stop-signal=NONE", "--", "true"), ("--store=s", "--preempt-signal=KILL", "--", "true"),
                  ("--store=s", "--nproc=3", "--multiple-of=2", "--", "true"),
                  ("--store=s", "--heartbeat=9999999999d", "--", "true"), ("--store=s", "--store-timeout=0", "--", "true"),
                  ("--store=s", "--health-interval=0", "--", "true")):
        run("ckpt-run", *words, expect=(2,), stdout=False, stderr=True)


if __name__ == "__main__":
    main()
