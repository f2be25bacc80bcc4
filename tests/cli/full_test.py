# SPDX-License-Identifier: Apache-2.0
# ckpt-restore --full: the parts that ranks hold become the tensors that one rank would have saved.
import hashlib
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from sharded_files import Rank, floats
from tap import FIXTURES, Skip, check, main, run

with open(f"{FIXTURES}/expected.json", encoding="utf-8") as file:
    EXPECTED = json.load(file)


def content(path):
    with open(path, "rb") as f:
        return f.read()


def safetensors(path):
    data = content(path)
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__")
    return {name: (t["shape"], data[8 + size:][slice(*t["data_offsets"])]) for name, t in header.items()}


def save_ranks(paths, address):
    for rank, path in enumerate(paths):
        run("ckpt-save", f"--rank={rank}", f"--world-size={len(paths)}", path, address, stderr=False)


def save_fsdp2(address="st@1"):
    save_ranks([f"{FIXTURES}/fsdp2-rank{rank}.pt" for rank in (0, 1)], address)


def are_those_of(fixture, tensors, left_out=()):
    wanted = {want["name"]: want for want in EXPECTED[fixture]}
    check(set(tensors) - set(left_out) == set(wanted), lambda: f"other tensors: {sorted(tensors)}")
    for name, want in wanted.items():
        shape, data = tensors[name]
        check(shape == want["shape"], f"{name} has the shape {shape}")
        check(hashlib.sha256(data).hexdigest() == want["sha256"], f"{name} has other bytes")


def refused(*words):
    done = run("ckpt-restore", "--full", "-o", "out.safetensors", "st@1", expect=(2,), stdout=False, stderr=True)
    for word in words:
        check(word in done.stderr.decode(), lambda: f"no {word!r} in {done.stderr!r}")
    check([n for n in os.listdir(".") if "out" in n] == [], "something was written")


def test_the_ranks_of_fsdp2_become_the_full_state():
    save_fsdp2()
    done = run("ckpt-restore", "--full", "-o", "out.safetensors", "st", stderr=False)
    check(done.stdout == b"st@1\n", f"printed {done.stdout!r}")
    are_those_of("fsdp2-full.pt", safetensors("out.safetensors"))


def test_rank_files_of_one_directory_are_joined_alike():
    os.mkdir("run")
    for rank in (0, 1):
        shutil.copyfile(f"{FIXTURES}/fsdp2-rank{rank}.pt", f"run/step7-rank{rank}.pt")
    run("ckpt-save", "run", "st@1", stderr=False)
    run("ckpt-restore", "--full", "-o", "out.safetensors", "st", stderr=False)
    are_those_of("fsdp2-full.pt", safetensors("out.safetensors"))


def test_a_dcp_directory_becomes_the_full_state():
    run("ckpt-save", f"{FIXTURES}/dcp", "st@1", stderr=False)
    run("ckpt-restore", "--full", "--strip-prefix=model.", "-o", "out.safetensors", "st", stderr=False)
    are_those_of("dcp-full.pt", safetensors("out.safetensors"), left_out=["plain"])


def test_a_pt_is_a_sound_archive_of_the_same_tensors():
    save_fsdp2()
    run("ckpt-restore", "--full", "-o", "out.pt", "st", stderr=False)
    with zipfile.ZipFile("out.pt") as archive:
        check(archive.testzip() is None, "a checksum is wrong")
        data = content("out.pt")
        for entry in archive.infolist():
            lengths = struct.unpack("<HH", data[entry.header_offset + 26:entry.header_offset + 30])
            start = entry.header_offset + 30 + sum(lengths)
            check(start % 64 == 0, f"{entry.filename} begins at {start}")
        check(archive.read("archive/version") == b"3\n", "no version")
    run("ckpt-save", "out.pt", "again@1", stderr=False)
    run("ckpt-restore", "--as=safetensors", "-o", "out.safetensors", "again", stderr=False)
    are_those_of("fsdp2-full.pt", safetensors("out.safetensors"))


def test_a_pt_is_what_torch_loads():
    try:
        import torch
    except ImportError:
        raise Skip("no PyTorch here")
    save_fsdp2()
    run("ckpt-restore", "--full", "-o", "out.pt", "st", stderr=False)
    got, want = torch.load("out.pt"), torch.load(f"{FIXTURES}/fsdp2-full.pt")
    check(list(got) == list(want), f"other names: {list(got)}")
    for key, tensor in want.items():
        check(got[key].dtype == tensor.dtype and torch.equal(got[key], tensor), f"{key} is another")


