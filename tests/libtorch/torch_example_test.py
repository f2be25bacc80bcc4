# SPDX-License-Identifier: Apache-2.0
# The example of ckpt-torch(3) saves as it says, and goes on where it was.
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check, main, run

EXAMPLE = os.environ["CKPT_TORCH_EXAMPLE"]


def steps():
    return [int(line.split(b"\t")[0]) for line in
            run("ckpt-ls", "--format=tsv", "runs/a", stderr=False).stdout.splitlines()]


def test_the_example_saves_every_hundred_steps_and_goes_on_with_the_same_numbers():
    os.mkdir("runs")
    whole = run(EXAMPLE).stdout
    check(steps() == list(range(100, 1001, 100)), steps())
    run("ckpt-verify", "--deep", "runs/a", stdout=False, stderr=False)
    for step in range(600, 1001, 100):
        shutil.rmtree(f"runs/a/{step:010}")
    check(run(EXAMPLE).stdout == whole, "it ends with other numbers")
    check(steps() == list(range(100, 1001, 100)), steps())


main()
