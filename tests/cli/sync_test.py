# SPDX-License-Identifier: Apache-2.0
# ckpt-sync as it's used: what arrives and what doesn't, what it refuses, what it says, and how it goes on where it was
# cut off.
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
import tap
from sync_support import *  # noqa: F403
from tap import Skip, check, run


def test_a_store_is_copied_byte_for_byte_in_silence():
    drift_store("a", 4)
    sync("a", "b", stdout=False)
    check(steps("b") == [1, 2, 3, 4], steps("b"))
    alike("a", "b")
    check(ids("a") == ids("b"), "ids differ")
    sound("a", "b")
    nothing_left("a")
    nothing_left("b")


def test_stores_that_are_alike_are_left_as_they_are():
    drift_store("a", 3)
    sync("a", "b")
    before = {name: os.stat(f"b/{name}").st_mtime_ns for name in os.listdir("b")}
    check(records("a", "b") == [], "something was done")
    check(before == {name: os.stat(f"b/{name}").st_mtime_ns for name in os.listdir("b")}, "the store was touched")


def test_only_what_is_new_moves():
    drift_store("a", 2)
    sync("a", "b")
    drift_store("a", 1, first=3)
    items = records("a", "b")
    check([(i["action"], i["step"]) for i in items] == [("sent", 3)], items)
    alike("a", "b")


def test_a_checkpoint_of_several_ranks_is_copied():
    for rank in range(3):
        make_input.drift(f"r{rank}", 1, rank, 4000)
        run("ckpt-save", f"--rank={rank}", "--world-size=3", f"r{rank}", "a@1", stderr=False)
    sync("a", "b")
    alike("a", "b")
    check(len(os.listdir("b/0000000001")) == 4, os.listdir("b/0000000001"))
    sound("b")


def test_a_source_that_is_no_store_is_trouble_and_removes_nothing():
    drift_store("b", 2)
    os.mkdir("empty")
    for source in ("nothing", "empty"):
        done = sync("--delete", source, "b", expect=(2,), stdout=False, stderr=True)
        check(b"is not a store" in done.stderr, done.stderr)
    done = sync(*shell(), "--delete", "host:nothing", "b", expect=(2,), stdout=False, stderr=True)
    check(b"is not a store" in done.stderr, done.stderr)
    sync("nothing", "-", expect=(2,), stderr=True)
    check(steps("b") == [1, 2], "something was removed")


def test_a_store_without_checkpoints_copies_nothing():
    drift_store("a", 1)
    shutil.rmtree("a/0000000001")
    sync("a", "b", stdout=False)


def test_a_destination_that_holds_other_things_is_refused():
    drift_store("a", 1)
    os.mkdir("b")
    make_input.put("b/precious", b"x")
    sync("a", "b", expect=(2,), stdout=False, stderr=True)
    check(os.listdir("b") == ["precious"], os.listdir("b"))


# --- One step of it ---

def one_step(selector, step):
    noise_store("a", (1, 2, 3))
    sync("a@" + selector.replace("ID", ids("a")[step][:12]), "b")
    check(steps("b") == [step], steps("b"))
    sound("b")


def test_a_step_that_is_named_is_copied_alone():
    one_step("2", 2)


def test_the_latest_is_copied_alone():
    one_step("latest", 3)


def test_the_one_before_the_latest_is_copied_alone():
    one_step("latest~1", 2)


def test_an_id_that_is_named_is_copied_alone():
    one_step("id:ID", 2)


def test_a_step_that_is_not_there_is_trouble():
    noise_store("a", (1,))
    done = sync("a@7", "b", expect=(2,), stdout=False, stderr=True)
    check(b"no such checkpoint" in done.stderr, done.stderr)
    check(not os.path.exists("b"), "the destination was made")


def test_a_delta_whose_base_is_missing_there_arrives_whole():
    drift_store("a", 3)
    check(len(depends_on("a", 3)) > 0, "step 3 is no delta")
    sync("a@3", "b")
    sync(*shell(), "a@3", "host:c")
    for store in ("b", "c"):
        check(3 in steps(store) and ids(store)[3] == ids("a")[3], steps(store))
        sound(store)
    sync("a", "b")
    check(ids("b") == ids("a"), "ids differ")
    sound("b")


def test_a_base_that_is_there_does_not_move():
    drift_store("a", 2)
    sync("a@1", "b")
    items = records("a@2", "b")
    check([i["step"] for i in items] == [2], items)
    sound("b")


# --- Retired, pins and the rest ---

def test_what_is_retired_at_the_source_gets_retired_there():
    noise_store("a", (1, 2, 3))
    sync("a", "b")
    make_input.put("x", b"another")
    save("a@2", "x", "--attempt=1", "--resumed-from=1")
    items = records("a", "b")
    check(sorted((i["action"], i["step"]) for i in items) == [("retired", 2), ("retired", 3), ("sent", 2)], items)
    check(steps("b") == [1, 2] and len(retired("b")) == 2, (steps("b"), retired("b")))
    check(ids("a") == ids("b"), "ids differ")
    sound("b")


def test_what_is_retired_is_copied_as_retired():
    noise_store("a", (1, 2))
    make_input.put("x", b"another")
    save("a@2", "x", "--attempt=1", "--resumed-from=1")
    sync("a", "b")
    check(retired("b") == retired("a") and len(retired("b")) == 1, retired("b"))
    alike("a", "b")
    check(records("a", "b") == [], "a second time there's still something to do")
    sound("b")


