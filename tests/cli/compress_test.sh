#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ckpt-compress: what comes back is what was saved, whatever checkpoints are stored against; what is left alone; the
# filter.
. "$(dirname "$0")/../lib.sh"

drift() { "$PYTHON" "$TESTS_DIR/make_input.py" drift "$@"; }
# store STEP...: a checkpoint for each, an hour apart, stored as it is. Their files are s1, s2, ...
store() {
  local step
  for step in "$@"; do
    drift "$step" "s$step"
    SOURCE_DATE_EPOCH=$((1700000000 + step * 3600)) expect 0 -o ckpt-save --encode=raw "s$step" "st@$step"
  done
}
# ranks STEP: a checkpoint of three ranks that have a table in common.
ranks() {
  local rank
  for rank in 0 1 2; do
    drift "$1" "s$1.$rank" "$rank"
    expect 0 -o ckpt-save --encode=raw --rank="$rank" --world-size=3 "s$1.$rank" "st@$1"
  done
}
compress() { expect 0 ckpt-compress "$@"; }
stored() { ckpt-ls --get=stored_bytes "st@$1"; }
# The steps that a checkpoint depends on.
bases() { "$PYTHON" -c 'import json, sys
print(*(b["step"] for b in json.load(open(f"st/{int(sys.argv[1]):010}/manifest.json"))["depends_on"]))' "$1"; }
ids() { sed -n 's/^  "id": "\(.*\)",/\1/p' st/0*/manifest.json; }
# Every checkpoint is sound and gives back its files.
all_is_well() {
  local step file
  expect 0 ckpt-verify --deep st
  for step in $(steps st); do
    rm -rf out
    restore "st@$step" out
    for file in out/*; do same_file "${file#out/}" "$file"; done
  done
  no_leftovers st
  [ "$(find st -name '*.ckpt' | wc -l)" = "$(cat st/0*/manifest.json | grep -c '"file"')" ] || fail 'old containers are left'
}

test_each_is_stored_against_the_one_before() {
  store 1 2 3
  local before
  before=$(ids)
  compress st
  is "$(bases 1)/$(bases 2)" '/1'
  like "$(bases 3)" 2
  [ "$(stored 1)" -lt 380000 ] || fail "the first has $(stored 1) bytes"
  [ "$(stored 3)" -lt 180000 ] || fail "the third has $(stored 3) bytes"
  is "$(ids)" "$before" 'ids'
  all_is_well
}

test_what_gains_nothing_stays_as_it_is() {
  store 1 2
  compress st
  local before
  before=$(tree st)
  compress st
  is "$(tree st)" "$before"
  compress --base=none --encode=fast st@2
  is "$(tree st)" "$before"
}

test_the_newest_in_full_and_older_ones_against_newer() {
  store 1 2 3 4
  compress st
  local before
  before=$(ids)
  compress --newest-full st
  is "$(bases 4)" ''
  is "$(bases 3)" 4
  like "$(bases 2)" 3
  like "$(bases 1)" 2
  [ "$(stored 1)" -lt 180000 ] || fail "the first has $(stored 1) bytes"
  is "$(ids)" "$before" 'ids'
  all_is_well
  compress st
  all_is_well
}

test_a_chain_is_no_longer_than_asked_and_never_longer_than_8() {
  store 1 2 3 4 5 6 7 8 9 10 11
  compress --max-chain=2 st
  all_is_well
  [ "$(stored 3)" -lt 180000 ] || fail "the third has $(stored 3) bytes"
  [ "$(stored 4)" -gt 200000 ] || fail "the fourth has $(stored 4) bytes, so its chain is too long"
  compress --newest-full st
  all_is_well
  compress --base=none st
  all_is_well
}

test_a_copy_in_16_bits_costs_nothing() {
  store 1
  compress --max-chain=1 st
  [ "$(stored 1)" -lt 355000 ] || fail "$(stored 1) bytes"
  all_is_well
}

test_steps_that_hold_the_same_are_stored_once_and_without_a_cycle() {
  store 1
  expect 0 -o ckpt-save --encode=raw s1 st@2
  expect 0 -o ckpt-save --encode=raw s1 st@3
  compress st
  [ "$(stored 3)" -lt 5000 ] || fail "the third has $(stored 3) bytes"
  compress --newest-full st
  is "$(bases 3)" ''
  [ "$(stored 1)" -lt 5000 ] || fail "the first has $(stored 1) bytes"
  rm -rf st/0000000001
  expect 0 ckpt-verify --deep st
  expect 0 ckpt-prune --keep-last=1 st
  restore st out
  same_file s1 out/s1
}

