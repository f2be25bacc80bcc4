# SPDX-License-Identifier: Apache-2.0
# ckpt-bench: what it reports fits together, its directory is its own and is gone in the end, and it ends well when it's
# told to. No times are judged.
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.dom.minidom

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check, main, run

SMALL = ("--size=2M", "--tensors=7", "--steps=6", "--saves=2", "--step-time=0.002")


def bench(*options, store="b", **more):
    return run("ckpt-bench", *SMALL, *options, store, stderr=False, **more)


def records(*options, **more):
    lines = [json.loads(line) for line in bench("--json", *options, **more).stdout.splitlines()]
    check(lines[0]["schema"] == "ckpt-bench/1" and lines[-1]["type"] == "summary", lines)
    return lines


def of_type(found, kind):
    return [record for record in found if record["type"] == kind]


def test_each_way_is_measured_and_its_times_are_in_order():
    ways = of_type(records(), "way")
    check([way["way"] for way in ways] == ["synchronous", "detached", "in_process"], ways)
    for way in ways:
        check(way["saves"] == 2 and way["stored_bytes"] > 0, way)
        check(0 <= way["file_seconds"] <= way["stall_seconds"] <= way["longest_stall_seconds"] * 1.000001, way)
        check(0 < way["staged_seconds"] <= way["durable_seconds"] + 1e-9, way)
        check(way["written_seconds"] <= way["durable_seconds"] + 1e-9, way)
        check(way["loop_seconds"] <= way["total_seconds"], way)
        check(way["stall_seconds"] <= way["lost_seconds"] and 0 <= way["utilisation"] <= 1, way)
        check(abs(2 * 2**20 - way["raw_bytes"] / 2) < 7 * 4096, way)
        for key in way:
            if key.endswith("_to_memcpy"):
                name = key.removesuffix("_to_memcpy")
                check((way[f"{name}_seconds"] > 0) == (way[key] > 0) == (way[f"{name}_to_device"] > 0), (name, way))


def test_detached_saves_can_be_staged_on_another_disk():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        spool = os.path.join(elsewhere, "spool")
        bench(f"--spool={spool}", "--keep")
        run("ckpt-verify", "--deep", "b/detached", stdout=False, stderr=False)
        pointers = [os.readlink(os.path.join(top, name)) for top, names, files in os.walk("b/detached/.spool")
                    for name in names + files if os.path.islink(os.path.join(top, name))]
        check(any(pointer.startswith(spool) for pointer in pointers), pointers)
        bench(f"--spool={spool}")
        check(os.listdir(elsewhere) == [] and not os.path.exists("b"), "something is left")


def test_the_spool_may_be_the_store_by_another_name():
    bench(f"--spool={os.path.abspath('b')}")
    check(not os.path.exists("b"), "something is left")


def test_every_way_stores_the_same_state_and_what_is_kept_verifies():
    ways = of_type(records("--keep"), "way")
    sizes = [way["raw_bytes"] for way in ways]
    check(sizes[0] == sizes[1] == sizes[2], sizes)
    for way in ("synchronous", "detached", "in-process"):
        run("ckpt-verify", "--deep", f"b/{way}", stdout=False, stderr=False)
        steps = run("ckpt-ls", "--format=tsv", f"b/{way}").stdout.splitlines()
        check(len(steps) == 2, steps)
    run("ckpt-diff", "b/synchronous@latest", "b/detached@latest", stdout=False)


def test_the_same_seed_saves_the_same_and_another_one_doesnt():
    ids = []
    for seed in (1, 1, 2):
        bench("--keep", f"--seed={seed}")
        ids.append(run("ckpt-ls", "--get=id", "b/synchronous").stdout)
    check(ids[0] == ids[1] != ids[2], ids)


def test_without_keep_nothing_is_left():
    bench("--path=.")
    check(os.listdir(".") == [], os.listdir("."))


def test_ranks_save_shards():
    bench("--ranks=3", "--keep")
    for way in ("synchronous", "detached", "in-process"):
        shards = run("ckpt-ls", "--get=shards", f"b/{way}").stdout.strip()
        check(shards == b"3", f"{way}: {shards}")


def test_a_state_that_doesnt_change_is_stored_once():
    bench("--update=0", "--keep")
    for way in ("synchronous", "detached", "in-process"):
        ids = {r["id"] for r in map(json.loads, run("ckpt-ls", "--json", f"b/{way}").stdout.splitlines()) if "id" in r}
        check(len(ids) == 1, f"{way}: {ids}")


def test_each_path_is_a_device_and_one_that_isnt_there_is_trouble():
    os.mkdir("p")
    devices = of_type(records("--path=p", "--path=/dev/shm"), "device")
    check([d["path"] for d in devices] == ["b", "p", "/dev/shm"], devices)
    check([d["store"] for d in devices] == [True, False, False], devices)
    check(all(d["write_rate"] > 0 and d["read_rate"] > 0 and d["kind"] for d in devices), devices)
    check(os.listdir("p") == [], os.listdir("p"))
    run("ckpt-bench", *SMALL, "--path=nosuch", "b", expect=(2,), stdout=False, stderr=True)
    check(not os.path.exists("b"), "the store is left")


