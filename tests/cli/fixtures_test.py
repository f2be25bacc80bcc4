# SPDX-License-Identifier: Apache-2.0
# Real files of real trainers: each comes back bit for bit, and each tensor with the name, dtype, shape and bytes that
# PyTorch itself sees in it (fixtures/expected.json).
import hashlib
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import FIXTURES, check, main, run


def records(*command):
    lines = run(*command, stderr=False).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    check(rows[0]["type"] == "header" and rows[-1]["type"] == "summary", "no header or summary")
    return rows[1:-1]


def content(path):
    with open(path, "rb") as f:
        return f.read()


def tree(root):
    found = {}
    for base, dirs, files in os.walk(root):
        for name in dirs + files:
            path = os.path.join(base, name)
            st = os.lstat(path)
            rel = os.path.relpath(path, root)
            found[rel] = (oct(st.st_mode), None if name in dirs else (st.st_mtime_ns, content(path)))
    return found


def comes_back(path):
    def test():
        run("ckpt-save", path, "st@1", stderr=False)
        run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)
        run("ckpt-restore", "st@1", "out", stderr=False)
        if os.path.isdir(path):
            check(tree(path) == tree("out"), "the directory came back otherwise")
            return
        out = os.path.join("out", os.path.basename(path))
        check(content(path) == content(out), "the file came back otherwise")
        old, new = os.stat(path), os.stat(out)
        check((old.st_mode, old.st_mtime_ns) == (new.st_mode, new.st_mtime_ns), "mode or mtime differ")
    return test


def tensors_are_found(path, expected):
    def test():
        run("ckpt-save", path, "st@1", stderr=False)
        found = {row["name"]: row for row in records("ckpt-ls", "--json", "--tensors", "st@1")}
        for want in expected:
            row = found.get(want["name"])
            check(row is not None, lambda: f"no tensor {want['name']!r} among {sorted(found)}")
            for key, ours in (("dtype",) * 2, ("shape",) * 2, ("layout",) * 2, ("global_shape",) * 2,
                              ("offsets", "global_offsets")):
                if key in want:
                    check(row.get(ours) == want[key], f"{want['name']}: {ours} is {row.get(ours)}, not {want[key]}")
        extra = set(found) - {want["name"] for want in expected}
        parts = {name for name in extra if any(name.startswith(want["name"] + ".") for want in expected
                                               if want["sha256"] is None)}
        check(extra == parts, lambda: f"unexpected tensors {sorted(extra - parts)}")
    return test


def tensors_have_their_bytes(path, expected):
    def test():
        run("ckpt-save", path, "st@1", stderr=False)
        for want in expected:
            if want["sha256"] is None:
                continue
            got = run("ckpt-restore", "--tensor=" + want["name"], "--as=raw", "-o", "-", "st@1", stderr=False).stdout
            check(hashlib.sha256(got).hexdigest() == want["sha256"], f"{want['name']}: {len(got)} other bytes")
    return test


def all_at_once():
    run("ckpt-save", FIXTURES, "st@1", stderr=False)
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)
    run("ckpt-restore", "st@1", "out", stderr=False)
    check(tree(FIXTURES) == tree("out"), "the fixtures came back otherwise")


def dcp_is_the_full_tensors():
    """The shards of dcp/, put together at their offsets, are the tensors of dcp-full.pt."""
    run("ckpt-save", os.path.join(FIXTURES, "dcp"), "st@1", stderr=False)
    run("ckpt-save", os.path.join(FIXTURES, "dcp-full.pt"), "full@1", stderr=False)
    full = {row["name"]: row for row in records("ckpt-ls", "--json", "--tensors", "full@1")}
    rows = records("ckpt-ls", "--json", "--tensors", "st@1")
    sharded = [row for row in rows if row.get("global_shape")]
    check(sharded, "no sharded tensor")
    names = {row["name"] for row in rows}
    for name in full:
        check(any(n == name or n.endswith("." + name) for n in names), lambda: f"{name} isn't in {sorted(names)}")
    for row in sharded:
        short = row["name"][len("model."):] if row["name"].startswith("model.") else row["name"]
        want = full.get(short)
        if want:
            check(row["global_shape"] == want["shape"], f"{row['name']}: global shape {row['global_shape']}")


def cases():
    with open(os.path.join(FIXTURES, "expected.json")) as f:
        expected = json.load(f)
    for name in sorted(os.listdir(FIXTURES)):
        yield f"{name} comes back bit for bit", comes_back(os.path.join(FIXTURES, name))
    yield "all fixtures at once come back bit for bit", all_at_once
    for name, tensors in sorted(expected.items()):
        path = os.path.join(FIXTURES, name)
        yield f"{name} has the tensors that PyTorch sees", tensors_are_found(path, tensors)
        yield f"{name} has the bytes that PyTorch sees", tensors_have_their_bytes(path, tensors)
    yield "dcp shards have the full tensors' names and global shapes", dcp_is_the_full_tensors


if __name__ == "__main__":
    main(list(cases()))
