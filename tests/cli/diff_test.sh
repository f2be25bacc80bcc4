#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ckpt-diff: what is the same and what isn't, exit statuses, formats, options, pictures.
. "$(dirname "$0")/../lib.sh"

# pair: a.safetensors and b.safetensors, which differ in known numbers.
pair() {
  "$PYTHON" - <<'PY'
import json, struct
def write(path, tensors):
    header, data = {}, b""
    for name, dtype, shape, raw in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)
f = lambda *v: struct.pack(f"<{len(v)}f", *v)
nan, inf = float("nan"), float("inf")
write("a.safetensors", [("same", "F32", [2], f(1, 2)), ("net.0.w", "F32", [2, 2], f(3, 4, 5, 6)),
                        ("net.1.w", "F32", [3], f(1, 2, 3)), ("net.odd", "F32", [3], f(1, nan, 3)),
                        ("gone", "F32", [1], f(1)), ("typed", "F32", [1], f(2)), ("shaped", "F32", [4], f(1, 2, 3, 4))])
write("b.safetensors", [("same", "F32", [2], f(1, 2)), ("net.0.w", "F32", [2, 2], f(3, 4, 5, 8)),
                        ("net.1.w", "F32", [3], f(2, 4, 6)), ("net.odd", "F32", [3], f(inf, 1, 3)),
                        ("new", "F32", [1], f(1)), ("typed", "F64", [1], struct.pack("<d", 2)),
                        ("shaped", "F32", [2], f(1, 2))])
PY
}

# column NAME N: of the tensor's tsv line.
column() { awk -F '\t' -v name="$1" -v n="$2" '$3 == name { print $n }' "$STREAMS.out"; }

test_the_same_is_silent_and_0() {
  make_dir 1 one
  cp -r one two
  save one st@1
  save two st@2
  expect 0 ckpt-diff one two
  expect 0 ckpt-diff one/state.pt two/state.pt
  expect 0 ckpt-diff st@1 st@2
  expect 0 ckpt-diff st one
  expect 0 ckpt-diff one st@1
  expect 0 ckpt-diff --format=tsv st@1 two
}

test_different_is_1_and_said() {
  make_dir 1 one
  make_dir 2 two
  save one st@1
  save two st@2
  expect 1 -o ckpt-diff one two
  like "$OUT" 'model\.weight'
  like "$OUT" 'changed +epoch +1 +2'
  like "$OUT" 'rng\.bin\.txt'
  expect 1 -o ckpt-diff st@1 st@2
  expect 1 -o ckpt-diff st@latest~1 two
  expect 1 -o ckpt-diff one/state.pt st@2
}

test_trouble_is_2_whatever_the_other_side_is() {
  step_file 1 a.pt
  expect 2 -e ckpt-diff nowhere a.pt
  expect 2 -e ckpt-diff a.pt nowhere
  expect 2 -e ckpt-diff nowhere@3 a.pt
  expect 2 -e ckpt-diff a.pt
  expect 2 -e ckpt-diff a.pt a.pt a.pt
  head -c 300 a.pt >cut.pt
  expect 2 -e ckpt-diff a.pt cut.pt
  like "$ERR" 'cut\.pt'
  unlike "$ERR" allow-malformed
  save a.pt st@1
  expect 2 -e ckpt-diff st@1 st@2
  mkfifo pipe
  expect 2 -e ckpt-diff a.pt pipe
}

test_damage_that_is_read_is_trouble() {
  "$PYTHON" "$TESTS_DIR/make_input.py" safetensors 1 a.safetensors 200000
  "$PYTHON" "$TESTS_DIR/make_input.py" safetensors 2 b.safetensors 200000
  save a.safetensors st@1
  "$PYTHON" - <<'PY'
import glob
path = glob.glob("st/0000000001/shard-*")[0]
import os
os.chmod(path, 0o644)
with open(path, "r+b") as f:
    f.seek(200000)
    byte = f.read(1)
    f.seek(200000)
    f.write(bytes([byte[0] ^ 16]))
PY
  expect 2 -e -O ckpt-diff st@1 b.safetensors
}

test_the_kinds_of_change_and_their_numbers() {
  pair
  expect 1 -o ckpt-diff --format=tsv a.safetensors b.safetensors
  is "$(wc -l <"$STREAMS.out")" 7 lines
  is "$(column gone 2)" removed
  is "$(column new 2)" added
  is "$(column typed 2)" retyped
  is "$(column typed 14)" 0 'changed elements of the retyped one'
  is "$(column shaped 2)" reshaped
  is "$(column shaped 11)" 2 shape_b
  is "$(column net.0.w 2)" changed
  is "$(column net.0.w 13)" 4 elements
  is "$(column net.0.w 14)" 1 changed
  is "$(column net.0.w 15)" 2 max_abs
  is "$(column net.0.w 16)" 0.5 mean_abs
  is "$(column net.1.w 18)" 1 relative_l2
  is "$(column net.1.w 19)" 1 cosine
  is "$(column net.odd 20)" 1 nan_a
  is "$(column net.odd 21)" 0 nan_b
  is "$(column net.odd 22)" 0 inf_a
  is "$(column net.odd 23)" 1 inf_b
  is "$(column same 2)" '' 'the same tensor'
}