test_rebased_ones_stand_alone() {
  store 1 2 3
  compress st
  compress --rebase st@2 st@3
  is "$(bases 2)$(bases 3)" ''
  rm -r st/0000000001
  rm s1
  all_is_well
}

test_a_base_is_taken_as_given_and_never_in_a_cycle() {
  store 1 2 3
  compress --base=1 st@3
  is "$(bases 3)" 1
  expect 2 -e ckpt-compress --base=3 st@1
  like "$ERR" 'depends on'
  expect 2 -e ckpt-compress --base=9 st@1
  all_is_well
}

test_replicas_are_stored_once() {
  ranks 1
  ranks 2
  compress --across-ranks --base=none st
  is "$(bases 1)$(bases 2)" ''
  [ "$(stored 1)" -lt 900000 ] || fail "$(stored 1) bytes"
  expect 0 ckpt-verify --deep st
  expect 0 -o ckpt-restore --by-rank st@1 out
  for rank in 0 1 2; do same_file s1.$rank out/rank-0000$rank/s1.$rank; done
  expect 0 -o ckpt-restore --rank=2 st@2 alone
  same_file s2.2 alone/s2.2
  expect 0 "$PYTHON" "$TESTS_DIR/golden/read_golden.py" st/0000000001 read
  same_file s1.2 read/rank-00002/s1.2
  # Encoded anew they're a base as much as another checkpoint: chains don't get longer.
  compress st
  expect 0 ckpt-verify --deep st
  # A save that depends on it, and a prune that takes it away.
  expect 0 -o ckpt-save s2.0 st@3
  expect 0 ckpt-prune --keep-last=1 st
  expect 0 ckpt-verify --deep st
}

test_only_old_ones() {
  store 1 2 3 4
  local before
  before=$(stored 3)
  compress --older-than=1h st
  is "$(stored 3)" "$before"
  [ "$(stored 2)" -lt 400000 ] || fail 'the second is as it was'
  all_is_well
}

test_a_dry_run_says_what_is_to_be_gained_and_changes_nothing() {
  store 1 2
  local before expected
  before=$(tree st)
  expected=$(ckpt-compress -n --format=tsv st | awk -F '\t' '$2 == 2 { print $5 }')
  expect 0 -o ckpt-compress -n st
  like "$OUT" '2 +encoded +1'
  is "$(tree st)" "$before"
  chmod -R a-w st
  expect 0 -o ckpt-compress -n --newest-full st
  chmod -R u+w st
  compress st
  awk -v a="$expected" -v b="$(stored 2)" 'BEGIN { exit !(a > 0.9 * b && a < 1.1 * b) }' ||
    fail "$expected were expected, $(stored 2) came out"
}

test_a_dry_run_knows_where_chains_end() {
  local step expected
  store 1 2 3 4 5
  expected=$(ckpt-compress -n --newest-full --max-chain=1 --format=tsv st | awk -F '\t' '$2 ~ /^[0-9]+$/ { print $2, $5 }')
  compress --newest-full --max-chain=1 st
  for step in 1 2 3 4 5; do
    awk -v step="$step" -v is="$(stored $step)" '$1 == step { exit !($2 > 0.85 * is && $2 < 1.15 * is) }' <<<"$expected" ||
      fail "step $step: $(stored $step) came out, of these were expected: $expected"
  done
}

test_records_say_what_was_done() {
  store 1 2
  expect 0 -o ckpt-compress --json --metrics-file=m.prom st
  "$PYTHON" - "$STREAMS.out" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert rows[0]["schema"] == "ckpt-compress/1", rows[0]
assert [(r["step"], r["action"], r["base_step"]) for r in rows[1:-1]] == [(1, "encoded", None), (2, "encoded", 1)], rows
assert rows[-1]["encoded"] == 2 and rows[-1]["stored_after"] < rows[-1]["stored_before"], rows[-1]
PY
  like "$(cat m.prom)" 'ckpt_compress_encoded_checkpoints\{store="st"\} 2'
}

test_what_is_in_use_is_left_alone() {
  store 1 2
  local name before
  mkdir -p st/.pins
  name=st/.pins/use.$(hostname | tr ./ __).$$.0-0123456789abcdef.0000000001-$(ids | head -n 1)
  before=$(stored 1)
  (
    exec 9>"$name"
    flock -n 9 || exit 1
    expect 75 -e ckpt-compress st@1
    like "$ERR" 'in use'
    expect 0 -e ckpt-compress st
    like "$ERR" 'warning: st@1 left as it is'
  ) || exit 1
  is "$(stored 1)" "$before"
  [ "$(stored 2)" -lt 180000 ] || fail 'the other one is as it was'
  compress st
  all_is_well
}

