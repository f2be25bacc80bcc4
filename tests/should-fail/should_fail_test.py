# SPDX-License-Identifier: Apache-2.0
# Crafted stores: right checksums, one false statement. verify says damaged (1) or that it can't look (2), restore
# refuses (2), nothing is written outside the destination, no tool crashes, hangs or takes memory without bound.
import functools
import json
import os
import resource
import shutil
import struct
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
from craft import Container, Verbatim, cbor, checkpoint_id, numbers, seal, seal_object, set_numbers, zstd
from sampling import sampled
from tap import check, main, run

SHARD = "shard-00000-of-00001.ckpt"
BIG = (1 << 64) - 8
SANITIZED = "ASAN_OPTIONS" in os.environ
TESTS = []


def bound():
    # A sanitizer maps terabytes.
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))


# Looking for leaks is a third of what a sanitized process takes; one command of each kind that reads a store does it.
QUIET_LEAKS = {"ASAN_OPTIONS": os.environ["ASAN_OPTIONS"] + ":detect_leaks=0"} if SANITIZED else {}


def tool(*command, expect, leaks=False):
    done = run(*command, expect=None, timeout=60, env={} if leaks else QUIET_LEAKS)
    check(done.returncode in expect,
          lambda: f"{done.returncode}, not one of {expect}: {command}\n{done.stdout[:800]!r}\n{done.stderr[:800]!r}")
    check(done.returncode != 2 or done.stderr, lambda: f"2 without a message: {command}")
    check(done.returncode != 1 or done.stdout or "--exists" in command, lambda: f"1 without a finding: {command}")
    return done


@functools.cache
def template():
    """A directory that holds what was saved and its store; each test changes a copy."""
    top = tempfile.TemporaryDirectory(prefix="ckpt-test.")
    here = os.getcwd()
    os.chdir(top.name)
    save_template()
    os.chdir(here)
    return top


def make_store():
    for name in ("run", "st"):
        shutil.copytree(os.path.join(template().name, name), name, symlinks=True)


def save_template():
    os.mkdir("run")
    make_input.directory("run", 1, 400)
    make_input.put("run/zz-large.dat", make_input.noise(1, 70000))
    os.link("run/empty.txt", "run/hard")
    os.symlink("empty.txt", "run/link")
    for entry in ("run/empty.txt", "run/hard"):
        os.chmod(entry, 0o644)
    run("ckpt-save", "--encode=raw", "run", "st@1", stderr=False)


def refuses(verify=(1, 2), restore=(2,), stored=None, values=True):
    """`stored`: what verify says that looks at stored bytes only, if it may differ from --deep. Without `values` no
    tensor is read as such."""
    listing = sorted(os.listdir("."))
    tool("ckpt-verify", "st", expect=stored or verify)
    tool("ckpt-verify", "--deep", "st", expect=verify, leaks=True)
    tool("ckpt-verify", "--quick", "st", expect=(0, 1, 2))
    tool("ckpt-restore", "st@1", "dest", expect=restore, leaks=True)
    tool("ckpt-restore", "--force", "--by-rank", "st@1", "dest2", expect=restore)
    tool("ckpt-ls", "--tensors", *(["--stats"] if values else []), "st@1", expect=(0, 2), leaks=True)
    for options in (["st"], ["--sums", "st@1"], ["--json", "st@1"]):
        tool("ckpt-ls", *options, expect=(0, 2))
    tool("ckpt-ls", "--exists", "st", expect=(0, 1, 2))
    if values:
        tool("ckpt-diff", "st@1", "run", expect=(0, 1, 2))
        tool("ckpt-diff", "--whole", "-s", "--plot=out.svg", "st@1", "st@1", expect=(0, 2))
        tool("ckpt-restore", "--tensor=*", "--as=tar", "-o", "out.tar", "st@1", expect=(0, 2))
    for made in ("dest", "dest2", "out.tar", "out.svg"):
        if os.path.isdir(made):
            left = [os.path.join(b, f) for b, _, fs in os.walk(made) for f in fs]
            check(0 in restore or not left, lambda: f"files in {made}: {left}")
            shutil.rmtree(made)
        elif os.path.exists(made):
            os.remove(made)
    check(sorted(os.listdir(".")) == listing, lambda: f"files outside the destination: {os.listdir('.')}")


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def put_container(shard, name="st/0000000001"):
    """Puts a container into its checkpoint, with a manifest that believes in it."""
    data = shard.build()
    write(f"{name}/{SHARD}", data)
    path = f"{name}/manifest.json"
    with open(path) as f:
        manifest = json.load(f)
    manifest["shards"][0].update(size=len(data), root=shard.built_root.hex(), digest=shard.digest.hex())
    manifest["id"] = checkpoint_id(manifest["shards"])
    with open(path, "w") as f:
        f.write(seal_object(manifest))