def test_intervals_come_with_mtbf_and_are_longer_where_failures_are_rare():
    check(of_type(records(), "interval") == [], "unasked")
    for time_between in ("1h", "100d"):
        for interval in of_type(records(f"--mtbf={time_between}"), "interval"):
            check(0 < interval["daly_seconds"] <= interval["interval_seconds"], interval)
            check(interval["daly_seconds"] <= interval["young_seconds"] * 1.1, interval)
            check(0 < interval["lost_share"] < 1, interval)
    topics = {advice["topic"] for advice in of_type(records("--mtbf=1h", "--path=."), "advice")}
    check({"bottleneck", "way", "store", "spool", "interval", "servers", "replicas"} <= topics, topics)


def test_the_table_fits_80_columns_with_the_ways_beside_each_other():
    text = bench("--mtbf=6h", "--path=.").stdout.decode()
    wide = [line for line in text.splitlines() if len(line) > 80]
    check(not wide, wide)
    check(any("SYNCHRONOUS" in line and "DETACHED" in line and "IN-PROCESS" in line for line in text.splitlines()), text)


def test_the_plot_is_xml_with_a_bar_for_each_step():
    bench("--plot=b.svg")
    picture = xml.dom.minidom.parse("b.svg")
    titles = [t.firstChild.data for t in picture.getElementsByTagName("title")]
    check(sum(title.endswith(" ms") and title[0].isdigit() for title in titles) == 3 * 6, titles)
    check(sum("durable" in title or "staged" in title for title in titles) >= 3 * 2, titles)


def test_a_directory_that_it_didnt_make_is_refused_and_left_as_it_is():
    os.mkdir("b")
    done = run("ckpt-bench", *SMALL, "b", expect=(2,), stdout=False, stderr=True)
    check(b"'b'" in done.stderr, done.stderr)
    with open("b/mine", "w", encoding="utf-8") as file:
        file.write("mine")
    run("ckpt-bench", *SMALL, "b", expect=(2,), stdout=False, stderr=True)
    check(os.listdir("b") == ["mine"], os.listdir("b"))
    with open("state", "w", encoding="utf-8") as file:
        file.write("state")
    run("ckpt-save", "state", "s@1")
    run("ckpt-bench", *SMALL, "s", expect=(2,), stdout=False, stderr=True)
    run("ckpt-verify", "s", stdout=False)
    run("ckpt-bench", *SMALL, "s@1", expect=(2,), stdout=False, stderr=True)


def test_what_an_earlier_one_left_is_cleared_but_not_what_someone_put_there():
    bench("--keep")
    with open("b/mine", "w", encoding="utf-8") as file:
        file.write("mine")
    done = run("ckpt-bench", *SMALL, "b", stderr=True)
    check(b"warning" in done.stderr and b"mine" in done.stderr, done.stderr)
    check(sorted(os.listdir("b")) == [".ckpt-bench", "mine"], os.listdir("b"))
    os.remove("b/mine")
    bench()
    check(not os.path.exists("b"), "it stayed")


def test_two_in_one_directory_are_one_too_many():
    bench("--keep")
    with open("b/.ckpt-bench", "r", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run("ckpt-bench", *SMALL, "b", expect=(75,), stdout=False, stderr=True)


def test_wrong_numbers_are_refused():
    for option in ("--update=1.5", "--update=x", "--saves=0", "--saves=7", "--ranks=0", "--size=0", "--size=8",
                   "--mtbf=0", "--encode=zip", "--threads=0"):
        run("ckpt-bench", *SMALL, option, "b", expect=(2,), stdout=False, stderr=True)
        check(not os.path.exists("b"), f"{option} left its store")


def ended_at(wanted):
    """TERM as soon as `wanted` is there; gives what is left."""
    command = ("ckpt-bench", "--size=64M", "--steps=400", "--saves=100", "--step-time=0.05", "b")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not os.path.exists(wanted):
            check(process.poll() is None and time.monotonic() < deadline, f"no {wanted}")
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=120)[1]
        check(process.returncode == -signal.SIGTERM, f"{process.returncode}: {said!r}")
    return os.listdir(".")


def test_a_signal_in_the_synchronous_way_ends_it_and_nothing_is_left():
    check(ended_at("b/synchronous/ckpt-store.json") == [], os.listdir("."))


def test_a_signal_in_the_detached_way_ends_the_worker_too():
    command = ("ckpt-bench", "--size=16M", "--steps=3", "--saves=1", "--step-time=2", "b")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not os.path.exists("b/detached/.spool"):
            check(process.poll() is None and time.monotonic() < deadline, "no spool")
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        check(process.returncode == -signal.SIGINT, process.returncode)
    check(os.listdir(".") == [], os.listdir("."))


def test_after_a_kill_the_next_one_clears_what_is_left():
    command = ("ckpt-bench", "--size=16M", "--steps=50", "--saves=10", "b")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while not os.path.exists("b/synchronous/ckpt-store.json"):
            time.sleep(0.01)
        process.kill()
        process.wait()
    bench()
    check(os.listdir(".") == [], os.listdir("."))


main()
