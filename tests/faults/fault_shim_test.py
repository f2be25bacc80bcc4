# SPDX-License-Identifier: Apache-2.0
# The fault shim's own tests: a tool that can't lose data would make every test that uses it pass.
import errno
import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check, main, run

SHIM = os.environ["CKPT_FAULT_SHIM"]
PUT = """
import os
def put(name, data, sync=True):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644)
    assert os.write(fd, data) == len(data)
    if sync: os.fsync(fd)
    os.close(fd)
def sync(name):
    fd = os.open(name, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
os.chdir('dir')
"""


def play(script, mode, at, expect=0, **more):
    os.makedirs("dir", exist_ok=True)
    shutil.rmtree("grave", ignore_errors=True)
    os.makedirs("grave")
    env = {"LD_PRELOAD": SHIM, "CKPT_FAULT_DIR": "dir", "CKPT_FAULT_GRAVE": "grave", "CKPT_FAULT_MODE": mode,
           "CKPT_FAULT_AT": str(at), "CKPT_FAULT_LOG": "log", **more}
    return run("/usr/bin/python3", "-B", "-c", PUT + script, env=env, expect=(expect,))


def names():
    return sorted(os.listdir("dir"))


def content(name):
    with open("dir/" + name, "rb") as f:
        return f.read()


def test_calls_are_counted_by_name():
    play("put('a', b'x'); os.link('a', 'b'); os.rename('b', 'c'); os.mkdir('d'); os.rmdir('d'); os.unlink('c');"
         "sync('.')", "count", 0)
    with open("log") as f:
        ops = [line.split()[1] for line in f]
    check(ops == ["open", "write", "fsync", "link", "rename", "mkdir", "rmdir", "unlink", "fsync"], str(ops))


def test_calls_outside_the_directory_are_not_counted():
    play("put('../x', b'x'); os.mkdir('../y'); os.rename('../x', '../y/x')", "count", 0)
    check(not os.path.exists("log") or os.path.getsize("log") == 0, "something was logged")


def test_the_kth_call_fails_once_with_the_given_error():
    play("""
try:
    put('a', b'1')
    raise SystemExit(3)
except OSError as e:
    assert e.errno == 28, e
put('b', b'2')
""", "fail", 2, CKPT_FAULT_ERRNO=str(errno.ENOSPC))
    check(content("a") == b"" and content("b") == b"2", str(names()))


def test_a_sticky_failure_goes_on():
    play("""
for name in 'ab':
    try:
        put(name, b'1')
        raise SystemExit(3)
    except OSError as e:
        assert e.errno == 28, e
os.unlink('a')
""", "fail", 2, CKPT_FAULT_ERRNO=str(errno.ENOSPC), CKPT_FAULT_STICKY="1")
    check(names() == [], str(names()))


def test_a_short_write_writes_half():
    play("fd = os.open('a', os.O_WRONLY | os.O_CREAT); assert os.write(fd, b'abcdef') == 3", "short", 2)
    check(content("a") == b"abc", str(content("a")))


def test_the_process_is_killed_at_the_kth_call():
    play("put('a', b'1'); put('b', b'2')", "kill", 4, expect=-signal.SIGKILL)
    check(names() == ["a"], str(names()))


def test_a_power_cut_undoes_names_that_no_directory_sync_covers():
    play("put('a', b'1'); sync('.'); put('b', b'2'); os.rename('a', 'c'); os.mkdir('d'); put('d/e', b''); put('z', b'')",
         "cut", "exit")
    check(names() == ["a"] and content("a") == b"1", str(names()))


def test_a_power_cut_undoes_bytes_that_no_file_sync_covers():
    play("put('a', b'12345'); sync('.'); put('a', b'xy', False); put('b', b'67', False); sync('.')", "cut", "exit")
    check(names() == ["a", "b"] and content("a") == b"12345" and content("b") == b"", str(content("a")))


def test_a_power_cut_brings_back_what_was_removed_or_replaced():
    play("put('a', b'1'); put('b', b'2'); put('c', b'3'); os.mkdir('d'); sync('.');"
         "os.rename('a', 'b'); os.unlink('c'); os.rmdir('d'); put('z', b'')", "cut", "exit")
    check(names() == ["a", "b", "c", "d"] and content("b") == b"2" and content("c") == b"3", str(names()))


def test_a_power_cut_brings_back_a_directory_with_what_was_in_it():
    play("os.mkdir('d'); put('d/a', b'1'); sync('d'); sync('.'); put('d/b', b''); os.unlink('d/b');"
         "os.unlink('d/a'); os.rmdir('d')", "cut", "exit")
    check(names() == ["d"] and os.listdir("dir/d") == ["a"] and content("d/a") == b"1", str(names()))
    play("os.mkdir('e'); put('e/a', b'1'); os.unlink('e/a'); os.rmdir('e')", "cut", "exit")
    check(names() == ["d"], str(names()))


def test_a_power_cut_keeps_what_was_synced():
    play("put('a', b'1'); os.mkdir('d'); put('d/b', b'2'); sync('d'); os.rename('d', 'e'); os.unlink('a');"
         "sync('.')", "cut", "exit")
    check(names() == ["e"] and content("e/b") == b"2", str(names()))


def test_a_power_cut_at_the_kth_call_ends_the_process():
    play("put('a', b'1'); sync('.'); put('b', b'2')", "cut", 6, expect=137)
    check(names() == ["a"], str(names()))


def test_a_torn_write_keeps_names_and_sizes_and_zeroes_unsynced_bytes():
    play("put('a', b'12'); put('a', b'12345', False); put('b', b'67', False); os.rename('b', 'c')", "tear", "exit")
    check(names() == ["a", "c"] and content("a") == b"12\0\0\0" and content("c") == b"\0\0",
          str((names(), content("a"))))


def test_calls_of_threads_are_counted():
    play("""
import threading
ts = [threading.Thread(target=put, args=(str(i), b'x')) for i in range(8)]
[t.start() for t in ts]
[t.join() for t in ts]
""", "cut", "exit")
    with open("log") as f:
        numbers = [int(line.split()[0]) for line in f]
    check(numbers == list(range(1, 25)) and names() == [], str(numbers))


if __name__ == "__main__":
    main()
