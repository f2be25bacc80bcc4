# SPDX-License-Identifier: Apache-2.0
# What --help lists is what the man page and the completions of bash, zsh and fish list; the help fits its page.
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import Skip, check, main, run

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TOOLS = ("ckpt-save", "ckpt-wait", "ckpt-serve", "ckpt-restore", "ckpt-verify", "ckpt-ls", "ckpt-diff", "ckpt-compress",
         "ckpt-prune", "ckpt-sync", "ckpt-bench", "ckpt-run")


def help_text(tool):
    return run(tool, "--help", stderr=False).stdout.decode()


def help_options(tool):
    options = set()
    for line in help_text(tool).splitlines():
        match = re.match(r"  (?:(-\w), |    )(--[a-z0-9-]+)", line)
        if match:
            options.update(filter(None, match.groups()))
    check(len(options) > 10, f"{tool} --help lists hardly any option: {options}")
    return options


def man_options(tool):
    options = set()
    with open(f"{TOP}/man/{tool}.1", encoding="utf-8") as page:
        for line in page:
            if line.startswith(".It Fl"):
                options.update("-" + name for name in re.findall(r"\bFl (-?[A-Za-z0-9-]+)", line))
    return options


def need(shell):
    if shutil.which(shell) is None:
        raise Skip(f"no {shell}")


def bash_options(tool):
    script = f"""source {TOP}/completions/ckpt.bash
        COMP_LINE='{tool} -'
        COMP_POINT=${{#COMP_LINE}}
        _ckpt {tool}
        printf '%s\\n' "${{COMPREPLY[@]}}" """
    words = run("bash", "-c", script, stderr=False).stdout.decode().split()
    return {word.rstrip("=") for word in words}


def zsh_options(tool):
    # _arguments shows what it's given instead of completing.
    script = f"""_arguments() {{ print -rl -- "$@" }}
        service={tool}
        function complete_it {{ source {TOP}/completions/_ckpt }}
        complete_it"""
    options = set()
    for spec in run("zsh", "-f", "-c", script, stderr=False).stdout.decode().splitlines():
        match = re.match(r"(?:\([^)]*\))?\*?(--?[A-Za-z0-9][a-z0-9-]*)[+=]?\[", spec)
        if match:
            options.add(match.group(1))
    return options


def fish_options(tool):
    lines = run("fish", "-N", "-c", f"source {TOP}/completions/ckpt.fish; complete -c {tool}",
                env={"HOME": os.getcwd()}).stdout.decode()
    options = set()
    for line in lines.splitlines():
        if f" {tool} " not in line + " ":
            continue
        options.update("-" + x for x in re.findall(r" (?:-s|--short(?:-option)?) (\w)", line))
        options.update("--" + x for x in re.findall(r" (?:-l|--long(?:-option)?) ([a-z0-9-]+)", line))
    return options


def same(tool, what, found):
    wanted = help_options(tool)
    check(found == wanted, f"{tool}: only in --help: {sorted(wanted - found)}, only in {what}: {sorted(found - wanted)}")


def test_help_and_man_page_list_the_same_options():
    for tool in TOOLS:
        same(tool, "the man page", man_options(tool))


def test_help_and_bash_completion_list_the_same_options():
    need("bash")
    for tool in TOOLS:
        same(tool, "bash", bash_options(tool))


def test_help_and_zsh_completion_list_the_same_options():
    need("zsh")
    for tool in TOOLS:
        same(tool, "zsh", zsh_options(tool))


def test_help_and_fish_completion_list_the_same_options():
    need("fish")
    for tool in TOOLS:
        same(tool, "fish", fish_options(tool))


def test_help_is_on_stdout_fits_80_columns_and_ends_with_the_exit_status():
    for tool in TOOLS:
        for option in ("--help", "-h"):
            text = run(tool, option, stdout=True, stderr=False).stdout.decode()
            wide = [line for line in text.splitlines() if len(line) > 80]
            check(not wide, f"{tool} {option}: wider than 80 columns: {wide}")
            tail = text[text.index("Exit status:"):]
            check(re.search(r"\n  75 .*\n  signal .*\n$", tail), f"{tool} {option} ends otherwise: {tail}")


def test_version_is_on_stdout():
    for tool in TOOLS:
        for option in ("--version", "-V"):
            text = run(tool, option, stdout=True, stderr=False).stdout.decode()
            check(re.fullmatch(tool + r" \d+\.\d+\.\d+ \(store format \d+\.\d+\)\n", text), f"not a version: {text!r}")


def test_an_unknown_option_goes_to_stderr_and_exits_2():
    for tool in TOOLS:
        for option in ("--no-such-option", "-Z", "--no-such-option=1", "-qZ"):
            done = run(tool, option, "x@1", expect=(2,), stdout=False, stderr=True)
            check(b"unknown option" in done.stderr, f"doesn't say so: {done.stderr!r}")


def test_an_option_without_its_value_exits_2():
    for tool in TOOLS:
        for option in ("--jobs", "-j", "--jobs=", "--format"):
            run(tool, "x@1", option, expect=(2,), stdout=False, stderr=True)


def test_a_flag_with_a_value_exits_2():
    for tool in TOOLS:
        for option in ("--json=yes", "--quiet=", "--verbose=2"):
            run(tool, option, "x@1", expect=(2,), stdout=False, stderr=True)


def test_a_wrong_value_exits_2_and_is_quoted():
    for tool in TOOLS:
        for option in ("--jobs=0", "--jobs=x", "--jobs=-1", "--format=xml", "--color=blue"):
            done = run(tool, option, "x@1", expect=(2,), stdout=False, stderr=True)
            check(option.split("=")[1].encode() in done.stderr, f"doesn't say which: {done.stderr!r}")


def test_no_operand_exits_2():
    for tool in TOOLS:
        run(tool, expect=(2,), stdout=False, stderr=True)


def test_a_malformed_variable_exits_2_and_is_named():
    for tool in TOOLS:
        done = run(tool, "f", "x@1", expect=(2,), env={"CKPT_JOBS": "many"}, stdout=False, stderr=True)
        if tool not in ("ckpt-ls", "ckpt-prune", "ckpt-wait", "ckpt-serve", "ckpt-bench"):  # they have one operand too many, which is said first
            check(b"CKPT_JOBS" in done.stderr, f"doesn't name it: {done.stderr!r}")


def test_messages_are_json_lines_with_log_json_even_of_a_usage_error():
    import json
    for tool in TOOLS:
        done = run(tool, "--no-such-option", "--log-json", expect=(2,), stdout=False, stderr=True)
        records = [json.loads(line) for line in done.stderr.splitlines()]
        check([r["type"] for r in records] == ["error", "hint"], f"not as expected: {records}")
        check(all(r["tool"] == tool and r["message"] and r["time"].endswith("Z") for r in records), f"{records}")


main()
