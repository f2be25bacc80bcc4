# SPDX-License-Identifier: Apache-2.0
# ckpt-run with a fixed number of nodes: three on the loopback that meet at node 0.
import contextlib
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tap
from nodes_support import *  # noqa: F403
from redis_server import free_port
from tap import check


def start(nodes, port, which=(0, 1, 2), count=3, **more):
    for rank in which:
        nodes.append(Node(f"n{rank}", f"--nnodes={count}", f"--node-rank={rank}", f"--master=127.0.0.1:{port}", "--backoff=0",
                          **more))
    return nodes


def test_three_nodes_finish_together():
    with nodes_that_end() as nodes:
        start(nodes, free_port(), steps=10, nproc=2)
        for node in nodes:
            node.end(0)
        check([line[:3] for line in sorted(started())] == [(1, r, 6) for r in range(6)], started)
        check(len({line.split()[-1] for line in text("started").splitlines()}) == 1, "they have several ports")
        check(all(node.summary()["outcome"] == "finished" for node in nodes), everything)
        check_store(10)


def test_a_rank_that_fails_brings_all_back_to_the_newest_checkpoint():
    open("FAIL", "w").close()
    with nodes_that_end() as nodes:
        start(nodes, free_port(), steps=40, env={"FAIL_RANK": "2", "FAIL_STEP": "18"})
        for node in nodes:
            node.end(0)
        begun = check_store(40)
        check(begun.keys() == {1, 2} and begun[2] >= 10, begun)
        check(nodes[0].events("restarted")[0]["cause"] == "exit", everything)


def test_a_node_that_is_killed_and_started_again_takes_part_again():
    with nodes_that_end() as nodes:
        port = free_port()
        start(nodes, port)
        until(lambda: newest() >= 10, "there are checkpoints")
        nodes[2].kill()
        start(nodes, port, which=(2,))
        for node in (nodes[0], nodes[1], nodes[3]):
            node.end(0)
        begun = check_store(60)
        check(len(begun) == 2 and begun[2] >= 10, begun)
        check(nodes[0].events("restarted")[0]["cause"] == "node", everything)


def test_a_node_that_stays_away_ends_the_job_with_a_reason():
    with nodes_that_end() as nodes:
        port = free_port()
        for rank in range(3):
            nodes.append(Node(f"n{rank}", "--nnodes=3", f"--node-rank={rank}", f"--master=127.0.0.1:{port}", "--join-timeout=20",
                              steps=1000))
        until(lambda: newest() >= 5, "there are checkpoints")
        nodes[1].kill()
        nodes[0].end(2)
        nodes[2].end(2)
        for node in (nodes[0], nodes[2]):
            check("2 of 3 nodes are there" in node.summary()["detail"], everything)


def test_when_node_0_is_killed_the_others_stop_and_say_so():
    with nodes_that_end() as nodes:
        start(nodes, free_port(), steps=1000)
        until(lambda: newest() >= 5, "there are checkpoints")
        nodes[0].kill()
        for node in nodes[1:]:
            node.end(75)
            check("gone" in text(f"{node.name}.err"), everything)
        check_store(newest())


def test_one_node_asked_to_end_makes_all_save_the_same_step_and_end():
    with nodes_that_end() as nodes:
        start(nodes, free_port(), steps=100000, every=100000, pause=0.01, nproc=2)
        until(lambda: len(started()) == 6, "all ranks run")
        time.sleep(0.5)
        os.kill(nodes[2].process.pid, signal.SIGTERM)
        for node in nodes:
            node.end(-signal.SIGTERM)
            check(node.summary()["outcome"] == "preempted" and node.summary()["is_safe"], everything)
        check(len(checkpoints()) == 1, checkpoints)
        check_store(newest())


def test_saves_that_are_asked_for_are_of_one_step_on_all_nodes():
    with nodes_that_end() as nodes:
        port = free_port()
        for rank in range(3):
            nodes.append(Node(f"n{rank}", "--nnodes=3", f"--node-rank={rank}", f"--master=127.0.0.1:{port}", "--interval=1",
                              steps=400, every=100000, pause=0.01))
        for node in nodes:
            node.end(0)
        check(len(checkpoints()) >= 2, checkpoints)
        check_store(400)


def test_ranks_that_look_for_no_requests_get_a_signal_on_all_nodes():
    with nodes_that_end() as nodes:
        start(nodes, free_port(), steps=1000, env={"PLAIN": "1"})
        until(lambda: newest() >= 5, "there are checkpoints")
        os.kill(nodes[1].process.pid, signal.SIGTERM)
        for node in nodes:
            node.end(-signal.SIGTERM)
        check_store(newest())


def test_a_node_rank_that_is_there_twice_is_refused():
    with nodes_that_end() as nodes:
        port = free_port()
        start(nodes, port, steps=1000)
        until(lambda: newest() >= 5, "there are checkpoints")
        twice = start([], port, which=(2,))[0]
        nodes.append(twice)
        twice.end(75)
        check("another node 00002 is there" in text("n2.err"), everything)
        check(attempts() == [1], "the others were disturbed")


def test_nodes_of_another_count_are_refused():
    with nodes_that_end() as nodes:
        port = free_port()
        start(nodes, port, which=(0,))
        start(nodes, port, which=(1,), count=2)
        nodes[1].end(2)
        check("3 nodes" in text("n1.err"), everything)


def test_what_is_no_node_is_cut_off():
    with nodes_that_end() as nodes:
        port = free_port()
        start(nodes, port, steps=1000)
        until(lambda: newest() >= 5, "there are checkpoints")
        for data in (b"GET / HTTP/1.0\r\n\r\n", b"[1]\n", b'{"node":1}\n', b'{"node":{},"nodes":3}\n', b"x" * (2 << 20)):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as s:
                with contextlib.suppress(OSError):
                    s.sendall(data)
                    while s.recv(4096):
                        pass
        crowd = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(40)]
        step = newest()
        until(lambda: newest() >= step + 10, "it goes on")
        check(attempts() == [1], "the others were disturbed")
        for s in crowd:
            s.close()


def test_a_store_that_fails_at_node_0_ends_all():
    open("s", "w").close()
    with nodes_that_end() as nodes:
        start(nodes, free_port())
        for node in nodes:
            node.end(2)
        check("'" in nodes[2].summary()["detail"], everything)


def test_a_node_that_waits_for_node_0_can_be_asked_to_end():
    with nodes_that_end() as nodes:
        start(nodes, free_port(), which=(1,))
        time.sleep(0.5)
        os.kill(nodes[0].process.pid, signal.SIGTERM)
        nodes[0].end(-signal.SIGTERM)


if __name__ == "__main__":
    tap.main()
