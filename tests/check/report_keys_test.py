# SPDX-License-Identifier: Apache-2.0
# ckpt-output(5) names every key of the JSON records and every tsv column, in that order.
import fcntl
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import FIXTURES, check, main, run

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def documented():
    """The keys of each record type, from the list after the line that names it."""
    with open(f"{TOP}/man/ckpt-output.5", encoding="utf-8") as file:
        text = file.read()
    keys, current = {}, []
    for line in text.splitlines():
        named = re.match(r"\.Cm (\w+) [:,]$", line)
        if named:
            current = ["damage", "non_finite"] if named.group(1) == "damage" else [named.group(1)]
        if line.startswith(".Bl"):
            for name in current:
                keys[name] = []
        item = re.match(r"\.It Cm (\w+)$", line)
        if item:
            for name in current:
                keys[name].append(item.group(1))
    return keys


def records(*command, expect=(0,)):
    lines = run(*command, "--json", expect=expect).stdout.decode().splitlines()
    found = [json.loads(line) for line in lines]
    check(found[0]["type"] == "header" and found[0]["schema"] == command[0] + "/1", f"header is {found[0]}")
    check(found[-1]["type"] == "summary", f"summary is {found[-1]}")
    return found[1:-1]


def agree(*command, expect=(0,), tsv=True):
    keys = documented()
    found = records(*command, expect=expect)
    check(found, f"no record from {command}")
    for record in found:
        kind = record.pop("type")
        check(list(record) == keys.get(kind), f"{command}: {kind} has {list(record)}, documented are {keys.get(kind)}")
    if tsv:
        lines = run(*command, "--format=tsv", expect=expect).stdout.decode().splitlines()
        for line in lines:
            columns = line.split("\t")
            check(len(columns) == len(found[0]), f"{command}: tsv has {len(columns)} columns, JSON {len(found[0])} keys")


def state():
    shutil.copy(f"{FIXTURES}/train_step5.pt", "state.pt")
    return "state.pt"


def test_save():
    agree("ckpt-save", state(), "s@1")


def test_save_in_the_background():
    agree("ckpt-save", "--detach", state(), "s@1")
    run("ckpt-wait", "s")


def test_wait():
    run("ckpt-save", "--detach", state(), "s@1")
    agree("ckpt-wait", "s@1")