def test_pins_verify_records_trash_and_spools_stay_where_they_are():
    noise_store("a", (1, 2))
    run("ckpt-prune", "--pin=1", "a", stderr=False)
    run("ckpt-verify", "a", stderr=False)
    os.makedirs("a/.spool/elsewhere/staged")
    os.makedirs("a/.trash", exist_ok=True)
    make_input.drift("r", 1, 0, 2000)
    run("ckpt-save", "--rank=0", "--world-size=2", "r", "a@3", stderr=False)
    sync("a", "b")
    check(steps("b") == [1, 2], steps("b"))
    for name in (".spool", ".verify", ".trash"):
        check(not os.path.exists(f"b/{name}"), f"{name} travelled")
    check(not os.listdir("b/.pins"), os.listdir("b/.pins"))
    check(os.listdir("b/.pending") in ([], ["tmp"]), os.listdir("b/.pending"))


# --- The same step with another content ---

def conflict():
    make_input.put("x", b"one")
    save("a@5", "x")
    noise_store("a", (6,))
    make_input.put("x", b"two")
    save("b@5", "x")


def test_a_step_with_another_content_is_refused_naming_both_and_the_rest_is_done():
    conflict()
    done = sync("a", "b", expect=(2,), stdout=False, stderr=True)
    for store in ("a", "b"):
        check(ids(store)[5].encode() in done.stderr, f"{store}'s id isn't named: {done.stderr}")
    before = ids("b")[5]
    check(steps("b") == [5, 6] and ids("b")[5] == before != ids("a")[5], "what was there changed")


def test_a_step_with_another_content_over_a_shell_is_refused():
    conflict()
    done = sync(*shell(), "a", "host:b", expect=(2,), stdout=False, stderr=True)
    check(ids("a")[5].encode() in done.stderr and ids("b")[5].encode() in done.stderr, done.stderr)


def test_what_depends_on_a_refused_step_is_not_sent():
    drift_store("a", 3)
    make_input.put("x", b"two")
    save("b@1", "x")
    items = records("a", "b", expect=(2,), stderr=True)
    check([i["action"] for i in items] == ["failed"] * 3, items)
    check(steps("b") == [1], steps("b"))


def test_replace_lets_another_content_take_the_place():
    conflict()
    sync("--replace", "a", "b", stdout=False)
    check(ids("a") == ids("b"), "ids differ")
    nothing_left("b")
    sound("b")


def test_replace_over_a_shell_lets_another_content_take_the_place():
    conflict()
    sync("--replace", *shell(), "a", "host:b", stdout=False)
    check(ids("a") == ids("b"), "ids differ")
    sound("b")


# --- Removal ---

def test_delete_removes_what_is_not_at_the_source():
    noise_store("a", (1, 2, 3, 4))
    sync("a", "b")
    shutil.rmtree("a/0000000002")
    out = sync("--delete", "-i", "a", "b").stdout.decode()
    check(out == "removed 2  b\n", out)
    check(steps("b") == [1, 3, 4], steps("b"))
    sound("b")


def test_without_delete_nothing_is_removed():
    noise_store("a", (1, 2))
    sync("a", "b")
    shutil.rmtree("a/0000000001")
    sync("a", "b", stdout=False)
    check(steps("b") == [1, 2], steps("b"))


def test_delete_keeps_what_is_pinned_there_and_says_so():
    noise_store("a", (1, 2, 3))
    sync("a", "b")
    run("ckpt-prune", "--pin=2", "b", stderr=False)
    for step in (1, 2):
        shutil.rmtree(f"a/{step:010}")
    done = sync("--delete", "a", "b", stdout=False, stderr=True)
    check(b"b@2" in done.stderr and b"pinned" in done.stderr, done.stderr)
    check(steps("b") == [2, 3], steps("b"))


def test_delete_keeps_the_newest_good_one():
    noise_store("a", (1,))
    sync("a", "b")
    noise_store("b", (9,))
    items = records("--delete", "a", "b", stderr=True)
    check([(i["action"], i["step"]) for i in items] == [("kept", 9)] and "newest_good" in items[0]["reason"], items)
    check(steps("b") == [1, 9], steps("b"))


def test_delete_of_a_base_leaves_its_dependents_readable():
    drift_store("a", 4)
    sync("a", "b")
    run("ckpt-prune", "--keep-last=2", "a", stdout=False)
    sync("--delete", "a", "b", stdout=False)
    check(steps("b") == [3, 4], steps("b"))
    check(ids("a") == ids("b"), "ids differ")
    sound("b")


def test_delete_does_not_remove_what_is_damaged_at_the_source():
    noise_store("a", (1, 2))
    sync("a", "b")
    with open("a/0000000001/manifest.json", "r+b") as f:
        f.seek(20)
        f.write(b"###")
    done = sync("--delete", "a", "b", expect=(2,), stdout=False, stderr=True)
    check(b"step 1 can't be read" in done.stderr, done.stderr)
    check(steps("b") == [1, 2], "the only sound copy is gone")
    shutil.rmtree("b")
    sync("a", "b", expect=(2,), stdout=False, stderr=True)
    check(steps("b") == [2], steps("b"))


def test_delete_removes_nothing_if_something_could_not_be_sent():
    conflict()
    noise_store("b", (1,))
    done = sync("--delete", "a", "b", expect=(2,), stdout=False, stderr=True)
    check(b"nothing is removed" in done.stderr, done.stderr)
    check(1 in steps("b"), steps("b"))


def test_delete_over_a_shell_removes():
    noise_store("a", (1, 2, 3))
    sync("a", "b")
    shutil.rmtree("a/0000000001")
    items = records("--delete", *shell(), "a", "host:b")
    check([(i["action"], i["step"]) for i in items] == [("removed", 1)], items)
    check(steps("b") == [2, 3], steps("b"))


