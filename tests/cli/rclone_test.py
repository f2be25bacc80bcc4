# SPDX-License-Identifier: Apache-2.0
# ckpt-sync with what rclone reaches: a directory, WebDAV (which tells no hashes) and SFTP (which tells them), and a
# stand-in for rclone that fails where a test says so.
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
import tap
from tap import Skip, check, run

RCLONE = shutil.which("rclone")
os.environ["RCLONE_CONFIG"] = "/dev/null"

STAND_IN = """#!/bin/sh
# Notes each call, and fails in the way that is asked for where command and last operand match.
command=$1
for last; do :; done
echo "$command $last" >>"$STAND_IN_LOG"
case "$command $last" in
  $STAND_IN_AT)
    case $STAND_IN_DOES in
      die) kill -9 $$ ;;
      cut) head -c "${STAND_IN_BYTES:-50000}" | "$REAL_RCLONE" rcat -- "$last"; kill -9 $$ ;;
      change) tr a b | "$REAL_RCLONE" "$@"; exit $? ;;
      flood) exec cat /dev/zero ;;
      hang) exec sleep 600 ;;
      complain) printf '\\033[31mlost \\001 all\\n' >&2; exit 7 ;;
    esac ;;
esac
exec "$REAL_RCLONE" "$@"
"""


def stand_in(at="", does=""):
    os.makedirs("bin", exist_ok=True)
    with open("bin/rclone", "w") as file:
        file.write(STAND_IN)
    os.chmod("bin/rclone", 0o755)
    return {"PATH": os.path.abspath("bin") + ":" + os.environ["PATH"], "REAL_RCLONE": RCLONE, "STAND_IN_AT": at,
            "STAND_IN_DOES": does, "STAND_IN_LOG": os.path.abspath("calls")}


def calls():
    with open("calls") as file:
        return file.read().splitlines()


