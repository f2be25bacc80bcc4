# SPDX-License-Identifier: Apache-2.0
# Trainers that save out of their memory are killed at random moments. Each checkpoint that is there then holds one
# moment's state, and what was committed before stays. CKPT_KILL_ROUNDS: how many kills a test does.
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check, main, run

ROUNDS = int(os.environ.get("CKPT_KILL_ROUNDS", "12"))
SEED = int(os.environ.get("CKPT_KILL_SEED", str(random.randrange(1 << 30))))
TRAINER = os.environ["CKPT_TRAINER"]
SIZE = 9 * 1000 * 1000


def steps_of(store):
    if not os.path.exists(f"{store}/ckpt-store.json"):
        return []
    listed = run("ckpt-ls", "--format=tsv", store, stderr=False).stdout.decode().splitlines()
    return [int(line.split("\t")[0]) for line in listed]


def check_moment(store, step, ranks):
    for rank in range(ranks):
        state = run("ckpt-restore", "--as=raw", f"--tensor=state.{rank}", "-o", "-", f"{store}@{step}").stdout
        check(len(state) == SIZE // 4 * 4, f"step {step}: {len(state)} bytes")
        values = set(memoryview(state).cast("I"))
        check(values == {step}, lambda: f"step {step} of rank {rank} holds {sorted(values)[:9]} (seed {SEED})")


def wait_for_a_checkpoint():
    """How long it took, for kills that come before, while and after a checkpoint is made, however fast the machine."""
    start = time.monotonic()
    while not steps_of("st"):
        check(time.monotonic() - start < 120, "no checkpoint was ever committed")
        time.sleep(0.02)
    return time.monotonic() - start


def kill_loop(way, ranks=1):
    rng = random.Random(SEED)
    committed = set()
    first = 1
    usual = 0
    for _ in range(ROUNDS):
        trainers = [subprocess.Popen([TRAINER, "st", str(SIZE), way, str(rank), str(ranks), str(first)],
                                     stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) for rank in range(ranks)]
        if usual:
            time.sleep(rng.uniform(0, 2 * usual))
        else:
            usual = wait_for_a_checkpoint()
        for trainer in trainers:
            trainer.send_signal(signal.SIGKILL)
        for trainer in trainers:
            _, err = trainer.communicate(timeout=60)
            check(trainer.returncode == -signal.SIGKILL, f"{trainer.returncode} {err!r} (seed {SEED})")
        now = set(steps_of("st"))
        check(committed <= now, f"lost {sorted(committed - now)} (seed {SEED})")
        for step in sorted(now - committed):
            check_moment("st", step, ranks)
        committed = now
        first = max(now, default=0) + 1
        # Shards of a set that another trainer's death left incomplete: the next life doesn't wait for them.
        for name in os.listdir("st/.pending") if os.path.isdir("st/.pending") else []:
            if name[:10].isdigit():
                first = max(first, int(name[:10]) + 1)
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


def test_trainers_whose_memory_is_protected_where_it_can_be():
    kill_loop("auto")


def test_trainers_whose_memory_is_copied():
    kill_loop("copy")


def test_trainers_of_two_ranks():
    kill_loop("auto", 2)


main()
