# SPDX-License-Identifier: Apache-2.0
# The demo's trainer under ckpt-run: ranks are killed, stopped and run out of memory at random, and the training ends with
# the very parameters of one that was never disturbed. CKPT_TRIES says how often (default 3), CKPT_SEED what is random.
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import TESTS, Skip, check, main, run

TRAINER = os.environ["CKPT_DEMO_TRAINER"]
TRIES = int(os.environ.get("CKPT_TRIES", "3"))
TINY = ("--layers=2", "--width=32", "--heads=2", "--context=16", "--batch=6", "--lr=0.01")
MEMORY_GROUP = "/sys/fs/cgroup/memory/ckpt-test"
HEARTBEAT = 2


class Job:
    def __init__(self, *options, command, store="s"):
        self.errors = open("errors", "w+")
        self.process = subprocess.Popen(
            ["ckpt-run", f"--store={store}", "--log-dir=logs", "--log-json", f"--heartbeat={HEARTBEAT}", "--backoff=0.05",
             "--max-retries-per-step=50", *options, "--", *command],
            stdin=subprocess.DEVNULL, stderr=self.errors)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.errors.close()

    def events(self, *kinds):
        with open("errors") as file:
            whole = [json.loads(line) for line in file.read().splitlines(keepends=True) if line.endswith("\n")]
        return [event for event in whole if event["type"] in kinds]

    def ranks(self):
        own = subprocess.run(["pgrep", "-x", "-P", str(self.process.pid), "ckpt-ranks"], stdout=subprocess.PIPE).stdout
        found = [subprocess.run(["pgrep", "-x", "-P", pid.decode(), "demo-trainer"], stdout=subprocess.PIPE).stdout.split()
                 for pid in own.split()]
        return [int(pid) for pids in found for pid in pids]

    def finish(self):
        code = self.process.wait(timeout=240)
        check(code == 0, f"it ended with {code}: {self.events('error', 'failed')[-3:]}")
        restored = self.events("restored")[-1]["attempt"]
        with open(f"logs/attempt-{restored}/rank-0.log") as file:
            found = re.search(r"^final step (\d+) loss (\S+) digest (\w+)$", file.read(), re.M)
        check(found, f"attempt {restored} didn't say how it ended")
        return int(found[1]), float(found[2]), found[3]


def trainer(steps, *options):
    return (TRAINER, *TINY, f"--steps={steps}", "--save-every=5", *options)


def calm(steps, *options, ranks=2):
    with Job(f"--nproc={ranks}", command=trainer(steps, *options), store=f"calm-{time.monotonic()}") as job:
        return job.finish()


def can_run_out_of_memory():
    try:
        os.makedirs(MEMORY_GROUP, exist_ok=True)
        with open(f"{MEMORY_GROUP}/memory.limit_in_bytes", "w") as file:
            file.write("1M")
        return True
    except OSError:
        return False


def starve(pid):
    """What it allocates from now on is more than it may have: the kernel kills it."""
    with open(f"{MEMORY_GROUP}/cgroup.procs", "w") as file:
        file.write(str(pid))


def disturb(job, chance, ways):
    ranks = job.ranks()
    if not ranks:
        return None
    pid, way = chance.choice(ranks), chance.choice(ways)
    try:
        if way == "memory":
            starve(pid)
        else:
            os.kill(pid, signal.SIGKILL if way == "kill" else signal.SIGSTOP)
    except (ProcessLookupError, OSError):
        return None
    return way


def test_ranks_that_are_killed_stopped_or_starved_cost_no_bit_of_the_result():
    steps = 150
    wanted = calm(steps)
    ways = ["kill", "kill", "stop"] + (["memory", "memory"] if can_run_out_of_memory() else [])
    seed = int(os.environ.get("CKPT_SEED", random.randrange(1 << 30)))
    print(f"# seed {seed}; ways {sorted(set(ways))}", flush=True)
    seconds, causes, redone = [], {}, []
    for attempt in range(TRIES):
        chance = random.Random(seed + attempt)
        # A rank that is stopped before its first heartbeat would be waited for.
        with Job("--nproc=2", "--start-timeout=20", command=trainer(steps), store=f"s{attempt}") as job:
            for _ in range(chance.randint(2, 4)):
                time.sleep(chance.uniform(0.2, 2.5))
                if job.process.poll() is not None:
                    break
                disturb(job, chance, ways)
            ended = job.finish()
            check(ended == wanted, f"try {attempt}, seed {seed}: {ended}, and undisturbed {wanted}")
            for event in job.events("failed"):
                causes[event["cause"]] = causes.get(event["cause"], 0) + 1
            for failed, restored in zip(job.events("failed"), job.events("restored")[1:]):
                seconds.append(restored["seconds"])
                redone.append(max(0, (failed.get("step") or 0) - (restored.get("step") or 0)))
        run("ckpt-verify", f"s{attempt}", stdout=False, stderr=False)
    check(seconds, "nothing was disturbed")
    print(f"# {TRIES} of {TRIES} the same; failures {causes}; from detection to start: median "
          f"{statistics.median(seconds):.2f} s, most {max(seconds):.2f} s; steps redone: most {max(redone)}", flush=True)


def test_another_number_of_ranks_learns_the_same_within_the_noise_of_a_seed():
    steps = 120
    one, other = calm(steps), calm(steps, "--seed=2")
    noise = abs(one[1] - other[1]) + 0.05
    with Job("--nproc=3", command=trainer(steps)) as job:
        deadline = time.monotonic() + 60
        while not job.events("durable"):
            check(time.monotonic() < deadline and job.process.poll() is None, "no checkpoint came")
            time.sleep(0.02)
        job.process.terminate()
        check(job.process.wait(timeout=60) == -signal.SIGTERM, job.process.returncode)
        check(not job.events("warning"), job.events("warning"))
    with Job("--nproc=1", command=trainer(steps)) as job:
        step, loss, _ = job.finish()
        check(job.events("restored")[0]["step"] > 0, "it began from zero")
    check(step == steps and abs(loss - one[1]) <= noise, f"{loss}, and {one[1]} or {other[1]} without a change")
    print(f"# losses {one[1]} and {other[1]} of two seeds, {loss} with 3 ranks and then 1", flush=True)


def test_tensor_parallel_ranks_come_back_as_fewer():
    steps = 80
    one, other = calm(steps), calm(steps, "--seed=2")
    script = f'exec "$0" "$@" --tp=$WORLD_SIZE'
    with Job("--nproc=2", command=("sh", "-c", script, *trainer(steps))) as job:
        while not job.events("durable"):
            check(job.process.poll() is None, "no checkpoint came")
            time.sleep(0.02)
        job.process.terminate()
        check(job.process.wait(timeout=60) == -signal.SIGTERM, job.process.returncode)
    with Job("--nproc=1", command=("sh", "-c", script, *trainer(steps))) as job:
        step, loss, _ = job.finish()
    check(step == steps and abs(loss - one[1]) <= abs(one[1] - other[1]) + 0.05, f"{loss}, and {one[1]} or {other[1]}")


def test_a_loss_that_is_not_finite_poisons_and_then_ends_it_with_the_trainer_s_status():
    with Job("--nproc=2", "--max-retries-per-step=2", command=trainer(60, "--nan-at=33")) as job:
        check(job.process.wait(timeout=120) == 3, job.process.returncode)
        # Made again from step 25, it is as bad.
        check([event["step"] for event in job.events("poisoned")] == [30, 30], job.events("poisoned"))
        check("isn't finite" in "".join(e["message"] for e in job.events("output")), job.events("output"))


if __name__ == "__main__":
    main()
