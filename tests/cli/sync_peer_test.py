# SPDX-License-Identifier: Apache-2.0
# ckpt-sync against a peer that isn't what it should be: it sends garbage, stalls, lies about sizes and counts, speaks
# another version, names files outside. Each is told in time, and costs neither data nor memory.
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
import tap
from sync_support import *  # noqa: F403
from tap import check, run

SANITIZED = "ASAN_OPTIONS" in os.environ
ID = "0123456789abcdef0123456789abcdef"


def bound():
    if not SANITIZED:  # a sanitizer maps terabytes
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


def answering(*data, linger=True):
    """A remote shell whose far end says these bytes, whatever it's asked, and then waits or hangs up."""
    make_input.put("answers", b"".join(data))
    return ["-e", script("hostile", "#!/bin/sh\ncat answers\n" + ("cat >/dev/null\n" if linger else ""))]


def refused(*arguments, codes=(2, 75), within=30):
    begin = time.monotonic()
    done = sync("--timeout=2", *arguments, expect=codes, stdout=False, stderr=True, preexec_fn=bound)
    check(time.monotonic() - begin < within, "it took too long")
    return done.stderr.decode()


# --- The far end of a destination, or of a source ---

def both_ways(*data, linger=True, codes=(2, 75), says=""):
    noise_store("a", (1,), size=1000)
    rsh = answering(*data, linger=linger)
    for arguments in (("a", "host:b"), ("host:b", "c")):
        said = refused(*rsh, *arguments, codes=codes)
        check(says in said, said)
    check(not steps("c") if os.path.isdir("c") else True, "something was stored")
    sound("a")


def test_a_peer_that_hangs_up_at_once_is_temporary():
    both_ways(linger=False, codes=(75,), says="hung up")


def test_a_peer_that_says_nothing_is_temporary():
    both_ways(codes=(75,), says="silent")


def test_a_peer_that_prints_a_banner_is_refused():
    both_ways(b"Welcome to this host! You have new mail.\n" * 3, codes=(2,), says="no message")


def test_a_peer_that_sends_zeros_is_refused():
    both_ways(bytes(4096))


def test_a_peer_that_sends_noise_is_refused():
    for seed in range(5):
        shutil.rmtree("a", ignore_errors=True)
        both_ways(make_input.noise(seed, 5000))


def test_a_message_that_is_too_large_is_refused():
    both_ways(message(HELLO, b"", size=0xFFFFFFFF), codes=(2,), says="no message")


def test_a_message_that_ends_early_is_temporary():
    both_ways(hello()[:-3], linger=False, codes=(75,), says="hung up")


def test_a_message_with_a_wrong_checksum_is_refused():
    both_ways(message(HELLO, text("ckpt-sync") + number(1, 0), checksum=7), codes=(2,), says="damaged")


def test_a_peer_that_is_something_else_is_refused():
    both_ways(hello(name="rsyncd"), codes=(2,), says="no ckpt-sync")


def test_a_peer_that_says_something_before_hello_is_refused():
    both_ways(message(DONE), codes=(2,), says="hello")


def test_a_peer_of_no_version_is_refused():
    both_ways(hello(0), codes=(2,), says="version")


def test_a_hello_that_is_too_short_is_refused():
    both_ways(message(HELLO, text("ckpt-sync")), codes=(2,))


def test_a_peer_that_answers_with_another_message_is_refused():
    both_ways(hello(), message(INVENTORY), codes=(2,), says="something else")


def test_a_peer_that_only_says_that_it_is_alive_and_hangs_up_is_temporary():
    both_ways(hello(), message(ALIVE) * 1000, linger=False, codes=(75,))


def test_a_count_of_more_than_there_is_is_refused():
    for count in (1 << 63, (1 << 64) - 1, 1000):
        shutil.rmtree("a", ignore_errors=True)
        both_ways(hello(), message(DONE, number(1, 0, count)), codes=(2,))
        shutil.rmtree("a")
        both_ways(hello(), message(DONE, number(1, count)), codes=(2,))
        shutil.rmtree("a")
        both_ways(hello(), message(DONE, number(1, 0, 0, count)), codes=(2,))


