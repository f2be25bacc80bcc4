# SPDX-License-Identifier: Apache-2.0
# kill -9 loops: saves, prunes and compressions are killed at random moments while a verify runs beside them. Only a lost or wrong
# byte, a store that can't be read, or a next save that fails counts. CKPT_KILL_ROUNDS: how many kills a test does.
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
from tap import check, main, run

ROUNDS = int(os.environ.get("CKPT_KILL_ROUNDS", "30"))
SEED = int(os.environ.get("CKPT_KILL_SEED", str(random.randrange(1 << 30))))


def content(root):
    found = {}
    for base, _, files in os.walk(root):
        for name in files:
            with open(os.path.join(base, name), "rb") as f:
                found[os.path.relpath(os.path.join(base, name), root)] = f.read()
    return found


def content_of_file(path):
    with open(path, "rb") as file:
        return file.read()


def inputs(count):
    for n in range(count):
        make_input.directory(f"in{n}", n, 3000)
        make_input.put(f"in{n}/noise", make_input.noise(n, 3000000))
    return [content(f"in{n}") for n in range(count)]


class Beside:
    """Verifies the store over and over until it's stopped; damage that it sees is a failure."""

    def __init__(self, *options):
        self.options = options

    def __enter__(self):
        self.problem, self.stop = None, threading.Event()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()
        return self

    def work(self):
        while not self.stop.is_set() and self.problem is None:
            # Until the first save has made the store there's nothing to look at. Asked before the verify, not after
            # it: the store may come into being in between.
            if not os.path.exists("st/ckpt-store.json"):
                continue
            done = subprocess.run(["ckpt-verify", *self.options, "st"], capture_output=True)
            if done.returncode != 0 or done.stdout:
                self.problem = f"verify beside it: {done.returncode} {done.stdout[:500]!r} {done.stderr[:500]!r}"

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        check(self.problem is None, self.problem)


def how_long(*command):
    begin = time.monotonic()
    run(*command, stderr=False)
    return time.monotonic() - begin


def kill_at_random(rng, limit, *commands):
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for c in commands]
    time.sleep(rng.uniform(0, limit))
    victims = running if len(running) == 1 else [rng.choice(running)]
    for process in victims:
        process.send_signal(signal.SIGKILL)
    said = []
    for process, command in zip(running, commands):
        out, err = process.communicate(timeout=120)
        check(process.returncode in (0, -signal.SIGKILL), f"{command}: {process.returncode} {err[:500]!r}")
        said.append(bool(out))
    return said


def restored(address):
    run("rm", "-rf", "out")
    run("ckpt-restore", address, "out", stderr=False)
    return content("out")


def no_temporaries():
    left = [os.path.join(b, n) for b, ds, fs in os.walk("st/.pending") for n in fs + ds
            if n != "tmp" and "lock" not in n and not n.startswith("attempt-")]
    trash = os.listdir("st/.trash") if os.path.isdir("st/.trash") else []
    check(not left and not trash, lambda: f"leftovers: {left} {trash}")


def test_saves_of_new_steps_are_killed():
    rng, wanted = random.Random(SEED), inputs(2)
    limit = how_long("ckpt-save", "in0", "st@1") * 1.2
    held = {1: wanted[0]}
    with Beside():
        for step in range(2, ROUNDS + 2):
            n = step % 2
            said = kill_at_random(rng, limit, ("ckpt-save", f"in{n}", f"st@{step}"))
            if said[0]:
                held[step] = wanted[n]
            if step % 5 == 0:
                check(restored(f"st@{max(held)}") == held[max(held)], f"step {max(held)} has other content (seed {SEED})")
    for step, want in held.items():
        check(restored(f"st@{step}") == want, f"step {step} has other content (seed {SEED})")
    run("ckpt-save", "in0", "st@9999", stderr=False)
    no_temporaries()
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


