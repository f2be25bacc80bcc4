# SPDX-License-Identifier: Apache-2.0
# A small container cut at any byte, and with any bit flipped: verify names it, restore refuses or gives the right
# bytes, repair mends it. CKPT_TEST_EVERY=1: every byte is tried; and with CKPT_DAMAGE_ALL=1 each of its bits.
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
from sampling import sampled
from tap import check, main, run

ALL = os.environ.get("CKPT_DAMAGE_ALL") == "1"
BATCH = 64


def get(path):
    with open(path, "rb") as f:
        return f.read()


def content(root):
    found = {}
    for base, _, files in os.walk(root):
        for name in files:
            path = os.path.join(base, name)
            found[os.path.relpath(path, root)] = get(path)
    return found


class Victim:
    """A store of one checkpoint whose container is `data`, and as many copies of it as a batch has."""

    def __init__(self, large=False):
        os.mkdir("run")
        make_input.safetensors("run/model.safetensors", 1, 60 if not large else 40000)
        make_input.put("run/notes.txt", b"notes\n")
        if large:
            make_input.put("run/noise", make_input.noise(1, 5000000))
            make_input.torch("run/state.pt", 1, 30000)
        run("ckpt-save", "run", "st@1", stderr=False)
        self.want = content("run")
        self.dir = "0000000001"
        self.shard = next(n for n in os.listdir(f"st/{self.dir}") if n.endswith(".ckpt"))
        self.data = get(f"st/{self.dir}/{self.shard}")
        self.manifest = get(f"st/{self.dir}/manifest.json")

    def copies(self, variants, name=None):
        """Stores s0, s1, ...: each with one variant of the container, or of the named file."""
        addresses = []
        for i, data in enumerate(variants):
            shutil.rmtree(f"s{i}", ignore_errors=True)
            os.makedirs(f"s{i}/{self.dir}")
            for path in ("ckpt-store.json", f"{self.dir}/manifest.json", f"{self.dir}/{self.shard}"):
                make_input.put(f"s{i}/{path}", get(f"st/{path}"))
            make_input.put(f"s{i}/{name or self.dir + '/' + self.shard}", data)
            addresses.append(f"s{i}")
        return addresses

    def restore_is_right_or_refused(self, store, what):
        shutil.rmtree("out", ignore_errors=True)
        done = run("ckpt-restore", store + "@1", "out", expect=(0, 2))
        got = content("out")
        if done.returncode == 0:
            check(got == self.want, lambda: f"{what}: restore gave wrong bytes")
        else:
            check(not got, lambda: f"{what}: restore failed and left {list(got)}")
            check(done.stderr, lambda: f"{what}: restore failed without a message")


def batches(items):
    items = list(items)
    for i in range(0, len(items), BATCH):
        yield items[i:i + BATCH]


def found_damaged(stores, items, *options, kinds=None):
    """verify says 1, and names every one of the stores."""
    done = run("ckpt-verify", "--json", *options, *stores, expect=(1,), stderr=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    named = {row["checkpoint"].split("@")[0] for row in rows if row["type"] == "damage"}
    check(named == set(stores), lambda: f"not found by verify {options}: "
          f"{[items[int(s[1:])] for s in sorted(set(stores) - named)]}")
    if kinds:
        seen = {row["kind"] for row in rows if row["type"] == "damage"}
        check(seen <= kinds, lambda: f"damage of kind {seen}, not {kinds}")


def flipped(data, position):
    at, bit = position
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1:]


def positions(size):
    return sampled((at, bit) for at in range(size) for bit in (range(8) if ALL else (at * 5 % 8,)))


def test_a_container_cut_at_any_byte():
    victim = Victim()
    for sizes in batches(sampled(range(len(victim.data)))):
        stores = victim.copies(victim.data[:n] for n in sizes)
        for options in ((), ("--quick",), ("--deep",)):
            found_damaged(stores, sizes, *options, kinds={"truncated"})
        for store, n in zip(stores, sizes):
            victim.restore_is_right_or_refused(store, f"cut to {n} bytes")


def test_a_container_with_one_flipped_bit_anywhere():
    victim = Victim()
    for flips in batches(positions(len(victim.data))):
        stores = victim.copies(flipped(victim.data, f) for f in flips)
        found_damaged(stores, flips)
        found_damaged(stores, flips, "--deep")
        for store, flip in zip(stores, flips):
            victim.restore_is_right_or_refused(store, f"flipped {flip}")


def test_a_flipped_bit_anywhere_is_mended():
    victim = Victim()
    for flips in batches(positions(len(victim.data))):
        stores = victim.copies(flipped(victim.data, f) for f in flips)
        mended(victim, stores, flips)