def test_delete_of_a_single_step_is_a_usage_error():
    noise_store("a", (1,))
    sync("--delete", "a@1", "b", expect=(2,), stdout=False, stderr=True)


# --- What it says ---

def test_a_dry_run_changes_nothing():
    noise_store("a", (1, 2))
    noise_store("b", (1, 3, 4))
    before = sorted(committed_content("b"))
    items = records("-n", "--delete", "a", "b")
    check(("sent", 2) in [(i["action"], i["step"]) for i in items], items)
    check(("removed", 3) in [(i["action"], i["step"]) for i in items], items)
    check(sorted(committed_content("b")) == before and not underway("b"), "the store was changed")
    out = sync("-n", "a", "new").stdout.decode()
    check(out.count("sent ") == 2, out)
    check(not os.path.exists("new"), "the destination was made")


def test_itemize_prints_a_line_for_each_checkpoint():
    noise_store("a", (1, 2))
    out = sync("-i", "a", "b").stdout.decode()
    have = ids("a")
    check(out == f"sent 1 {have[1]} b\nsent 2 {have[2]} b\n", out)


def test_stats_count_checkpoints_and_bytes():
    noise_store("a", (1, 2))
    out = sync("--stats", "a", "b").stdout.decode()
    check(out.startswith("b: 2 sent, 0 removed, ") and out.endswith(" moved\n"), out)


def test_records_tell_what_happened():
    noise_store("a", (1,))
    lines = [json.loads(line) for line in sync("--json", "a", "b").stdout.decode().splitlines()]
    check([r["type"] for r in lines] == ["header", "item", "destination", "summary"], lines)
    size = os.path.getsize("a/0000000001/shard-00000-of-00001.ckpt")
    check(lines[1]["stored_bytes"] == lines[1]["moved_bytes"] == size, lines[1])
    check(lines[2]["alike"] and lines[2]["newest_step"] == 1 and lines[2]["failure"] is None, lines[2])
    check(lines[3]["alike"] == 1 and lines[3]["exit_status"] == 0, lines[3])


def test_tsv_has_a_line_for_each_record():
    noise_store("a", (1, 2))
    lines = sync("--format=tsv", "a", "b").stdout.decode().splitlines()
    check([line.split("\t")[:3] for line in lines] == [["b", "sent", "1"], ["b", "sent", "2"]], lines)


# --- Several destinations ---

def test_several_destinations_are_brought_alike_at_once():
    drift_store("a", 3)
    sync(*shell(), "a", "b", "host:c", "d", stdout=False)
    for store in ("b", "c", "d"):
        alike("a", store)
    sound("b", "c", "d")


def test_a_dead_destination_is_named_and_does_not_hold_up_the_rest():
    noise_store("a", (1, 2))
    shell_that_fails = script("dead", "#!/bin/sh\nexit 255\n")
    done = sync("-e", shell_that_fails, "a", "gone:b", "c", expect=(75,), stdout=False, stderr=True)
    check(b"'gone:b'" in done.stderr, done.stderr)
    check(steps("c") == [1, 2], steps("c"))


def test_enough_copies_are_a_success():
    noise_store("a", (1,))
    dead = ["-e", script("dead", "#!/bin/sh\nexit 255\n")]
    done = sync(*dead, "--min-copies=1", "a", "gone:b", "c", stdout=False, stderr=True)
    check(b"'gone:b'" in done.stderr, done.stderr)
    sync(*dead, "--min-copies=2", "a", "gone:b", "c", expect=(75,), stdout=False, stderr=True)
    sync(*dead, "--min-copies=3", "a", "gone:b", "c", expect=(2,), stdout=False, stderr=True)


def test_a_shell_that_is_not_there_is_trouble():
    noise_store("a", (1,))
    done = sync("-e", "./no-such-shell", "a", "host:b", expect=(2,), stdout=False, stderr=True)
    check(b"no-such-shell" in done.stderr, done.stderr)


# --- Over a remote shell ---

def test_a_store_is_sent_over_a_remote_shell():
    drift_store("a", 3)
    sync(*shell(), "a", "host:b", stdout=False)
    alike("a", "b")
    sound("b")
    nothing_left("b")
    check(records(*shell(), "a", "host:b") == [], "a second time there's still something to do")


def test_a_store_is_fetched_over_a_remote_shell():
    drift_store("a", 3)
    noise_store("a", (8,), size=5 << 20)
    sync(*shell(), "host:a", "b", stdout=False)
    alike("a", "b")
    sound("b")


def test_a_store_goes_from_one_host_to_another():
    drift_store("a", 2)
    sync(*shell(), "one:a", "two:b", "three:c", stdout=False)
    alike("a", "b")
    alike("a", "c")


def test_the_remote_shell_gets_the_host_and_one_command():
    noise_store("a", (1,))
    script("noting", '#!/bin/sh\nprintf "%s\\n" "$#" "$1" "$2" >>log\nshift\nexec sh -c "$*"\n')
    sync("-e", "./noting -p 22", "a", "host:b", expect=None, stderr=None)
    sync("-e", "./noting", "a", "me@host:b")
    log = open("log").read().splitlines()
    check(log[:3] == ["4", "-p", "22"], log)
    check(log[3:] == ["2", "me@host", "ckpt-sync --server -- 'b'"], log)


def test_the_remote_shell_may_come_from_the_environment():
    noise_store("a", (1,))
    sync("a", "host:b", env={"CKPT_RSH": shell()[1]})
    alike("a", "b")