def load_container():
    with open(f"st/0000000001/{SHARD}", "rb") as f:
        return Container(f.read())


def container(title, **expected):
    """A test whose function edits the container."""
    def decorate(edit):
        def test():
            make_store()
            shard = load_container()
            edit(shard)
            put_container(shard)
            refuses(**expected)
        TESTS.append((title, test))
        return edit
    return decorate


def manifest(title, **expected):
    """A test whose function edits the manifest, as an object; or gives its text."""
    def decorate(edit):
        def test():
            make_store()
            path = "st/0000000001/manifest.json"
            with open(path) as f:
                value = json.load(f)
            text = edit(value)
            write(path, (text if text is not None else seal_object(value)).encode("utf-8", "surrogateescape"))
            refuses(**expected)
        TESTS.append((title, test))
        return edit
    return decorate


def store(title, **expected):
    """A test whose function changes the store's directory."""
    def decorate(edit):
        def test():
            make_store()
            edit()
            refuses(**expected)
        TESTS.append((title, test))
        return edit
    return decorate


def edit_file(shard, name, **changes):
    files = shard.files()
    for f in files:
        if f["path"] == name:
            f.update(changes)
    files.sort(key=lambda f: f["path"])
    shard.set_files(files)


def add_file(shard, path, **more):
    files = shard.files()
    files.append({"type": 0, "mode": 0o644, "size": 0, "mtime_ns": 0, "kind": files[0]["kind"], "blocks": 0,
                  "extents": 0, "tensors": 0, "path": path, "target": b"", "note": b"", **more})
    files.sort(key=lambda f: f["path"])
    shard.set_files(files)


# The crafting itself must be sound: a container that was only taken apart and put together is good.
@container("a container that was rebuilt without a change is intact", verify=(0,), restore=(0,))
def _(shard):
    pass


@container("a container with a compressed catalog is intact", verify=(0,), restore=(0,))
def _(shard):
    shard.catalog_zstd = len(cbor(shard.catalog))


@container("a container with an unknown compat flag is intact", verify=(0,), restore=(0,))
def _(shard):
    shard.edit_header = lambda h: struct.pack_into("<Q", h, 16, 1 << 40)
    shard.edit_footer = lambda f: struct.pack_into("<Q", f, 72, 1 << 40)


@container("a container with an unknown ro_compat flag can be read", verify=(0,), restore=(0,))
def _(shard):
    shard.edit_header = lambda h: struct.pack_into("<Q", h, 24, 1)
    shard.edit_footer = lambda f: struct.pack_into("<Q", f, 80, 1)


@container("a container with a higher minor version and an unknown index column can be read", verify=(0,), restore=(0,))
def _(shard):
    shard.edit_header = lambda h: struct.pack_into("<H", h, 10, 7)
    shard.edit_footer = lambda f: struct.pack_into("<H", f, 98, 7)
    shard.edit_index = lambda index: index["blocks"].update(newer=b"abc")


for where, path in (("a parent directory", b"../escape"), ("an absolute path", b"/tmp/ckpt-escape"),
                    ("a parent inside a path", b"sub/../../escape"), ("a dot component", b"./escape"),
                    ("an empty component", b"sub//escape"), ("a trailing slash", b"escape/"), ("no name", b""),
                    ("a NUL byte", b"esc\0ape"), ("two dots alone", b".."), ("a name that's too long", b"x" * 70000),
                    ("a path a thousand directories too deep", b"/".join([b"d"] * 5000))):
    def _(shard, path=path):
        add_file(shard, path)
    container(f"a path with {where}")(_)


@container("a path that is there twice")
def _(shard):
    add_file(shard, b"state.pt")


