# SPDX-License-Identifier: Apache-2.0
# PyTorch's DistributedDataParallel under ckpt-run: the example, tools/demo/train_ddp.py, loses nothing when a rank dies;
# and a script that was written for torchrun, and knows of nothing, runs as it is.
import os
import sys

from torch_support import HERE, check, run
from tap import main  # noqa: E402

TOP = os.path.join(HERE, "..", "..")
EXAMPLE = os.path.join(TOP, "tools", "demo", "train_ddp.py")
ENVIRONMENT = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.path.join(TOP, "lib", "python")}

# As torch.save's and torchrun's documentation have it: a snapshot in a file, looked for at the start.
FOR_TORCHRUN = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["LOCAL_RANK"])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
if os.path.exists("snapshot.pt"):
    snapshot = torch.load("snapshot.pt")
    model.module.load_state_dict(snapshot["model"])
    first = snapshot["epoch"]
for epoch in range(first, 6):
    if epoch == 3 and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        sys.exit("a failure")
    inputs = torch.full((4, 8), float(epoch + rank))
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "epoch": epoch + 1}, "snapshot.tmp")
        os.rename("snapshot.tmp", "snapshot.pt")
    dist.barrier()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} began at {first}")
"""


def ckpt_run(store, *command, options=(), expect=(0,)):
    return run("ckpt-run", f"--store={store}", "--nproc=2", f"--log-dir={store}-logs", "--backoff=0.1", *options, "--",
               sys.executable, *command, env=ENVIRONMENT, expect=expect)


def log(store, attempt, rank=0):
    with open(f"{store}-logs/attempt-{attempt}/rank-{rank}.log") as file:
        return file.read()


def test_the_example_ends_as_if_nothing_had_been_when_it_is_stopped_and_goes_on():
    ckpt_run("whole", EXAMPLE, "20")
    check("step 20 loss" in log("whole", 1), log("whole", 1))
    ckpt_run("runs", EXAMPLE, "10")
    ckpt_run("runs", EXAMPLE, "20")
    check("step 20 loss" in log("runs", 2) and "step 10 loss" not in log("runs", 2), log("runs", 2))
    run("ckpt-diff", "-q", "whole@20", "runs@20")


def test_a_script_for_torchrun_runs_unchanged_and_is_started_again_when_a_rank_fails():
    with open("train.py", "w") as file:
        file.write(FOR_TORCHRUN)
    done = ckpt_run("s", "train.py")
    check("rank 1 (pid" in done.stderr.decode() and "status 1" in done.stderr.decode(), done.stderr)
    check("of 2 began at 3" in log("s", 2), log("s", 2))


main()
