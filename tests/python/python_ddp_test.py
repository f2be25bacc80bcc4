# SPDX-License-Identifier: Apache-2.0
# The example for Python, tools/demo/train_ddp.py, on two ranks with the environment that ckpt-run would set.
import os
import socket
import subprocess
import sys

from torch_support import HERE, check, run
from tap import main  # noqa: E402

TOP = os.path.join(HERE, "..", "..")
EXAMPLE = os.path.join(TOP, "tools", "demo", "train_ddp.py")


def train(steps, store, resume="", attempt=1):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(2):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1",
                   CKPT_STORE=store, CKPT_RESUME=resume, CKPT_ATTEMPT=str(attempt),
                   PYTHONPATH=os.path.join(TOP, "lib", "python"))
        ranks.append(subprocess.Popen([sys.executable, EXAMPLE, str(steps)], env=env, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    try:
        said = [rank.communicate(timeout=240)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    check([rank.returncode for rank in ranks] == [0, 0], said)
    return said[0]


def test_the_example_that_is_resumed_ends_as_if_nothing_had_been():
    check("step 20 loss" in train(20, "whole"), "no loss was told")
    train(10, "runs")
    said = train(20, "runs", resume="runs@10", attempt=2)
    check("step 20 loss" in said and "step 10 loss" not in said, said)
    run("ckpt-diff", "-q", "whole@20", "runs@20")


main()
