# SPDX-License-Identifier: Apache-2.0
# Which part of a whole tensor a DTensor holds here. Each mesh dimension that shards a tensor dimension cuts what is
# left of it into chunks of the same rounded-up length; a strided shard stands for a cut made after those of the inner
# mesh dimensions.
import sys

from ._library import error


def is_dtensor(tensor):
    for module in ("torch.distributed.tensor", "torch.distributed._tensor"):
        kind = getattr(sys.modules.get(module), "DTensor", None)
        if kind is not None and isinstance(tensor, kind):
            return True
    return False


def box_of(tensor):
    """A DTensor's local tensor, and its offsets in the whole."""
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    shape = tuple(mesh.mesh.shape) if hasattr(mesh, "mesh") else tuple(mesh.shape)
    if coordinate is None:
        return tensor._local_tensor, [0] * tensor.dim()
    offsets, left = cut(tuple(tensor.shape), shape, coordinate, tensor.placements)
    local = tensor._local_tensor
    if tuple(local.shape) != tuple(left) and local.numel():
        raise error("unsupported", f"a DTensor of shape {tuple(tensor.shape)} with placements {tensor.placements} "
                    f"should have {tuple(left)} here, but has {tuple(local.shape)}")
    return local, offsets


def cut(whole, mesh, coordinate, placements):
    """Offsets and shape of the part at a coordinate of the mesh."""
    cuts, later = [], []
    for mesh_dim, placement in enumerate(placements):
        kind = type(placement).__name__
        if kind == "Replicate":
            continue
        if kind not in ("Shard", "_StridedShard"):
            raise error("unsupported", f"a DTensor whose placement is {kind} has no value until it's reduced")
        dim = placement.dim + (len(whole) if placement.dim < 0 else 0)
        (cuts if kind == "Shard" else later).append((mesh_dim, dim))
    offsets, left = [0] * len(whole), list(whole)
    for mesh_dim, dim in cuts + later[::-1]:
        chunk = -(-left[dim] // mesh[mesh_dim])
        start = min(coordinate[mesh_dim] * chunk, left[dim])
        offsets[dim] += start
        left[dim] = min(chunk, left[dim] - start)
    return offsets, left
