# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, and includes nothing but the standard library and other public headers.
import glob
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from man_code import program_of
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


def test_c_header():
    run(*COMPILER, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c",
        f"{TOP}/lib/include/ckpt/ckpt.h", stdout=False, stderr=False)


def test_c_example():
    """That of ckpt_save(3), compiled and run as it stands."""
    with open("example.c", "w", encoding="utf-8") as file:
        file.write(program_of(f"{TOP}/man/ckpt_save.3"))
    libraries = os.path.join(os.path.dirname(shutil.which("ckpt-save")), "..", "lib")
    run(*COMPILER, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{TOP}/lib/include", "-x", "c",
        "example.c", "-o", "example", f"-L{libraries}", "-lckpt", stdout=False, stderr=False)
    os.makedirs("runs")
    run("./example", stdout=False, stderr=False, env={"LD_LIBRARY_PATH": libraries})
    run("ckpt-verify", "--deep", "runs/c", stdout=False, stderr=False)
    check(run("ckpt-ls", "--format=tsv", "runs/c", stderr=False).stdout.count(b"\n") == 3, "not three checkpoints")


tests = [("ckpt.h compiles as C", test_c_header), ("the example of ckpt_save(3) does what it says", test_c_example)]
tests += [(f"{os.path.basename(header)} compiles alone", compiles(header)) for header in HEADERS]
tests.append(("public headers include the standard library and each other only", test_includes))
main(tests)
