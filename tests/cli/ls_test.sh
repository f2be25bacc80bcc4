#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ckpt-ls: checkpoints, sets in the making, files, tensors, sums, and the exit status that scripts rely on.
. "$(dirname "$0")/../lib.sh"

store() {
  make_dir 1 run1
  make_dir 2 run2
  save run1 st@1
  save --meta=loss=0.5 run2 st@20
}
# Every line is JSON; the first is a header with a schema, the last a summary.
valid_json() {
  "$PYTHON" - "$1" <<'PY'
import json, sys
def no_constant(name):
    raise ValueError(name)
lines = open(sys.argv[1], encoding="utf-8", errors="strict").read().splitlines()
records = [json.loads(line, parse_constant=no_constant) for line in lines]
assert records[0]["type"] == "header" and records[0]["schema"].endswith("/1"), records[0]
assert records[-1]["type"] == "summary", records[-1]
for record in records:
    for key in record:
        assert key == key.lower() and " " not in key and "-" not in key, key
PY
}

test_checkpoints_are_listed_a_line_each() {
  store
  expect 0 -o ckpt-ls --format=tsv st
  is "$(wc -l <"$STREAMS.out")" 2 lines
  is "$(cut -f1 "$STREAMS.out" | tr '\n' ' ')" '1 20 ' 'steps in order'
  is "$(awk -F'\t' '{print NF}' "$STREAMS.out" | sort -u | wc -l)" 1 'numbers of columns'
  expect 0 -o ckpt-ls st
  like "$OUT" 'loss=0.5'
}

test_an_empty_list_is_empty() {
  step_file 1 a.pt
  save --rank=0 --world-size=2 a.pt st@1
  expect 0 -O ckpt-ls --format=tsv st
  is "$OUT" ''
}

test_json_is_valid_in_every_listing() {
  store
  local options
  for options in st 'st@1' '--tensors st@1' '--tensors --stats st@20' '--sums st@1' '--pending st' '--retired st'; do
    # shellcheck disable=SC2086
    expect 0 -o ckpt-ls --json $options
    valid_json "$STREAMS.out" || fail "ckpt-ls --json $options"
  done
}

test_tsv_escapes_tabs_newlines_and_backslashes() {
  mkdir run
  echo 1 >$'run/a\tb\nc\\d'
  save run st@1
  expect 0 -o ckpt-ls --format=tsv st@1
  is "$(wc -l <"$STREAMS.out")" 1 lines
  like "$OUT" 'a\\tb\\nc\\\\d'
  ckpt-ls --format=tsv -0 st@1 >raw
  is "$(tr -cd '\0' <raw | wc -c)" 1 'NULs'
  grep -qzF $'a\tb\nc\\d' raw || fail 'with -0 the name is quoted'
}

test_files_of_a_checkpoint_are_listed() {
  store
  expect 0 -o ckpt-ls --format=tsv st@1
  like "$OUT" 'state\.pt'
  like "$OUT" 'torch-zip'
  like "$OUT" 'sub/model\.safetensors'
  is "$(wc -l <"$STREAMS.out")" 6 'files, and two directories'
}

test_tensors_are_listed_with_dtype_and_shape() {
  store
  expect 0 -o ckpt-ls --json --tensors st@1
  "$PYTHON" - "$STREAMS.out" <<'PY'
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
found = {(r["file"], r["name"]): (r["dtype"], r["shape"]) for r in rows if r["type"] not in ("header", "summary")}
want = {("state.pt", "model.weight"): ("float32", [200, 10]), ("state.pt", "model.bias"): ("float32", [10]),
        ("state.pt", "step"): ("int64", []), ("sub/model.safetensors", "w.weight"): ("float32", [200, 10]),
        ("sub/model.safetensors", "w.bias"): ("float32", [10]), ("sub/model.safetensors", "step"): ("int64", [])}
assert found == want, found
PY
}