@container("paths out of order")
def _(shard):
    files = shard.files()
    names = [f["path"] for f in files]
    one, two = names.index(b"empty.txt"), names.index(b"sub/empty")
    files[one]["path"], files[two]["path"] = b"zzz", b"aaa"
    shard.set_files(files)


@container("a file below a file")
def _(shard):
    add_file(shard, b"empty.txt/below")


@container("a file below a symlink")
def _(shard):
    add_file(shard, b"link/below")


for where, target in (("leaves the tree", b"../../escape"), ("is absolute", b"/etc"), ("is empty", b""),
                      ("leaves through a name", b"sub/../../escape"), ("has a NUL byte", b"a\0b")):
    def _(shard, target=target):
        edit_file(shard, b"link", target=target)
    container(f"a symlink whose target {where}")(_)

for where, target in (("outside", b"../escape"), ("absolute", b"/etc/passwd"), ("missing", b"nothing"),
                      ("itself", b"zz-hard"), ("a directory", b"sub"), ("a symlink", b"link")):
    def _(shard, target=target):
        add_file(shard, b"zz-hard", type=3, target=target)
    container(f"a hard link to something {where}")(_)


@container("two hard links to each other")
def _(shard):
    add_file(shard, b"zy-hard", type=3, target=b"zz-hard")
    add_file(shard, b"zz-hard", type=3, target=b"zy-hard")


@container("a directory with content")
def _(shard):
    files = shard.files()
    next(f for f in files if f["size"] > 0)["type"] = 1
    shard.set_files(files)


for column, value in (("type", 9), ("kind", 250), ("mode", 0o7777777), ("size", 1 << 63), ("size", 0),
                      ("blocks", BIG), ("blocks", 1000), ("extents", BIG), ("tensors", BIG), ("tensors", 1 << 32)):
    def _(shard, column=column, value=value):
        edit_file(shard, b"state.pt", **{column: value})
    container(f"a file whose {column} is {value}")(_)


@container("overlapping extents")
def _(shard):
    table = shard.catalog["extents"]
    offsets = numbers(table, "offset", "Q")
    offsets[1] = offsets[0]
    set_numbers(table, "offset", "Q", offsets)


for what, offset, size in (("beyond its file", 1 << 40, 8), ("that wraps around", BIG, 64), ("of no bytes", 0, 0),
                           ("of all bytes there are", 0, (1 << 64) - 1)):
    def _(shard, offset=offset, size=size):
        table = shard.catalog["extents"]
        for column, value in (("offset", offset), ("size", size)):
            values = numbers(table, column, "Q")
            values[-1] = value
            set_numbers(table, column, "Q", values)
    container(f"an extent {what}")(_)

for what, column, code, change in (
        ("beyond its file", "offset", "Q", lambda v: [1 << 40] * len(v)),
        ("at the end of all offsets", "offset", "Q", lambda v: [(1 << 64) - 1] * len(v)),
        ("with a huge stride", "stride", "q", lambda v: [1 << 62] * len(v)),
        ("with a negative stride", "stride", "q", lambda v: [-(1 << 40)] * len(v)),
        ("with a huge shape", "shape", "q", lambda v: [1 << 62] * len(v)),
        ("with a shape whose product wraps", "shape", "q", lambda v: [1 << 32] * len(v)),
        ("with a negative shape", "shape", "q", lambda v: [-1] * len(v)),
        ("with an unknown dtype", "dtype", "B", lambda v: [255] * len(v)),
        ("with an unknown layout", "layout", "B", lambda v: [255] * len(v)),
        ("with unknown flags", "flags", "B", lambda v: [255] * len(v)),
        ("with more dimensions than there are", "dims", "B", lambda v: [255] * len(v)),
        ("with fewer dimensions than there are", "dims", "B", lambda v: [0] * len(v)),
        ("whose column ends early", "offset", "Q", lambda v: v[:-1])):
    def _(shard, column=column, code=code, change=change):
        table = shard.catalog["tensors"]
        set_numbers(table, column, code, change(numbers(table, column, code)))
    container(f"a tensor {what}")(_)


