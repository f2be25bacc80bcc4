# SPDX-License-Identifier: Apache-2.0
# Fault injection: one operation is run again and again, and each time another of its calls that change the disk
# fails, or the process dies there, or the power goes. After every one of them the older checkpoints are intact, what
# was said to be saved is there, and the next save succeeds and cleans up. CKPT_TEST_EVERY=1: at every call.
# faults_test.py SCENARIO [MODE...]
import errno
import os
import re
import shutil
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_input
import tap
from sampling import sampled
from tap import check, run

SHIM = os.environ["CKPT_FAULT_SHIM"]
# The shim plays the power cut itself, so what comes after it may be a sync that doesn't wait for the disk.
PRELOADED = " ".join([SHIM, *filter(None, [os.environ.get("LD_PRELOAD")])])
MODES = {
    "eio": dict(CKPT_FAULT_MODE="fail", CKPT_FAULT_ERRNO=str(errno.EIO)),
    "enospc": dict(CKPT_FAULT_MODE="fail", CKPT_FAULT_ERRNO=str(errno.ENOSPC), CKPT_FAULT_STICKY="1"),
    "edquot": dict(CKPT_FAULT_MODE="fail", CKPT_FAULT_ERRNO=str(errno.EDQUOT)),
    "eintr": dict(CKPT_FAULT_MODE="fail", CKPT_FAULT_ERRNO=str(errno.EINTR)),
    "short": dict(CKPT_FAULT_MODE="short"),
    "kill": dict(CKPT_FAULT_MODE="kill"),
    "cut": dict(CKPT_FAULT_MODE="cut"),
    "tear": dict(CKPT_FAULT_MODE="tear"),
}
WORDS = {
    "eio": "an I/O error", "enospc": "a full disk", "edquot": "an exceeded quota", "eintr": "an interrupted call",
    "short": "a short write", "kill": "a kill", "cut": "a power cut", "tear": "a power cut that keeps names",
}


def content(root):
    """Paths, modes and bytes below a directory."""
    found = {}
    for base, dirs, files in os.walk(root):
        for name in dirs + files:
            path = os.path.join(base, name)
            data = None
            if name in files:
                with open(path, "rb") as f:
                    data = f.read()
            found[os.path.relpath(path, root)] = (os.stat(path).st_mode, data)
    return found


def listing(store):
    """What a store holds, by name. Locks and verify records come and go, which version a shard has doesn't matter, and
    small temporaries, which aren't locked, are kept for a minute before they count as left behind."""
    names = (os.path.relpath(os.path.join(base, name), store) for base, dirs, files in os.walk(store)
             for name in files + dirs)
    return sorted(re.sub(r"(shard-\d+-of-\d+)\.\d+(\.ckpt)", r"\1\2", name) for name in names
                  if "lock" not in name and ".verify" not in name)


def restored(address):
    shutil.rmtree("out", ignore_errors=True)
    run("ckpt-restore", address, "out", stderr=False)
    return content("out")


def save(*arguments, **more):
    return run("ckpt-save", *arguments, stderr=False, **more)


class Scenario:
    """`world` is the directory that faults are injected below, `command` what is run, `step` what it makes."""

    address, source, committed = "world/st@2", "in2", True
    intact = {1: "in1"}  # older checkpoints and what they hold
    begins_damaged = False

    def setup(self):
        save("in1", "world/st@1")

    def may_be_now(self, step):
        """Inputs that `step` may hold if the operation failed; None: may be absent."""
        return (None, self.source)

    def finish(self, claimed):
        """What a user does next: the same again, and that works."""
        save(*self.command[1:])


class NewStep(Scenario):
    """a save into a store that holds a checkpoint"""
    command = ("ckpt-save", "in2", "world/st@2")


class NewStepReadBack(Scenario):
    """a save that is read back"""
    command = ("ckpt-save", "--read-back", "in2", "world/st@2")


class NewStore(Scenario):
    """a save that makes the store"""
    command, address, source, intact = ("ckpt-save", "in1", "world/st@1"), "world/st@1", "in1", {}

    def setup(self):
        pass


class FirstRank(Scenario):
    """a rank's save into an incomplete set"""
    command, committed = ("ckpt-save", "--rank=0", "--world-size=2", "in2", "world/st@2"), False

    def finish(self, claimed):
        # What was said to be written need not be said again.
        if not claimed:
            save(*self.command[1:])
        save("--rank=1", "--world-size=2", "in2", "world/st@2")