def test_store_names_with_spaces_quotes_and_newlines_arrive():
    noise_store("a", (1,))
    for name in ("with space", "it's", 'a"b', "two\nlines", "$(touch evil)", "`touch evil`", "a;touch evil", "\\", "-n", "*"):
        sync(*shell(), "a", f"host:{name}", stdout=False)
        check(os.path.isdir(os.path.join(".", name)), f"{name!r} isn't there: {os.listdir('.')}")
        sync(*shell(), f"host:{name}", f"./back", stdout=False)
        alike("a", "back")
        shutil.rmtree("back")
    check(not os.path.exists("evil"), "a name was run as a command")


def test_a_host_that_looks_like_an_option_is_refused():
    noise_store("a", (1,))
    for name in ("-oProxyCommand=touch evil:b", "@:b", ":b", "host:"):
        sync(*shell(), "--", "a", name, expect=(2,), stdout=False, stderr=True)
    check(not os.path.exists("evil"), "an option was taken for one")


def test_a_local_name_with_a_colon_is_written_with_a_slash():
    noise_store("./a:b", (1,))
    sync("./a:b", "./c:d", stdout=False)
    alike("a:b", "c:d")


# --- Streams ---

def stream(source, *options, **more):
    return sync(*options, source, "-", **more).stdout


def feed(data, destination, *options, expect=(0,), stderr=False):
    done = subprocess.run(["ckpt-sync", *options, "-", destination], input=data, capture_output=True, timeout=120)
    check(done.returncode in expect, lambda: f"{done.returncode}: {done.stderr!r}")
    check(bool(done.stderr) == stderr, done.stderr)
    return done


def test_a_stream_brings_all():
    drift_store("a", 3)
    feed(stream("a"), "b")
    alike("a", "b")
    sound("b")
    nothing_left("b")
    feed(stream("a"), "b")


def test_a_stream_of_one_step_brings_it_with_its_bases():
    drift_store("a", 3)
    feed(stream("a@3"), "b")
    check(3 in steps("b"), steps("b"))
    sound("b")


def test_a_stream_leaves_out_what_the_other_side_has():
    drift_store("a", 2)
    sync("a", "b")
    drift_store("a", 1, first=3)
    have = run("ckpt-ls", "--format=tsv", "b").stdout
    make_input.put("have", have)
    whole, part = stream("a"), stream("a", "--have=have")
    check(len(part) < len(whole) / 2, (len(part), len(whole)))
    feed(part, "b")
    alike("a", "b")


def test_what_is_retired_travels_in_a_stream():
    noise_store("a", (1, 2))
    make_input.put("x", b"another")
    save("a@2", "x", "--attempt=1", "--resumed-from=1")
    feed(stream("a"), "b")
    alike("a", "b")


