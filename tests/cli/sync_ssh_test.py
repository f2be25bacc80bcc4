# SPDX-License-Identifier: Apache-2.0
# ckpt-sync over a real sshd: on the loopback, and in a network namespace behind a link that is slow, loses packets, is
# cut in mid-transfer and comes back. The server has its own port, keys and configuration, and ends with its test.
import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
import tap
from sync_support import *  # noqa: F403
from tap import Skip, check, run

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
QUIET = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """An sshd; `inside` is put before its command."""

    def __init__(self, address="127.0.0.1", inside=()):
        if SSHD is None or shutil.which("ssh") is None:
            raise Skip("no sshd or no ssh")
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # where it separates privileges
        self.address, self.port, top = address, free_port(), os.getcwd()
        for name in ("host_key", "user_key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name)
        shutil.copy("user_key.pub", "authorized_keys")
        with open("host_key.pub", encoding="utf-8") as f:
            make_input.put("known_hosts", f"[{address}]:{self.port} {f.read()}".encode())
        make_input.put("sshd_config", f"""
Port {self.port}
ListenAddress {address}
HostKey {top}/host_key
PidFile {top}/sshd.pid
AuthorizedKeysFile {top}/authorized_keys
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
SetEnv PATH={os.environ["PATH"]}
""".encode())
        self.log = open("sshd.log", "w")
        # Not by the preloaded library that leaves out the syncs: sshd forbids its children what that one may do.
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        self.process = subprocess.Popen([*inside, SSHD, "-D", "-e", "-f", f"{top}/sshd_config"], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, env=environment)

    def __enter__(self):
        try:
            until(lambda: self.process.poll() is not None or self.answers(), "sshd listens", 20)
            if self.process.poll() is not None:
                with open("sshd.log", encoding="utf-8") as f:
                    raise Skip(f"sshd doesn't start: {f.read()[:200]!r}".replace("\n", " "))
            done = subprocess.run([*self.command(), self.host(), "ckpt-sync --version"], capture_output=True, timeout=30)
            if done.returncode != 0:
                raise Skip(f"no login: {done.stderr[:200]!r}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.cut()
        self.process.terminate()
        self.process.wait(timeout=20)
        self.log.close()

    def answers(self):
        with contextlib.suppress(OSError), socket.create_connection((self.address, self.port), timeout=1):
            return True
        return False

    def host(self):
        return f"{getpass.getuser()}@{self.address}"

    def command(self):
        return ["ssh", "-F", "none", "-p", str(self.port), "-i", os.path.abspath("user_key"), "-o", "IdentitiesOnly=yes",
                "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={os.path.abspath('known_hosts')}", "-o", "LogLevel=ERROR",
                "-o", "ConnectTimeout=10"]

    def rsh(self):
        return ["-e", " ".join(self.command())]

    def sessions(self):
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children") as f:
                children = [int(child) for child in f.read().split()]
                found += children
                todo += children
        return found

    def cut(self):
        """Kills who serves the sessions, and leaves the server."""
        for pid in self.sessions():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def store(self, name):
        return f"{self.host()}:{os.path.abspath(name)}"


def arrived(store="b"):
    return sum(os.path.getsize(f"{store}/.pending/{d}/{f}") for d in underway(store)
               for f in os.listdir(f"{store}/.pending/{d}") if ".ckpt" in f)


def starting(*arguments):
    return subprocess.Popen(["ckpt-sync", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def repeat(*arguments):
    """Until the far side has noticed that an earlier connection is gone."""
    end = time.monotonic() + 120
    while True:
        done = sync(*arguments, "--json", expect=(0, 75), stderr=None)
        if done.returncode == 0:
            return next(json.loads(line)["moved_bytes"] for line in done.stdout.splitlines() if b'"destination","dest' in line)
        check(time.monotonic() < end, f"still not: {done.stderr!r}")


def test_a_store_goes_there_and_back_over_ssh():
    drift_store("a", 3)
    with Server() as server:
        sync(*server.rsh(), "a", server.store("b"), stdout=False)
        alike("a", "b")
        sync(*server.rsh(), server.store("b"), "c", stdout=False)
        alike("a", "c")
        check(records(*server.rsh(), "a", server.store("b")) == [], "a second time there's still something to do")
        for name in ("with space", "it's", "two\nlines"):
            sync(*server.rsh(), "a", server.store(name), stdout=False)
            alike("a", name)
    sound("b", "c")


def test_a_session_that_is_killed_in_mid_transfer_is_gone_on_with():
    noise_store("a", (1,), size=6 << 20)
    with Server() as server:
        process = starting("--bwlimit=4096", *server.rsh(), "a", server.store("b"))
        until(lambda: os.path.isdir("b") and arrived() > 1 << 20, "some of it is there")
        server.cut()
        _, err = process.communicate(timeout=60)
        check(process.returncode == 75, f"{process.returncode}: {err}")
        check(not steps("b"), "half of it is visible")
        sound("b")
        check(repeat(*server.rsh(), "a", server.store("b")) < 5 << 20, "what arrived was sent again")
        alike("a", "b")
        nothing_left("b")


def test_a_fetch_whose_session_is_killed_is_gone_on_with():
    noise_store("a", (1,), size=6 << 20)
    with Server() as server:
        process = starting("--bwlimit=4096", *server.rsh(), server.store("a"), "b")
        until(lambda: os.path.isdir("b") and arrived() > 1 << 20, "some of it is there")
        server.cut()
        process.communicate(timeout=60)
        check(process.returncode in (2, 75), process.returncode)
        check(repeat(*server.rsh(), server.store("a"), "b") < 5 << 20, "what arrived was sent again")
        alike("a", "b")


def test_a_login_that_is_refused_is_temporary_and_named():
    noise_store("a", (1,))
    with Server() as server:
        os.unlink("authorized_keys")
        done = sync(*server.rsh(), "a", server.store("b"), "c", expect=(75,), stdout=False, stderr=True)
        check(server.host().encode() in done.stderr, done.stderr)
        alike("a", "c")


def test_a_host_that_does_not_listen_is_temporary():
    noise_store("a", (1,))
    if shutil.which("ssh") is None:
        raise Skip("no ssh")
    rsh = f"ssh -F none -p {free_port()} -o BatchMode=yes -o LogLevel=QUIET"
    sync("-e", rsh, "a", "127.0.0.1:b", expect=(75,), stdout=False, stderr=True)


class Link:
    """A host in a network namespace, and the one link to it."""

    def __enter__(self):
        tag = f"{os.getpid() % 100000}"
        self.name, self.near, self.far = f"ckpt-{tag}", f"ckn{tag}", f"ckf{tag}"
        self.address = f"10.213.{os.getpid() % 250}.2"
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise Skip("network namespaces need root and iproute2")
        self.stack = contextlib.ExitStack()
        try:
            self.must("ip", "netns", "add", self.name)
            self.stack.callback(subprocess.run, ["ip", "netns", "del", self.name], **QUIET)
            self.must("ip", "link", "add", self.near, "type", "veth", "peer", "name", self.far, "netns", self.name)
            self.stack.callback(subprocess.run, ["ip", "link", "del", self.near], **QUIET)
            self.must("ip", "addr", "add", self.address[:-1] + "1/30", "dev", self.near)
            self.must("ip", "-n", self.name, "addr", "add", self.address + "/30", "dev", self.far)
            self.up()
            self.must("ip", "-n", self.name, "link", "set", self.far, "up")
            self.must("ip", "-n", self.name, "link", "set", "lo", "up")
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    @staticmethod
    def must(*command):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        if done.returncode != 0:
            raise Skip(f"not allowed here: {' '.join(command[:3])}: {done.stderr[:100]!r}")

    def up(self):
        self.must("ip", "link", "set", self.near, "up")

    def down(self):
        self.must("ip", "link", "set", self.near, "down")

    def make_slow(self):
        """Loses packets by chance, or where the kernel can't do that, those that don't fit into a short queue."""
        for how in ("netem delay 20ms 5ms loss 2% rate 20mbit", "tbf rate 20mbit burst 16k latency 5ms"):
            if subprocess.run(["tc", "qdisc", "replace", "dev", self.near, "root", *how.split()], **QUIET).returncode == 0:
                return
        raise Skip("the kernel can't make a link slow")

    def server(self):
        return Server(self.address, ("ip", "netns", "exec", self.name))


def test_a_slow_link_that_loses_packets_brings_all():
    drift_store("a", 3)
    noise_store("a", (8,), size=1 << 20)
    with Link() as link:
        link.make_slow()
        with link.server() as server:
            sync(*server.rsh(), "a", server.store("b"), stdout=False)
            alike("a", "b")
            sync(*server.rsh(), server.store("b"), "c", stdout=False)
            alike("a", "c")
    sound("b", "c")


def on_its_way(*arguments):
    """A sync that has brought some of it. On a busy machine it may have given up before: then there's another."""
    while True:
        process = starting(*arguments)
        until(lambda: process.poll() is not None or (os.path.isdir("b") and arrived() > 1 << 20), "some of it is there")
        if process.poll() is None:
            return process
        _, err = process.communicate()
        check(process.returncode == 75, f"{process.returncode}: {err}")


def test_a_link_that_is_cut_in_mid_transfer_is_given_up_and_gone_on_with():
    noise_store("a", (1,), size=6 << 20)
    with Link() as link, link.server() as server:
        process = on_its_way("--bwlimit=4096", "--timeout=3", *server.rsh(), "a", server.store("b"))
        link.down()
        begin = time.monotonic()
        _, err = process.communicate(timeout=60)
        check(process.returncode == 75, f"{process.returncode}: {err}")
        check(time.monotonic() - begin < 30, "it waited for too long")
        check(not steps("b"), "half of it is visible")
        sync("--timeout=3", "-e", server.rsh()[1].replace("ConnectTimeout=10", "ConnectTimeout=1"), "a", server.store("b"),
             expect=(75,), stdout=False, stderr=True)
        link.up()
        check(repeat(*server.rsh(), "a", server.store("b")) < 5 << 20, "what arrived was sent again")
        alike("a", "b")
        sound("b")
        nothing_left("b")


def test_a_link_that_is_away_for_a_moment_costs_nothing_but_time():
    noise_store("a", (1,), size=4 << 20)
    with Link() as link, link.server() as server:
        process = starting("--bwlimit=4096", *server.rsh(), "a", server.store("b"))
        until(lambda: os.path.isdir("b") and arrived() > 1 << 20, "some of it is there")
        link.down()
        time.sleep(1)  # that long it's away
        link.up()
        _, err = process.communicate(timeout=60)
        check(process.returncode == 0, f"{process.returncode}: {err}")
        alike("a", "b")


if __name__ == "__main__":
    tap.main()
