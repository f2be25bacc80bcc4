#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ckpt-prune: what stays and what goes, pins, refusals, and what it leaves alone.
. "$(dirname "$0")/../lib.sh"

# store STEP...: a checkpoint for each, an hour apart, with a loss of its own.
store() {
  local step
  for step in "$@"; do
    step_file "$step" a.pt
    expect 0 -o env SOURCE_DATE_EPOCH=$((1700000000 + step * 3600)) ckpt-save --meta=loss="0.$((10 - step))" a.pt "st@$step"
  done
}
# prune OPTION...: succeeds in silence.
prune() { expect 0 ckpt-prune "$@" st; }
# A column of the decision about a step: 2 action, 3 rules.
decision() { ckpt-prune -n --format=tsv "${@:3}" st | awk -F '\t' -v step="$1" -v n="$2" '$1 == step { print $n }'; }
# The id of a checkpoint, as a pin's name has it.
id_of() { (cd st && sed -n 's/.*"id": "\(.*\)".*/\1/p' "$1/manifest.json" | head -n 1); }

test_the_last_ones_stay() {
  store 1 2 3 4
  prune --keep-last=2
  is "$(steps st)" '3 4'
  no_leftovers st
  expect 0 ckpt-verify --deep st
  prune --keep-last=2
  is "$(steps st)" '3 4'
}

test_what_refers_to_what_goes_by_way_of_another_is_encoded_anew() {
  local step
  for step in 1 2 3 4; do
    "$PYTHON" "$TESTS_DIR/make_input.py" drift "$step" state.st
    cp -p state.st "$step.st"
    save state.st st@$step
    # Older ones refer to newer ones, and to what these refer to themselves.
    if [ "$step" = 3 ]; then expect 0 ckpt-compress --newest-full st; fi
  done
  prune --remove=3
  is "$(steps st)" '1 2 4'
  expect 0 ckpt-verify --deep st
  for step in 1 2 4; do
    rm -rf out
    restore st@$step out
    same_file $step.st out/state.st
  done
}

test_rules_add_up() {
  store 1 2 3 4 5 6 7
  prune --keep-last=1 --keep-every=3 --keep-best=1:loss:max --keep=5
  is "$(steps st)" '1 3 5 6 7'
}

test_an_age_is_counted_from_the_newest_checkpoint() {
  store 1 2 3 4
  prune --keep-within=1h
  is "$(steps st)" '3 4'
}

test_hours_days_and_weeks() {
  store 1 2 3 4
  cp -a st copy
  prune --keep-hourly=3
  is "$(steps st)" '2 3 4'
  rm -r st && cp -a copy st
  prune --keep-daily=5
  is "$(steps st)" '1 4'
  rm -r st && cp -a copy st
  prune --keep-weekly=5
  is "$(steps st)" '4'
}

test_the_best_stay_and_nan_is_worst() {
  store 1 2 3
  step_file 4 a.pt
  save --meta=loss=nan a.pt st@4
  step_file 5 a.pt
  save a.pt st@5
  prune --keep-best=2:loss
  is "$(steps st)" '2 3 5'
  prune --keep-best=1:loss:max
  is "$(steps st)" '2 5'
}

test_a_mistyped_key_removes_nothing() {
  store 1 2 3
  expect 2 -e ckpt-prune --keep-best=1:los st
  like "$ERR" "'los'"
  is "$(steps st)" '1 2 3'
}

test_no_policy_and_empty_values_are_refused() {
  store 1 2
  local option
  expect 2 -e ckpt-prune st
  expect 2 -e ckpt-prune --verified st
  expect 2 -e ckpt-prune --keep=1 st
  expect 2 -e ckpt-prune -n st
  for option in --keep-last --keep-every --keep-within --keep-hourly --keep-daily --keep-weekly --keep-best --keep \
    --remove --pin --unpin --drop-after; do
    expect 2 -e ckpt-prune --keep-last=1 $option= st
    expect 2 -e ckpt-prune --keep-last=1 $option=x st
    expect 2 -e ckpt-prune --keep-last=1 $option=-1 st
  done
  for option in --keep-last=0 --keep-every=0 --keep-daily=0 --keep-best=0:loss --keep-best=loss --keep-best=1: \
    --keep-best=1::min --drop-after=0:x --drop-after=x --drop-after=1: --drop-after='1:*' --drop-after='1:?*'; do
    expect 2 -e ckpt-prune "$option" st
  done
  expect 2 -e ckpt-prune --keep-last=1 --keep=1 --remove=1 st
  expect 2 -e ckpt-prune --pin=1 --unpin=1 st
  is "$(steps st)" '1 2'
  no_leftovers st
}

test_what_is_no_store_is_trouble() {
  store 1
  expect 2 -e ckpt-prune --keep-last=1
  expect 2 -e ckpt-prune --keep-last=1 nowhere
  expect 2 -e ckpt-prune --keep-last=1 st@1
  expect 2 -e ckpt-prune --keep-last=1 st st
  mkdir plain
  expect 2 -e ckpt-prune --keep-last=1 plain
  [ -z "$(ls -A plain)" ] || fail 'something was written'
}