class Serving:
    """`rclone serve` on a free port of the loopback, for a directory."""

    def __init__(self, kind, directory):
        self.kind, self.directory = kind, directory

    def __enter__(self):
        os.makedirs(self.directory, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [RCLONE, "serve", self.kind, "--addr", f"127.0.0.1:{self.port}", *self.credentials(), self.directory],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                check(self.process.poll() is None and time.monotonic() < end, f"rclone serve {self.kind} doesn't come up")
                time.sleep(0.05)

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def credentials(self):
        return ["--user", "u", "--pass", "p"] if self.kind == "sftp" else []

    def address(self, path):
        return remote_address(self.kind, self.port, path)


def remote_address(kind, port, path):
    """A remote of that kind, in a configuration file as users have it."""
    with open("rclone.conf", "a") as file:
        file.write(f"[{kind}{port}]\ntype = {kind}\n")
        if kind == "webdav":
            file.write(f"url = http://127.0.0.1:{port}\nvendor = other\n")
        else:
            secret = subprocess.run([RCLONE, "obscure", "p"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
            file.write(f"host = 127.0.0.1\nport = {port}\nuser = u\npass = {secret}\n")
    os.environ["RCLONE_CONFIG"] = os.path.abspath("rclone.conf")
    return f"rclone:{kind}{port}:{path}"


def local(path="there"):
    return f"rclone::local:{os.path.abspath(path)}"


def save(*steps, store="st", seed=None, options=()):
    for step in steps:
        make_input.drift(f"s{step}.safetensors", seed or step)
        run("ckpt-save", *options, f"s{step}.safetensors", f"{store}@{step}", stderr=False)


def sync(*arguments, **more):
    return run("ckpt-sync", *arguments, **more)


def moved(*arguments, **more):
    """Bytes of containers that a sync moved, by step."""
    out = sync("--format=json", *arguments, **more).stdout.decode()
    records = [json.loads(line) for line in out.splitlines()]
    return {r["step"]: r["moved_bytes"] for r in records if r["type"] == "item" and r["action"] == "sent"}


def files(store):
    found = {}
    for base, directories, names in os.walk(store):
        directories[:] = [d for d in directories if d not in (".pending", ".pins", ".verify", ".trash")]
        for name in names:
            with open(os.path.join(base, name), "rb") as file:
                found[os.path.relpath(os.path.join(base, name), store)] = file.read()
    return {name: content for name, content in found.items() if "lock" not in name}


def same(one, other):
    left, right = files(one), files(other)
    check(left == right, lambda: f"{sorted(left)} in {one}, {sorted(right)} in {other}, or other content")


def is_intact(store):
    run("ckpt-verify", "--deep", store, stdout=False, stderr=False)


def manifest(step, store):
    with open(f"{store}/{step:010}/manifest.json", encoding="utf-8") as file:
        return json.load(file)


def container(step, store="there"):
    return f"{store}/{step:010}/{manifest(step, store)['shards'][0]['file']}"


def change_byte(path, at):
    os.chmod(path, 0o644)
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def round_trip(address, directory):
    save(1, 2, 3)
    check(manifest(3, "st")["depends_on"], "no step is stored against another")
    sent = moved("st", address)
    check(sorted(sent) == [1, 2, 3], sent)
    same("st", directory)
    is_intact(directory)
    check(moved("st", address) == {}, "there was something to do the second time")
    sync(address, "back", stdout=False, stderr=False)
    same("st", "back")
    is_intact("back")
    sync(address + "@2", "two", stdout=False, stderr=False)
    check(sorted(n for n in os.listdir("two") if n.isdigit()) == ["0000000001", "0000000002"], "not step 2 and its base")
    is_intact("two")


def test_a_directory_through_rclone_there_and_back():
    round_trip(local(), "there")


def test_webdav_there_and_back():
    with Serving("webdav", "served") as server:
        round_trip(server.address("deep/er"), "served/deep/er")


def test_sftp_there_and_back():
    with Serving("sftp", "served") as server:
        round_trip(server.address("deep/er"), "served/deep/er")


def test_several_ranks_and_two_destinations():
    for rank in range(3):
        make_input.drift("r.safetensors", 1, rank)
        run("ckpt-save", f"--rank={rank}", "--world-size=3", "r.safetensors", "st@1", stderr=False)
    sync("st", local("one"), local("two"), stdout=False, stderr=False)
    same("st", "one")
    same("one", "two")
    is_intact("two")


def test_from_there_to_two_destinations_that_are_not_in_step():
    save(1, 2)
    sync("st", local())
    sync(local(), "one", stderr=False)
    shutil.rmtree("one/0000000002")
    sync(local(), "one", "two", stdout=False, stderr=False)
    same("one", "two")
    same("st", "two")


def test_a_stream_ends_there():
    save(1, 2)
    with subprocess.Popen(["ckpt-sync", "st", "-"], stdout=subprocess.PIPE) as source:
        subprocess.run(["ckpt-sync", "-", local()], stdin=source.stdout, check=True, timeout=60)
    same("st", "there")


def test_nothing_to_do_takes_as_many_calls_for_many_checkpoints_as_for_one():
    save(1)
    sync("st", local())
    sync("st", local(), env=stand_in())
    few = len(calls())
    save(*range(2, 12))
    sync("st", local())
    os.remove("calls")
    check(moved("st", local(), env=stand_in()) == {}, "something moved")
    check(len(calls()) == few, lambda: f"{few} calls for one, then {calls()}")


def test_the_manifest_is_written_last():
    save(1)
    sync("st", local(), env=stand_in())
    written = [call.rsplit("/", 1)[1] for call in calls() if call.startswith("rcat ")]
    check(written == ["ckpt-store.json", "shard-00000-of-00001.ckpt", "manifest.json"], written)


def test_rclone_killed_before_the_manifest_leaves_no_checkpoint_and_sends_no_byte_twice():
    save(1, 2)
    sync("st", local(), env=stand_in("rcat */0000000002/manifest.json", "die"), expect=(75,), stderr=True)
    check(os.path.exists("there/0000000002") and not os.path.exists("there/0000000002/manifest.json"), "it's there")
    sync(local(), "back", stderr=False)
    check(os.path.isdir("back/0000000001") and not os.path.isdir("back/0000000002"), "step 2 can be seen")
    check(moved("st", local()) == {2: 0}, "what was there already was sent again")
    same("st", "there")


def test_rclone_killed_in_the_middle_of_an_object_and_again():
    save(1)
    for _ in range(2):
        sync("st", local(), env=stand_in("rcat */shard-*", "cut"), expect=(75,), stderr=True)
        check(os.path.getsize("there/0000000001/shard-00000-of-00001.ckpt") == 50000, "not a part of the object")
        check(not os.path.exists("there/0000000001/manifest.json"), "a part of an object has a manifest")
    size = os.path.getsize(container(1, "st"))
    check(moved("st", local()) == {1: size}, "it isn't sent anew")
    same("st", "there")


def test_a_manifest_and_a_description_that_were_cut_off_are_written_anew():
    save(1)
    for name, sizes in (("ckpt-store.json", (0, 100)), ("manifest.json", (0, 100, 350, 500))):
        for size in sizes:
            env = dict(stand_in(f"rcat */{name}", "cut"), STAND_IN_BYTES=str(size))
            sync("st", local(), env=env, expect=(75,), stderr=True)
            sync(local(), "back", expect=(0, 2), stderr=None)
            check(not os.path.isdir("back/0000000001"), "it can be seen")
    sync("st", local(), stderr=None)
    same("st", "there")
    os.truncate("there/0000000001/manifest.json", 350)
    save(1, store="other", seed=9)
    sync("other", local(), expect=(2,), stderr=True)


def test_ckpt_sync_killed_at_any_time_loses_nothing_and_shows_nothing_half():
    save(1, 2)
    kills = random.Random(7)
    for _ in range(6):
        process = subprocess.Popen(["ckpt-sync", "--bwlimit=400", "st", local()], stderr=subprocess.PIPE)
        time.sleep(kills.uniform(0.1, 1.6))
        process.kill()
        process.communicate()
        shutil.rmtree("back", ignore_errors=True)
        begun = os.path.exists("there/0000000001/manifest.json")
        sync(local(), "back", stderr=None, expect=(0,) if begun else (0, 2))
        if os.path.isdir("back"):
            is_intact("back")
    sync("st", local(), stderr=None)
    same("st", "there")


def test_term_ends_a_transfer_at_once():
    save(1)
    process = subprocess.Popen(["ckpt-sync", "--bwlimit=20", "st", local()], stderr=subprocess.PIPE)
    time.sleep(1)
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    check(process.returncode == -signal.SIGTERM and time.monotonic() - start < 8, "it goes on")
    check(not os.path.exists("there/0000000001/manifest.json"), "half of it is a checkpoint")


def test_an_object_that_is_cut_or_gone_is_sent_anew():
    save(1, 2, 3)
    sync("st", local())
    sync("st", "back")
    os.truncate(container(2), 1000)
    os.remove(container(3))
    done = sync("--delete", local(), "back", expect=(2,))
    check(b"0000000002" in done.stderr and b"0000000003" in done.stderr, lambda: f"not named: {done.stderr}")
    same("st", "back")
    check(sorted(moved("st", local())) == [2, 3], "it isn't sent anew")
    same("st", "there")


def test_a_leftover_of_the_right_size_with_a_changed_byte_is_sent_anew():
    save(1)
    sync("st", local())
    size = os.path.getsize(container(1))
    change_byte(container(1), size // 2)
    os.remove("there/0000000001/manifest.json")
    check(moved("st", local()) == {1: size}, "the damaged leftover was taken")
    same("st", "there")


def changed_on_the_way(address, directory):
    save(1)
    done = sync("st", address, env=stand_in("rcat */shard-*", "change"), expect=(2,), stderr=True)
    check(b"shard-00000-of-00001.ckpt" in done.stderr, done.stderr)
    check(not os.path.exists(f"{directory}/0000000001/manifest.json"), "changed bytes are a checkpoint")
    sync("st", address)
    same("st", directory)


def test_bytes_that_change_on_the_way_are_found_by_the_remotes_hash():
    changed_on_the_way(local(), "there")


def test_bytes_that_change_on_the_way_are_found_by_reading_back_where_there_are_no_hashes():
    with Serving("webdav", "served") as server:
        changed_on_the_way(server.address("x"), "served/x")


def test_a_damaged_container_at_the_source_is_not_committed():
    save(1)
    change_byte(container(1, "st"), 5000)
    sync("st", local(), expect=(2,), stderr=True)
    check(not os.path.exists("there/0000000001/manifest.json"), "damage is a checkpoint")


def test_a_damaged_object_is_not_taken_from_there():
    save(1, 2)
    sync("st", local())
    change_byte(container(1), 5000)
    sync(local(), "back", expect=(2,), stderr=True)
    check(not os.path.isdir("back/0000000001"), "damage came back")


def test_a_manifest_there_that_cannot_be_read_gives_way_only_to_replace():
    save(1)
    sync("st", local())
    change_byte("there/0000000001/manifest.json", 30)
    done = sync("st", local(), expect=(2,), stderr=True)
    check(b"can't be read" in done.stderr, done.stderr)
    sync("--replace", "st", local())
    same("st", "there")


def test_other_content_at_a_step_is_refused_by_both_ids_and_replaced_when_asked():
    save(1, 2)
    save(1, store="other", seed=9)
    sync("other", local())
    done = sync("st", local(), expect=(2,), stderr=True)
    for store in ("st", "other"):
        check(manifest(1, store)["id"].encode() in done.stderr, lambda: f"an id isn't named: {done.stderr}")
    is_intact("there")
    sync("--replace", "st", local())
    check(manifest(1, "there")["id"] == manifest(1, "st")["id"], "not replaced")
    check(len(os.listdir("there/0000000001")) == 2, "the old container is left")
    is_intact("there")
    check(moved("st", local()) == {}, "something is left to do")


def test_a_kill_while_content_is_replaced_keeps_the_old_content_whole():
    save(1)
    save(1, store="other", seed=9)
    sync("other", local())
    sync("--replace", "st", local(), env=stand_in("rcat */manifest.json", "die"), expect=(75,), stderr=True)
    check(manifest(1, "there")["id"] == manifest(1, "other")["id"], "the manifest is new")
    is_intact("there")


def test_delete_follows_and_keeps_bases_and_the_newest_good_one():
    save(1, 2, 3)
    sync("st", local())
    run("ckpt-prune", "--keep=2", "--keep-last=1", "st")
    done = sync("--delete", "-i", "st", local(), expect=None, stderr=None)
    check(os.path.isdir("there/0000000001"), "a base that step 2 is stored against was removed")
    is_intact("there")
    save(1, store="alone")
    sync("alone", local("full"))
    save(2, store="full2", options=("--full",) if "--full" in run("ckpt-save", "--help").stdout.decode() else ())
    sync("full2", local("full"))
    sync("full2", local("full"), "--delete", stderr=False)
    check(not os.path.isdir("full/0000000001") and os.path.isdir("full/0000000002"), "step 1 isn't removed")
    sync("alone", local("full"), "--delete", stderr=None, expect=None)
    check(os.path.isdir("full/0000000002"), "the newest good one was removed")


def test_what_is_retired_here_is_retired_there():
    save(1, 2, 3)
    sync("st", local())
    save(2, seed=5, options=("--resumed-from=1", "--attempt=1"))
    check(len(os.listdir("st/.retired")) == 2, "nothing was retired")
    sync("st", local(), stderr=False)
    check(sorted(os.listdir("st/.retired")) == sorted(os.listdir("there/.retired")), "not retired there")
    check(manifest(2, "there")["id"] == manifest(2, "st")["id"], "the new step 2 isn't there")
    is_intact("there")
    check(moved("st", local()) == {}, "something is left to do")
    sync(local(), "back", stderr=False)
    same("st", "back")


def test_a_remote_that_is_down_is_temporary_and_named():
    save(1)
    for kind in ("webdav", "sftp"):
        with Serving(kind, "served") as server:
            address = server.address("x")
        done = sync("st", address, expect=(75,), stderr=True)
        check(address.encode() in done.stderr, done.stderr)
        sync(address, "back", expect=(75,), stderr=True)


def test_one_destination_down_does_not_keep_the_other_from_having_it():
    save(1)
    with Serving("webdav", "served") as server:
        address = server.address("x")
    sync("--min-copies=1", "st", address, local(), stderr=True)
    same("st", "there")


def test_a_remote_that_never_answers_is_given_up_in_time():
    save(1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        address = remote_address("webdav", silent.getsockname()[1], "x")
        start = time.monotonic()
        sync("--timeout=1", "st", address, expect=(75,), stderr=True)
        check(time.monotonic() - start < 30, "it took too long")


def test_an_rclone_that_hangs_floods_or_complains_costs_neither_time_nor_memory():
    save(1)
    sync("st", local())
    start = time.monotonic()
    sync("--timeout=0.5", "st", local(), env=stand_in("lsf *", "hang"), expect=(75,), stderr=True)
    check(time.monotonic() - start < 30, "it took too long")
    done = sync("st", local(), env=stand_in("lsf *", "flood"), expect=(2,), stderr=True)
    check(b"more than there can be" in done.stderr, done.stderr)
    done = sync("st", local(), env=stand_in("lsf *", "complain"), expect=(2,), stderr=True)
    check(b"lost ? all" in done.stderr and b"\033" not in done.stderr, done.stderr)


def test_without_rclone_it_says_so():
    save(1)
    tools = os.path.dirname(shutil.which("ckpt-sync"))
    done = run(os.path.join(tools, "ckpt-sync"), "st", local(), env={"PATH": tools}, expect=(2,), stderr=True)
    check(b"rclone isn't installed" in done.stderr, done.stderr)


def test_names_that_are_no_remote_or_read_as_options_are_refused():
    save(1)
    for name in ("rclone:", "rclone:remote", "rclone:--config=x:y", "rclone:-:y", "rclone:no such\nremote:x"):
        sync("st", name, expect=(2,), stderr=True)
    done = sync("st", "rclone:nobody-has-this:x", expect=(2,), stderr=True)
    check(b"didn't find section" in done.stderr, done.stderr)


def test_a_place_that_holds_other_things_is_not_made_a_store():
    save(1)
    os.makedirs("there")
    make_input.put("there/thesis.tex", b"x")
    done = sync("st", local(), expect=(2,), stderr=True)
    check(b"holds other things" in done.stderr, done.stderr)
    check(os.listdir("there") == ["thesis.tex"], "something was written to it")


def test_sets_that_are_not_complete_are_not_kept_there():
    make_input.drift("r.safetensors", 1)
    run("ckpt-save", "--rank=0", "--world-size=2", "r.safetensors", "st@1", stderr=None)
    done = sync("--gather", "st", local(), expect=(2,), stderr=True)
    check(b"aren't complete" in done.stderr, done.stderr)


def test_blocks_for_a_restore_and_a_repair_come_from_there_also_through_bases():
    save(1, 2, 3)
    sync("st", local())
    change_byte(container(3, "st"), os.path.getsize(container(3, "st")) // 2)
    run("ckpt-restore", "st@3", "no", expect=(2,), stderr=True)
    run("ckpt-restore", f"--from={local()}", "st@3", "out", stderr=None)
    run("cmp", "s3.safetensors", "out/s3.safetensors")
    with open(container(2, "st"), "rb") as file:
        size = len(file.read())
    for at in (size // 3, size // 3 + 5000):
        change_byte(container(2, "st"), at)
    run("ckpt-verify", "--repair", f"--from={local()}", "st", expect=(0, 1), stderr=None)
    is_intact("st")
    run("ckpt-restore", "st@3", "again", stderr=False)
    run("cmp", "s3.safetensors", "again/s3.safetensors")


def test_a_container_that_is_gone_comes_from_there_whole():
    save(1, 2)
    sync("st", local())
    os.remove(container(2, "st"))
    run("ckpt-restore", f"--from={local()}", "st@2", "out", stderr=None)
    run("cmp", "s2.safetensors", "out/s2.safetensors")


if __name__ == "__main__":
    if RCLONE is None:
        print("1..0 # SKIP rclone isn't installed")
    else:
        tap.main()
