# SPDX-License-Identifier: Apache-2.0
# The queue door as a user meets it, against a real Redis server: saves --to a queue, servers that read --from it, and
# kill -9 of all of them. CKPT_KILL_SECONDS: for how long; CKPT_KILL_SEED: which ones.
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from redis_server import RedisServer
from tap import check, main, run

SECONDS = float(os.environ.get("CKPT_KILL_SECONDS", "15"))
SEED = int(os.environ.get("CKPT_KILL_SEED", str(random.randrange(1 << 30))))


def noise(seed, size):
    return random.Random(seed).randbytes(size)


def put(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def content(root):
    found = {}
    for base, _, files in os.walk(root):
        for name in files:
            with open(os.path.join(base, name), "rb") as file:
                found[os.path.relpath(os.path.join(base, name), root)] = hashlib.sha256(file.read()).hexdigest()
    return found


def wait_for(condition, what, seconds=60, pause=0.1):
    deadline = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < deadline, lambda: f"not within {seconds} s: {what}")
        time.sleep(pause)


class Server:
    """ckpt-serve, until the end of the block."""

    def __init__(self, redis, store="st", *options, env=None):
        self.command = ["ckpt-serve", *options, f"--from={redis.url()}", store]
        self.env = dict(os.environ, **(env or {}))
        self.start()

    def start(self):
        self.log = open("serve.log", "ab")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env=self.env)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.log.close()
        check(status in (-signal.SIGTERM, 128 + signal.SIGTERM), f"the server ended with {status}")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def is_committed(step, store="st"):
    return os.path.exists(f"{store}/{step:010}/manifest.json")


def restores(step, source, store="st"):
    run("ckpt-restore", f"{store}@{step}", f"out{step}", stderr=False)
    check(content(f"out{step}") == content(source), f"step {step} is not {source}")


def test_a_state_goes_through_the_queue_and_nothing_stays():
    put("in/large.bin", noise(1, 20_000_000))
    put("in/dir/small", b"small")
    put("in/empty", b"")
    os.symlink("dir/small", "in/link")
    with RedisServer() as redis:
        done = run("ckpt-save", f"--to={redis.url()}", "--meta=loss=0.5", "in", "@1000", stderr=False)
        check(done.stdout == b"@1000\n", done.stdout)
        with Server(redis):
            wait_for(lambda: is_committed(1000), "the checkpoint")
            wait_for(lambda: redis.keys() == [], "an empty Redis")
        restores(1000, "in")
        check(os.readlink("out1000/link") == "dir/small", "the link is another")
        with open("st/0000001000/manifest.json", encoding="utf-8") as file:
            check(json.load(file)["meta"] == {"loss": "0.5"}, "the meta data is gone")
        check(os.listdir("st/.pending/tmp") == [], "the server left something")


def test_durable_comes_back_when_it_is_stored_or_could_not_be():
    put("in/a", b"first")
    put("other/a", b"second")
    with RedisServer() as redis, Server(redis):
        done = run("ckpt-save", "--json", "--durable", f"--to={redis.url()}", "in", "@7")
        said = json.loads(done.stdout.splitlines()[1])
        check(said["state"] == "durable" and len(said["id"]) == 32, done.stdout)
        check(is_committed(7), "said to be durable and isn't")
        done = run("ckpt-save", "--durable", f"--to={redis.url()}", "other", "@7", expect=[2], stdout=False)
        check(b"couldn't store it" in done.stderr and b"7" in done.stderr, done.stderr)
        check(redis.keys() == ["q:dead"] or sorted(k.split(":")[1] for k in redis.keys()) == ["dead", "shard", "shard"],
              redis.keys())
        restores(7, "in")


def test_durable_without_a_server_is_temporary():
    put("in/a", b"first")
    with RedisServer() as redis:
        done = run("ckpt-save", "--timeout=0.3", "--durable", f"--to={redis.url()}", "in", "@7", expect=[75])
        check(b"has accepted it" in done.stderr, done.stderr)


def test_the_shards_of_a_set_meet_in_the_store():
    with RedisServer() as redis, Server(redis), Server(redis):
        for rank in range(3):
            put(f"in{rank}/r{rank}", noise(rank, 100_000))
            run("ckpt-save", f"--to={redis.url()}", f"--rank={rank}", "--world-size=3", f"in{rank}", "@5", stderr=False)
        wait_for(lambda: is_committed(5), "the checkpoint")
        wait_for(lambda: redis.keys() == [], "an empty Redis")
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


