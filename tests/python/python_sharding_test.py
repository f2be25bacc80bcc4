# SPDX-License-Identifier: Apache-2.0
# Where a DTensor's part lies in the whole, against tensors cut by hand; no process group is needed for that.
import itertools

import torch_support  # noqa: F401
from torch_support import check, ckpt, torch

from tap import main

cut = ckpt._sharding.cut


class Placement:
    def __init__(self, dim=0):
        self.dim = dim


Shard = type("Shard", (Placement,), {})
StridedShard = type("_StridedShard", (Placement,), {})
Replicate = type("Replicate", (Placement,), {})
Partial = type("Partial", (Placement,), {})


def chunk(tensor, dim, parts, index):
    some = torch.chunk(tensor, parts, dim)
    return some[index] if index < len(some) else tensor.narrow(dim, 0, 0)


def check_cut(shape, mesh, placements, order):
    whole = torch.arange(torch.Size(shape).numel()).view(shape)
    for coordinate in itertools.product(*map(range, mesh)):
        part = whole
        for mesh_dim in order:
            part = chunk(part, placements[mesh_dim].dim, mesh[mesh_dim], coordinate[mesh_dim])
        offsets, left = cut(shape, mesh, coordinate, placements)
        ours = whole[tuple(slice(o, o + n) for o, n in zip(offsets, left))]
        check(list(part.shape) == left and (part.numel() == 0 or torch.equal(ours, part)),
              f"{shape} {mesh} {coordinate}: {offsets} {left}, not {list(part.shape)}")


def test_shards_are_cut_as_torch_chunks():
    for rows in range(1, 12):
        for parts in range(1, 7):
            check_cut((rows, 3), (parts,), [Shard(0)], [0])
            check_cut((3, rows), (parts,), [Shard(-1)], [0])


def test_shards_of_two_mesh_dimensions_are_cut_one_after_the_other():
    for rows in range(1, 12):
        check_cut((rows, 5), (2, 3), [Shard(0), Shard(1)], [0, 1])
        check_cut((rows, 5), (2, 3), [Shard(0), Shard(0)], [0, 1])
        check_cut((rows, 5), (2, 3), [Replicate(), Shard(0)], [1])


def test_a_strided_shard_is_cut_after_the_inner_mesh_dimensions():
    for rows in range(1, 14):
        check_cut((rows, 2), (2, 3), [StridedShard(0), Shard(0)], [1, 0])


def test_a_partial_placement_is_refused():
    try:
        cut((4,), (2,), (0,), [Partial()])
        check(False, "it wasn't")
    except ckpt.Error as failure:
        check(failure.code == "unsupported", failure.code)


if __name__ == "__main__":
    main()