def test_a_stream_that_is_cut_anywhere_brings_whole_checkpoints_only_and_goes_on():
    noise_store("a", (1, 2), size=1500000)
    data = stream("a")
    for at in sorted({0, 1, 15, 16, 17, 40, 100, *range(1000, len(data), len(data) // 12), len(data) - 1}):
        shutil.rmtree("b", ignore_errors=True)
        feed(data[:at], "b", expect=(2, 75), stderr=True)
        if os.path.exists("b"):
            sound("b")
        arrived = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk("b") for f in fs if ".ckpt" in f)
        check(arrived >= at - (2 << 20), f"cut at {at}: only {arrived} bytes are kept")
        feed(data, "b")
        alike("a", "b")
        nothing_left("b")


def test_a_stream_with_a_flipped_bit_anywhere_brings_nothing_wrong():
    noise_store("a", (1,), size=60000)
    data = stream("a")
    for at in range(0, len(data), len(data) // 40):
        shutil.rmtree("b", ignore_errors=True)
        broken = bytearray(data)
        broken[at] ^= 4
        feed(bytes(broken), "b", expect=(2, 75), stderr=True)
        if os.path.exists("b"):
            sound("b")
        feed(data, "b")
        alike("a", "b")


def test_what_is_no_stream_is_refused():
    for data in (b"", b"hello", b"\0" * 1000, os.urandom(5000), hello() + b"x", hello(name="rsync"), hello(2), hello(0)):
        feed(data, "b", expect=(2, 75), stderr=True)
        check(not steps("b"), steps("b"))


def test_a_stream_does_not_replace_unless_it_is_told_to():
    conflict()
    data = stream("a")
    done = feed(data, "b", expect=(2,), stderr=True)
    check(ids("a")[5].encode() in done.stderr, done.stderr)
    feed(data, "b", "--replace")
    check(ids("a") == ids("b"), "ids differ")


def test_wrong_ends_of_a_stream_are_usage_errors():
    noise_store("a", (1,))
    for arguments in (("-", "-"), ("a", "-", "b"), ("--gather", "a", "-"), ("--delete", "a", "-"), ("--have=x", "a", "b"), ("a",), ()):
        sync(*arguments, expect=(2,), stdout=False, stderr=True)


def test_a_list_of_what_is_there_that_is_no_list_is_refused():
    noise_store("a", (1,))
    for data in (b"hello\n", b"1\tdurable\n", b"x\tdurable\tabc\n", b"1\tdurable\tabc\n"):
        make_input.put("have", data)
        sync("--have=have", "a", "-", expect=(2,), stderr=True)


# --- Cut off, and again ---

def test_a_transfer_that_is_cut_goes_on_where_it_was():
    noise_store("a", (1,), size=6 << 20)
    size = os.path.getsize("a/0000000001/shard-00000-of-00001.ckpt")
    sync(*filtering_shell("cut", 4 << 20), "a", "host:b", expect=(75,), stdout=False, stderr=None)
    check(not steps("b"), "half of it is visible")
    part = sum(os.path.getsize(f"b/.pending/{d}/{f}") for d in underway("b") for f in os.listdir(f"b/.pending/{d}") if ".ckpt" in f)
    check(part > 2 << 20, f"only {part} bytes are kept")
    check(moved(*shell(), "a", "host:b") == size - part, "what arrived was sent again")
    alike("a", "b")
    nothing_left("b")


def test_a_fetch_that_is_cut_goes_on_where_it_was():
    noise_store("a", (1,), size=6 << 20)
    sync(*filtering_shell("cut", 4 << 20, "out"), "host:a", "b", expect=(2, 75), stdout=False, stderr=None)
    check(not steps("b"), "half of it is visible")
    got = moved(*shell(), "host:a", "b")
    check(0 < got < 5 << 20, f"{got} bytes moved")
    alike("a", "b")


def test_a_transfer_that_is_cut_at_any_byte_leaves_nothing_half():
    drift_store("a", 2, size=2000)
    for at in (0, 1, 20, 60, 200, 500, 900, 2000, 5000, 20000):
        shutil.rmtree("b", ignore_errors=True)
        sync(*filtering_shell("cut", at), "a", "host:b", expect=(0, 2, 75), stderr=None)
        if os.path.exists("b"):
            sound("b")
        sync(*shell(), "a", "host:b")
        alike("a", "b")
        nothing_left("b")


def test_a_flipped_bit_on_the_way_is_found_and_the_next_sync_mends_it():
    drift_store("a", 2, size=20000)
    for at in (3, 100, 700, 5000, 50000, 150000):
        shutil.rmtree("b", ignore_errors=True)
        sync("--timeout=2", *filtering_shell("flip", at), "a", "host:b", expect=(2, 75), stdout=False, stderr=True)
        if os.path.exists("b"):
            sound("b")
        sync(*shell(), "a", "host:b")
        alike("a", "b")
        nothing_left("b")


def test_a_part_that_was_altered_on_the_disk_is_brought_anew_in_one_sync():
    noise_store("a", (1,), size=3 << 20)
    drift_store("a", 2, size=20000, first=2)
    size = os.path.getsize("a/0000000001/shard-00000-of-00001.ckpt")
    for step in (1, 3):
        # As after a cut, with zeros in it that a power cut left, at the end of each container or in its middle.
        for place in (0.5, 0.999):
            shutil.rmtree("b", ignore_errors=True)
            sync(f"a@{2}", "b")
            sync("a", "c")
            manifest = json.load(open(f"a/{step:010}/manifest.json"))
            shard = manifest["shards"][0]
            directory = f"b/.pending/sync-{step:010}-{manifest['id']}"
            os.makedirs(directory)
            data = bytearray(open(f"a/{step:010}/{shard['file']}", "rb").read())
            at = int(len(data) * place)
            data[at:at + 100] = bytes(len(data[at:at + 100]))
            make_input.put(f"{directory}/{shard['file']}.{shard['digest'][:16]}.part", data)
            make_input.put(f"{directory}/manifest.part", b"")
            items = {i["step"]: i for i in records("a", "b")}
            check(items[step]["moved_bytes"] <= shard["size"], items)
            alike("a", "b")
            nothing_left("b")
    check(size > 3 << 20, size)


def test_a_commit_that_was_cut_short_is_finished_without_sending_again():
    drift_store("a", 2, size=20000)
    for state in ("named", "sealed"):
        shutil.rmtree("b", ignore_errors=True)
        sync("a@1", "b")
        identity = ids("a")[2]
        directory = f"b/.pending/sync-0000000002-{identity}"
        shutil.copytree("a/0000000002", directory)
        os.rename(f"{directory}/manifest.json", f"{directory}/manifest.part")
        if state == "sealed":
            os.rename(f"{directory}/manifest.part", f"{directory}/manifest.json")
        check(moved("a", "b") == 0, f"{state}: what was there was sent again")
        alike("a", "b")
        nothing_left("b")


def test_a_part_that_may_not_be_written_to_any_more_is_finished_also_without_privileges():
    noise_store("a", (1,))
    manifest = manifest_of("a", 1)
    shard_of = manifest["shards"][0]
    directory = f"b/.pending/sync-{1:010}-{manifest['id']}"
    sync("a", "b")
    shutil.rmtree("b/0000000001")
    os.mkdir(directory)
    part = f"{directory}/{shard_of['file']}.{shard_of['digest'][:16]}.part"
    shutil.copy(f"a/0000000001/{shard_of['file']}", part)
    os.chmod(part, 0o444)
    make_input.put(f"{directory}/manifest.part", b"")
    without = []
    if os.geteuid() == 0:
        without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        if subprocess.run([*without, "true"], capture_output=True).returncode != 0:
            raise Skip("privileges can't be given up")
    out = run(*without, "ckpt-sync", "--json", "a", "b", stderr=False).stdout.decode().splitlines()
    items = [r for r in map(json.loads, out) if r["type"] == "item"]
    check([i["moved_bytes"] for i in items] == [0], items)
    alike("a", "b")


def test_a_part_whose_lock_is_gone_is_gone_on_with():
    noise_store("a", (1,), size=3 << 20)
    sync(*filtering_shell("cut", 2 << 20), "a", "host:b", expect=(75,), stdout=False, stderr=None)
    os.unlink(f"b/.pending/{underway('b')[0]}/manifest.part")
    check(moved("a", "b") < 3 << 20, "what arrived was sent again")
    alike("a", "b")
    nothing_left("b")


def test_what_a_container_was_before_it_was_encoded_anew_is_not_mixed_with_it():
    drift_store("a", 2, size=20000)
    sync("a@1", "b")
    sync(*filtering_shell("cut", 30000), "a", "host:b", expect=(75,), stdout=False, stderr=None)
    check(underway("b"), "nothing arrived")
    run("ckpt-compress", "--base=none", "a", stdout=False, stderr=None)
    sync("a", "b")
    check(ids("a") == ids("b") and set(os.listdir("a/0000000002")) == set(os.listdir("b/0000000002")), "another container")
    sound("b")
    nothing_left("b")


def test_a_part_of_one_who_gave_up_long_ago_is_removed():
    noise_store("a", (1, 2))
    sync("a@1", "b")
    old = "b/.pending/sync-0000000007-" + "0" * 32
    os.mkdir(old)
    make_input.put(old + "/shard-00000-of-00001.ckpt.0.part", b"x")
    os.utime(old, (0, 0))
    sync("a", "b")
    check(not os.path.exists(old), "it's still there")


def test_a_part_of_a_checkpoint_that_came_otherwise_is_removed():
    noise_store("a", (1, 2), size=3 << 20)
    sync(*filtering_shell("cut", 2 << 20), "a@1", "host:b", expect=(75,), stdout=False, stderr=None)
    check(underway("b"), "nothing arrived")
    shutil.copytree("a/0000000001", "b/0000000001")
    sync("a", "b")
    nothing_left("b")


# --- Clocks that differ ---

FORTNIGHT = 14 * 24 * 3600


def with_clock(seconds):
    """The environment of a host whose clock is off by that."""
    preloaded = [os.environ["CKPT_SKEWED_CLOCK"]] + os.environ.get("LD_PRELOAD", "").split()
    return {"LD_PRELOAD": " ".join(preloaded), "CKPT_CLOCK_SKEW": str(seconds)}


def clock_shell(seconds):
    settings = " ".join(f"'{name}={value}'" for name, value in with_clock(seconds).items())
    return ["-e", script("late", f"#!/bin/sh\nshift\nexec env {settings} sh -c \"$*\"\n")]


def created(store, step):
    return manifest_of(store, step)["created"]


def test_the_clock_of_a_test_is_off():
    drift_store("a", 1)
    make_input.drift("state.st", 2, count=8000)
    run("ckpt-save", "state.st", "a@2", stderr=False, env=with_clock(-FORTNIGHT))
    check(created("a", 2) < created("a", 1), "its clock is right")


def test_a_part_is_gone_on_with_by_a_host_whose_clock_is_a_fortnight_off():
    for skew in (-FORTNIGHT, FORTNIGHT):
        shutil.rmtree("b", ignore_errors=True)
        noise_store("a", (1,), size=6 << 20)
        size = os.path.getsize("a/0000000001/shard-00000-of-00001.ckpt")
        sync(*filtering_shell("cut", 4 << 20), "a", "host:b", expect=(75,), stdout=False, stderr=None)
        check(moved(*clock_shell(skew), "a", "host:b") < size - (2 << 20), "what arrived was sent again")
        alike("a", "b")
        nothing_left("b")
        shutil.rmtree("a")


def test_hosts_whose_clocks_differ_agree_on_steps_and_on_what_is_newest():
    drift_store("a", 2)
    sync(*clock_shell(-FORTNIGHT), "a", "host:b")
    make_input.drift("state.st", 3, count=8000)
    run("ckpt-save", "state.st", "b@3", stderr=False, env=with_clock(-FORTNIGHT))
    sync(*clock_shell(-FORTNIGHT), "host:b", "a")
    check(steps("a") == [1, 2, 3] and created("a", 3) < created("a", 2), "no such clocks")
    check(depends_on("a", 3), "the base of what is saved next wasn't the newest step")
    check(run("ckpt-restore", "a@latest", "out", stderr=False).stdout.strip() == b"a@3", "another is the newest")
    check(records(*clock_shell(FORTNIGHT), "a", "host:b") == [], "something was done")
    sound("a", "b")


def test_delete_goes_by_what_is_at_the_source_and_not_by_clocks():
    drift_store("a", 3)
    sync("a", "b")
    run("ckpt-prune", "--keep-last=1", "a", stdout=None, stderr=None)
    sync(*clock_shell(FORTNIGHT), "--delete", "a", "host:b")
    check(steps("b") == [3], steps("b"))
    sound("b")


# --- Sets ---

def shard(store, rank, step=1, world=2, seed=None, *options):
    make_input.drift("r", seed or step, rank, 3000)
    os.rename("r", f"rank{rank}")
    run("ckpt-save", *options, f"--rank={rank}", f"--world-size={world}", f"rank{rank}", f"{store}@{step}", stderr=False)


def test_shards_of_several_stores_are_gathered_into_one_checkpoint():
    for rank in range(3):
        shard(f"node{rank}", rank, world=3)
        check(steps(f"node{rank}") == [], "complete too early")
    sync("--gather", "node0", "node1", "all", stdout=False)
    check(steps("all") == [], "complete without rank 2")
    sync("--gather", *shell(), "host:node2", "all", stdout=False)
    check(steps("all") == [1], "not complete")
    for rank in range(3):
        shard("direct", rank, world=3)
    check(ids("all") == ids("direct"), "another id than a direct save's")
    sound("all")
    nothing_left("all")
    check(records("--gather", "node0", "node1", "node2", "all") == [], "a second time there's still something to do")


def test_sets_are_gathered_over_a_remote_shell():
    for rank in range(2):
        shard(f"node{rank}", rank)
    for rank in range(2):
        sync("--gather", *shell(), f"node{rank}", "host:all", stdout=False)
    check(steps("all") == [1], "not complete")
    sound("all")


def test_without_gather_a_set_stays_where_it_is():
    shard("a", 0)
    sync("a", "b", stdout=False)
    check(not os.path.exists("b/.pending/0000000001.2.0"), "the set travelled")


def test_gather_with_delete_is_a_usage_error():
    shard("a", 0)
    sync("--gather", "--delete", "a", "b", expect=(2,), stdout=False, stderr=True)


def test_a_gathered_shard_with_another_content_is_refused():
    shard("a", 0, seed=1)
    shard("b", 0, seed=2)
    shard("c", 1, seed=1)
    sync("--gather", "a", "all")
    sync("--gather", "b", "all", expect=(0, 2), stderr=None)
    sync("--gather", "c", "all")
    shard("direct", 0, seed=1)
    shard("direct", 1, seed=1)
    check(ids("all") == ids("direct"), "the later shard took the place of the first")


# --- Disks ---

def test_a_store_that_can_only_be_read_is_a_source():
    drift_store("a", 3)
    if os.geteuid() == 0:
        os.mkdir("ro")
        if subprocess.run(["mount", "--bind", "-o", "ro", "a", "ro"], capture_output=True).returncode != 0:
            raise Skip("nothing can be mounted")
        try:
            if subprocess.run(["mount", "-o", "remount,bind,ro", "ro"], capture_output=True).returncode != 0:
                raise Skip("nothing can be mounted")
            sync("ro", "b", stdout=False)
            sync(*shell(), "host:ro", "c", stdout=False)
        finally:
            subprocess.run(["umount", "-l", "ro"], check=True)
    else:
        run("chmod", "-R", "a-w", "a")
        sync("a", "b", stdout=False)
        sync(*shell(), "host:a", "c", stdout=False)
    alike("a", "b")
    alike("a", "c")


class SmallDisk:
    def __init__(self, path, size):
        self.path = os.path.abspath(path)
        os.mkdir(self.path)
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.path], capture_output=True).returncode != 0:
            raise Skip("nothing can be mounted")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path], check=True)