@container("an expanded tensor of no strides and 2^60 elements is no reason to take memory", verify=(0,), restore=(0,), values=False)
def _(shard):
    table = shard.catalog["tensors"]
    set_numbers(table, "stride", "q", [0] * len(numbers(table, "stride", "q")))
    shape = numbers(table, "shape", "q")
    set_numbers(table, "shape", "q", [1 << 30 if len(shape) > 1 else 1] * len(shape))


for what, change in (("of no bytes", lambda v: [0] + v[1:]), ("above the limit", lambda v: [5 << 20] + v[1:]),
                     ("that wraps around", lambda v: [BIG] + v[1:]), ("too few", lambda v: v[:-1]),
                     ("too many", lambda v: v + [1])):
    def _(shard, change=change):
        table = shard.catalog["blocks"]
        set_numbers(table, "size", "Q", change(numbers(table, "size", "Q")))
    container(f"catalog blocks {what}")(_)

for what, column, code, value in (("an unknown codec", "codec", "B", 200), ("a place outside", "place", "Q", 1 << 40),
                                  ("a place that wraps", "place", "Q", BIG), ("a place in the header", "place", "Q", 0),
                                  ("no raw size", "raw_size", "Q", 0), ("a huge raw size", "raw_size", "Q", 1 << 50),
                                  ("a huge stored size", "stored_size", "Q", BIG)):
    def _(shard, column=column, code=code, value=value):
        def edit(index):
            values = numbers(index["blocks"], column, code)
            values[0] = value
            set_numbers(index["blocks"], column, code, values)
        shard.edit_index = edit
    container(f"an index block with {what}")(_)


@container("two blocks at one place")
def _(shard):
    def edit(index):
        places = numbers(index["blocks"], "place", "Q")
        places[-1] = places[0]
        set_numbers(index["blocks"], "place", "Q", places)
    shard.edit_index = edit


for column, value in (("place", 0), ("place", BIG), ("payload", BIG), ("payload", 8), ("payload_size", BIG),
                      ("payload_size", 1 << 50), ("blocks", 0), ("blocks", BIG)):
    def _(shard, column=column, value=value):
        shard.edit_index = lambda index: set_numbers(index["frames"], column, "Q", [value])
    container(f"a frame whose {column} is {value}")(_)


@container("a hash of another block in the index, and the root that follows from it")
def _(shard):
    def edit(index):
        hashes = index["blocks"]["hash"]
        index["blocks"]["hash"] = hashes[-16:] + hashes[16:]
    shard.edit_index = edit


@container("a root that doesn't follow from the blocks")
def _(shard):
    shard.root = bytes(16)


for what, document in (("nested ten thousand deep", b"\x81" * 10000 + b"\x00"),
                       ("with a list of 2^60 items", b"\x9b" + struct.pack(">Q", 1 << 60)),
                       ("with a map of 2^60 items", b"\xbb" + struct.pack(">Q", 1 << 60)),
                       ("with a text of 2^63 bytes", b"\xa1\x7b" + struct.pack(">Q", 1 << 63)),
                       ("of indefinite length", b"\xbf\xff"), ("with a tag", b"\xc0\xa0"), ("that is empty", b""),
                       ("that is a number", b"\x00"), ("that is an empty map", b"\xa0"),
                       ("with bytes after its end", b"\xa0\x00"), ("with a float", b"\xa1\x61a\xfb" + bytes(8)),
                       ("with a key that isn't a text", b"\xa1\x01\x02"),
                       ("with a million empty lists", b"\x9a" + struct.pack(">I", 2000000) + b"\x80" * 2000000)):
    def _(shard, document=document):
        shard.index_cbor = document
    container(f"an index {what}")(_)

    def _(shard, document=document):
        shard.catalog_cbor = document
    container(f"a catalog {what}")(_)


@container("a catalog whose table is a list")
def _(shard):
    shard.catalog["files"] = [1, 2, 3]
    shard.root = bytes(16)


@container("a catalog whose column is a text")
def _(shard):
    shard.catalog["files"]["size"] = "many"
    shard.root = bytes(16)


@container("a catalog whose text ends run backwards")
def _(shard):
    ends = numbers(shard.catalog["files"], "path_end", "Q")
    ends[0], ends[-1] = ends[-1], ends[0]
    set_numbers(shard.catalog["files"], "path_end", "Q", ends)


