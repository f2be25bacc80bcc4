# SPDX-License-Identifier: Apache-2.0
# DTensors of real process groups: saved by some ranks, loaded by as many, by fewer and by one, by name, shape and
# offset. Needs a PyTorch with torch.distributed.tensor; older ones skip it.
import importlib.util
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import torch_support as support  # noqa: E402, F401
import torch  # noqa: E402
from tap import Skip, check, main, run  # noqa: E402

WORKER = """
import os, sys
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
import ckpt

def whole(name, shape):
    torch.manual_seed(sum(name.encode()))
    return torch.randn(shape)

what, rank, world = sys.argv[1], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
shapes = {"even": (8, 6), "uneven": (7, 5), "few": (2, 3), "columns": (4, 9), "same": (5,), "plain": (3, 3)}
flat = init_device_mesh("cpu", (world,))
placements = {"even": [Shard(0)], "uneven": [Shard(0)], "few": [Shard(0)], "columns": [Shard(1)], "same": [Replicate()]}

def state(fill):
    made = {name: distribute_tensor(fill(name, shapes[name]), flat, placement) for name, placement in placements.items()}
    made["plain"] = fill("plain", shapes["plain"])
    if world == 4:
        grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        made["grid"] = distribute_tensor(fill("grid", (6, 10)), grid, [Shard(0), Shard(1)])
    else:
        made["grid"] = distribute_tensor(fill("grid", (6, 10)), flat, [Shard(1)])
    return {"model": made, "step": 3}

if what == "save":
    saved = state(whole)
    with ckpt.Saver("store", rank, world) as saver:
        handle = saver.save(saved, 3, replicated=["model.plain"])
        for tensor in saved["model"].values():
            (tensor.to_local() if isinstance(tensor, DTensor) else tensor).zero_()
        handle.wait(60)
elif what == "partial":
    mesh = init_device_mesh("cpu", (world,))
    partial = DTensor.from_local(torch.ones(3), mesh, [Partial()])
    with ckpt.Saver("partial", rank, world) as saver:
        try:
            saver.save({"w": partial}, 1)
        except ckpt.Error as failure:
            assert "artial" in str(failure), failure
        else:
            raise AssertionError("Partial was not refused")
else:
    loaded = state(lambda name, shape: torch.zeros(shape))
    ckpt.load_into({"model": loaded["model"]}, "store")
    for name, tensor in loaded["model"].items():
        expected = state(whole)["model"][name]
        if isinstance(tensor, DTensor):
            tensor, expected = tensor.to_local(), expected.to_local()
        assert torch.equal(tensor, expected), (name, tensor, expected)
dist.destroy_process_group()
"""


def ranks(count, what):
    if importlib.util.find_spec("torch.distributed.tensor") is None:
        raise Skip(f"PyTorch {torch.__version__} has no torch.distributed.tensor")
    with open("worker.py", "w", encoding="utf-8") as file:
        file.write(WORKER)
    base = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), USE_LIBUV="0",
                WORLD_SIZE=str(count), OMP_NUM_THREADS="1",
                PYTHONPATH=os.path.join(HERE, "..", "..", "lib", "python"))
    workers = [subprocess.Popen([sys.executable, "worker.py", what], env=dict(base, RANK=str(rank)),
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(count)]
    said = [worker.communicate(timeout=300)[0] for worker in workers]
    check(all(worker.returncode == 0 for worker in workers), lambda: "\n".join(said)[-4000:])


def test_dtensors_saved_by_four_ranks_are_loaded_by_four_three_and_one():
    ranks(4, "save")
    for count in (4, 3, 1):
        ranks(count, "load")
    run("ckpt-verify", "--deep", "store", stdout=False, stderr=False)
    run("ckpt-restore", "--full", "-o", "whole.pt", "store", stderr=False)
    whole = torch.load("whole.pt", weights_only=True)
    shapes = {name: tuple(tensor.shape) for name, tensor in whole.items()}
    check(shapes["model.uneven"] == (7, 5) and shapes["model.grid"] == (6, 10), shapes)
    torch.manual_seed(sum(b"grid"))
    check(torch.equal(whole["model.grid"], torch.randn(6, 10)), "grid differs")


def test_dtensors_saved_by_one_rank_are_loaded_by_three():
    ranks(1, "save")
    ranks(3, "load")


def test_partial_ones_are_refused():
    ranks(2, "partial")


main()