def test_a_pt_can_be_asked_for_without_joining_and_under_any_name():
    run("ckpt-save", f"{FIXTURES}/many.safetensors", "st@1", stderr=False)
    run("ckpt-restore", "--as=pt", "-o", "out.bin", "st", stderr=False)
    run("ckpt-save", "out.bin", "again@1", stderr=False)
    for want in EXPECTED["many.safetensors"]:
        got = run("ckpt-restore", "--tensor=" + want["name"], "--as=raw", "-o", "-", "again", stderr=False).stdout
        check(hashlib.sha256(got).hexdigest() == want["sha256"], f"{want['name']} is another")


def test_sharded_tensors_of_three_ranks_uneven_ones_and_several_a_rank():
    grid = [[(r, c, 10 * r + c) for c in range(5)] for r in range(4)]
    cell = lambda rows, columns: b"".join(struct.pack("<f", grid[r][c][2]) for r in rows for c in columns)
    ranks = [Rank() for _ in range(3)]
    ranks[0].sharded("grid", [4, 5], [([0, 0], [2, 3], cell(range(2), range(3))),
                                      ([2, 0], [2, 1], cell(range(2, 4), range(1)))])
    ranks[1].sharded("grid", [4, 5], [([0, 3], [4, 2], cell(range(4), range(3, 5)))])
    ranks[2].sharded("grid", [4, 5], [([2, 1], [2, 2], cell(range(2, 4), range(1, 3))), ([4, 0], [0, 5], b"")])
    for rank in ranks:
        rank.plain("norm", [3], floats(3))
    save_ranks([rank.write(f"rank{r}.pt") for r, rank in enumerate(ranks)], "st@1")
    run("ckpt-restore", "--full", "-o", "out.safetensors", "st", stderr=False)
    got = safetensors("out.safetensors")
    check(got["grid"] == ([4, 5], cell(range(4), range(5))), lambda: f"the grid is {got['grid']}")
    check(got["norm"] == ([3], floats(3)) and len(got) == 2, lambda: f"tensors: {sorted(got)}")


def test_large_tensors_come_in_slabs():
    rows = 1500
    ranks = [Rank(), Rank()]
    for r, rank in enumerate(ranks):
        data = b"".join(floats(2000, 4000 * row + 2000 * r) for row in range(rows))
        rank.sharded("wide", [rows, 4000], [([0, 2000 * r], [rows, 2000], data)])
    save_ranks([rank.write(f"rank{r}.pt") for r, rank in enumerate(ranks)], "st@1")
    whole = b"".join(floats(4000, 4000 * row) for row in range(rows))
    for jobs in ("1", "3"):
        done = run("ckpt-restore", "--full", "--as=raw", f"--jobs={jobs}", "-o", "-", "st", stderr=False)
        check(done.stdout == whole, "other bytes")
    run("ckpt-restore", "--full", "-o", "out.pt", "st", stderr=False)
    with zipfile.ZipFile("out.pt") as archive:
        check(archive.read("archive/data/0") == whole, "other bytes, or a wrong checksum")


def test_a_gap_is_an_error_that_names_it():
    run("ckpt-save", f"{FIXTURES}/fsdp2-rank0.pt", "st@1", stderr=False)
    refused("'0.weight'", "gap", "[4:7, 0:6]")


def test_an_overlap_is_an_error_that_names_both_sides():
    ranks = [Rank(), Rank()]
    ranks[0].sharded("w", [8], [([0], [5], floats(5))])
    ranks[1].sharded("w", [8], [([4], [4], floats(4, 4))])
    save_ranks([rank.write(f"rank{r}.pt") for r, rank in enumerate(ranks)], "st@1")
    refused("'w'", "overlap", "[0:5] of rank 0 ('rank0.pt')", "[4:8] of rank 1 ('rank1.pt')")


def test_replicas_that_differ_are_an_error_and_can_be_left_out():
    ranks = [Rank(), Rank()]
    for r, rank in enumerate(ranks):
        rank.plain("random", [2], floats(2, r))
        rank.plain("norm", [2], floats(2))
    save_ranks([rank.write(f"rank{r}.pt") for r, rank in enumerate(ranks)], "st@1")
    refused("'random'", "rank 0 ('rank0.pt')", "rank 1 ('rank1.pt')")
    run("ckpt-restore", "--full", "--tensor=norm", "-o", "out.safetensors", "st", stderr=False)
    check(safetensors("out.safetensors") == {"norm": ([2], floats(2))}, "another norm")
    run("ckpt-restore", "--full", "--rank=1", "--force", "-o", "out.safetensors", "st", stderr=False)
    check(safetensors("out.safetensors")["random"] == ([2], floats(2, 1)), "another rank's")


