# SPDX-License-Identifier: Apache-2.0
# The other Python tests with a current PyTorch. CKPT_TORCH_ROOT is the root of a Debian system that has one, as
# debootstrap makes it; needs root. The library and the tools are the ones that were built here, with what they need.
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from tap import Skip, check, main  # noqa: E402

TOP = os.path.realpath(os.path.join(HERE, "..", ".."))
ROOT = os.environ.get("CKPT_TORCH_ROOT", "")
# Those are the C library's, and must be the root's own.
SYSTEM = ("libc.so", "libm.so", "libpthread", "libdl", "ld-linux", "linux-vdso", "libstdc++", "libgcc_s")
SCRIPT = """set -e
mkdir -p "$ROOT/ckpt/source" "$ROOT/ckpt/build"
mount --bind "$TOP" "$ROOT/ckpt/source"
mount --bind "$BUILD" "$ROOT/ckpt/build"
mount -t tmpfs tmpfs "$ROOT/tmp"
mount -t proc proc "$ROOT/proc"
mkdir "$ROOT/tmp/libraries"
cp $LIBRARIES "$ROOT/tmp/libraries/"
exec chroot "$ROOT" env -i HOME=/root LC_ALL=C.UTF-8 USE_LIBUV=0 \\
    PATH=/ckpt/build/tools:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \\
    LD_LIBRARY_PATH=/ckpt/build/lib:/tmp/libraries python3 "/ckpt/source/tests/python/$SCRIPT_NAME"
"""


def needed(path):
    listed = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    found = [line.split("=> ")[1].split(" ")[0] for line in listed.splitlines() if "=> /" in line]
    return [library for library in found if not os.path.basename(library).startswith(SYSTEM + ("libckpt",))]


def runs(name):
    def test():
        if not os.path.exists(os.path.join(ROOT, "usr", "bin", "python3")) or not ROOT:
            raise Skip("no CKPT_TORCH_ROOT")
        if os.geteuid() != 0:
            raise Skip("not root")
        build = os.path.realpath(os.path.join(os.path.dirname(shutil.which("ckpt-save")), ".."))
        libraries = {library for tool in ("lib/libckpt.so.0", "tools/ckpt-restore")
                     for library in needed(os.path.join(build, tool))}
        done = subprocess.run(["unshare", "--mount", "sh", "-c", SCRIPT], capture_output=True, text=True, timeout=900,
                              env=dict(os.environ, LD_PRELOAD="", ROOT=ROOT, TOP=TOP, BUILD=build, LIBRARIES=" ".join(libraries),
                                       SCRIPT_NAME=name))
        check(done.returncode == 0 and "\nok 1" in "\n" + done.stdout, lambda: f"{done.stdout[-6000:]}{done.stderr[-3000:]}")
    return test


main([(f"{name} with a current PyTorch", runs(name))
      for name in ("python_files_test.py", "python_saver_test.py", "python_sharding_test.py", "python_dtensor_test.py")])
