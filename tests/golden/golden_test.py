# SPDX-License-Identifier: Apache-2.0
# The golden stores of format version 1 are read for ever: by the tools, and by a reader that knows the manual alone.
# And what is written today is reproducible, byte for byte.
import filecmp
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
import golden_tree
import read_golden
from tap import check, main, run

STORES = ("v1-single", "v1-ranks", "v1-suspect", "v1-retired", "v1-typed")


def copy(store):
    """A store is copied by copying its directory."""
    shutil.copytree(os.path.join(HERE, store), store)
    return store


def same(store, name, got):
    with open(os.path.join(HERE, store + ".json"), encoding="utf-8") as file:
        wanted = json.load(file)[name]
    for path in sorted(set(wanted) | set(got)):
        check(wanted.get(path) == got.get(path), f"{name}: {path!r} is {got.get(path)}, not {wanted.get(path)}")


def retired_id(store, step):
    for name in os.listdir(f"{store}/.retired"):
        if name.startswith(f"{step:010}-"):
            with open(f"{store}/.retired/{name}/manifest.json", encoding="utf-8") as file:
                return name, json.load(file)["id"]
    raise AssertionError(f"step {step} isn't retired in {store}")


def checkpoints(store):
    """(directory in the store, address, names of the trees that it must restore to by rank)"""
    if store == "v1-single":
        return [("0000000005", f"{store}@5", ["s5"]), ("0000000006", f"{store}@6", ["s6"])]
    if store == "v1-ranks":
        return [("0000000100", f"{store}@100", ["r0", "r1"])]
    if store == "v1-suspect":
        return [("0000000001", f"{store}@1", ["u1"]), ("0000000002", f"{store}@2", ["u2"])]
    if store == "v1-typed":
        return [(f"{step:010}", f"{store}@{step}", [f"y{step}"]) for step in (1, 2, 3)]
    two, three = retired_id(store, 2), retired_id(store, 3)
    return [("0000000001", f"{store}@1", ["t1"]), ("0000000002", f"{store}@2", ["t22"]),
            (f".retired/{two[0]}", f"{store}@id:{two[1]}", ["t2"]),
            (f".retired/{three[0]}", f"{store}@id:{three[1]}", ["t3"])]


def verifies(store):
    def test():
        copy(store)
        run("ckpt-verify", "--deep", store, stdout=False, stderr=False)
        for _, address, _ in checkpoints(store):
            run("ckpt-verify", "--deep", address, stdout=False, stderr=False)
            run("ckpt-verify", address, stdout=False, stderr=False)
    return test


def restores(store):
    def test():
        copy(store)
        for n, (_, address, names) in enumerate(checkpoints(store)):
            options = ["--by-rank"] if len(names) > 1 else []
            run("ckpt-restore", "-q", *options, address, f"out{n}", stderr=False)
            for rank, name in enumerate(names):
                same(store, name, golden_tree.describe(f"out{n}/rank-{rank:05}" if options else f"out{n}"))
    return test


def is_read_by_the_manual(store):
    def test():
        copy(store)
        for n, (directory, _, names) in enumerate(checkpoints(store)):
            run(sys.executable, os.path.join(HERE, "read_golden.py"), f"{store}/{directory}", f"out{n}",
                stdout=False, stderr=False)
            for rank, name in enumerate(names):
                same(store, name, golden_tree.describe(f"out{n}/rank-{rank:05}" if len(names) > 1 else f"out{n}"))
    return test


def saving_again_changes_nothing(store):
    def test():
        copy(store)
        for n, (directory, address, names) in enumerate(checkpoints(store)):
            if directory.startswith(".") or len(names) > 1:
                continue
            run("ckpt-restore", "-q", address, f"out{n}", stderr=False)
            before = sorted(os.listdir(f"{store}/{directory}"))
            attempt = ["--attempt=1"] if store == "v1-retired" else []
            run("ckpt-save", "-q", "--allow-malformed", *attempt, f"out{n}", address, stderr=False)
            check(sorted(os.listdir(f"{store}/{directory}")) == before, "something was written")
    return test


def test_the_latest_is_neither_suspect_nor_retired():
    for store, step in (("v1-single", b"6"), ("v1-ranks", b"100"), ("v1-suspect", b"1"), ("v1-retired", b"2")):
        copy(store)
        check(run("ckpt-ls", "--get=step", store).stdout.strip() == step, store)


def test_metadata_and_marks_are_kept():
    copy("v1-single")
    copy("v1-suspect")
    check(run("ckpt-ls", "--get=who", "v1-single@5").stdout.decode().strip() == "größe", "metadata")
    check(b"suspect" in run("ckpt-ls", "v1-suspect").stdout, "no mark in the list")


def test_the_reader_by_the_manual_refuses_any_flipped_byte():
    copy("v1-retired")
    directory = "v1-retired/0000000001"
    for name in os.listdir(directory):
        path = f"{directory}/{name}"
        with open(path, "rb") as file:
            sound = file.read()
        for at in range(0, len(sound), 7):
            with open(path, "wb") as file:
                file.write(sound[:at] + bytes([sound[at] ^ 1 << at % 8]) + sound[at + 1:])
            try:
                read_golden.read_checkpoint(directory)
            except (read_golden.Bad, KeyError, IndexError, ValueError):
                continue
            raise AssertionError(f"{path}: a flipped bit at byte {at} was accepted")
        with open(path, "wb") as file:
            file.write(sound)
    read_golden.read_checkpoint(directory)


def files_of(store):
    found = []
    for base, dirs, files in os.walk(store):
        dirs[:] = [d for d in dirs if d != ".verify"]
        found += [os.path.relpath(os.path.join(base, name), store) for name in files if name != "lock"]
    return sorted(found)


def test_the_same_input_makes_the_same_stores_bit_for_bit_with_any_number_of_jobs():
    stores = {}
    for jobs in ("1", "8", "3"):
        os.mkdir(jobs)
        done = subprocess.run(["bash", os.path.join(HERE, "make_golden.sh"), jobs], capture_output=True, check=False,
                              env=dict(os.environ, CKPT_JOBS=jobs), stdin=subprocess.DEVNULL, timeout=600)
        check(done.returncode == 0, lambda: done.stderr.decode())
        stores[jobs] = files_of(jobs)
        check(stores[jobs] == stores["1"], f"other files with {jobs} jobs")
        match, differ, trouble = filecmp.cmpfiles("1", jobs, stores["1"], shallow=False)
        check(not differ and not trouble, f"with {jobs} jobs these differ: {differ + trouble}")


def test_what_is_written_today_is_read_by_the_manual():
    golden_tree.make("single", 5, "tree")
    run("ckpt-save", "tree", "store@1", stderr=False)
    read_golden.read_checkpoint("store/0000000001", "out")
    check(golden_tree.describe("tree") == golden_tree.describe("out"), "trees differ")


tests = []
for store in STORES:
    tests += [(f"{store} verifies", verifies(store)), (f"{store} is restored bit for bit", restores(store)),
              (f"{store} is read by the manual alone, bit for bit", is_read_by_the_manual(store)),
              (f"saving again into {store} changes nothing", saving_again_changes_nothing(store))]
tests += [(name[5:].replace("_", " "), value) for name, value in list(vars().items()) if name.startswith("test_")]
main(tests)