def test_parts_of_different_wholes_are_an_error():
    ranks = [Rank(), Rank()]
    ranks[0].sharded("w", [8], [([0], [4], floats(4))])
    ranks[1].sharded("w", [9], [([4], [5], floats(5, 4))])
    save_ranks([rank.write(f"rank{r}.pt") for r, rank in enumerate(ranks)], "st@1")
    refused("'w'", "float32 [8] for rank 0", "float32 [9] for rank 1")


def test_files_of_other_names_are_other_tensors():
    rank = Rank()
    rank.plain("w", [2], floats(2))
    os.mkdir("run")
    rank.write("run/model.pt")
    other = Rank()
    other.plain("w", [2], floats(2, 5))
    other.write("run/ema.pt")
    run("ckpt-save", "run", "st@1", stderr=False)
    refused("'w'", "'ema.pt'", "'model.pt'", "--file")
    run("ckpt-restore", "--full", "--file=ema.pt", "-o", "out.safetensors", "st", stderr=False)
    check(safetensors("out.safetensors")["w"] == ([2], floats(2, 5)), "the other one's")


def test_without_full_a_hint_says_what_joins():
    save_fsdp2()
    done = run("ckpt-restore", "--as=safetensors", "-o", "out", "st", expect=(2,), stdout=False)
    check(b"--full" in done.stderr, done.stderr)


def test_stdout_gets_the_same_bytes_and_a_terminal_none():
    save_fsdp2()
    for form in ("pt", "safetensors"):
        run("ckpt-restore", "--full", f"--as={form}", "-o", "out", "--force", "st", stderr=False)
        done = run("ckpt-restore", "--full", f"--as={form}", "-o", "-", "st", stderr=False)
        check(done.stdout == content("out"), f"other bytes of {form}")
    _, terminal = pty.openpty()
    done = subprocess.run(["ckpt-restore", "--full", "-o", "-", "st"], stdout=terminal, stderr=subprocess.PIPE)
    check(done.returncode == 2 and b"terminal" in done.stderr, done.stderr)


def test_one_tensor_comes_whole_as_raw_and_npy():
    save_fsdp2()
    want = next(t for t in EXPECTED["fsdp2-full.pt"] if t["name"] == "1.weight")
    for form, skipped in (("raw", 0), ("npy", 128)):
        got = run("ckpt-restore", "--full", "--tensor=1.weight", f"--as={form}", "-o", "-", "st").stdout[skipped:]
        check(hashlib.sha256(got).hexdigest() == want["sha256"], f"other bytes as {form}")


def test_what_exists_is_replaced_by_force_only_and_full_needs_an_output():
    save_fsdp2()
    run("ckpt-restore", "--full", "-o", "out.pt", "st", stderr=False)
    run("ckpt-restore", "--full", "-o", "out.pt", "st", expect=(2,), stdout=False)
    run("ckpt-restore", "--full", "-o", "out.pt", "--force", "st", stderr=False)
    run("ckpt-restore", "--full", "st", "out", expect=(2,), stdout=False)
    done = run("ckpt-restore", "--full", "--tensor=nowhere", "-o", "x", "st", expect=(2,), stdout=False)
    check(b"nowhere" in done.stderr, done.stderr)


def test_ls_shows_where_each_part_lies():
    save_fsdp2()
    human = run("ckpt-ls", "--tensors", "st", stderr=False).stdout.decode()
    check("of [7, 6] at [4, 0]" in human, human)
    columns = [line.split("\t") for line in
               run("ckpt-ls", "--tensors", "--format=tsv", "st", stderr=False).stdout.decode().splitlines()]
    check(["1", "fsdp2-rank1.pt", "0.weight", "float32", "strided", "3,6", "7,6", "4,0"] in [c[:8] for c in columns],
          columns)
    rows = [json.loads(line) for line in run("ckpt-ls", "--tensors", "--json", "st", stderr=False).stdout.splitlines()]
    check(any(r.get("global_shape") == [7, 6] and r["global_offsets"] == [4, 0] for r in rows[1:-1]), rows)


main()