def mended(victim, stores, flips):
    done = run("ckpt-verify", "--repair", "--json", *stores, expect=(0, 1))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    failed = [flips[int(row["checkpoint"].split("@")[0][1:])] for row in rows
              if row["type"] == "damage" and not row["repaired"]]
    check(done.returncode == 0 and not failed, lambda: f"not mended: {failed[:20]} of {len(flips)}: "
          f"{[row.get('repair') for row in rows if row['type'] == 'damage'][:3]} {done.stderr[:300]!r}")
    run("ckpt-verify", "--deep", *stores, stdout=False, stderr=False)
    for store, flip in zip(stores, flips):
        with open(f"{store}/{victim.dir}/manifest.json") as f:
            name = json.load(f)["shards"][0]["file"]
        check(get(f"{store}/{victim.dir}/{name}") == victim.data, f"flipped {flip}: the mended container is another")


def test_a_flipped_bit_in_every_region_of_a_large_container():
    victim = Victim(large=True)
    size = len(victim.data)
    places = {0, 9, 33, 57, 63, 64, 70, 100, 200, 65535, 65536, 131071, size // 2, size // 3, size - 1, size - 5,
              size - 20, size - 60, size - 100, size - 127, size - 129, size - 200, size - 1500, size - 4000}
    places |= {size * k // 37 for k in range(37)}
    flips = [(at, (at * 3 + 1) % 8) for at in sorted(places)]
    for some in [flips[i:i + 12] for i in range(0, len(flips), 12)]:
        stores = victim.copies(flipped(victim.data, f) for f in some)
        found_damaged(stores, some)
        for store, flip in zip(stores, some):
            victim.restore_is_right_or_refused(store, f"flipped {flip}")
        mended(victim, stores, some)


def test_sectors_that_are_zeroed_swapped_or_filled():
    victim = Victim(large=True)
    size, damages = len(victim.data), []
    for at in sorted({0, 512, 4096, size // 2 // 512 * 512, (size - 512) // 512 * 512} | {size * k // 11 // 512 * 512 for k in range(11)}):
        old = victim.data[at:at + 512]
        for what, new in (("zeroed", bytes(len(old))), ("filled", b"\xff" * len(old)),
                          ("of another place", victim.data[4096 * 3:4096 * 3 + len(old)])):
            if new != old:
                damages.append((f"{what} at {at}", victim.data[:at] + new + victim.data[at + len(old):]))
    for some in [damages[i:i + 12] for i in range(0, len(damages), 12)]:
        names = [name for name, _ in some]
        stores = victim.copies(data for _, data in some)
        found_damaged(stores, names)
        found_damaged(stores, names, "--deep")
        for store, name in zip(stores, names):
            victim.restore_is_right_or_refused(store, name)
        run("ckpt-verify", "--repair", *stores, expect=(0, 1))
        for store, name in zip(stores, names):
            victim.restore_is_right_or_refused(store, name + ", after a repair")


def test_two_flipped_bits_never_become_wrong_bytes():
    victim = Victim()
    pairs = [(at, (at * 7 + 100 * k) % len(victim.data)) for k in (1, 2) for at in range(0, len(victim.data), 11)]
    pairs = [(a, b) for a, b in pairs if a != b]
    for some in batches(sampled(pairs)):
        stores = victim.copies(flipped(flipped(victim.data, (a, 1)), (b, 6)) for a, b in some)
        found_damaged(stores, some)
        run("ckpt-verify", "--repair", *stores, expect=(0, 1))
        for store, pair in zip(stores, some):
            victim.restore_is_right_or_refused(store, f"flipped {pair}")


def test_a_manifest_cut_at_any_byte():
    victim = Victim()
    for sizes in batches(sampled(range(len(victim.manifest)))):
        stores = victim.copies((victim.manifest[:n] for n in sizes), f"{victim.dir}/manifest.json")
        found_damaged(stores, sizes)
        for store, n in zip(stores, sizes):
            victim.restore_is_right_or_refused(store, f"manifest cut to {n} bytes")


def test_a_manifest_with_one_flipped_bit_anywhere():
    victim = Victim()
    for flips in batches(positions(len(victim.manifest))):
        stores = victim.copies((flipped(victim.manifest, f) for f in flips), f"{victim.dir}/manifest.json")
        found_damaged(stores, flips)
        found_damaged(stores, flips, "--quick")
        for store, flip in zip(stores, flips):
            victim.restore_is_right_or_refused(store, f"manifest flipped {flip}")


def test_a_store_description_with_one_flipped_bit_anywhere():
    victim = Victim()
    data = get("st/ckpt-store.json")
    for flips in batches(positions(len(data))):
        stores = victim.copies((flipped(data, f) for f in flips), "ckpt-store.json")
        for store, flip in zip(stores, flips):
            run("ckpt-verify", store, expect=(1,), stdout=True)
            victim.restore_is_right_or_refused(store, f"description flipped {flip}")


if __name__ == "__main__":
    main()
