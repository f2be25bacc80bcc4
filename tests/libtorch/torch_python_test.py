# SPDX-License-Identifier: Apache-2.0
# What C++ saves, the tools know, and plain torch.load reads what ckpt-restore gives back.
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "lib", "python")]
from tap import Skip, check, main, run

WRITER = os.environ["CKPT_TORCH_WRITER"]


def test_torch_load_reads_what_was_saved():
    try:
        import torch
    except ImportError:
        raise Skip("no PyTorch")
    run(WRITER, "runs", "30")
    run("ckpt-verify", "runs", stdout=False, stderr=False)
    run("ckpt-restore", "runs@30", "out")
    state = torch.load("out/state.pt")
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    check(torch.equal(state["base"], base), state["base"])
    check(torch.equal(state["view"], base.t()) and state["view"].stride() == (1, 6), state["view"])
    check(torch.equal(state["row"], base[2]), state["row"])
    check(state["row"].data_ptr() == state["base"].data_ptr() + 48, "views aren't on one storage")
    check(torch.equal(state["half"], torch.arange(5, dtype=torch.bfloat16)), state["half"])
    check(state["flags"].dtype == torch.bool and state["flags"].all(), state["flags"])
    check(state["empty"].shape == (0, 3), state["empty"])
    check(state["step"].item() == 30 and state["rate"].item() == 0.125, state)
    with open("out/notes.txt", encoding="utf-8") as file:
        check(file.read() == "as it was\n", "another file")


def test_the_tools_list_tensors_by_name():
    run(WRITER, "runs", "31")
    listed = run("ckpt-ls", "--tensors", "--format=tsv", "runs@31").stdout.decode()
    for name in ("base", "view", "rate"):
        check(name in listed, listed)


def owners(store):
    """{name: ranks that store it}"""
    found = {}
    for line in run("ckpt-ls", "--tensors", "--json", store).stdout.splitlines():
        record = json.loads(line)
        if record["type"] == "tensor" and not record.get("meta"):
            found.setdefault(record["name"], []).append(record["rank"])
    return found


def test_ranks_in_cpp_and_in_python_share_out_the_same_tensors_the_same_way():
    try:
        import torch
    except ImportError:
        raise Skip("no PyTorch")
    import ckpt
    world = 3
    names = [f"model.layers.{n}.weight" for n in range(40)] + ["a", "\u00e9.\u20ac", "with space", "x" * 300]
    for rank in range(world):
        run(WRITER, "cpp", "1", str(rank), str(world), *names)
        with ckpt.Saver("python", rank, world) as saver:
            saver.save({name: torch.ones(3) for name in names}, 1, replicated=True)
    ours = owners("python@1")
    check(sorted(ours) == sorted(names) and all(len(ranks) == 1 for ranks in ours.values()), ours)
    check(len({ranks[0] for ranks in ours.values()}) == world, "a rank got nothing")
    check(owners("cpp@1") == ours, owners("cpp@1"))


main()