def test_ranks_at_once_are_killed_and_run_again():
    rng, wanted = random.Random(SEED), inputs(3)
    whole = {f"rank-{r:05}/{name}": data for r in range(3) for name, data in wanted[r].items()}
    limit = how_long("ckpt-save", "in0", "other@1") * 3
    with Beside():
        for step in range(1, ROUNDS // 4 + 2):
            commands = [("ckpt-save", f"--rank={r}", "--world-size=3", f"in{r}", f"st@{step}") for r in range(3)]
            kill_at_random(rng, limit, *commands)
            for command in commands:
                run(*command, stderr=False)
            run("rm", "-rf", "out")
            run("ckpt-restore", "--by-rank", f"st@{step}", "out", stderr=False)
            check(content("out") == whole, f"step {step} has other content (seed {SEED})")
    no_temporaries()
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


def test_replacing_saves_are_killed():
    rng, wanted = random.Random(SEED), inputs(2)
    run("ckpt-save", "in1", "st@1", stderr=False)
    limit = how_long("ckpt-save", "in0", "st@2") * 1.2
    with Beside():
        for turn in range(ROUNDS // 2):
            n = (turn + 1) % 2
            said = kill_at_random(rng, limit, ("ckpt-save", "--replace", f"in{n}", "st@2"))
            now = restored("st@2")
            check(now == wanted[n] or (not said[0] and now in wanted), f"step 2 holds something else (seed {SEED})")
            check(restored("st@1") == wanted[1], f"step 1 has other content (seed {SEED})")
    run("ckpt-save", "--replace", "in0", "st@2", stderr=False)
    run("ckpt-save", "in0", "st@9999", stderr=False)
    no_temporaries()
    check(len(os.listdir("st/0000000002")) == 2, lambda: f"leftovers: {os.listdir('st/0000000002')}")
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


def test_retiring_saves_are_killed():
    rng, wanted = random.Random(SEED), inputs(2)
    run("ckpt-save", "in1", "st@1", stderr=False)
    limit = how_long("ckpt-save", "in0", "st@2") * 1.2
    with Beside():
        for attempt in range(1, ROUNDS // 4 + 1):
            command = ("ckpt-save", f"--attempt={attempt}", "--resumed-from=1", "in0", "st@2")
            kill_at_random(rng, limit, command)
            run(*command, stderr=False)
            check(restored("st") == wanted[0], f"the latest has other content (seed {SEED})")
            check(restored("st@1") == wanted[1], f"step 1 has other content (seed {SEED})")
    no_temporaries()
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


def test_repairs_are_killed():
    rng, wanted = random.Random(SEED), inputs(1)
    run("ckpt-save", "in0", "st@1", stderr=False)
    limit = how_long("ckpt-verify", "st") * 6 + 0.02
    for _ in range(ROUNDS // 4):
        path = max((os.path.join("st/0000000001", n) for n in os.listdir("st/0000000001") if n.endswith(".ckpt")),
                   key=os.path.getmtime)
        with open(path, "r+b") as f:
            at = rng.randrange(os.path.getsize(path))
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 1 << rng.randrange(8)]))
        process = subprocess.Popen(["ckpt-verify", "--repair", "st"], stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, limit))
        process.kill()
        process.wait()
        run("ckpt-verify", "--repair", "st")
        check(restored("st@1") == wanted[0], f"another content after a repair (seed {SEED})")


def committed():
    return sorted(int(name) for name in os.listdir("st") if name.isdigit())


def test_prunes_are_killed_beside_saves_that_may_be_killed_too():
    rng, wanted = random.Random(SEED), inputs(2)
    limit = how_long("ckpt-save", "in1", "st@1") * 1.5
    run("ckpt-prune", "--pin=1", "st", stdout=False, stderr=False)
    newest = 1
    with Beside():
        for step in range(2, ROUNDS + 2):
            save = ("ckpt-save", f"in{step % 2}", f"st@{step}")
            prune = ("ckpt-prune", "--keep-last=2", "--keep-every=7", "st")
            # In both orders, and one of the two dies.
            said = kill_at_random(rng, limit, *([save, prune] if step % 3 else [prune, save]))
            if said[0 if step % 3 else 1]:
                newest = step
            steps = committed()
            check(1 in steps and newest in steps, f"{steps} lacks 1 or {newest} (seed {SEED})")
            older = rng.choice(steps)
            if step % 4 == 0:
                check(restored(f"st@{newest}") == wanted[newest % 2], f"step {newest} has other content (seed {SEED})")
                check(restored("st@1") == wanted[1], f"step 1 has other content (seed {SEED})")
            if step % 5 == 0:
                check(restored(f"st@{older}") == wanted[older % 2], f"step {older} has other content (seed {SEED})")
    run("ckpt-save", "in1", "st@9999", stderr=False)
    there = committed()
    run("ckpt-prune", "--keep-last=2", "--keep-every=7", "st", stdout=False, stderr=False)
    no_temporaries()
    left = set(committed())
    check(left == {1} | set(there[-2:]) | {n for n in there if n % 7 == 0}, f"{left} of {there} (seed {SEED})")
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


class Use:
    """Does as a process that will depend on a checkpoint: pins it, then looks whether it's still there."""

    def __init__(self, step):
        with open(f"st/{step:010}/manifest.json", encoding="utf-8") as f:
            self.id = json.load(f)["id"]
        os.makedirs("st/.pins", exist_ok=True)
        host = socket.gethostname().replace("/", "_").replace(".", "_")
        self.path = f"st/.pins/use.{host}.{os.getpid()}.{step}.{step:010}-{self.id}"
        while True:
            self.file = open(self.path, "w")
            fcntl.flock(self.file, fcntl.LOCK_EX)
            # A cleaner may have met the file before it was locked, and taken it for a dead one's.
            if os.fstat(self.file.fileno()).st_nlink > 0:
                break
        self.holds = os.path.exists(f"st/{step:010}/manifest.json")

    def end(self):
        os.unlink(self.path)
        self.file.close()