def test_a_destination_without_room_is_told_and_others_are_served():
    noise_store("a", (1, 2, 3), size=1 << 20)
    with SmallDisk("small", "2500K"):
        done = sync("a", "small/b", "c", expect=(2,), stdout=False, stderr=True)
        check(b"small/b" in done.stderr and b"room" in done.stderr, done.stderr)
        sound("small/b", "c")
        check(steps("c") == [1, 2, 3] and steps("small/b") == [1, 2], steps("small/b"))
        done = sync(*shell(), "a", "host:small/b", expect=(2,), stdout=False, stderr=True)
        check(b"room" in done.stderr, done.stderr)
        subprocess.run(["mount", "-o", "remount,size=8M", os.path.abspath("small")], check=True)
        sync("a", "small/b")
        alike("a", "small/b")


def test_a_destination_that_gets_full_meanwhile_is_told_and_goes_on_later():
    noise_store("a", (1,), size=4 << 20)
    with SmallDisk("small", "6M"):
        script("filling", '#!/bin/sh\nshift\n(until find small/b/.pending -name "*.part" -size +100k 2>/dev/null | grep -q .; do :; done; '
               'head -c 5M /dev/zero >small/filler 2>/dev/null) &\nexec sh -c "$*"\n')
        sync("-e", "./filling", "--bwlimit=4096", "a", "host:small/b", expect=(2,), stdout=False, stderr=True)
        sound("small/b")
        os.unlink("small/filler")
        check(moved(*shell(), "a", "host:small/b") < 4 << 20, "what arrived was sent again")
        alike("a", "small/b")