test_json_ends_with_what_came_out() {
  pair
  expect 1 -o ckpt-diff --json a.safetensors b.safetensors
  "$PYTHON" - "$STREAMS.out" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert rows[0]["schema"] == "ckpt-diff/1" and rows[0]["a"] == "a.safetensors", rows[0]
last = rows[-1]
assert last["type"] == "summary" and not last["same"] and last["tensors"] == 8 and last["tensors_differ"] == 7, last
assert last["exit_status"] == 1, last
w = next(r for r in rows if r.get("name") == "net.0.w")
assert w["shape_a"] == [2, 2] and w["rank_a"] == 0 and w["old"] is None, w
PY
  expect 0 -o ckpt-diff --json a.safetensors a.safetensors
  like "$OUT" '"same":true.*"exit_status":0'
}

test_a_file_of_another_name_is_no_difference() {
  mkdir one two
  step_file 1 one/state_step_9.pt
  step_file 1 two/state_step_10.pt
  expect 0 ckpt-diff one two
  expect 0 ckpt-diff one/state_step_9.pt two
}

test_another_form_of_the_same_tensors_is_no_difference() {
  step_file 1 a.pt
  save a.pt st@1
  expect 0 -o ckpt-restore --tensor='*' -o a.safetensors st
  expect 0 ckpt-diff a.pt a.safetensors
  expect 0 ckpt-diff a.safetensors st
}

test_views_and_real_checkpoints_are_the_same_as_themselves() {
  local f
  for f in aliases.pt exotic.pt cycle.pt names.pt odd.pt dcp hf-checkpoint-500 deepspeed train_legacy.pth lightning.ckpt; do
    expect 0 ckpt-diff "$FIXTURES/$f" "$FIXTURES/$f"
  done
  expect 1 -o ckpt-diff "$FIXTURES/train_step5.pt" "$FIXTURES/train_step6.pt"
  like "$OUT" 'changed +epoch +5 +6'
  like "$OUT" 'changed +optimizer_state_dict\.param_groups\.0\.lr +0\.00099'
  # The same step, in the format before the zip one.
  expect 1 -o ckpt-diff --format=tsv "$FIXTURES/train_legacy.pth" "$FIXTURES/train_step5.pt"
  unlike "$OUT" $'\t(added|removed|retyped|reshaped)\t'
}

test_a_tolerance_makes_the_same() {
  pair
  expect 1 -o ckpt-diff --tolerance=1.9 --format=tsv a.safetensors b.safetensors
  is "$(column net.0.w 14)" 1 'changed by two'
  expect 1 -o ckpt-diff --tolerance=2 --format=tsv a.safetensors b.safetensors
  is "$(column net.0.w 14)" '' 'within the tolerance'
  is "$(column net.odd 14)" 2 'NaN and Inf are in no tolerance'
  expect 1 -o ckpt-diff --tolerance=0,0.34 --format=tsv a.safetensors b.safetensors
  is "$(column net.0.w 14)" '' 'within the relative tolerance'
  local bad
  for bad in x -1 1,2,3 nan inf '' 1, ,1 1x; do
    expect 2 -e ckpt-diff --tolerance="$bad" a.safetensors b.safetensors
  done
}

test_whole_takes_the_unchanged_elements_in() {
  pair
  expect 1 -o ckpt-diff --format=tsv a.safetensors b.safetensors
  like "$(column net.0.w 18)" '^0\.3333'
  expect 1 -o ckpt-diff --whole --format=tsv a.safetensors b.safetensors
  like "$(column net.0.w 18)" '^0\.2156' '2 / sqrt(86)'
  is "$(column net.odd 20)" 1 nan_a
}

test_sums_of_modules_and_their_depth() {
  pair
  expect 1 -o ckpt-diff -s --format=tsv a.safetensors b.safetensors
  is "$(cut -f 3 "$STREAMS.out" | paste -sd ' ')" ' net net.0 net.1' prefixes
  is "$(column net 29)" 3 tensors
  is "$(column net 30)" 3 differing
  is "$(column net 14)" 6 changed
  expect 1 -o ckpt-diff -s --depth=1 --format=tsv a.safetensors b.safetensors
  is "$(wc -l <"$STREAMS.out")" 2 lines
  expect 1 -o ckpt-diff -s a.safetensors b.safetensors
  like "$OUT" '\(all\)'
  expect 2 -e ckpt-diff --depth=1 a.safetensors b.safetensors
}