test_a_dry_run_says_why_and_changes_nothing() {
  store 1 2 3
  local before
  before=$(tree st)
  expect 0 -o ckpt-prune -n --keep-last=1 --pin=2 st
  like "$OUT" '3 +keep +last,newest_good'
  like "$OUT" '2 +keep +pinned'
  like "$OUT" '1 +remove'
  is "$(tree st)" "$before"
  chmod -R a-w st
  expect 0 -o ckpt-prune -n --keep-last=1 st
}

test_records_say_what_was_done() {
  store 1 2 3
  expect 0 -o ckpt-prune --json --keep-last=2 st
  "$PYTHON" - "$STREAMS.out" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert rows[0]["schema"] == "ckpt-prune/1" and rows[0]["dry_run"] is False, rows[0]
assert [(r["step"], r["action"]) for r in rows[1:-1]] == [(1, "remove"), (2, "keep"), (3, "keep")], rows
assert rows[-1]["removed"] == 1 and rows[-1]["removed_bytes"] == rows[1]["stored_bytes"] > 0, rows[-1]
PY
  expect 0 -O ckpt-prune --metrics-file=m.prom --keep-last=1 st
  like "$(cat m.prom)" 'ckpt_prune_removed_checkpoints\{store="st"\} 1'
}

test_a_step_that_is_named_goes_and_nothing_else() {
  store 1 2 3
  prune --remove=2
  is "$(steps st)" '1 3'
  expect 2 -e ckpt-prune --remove=2 --remove=1 st
  like "$ERR" "no checkpoint 'st@2'"
  is "$(steps st)" '3'
}

test_the_newest_good_one_never_goes() {
  store 1 2
  expect 2 -e ckpt-prune --remove=2 st
  like "$ERR" 'newest_good'
  truncate -s -100 st/0000000002/*.ckpt
  expect 1 -o ckpt-verify st
  expect 2 -e ckpt-prune --remove=1 st
  prune --remove=2
  is "$(steps st)" '1'
}

test_damaged_ones_do_not_take_the_place_of_good_ones() {
  store 1 2 3
  truncate -s -100 st/0000000003/*.ckpt
  expect 1 -o ckpt-verify st
  prune --keep-last=1
  is "$(steps st)" '2 3'
  expect 0 -o -e ckpt-restore --fallback st out
  is "$OUT" 'st@2'
}

test_without_a_good_one_nothing_goes() {
  store 1 2
  truncate -s -100 st/*/*.ckpt
  expect 1 -o ckpt-verify st
  prune --keep-last=1 --keep-every=5
  is "$(steps st)" '1 2'
}

test_a_manifest_that_cannot_be_read_stays_until_it_is_named() {
  store 1 2 3
  printf x | dd of=st/0000000001/manifest.json bs=1 seek=9 conv=notrunc status=none
  prune --keep-last=1
  is "$(steps st)" '1 3'
  is "$(decision 1 3 --keep-last=1)" unreadable
  prune --remove=1
  is "$(steps st)" '3'
}

test_verified_waits_for_what_is_not() {
  store 1 2 3
  prune --verified --keep-last=1
  is "$(steps st)" '1 2 3'
  is "$(decision 1 3 --verified --keep-last=1)" unverified
  expect 0 ckpt-verify st@2
  prune --verified --keep-last=1
  is "$(steps st)" '1 2 3'
  expect 0 ckpt-verify st
  prune --verified --keep-last=1
  is "$(steps st)" '3'
  is "$(ls st/.verify | wc -l)" 1 'number of records'
}

test_pins_hold_until_they_are_taken_away() {
  store 1 2 3
  expect 0 ckpt-prune --pin=1 st
  is "$(steps st)" '1 2 3'
  prune --keep-last=1
  is "$(steps st)" '1 3'
  expect 2 -e ckpt-prune --remove=1 st
  like "$ERR" pinned
  cp -a st copy
  expect 0 ckpt-prune --keep-last=1 copy
  is "$(steps copy)" '1 3'
  prune --unpin=1 --keep-last=1
  is "$(steps st)" '3'
  expect 2 -e ckpt-prune --unpin=1 st
  expect 2 -e ckpt-prune --pin=1 st
  no_leftovers st
}

test_a_pin_stays_with_the_step_that_is_replaced() {
  store 1 2
  expect 0 ckpt-prune --pin=1 st
  step_file 9 a.pt
  save --replace a.pt st@1
  prune --keep-last=1
  is "$(steps st)" '1 2'
}

