# SPDX-License-Identifier: Apache-2.0
# Adds up what tests/run did: builds, and test logs of meson (JSON lines), in which TAP and doctest programs count with
# each of their cases. Prints what failed, then the one line that sums it up.
import glob
import json
import os
import re
import sys

TAP = re.compile(r"^(not )?ok\b[ \t]*(\d*)[ \t]*(.*)$", re.M)
PLAN = re.compile(r"^1\.\.(\d+)", re.M)
DOCTEST = re.compile(r"^\[doctest\] test cases: +\d+ \| +(\d+) passed \| +(\d+) failed", re.M)


def count(test):
    """(passed, failed, skipped) of one line of the log."""
    good, out = test["result"] in ("OK", "EXPECTEDFAIL"), test.get("stdout") or ""
    plan, doctest = PLAN.search(out), DOCTEST.search(out)
    if plan:
        passed = failed = skipped = 0
        for no, _, text in TAP.findall(out):
            if no:
                failed += 1
            elif "# SKIP" in text.upper():
                skipped += 1
            else:
                passed += 1
        if test["result"] == "SKIP" and not passed + failed + skipped:
            skipped = 1
        failed += max(0, int(plan.group(1)) - passed - failed - skipped)
    elif doctest:
        passed, failed, skipped = int(doctest.group(1)), int(doctest.group(2)), 0
    elif test["result"] == "SKIP":
        return 0, 0, 1
    else:
        passed, failed, skipped = int(good), 0, 0
    if not good and test["result"] != "SKIP":
        failed = max(failed, 1)
    return passed, failed, skipped


def show(build, test):
    print(f"---- {test['result']}: {test['name']} ({build})")
    for stream in ("stdout", "stderr"):
        text = test.get(stream) or ""
        lines = [line for line in text.splitlines() if not re.match(r"ok \d+", line)]
        if lines:
            print(f"[{stream}]")
            print("\n".join(lines[-120:]))


def main():
    total = [0, 0, 0]
    with open(os.path.join(sys.argv[1], "builds")) as f:
        for line in f:
            print(line.rstrip())
            total[0 if line.startswith("built") else 1] += 1
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.json"))):
        with open(path, errors="replace") as f:
            tests = [json.loads(line) for line in f if line.strip()]
        for test in tests:
            counts = count(test)
            total = [a + b for a, b in zip(total, counts)]
            if counts[1]:
                show(os.path.basename(path)[:-5], test)
    passed, failed, skipped = total
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