class LastRank(Scenario):
    """the save that completes a set"""
    command = ("ckpt-save", "--rank=1", "--world-size=2", "in2", "world/st@2")

    def setup(self):
        super().setup()
        save("--rank=0", "--world-size=2", "in2", "world/st@2")


class Replace(Scenario):
    """a save that replaces a checkpoint"""
    command, source = ("ckpt-save", "--replace", "in3", "world/st@2"), "in3"

    def setup(self):
        super().setup()
        save("in2", "world/st@2")

    def may_be_now(self, step):
        return ("in2", "in3")


class ReplaceThenBack(Replace):
    """a save that replaces a checkpoint, and then one of a third content and one of the first"""

    def finish(self, claimed):
        for name in ("in1", "in2"):
            save("--replace", name, "world/st@2")
            check(restored("world/st@2") == self.inputs[name], f"a save of {name} said it's done, and it isn't there")
        save(*self.command[1:])


class ReplaceDamaged(Replace):
    """a save that replaces a checkpoint with a damaged manifest"""
    begins_damaged = True

    def setup(self):
        super().setup()
        os.truncate("world/st/0000000002/manifest.json", 100)

    def may_be_now(self, step):
        return ("damaged", "in3")


class Resumed(Scenario):
    """a save that retires newer checkpoints"""
    command = ("ckpt-save", "--attempt=1", "--resumed-from=1", "in3", "world/st@2")
    source = "in3"

    def setup(self):
        super().setup()
        save("in2", "world/st@2")
        save("in2", "world/st@3")

    def may_be_now(self, step):
        return (None, "in2", "in3")


class Repair(Scenario):
    """a repair of a flipped bit"""
    command, address, source = ("ckpt-verify", "--repair", "world/st"), "world/st@2", "in2"
    begins_damaged = True

    def setup(self):
        super().setup()
        save("in2", "world/st@2")
        path = next(os.path.join("world/st/0000000002", n) for n in os.listdir("world/st/0000000002")
                    if n.endswith(".ckpt"))
        with open(path, "r+b") as f:
            middle = f.seek(0, 2) // 2
            f.seek(middle)
            byte = f.read(1)[0]
            f.seek(middle)
            f.write(bytes([byte ^ 4]))

    def may_be_now(self, step):
        return ("damaged", "in2")

    def finish(self, claimed):
        run("ckpt-verify", "--repair", "world/st", stderr=None)
        save("in2", "world/st@2")


class Prune(Scenario):
    """a prune"""
    command, committed = ("ckpt-prune", "--remove=2", "world/st"), False
    intact = {1: "in1", 3: "in3"}

    def setup(self):
        super().setup()
        save("in2", "world/st@2")
        save("in3", "world/st@3")

    def finish(self, claimed):
        run("ckpt-prune", "--remove=2", "world/st", expect=(0, 2))  # 2: it's gone already
        save("in2", "world/st@2")


class Compress(Scenario):
    """a compression that stores the newest in full"""
    command, committed = ("ckpt-compress", "--newest-full", "world/st"), True
    intact = {1: "in1", 3: "in3"}

    def setup(self):
        super().setup()
        save("in2", "world/st@2")
        save("in3", "world/st@3")

    def may_be_now(self, step):
        return ("in2",)

    def finish(self, claimed):
        run("ckpt-compress", "--newest-full", "world/st", stderr=False)


SCENARIOS = {cls.__name__: cls for cls in (NewStep, NewStepReadBack, NewStore, FirstRank, LastRank, Replace,
                                           ReplaceThenBack, ReplaceDamaged, Resumed, Repair, Prune, Compress)}


