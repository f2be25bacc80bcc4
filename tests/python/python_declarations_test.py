# SPDX-License-Identifier: Apache-2.0
# The module's declarations say what ckpt.h says: functions and their parameters, structs and their members.
import ctypes
import importlib.util
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.dirname(HERE))

from tap import check, main  # noqa: E402

spec = importlib.util.spec_from_file_location("declarations", os.path.join(ROOT, "lib/python/ckpt/_library.py"))
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

with open(os.path.join(ROOT, "lib/include/ckpt/ckpt.h")) as file:
    HEADER = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)

KINDS = {"size_t": ctypes.c_size_t, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "int64_t": ctypes.c_int64,
         "int": ctypes.c_int, "double": ctypes.c_double, "char*": ctypes.c_char_p}


def kind_of(text):
    """Of a parameter or a member, its name taken off."""
    text = text.replace("const", "").replace(" *", "*").strip()
    base, stars = re.match(r"(?:enum )?(\w+)(\**)", text).groups()
    if base + stars in KINDS:
        return KINDS[base + stars]
    if base == "ckpt_capture" and not stars:
        return ctypes.c_int
    return "pointer" if stars else None


def is_pointer(kind):
    return kind in (ctypes.c_void_p, ctypes.c_char_p) or isinstance(kind, type) and issubclass(kind, ctypes._Pointer)


def agree(ours, theirs):
    return is_pointer(ours) if theirs == "pointer" or theirs is ctypes.c_char_p else ours is theirs


def test_functions_are_declared_as_in_the_header():
    there = {name: (result.strip(), [p for p in parameters.split(",") if p.strip() != "void"])
             for result, name, parameters in re.findall(r"CKPT_C_API ([\w \*]+?)(ckpt_\w+)\(([^)]*)\);", HEADER)}
    check(len(there) > 30, there)
    for name, (result, parameters) in module._FUNCTIONS.items():
        check(name in there, f"the header has no {name}")
        theirs = [kind_of(p) for p in there[name][1]]
        check(len(theirs) == len(parameters) and all(map(agree, parameters, theirs)), f"{name}: {theirs} {parameters}")
        check((result == "status") <= (there[name][0] == "int"), f"{name} gives {there[name][0]}")


def test_structs_are_declared_as_in_the_header():
    for name, ours in (("ckpt_saver_options", module.SaverOptions), ("ckpt_timings", module.Timings),
                       ("ckpt_job_options", module.JobOptions), ("ckpt_tensor_info", module.TensorInfo)):
        body = re.search(r"typedef struct %s \{(.*?)\}" % name, HEADER, re.S).group(1)
        members = [re.match(r"(.*?)(\w+)(?:\[(\d+)\])?$", m.strip()).groups() for m in body.split(";") if m.strip()]
        check([m for _, m, _ in members] == [f[0] for f in ours._fields_], lambda: f"{name}: {members}")
        for (kind, member, count), (_, declared) in zip(members, ours._fields_):
            if count:
                check(declared._length_ == int(count), f"{name}.{member}")
            else:
                check(agree(declared, kind_of(kind)), f"{name}.{member}: {kind} {declared}")


def test_statuses_and_states_have_the_headers_numbers():
    def values(enum):
        body = re.search(r"enum %s \{(.*?)\}" % enum, HEADER, re.S).group(1)
        return {int(number): name for name, number in re.findall(r"CKPT_(\w+) = (\d+)", body)}
    for ours, enum, front in ((module.STATUSES, "ckpt_status", ""), (module.STATES, "ckpt_state", "STATE_"),
                              (tuple(module.CAPTURES), "ckpt_capture", "CAPTURE_")):
        theirs = values(enum)
        check(dict(enumerate(ours)) == {n: name[len(front):].lower().replace("_", "-") for n, name in theirs.items()},
              f"{ours} {theirs}")
    requests = {n: name[len("REQUEST_"):].lower() for n, name in values("ckpt_request").items()}
    check(dict(enumerate(module.REQUESTS)) == {n: "" if name == "none" else name for n, name in requests.items()},
          requests)
    keeps = values("ckpt_keep")
    check((keeps[module.KEEP_BEST], keeps[module.KEEP_STEADY]) == ("KEEP_BEST", "KEEP_STEADY"), keeps)


def test_the_library_says_its_version():
    check(re.match(rb"\d+\.\d+\.\d+$", module.library.version()), module.library.version())


if __name__ == "__main__":
    main()