test_order_and_the_first_ones_only() {
  pair
  names() { cut -f 3 "$STREAMS.out" | paste -sd ' '; }
  expect 1 -o ckpt-diff --format=tsv --sort=name a.safetensors b.safetensors
  is "$(names)" 'gone net.0.w net.1.w net.odd new shaped typed'
  expect 1 -o ckpt-diff --format=tsv --sort=max a.safetensors b.safetensors
  is "$(names)" 'gone shaped new net.1.w net.0.w net.odd typed'
  expect 1 -o ckpt-diff --format=tsv --top=4 a.safetensors b.safetensors
  is "$(names)" 'gone shaped new net.1.w'
  expect 1 -o ckpt-diff --top=1 a.safetensors b.safetensors
  like "$OUT" '6 more'
  expect 1 -o ckpt-diff -q --top=0 a.safetensors b.safetensors
  expect 2 -e ckpt-diff --sort=colour a.safetensors b.safetensors
}

test_a_picture_is_xml_and_shows_every_module() {
  pair
  expect 1 -o ckpt-diff --plot=p.svg a.safetensors b.safetensors
  "$PYTHON" - <<'PY'
import xml.etree.ElementTree as tree
root = tree.parse("p.svg").getroot()
assert root.tag.endswith("svg"), root.tag
titles = [e.text for e in root.iter() if e.tag.endswith("title")]
for name in ("net", "net.0.w", "net.odd", "gone", "new", "same"):
    assert any(t.split("\n")[0] == name for t in titles), (name, titles)
assert not [e for e in root.iter() if e.tag.endswith("script")]
PY
  cp p.svg before
  expect 1 -o ckpt-diff -j1 --plot=p.svg a.safetensors b.safetensors
  same_file before p.svg
  expect 0 ckpt-diff --plot=p.svg a.safetensors a.safetensors
  expect 2 -e ckpt-diff --plot=nowhere/p.svg a.safetensors b.safetensors
  expect 2 -e ckpt-diff --plot=- a.safetensors b.safetensors
  is "$(find . -name '*tmp*')" '' leftovers
}

test_several_ranks_pair_by_rank() {
  local r
  for r in 0 1; do
    step_file "$r" "s$r.pt"
    save --rank="$r" --world-size=2 "s$r.pt" a@1
    step_file "$((r * 5))" "t$r.pt"
    save --rank="$r" --world-size=2 "t$r.pt" b@1
  done
  expect 1 -o ckpt-diff --format=tsv a b
  is "$(cut -f 6 "$STREAMS.out" | sort -u)" 1 'the rank that differs'
}

test_equal_blocks_of_two_stored_steps_are_not_read() {
  "$PYTHON" "$TESTS_DIR/make_input.py" safetensors 1 a.safetensors 4000000
  save a.safetensors st@1
  "$PYTHON" - <<'PY'
with open("a.safetensors", "r+b") as f:
    f.seek(9000000)
    f.write(b"\0\0\0\0")
PY
  save a.safetensors st@2
  expect 1 -o ckpt-diff --json st@1 st@2
  "$PYTHON" - "$STREAMS.out" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert rows[1]["changed"] == 1 and rows[1]["elements"] == 4000000, rows[1]
assert 0 < rows[-1]["bytes_read"] <= 2 * 4194304, rows[-1]
PY
}

test_odd_names_are_told_in_every_format() {
  mkdir one two
  echo 1 >$'one/a\tb\nc\xff'
  echo 2 >$'two/a\tb\nc\xff'
  expect 1 -o ckpt-diff one two
  is "$(wc -l <"$STREAMS.out")" 4 'a line for the file'
  expect 1 -o ckpt-diff --format=tsv one two
  is "$(wc -l <"$STREAMS.out")" 1 lines
  expect 1 -o ckpt-diff --json one two
  "$PYTHON" -c 'import json, sys; [json.loads(l) for l in open(sys.argv[1])]' "$STREAMS.out"
}

test_comparing_writes_nothing() {
  make_dir 1 one
  make_dir 2 two
  save one st@1
  find . -printf '%p %i %s %C@\n' | sort >/tmp/before.$$
  expect 1 -o ckpt-diff st two
  find . -printf '%p %i %s %C@\n' | sort >/tmp/after.$$
  same_file /tmp/before.$$ /tmp/after.$$
  rm -f /tmp/before.$$ /tmp/after.$$
}

test_output_that_cannot_be_written_is_an_error() {
  pair
  expect 2 -e bash -c 'ckpt-diff a.safetensors b.safetensors >/dev/full'
  expect 2 -e bash -c 'ckpt-diff --json a.safetensors a.safetensors >&-'
}

run_tests "$@"
