# SPDX-License-Identifier: Apache-2.0
# Random histories of two ranks whose tensors are of several blocks: masters that drift with their bfloat16 copies,
# replicas, averages that are the masters of another step, tables of which a few rows move. Between saves, checkpoints
# are encoded anew in all ways and removed. CKPT_HISTORIES says how many, CKPT_HISTORY_SEED which.
import array
import operator
import os
import random
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
from tap import check, main, run

BLOCK = 4 << 20
RANKS = 2
LAST = 6


def floats(rng, count):
    """The bits of numbers from 1 to 1.008, or of their negatives."""
    sign = rng.randrange(2) << 31
    return array.array("I", map((0x3F800000 + sign).__add__, array.array("H", rng.randbytes(2 * count))))


class Model:
    """One rank's state."""

    def __init__(self, rng, table):
        self.rng = rng
        # Of one to two and a half blocks, not all of whole ones.
        self.masters = floats(rng, rng.randrange(BLOCK // 4, BLOCK // 4 * 5 // 2))
        self.table = table
        self.average = self.masters

    def step(self):
        how = self.rng.randrange(4)
        if how == 0:
            self.average = self.masters
        before = self.masters
        if how < 3:
            self.masters = array.array("I", map(operator.add, before, self.rng.randbytes(len(before))))
        else:
            self.masters = before[:]
            for _ in range(50):
                self.masters[self.rng.randrange(len(before))] += 1

    def tensors(self):
        return {"master": ("F32", self.masters), "model": ("BF16", make_input.as_bfloat16(self.masters)),
                "average": ("F32", self.average), "table": ("U32", self.table)}


def save(rng, models, store, step, wanted):
    options = rng.choice(([], [], [], ["--encode=best"], ["--base=none"], ["--encode=raw"]))
    for rank, model in enumerate(models):
        os.makedirs(f"in{step}/r{rank}")
        make_input.arrays(f"in{step}/r{rank}/state-{rank}.safetensors", model.tensors())
        run("ckpt-save", *options, f"--rank={rank}", f"--world-size={RANKS}", f"in{step}/r{rank}", f"{store}@{step}",
            stderr=False)
    wanted.append(step)


def encode_anew(rng, store, wanted):
    step = rng.choice(wanted)
    way = rng.choice((["--newest-full", store], ["--across-ranks", f"{store}@{step}"], ["--rebase", f"{store}@{step}"],
                      ["--base=none", f"{store}@{step}"], ["--max-chain=1", store], ["--level=9", f"{store}@{step}"],
                      ["--base=" + str(rng.choice(wanted)), f"{store}@{step}"]))
    # What would go in a circle, or depend on itself, is refused.
    run("ckpt-compress", *way, expect=(0, 1, 2), stdout=None, stderr=None)
    return " ".join(way)


def remove(rng, store, wanted):
    gone = rng.choice(wanted[:-1])
    run("ckpt-prune", f"--remove={gone}", store, stdout=None, stderr=False)
    wanted.remove(gone)
    return f"remove {gone}"


def compare(store, step, why):
    shutil.rmtree("out", ignore_errors=True)
    run("ckpt-restore", f"{store}@{step}", "out", stderr=False)
    for rank in range(RANKS):
        name = f"r{rank}/state-{rank}.safetensors"
        with open(f"in{step}/{name}", "rb") as one, open(f"out/state-{rank}.safetensors", "rb") as other:
            check(one.read() == other.read(), f"{store}@{step}, rank {rank}: other content; {why}")


def history(seed):
    rng = random.Random(seed)
    table = floats(rng, BLOCK // 4 + rng.randrange(1000))
    models = [Model(rng, table) for _ in range(RANKS)]
    store, wanted, done = f"st{seed}", [], []
    for step in range(1, LAST + 1):
        save(rng, models, store, step, wanted)
        if step >= 3:
            done.append(encode_anew(rng, store, wanted))
        if step >= 3 and rng.random() < 0.4:
            done.append(remove(rng, store, wanted))
        for model in models:
            model.step()
    why = f"seed {seed}: " + ", ".join(done)
    verified = run("ckpt-verify", "--deep", store, expect=None)
    check(verified.returncode == 0, lambda: f"{why}: {verified.stdout!r} {verified.stderr!r}")
    for step in wanted:
        compare(store, step, why)


def test_random_histories_of_large_states_come_back():
    seed = int(os.environ.get("CKPT_HISTORY_SEED", str(random.randrange(1 << 30))))
    for number in range(int(os.environ.get("CKPT_HISTORIES", "1"))):
        history(seed + number)
        for name in os.listdir("."):
            shutil.rmtree(name)


main()