def test_queues_are_tried_in_turn():
    put("in/a", b"content")
    with RedisServer() as redis:
        done = run("ckpt-save", "--timeout=0.5", "--to=redis://127.0.0.1:1?key=q", f"--to={redis.url()}", "in", "@3")
        check(b"trying" in done.stderr, done.stderr)
        check(redis.call("XLEN", "q") == 1, "it's not there")
        run("ckpt-save", "--timeout=0.5", "--to=redis://127.0.0.1:1?key=q", "in", "@3", expect=[75], stdout=False)


def test_a_full_queue_is_temporary():
    put("in/a", noise(1, 300_000))
    with RedisServer() as redis:
        save = ["ckpt-save", f"--to={redis.url()}", "--max-staged=500K", "--timeout=0.3", "in"]
        run(*save, "@1", stderr=False)
        run(*save, "@2", expect=[75], stdout=False)
        run(*save, "--when-full=fail", "@2", expect=[75], stdout=False)
        run(*save, "--when-full=skip", "@2", expect=[2], stdout=False)
        check(redis.call("XLEN", "q") == 1, "more is there")


def test_consume_removes_the_input_once_it_is_accepted():
    put("in/a", b"content")
    run("ckpt-save", "--consume", "--timeout=0.3", "--to=redis://127.0.0.1:1?key=q", "in", "@3", expect=[75])
    check(os.path.exists("in/a"), "it's gone, and wasn't accepted")
    with RedisServer() as redis:
        run("ckpt-save", "--consume", f"--to={redis.url()}", "in", "@3", stderr=False)
    check(not os.path.exists("in/a"), "it's still there")


def test_a_redis_that_forgets_is_warned_of():
    put("in/a", b"content")
    with RedisServer("--appendonly", "no") as redis:
        done = run("ckpt-save", f"--to={redis.url()}", "in", "@3")
        check(b"append-only" in done.stderr, done.stderr)


def test_passwords_come_from_the_environment_or_a_file():
    put("in/a", b"content")
    put("secret", b"open sesame\n")
    with RedisServer("--requirepass", "open sesame") as redis:
        auth = {"REDISCLI_AUTH": "open sesame"}
        run("ckpt-save", f"--to={redis.url()}", "in", "@3", expect=[2], stdout=False)
        run("ckpt-save", f"--to={redis.url()}", "in", "@3", env=auth)
        run("ckpt-save", f"--to={redis.url()}&password-file=secret", "in", "@4")
        with Server(redis, env=auth):
            wait_for(lambda: is_committed(3) and is_committed(4), "the checkpoints")
        done = run("ckpt-save", f"--to=redis://me:open%20sesame@127.0.0.1:{redis.port}?key=q", "in", "@5", expect=[2])
        check(b"sesame" not in done.stderr, done.stderr)


def test_a_server_that_is_told_to_end_leaves_the_rest_to_others():
    put("in/a", noise(1, 30_000_000))
    with RedisServer() as redis:
        run("ckpt-save", f"--to={redis.url()}", "in", "@3", stderr=False)
        for _ in range(5):
            with Server(redis):
                time.sleep(random.random() * 0.3)
        check(is_committed(3) or redis.call("XLEN", "q") == 1, "it's lost")
        with Server(redis):
            # Far less than what a dead server's takes.
            wait_for(lambda: is_committed(3), "the checkpoint", 4)
            wait_for(lambda: redis.keys() == [], "an empty Redis")


def test_a_killed_servers_shard_is_anothers_within_ten_seconds():
    put("in/a", noise(1, 200_000_000))
    with RedisServer() as redis:
        run("ckpt-save", "--encode=raw", f"--to={redis.url()}", "in", "@3", stderr=False)
        first = Server(redis)
        scratch = lambda: os.listdir("st/.pending/tmp") if os.path.exists("st/.pending/tmp") else []
        wait_for(lambda: any(name.startswith("fetched.") for name in scratch()), "a server at work", pause=0.005)
        first.kill()
        check(not is_committed(3), "it was too quick to be killed")
        killed = time.monotonic()
        with Server(redis, "st", "-v"):
            consumers = lambda: [who[0] for who in redis.call("XPENDING", "q", "ckpt")[3] or []]
            before = consumers()
            wait_for(lambda: redis.call("EXISTS", "q") == 0 or consumers() != before, "another server")
            took = time.monotonic() - killed
            check(took < 10, f"it took {took:.1f} s")
            wait_for(lambda: redis.keys() == [], "an empty Redis")
        check(os.listdir("st/.pending/tmp") == [], "what the dead server fetched is still there")
    restores(3, "in")


