#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The queue path beside a plain SET and GET of the same bytes through the same Redis, one after the other, interleaved.

usage: queue_bench.py [SIZE_MIB [ROUNDS [MAX_SERVERS]]]

A round hands over four states (--encode=raw) and waits until the last is durable in the store; the plain path sets and
gets the same bytes in pieces of 8 MiB, and keeps nothing. The ratio is plain seconds / queue seconds; 0.5 is the target.
CKPT_BENCH_DIR: where it works.
"""
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from redis_server import RedisServer

PIECE = 8 << 20
STATES = 4


def plain(redis, data):
    pieces = [memoryview(data)[at:at + PIECE] for at in range(0, len(data), PIECE)]
    into = memoryview(bytearray(PIECE + 64))
    start = time.perf_counter()
    with socket.create_connection(("127.0.0.1", redis.port)) as connection:
        for _ in range(STATES):
            for n, piece in enumerate(pieces):
                connection.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\nplain:%d\r\n$%d\r\n" % (len(str(n)) + 6, n, len(piece)))
                connection.sendall(piece)
                connection.sendall(b"\r\n")
                if connection.recv(64) != b"+OK\r\n":
                    sys.exit("Redis refused a piece")
            for n, piece in enumerate(pieces):
                connection.sendall(b"*2\r\n$3\r\nGET\r\n$%d\r\nplain:%d\r\n" % (len(str(n)) + 6, n))
                left = len(b"$%d\r\n" % len(piece)) + len(piece) + 2
                while left > 0:
                    left -= connection.recv_into(into[:left])
    seconds = time.perf_counter() - start
    redis.call("FLUSHALL")
    return seconds


def queue(redis, servers, first_step):
    last = f"st/{first_step + STATES - 1:010}/manifest.json"
    command = ["ckpt-serve", f"--from={redis.url()}", "st"]
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in range(servers)]
    time.sleep(0.5)
    try:
        start = time.perf_counter()
        for step in range(first_step, first_step + STATES):
            subprocess.run(["ckpt-save", "-q", f"--to={redis.url()}", "--encode=raw", "state.bin", f"@{step}"], check=True,
                           stdout=subprocess.DEVNULL)
        accepted = time.perf_counter() - start
        while not os.path.exists(last) or redis.call("EXISTS", "q"):
            time.sleep(0.005)
        return accepted, time.perf_counter() - start
    finally:
        for server in running:
            server.terminate()
            server.wait()


def measure(redis, data, servers, rounds, what):
    total = STATES * len(data)
    plains, accepteds, durables = [], [], []
    for n in range(rounds):
        plains.append(plain(redis, data))
        accepted, durable = queue(redis, servers, 1 + n * STATES)
        accepteds.append(accepted)
        durables.append(durable)
        shutil.rmtree("st")
    ratios = [beside / ours for beside, ours in zip(plains, durables)]
    rate = lambda seconds: f"{total / statistics.median(seconds) / 1e9:.2f} GB/s"
    print(f"{what}: durable {rate(durables)}, accepted {rate(accepteds)}, plain SET and GET {rate(plains)}: ratio "
          f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), target 0.5", flush=True)


def main(size_mib=512, rounds=5, max_servers=2):
    os.chdir(tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("CKPT_BENCH_DIR", os.getcwd())))
    here = os.getcwd()
    try:
        data = os.urandom(size_mib << 20)
        with open("state.bin", "wb") as file:
            file.write(data)
        for aof in ("yes", "no"):
            with RedisServer("--appendonly", aof, fsync="everysec") as redis:
                for servers in range(1, max_servers + 1):
                    measure(redis, data, servers, rounds, f"append-only file: {aof}, {servers} server(s)")
    finally:
        os.chdir("/")
        shutil.rmtree(here, ignore_errors=True)


main(*map(int, sys.argv[1:]))
