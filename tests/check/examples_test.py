# SPDX-License-Identifier: Apache-2.0
# Every block of shell lines in the EXAMPLES of a man page runs: the blocks of one page in turn, in one scratch
# directory that holds what the pages speak of.
import glob
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import FIXTURES, check, main, run

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
ESCAPES = {r"\e": "\\", r"\(aq": "'", r"\(dq": '"', r"\(ti": "~", r"\(ha": "^", r"\-": "-", r"\&": ""}


def unescaped(text):
    return re.sub(r"\\(?:\(..|.)", lambda m: ESCAPES[m.group()], text)


def blocks(page):
    """The shell scripts: lines that begin with '$ ', and those with '> ' that go on with them."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    match = re.search(r"^\.Sh EXAMPLES\n(.*?)(?=^\.Sh |\Z)", text, re.M | re.S)
    found = []
    for block in re.findall(r"^\.Bd -literal[^\n]*\n(.*?)^\.Ed", match.group(1) if match else "", re.M | re.S):
        lines = [unescaped(line)[2:] for line in block.splitlines() if line[:2] in ("$ ", "> ")]
        if lines:
            found.append("\n".join(lines))
    return found


def set_up():
    shutil.copy(f"{FIXTURES}/train_step5.pt", "state.pt")
    shutil.copy(f"{FIXTURES}/fsdp2-rank0.pt", "rank0.pt")
    shutil.copy(f"{FIXTURES}/fsdp2-rank1.pt", "rank1.pt")
    shutil.copytree(f"{FIXTURES}/hf-checkpoint-500", "checkpoint-500")
    os.mkdir("runs")


def test_of(page):
    def test():
        set_up()
        for script in blocks(page):
            run("bash", "-c", "set -euo pipefail\n" + script, stderr=False)
    return test


def page_has_examples(pages):
    def test():
        for page in pages:
            check(blocks(page), f"{page} has no example that can run")
    return test


pages = sorted(glob.glob(f"{TOP}/man/ckpt*.[1357]"))
commands = [page for page in pages if page.endswith(".1")]
tests = [(f"examples of {os.path.basename(page)} run", test_of(page)) for page in pages if blocks(page)]
tests.append(("each command's page has examples", page_has_examples(commands)))
main(tests)
