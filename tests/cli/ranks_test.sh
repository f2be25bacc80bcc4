#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Many ranks, one checkpoint: in any order, at once, late, killed and run again, of other attempts and other sizes.
. "$(dirname "$0")/../lib.sh"

# inputs N: rank directories r0..r(N-1), each with a file of its own.
inputs() {
  local r
  for ((r = 0; r < $1; r++)); do
    mkdir -p "r$r"
    step_file "$r" "r$r/rank$r.pt"
  done
}
# shard R N ADDRESS [OPTION...]
shard() {
  local rank=$1 size=$2 address=$3
  shift 3
  save --rank="$rank" --world-size="$size" "$@" "r$rank" "$address"
}
pending_field() { ckpt-ls --pending --json "$1" | "$PYTHON" -c 'import json, sys
print([r[sys.argv[1]] for r in map(json.loads, sys.stdin) if r["type"] not in ("header", "summary")])' "$2"; }
whole() {
  local r
  restore "$1" "out.$1"
  for ((r = 0; r < $2; r++)); do same_file "r$r/rank$r.pt" "out.$1/rank$r.pt"; done
  expect 0 ckpt-verify --deep "$1"
}

test_shards_in_any_order_make_one_checkpoint() {
  inputs 4
  local r
  for r in 2 0 3; do
    shard $r 4 st@1
    is "$(steps st)" '' 'committed steps'
  done
  shard 1 4 st@1
  is "$(steps st)" 1
  whole st@1 4
  no_leftovers st
}

test_an_incomplete_set_shows_as_pending() {
  inputs 3
  shard 0 3 st@7
  shard 2 3 st@7
  is "$(pending_field st step)" '[7]'
  is "$(pending_field st world_size)" '[3]'
  expect 0 -o ckpt-ls --pending st
  expect 1 ckpt-ls --exists st
  expect 2 -e ckpt-restore st out
  expect 0 ckpt-verify st
  shard 1 3 st@7
  is "$(pending_field st step)" '[]'
  whole st@7 3
}

test_shards_at_once_make_one_checkpoint() {
  inputs 8
  local step r
  for step in 1 2 3 4 5; do
    for r in 0 1 2 3 4 5 6 7; do
      ckpt-save --rank=$r --world-size=8 r$r st@$step >"out.$step.$r" 2>&1 || echo "exit $?" >>"out.$step.$r" &
    done
    wait
    for r in 0 1 2 3 4 5 6 7; do is "$(cat "out.$step.$r")" "st@$step" "output of rank $r at step $step"; done
  done
  is "$(steps st)" '1 2 3 4 5'
  whole st@5 8
  expect 0 ckpt-verify --deep st
  no_leftovers st
}

test_the_same_shard_twice_at_once_is_harmless() {
  inputs 2
  local i
  for i in 1 2 3 4 5 6; do
    ckpt-save --rank=$((i % 2)) --world-size=2 r$((i % 2)) st@1 >"out.$i" 2>&1 || echo "exit $?" >>"out.$i" &
  done
  wait
  for i in 1 2 3 4 5 6; do is "$(cat "out.$i")" st@1 "output of writer $i"; done
  is "$(steps st)" 1
  whole st@1 2
  no_leftovers st
}

test_a_shard_with_other_content_is_refused() {
  inputs 2
  shard 0 2 st@1
  expect 2 -e ckpt-save --rank=0 --world-size=2 r1 st@1
  shard 1 2 st@1
  whole st@1 2
}

test_a_replaced_set_may_have_shards_that_did_not_change() {
  inputs 3
  shard 0 2 st@1
  shard 1 2 st@1
  save --replace --rank=0 --world-size=2 r0 st@1
  save --replace --rank=1 --world-size=2 r2 st@1
  restore --by-rank st@1 out
  same_file r0/rank0.pt out/rank-00000/rank0.pt
  same_file r2/rank2.pt out/rank-00001/rank2.pt
  no_leftovers st
}

test_a_set_replaces_a_checkpoint_whose_manifest_is_damaged_once_it_is_complete() {
  inputs 2
  shard 0 2 st@1
  shard 1 2 st@1
  truncate -s 100 st/0000000001/manifest.json
  save --replace --rank=0 --world-size=2 r0 st@1
  expect 1 -o ckpt-verify st
  save --replace --rank=1 --world-size=2 r1 st@1
  whole st@1 2
  no_leftovers st
}

test_a_late_shard_of_a_committed_step_is_a_success() {
  inputs 2
  shard 0 2 st@1
  shard 1 2 st@1
  shard 0 2 st@1
  whole st@1 2
}

test_a_killed_rank_can_be_run_again() {
  inputs 3
  local delay
  shard 0 3 st@1
  shard 2 3 st@1
  "$PYTHON" "$TESTS_DIR/make_input.py" noise 9 r1/big 20000000
  for delay in 0.002 0.005 0.01 0.02 0.03; do
    timeout -s KILL "$delay" ckpt-save --rank=1 --world-size=3 r1 st@1 >/dev/null 2>&1 || true
    expect 0 ckpt-verify st
  done
  shard 1 3 st@1
  is "$(steps st)" 1
  whole st@1 3
  shard 0 3 st@2
  no_leftovers_but_sets
}
no_leftovers_but_sets() {
  is "$(find st/.pending -mindepth 1 -maxdepth 1 ! -name '[0-9]*' ! -name tmp ! -name 'attempt-*' ! -name '*lock*')" '' 'leftovers'
  is "$(ls -A st/.pending/tmp 2>/dev/null)" '' 'temporaries'
}

test_shards_of_two_attempts_never_meet() {
  inputs 2
  shard 0 2 st@1 --attempt=0
  shard 1 2 st@1 --attempt=1
  is "$(steps st)" '' 'committed steps'
  shard 0 2 st@1 --attempt=1
  is "$(steps st)" 1
  expect 0 -o ckpt-ls --get=attempt st@1
  is "$OUT" 1
  whole st@1 2
}

test_a_lower_attempt_is_barred_once_a_higher_one_came() {
  inputs 2
  shard 0 2 st@1 --attempt=0
  shard 0 2 st@2 --attempt=3
  expect 2 -e ckpt-save --rank=1 --world-size=2 --attempt=0 r1 st@1
  is "$(steps st)" '' 'committed steps'
  shard 1 2 st@2 --attempt=3
  is "$(steps st)" 2
}

test_without_attempt_the_highest_one_goes_on() {
  inputs 2
  shard 0 2 st@1 --attempt=5
  shard 1 2 st@1
  is "$(steps st)" 1
  expect 0 -o ckpt-ls --get=attempt st@1
  is "$OUT" 5
}

test_shards_of_two_world_sizes_never_meet() {
  inputs 3
  shard 0 2 st@1
  shard 1 3 st@1
  shard 2 3 st@1
  is "$(steps st)" '' 'committed steps'
  is "$(pending_field st world_size | tr -d '[] ' | tr ',' '\n' | sort | tr '\n' ' ')" '2 3 '
  shard 0 3 st@1
  is "$(steps st)" 1
  whole st@1 3
}

test_a_world_of_one_is_the_default() {
  inputs 1
  save r0 st@1
  expect 0 -o ckpt-ls --get=world_size st@1
  is "$OUT" 1
}

test_resumed_from_retires_what_is_newer() {
  inputs 1
  local step
  for step in 10 20 30; do save --attempt=0 --meta=s=$step r0 st@$step; done
  make_dir 5 again
  local id
  id=$(ckpt-ls --get=id st@30)
  save --attempt=1 --resumed-from=10 again st@20
  is "$(steps st)" '10 20'
  expect 0 -o ckpt-ls --get=step st
  is "$OUT" 20
  restore st@20 out
  same_tree again out
  expect 0 -o ckpt-ls --retired st
  like "$OUT" '30'
  restore "st@id:$id" old
  same_file r0/rank0.pt old/rank0.pt
  expect 0 ckpt-verify --deep st
}

test_resumed_from_said_again_by_a_late_rank_changes_nothing() {
  inputs 2
  local step
  for step in 10 20 30; do
    shard 0 2 st@$step --attempt=0
    shard 1 2 st@$step --attempt=0
  done
  shard 0 2 st@15 --attempt=1 --resumed-from=10
  is "$(steps st)" '10'
  shard 1 2 st@15 --attempt=1 --resumed-from=10
  is "$(steps st)" '10 15'
  shard 0 2 st@20 --attempt=1 --resumed-from=10
  shard 1 2 st@20 --attempt=1 --resumed-from=10
  is "$(steps st)" '10 15 20'
  shard 1 2 st@15 --attempt=1 --resumed-from=10
  is "$(steps st)" '10 15 20'
  whole st@20 2
}

test_resumed_from_retires_pending_sets_of_lower_attempts() {
  inputs 2
  shard 0 2 st@10 --attempt=0
  shard 1 2 st@10 --attempt=0
  shard 0 2 st@20 --attempt=0
  shard 0 2 st@20 --attempt=1 --resumed-from=10
  is "$(pending_field st attempt)" '[1]'
  shard 1 2 st@20 --attempt=1 --resumed-from=10
  whole st@20 2
}

run_tests "$@"
