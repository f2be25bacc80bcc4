# SPDX-License-Identifier: Apache-2.0
# The program in a man page's EXAMPLES, as a file that a compiler takes. As a command: man_code.py PAGE FILE.
import re
import sys


def program_of(page):
    with open(page, encoding="utf-8") as file:
        examples = re.search(r"^\.Sh EXAMPLES\n(.*?)(?=^\.Sh )", file.read(), re.M | re.S)[1]
    code = re.search(r"^\.Bd -literal[^\n]*\n(#include .*?)^\.Ed", examples, re.M | re.S)[1]
    return code.replace("\\e", "\\")


if __name__ == "__main__":
    with open(sys.argv[2], "w", encoding="utf-8") as program:
        program.write(program_of(sys.argv[1]))
