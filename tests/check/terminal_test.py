# SPDX-License-Identifier: Apache-2.0
# What the tools do on a terminal, and don't do elsewhere: colour, progress, the refusal to write data to it.
import os
import pty
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check, main, run

ESCAPE = b"\x1b["


def on_terminal(*command, **env):
    """Runs it with all three streams on a new terminal; gives the exit status and what the terminal got."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm", **env})
        os.execvp(command[0], command)
    text = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


def store():
    with open("state.txt", "w", encoding="utf-8") as file:
        file.write("state")
    run("ckpt-save", "--meta=a=b", "state.txt", "st@1")


def warning(*options, **env):
    """A save that has a warning to say."""
    return on_terminal("ckpt-save", *options, "state.txt", "st@1", WORLD_SIZE="2", **env)


def test_output_of_data_to_a_terminal_is_refused():
    store()
    status, text = on_terminal("ckpt-restore", "-o", "-", "st@1")
    check(status == 2 and b"terminal" in text and b"hint" in text, f"{status} {text!r}")


def test_warnings_are_coloured_on_a_terminal():
    store()
    status, text = warning()
    check(status == 0 and b"warning:" in text and ESCAPE in text, f"{status} {text!r}")


def test_nothing_is_coloured_with_no_color_or_a_dumb_terminal_or_never():
    store()
    for options, env in (((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"}), (("--color=never",), {})):
        status, text = warning("--no-progress", *options, **env)
        check(status == 0 and b"warning:" in text and ESCAPE not in text, f"{options} {env}: {status} {text!r}")


def test_an_empty_no_color_is_as_good_as_none():
    store()
    check(ESCAPE in warning(NO_COLOR="")[1], "no colour")


def test_nothing_is_coloured_without_a_terminal_but_with_always():
    store()
    env = {"WORLD_SIZE": "2", "TERM": "xterm"}
    check(ESCAPE not in run("ckpt-save", "state.txt", "st@1", env=env).stderr, "colour in a pipe")
    check(ESCAPE in run("ckpt-save", "--color=always", "state.txt", "st@1", env=env).stderr, "no colour with always")


def test_a_progress_line_is_erased_before_the_address():
    with open("big", "wb") as file:
        file.truncate(1 << 30)
    status, text = on_terminal("ckpt-save", "big", "st@1")
    check(status == 0, f"{status} {text!r}")
    # What is left of each line once it was drawn over.
    lines = [line.split(b"\x1b[K")[-1].rsplit(b"\r", 1)[-1] for line in text.split(b"\r\n")]
    check(lines == [b"st@1", b""], f"left on the terminal: {lines} of {text!r}")


def test_quiet_and_no_progress_show_none():
    with open("big", "wb") as file:
        file.truncate(1 << 28)
    for step, option in enumerate(("-q", "--no-progress")):
        status, text = on_terminal("ckpt-save", option, "big", f"st@{step}")
        check((status, text) == (0, b"st@%d\r\n" % step), f"{option}: {status} {text!r}")


def test_a_malformed_columns_is_named():
    store()
    status, text = on_terminal("ckpt-ls", "st", COLUMNS="wide")
    check(status == 2 and b"COLUMNS" in text, f"{status} {text!r}")


def test_control_characters_in_names_never_reach_a_terminal():
    os.mkdir("run")
    with open("run/a\x1b[31m\nb", "w", encoding="utf-8") as file:
        file.write("x")
    run("ckpt-save", "run", "st@1")
    for command in (("ckpt-ls", "st@1"), ("ckpt-ls", "--get=nosuch", "st"), ("ckpt-ls", "st@1\x1b[31m")):
        text = on_terminal(*command, "--color=never", "--no-progress")[1]
        check(ESCAPE not in text, f"{command}: {text!r}")
    check(re.search(rb"a\\x1b\[31m\\nb", on_terminal("ckpt-ls", "st@1", NO_COLOR="1")[1]), "the name isn't there, escaped")


main()
