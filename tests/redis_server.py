# SPDX-License-Identifier: Apache-2.0
# A Redis server of a test's own, on loopback, with an append-only file in the current directory.
import os
import socket
import subprocess
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class RedisServer:
    def __init__(self, *options, fsync="always"):
        self.port = free_port()
        self.directory = os.path.abspath(f"redis-{self.port}")
        os.mkdir(self.directory)
        self.options = options
        self.fsync = fsync
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.directory, "--save", "",
             "--appendonly", "yes", "--appendfsync", self.fsync, "--logfile", "log", *self.options])
        deadline = time.monotonic() + 30
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError("redis-server doesn't answer")
            time.sleep(0.02)

    def is_ready(self):
        try:
            return self.call("PING") == "PONG"
        except OSError as error:
            return str(error).startswith("NOAUTH")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def url(self, key="q"):
        return f"redis://127.0.0.1:{self.port}?key={key}"

    def call(self, *words):
        """One command on a connection of its own; errors are OSError."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            command = b"*%d\r\n" % len(words)
            for word in words:
                data = word if isinstance(word, bytes) else str(word).encode()
                command += b"$%d\r\n%s\r\n" % (len(data), data)
            connection.sendall(command)
            with connection.makefile("rb") as stream:
                return self._read(stream)

    def _read(self, stream):
        line = stream.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"-":
            raise OSError(rest)
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if int(rest) < 0:
            return None
        if kind == b"$":
            return stream.read(int(rest) + 2)[:-2].decode(errors="surrogateescape")
        return [self._read(stream) for _ in range(int(rest))]

    def keys(self):
        return self.call("KEYS", "*")
