# SPDX-License-Identifier: Apache-2.0
# ckpt-run where nodes come and go: three in network namespaces on a bridge, a real Redis on the bridge's host, and a store
# that all of them see, also a node that is cut off: what its old attempt saves then must be refused there.
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import redis_server
import tap
from nodes_support import *  # noqa: F403
from tap import Skip, check, run

LEASE = 2
NAMES = ("a", "b", "c")


class Redis(redis_server.RedisServer):
    def __init__(self):
        if shutil.which("redis-server") is None:
            raise Skip("no redis-server")
        super().__init__("--bind", "0.0.0.0", "--protected-mode", "no", fsync="everysec")

    def end(self):
        self.kill()

    def forget(self):
        for path, _, names in os.walk(self.directory):
            for name in names:
                os.unlink(os.path.join(path, name))


class Bridge:
    """Hosts a, b, c in network namespaces; this one is 10.214.X.1."""

    def __enter__(self):
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise Skip("network namespaces need root and iproute2")
        tag = f"{os.getpid() % 100000}"
        self.net, self.bridge = f"10.214.{os.getpid() % 250}", f"ckbr{tag}"
        self.host = f"{self.net}.1"
        self.spaces = {name: f"ckpt-{name}-{tag}" for name in NAMES}
        self.links = {name: f"ck{name}{tag}" for name in NAMES}
        self.stack = contextlib.ExitStack()
        try:
            self.must("link", "add", self.bridge, "type", "bridge")
            self.stack.callback(subprocess.run, ["ip", "link", "del", self.bridge], capture_output=True)
            self.must("addr", "add", f"{self.host}/24", "dev", self.bridge)
            self.must("link", "set", self.bridge, "up")
            for number, name in enumerate(NAMES, 2):
                space, link = self.spaces[name], self.links[name]
                self.must("netns", "add", space)
                self.stack.callback(subprocess.run, ["ip", "netns", "del", space], capture_output=True)
                self.must("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
                self.must("link", "set", link, "master", self.bridge, "up")
                self.must("-n", space, "addr", "add", f"{self.net}.{number}/24", "dev", "eth0")
                self.must("-n", space, "link", "set", "eth0", "up")
                self.must("-n", space, "link", "set", "lo", "up")
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    @staticmethod
    def must(*command):
        done = subprocess.run(["ip", *command], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        if done.returncode != 0:
            raise Skip(f"not allowed here: ip {' '.join(command[:3])}: {done.stderr[:100]!r}")

    def cut(self, name):
        self.must("link", "set", self.links[name], "down")

    def mend(self, name):
        self.must("link", "set", self.links[name], "up")

    def make_slow(self, name):
        for how in ("netem delay 150ms 50ms loss 2%", "tbf rate 64kbit burst 2k latency 400ms"):
            if subprocess.run(["tc", "qdisc", "replace", "dev", self.links[name], "root", *how.split()],
                              capture_output=True).returncode == 0:
                return
        raise Skip("the kernel can't make a link slow")


class Cluster:
    def __init__(self, stack, bridge=None):
        self.bridge = bridge
        self.redis = stack.enter_context(Redis())
        self.nodes = stack.enter_context(nodes_that_end())
        self.host = bridge.host if bridge else "127.0.0.1"

    def start(self, *names, count="2:3", options=(), **more):
        started = []
        for name in names:
            url = f"redis://{self.host}:{self.redis.port}?key=job"
            inside = ("ip", "netns", "exec", self.bridge.spaces[name]) if self.bridge else ()
            started.append(Node(name, f"--nnodes={count}", f"--cluster={url}", f"--node={name}", f"--lease={LEASE}",
                                "--health-interval=3", "--backoff=0", *options, inside=inside, **more))
        self.nodes += started
        return started

    def leader(self):
        """The node that leads."""
        life = self.redis.call("GET", "job:leader")
        for node in self.nodes:
            state = self.redis.call("GET", f"job:node:{node.name}")
            if life and state and state.startswith(life + " ") and node.process.poll() is None:
                return node
        return None

    def runs_on(self, ranks, more_than):
        return any(a > more_than and attempt_runs(a, ranks) for a in attempts())


@contextlib.contextmanager
def cluster(in_spaces=True):
    with contextlib.ExitStack() as stack:
        yield Cluster(stack, stack.enter_context(Bridge()) if in_spaces else None)


def goes_on():
    """There's a checkpoint that wasn't there before."""
    step = newest()
    until(lambda: newest() > step, f"a checkpoint after step {step}")


def recovered(c, ranks, since, after):
    until(lambda: c.runs_on(ranks, after), f"{ranks} ranks run after attempt {after}")
    print(f"# {ranks} ranks run again after {time.monotonic() - since:.1f} s with a lease of {LEASE} s", flush=True)


def kill_a_rank_of(node):
    """Once it has begun with the newest attempt."""
    ranks = lambda: [p for p in tree(node.process.pid) if text(f"/proc/{p}/comm").startswith("python")]
    until(ranks, f"a rank of {node.name} runs")
    os.kill(ranks()[0], signal.SIGKILL)


def conclude(c, nodes):
    """All save and end."""
    goes_on()
    nodes[0].process.send_signal(signal.SIGTERM)
    for node in nodes:
        node.end(-signal.SIGTERM)
    check_store(newest())


def old_attempt_is_refused(attempt):
    """The ranks of a node that knows of nothing save on, and in vain."""
    until(lambda: f"attempt {attempt} is over" in text("refused"), f"a save of attempt {attempt} is refused")


def finish(c, nodes, last):
    for node in nodes:
        node.end(0)
    check_store(last)


def test_three_nodes_meet_and_finish_and_leave_nothing_that_stays():
    with cluster() as c:
        a, b, d = c.start(*NAMES, steps=20, nproc=2)
        finish(c, (a, b, d), 20)
        check(attempts() == [1] and attempt_runs(1, 6), everything)
        check(all(line.split()[4] == f"{c.bridge.net}.2" for line in text("started").splitlines()), "another master")
        until(lambda: set(c.redis.keys()) <= {"job:generation", "job:nodes", "job:job"}, c.redis.keys)
        until(lambda: "job:job" not in c.redis.keys(), c.redis.keys)


def test_a_node_that_is_cut_off_is_replaced_by_the_rest_and_comes_back():
    with cluster() as c:
        nodes = c.start(*NAMES, steps=100000)
        until(lambda: newest() >= 5, "there are checkpoints")
        leader = c.leader()
        cut = next(node for node in nodes if node is not leader)
        c.bridge.cut(cut.name)
        since = time.monotonic()
        recovered(c, 2, since, 1)
        old_attempt_is_refused(1)
        goes_on()
        c.bridge.mend(cut.name)
        recovered(c, 3, time.monotonic(), attempts()[-1])
        conclude(c, nodes)


def test_a_leader_that_is_cut_off_is_replaced_and_decides_nothing_more():
    with cluster() as c:
        nodes = c.start(*NAMES, steps=100000)
        until(lambda: newest() >= 5, "there are checkpoints")
        leader = c.leader()
        c.bridge.cut(leader.name)
        recovered(c, 2, time.monotonic(), 1)
        check(c.leader() not in (None, leader), "it still leads")
        old_attempt_is_refused(1)
        goes_on()
        c.bridge.mend(leader.name)
        recovered(c, 3, time.monotonic(), attempts()[-1])
        conclude(c, nodes)


def test_a_node_that_dies_is_dropped():
    with cluster() as c:
        nodes = c.start(*NAMES, steps=80)
        until(lambda: newest() >= 10, "there are checkpoints")
        leader = c.leader()
        dead = next(node for node in nodes if node is not leader)
        dead.kill()
        recovered(c, 2, time.monotonic(), 1)
        finish(c, [node for node in nodes if node is not dead], 80)
        check(attempts() == [1, 2], attempts)


def test_a_leader_that_dies_is_replaced():
    with cluster() as c:
        nodes = c.start(*NAMES, steps=80)
        until(lambda: newest() >= 10, "there are checkpoints")
        leader = c.leader()
        leader.kill()
        recovered(c, 2, time.monotonic(), 1)
        finish(c, [node for node in nodes if node is not leader], 80)


def test_a_leader_that_dies_at_any_moment_of_a_restart_is_replaced():
    for pause in (0.0, 0.15, 0.4):
        shutil.rmtree("s", ignore_errors=True)
        for name in ("started", "refused"):
            with contextlib.suppress(OSError):
                os.unlink(name)
        with cluster(False) as c:
            nodes = c.start(*NAMES, steps=60)
            until(lambda: newest() >= 5, "there are checkpoints")
            leader = c.leader()
            other = next(node for node in nodes if node is not leader)
            kill_a_rank_of(other)
            time.sleep(pause)
            leader.kill()
            finish(c, [node for node in nodes if node is not leader], 60)


def test_when_redis_is_away_ranks_go_on_and_nothing_is_decided():
    with cluster() as c:
        nodes = c.start(*NAMES, steps=100000)
        until(lambda: newest() >= 5, "there are checkpoints")
        c.redis.end()
        time.sleep(2 * LEASE)
        goes_on()
        check(attempts() == [1], everything)
        c.redis.start()
        time.sleep(2 * LEASE)  # so long a wrong decision has time to be made
        conclude(c, nodes)
        check(attempts() == [1], everything)


def test_a_redis_that_has_forgotten_all_gets_it_back_from_the_nodes():
    with cluster() as c:
        nodes = c.start(*NAMES, steps=100000)
        until(lambda: newest() >= 5, "there are checkpoints")
        kill_a_rank_of(nodes[1])
        until(lambda: attempts() == [1, 2] and attempt_runs(2, 3), "a second attempt")
        c.redis.end()
        c.redis.forget()
        c.redis.start()
        time.sleep(2 * LEASE)
        check(attempts() == [1, 2], everything)
        kill_a_rank_of(nodes[1])
        recovered(c, 3, time.monotonic(), 2)
        conclude(c, nodes)
        check(attempts() == [1, 2, 3], attempts)


def test_a_failure_while_redis_is_away_is_seen_to_once_it_is_back():
    with cluster() as c:
        nodes = c.start(*NAMES, steps=80)
        until(lambda: newest() >= 5, "there are checkpoints")
        c.redis.end()
        kill_a_rank_of(nodes[0])
        time.sleep(1)
        c.redis.start()
        finish(c, nodes, 80)
        check(attempts() == [1, 2], attempts)


def test_a_slow_link_only_slows_decisions():
    with cluster() as c:
        for name in NAMES:
            c.bridge.make_slow(name)
        nodes = c.start(*NAMES, steps=80, options=("--lease=6",))
        until(lambda: newest() >= 5, "there are checkpoints", 120)
        kill_a_rank_of(nodes[0])
        finish(c, nodes, 80)
        check(attempts() == [1, 2], attempts)


def paused(leads):
    with cluster() as c:
        nodes = c.start(*NAMES, steps=100000)
        until(lambda: newest() >= 5, "there are checkpoints")
        leader = c.leader()
        late = leader if leads else next(node for node in nodes if node is not leader)
        late.send(signal.SIGSTOP)
        recovered(c, 2, time.monotonic(), 1)
        old_attempt_is_refused(1)
        goes_on()
        last = attempts()[-1]
        late.send(signal.SIGCONT)
        recovered(c, 3, time.monotonic(), last)
        conclude(c, nodes)


def test_a_paused_node_that_wakes_up_late_stops_its_ranks_and_comes_back():
    paused(False)


def test_a_paused_leader_that_wakes_up_late_decides_nothing():
    paused(True)


def test_a_node_that_comes_later_makes_the_job_grow():
    with cluster(False) as c:
        nodes = c.start("a", "b", steps=100000)
        until(lambda: newest() >= 5, "there are checkpoints")
        nodes += c.start("c", steps=100000)
        recovered(c, 3, time.monotonic(), 1)
        conclude(c, nodes)


def test_one_node_asked_to_end_makes_all_save_and_end():
    with cluster(False) as c:
        nodes = c.start(*NAMES, steps=100000, every=100000, pause=0.01)
        until(lambda: len(started()) == 3, "all ranks run")
        time.sleep(0.5)
        os.kill(nodes[1].process.pid, signal.SIGTERM)
        for node in nodes:
            node.end(-signal.SIGTERM)
            check(node.summary()["is_safe"], everything)
        check(len(checkpoints()) == 1, checkpoints)


def test_a_new_job_begins_where_an_old_one_ended():
    with cluster(False) as c:
        for node in c.start(*NAMES, steps=10):
            node.end(0)
        nodes = c.start(*NAMES, steps=20)
        finish(c, nodes, 20)
        check(len(attempts()) == 2, attempts)


def test_nodes_that_were_all_killed_go_on_when_they_are_started_again():
    with cluster(False) as c:
        nodes = c.start(*NAMES, steps=100)
        until(lambda: newest() >= 10, "there are checkpoints")
        for node in nodes:
            node.kill()
        nodes = c.start(*NAMES, steps=100)
        finish(c, nodes, 100)
        check(check_store(100)[max(attempts())] >= 10, started)


def test_a_name_that_is_there_twice_is_refused():
    with cluster(False) as c:
        c.start(*NAMES, steps=1000)
        until(lambda: newest() >= 5, "there are checkpoints")
        twice = c.start("b")[0]
        twice.end(75)
        check("calls itself 'b'" in text("b.err"), everything)
        check(attempts() == [1], "the others were disturbed")


def test_a_redis_that_is_not_there_is_given_up_after_a_while():
    with nodes_that_end() as nodes:
        nodes.append(Node("a", f"--cluster=redis://127.0.0.1:{redis_server.free_port()}?key=job", "--node=a", "--nnodes=1:2",
                          "--join-timeout=2"))
        nodes[0].end(75)


def test_a_password_is_taken_from_the_environment():
    with cluster(False) as c:
        c.redis.call("CONFIG", "SET", "requirepass", "secret")
        c.start("a", count="1:1", steps=5)[0].end(2)
        c.start("a", count="1:1", steps=5, env={"REDISCLI_AUTH": "secret"})[0].end(0)
        check_store(5)


if __name__ == "__main__":
    tap.main()