def test_what_is_in_use_survives_prunes_that_are_killed():
    rng, wanted = random.Random(SEED), inputs(2)
    run("ckpt-save", "in0", "st@0", stderr=False)
    limit = how_long("ckpt-prune", "--keep-last=1", "st") * 2
    held = 0
    for turn in range(ROUNDS):
        for step in range(turn * 3 + 1, turn * 3 + 4):
            run("ckpt-save", f"in{step % 2}", f"st@{step}", stderr=False)
        step = turn * 3 + rng.randrange(1, 3)
        process = subprocess.Popen(["ckpt-prune", "--keep-last=1", "st"], stderr=subprocess.PIPE)
        time.sleep(rng.uniform(0, limit) * rng.randrange(2))
        try:
            use = Use(step)
        except FileNotFoundError:
            use = None  # gone before it could be pinned
        time.sleep(rng.uniform(0, limit))
        process.kill()
        process.communicate()
        if use is not None:
            held += use.holds
            run("ckpt-prune", "--keep-last=1", "st", stdout=False, stderr=False)
            check(not use.holds or step in committed(), f"step {step} was removed while in use (seed {SEED})")
            check(not use.holds or restored(f"st@{step}") == wanted[step % 2], f"step {step} differs (seed {SEED})")
            use.end()
        check(restored("st") == wanted[(turn * 3 + 3) % 2], f"the latest has other content (seed {SEED})")
    check(held > 0 or ROUNDS < 20, "nothing was ever held")
    run("ckpt-prune", "--keep-last=1", "st", stdout=False, stderr=False)
    check(len(committed()) == 1, lambda: f"{committed()} are left")
    no_temporaries()


def test_compressions_are_killed_beside_saves_that_may_be_killed_too():
    rng = random.Random(SEED)
    for n in range(6):
        make_input.drift(f"s{n}", n, count=17000)
    wanted = [content_of_file(f"s{n}") for n in range(6)]
    ways = (["--newest-full"], [], ["--rebase"], ["--base=none"], ["--max-chain=3"], ["--encode=fast", "--newest-full"])
    run("ckpt-save", "s0", "st@0", stderr=False)
    limit = how_long("ckpt-save", "s1", "st@1") * 6
    newest = 1
    with Beside("--deep"):
        for step in range(2, ROUNDS + 2):
            save = ("ckpt-save", *rng.choice(([], ["--encode=raw"])), f"s{step % 6}", f"st@{step}")
            compress = ("ckpt-compress", *rng.choice(ways), "st")
            commands = [save, compress] if step % 2 else [compress, save]
            said = kill_at_random(rng, limit, *commands)
            if said[commands.index(save)]:
                newest = step
            if step % 4 == 0:
                # What depends on what goes is encoded anew, too.
                run("ckpt-prune", "--keep-last=7", "st", stdout=False)
            one = rng.choice(committed())
            for step in {one, newest}:
                got = restored(f"st@{step}")[f"s{step % 6}"]
                check(got == wanted[step % 6], f"step {step} has other content (seed {SEED})")
    run("ckpt-save", "s0", "st@9996", stderr=False)
    run("ckpt-compress", "--newest-full", "st", stdout=False, stderr=False)
    no_temporaries()
    for step in committed():
        check(len(os.listdir(f"st/{step:010}")) == 2, f"leftovers: {os.listdir(f'st/{step:010}')} (seed {SEED})")
    run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)


def test_what_loses_values_in_a_run_that_is_killed_has_lost_them_or_not():
    rng = random.Random(SEED)
    for n in range(4):
        make_input.drift(f"s{n}", n, count=17000)
    wanted = [content_of_file(f"s{n}") for n in range(4)]
    for n in range(4):
        run("ckpt-save", f"s{n}", f"keep@{n}", stderr=False)
    run("cp", "-a", "keep", "st", stdout=False, stderr=False)
    begin = 8 + int.from_bytes(wanted[0][:8], "little") + 17000 * 6
    without = [data[:begin] + bytes(17000 * 4) + data[begin + 17000 * 4:] for data in wanted]
    limit = how_long("ckpt-compress", "--drop=moment", "st") * 1.2
    run("rm", "-rf", "st")
    for turn in range(ROUNDS // 4):
        run("cp", "-a", "keep", "st", stdout=False, stderr=False)
        kill_at_random(rng, limit, ("ckpt-compress", "--drop=moment", "st"))
        for n in range(4):
            run("rm", "-rf", "out")
            run("ckpt-restore", "--allow-lossy", f"st@{n}", "out")
            got = content("out")[f"s{n}"]
            check(got in (wanted[n], without[n]), f"step {n} has other content (seed {SEED})")
        check(got == wanted[3], f"the newest has lost values (seed {SEED})")
        run("ckpt-compress", "--drop=moment", "st")
        check(content_after_drop() == without[:3], f"other content after a second run (seed {SEED})")
        run("ckpt-verify", "--deep", "st", stdout=False, stderr=False)
        run("mv", "st", f"gone{turn}", stdout=False, stderr=False)


def content_after_drop():
    found = []
    for n in range(3):
        run("rm", "-rf", "out")
        run("ckpt-restore", "--allow-lossy", f"st@{n}", "out")
        found.append(content("out")[f"s{n}"])
    return found


if __name__ == "__main__":
    main()