class Player:
    def __init__(self, scenario):
        self.scenario = scenario
        os.mkdir("world")
        for n in (1, 2, 3):
            make_input.directory(f"in{n}", n, 500)
            make_input.put(f"in{n}/noise", make_input.noise(n, 150000))
        self.inputs = scenario.inputs = {name: content(name) for name in ("in1", "in2", "in3")}
        scenario.setup()
        shutil.copytree("world", "begin", symlinks=True)
        # How the store looks if nothing goes wrong; after a fault and the next saves it must look the same.
        self.calls = self.play("count", 0, dict(CKPT_FAULT_MODE="count"))
        check(self.code == 0, f"the operation fails without a fault: {self.stderr}")
        with open("log") as f:
            self.log = [line.split(" ", 2)[1:] for line in f]
        scenario.finish(True)
        save("in3", "world/st@9")
        self.end = listing("world/st")

    def play(self, mode, at, environment):
        shutil.rmtree("world")
        shutil.rmtree("grave", ignore_errors=True)
        shutil.copytree("begin", "world", symlinks=True)
        os.mkdir("grave")
        if os.path.exists("log"):
            os.remove("log")
        done = run(*self.scenario.command, expect=None, timeout=120,
                   env=dict(environment, LD_PRELOAD=PRELOADED, CKPT_FAULT_DIR="world", CKPT_FAULT_GRAVE="grave",
                            CKPT_FAULT_AT=str(at), CKPT_FAULT_LOG="log"))
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        with open("log") as f:
            return sum(1 for _ in f)

    def what_step_holds(self, address):
        done = run("ckpt-restore", address, "probe", expect=(0, 2))
        held = content("probe") if done.returncode == 0 else None
        shutil.rmtree("probe", ignore_errors=True)
        return held, done

    def check_store(self, claimed):
        scenario = self.scenario
        if not os.path.exists("world/st/ckpt-store.json") and not scenario.intact:
            check(not claimed, "the store is gone although the save said it's there")
            return
        for step, source in scenario.intact.items():
            check(restored(f"world/st@{step}") == self.inputs[source], f"step {step} has other content")
        if scenario.intact:
            run("ckpt-ls", "--exists", "world/st", stdout=False, stderr=False)
        damaged = scenario.begins_damaged and not claimed
        run("ckpt-verify", "--deep", "world/st", expect=(0, 1) if damaged else (0,), stdout=None if damaged else False,
            stderr=False)
        held, done = self.what_step_holds(scenario.address)
        if claimed and scenario.committed:
            check(held == self.inputs[scenario.source], lambda: f"what was said to be saved isn't there: {done.stderr}")
        allowed = scenario.may_be_now(2)
        ok = any(held == self.inputs.get(name) for name in allowed if name not in (None, "damaged"))
        ok = ok or (held is None and (None in allowed or "damaged" in allowed))
        check(ok, lambda: f"step of the operation holds something else: {done.stderr}")

    def check_end(self, claimed):
        self.scenario.finish(claimed)
        check(restored(self.scenario.address) == self.inputs[self.scenario.source],
              "the next save didn't bring the right content")
        save("in3", "world/st@9")
        run("ckpt-verify", "--deep", "world/st", stdout=False, stderr=False)
        now = listing("world/st")
        check(now == self.end, lambda: f"leftovers: {sorted(set(now) - set(self.end))}, "
              f"missing: {sorted(set(self.end) - set(now))}")

    def one(self, mode, at, environment):
        self.play(mode, at, environment)
        code, claimed = self.code, bool(self.stdout) or (self.code == 0)
        if mode in ("eio", "enospc", "edquot"):
            # A repair that can't be done is a finding of verify's, and a record that can't be kept a warning.
            repair = isinstance(self.scenario, Repair)
            check(code in ((0, 1, 2) if repair else (0, 2)), f"exit status {code}: {self.stderr}")
            check(code == 0 or self.stderr or (repair and code == 1), "a failure without a message")
            op = self.log[at - 1][0] if at <= len(self.log) else ""
            # And what a prune can't delete it leaves to the next one, with a warning.
            warned = isinstance(self.scenario, (Repair, Prune, Compress)) and b"warning" in self.stderr
            check(warned or not (mode == "eio" and code == 0 and op in ("fsync", "fdatasync")),
                  "a failed sync went unnoticed")
        elif mode in ("eintr", "short"):
            check(code == 0, f"exit status {code}: {self.stderr}")
        elif mode == "kill":
            check(code in (0, -signal.SIGKILL), f"exit status {code}")
        else:
            check(code in (0, 137), f"exit status {code}: {self.stderr}")
        if isinstance(self.scenario, Repair):
            claimed = code == 0
        self.check_store(claimed)
        self.check_end(claimed)


def case(scenario, mode):
    def test():
        player = Player(scenario)
        check(player.calls > 5, "the shim sees no calls")
        points = sampled(range(1, player.calls + 1))
        if mode in ("cut", "tear"):
            points.append("exit")
        for at in points:
            try:
                player.one(mode, at, MODES[mode])
            except AssertionError as error:
                where = player.log[at - 1] if at != "exit" and at <= len(player.log) else ["exit"]
                raise AssertionError(f"{mode} at call {at} of {player.calls} ({' '.join(where).strip()}): {error}") from None
    return test


if __name__ == "__main__":
    chosen = SCENARIOS[sys.argv[1]]()
    modes = sys.argv[2:] or list(MODES)
    sys.argv[1:] = []
    tap.main([(f"{chosen.__doc__}, {WORDS[mode]} at any call", case(chosen, mode)) for mode in modes])
