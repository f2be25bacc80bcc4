# SPDX-License-Identifier: Apache-2.0
# The man pages are well formed, have their sections in one order, and refer to pages that are there.
import glob
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import Skip, check, main, run

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PAGES = sorted(glob.glob(f"{TOP}/man/ckpt*.[1357]"))
ORDER = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "ENVIRONMENT", "EXIT STATUS", "EXAMPLES", "SEE ALSO", "CAVEATS"]
# What these say depends on which other pages are installed.
INSTALLATION = re.compile(r"referenced manual not found|outdated mandoc\.db|cannot open .*mandoc\.db|missing /usr")


def text_of(page):
    with open(page, encoding="utf-8") as file:
        return file.read()


def test_mandoc_finds_nothing_to_say():
    if shutil.which("mandoc") is None:
        raise Skip("no mandoc")
    done = run("mandoc", "-Tlint", *PAGES, expect=None)
    said = [line for line in (done.stdout + done.stderr).decode().splitlines() if not INSTALLATION.search(line)]
    check(not said, lambda: "\n".join(said))


def test_commands_have_their_sections_in_one_order():
    for page in PAGES:
        if not page.endswith(".1"):
            continue
        sections = re.findall(r"^\.Sh (.*)$", text_of(page), re.M)
        wanted = ORDER if "CAVEATS" in sections else ORDER[:-1]
        check(sections == wanted, f"{page}: {sections}")


def test_pages_of_ours_that_are_referred_to_exist():
    for page in PAGES:
        for name, section in re.findall(r"\bXr (ckpt\S*) (\d)", text_of(page)):
            check(os.path.exists(f"{TOP}/man/{name}.{section}"), f"{page} refers to {name}({section})")


def test_every_page_is_installed():
    listed = text_of(f"{TOP}/man/meson.build")
    for page in PAGES:
        check(f"'{os.path.basename(page)}'" in listed, f"{page} isn't in man/meson.build")


main()
