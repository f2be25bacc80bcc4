#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ckpt-verify: silent when all is well, names what isn't, mends a flipped bit, never touches anything else.
. "$(dirname "$0")/../lib.sh"

store() {
  make_dir 1 run1
  make_dir 2 run2
  save --encode=raw run1 st@1
  save --encode=raw run2 st@2
}
shard() { echo "$1"/*.ckpt; }
# flip FILE OFFSET [BIT]
flip() {
  "$PYTHON" - "$1" "$2" "${3:-0}" <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    at = int(sys.argv[2]) % f.seek(0, 2)
    f.seek(at)
    byte = f.read(1)[0]
    f.seek(at)
    f.write(bytes([byte ^ 1 << int(sys.argv[3])]))
PY
}
# Where a byte string lies in a file.
find_bytes() { "$PYTHON" -c 'import sys; print(open(sys.argv[1], "rb").read().find(eval(sys.argv[2])))' "$1" "$2"; }
records() {
  "$PYTHON" - "$STREAMS.out" "$1" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert rows[0]["type"] == "header" and rows[-1]["type"] == "summary", rows
print(sorted({str(row.get(sys.argv[2])) for row in rows[1:-1]}))
PY
}

test_all_is_well_in_silence() {
  store
  expect 0 ckpt-verify st
  expect 0 ckpt-verify --quick st
  expect 0 ckpt-verify --deep st
  expect 0 ckpt-verify --sample=50 st
  expect 0 ckpt-verify st@1
  expect 0 ckpt-verify st@latest
  expect 0 ckpt-verify st@1 st@2 st
}

test_what_is_not_there_is_trouble() {
  store
  expect 2 -e ckpt-verify nowhere
  expect 2 -e ckpt-verify st@3
  expect 2 -e ckpt-verify
  mkdir plain
  expect 2 -e ckpt-verify plain
  expect 2 -E -O ckpt-verify st nowhere
}

test_a_pending_set_is_not_damage() {
  step_file 1 a.pt
  save --rank=0 --world-size=2 a.pt st@1
  expect 0 ckpt-verify st
  expect 0 ckpt-verify --deep st
  expect 0 -o ckpt-verify --json st
  like "$OUT" 'not.committed'
}

test_an_altered_byte_is_named_with_its_tensor() {
  store
  local at
  at=$(find_bytes "$(shard st/0000000002)" '__import__("sys").path.insert(0, "'"$TESTS_DIR"'") or __import__("make_input").floats(2, 2000)[4000:4100]')
  [ "$at" -gt 0 ] || fail 'the weight is not in the container'
  flip "$(shard st/0000000002)" "$at" 3
  expect 1 -o ckpt-verify --format=tsv st
  like "$OUT" 'st@2'
  like "$OUT" 'altered'
  like "$OUT" 'shard-00000-of-00001'
  like "$OUT" 'weight'
  unlike "$OUT" 'st@1'
  expect 1 -o ckpt-verify --deep st
  like "$OUT" 'weight'
  expect 0 ckpt-verify st@1
}

test_truncated_altered_and_missing_are_told_apart() {
  store
  cp -a st cut
  cp -a st gone
  cp -a st bent
  truncate -s -200 "$(shard cut/0000000002)"
  rm "$(shard gone/0000000002)"
  flip "$(shard bent/0000000002)" 5000
  expect 1 -o ckpt-verify --json cut
  is "$(records kind)" "['truncated']"
  expect 1 -o ckpt-verify --json gone
  is "$(records kind)" "['missing']"
  expect 1 -o ckpt-verify --json bent
  is "$(records kind)" "['altered']"
  expect 1 -o ckpt-verify --quick cut
  expect 1 -o ckpt-verify --quick gone
}

test_a_damaged_manifest_is_damage() {
  store
  flip st/0000000002/manifest.json 40
  expect 1 -o ckpt-verify st
  like "$OUT" 'manifest'
  expect 1 -o ckpt-verify --quick st@2
  rm st/0000000002/manifest.json
  expect 1 -o ckpt-verify st
  expect 0 ckpt-verify st@1
}

test_a_damaged_store_file_is_damage() {
  store
  flip st/ckpt-store.json 30
  expect 1 -o -E ckpt-verify st
}

test_a_shard_that_cannot_be_read_is_damage() {
  store
  local name
  name=$(shard st/0000000002)
  rm "$name"
  mkdir "$name"
  expect 1 -o -E ckpt-verify st
}

test_an_exchanged_shard_is_damage() {
  store
  cp "$(shard st/0000000001)" "$(shard st/0000000002)"
  expect 1 -o ckpt-verify st@2
  expect 2 -e ckpt-restore st@2 out
}

test_verify_moves_and_deletes_nothing() {
  store
  flip "$(shard st/0000000002)" 5000
  echo leftover >st/0000000001/leftover.ckpt
  find st -name .verify -prune -o -type f -printf '%p %i %s %T@\n' | sort >before
  expect 1 -O ckpt-verify st
  expect 1 -O ckpt-verify --deep st
  find st -name .verify -prune -o -type f -printf '%p %i %s %T@\n' | sort >after
  same_file before after
}

test_a_copied_store_verifies_on_its_own() {
  store
  cp -r st copy
  mv st moved-away
  expect 0 ckpt-verify --deep copy
  restore copy out
  same_tree run2 out
}

test_a_result_can_be_kept_beside_a_read_only_store() {
  store
  rm -rf st/.verify
  expect 0 ckpt-verify --state=state.json st
  [ -s state.json ] || fail 'no state file'
  [ ! -e st/.verify ] || [ -z "$(ls -A st/.verify)" ] || fail 'a record was written into the store'
}

test_a_budget_goes_on_where_the_last_run_stopped() {
  store
  for _ in 1 2 3 4 5; do expect 0 ckpt-verify --budget=1h st; done
  flip "$(shard st/0000000001)" 5000
  expect 1 -o ckpt-verify --budget=1h st
  expect 2 -e ckpt-verify --budget=soon st
}

test_verified_shows_in_the_list() {
  store
  expect 0 ckpt-verify st@1
  expect 0 -o ckpt-ls --get=state st@1
  is "$OUT" verified
  flip "$(shard st/0000000002)" 5000
  expect 1 -o ckpt-verify st@2
  expect 0 -o ckpt-ls --get=state st@2
  is "$OUT" damaged
  expect 1 ckpt-ls --exists st@2
  expect 0 ckpt-ls --exists st
}

test_tensors_that_are_not_finite_are_named() {
  "$PYTHON" - <<'PY'
import json, struct
data = struct.pack("<4f", 1, float("nan"), 2, 3) + struct.pack("<2f", float("inf"), 0) + struct.pack("<2f", 0, 1)
header = json.dumps({"bad.nan": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
                     "bad.inf": {"dtype": "F32", "shape": [2], "data_offsets": [16, 24]},
                     "good": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]}}).encode()
header += b" " * (-len(header) % 8)
open("m.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + data)
PY
  save m.safetensors st@1
  expect 0 ckpt-verify --deep st
  expect 1 -o ckpt-verify --finite st
  like "$OUT" 'bad\.nan'
  like "$OUT" 'bad\.inf'
  unlike "$OUT" 'good'
  step_file 1 fine.pt
  save fine.pt other@1
  expect 0 ckpt-verify --finite other
}

test_a_view_is_not_blamed_for_what_lies_between_its_elements() {
  "$PYTHON" -c 'import sys; sys.path.insert(0, sys.argv[1]); import make_input
make_input.torch("columns.pt", 1, 40000, columns=True)' "$TESTS_DIR"
  save columns.pt st@1
  expect 1 -o ckpt-verify --json --finite st
  is "$(records tensor)" "['model.odd']"
  like "$OUT" '"nan":1,'
}

test_metrics_are_written_as_a_whole_file() {
  store
  expect 0 ckpt-verify --metrics-file=m.prom st
  like "$(cat m.prom)" '^# TYPE ckpt_'
  is "$(ls | tr '\n' ' ')" 'm.prom run1 run2 st '
  flip "$(shard st/0000000002)" 5000
  expect 1 -o ckpt-verify --metrics-file=m.prom st
  like "$(cat m.prom)" '[1-9][0-9]*$'
}

test_a_flipped_bit_is_mended() {
  store
  local at
  at=$(find_bytes "$(shard st/0000000002)" '__import__("sys").path.insert(0, "'"$TESTS_DIR"'") or __import__("make_input").floats(2, 2000)[4000:4100]')
  flip "$(shard st/0000000002)" "$at" 6
  expect 0 -O -E ckpt-verify --repair st
  like "$OUT$ERR" 'weight' 'report of the repair'
  like "$OUT$ERR" 'bit' 'report of the repair'
  expect 0 ckpt-verify --deep st
  restore st@2 out
  same_tree run2 out
}

test_more_than_a_bit_is_not_mended() {
  store
  local name
  name=$(shard st/0000000002)
  flip "$name" 5000 1
  flip "$name" 5001 1
  md5sum "$name" >sum
  expect 1 -o -E ckpt-verify --repair st
  md5sum -c --quiet sum || fail 'the damaged container was touched'
  expect 1 -o ckpt-verify st
}

test_repair_of_an_intact_store_changes_nothing() {
  store
  find st -name .verify -prune -o -type f -printf '%p %i %s %T@\n' | grep -v lock | sort >before
  expect 0 ckpt-verify --repair st
  find st -name .verify -prune -o -type f -printf '%p %i %s %T@\n' | grep -v lock | sort >after
  same_file before after
}

test_leftovers_are_not_damage() {
  store
  mkdir -p st/.pending/tmp st/.trash
  echo junk >st/.pending/tmp/junk
  echo junk >st/.trash/junk
  echo junk >st/0000000001/shard-00000-of-00001.other.ckpt
  expect 0 ckpt-verify st
  expect 0 ckpt-verify --deep st
}

test_output_that_cannot_be_written_is_an_error() {
  store
  flip "$(shard st/0000000002)" 5000
  expect 2 -e bash -c 'ckpt-verify st >/dev/full'
  expect 2 -e bash -c 'ckpt-verify st >&-'
}

run_tests "$@"