@container("a catalog whose text ends wrap around")
def _(shard):
    ends = numbers(shard.catalog["files"], "path_end", "Q")
    ends[-1] = (1 << 64) - 1
    set_numbers(shard.catalog["files"], "path_end", "Q", ends)


@container("a catalog with the same key twice")
def _(shard):
    body = b"".join(cbor(k) + cbor(v) for k, v in shard.catalog.items())
    evil = dict(shard.catalog["files"])
    names = [f["path"] for f in shard.files()]
    evil["path"] = b"".join(n if n != b"empty.txt" else b"../escaxe"[:len(n)] for n in names)
    shard.catalog_cbor = bytes([0xA0 | (len(shard.catalog) + 1)]) + body + cbor("files") + cbor(evil)


@container("a catalog of another rank", restore=(0, 2))
def _(shard):
    shard.catalog["shard"].update(rank=1, world_size=2)


@container("a catalog whose rank isn't below its world size")
def _(shard):
    shard.catalog["shard"].update(rank=5)


@container("a catalog of another step", restore=(0, 2))
def _(shard):
    shard.catalog["shard"].update(step=99)


@container("a catalog that says it is 3 GiB when unpacked")
def _(shard):
    shard.catalog_zstd = 3 << 30


@container("a catalog that says it is 2^63 bytes when unpacked")
def _(shard):
    shard.catalog_zstd = 1 << 63


@container("a zstd block that holds more than it says", stored=(0, 1))
def _(shard):
    raw = shard.blocks[0]
    shard.encode[0] = (1, zstd(raw + raw))


@container("a zstd block whose frame claims 2^60 bytes", stored=(0, 1))
def _(shard):
    shard.encode[0] = (1, b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 60) + b"\x01\x00\x00")


@container("a zstd block with garbage after its frame", stored=(0, 1))
def _(shard):
    raw = bytes(len(shard.blocks[0]))
    shard.blocks[0] = raw
    shard.encode[0] = (1, zstd(raw) + b"garbage")


@container("a zstd block that isn't a frame", stored=(0, 1))
def _(shard):
    shard.encode[0] = (1, b"garbage")


@container("a block with a right checksum all the way and another content is what the id says", verify=(0,), restore=(0,))
def _(shard):
    shard.blocks[-1] = b"y" * len(shard.blocks[-1])


for what, at, value in (("index beyond the file", 0, 1 << 40), ("index that wraps", 0, BIG), ("index in the header", 0, 8),
                        ("index of 2^63 bytes", 8, 1 << 63), ("index of no bytes", 8, 0), ("sums beyond the file", 32, 1 << 40),
                        ("sums in the header", 32, 0), ("sums of no bytes", 40, 0), ("sums of 2^63 bytes", 40, 1 << 63),
                        ("file size of another file", 64, 12345), ("file size of nothing", 64, 0)):
    def _(shard, at=at, value=value):
        shard.edit_footer = lambda f: struct.pack_into("<Q", f, at, value)
    container(f"a footer with an {what}" if what[0] in "ai" else f"a footer with a {what}")(_)


@container("a footer with wrong sums and a right checksum over them", verify=(1,), restore=(0, 2))
def _(shard):
    original = shard.build()
    at, size = struct.unpack_from("<QQ", original, len(original) - 128 + 32)

    def build():
        data = bytearray(original)
        data[at:at + size] = bytes(size)
        from craft import hash128
        data[-128 + 48:-128 + 64] = hash128(data[at:at + size])
        data[-24:-8] = hash128(data[-128:-24])
        shard.digest = bytes(data[-24:-8])
        return bytes(data)
    shard.build = build


@container("a header of major version 2")
def _(shard):
    shard.edit_header = lambda h: struct.pack_into("<H", h, 8, 2)
    shard.edit_footer = lambda f: struct.pack_into("<H", f, 96, 2)


@container("a header with an unknown incompat flag")
def _(shard):
    shard.edit_header = lambda h: struct.pack_into("<Q", h, 32, 1 << 5)
    shard.edit_footer = lambda f: struct.pack_into("<Q", f, 88, 1 << 5)


@container("a footer with an unknown incompat flag that the header doesn't show")
def _(shard):
    shard.edit_footer = lambda f: struct.pack_into("<Q", f, 88, 1 << 5)