class Killers:
    """Three ranks that save one step after the other, two servers, one Redis: all are killed now and then."""

    WORLD = 3

    def __init__(self):
        self.random = random.Random(SEED)
        self.redis = RedisServer()
        self.servers = [Server(self.redis), Server(self.redis)]
        self.accepted = [set() for _ in range(self.WORLD)]
        self.saves = [None] * self.WORLD
        self.stop = threading.Event()
        self.problems = []

    def guarded(self, work, *arguments):
        def guard():
            try:
                work(*arguments)
            except BaseException as problem:  # a thread's failure is the test's
                self.problems.append(repr(problem))
                self.stop.set()
        thread = threading.Thread(target=guard)
        thread.start()
        return thread

    @staticmethod
    def shard(step, rank):
        """The same whenever it's made."""
        path = f"in{rank}/state{rank}.bin"
        put(path, noise(step * 10 + rank, 6_000_000 + 3_000_000 * rank + step))
        put(f"in{rank}/small{rank}", str(step).encode())
        return content(f"in{rank}")

    def produce(self, rank):
        step = 0
        while not self.stop.is_set():
            step += 1
            self.shard(step, rank)
            status = None
            while status != 0:
                self.saves[rank] = subprocess.Popen(
                    ["ckpt-save", "-q", f"--to={self.redis.url()}", "--timeout=20", "--encode=raw", f"--rank={rank}",
                     f"--world-size={self.WORLD}", f"in{rank}", f"@{step}"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                _, errors = self.saves[rank].communicate(timeout=200)
                status = self.saves[rank].returncode
                check(status in (0, 75, -9), f"save of {step}.{rank}: {status}, {errors!r}")
            self.accepted[rank].add(step)

    def watch(self):
        """Whatever is seen as a checkpoint is one."""
        seen = set()
        while not self.stop.is_set():
            steps = [int(name) for name in (os.listdir("st") if os.path.isdir("st") else []) if name.isdigit()]
            for step in sorted(set(steps) - seen)[:1]:
                seen.add(step)
                self.compare(step, "watched")
            time.sleep(0.05)

    def compare(self, step, out):
        shutil.rmtree(out, ignore_errors=True)
        run("ckpt-restore", f"st@{step}", out, stderr=False)
        files = {}
        for rank in range(self.WORLD):
            files[f"state{rank}.bin"] = hashlib.sha256(
                noise(step * 10 + rank, 6_000_000 + 3_000_000 * rank + step)).hexdigest()
            files[f"small{rank}"] = hashlib.sha256(str(step).encode()).hexdigest()
        found = {os.path.basename(name): digest for name, digest in content(out).items()}
        check(found == files, f"step {step} has other content")

    def kill_one(self):
        kind = self.random.choice(["server", "server", "redis", "producer", "producer"])
        if kind == "server":
            server = self.random.choice(self.servers)
            server.kill()
            server.start()
        elif kind == "redis":
            self.redis.kill()
            time.sleep(self.random.random())
            self.redis.start()
        else:
            process = self.saves[self.random.randrange(self.WORLD)]
            if process is not None and process.returncode is None:
                process.kill()

    def run(self, seconds):
        threads = [self.guarded(self.produce, rank) for rank in range(self.WORLD)] + [self.guarded(self.watch)]
        try:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and not self.stop.is_set():
                time.sleep(self.random.uniform(0.1, 1.0))
                self.kill_one()
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()
        check(not self.problems, lambda: f"seed {SEED}: {self.problems}")

    def end(self):
        for server in self.servers:
            server.kill()
        self.redis.kill()


def what_stays(redis):
    """Keys that don't go by themselves. Of states that a dead producer began there are leases, which end in a minute."""
    if redis.call("HLEN", "q:shards") != redis.call("ZCARD", "q:uploads"):
        return ["more shards than leases"]
    return [key for key in redis.keys() if key not in ("q:shards", "q:uploads") and redis.call("PTTL", key) == -1]


def test_no_accepted_state_is_lost_and_no_partial_one_seen_whoever_is_killed():
    killers = Killers()
    try:
        killers.run(SECONDS)
        complete = set.intersection(*killers.accepted)
        check(complete, f"seed {SEED}: nothing was accepted")
        wait_for(lambda: all(is_committed(step) for step in complete),
                 f"seed {SEED}: all of {sorted(complete)}", 120)
        wait_for(lambda: what_stays(killers.redis) == [], f"seed {SEED}: an empty queue", 60)
        check(killers.redis.call("XLEN", "q:dead") == 0, f"seed {SEED}: dead letters")
        if SECONDS > 60:
            wait_for(lambda: killers.redis.keys() == [], f"seed {SEED}: an empty Redis", 200)
    finally:
        killers.end()
    print(f"# seed {SEED}: {len(complete)} checkpoints")
    for step in complete:
        killers.compare(step, "restored")
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


main()