test_statistics_are_of_the_values() {
  "$PYTHON" - <<'PY'
import json, struct
values = [1.0, -2.0, 4.0, float("nan"), float("inf"), float("-inf")]
data = struct.pack("<6f", *values)
header = json.dumps({"t": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]}}).encode()
header += b" " * (-len(header) % 8)
open("m.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + data)
PY
  save m.safetensors st@1
  expect 0 -o ckpt-ls --json --tensors --stats st@1
  "$PYTHON" - "$STREAMS.out" <<'PY'
import json, sys
row = [r for r in map(json.loads, open(sys.argv[1])) if r["type"] not in ("header", "summary")][0]
stats = row.get("stats", row)
assert stats["min"] == -2 and stats["max"] == 4 and stats["mean"] == 1, row
assert abs(stats["norm"] - 21 ** 0.5) < 1e-6, row
assert stats["nan"] == 1 and stats["inf"] == 2, row
PY
}

test_sums_are_accepted_by_xxh128sum() {
  command -v xxh128sum >/dev/null || skip 'no xxh128sum'
  store
  restore st@1 out
  expect 0 -o ckpt-ls --sums st@1
  cp "$STREAMS.out" sums
  is "$(wc -l <sums)" 4 'files'
  (cd out && xxh128sum -c ../sums >../log 2>&1) || fail "$(cat log)"
}

test_a_field_is_printed_alone() {
  store
  expect 0 -o ckpt-ls --get=step st
  is "$OUT" 20
  expect 0 -o ckpt-ls --get=step st@1
  is "$OUT" 1
  expect 0 -o ckpt-ls --get=loss st@20
  is "$OUT" 0.5
  expect 2 -e ckpt-ls --get=nosuchkey st@20
}

test_exists_tells_good_none_and_trouble_apart() {
  expect 1 ckpt-ls --exists nowhere
  store
  expect 0 ckpt-ls --exists st
  expect 0 ckpt-ls --exists st@1
  expect 1 ckpt-ls --exists st@2
  expect 1 ckpt-ls --exists st@latest~7
  echo garbage >st/ckpt-store.json
  expect 2 -e ckpt-ls --exists st
}

test_exists_is_no_while_a_set_is_incomplete() {
  step_file 1 a.pt
  save --rank=0 --world-size=2 a.pt st@1
  expect 1 ckpt-ls --exists st
}

test_exists_is_trouble_where_it_cannot_look() {
  echo x >file
  expect 2 -e ckpt-ls --exists file
}

test_a_store_that_is_not_there_is_an_error() {
  expect 2 -e ckpt-ls nowhere
  expect 2 -e ckpt-ls nowhere@1
  store
  expect 2 -e ckpt-ls st@3
}

test_listing_writes_nothing() {
  store
  find st -printf '%p %i %s %C@\n' | sort >before
  expect 0 -o ckpt-ls st
  expect 0 -o ckpt-ls --tensors st
  expect 0 -o ckpt-ls --sums st@1
  expect 0 ckpt-ls --exists st
  expect 0 -O ckpt-ls --pending st
  find st -printf '%p %i %s %C@\n' | sort >after
  same_file before after
}

test_a_checkpoint_with_a_damaged_manifest_does_not_hide_the_others() {
  store
  echo '{' >st/0000000020/manifest.json
  expect 0 -o -E ckpt-ls --format=tsv st
  like "$OUT" 'damaged'
  like "$OUT" '^1	'
  expect 0 ckpt-ls --exists st@1
  restore st@1 out
  same_tree run1 out
}

test_a_foreign_directory_in_the_store_is_no_checkpoint() {
  store
  mkdir st/logs st/42 st/00000000099
  expect 0 -o ckpt-ls --format=tsv st
  is "$(wc -l <"$STREAMS.out")" 2 lines
  expect 0 -o ckpt-ls --get=step st
  is "$OUT" 20
  expect 0 ckpt-verify st
}

test_output_that_cannot_be_written_is_an_error() {
  store
  expect 2 -e bash -c 'ckpt-ls st >/dev/full'
  expect 2 -e bash -c 'ckpt-ls --json --tensors st >/dev/full'
  expect 2 -e bash -c 'ckpt-ls st >&-'
}

test_two_listings_at_once_are_an_error() {
  store
  expect 2 -e ckpt-ls --tensors --sums st@1
  expect 2 -e ckpt-ls --pending st@1
}

run_tests "$@"