def test_an_inventory_with_more_behind_it_is_refused():
    both_ways(hello(), message(DONE, inventory() + b"x"), codes=(2,))


def test_an_id_that_is_none_is_refused():
    both_ways(hello(), message(DONE, inventory(entry("../../../../../../etc/cron.d/xyzabcd"[:32], 1))), codes=(2,))


def test_a_step_out_of_range_is_refused():
    both_ways(hello(), message(DONE, inventory(entry(ID, 1 << 60))), codes=(2,))


def test_bases_in_a_circle_are_refused():
    other = ID[::-1]
    circle = inventory(entry(ID, 1, bases=[(other, 2)]), entry(other, 2, bases=[(ID, 1)]))
    said = refused(*answering(hello(), message(DONE, circle)), "host:b", "c")
    check(said, "nothing is said")


def test_a_long_chain_of_bases_costs_no_stack():
    count = 60000
    entries = [entry(f"{i:032x}", i, bases=[(f"{i + 1:032x}", i + 1)]) for i in range(count)]
    refused(*answering(hello(), message(DONE, inventory(*entries))), "host:b", "c")


def test_a_failure_with_a_long_text_is_refused():
    both_ways(hello(), message(FAILURE, number(0) + text("x" * 100000) + text("")), codes=(2,))


def test_a_failure_of_an_unknown_kind_is_refused():
    both_ways(hello(), message(FAILURE, number(1000) + text("x") + text("")), codes=(2,))


def test_a_failure_is_told_with_the_name_of_the_peer():
    both_ways(hello(), message(FAILURE, number(3) + text("it rains") + text("")), says="host:b: it rains")


def test_control_characters_in_a_failure_do_not_reach_the_terminal():
    both_ways(hello(), message(FAILURE, number(3) + text("\x1b]0;evil\x07") + text("")))
    said = refused(*answering(hello(), message(FAILURE, number(3) + text("\x1b]0;evil\x07") + text(""))), "a", "host:b")
    check("\x1b" not in said and "\x07" not in said, repr(said))


# --- A destination that lies about what it holds ---

def destination_that_answers(prepared):
    noise_store("a", (1,), size=1000)
    return refused(*answering(hello(), message(DONE, inventory()), message(DONE, prepared)), "a", "host:b")


def test_a_destination_that_holds_more_than_there_is_is_refused():
    said = destination_that_answers(number(0, 1, 1 << 40))
    check("more of a shard than there is" in said, said)


def test_a_destination_that_counts_other_shards_is_refused():
    said = destination_that_answers(number(0, 2, 0, 0))
    check("other shards" in said, said)


def test_a_destination_that_counts_beyond_its_message_is_refused():
    destination_that_answers(number(0, 1 << 60))


def test_a_destination_that_claims_to_have_it_is_not_asked_twice():
    noise_store("a", (1,), size=1000)
    # It says that it has it, and shows that it hasn't: it's its own store that lacks it.
    done = sync("--timeout=2", *answering(hello(), message(DONE, inventory()), message(DONE, number(1)),
                                          message(DONE, inventory())), "a", "host:b", expect=(0, 2, 75), stderr=None)
    sound("a")


# --- A source that lies about what it has ---

def honest_store():
    drift_store("real", 1, size=2000)
    with open("real/0000000001/manifest.json", encoding="utf-8") as f:
        manifest = json.load(f)
    with open(f"real/0000000001/{manifest['shards'][0]['file']}", "rb") as f:
        return manifest, f.read()


def source_that_sends(manifest, data, codes=(2, 75)):
    """The same answers to every try."""
    listing = message(DONE, inventory(entry(manifest["id"], manifest["step"])))
    one = message(DONE, sealed(manifest).encode()) + message(DONE, data)
    rsh = answering(hello(), listing, one, one, one, listing, one, one, one)
    said = refused(*rsh, "host:b", "c", codes=codes)
    if os.path.isdir("c"):
        check(not steps("c"), "something false is visible")
        if os.path.exists("c/ckpt-store.json"):
            sound("c")
    return said


def test_a_source_that_is_honest_is_believed():
    manifest, data = honest_store()
    listing = message(DONE, inventory(entry(manifest["id"], 1)))
    with open("real/0000000001/manifest.json", "rb") as f:
        text_of = f.read()
    sync(*answering(hello(), listing, message(DONE, text_of), message(DONE, data)), "host:b", "c", stdout=False)
    alike("real", "c")


