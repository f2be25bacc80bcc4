# SPDX-License-Identifier: Apache-2.0
# ckpt-diff between states that are sharded differently: what counts is the whole tensor.
import json
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from sharded_files import Rank, floats
from tap import FIXTURES, check, main, run

ROWS, COLUMNS = 12, 10


def grid(changes=()):
    values = {(r, c): float(COLUMNS * r + c) for r in range(ROWS) for c in range(COLUMNS)}
    values.update(changes)
    return values


def cells(values, offsets, shape):
    return b"".join(struct.pack("<f", values[offsets[0] + r, offsets[1] + c])
                    for r in range(shape[0]) for c in range(shape[1]))


def cut(generator, offsets, shape, times):
    """The box as boxes that share it out."""
    dimension = generator.randrange(2)
    if times == 0 or shape[dimension] < 2:
        return [(offsets, shape)]
    at = generator.randrange(1, shape[dimension])
    low, high, moved = list(shape), list(shape), list(offsets)
    low[dimension], high[dimension], moved[dimension] = at, shape[dimension] - at, offsets[dimension] + at
    return cut(generator, offsets, low, times - 1) + cut(generator, moved, high, times - 1)


def save(address, boxes, world_size, values, name="grid"):
    """Box i is on rank i modulo the world size."""
    for rank in range(world_size):
        own = boxes[rank::world_size]
        file = Rank()
        file.sharded(name, [ROWS, COLUMNS], [(list(o), list(s), cells(values, o, s)) for o, s in own])
        file.plain("norm", [3], floats(3))
        file.write(f"state-{rank}.pt")
        run("ckpt-save", f"--rank={rank}", f"--world-size={world_size}", f"state-{rank}.pt", address, stderr=False)


def rows(world_size):
    step = ROWS // world_size
    return [([r, 0], [step, COLUMNS]) for r in range(0, ROWS, step)]


def whole(path, values):
    file = Rank()
    file.plain("grid", [ROWS, COLUMNS], cells(values, [0, 0], [ROWS, COLUMNS]))
    file.plain("norm", [3], floats(3))
    file.write(path)


def same(a, b):
    run("ckpt-diff", a, b, stdout=False, stderr=False)
    run("ckpt-diff", "--whole", b, a, stdout=False, stderr=False)


def differences(a, b, *options):
    out = run("ckpt-diff", "--json", *options, a, b, expect=(1,), stderr=False).stdout.decode()
    return [r for r in map(json.loads, out.splitlines()) if r["type"] == "difference"]


def test_the_same_state_by_other_numbers_of_ranks_is_the_same():
    save("a@1", rows(4), 4, grid())
    save("b@1", rows(3), 3, grid())
    save("c@1", rows(1), 1, grid())
    whole("whole.pt", grid())
    same("a@1", "b@1")
    same("b@1", "c@1")
    same("a@1", "whole.pt")


def test_a_change_is_told_of_the_whole_tensor():
    save("a@1", rows(4), 4, grid())
    save("b@2", rows(2), 2, grid({(5, 7): -1.0}))
    for left, right in (("a@1", "b@2"), ("b@2", "a@1")):
        [found] = differences(left, right)
        check(found["change"] == "changed" and found["name"] == "grid", found)
        check(found["shape_a"] == found["shape_b"] == [ROWS, COLUMNS] and found["elements"] == ROWS * COLUMNS, found)
        check(found["changed"] == 1 and found["max_abs"] == 58 and found["global_offsets"] is None, found)


def test_random_cuts_differ_in_what_was_changed_alone():
    generator = random.Random(5)
    for round in range(8):
        changes = {(generator.randrange(ROWS), generator.randrange(COLUMNS)): 1000.0
                   for _ in range(generator.randrange(4))}
        for store, values in (("a", grid()), ("b", grid(changes))):
            boxes = cut(generator, [0, 0], [ROWS, COLUMNS], generator.randrange(4))
            generator.shuffle(boxes)
            save(f"{store}{round}@1", boxes, generator.randrange(1, 4), values)
        if changes:
            [found] = differences(f"a{round}@1", f"b{round}@1")
            check(found["changed"] == len(changes), (found, changes))
        else:
            same(f"a{round}@1", f"b{round}@1")


def test_replicas_count_once():
    save("a@1", rows(2) + rows(2), 4, grid())
    save("b@1", rows(3), 3, grid({(0, 0): 5.0}))
    [found] = differences("a@1", "b@1")
    check(found["changed"] == 1, found)


def test_parts_with_a_gap_are_no_whole():
    save("a@1", rows(4)[:3], 3, grid())
    save("b@1", rows(2), 2, grid())
    found = differences("a@1", "b@1")
    tensors = [f for f in found if f["what"] == "tensor"]
    check({f["change"] for f in tensors} == {"removed", "reshaped"}, found)


def test_what_ranks_hold_of_their_own_is_no_replica():
    for store, world_size in (("a", 3), ("b", 2)):
        for rank in range(world_size):
            file = Rank()
            file.plain("rng", [2], floats(2, first=rank))
            file.write(f"state-{rank}.pt")
            run("ckpt-save", f"--rank={rank}", f"--world-size={world_size}", f"state-{rank}.pt", f"{store}@1",
                stderr=False)
    [found] = differences("a@1", "b@1")
    check(found["change"] == "removed" and found["rank_a"] == 2 and found["file_b"] is None, found)
    [found] = differences("b@1", "a@1")
    check(found["change"] == "added" and found["rank_b"] == 2 and found["file_a"] is None, found)


def test_fsdp2_against_the_full_state():
    for rank in (0, 1):
        run("ckpt-save", f"--rank={rank}", "--world-size=2", f"{FIXTURES}/fsdp2-rank{rank}.pt", "a@1", stderr=False)
    run("ckpt-restore", "--full", "-o", "full.safetensors", "a@1", stderr=False)
    same("a@1", "full.safetensors")
    found = differences("a@1", f"{FIXTURES}/fsdp2-full.pt")
    check(not any(f["what"] == "tensor" or ".weight" in f["name"] for f in found), found)


main()