test_what_a_set_depends_on_is_left_alone() {
  store 1
  expect 0 -o ckpt-save --rank=0 --world-size=2 s1 st@2
  expect 75 -e ckpt-compress st@1
  like "$ERR" 'in the making'
  expect 0 -o ckpt-save --rank=1 --world-size=2 s1 st@2
  compress st@1
  expect 0 ckpt-verify --deep st
}

test_the_mark_of_a_dead_one_is_cleaned_by_the_next_save() {
  store 1
  touch st/.pending/swap-0000000001
  drift 2 s2
  expect 0 -o ckpt-save s2 st@2
  is "$(bases 2)" 1
  all_is_well
}

test_a_damaged_one_stays_and_the_others_are_done() {
  store 1 2 3
  printf x | dd of=st/0000000002/shard-00000-of-00001.ckpt bs=1 seek=200000 conv=notrunc status=none
  local before
  before=$(tree st/0000000002)
  expect 2 -E ckpt-compress --base=none st
  is "$(tree st/0000000002)" "$before"
  [ "$(stored 3)" -lt 380000 ] || fail 'the third is as it was'
}

test_wrong_usage() {
  store 1
  expect 2 -e ckpt-compress
  expect 2 -e ckpt-compress nowhere
  expect 2 -e ckpt-compress st@7
  expect 2 -e ckpt-compress st other
  expect 2 -e ckpt-compress st -
  local option
  for option in --encode=raw --encode= --level=0 --level=20 --max-chain=0 --max-chain=9 --base= --base=x --older-than=; do
    expect 2 -e ckpt-compress $option st
  done
  expect 2 -e ckpt-compress --newest-full --rebase st
  expect 2 -e ckpt-compress --newest-full --base=none st
  expect 2 -e ckpt-compress --rebase --base=1 st
  is "$(stored 1)" "$(stat -c %s st/0000000001/*.ckpt)"
}

test_a_container_goes_through_a_pipe() {
  store 1
  local raw=st/0000000001/shard-00000-of-00001.ckpt
  expect 0 -O sh -c "cat $raw | ckpt-compress - >small"
  [ "$(stat -c %s small)" -lt 380000 ] || fail 'it is not smaller'
  expect 0 sh -c 'ckpt-compress - <small >again'
  same_file small again
  compress st
  # The same encoder, so the same bytes: a container is a function of what it holds and how.
  same_file small st/0000000001/shard-00000-of-00001.1.ckpt
  is "$(ls -A | grep -c stdin || true)" 0 'spools that are left'
}