test_a_living_process_holds_what_it_uses_and_a_dead_one_does_not() {
  store 1 2 3
  local name
  mkdir -p st/.pins
  name=st/.pins/use.$(hostname | tr ./ __).$$.0-0123456789abcdef.0000000001-$(id_of 0000000001)
  (
    exec 9>"$name"
    flock -n 9 || exit 1
    expect 75 -e ckpt-prune --remove=1 st
    like "$ERR" in_use
    prune --keep-last=1
    is "$(steps st)" '1 3'
  ) || exit 1
  [ -e "$name" ] || fail 'the pin of a living process was taken away'
  prune --keep-last=1
  is "$(steps st)" '3'
  no_leftovers st
}

test_a_restore_holds_what_it_reads() {
  store 1 2 3
  mkfifo pipe
  ckpt-restore --file=a.pt -o pipe st@1 >out.txt 2>err.txt &  # waits for a reader of the pipe
  local job=$! n
  for n in $(seq 400); do
    [ -z "$(ls st/.pins)" ] || break
    sleep 0.05
  done
  expect 75 -e ckpt-prune --remove=1 st
  like "$ERR" in_use
  cat pipe >got
  wait "$job" || fail "the restore failed: $(cat err.txt)"
  step_file 1 want
  same_file want got
  prune --remove=1
  is "$(steps st)" '2 3'
  no_leftovers st
}

test_retired_ones_go_with_a_policy_unless_they_are_pinned() {
  store 1 2 3
  expect 0 ckpt-prune --pin=2 st
  step_file 5 a.pt
  save --attempt=1 --resumed-from=1 a.pt st@5
  prune --remove=1
  is "$(ls st/.retired | wc -l)" 2 'number of retired ones'
  prune --keep-last=5
  is "$(ls st/.retired)" "0000000002-$(ls st/.retired | sed 's/.*-//')" 'the retired one'
  expect 0 -o ckpt-ls --retired st
  prune --unpin=2 --keep-last=5
  [ -z "$(ls st/.retired)" ] || fail 'a retired one is left'
}

test_sets_of_attempts_that_are_over_go_and_living_ones_stay() {
  store 1
  step_file 2 a.pt
  save --rank=0 --world-size=2 --attempt=1 a.pt st@2
  prune --keep-last=1
  expect 0 -o ckpt-ls --pending --format=tsv st
  save --attempt=2 a.pt st@3
  save --rank=0 --world-size=2 --attempt=2 a.pt st@4
  expect 0 -o ckpt-prune --json --keep-last=1 st
  like "$OUT" '"sets":1'
  is "$(ckpt-ls --pending --format=tsv st | cut -f 1)" 4 'the set that is left'
  save --rank=1 --world-size=2 --attempt=2 a.pt st@4
  is "$(steps st)" '3 4'
}

test_what_a_dead_prune_left_is_finished_by_a_save_or_a_prune() {
  store 1 2 3
  mkdir -p st/.trash
  mv st/0000000001 st/.trash/
  store 4
  [ -z "$(ls st/.trash)" ] || fail 'the save left it'
  is "$(steps st)" '2 3 4'
  expect 0 ckpt-prune --pin=2 st
  mv st/0000000002 st/0000000003 st/.trash/
  prune --keep-last=9
  is "$(steps st)" '2 4'
  [ -z "$(ls st/.trash)" ] || fail 'the prune left it'
  expect 0 ckpt-verify --deep st
}

test_neither_a_save_nor_a_pin_waits_for_the_lock() {
  store 1 2
  (
    exec 9>st/.pending/lock
    flock -n 9 || exit 1
    store 3
    expect 0 ckpt-prune --pin=1 st
  ) || exit 1
  is "$(steps st)" '1 2 3'
}

test_files_that_are_not_the_stores_are_left_alone() {
  store 1 2 3
  mkdir st/notes st/7
  touch st/notes/x st/README st/.pending/mine st/.trash-not
  prune --keep-last=1
  for name in notes/x README .pending/mine .trash-not 7; do
    [ -e "st/$name" ] || fail "$name is gone"
  done
}

test_an_empty_store_is_fine() {
  store 1
  rm -r st/0000000001
  expect 0 ckpt-prune --keep-last=1 --keep-best=1:loss st
  expect 0 ckpt-prune -n --keep-last=1 st
}

test_a_full_output_is_trouble() {
  store 1 2
  expect 2 -E sh -c 'ckpt-prune -n --keep-last=1 st >/dev/full'
}

test_what_an_attempt_that_is_over_staged_goes_too() {
  step_file 1 state.pt
  local spool
  spool=st/.spool/$(hostname | tr ./ __)
  mkdir -p "$spool"
  exec 9>"$spool/lock"
  flock 9
  expect 0 -o ckpt-save --detach --attempt=1 state.pt st@1 9>&-
  save --attempt=2 state.pt st@2 9>&-
  exec 9>&-
  expect 0 ckpt-serve --until-idle st
  is "$(ls "$spool/retired" | wc -l)" 1 'retired entries'
  expect 0 -O ckpt-prune --keep-last=1 st
  is "$(ls "$spool/retired" | wc -l)" 0 'retired entries'
}

run_tests "$@"