def test_a_source_that_sends_another_container_is_refused():
    manifest, data = honest_store()
    source_that_sends(manifest, bytes(len(data)))
    for at in (0, 70, len(data) // 2, len(data) - 20):
        broken = bytearray(data)
        broken[at] ^= 1
        shutil.rmtree("c", ignore_errors=True)
        source_that_sends(manifest, bytes(broken))


def test_a_source_that_sends_fewer_bytes_is_refused():
    manifest, data = honest_store()
    said = source_that_sends(manifest, data[:-1])
    check("other bytes than asked" in said, said)


def test_a_source_that_sends_more_bytes_is_refused():
    manifest, data = honest_store()
    source_that_sends(manifest, data + b"x")


def test_a_source_whose_manifest_is_of_another_checkpoint_is_refused():
    manifest, data = honest_store()
    listing = message(DONE, inventory(entry(ID, 1)))
    one = message(DONE, sealed(manifest).encode())
    refused(*answering(hello(), listing, one, one, one, one), "host:b", "c")
    check(not os.path.isdir("c") or not steps("c"), "something false is visible")


def test_a_source_whose_manifest_has_a_wrong_checksum_is_refused():
    manifest, data = honest_store()
    listing = message(DONE, inventory(entry(manifest["id"], 1)))
    one = message(DONE, sealed(manifest).encode().replace(b"drift", b"DRIFT").replace(b'"step": 1', b'"step": 2'))
    refused(*answering(hello(), listing, one * 8), "host:b", "c")


def test_a_source_whose_manifest_leads_out_of_the_store_is_refused():
    manifest, data = honest_store()
    for name in ("../../evil", "/tmp/evil", "..", "a/b", "", "manifest.json", "manifest.part", "evil", "x" * 300):
        shutil.rmtree("c", ignore_errors=True)
        crafted = json.loads(json.dumps(manifest))
        crafted["shards"][0]["file"] = name
        source_that_sends(crafted, data)
        check(not os.path.exists("evil") and not os.path.exists("/tmp/evil"), "a file was written outside")


def test_a_source_whose_manifest_claims_a_size_without_end_is_refused():
    manifest, data = honest_store()
    for size in (1 << 62, (1 << 63) - 1, 10):
        shutil.rmtree("c", ignore_errors=True)
        crafted = json.loads(json.dumps(manifest))
        crafted["shards"][0]["size"] = size
        source_that_sends(crafted, data)


def test_a_source_whose_manifest_claims_many_ranks_is_refused():
    manifest, data = honest_store()
    crafted = json.loads(json.dumps(manifest))
    crafted["shards"] = crafted["shards"] * 1000
    source_that_sends(crafted, data)


# --- A client that is no client: the server's side ---

def server_says(*data, codes=(2, 75)):
    noise_store("st", (1, 2), size=1000)
    before = committed_content("st")
    with Peer("st", "--timeout=2") as peer:
        for part in data:
            peer.send(part)
        code, err = peer.end()
    check(code in codes, f"{code}: {err}")
    check(code == 0 or err, "nothing was said")
    check(committed_content("st") == before, "the store changed")
    sound("st")
    return err


def test_a_server_ends_in_silence_when_the_client_is_done():
    server_says(hello(), codes=(0,))


def test_a_server_that_is_given_nothing_says_so():
    server_says(codes=(75,))


def test_a_server_that_is_given_garbage_says_so():
    for data in (b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(100), make_input.noise(1, 9000), hello(name="x"), hello(0),
                 message(INVENTORY), hello() + b"garbage that is no message"):
        shutil.rmtree("st", ignore_errors=True)
        server_says(data)


def test_a_server_whose_client_is_silent_gives_up():
    noise_store("st", (1,), size=1000)
    with Peer("st", "--timeout=1") as peer:
        peer.greet()
        check(peer.process.wait(timeout=30) == 75, peer.process.returncode)


def test_a_server_of_a_store_that_is_not_there_answers_that_there_is_none():
    with Peer("nothing") as peer:
        kind, payload = peer.greet().ask(INVENTORY)
        check(kind == DONE and payload == number(0, 0, 0, 0), (kind, payload))
        check(peer.end()[0] == 0, "not a good end")
    check(not os.path.exists("nothing"), "it was made")


def each_is_refused(*requests, store="st"):
    noise_store(store, (1, 2), size=1000)
    before = committed_content(store)
    with Peer(store) as peer:
        peer.greet()
        for kind, payload in requests:
            answer = peer.ask(kind, payload)
            check(answer is not None, lambda: f"the server died of {kind}: {payload[:100]!r}, {peer.end()}")
            check(answer[0] == FAILURE, lambda: f"{kind} {payload[:100]!r} is answered with {answer}")
        check(peer.ask(INVENTORY)[0] == DONE, "it doesn't serve any more")
        check(peer.end()[0] == 0, "not a good end")
    check(committed_content(store) == before, "the store changed")
    sound(store)


def test_requests_that_are_not_known_are_refused_and_the_next_is_answered():
    each_is_refused((99, b""), (0, b""), (200, b"x" * 1000), (DONE, b""), (FAILURE, b""))


def test_requests_that_are_cut_short_are_refused_and_the_next_is_answered():
    each_is_refused(*((kind, payload) for kind in (MANIFEST, READ, READ_BLOCK, PREPARE, RETIRE, REMOVE, PREPARE_SHARD)
                      for payload in (b"", b"\xff" * 4, b"\xff" * 8, b"\xff" * 200)))


def test_reads_of_files_outside_the_store_are_refused():
    make_input.put("secret", b"secret")
    place = number(1) + checkpoint(ID, 1) + number(0)
    a_set = number(0) + number(1, 1, 0)
    each_is_refused(*((READ, number(0, 6) + where + text(name)) for where in (place, a_set)
                      for name in ("../../secret", "../secret", "/etc/passwd", "manifest.json", "..", "", "x" * 255, "shard-00000-of-00001.ckpt/../../../secret", "shard-00000-of-00001.ckpt\0x")))


def test_reads_of_what_is_not_there_are_refused():
    name = "shard-00000-of-00001.ckpt"
    noise_store("st", (1,), size=1000)
    identity = ids("st")[1]
    here = number(1) + checkpoint(identity, 1) + number(0) + text(name)
    each_is_refused((READ, number(0, 6) + number(1) + checkpoint(ID, 1) + number(0) + text(name)),
                    (READ, number(1 << 40, 6) + here), (READ, number((1 << 64) - 1, 6) + here), (READ, number(0, (1 << 20) + 1) + here),
                    (READ, number(0, 1 << 20) + here),
                    (MANIFEST, checkpoint(ID, 1) + number(0)), (MANIFEST, checkpoint(ID, 1) + number(1)),
                    (READ_BLOCK, checkpoint(identity, 1) + number(1, 0)), (READ_BLOCK, checkpoint(identity, 1) + number(0, 1 << 60)),
                    (RETIRE, checkpoint(ID, 1)), (COMMIT, b""))


def offer_of(manifest):
    return text(sealed(manifest)) + number(0, 0)


def test_offers_that_are_no_manifests_are_refused():
    manifest, _ = honest_store()

    def changed(**keys):
        return (PREPARE, offer_of({**manifest, **keys}))

    shards = manifest["shards"]
    each_is_refused((PREPARE, text("") + number(0, 0)), (PREPARE, text("{}") + number(0, 0)), (PREPARE, text("[" * 100000) + number(0, 0)),
                    changed(id=ID), changed(step=-1), changed(step=1 << 60), changed(shards=[]), changed(world_size=2),
                    changed(shards=[{**shards[0], "file": "../evil"}]), changed(shards=[{**shards[0], "size": -1}]),
                    changed(shards=[{**shards[0], "root": ID}]))
    check(not os.path.exists("evil"), "a file was written outside")


def test_writes_beyond_an_offer_are_refused_at_the_commit():
    manifest, data = honest_store()
    noise_store("st", (7,), size=1000)
    with Peer("st") as peer:
        peer.greet()
        peer.send(message(WRITE, number(0) + data))
        check(peer.ask(COMMIT)[0] == FAILURE, "bytes for nothing were taken")
        for writes in ([], [(1, data)], [((1 << 32) - 1, data)], [(0, data + b"x")], [(0, data[:-1])], [(0, data[-1:] + b"x")]):
            kind, payload = peer.ask(PREPARE, offer_of(manifest))
            check(kind == DONE, payload)
            for shard_number, part in writes:
                peer.send(message(WRITE, number(shard_number) + part))
            kind, payload = peer.ask(COMMIT)
            check(kind == FAILURE, f"{len(writes)} writes were committed")
        peer.send(message(WRITE, b"abc"))
        check(peer.ask(COMMIT)[0] == FAILURE, "a write without a shard was taken")
        check(peer.end()[0] == 0, "not a good end")
    check(steps("st") == [7], steps("st"))
    sound("st")


def test_a_manifest_that_does_not_name_what_its_container_depends_on_is_not_committed():
    drift_store("real", 2, size=2000)
    manifest = manifest_of("real", 2)
    with open(f"real/0000000002/{manifest['shards'][0]['file']}", "rb") as f:
        data = f.read()
    manifest["depends_on"] = []
    sync("real@1", "st")
    with Peer("st") as peer:
        peer.greet()
        check(peer.ask(PREPARE, offer_of(manifest))[0] == DONE, "not prepared")
        peer.send(message(WRITE, number(0) + data))
        check(peer.ask(COMMIT)[0] == FAILURE, "it was committed")
    check(steps("st") == [1], steps("st"))


def test_a_manifest_of_another_step_than_its_container_is_not_committed():
    manifest, data = honest_store()
    manifest["step"] = 7
    noise_store("st", (1,), size=1000)
    with Peer("st") as peer:
        peer.greet()
        check(peer.ask(PREPARE, offer_of(manifest))[0] == DONE, "not prepared")
        peer.send(message(WRITE, number(0) + data))
        check(peer.ask(COMMIT)[0] == FAILURE, "it was committed")
        peer.end()
    check(steps("st") == [1], steps("st"))
    sound("st")


def test_a_client_that_dies_with_a_transfer_under_way_leaves_nothing_visible():
    manifest, data = honest_store()
    noise_store("st", (5,), size=1000)
    with Peer("st") as peer:
        peer.greet()
        check(peer.ask(PREPARE, offer_of(manifest))[0] == DONE, "not prepared")
        peer.send(message(WRITE, number(0) + data[:1000]))
        code, err = peer.end()
        check(code == 0, err)
    check(steps("st") == [5], steps("st"))
    sync("real", "st")
    check(steps("st") == [1, 5], steps("st"))
    sound("st")
    nothing_left("st")


def test_a_client_of_a_later_version_is_answered_in_this_one():
    noise_store("st", (1,), size=1000)
    with Peer("st") as peer:
        peer.send(message(HELLO, text("ckpt-sync") + number(7, 0xFF) + b"and more that this version doesn't know"))
        kind, payload = peer.receive()
        check(kind == HELLO and payload == text("ckpt-sync") + number(1, 0), payload)
        check(peer.ask(INVENTORY)[0] == DONE, "it isn't served")


def test_a_server_of_a_later_version_is_spoken_to_in_this_one():
    noise_store("a", (1,), size=1000)
    later = message(HELLO, text("ckpt-sync") + number(9, 0xFF) + b"more")
    sync(*answering(later, message(DONE, inventory(entry(ids("a")[1], 1))), message(DONE, inventory(entry(ids("a")[1], 1)))), "a", "host:b", stdout=False)


def test_a_flood_of_requests_costs_no_memory():
    noise_store("st", (1,), size=1000)
    with Peer("st") as peer:
        peer.greet()
        reader = threading.Thread(target=lambda: [peer.receive() for _ in range(20000)])
        reader.start()
        flood = message(INVENTORY) * 100
        for _ in range(200):
            peer.send(flood)
        reader.join(timeout=120)
        with open(f"/proc/{peer.process.pid}/status") as f:
            peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
        check(SANITIZED or peak < 100000, f"{peak} KiB")
        check(peer.end()[0] == 0, "not a good end")


if __name__ == "__main__":
    tap.main()