@container("a header with bytes where zeros must be", verify=(0, 1, 2), restore=(0, 2))
def _(shard):
    shard.edit_header = lambda h: struct.pack_into("<I", h, 12, 1)


for what, change in (("that leaves the directory", "../escape"), ("that is absolute", "/etc/passwd"), ("with a slash", "a/b"),
                     ("that is empty", ""), ("that is the directory", "."), ("with a NUL", "a\0b"),
                     ("that is the manifest", "manifest.json"), ("that is not there", "nothing.ckpt")):
    def _(value, change=change):
        value["shards"][0]["file"] = change
    manifest(f"a manifest with a shard name {what}")(_)


@manifest("a manifest with a shard twice")
def _(value):
    value["shards"].append(dict(value["shards"][0]))


@manifest("a manifest with a shard twice and a world of two", restore=(0, 2))
def _(value):
    value["shards"].append(dict(value["shards"][0], rank=1))
    value["world_size"] = 2
    value["id"] = checkpoint_id(value["shards"])


@manifest("a manifest without shards")
def _(value):
    value["shards"] = []


@manifest("a manifest with a world of 2^40")
def _(value):
    value["world_size"] = 1 << 40


@manifest("a manifest with a world of a million")
def _(value):
    value["world_size"] = 1000000


@manifest("a manifest of another step than its directory")
def _(value):
    value["step"] = 2


for key in ("id", "step", "attempt", "world_size", "shards", "format", "version", "incompat"):
    def _(value, key=key):
        del value[key]
    manifest(f"a manifest without {key}")(_)

    def _(value, key=key):
        value[key] = {"a": [1, None, "x"]}
    manifest(f"a manifest with an object for {key}")(_)

for number in (-1, 1.5, 1 << 64, 10**400, "1"):
    def _(value, number=number):
        value["step"] = number
    manifest(f"a manifest whose step is {str(number)[:20]!r} as {type(number).__name__}")(_)


@manifest("a manifest with another id")
def _(value):
    value["id"] = "0" * 32


@manifest("a manifest with another root")
def _(value):
    value["shards"][0]["root"] = "0" * 32
    value["id"] = checkpoint_id(value["shards"])


@manifest("a manifest with another size of the shard", restore=(0, 2))
def _(value):
    value["shards"][0]["size"] += 1


@manifest("a manifest with another digest of the shard")
def _(value):
    value["shards"][0]["digest"] = "0" * 32


@manifest("a manifest of version 2")
def _(value):
    value["version"] = [2, 0]


@manifest("a manifest with an unknown incompat flag")
def _(value):
    value["incompat"] = 4


@manifest("a manifest with an unknown compat flag is intact", verify=(0,), restore=(0,))
def _(value):
    value["compat"] = 4


@manifest("a manifest with an unknown field is intact", verify=(0,), restore=(0,))
def _(value):
    value["newer"] = {"x": [1, 2]}


@manifest("a manifest nested a million deep")
def _(value):
    return seal('{"a":' + "[" * 1000000 + "]" * 1000000 + "}")


@manifest("a manifest that is cut short")
def _(value):
    return seal_object(value)[:200]


@manifest("a manifest that is empty")
def _(value):
    return ""


@manifest("a manifest that isn't UTF-8")
def _(value):
    value["meta"] = {"k": "MARK"}
    return seal(seal_object(value).replace("MARK", "\udcff\udcfe").rsplit(",", 1)[0] + "}")


@manifest("a manifest with a field twice")
def _(value):
    text = json.dumps(value)[:-1].rsplit(', "xxh3_128"', 1)[0]
    return seal(text + ', "shards": []}')


@manifest("a manifest without its checksum")
def _(value):
    return json.dumps({k: v for k, v in value.items() if k != "xxh3_128"}, indent=2) + "\n"


@store("a manifest of 300 MiB")
def _():
    with open("st/0000000001/manifest.json", "ab") as f:
        f.truncate(300 << 20)


@store("a manifest that is a directory")
def _():
    os.remove("st/0000000001/manifest.json")
    os.mkdir("st/0000000001/manifest.json")


@store("a manifest that is a pipe")
def _():
    os.remove("st/0000000001/manifest.json")
    os.mkfifo("st/0000000001/manifest.json")