def is_locked(path):
    with open(path, "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def served(form, step):
    """What a server says of one save: it has the spool before that is staged, so that no worker takes it."""
    lock = glob.glob("s/.spool/*/lock")[0]
    with open(lock, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the worker before has ended
    with subprocess.Popen(["ckpt-serve", f"--format={form}", "s"], stdout=subprocess.PIPE) as server:
        while not is_locked(lock):
            check(server.poll() is None, "the server has ended")
            time.sleep(0.05)
        run("ckpt-save", "--detach", state(), f"s@{step}")
        run("ckpt-wait", "--timeout=60", f"s@{step}")
        server.terminate()
        return server.communicate(timeout=60)[0].decode().splitlines()


def test_serve():
    run("ckpt-save", "--detach", state(), "s@1")
    run("ckpt-wait", "s")
    found = [json.loads(line) for line in served("json", 2)]
    check([r["type"] for r in found] == ["header", "served", "summary"], f"{found}")
    check(list(found[1])[1:] == documented()["served"], f"served has {list(found[1])}")
    lines = served("tsv", 3)
    check([len(line.split("\t")) for line in lines] == [len(documented()["served"])], f"columns: {lines}")


def test_sync():
    run("ckpt-save", state(), "s@1")
    found = records("ckpt-sync", "s", "r")
    check([r["type"] for r in found] == ["item", "destination"], f"{found}")
    for record in found:
        check(list(record)[1:] == documented()[record["type"]], f"{record['type']} has {list(record)}")
    lines = run("ckpt-sync", "--format=tsv", "s", "t").stdout.decode().splitlines()
    check([len(line.split("\t")) for line in lines] == [len(documented()["item"])], f"columns: {lines}")


def test_ls_of_a_store():
    run("ckpt-save", state(), "s@1")
    agree("ckpt-ls", "s")


def test_ls_of_a_checkpoint():
    run("ckpt-save", state(), "s@1")
    agree("ckpt-ls", "s@1")


def test_ls_tensors_with_and_without_stats():
    run("ckpt-save", state(), "s@1")
    agree("ckpt-ls", "--tensors", "s")
    agree("ckpt-ls", "--tensors", "--stats", "s")


def test_ls_sums():
    run("ckpt-save", state(), "s@1")
    agree("ckpt-ls", "--sums", "s")


def test_ls_get():
    run("ckpt-save", state(), "s@1")
    agree("ckpt-ls", "--get=id", "s", tsv=False)


def test_ls_pending_of_a_set_and_of_what_failed():
    run("ckpt-save", "--rank=0", "--world-size=2", state(), "s@1")
    agree("ckpt-ls", "--pending", "s")
    os.truncate("state.pt", 20000)
    run("ckpt-save", "--detach", "state.pt", "s@2")
    run("ckpt-wait", "s@2", expect=(2,))
    found = {r["state"] for r in records("ckpt-ls", "--pending", "s")}
    check(found == {"written", "failed"}, f"not both states: {found}")
    agree("ckpt-ls", "--pending", "s")


def test_restore_of_files_and_of_tensors():
    run("ckpt-save", state(), "s@1")
    agree("ckpt-restore", "s", "out")
    agree("ckpt-restore", "-f", "-o", "t.tar", "--as=tar", "s")


def test_diff_of_tensors_modules_values_and_files():
    for side in ("a", "b"):
        os.mkdir(side)
        with open(f"{side}/latest", "w", encoding="utf-8") as file:
            file.write(side)
    shutil.copy(f"{FIXTURES}/train_step5.pt", "a/state.pt")
    shutil.copy(f"{FIXTURES}/train_step6.pt", "b/state.pt")
    found = {r["what"] for r in records("ckpt-diff", "a", "b", expect=(1,))}
    check(found == {"tensor", "value", "file"}, f"not all kinds: {found}")
    agree("ckpt-diff", "a", "b", expect=(1,))
    agree("ckpt-diff", "-s", "a", "b", expect=(1,))


def test_verify_of_an_intact_store_names_sets_in_json_and_has_no_line_of_tsv():
    run("ckpt-save", state(), "s@1")
    run("ckpt-save", "--rank=0", "--world-size=2", "state.pt", "s@2")
    agree("ckpt-verify", "s", tsv=False)
    run("ckpt-verify", "--format=tsv", "s", stdout=False, stderr=False)


def test_verify_of_a_damaged_store():
    run("ckpt-save", state(), "s@1")
    os.truncate(next(os.path.join(base, f) for base, _, files in os.walk("s") for f in files if f.startswith("shard-")), 5000)
    agree("ckpt-verify", "s", expect=(1,), tsv=False)
    for line in run("ckpt-verify", "--format=tsv", "s", expect=(1,)).stdout.decode().splitlines():
        check(len(line.split("\t")) == len(documented()["damage"]), f"columns: {line!r}")


def test_prune_with_and_without_doing_it():
    for step in (1, 2, 3):
        run("ckpt-save", state(), f"s@{step}")
    agree("ckpt-prune", "-n", "--keep-last=2", "s")
    agree("ckpt-prune", "--keep-last=2", "s")


def test_compress_with_and_without_doing_it():
    for step in (1, 2):
        run("ckpt-save", "--encode=raw", state(), f"s@{step}")
    agree("ckpt-compress", "-n", "s")
    agree("ckpt-compress", "s")


def test_compress_with_values_lost():
    for step in (1, 2):
        run("ckpt-save", state(), f"s@{step}")
    found = {r["type"] for r in records("ckpt-compress", "-n", "--drop=*.weight", "s@1")}
    check(found == {"loss", "compressed"}, f"not both kinds: {found}")
    agree("ckpt-compress", "-n", "--drop=*.weight", "s@1", tsv=False)
    for line in run("ckpt-compress", "--format=tsv", "--drop=*.weight", "s@1").stdout.decode().splitlines():
        check(len(line.split("\t")) == len(documented()["loss"]), f"columns: {line!r}")



def test_bench():
    keys = documented()
    options = ("--size=1M", "--steps=4", "--saves=2", "--step-time=0.001", "--mtbf=1h", "--path=.", "b")
    found = records("ckpt-bench", *options)
    wanted = {"machine", "device", "way", "read", "interval", "advice"}
    check({r["type"] for r in found} == wanted, f"{[r['type'] for r in found]}")
    for record in found:
        kind = record.pop("type")
        check(list(record) == keys[kind], f"{kind} has {list(record)}, documented are {keys[kind]}")
    lines = run("ckpt-bench", "--format=tsv", *options).stdout.decode().splitlines()
    check([len(line.split("\t")) for line in lines] == [len(keys["way"])] * 3, f"columns: {lines}")


main()
