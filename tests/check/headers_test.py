# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, and includes nothing but the standard library and other public headers.
import glob
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check, main, run

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
HEADERS = sorted(glob.glob(f"{TOP}/lib/include/ckpt/*.hpp"))
COMPILER = os.environ.get("CKPT_CXX", "c++").split()


def compiles(header):
    def test():
        run(*COMPILER, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{TOP}/lib/include",
            "-x", "c++", "-include", header, "/dev/null", stdout=False, stderr=False)
    return test


def test_includes():
    for header in HEADERS:
        with open(header, encoding="utf-8") as file:
            for name in re.findall(r'^#include\s+[<"]([^>"]+)[>"]', file.read(), re.M):
                check(name.startswith("ckpt/") or re.fullmatch(r"[a-z_]+", name), f"{header} includes {name}")


tests = [(f"{os.path.basename(header)} compiles alone", compiles(header)) for header in HEADERS]
tests.append(("public headers include the standard library and each other only", test_includes))
main(tests)