test_what_is_no_container_or_needs_others_is_refused_as_a_filter() {
  store 1 2
  compress st
  expect 2 -e sh -c 'ckpt-compress - <st/0000000002/shard-00000-of-00001.1.ckpt >out'
  like "$ERR" 'needs other containers'
  [ ! -s out ] || fail 'something was written'
  expect 2 -e sh -c 'ckpt-compress - <s1 >out'
  like "$ERR" 'standard input'
  expect 2 -e sh -c 'head -c 100000 st/0000000001/shard-00000-of-00001.1.ckpt | ckpt-compress - >out'
  cp st/0000000001/*.ckpt bad
  printf x | dd of=bad bs=1 seek=100000 conv=notrunc status=none
  expect 2 -e sh -c 'ckpt-compress - <bad >out'
  [ ! -s out ] || fail 'something was written'
  expect 2 -e ckpt-compress --rebase - <bad
  expect 2 -e sh -c 'ckpt-compress - <st/0000000001/shard-00000-of-00001.1.ckpt >/dev/full'
}

# models STEP...: a checkpoint for each, of a torch file m1.pt, m2.pt, ... with model.weight, model.bias and step.
models() {
  local step
  for step in "$@"; do
    "$PYTHON" "$TESTS_DIR/make_input.py" torch "$step" m.pt 40000
    cp m.pt "m$step.pt"
    expect 0 -o ckpt-save m.pt "st@$step"
  done
}
# lossy ADDRESS: restores what has lost values to out, says so on standard error, and its zip is sound.
lossy() {
  rm -rf out
  expect 2 -e ckpt-restore "$1" out
  like "$ERR" 'lost values'
  expect 0 -o -e ckpt-restore --allow-lossy "$1" out
  like "$ERR" 'marked lossy'
  [ ! -e out/m.pt ] || expect 0 -o "$PYTHON" -m zipfile -t out/m.pt
}
# values FILE TENSOR: its numbers, one a line.
values() {
  local own
  own=$(mktemp -d ./values.XXXXXX)
  ckpt-save "$1" "$own/st@1" >/dev/null
  ckpt-restore --tensor="$2" --as=raw -o - "$own/st@1" | od -An -v -w4 -t f4 | tr -d ' '
}

# zips FILE...: the checksums of all members are right, in the directory, in the local header or behind the data, also
# where several archives stand behind one another.
zips() {
  "$PYTHON" - "$@" <<'PY' || fail "wrong checksums in $*"
import io, struct, sys, zipfile, zlib
seen = 0
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    end = len(data)
    while end > 0:
        archive = zipfile.ZipFile(io.BytesIO(data[:end]))
        assert archive.testzip() is None, path
        for info in archive.infolist():
            name, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
            begin = info.header_offset + 30 + name + extra
            local, = struct.unpack_from("<I", data, info.header_offset + 14)
            behind = begin + info.compress_size
            if data[behind:behind + 4] == b"PK\7\10":
                behind += 4
            stated = struct.unpack_from("<I", data, behind)[0] if info.flag_bits & 8 else local
            assert stated == info.CRC and local in (0, info.CRC), (path, info)
            seen += 1
        end = min(info.header_offset for info in archive.infolist())
assert seen
PY
}

test_dropped_values_are_zeros_and_all_else_is_as_it_was() {
  models 1 2
  local before
  before=$(stored 1)
  expect 0 -o ckpt-compress --drop=model.weight st@1
  like "$OUT" 'model.weight +float32 +dropped'
  lossy st@1
  is "$(values out/m.pt model.weight | sort -u)" 0
  is "$(values out/m.pt model.bias | md5sum)" "$(values m1.pt model.bias | md5sum)"
  [ "$(stored 1)" -lt $((before / 10)) ] || fail "$(stored 1) of $before bytes"
  expect 0 ckpt-verify --deep st
  restore st@2 two
  same_file m2.pt two/m.pt
  no_leftovers st
}

test_a_lossy_one_has_a_new_id_says_what_it_was_and_is_never_latest_nor_a_base() {
  models 1 2
  local before
  before=$(ids | head -n 1)
  expect 0 -o ckpt-compress --drop=model.weight st@1
  [ "$(ids | head -n 1)" != "$before" ] || fail 'the id is as it was'
  expect 0 -o ckpt-ls --get=marks st@1
  like "$OUT" "derived_from\":\"$before"
  like "$OUT" 'dropped model.weight'
  like "$(ckpt-ls st)" '1 .*lossy'
  is "$(ckpt-ls --get=step st)" 2
  expect 0 ckpt-compress st
  is "$(bases 2)" ''
  expect 2 -e ckpt-restore --tensor=model.bias -o x.safetensors st@1
  expect 0 -o ckpt-restore --allow-lossy --tensor=model.bias -o x.safetensors st@1
}

test_what_depends_on_it_is_encoded_anew_first() {
  store 1 2 3
  compress st
  expect 0 -o ckpt-compress --drop=moment --drop=table st@1
  unlike " $(bases 2) $(bases 3) " ' 1 '
  lossy st@1
  expect 0 ckpt-verify --deep st
  for step in 2 3; do
    restore "st@$step" "out$step"
    same_file "s$step" "out$step/s$step"
  done
}

test_quantised_values_are_near_and_take_less_space() {
  models 1 2
  local type before
  before=$(stored 1)
  cp -a st copy
  for type in int8:0.01 fp8:0.05 int4:0.25 bf16:0.004; do
    rm -rf st
    cp -a copy st
    expect 0 -o ckpt-compress --json --quantize="model.weight=${type%:*}" st@1
    cp "$STREAMS.out" report
    [ "$(stored 1)" -lt $((before * 2 / 3)) ] || fail "${type%:*}: $(stored 1) of $before bytes"
    lossy st@1
    "$PYTHON" - report <(values m1.pt model.weight) <(values out/m.pt model.weight) "${type#*:}" <<'PY' || fail "$type"
import json, sys
loss = [json.loads(line) for line in open(sys.argv[1])][1]
was, now = ([float(x) for x in open(p)] for p in sys.argv[2:4])
errors = [abs(a - b) for a, b in zip(was, now)]
assert len(was) == len(now) == 40000 and max(errors) > 0
assert abs(max(errors) - loss["largest_error"]) < 1e-6 and abs(sum(errors) / 40000 - loss["mean_error"]) < 1e-6, loss
relative = (sum(e * e for e in errors) / sum(a * a for a in was)) ** 0.5
assert relative < float(sys.argv[4]), relative
PY
  done
  # Said again it changes nothing.
  before=$(tree st)
  expect 0 ckpt-compress --quantize='model.weight=bf16' st@1
  is "$(tree st)" "$before"
}

test_the_smallest_values_become_zero() {
  models 1 2
  expect 0 -o ckpt-compress --sparsify='model.w*=0.9' st@1
  lossy st@1
  "$PYTHON" - <(values m1.pt model.weight) <(values out/m.pt model.weight) <<'PY' || fail 'other values'
import sys
was, now = ([float(x) for x in open(p)] for p in sys.argv[1:3])
zeros = [abs(a) for a, b in zip(was, now) if b == 0]
kept = [abs(a) for a, b in zip(was, now) if b != 0]
assert abs(len(zeros) - 36000) < 5, len(zeros)
assert max(zeros) <= min(kept) and all(a == b for a, b in zip(was, now) if b != 0)
PY
}

test_every_kind_of_file_stays_readable() {
  cp "$FIXTURES/arrays.npz" "$FIXTURES/train_step5.pt" "$FIXTURES/train_legacy.pth" .
  cp -r "$FIXTURES/dcp" dcp
  "$PYTHON" "$TESTS_DIR/make_input.py" safetensors 1 s.safetensors
  local name
  for name in arrays.npz train_step5.pt train_legacy.pth dcp s.safetensors; do
    rm -rf st out
    expect 0 -o ckpt-save "$name" st@1
    expect 0 -o ckpt-save "$name" st@2
    expect 0 -O ckpt-compress --drop='*[a-z]*' st@1
    expect 0 -o -e ckpt-restore --allow-lossy st@1 out
    expect 0 ckpt-verify --deep st
    expect 0 -o ckpt-save out st2$name@1
    case $name in
      *.npz | *.pt) zips "out/$name" ;;
      dcp) zips out/*.distcp ;;
    esac
    is "$(ckpt-ls --tensors --format=tsv st2$name@1 | cut -f 3-7)" "$(ckpt-ls --tensors --format=tsv st@2 | cut -f 3-7)"
    like "$(ckpt-ls --tensors --stats --json st2$name@1 | grep -c '"max":0,\|"max":0.0,\|"max":null')" '[1-9]'
  done
}

test_aliases_change_together_or_not_at_all() {
  cp "$FIXTURES/aliases.pt" m.pt
  expect 0 -o ckpt-save m.pt st@1
  expect 0 -o ckpt-save m.pt st@2
  local before name
  before=$(ids)$(bases 2)
  name=$(ckpt-ls --tensors --format=tsv st@1 | cut -f 3 | head -n 1)
  expect 2 -e ckpt-compress --drop="$name" st@1
  like "$ERR" 'shares bytes with'
  is "$(ids)$(bases 2)" "$before"
  expect 0 -o ckpt-compress --drop='*[a-z]*' st@1
  lossy st@1
}

test_what_must_keep_its_values_does() {
  models 1 2
  expect 2 -e ckpt-compress --drop=model.weight st@2
  like "$ERR" 'newest good'
  expect 0 ckpt-prune --pin=1 st
  expect 2 -e ckpt-compress --drop=model.weight st@1
  like "$ERR" 'pinned'
  expect 0 ckpt-compress --drop=model.weight st
  expect 0 ckpt-prune --unpin=1 st
  expect 0 -o ckpt-compress --drop=model.weight st
  expect 2 -e ckpt-restore st@1 out
  restore st@2 out
}

test_rules_that_cannot_be_meant_are_refused() {
  models 1 2
  local option
  for option in --drop= --drop='*' --drop='?*' --quantize=x --quantize='*=int8' --quantize=x=int3 --sparsify=x=0 \
    --sparsify=x=1 --sparsify=x= --sparsify='*=0.5' --sparsify=x=nan --drop=model.weigth; do
    expect 2 -e ckpt-compress "$option" st@1
  done
  like "$ERR" "no tensor matches 'model.weigth'"
  expect 2 -e ckpt-compress --drop=step --rebase st@1
  expect 2 -e sh -c 'ckpt-compress --drop=step - <st/0000000001/*.ckpt'
  restore st@1 out
  same_file m1.pt out/m.pt
}

test_prune_drops_what_only_the_newest_keep() {
  models 1 2 3
  expect 0 ckpt-prune --drop-after='1:model.w*' st
  lossy st@1
  is "$(values out/m.pt model.weight | sort -u)" 0
  expect 0 ckpt-verify --deep st
  local before
  before=$(tree st)
  expect 0 ckpt-prune --drop-after='1:model.w*' st
  is "$(tree st)" "$before"
  restore st@3 out3
  same_file m3.pt out3/m.pt
}

run_tests "$@"