# --- Others at work ---

def at_once(*commands):
    running = [subprocess.Popen(c, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for c in commands]
    results = []
    for process, command in zip(running, commands):
        timer = threading.Timer(120, process.kill)
        timer.start()
        out, err = process.communicate()
        timer.cancel()
        results.append((process.returncode, err))
    return results


def test_two_syncs_to_one_store_at_once_make_one_copy():
    drift_store("a", 6, size=3000)
    for turn in range(10):
        shutil.rmtree("b", ignore_errors=True)
        for code, err in at_once(["ckpt-sync", "a", "b"], ["ckpt-sync", "-e", shell()[1], "a", "host:b"]):
            check(code == 0, f"turn {turn}: {code} {err}")
        alike("a", "b")
        nothing_left("b")


def test_syncs_in_both_directions_at_once_make_stores_alike():
    noise_store("a", (1, 3, 5), size=50000)
    noise_store("b", (2, 4, 6), size=50000)
    for code, err in at_once(["ckpt-sync", "a", "b"], ["ckpt-sync", "b", "a"]):
        check(code == 0, err)
    sync("a", "b")
    sync("b", "a")
    alike("a", "b")
    sound("a", "b")


def test_a_checkpoint_that_another_sync_is_writing_is_busy():
    noise_store("a", (1,))
    sync(*filtering_shell("cut", 100000), "a", "host:b", expect=(75,), stdout=False, stderr=None)
    directory = f"b/.pending/{underway('b')[0]}"
    with open(f"{directory}/manifest.part") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = sync("a", "b", expect=(75,), stdout=False, stderr=True)
        check(b"another sync" in done.stderr, done.stderr)
    sync("a", "b")
    alike("a", "b")


def test_syncs_beside_saves_prunes_and_compressions_copy_only_what_is_sound():
    drift_store("a", 3, size=6000)
    ended = []

    def work():
        for step in range(4, 16):
            make_input.drift("w.st", step, count=6000)
            for command in (["ckpt-save", "w.st", f"a@{step}"], ["ckpt-compress", "a"], ["ckpt-prune", "--keep-last=4", "a"]):
                done = subprocess.run(command, capture_output=True, timeout=120)
                if done.returncode not in (0, 75):
                    ended.append(f"{command}: {done.returncode} {done.stderr!r}")

    thread = threading.Thread(target=work)
    thread.start()
    rsh = shell()
    problems = []
    while thread.is_alive():
        for arguments in (["a", "b"], [*rsh, "host:a", "c"], [*rsh, "a", "host:d"]):
            done = sync(*arguments, expect=None, stderr=None)
            if done.returncode not in (0, 75):
                problems.append((arguments, done.returncode, done.stderr))
    thread.join()
    check(not ended, lambda: ended[0])
    check(not problems, lambda: f"{len(problems)} syncs failed: {problems[0]}")
    for store in ("b", "c", "d"):
        sync("a", store)
        have = ids(store)
        check(all(have[step] == identity for step, identity in ids("a").items()), "ids differ")
        sound(store)
        nothing_left(store)


def test_a_container_that_is_encoded_anew_during_the_transfer_is_copied_in_one_of_its_forms():
    drift_store("a", 2, size=40000)
    rsh = filtering_shell("wait", 200000, "out")
    process = subprocess.Popen(["ckpt-sync", *rsh, "host:a", "b"], stderr=subprocess.PIPE)
    until(lambda: os.path.exists("reached") or process.poll() is not None, "the transfer is under way")
    run("ckpt-compress", "--base=none", "a", expect=(0, 75), stderr=None)
    make_input.put("go", b"")
    _, err = process.communicate(timeout=60)
    check(process.returncode == 0, err)
    check(ids("a") == ids("b"), "ids differ")
    sound("a", "b")


def test_a_checkpoint_that_is_removed_during_the_transfer_is_no_failure():
    noise_store("a", (1, 2, 3), size=3 << 20)
    rsh = filtering_shell("wait", 1000000, "out")
    process = subprocess.Popen(["ckpt-sync", *rsh, "host:a", "b"], stderr=subprocess.PIPE)
    until(lambda: os.path.exists("reached") or process.poll() is not None, "the transfer is under way")
    run("ckpt-prune", "--keep-last=1", "a", expect=(0, 2), stderr=None)
    make_input.put("go", b"")
    _, err = process.communicate(timeout=60)
    check(process.returncode == 0, err)
    check(3 in steps("b"), steps("b"))
    sound("b")
    sync("a", "b")


# --- Rates and times ---

def test_a_rate_is_kept():
    noise_store("a", (1,), size=400000)
    begin = time.monotonic()
    sync("--bwlimit=400", *shell(), "a", "host:b")  # KiB a second
    seconds = time.monotonic() - begin
    check(0.5 < seconds < 20, f"{seconds:.2f} s for 390 KiB at 400 KiB/s")
    alike("a", "b")


def test_a_low_rate_is_no_silence():
    noise_store("a", (1,), size=30000)
    script("impatient", '#!/bin/sh\nshift\nexec sh -c "$(echo "$*" | sed "s/--server/--server --timeout=2/")"\n')
    begin = time.monotonic()
    sync("--bwlimit=8", "-e", "./impatient", "a", "host:b", stdout=False)
    check(time.monotonic() - begin > 2.5, "too quick to tell")
    alike("a", "b")


def test_a_side_that_is_busy_for_long_is_not_taken_for_a_dead_one():
    # The source waits for the destination, which waits for a lock; both would have lost patience meanwhile.
    noise_store("a", (1,))
    sync(*filtering_shell("cut", 100000), "a", "host:b", expect=(75,), stdout=False, stderr=None)
    directory = f"b/.pending/{underway('b')[0]}"
    with open(f"{directory}/manifest.part") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(["ckpt-sync", "--timeout=3", *shell(), "host:a", "host:b"], stderr=subprocess.PIPE)
        time.sleep(6)
        check(process.poll() is None, "it gave up")
    _, err = process.communicate(timeout=60)
    check(process.returncode == 0, err)
    alike("a", "b")


def test_a_silent_shell_is_given_up_in_time():
    noise_store("a", (1,))
    begin = time.monotonic()
    done = sync("--timeout=0.5", "-e", script("silent", "#!/bin/sh\nexec sleep 60\n"), "a", "host:b", expect=(75,), stdout=False, stderr=True)
    check(b"silent" in done.stderr, done.stderr)
    check(time.monotonic() - begin < 15, "it waited for too long")


def test_a_shell_that_stalls_in_mid_transfer_is_given_up_in_time():
    noise_store("a", (1,), size=4 << 20)
    rsh = filtering_shell("stall", 1000000)
    begin = time.monotonic()
    sync("--timeout=1", *rsh, "a", "host:b", expect=(75,), stdout=False, stderr=True)
    check(time.monotonic() - begin < 20, "it waited for too long")
    sync("a", "c")
    check(not steps("b"), steps("b"))


def test_a_signal_ends_it_and_the_next_sync_goes_on():
    noise_store("a", (1,), size=3 << 20)
    process = subprocess.Popen(["ckpt-sync", "--bwlimit=1024", "a", "b"], stderr=subprocess.PIPE)
    until(lambda: any(".ckpt" in f and os.path.getsize(f"b/.pending/{d}/{f}") > 500000
                      for d in underway("b") for f in os.listdir(f"b/.pending/{d}")), "some of it is there")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    check(process.returncode == -signal.SIGTERM, process.returncode)
    check(not steps("b"), "half of it is visible")
    check(moved("a", "b") < 3 << 20, "what arrived was sent again")
    alike("a", "b")


if __name__ == "__main__":
    tap.main()