@store("a shard that is a pipe")
def _():
    os.remove(f"st/0000000001/{SHARD}")
    os.mkfifo(f"st/0000000001/{SHARD}")


@store("a shard that is a directory")
def _():
    os.remove(f"st/0000000001/{SHARD}")
    os.mkdir(f"st/0000000001/{SHARD}")


@store("a shard that is an endless device")
def _():
    os.remove(f"st/0000000001/{SHARD}")
    os.symlink("/dev/zero", f"st/0000000001/{SHARD}")


@store("a shard that is empty")
def _():
    write(f"st/0000000001/{SHARD}", b"")


@store("a shard of zeros")
def _():
    write(f"st/0000000001/{SHARD}", bytes(os.path.getsize(f"st/0000000001/{SHARD}")))


@store("a shard with bytes after its footer")
def _():
    with open(f"st/0000000001/{SHARD}", "ab") as f:
        f.write(bytes(1000))


def edit_description(**changes):
    with open("st/ckpt-store.json") as f:
        value = json.load(f)
    value.update(changes)
    write("st/ckpt-store.json", seal_object(value).encode())


@store("a store of version 2")
def _():
    edit_description(version=[2, 0])


@store("a store with an unknown incompat flag")
def _():
    edit_description(incompat=8)


@store("a store whose description is nested a million deep")
def _():
    write("st/ckpt-store.json", seal('{"a":' + "[" * 1000000 + "]" * 1000000 + "}").encode())


@store("a store whose description is a pipe")
def _():
    os.remove("st/ckpt-store.json")
    os.mkfifo("st/ckpt-store.json")


@store("a store with an unknown ro_compat flag can be read", verify=(0,), restore=(0,))
def _():
    edit_description(ro_compat=1)


def _():
    make_store()
    edit_description(ro_compat=1)
    before = sorted(os.listdir("st"))
    tool("ckpt-save", "run", "st@2", expect=(2,))
    check(sorted(os.listdir("st")) == before, "something was written")


TESTS.append(("a store with an unknown ro_compat flag is not written to", _))


@store("a pending set with a broken shard doesn't hurt what is committed", verify=(0,), restore=(0,))
def _():
    os.makedirs("st/.pending/0000000009.2.0", exist_ok=True)
    write("st/.pending/0000000009.2.0/shard-00000-of-00002.ckpt", b"garbage")
    write("st/.pending/0000000009.2.0/unknown", b"garbage")
    os.makedirs("st/.pending/99999999999999999999.4294967296.0", exist_ok=True)


def pickle_file(path, body):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", b"\x80\x02" + body + b".")


def ring(length):
    """A list that holds one that holds one ... that holds the first."""
    return b"]q\x01(" + b"](" * (length - 1) + b"h\x01" + b"e" * length


def _():
    # Together they have as many pairs of lists as the product of their lengths.
    pickle_file("a.pt", ring(2203))
    pickle_file("b.pt", ring(2207))
    tool("ckpt-diff", "a.pt", "b.pt", expect=(2,))
    tool("ckpt-diff", "a.pt", "a.pt", expect=(0,))


TESTS.append(("pickles whose pairs of containers have no end are not compared", _))


def _():
    # 2**60 leaves as a tree.
    body = b"K\x01q\x00" + b"".join(b"0](h\x00h\x00eq\x00" for _ in range(60))
    pickle_file("a.pt", body)
    pickle_file("b.pt", body.replace(b"K\x01", b"K\x02", 1))
    tool("ckpt-diff", "a.pt", "b.pt", expect=(1,))


TESTS.append(("a pickle that unfolds without bound is compared", _))


def _():
    for name, text in (("a", "[" * 200000 + "1" + "]" * 200000), ("b", "[" * 200000 + "2" + "]" * 200000)):
        os.mkdir(name)
        write(f"{name}/state.json", text.encode())
    tool("ckpt-diff", "a", "b", expect=(1,))
    write("b/state.json", b"[" * 3000000)
    tool("ckpt-diff", "a", "b", expect=(1,))


TESTS.append(("JSON that is nested very deep is compared", _))


if __name__ == "__main__":
    bound()  # inherited by every tool
    # Under a sanitizer they take many times as long.
    main(sampled(TESTS) if SANITIZED else TESTS)
