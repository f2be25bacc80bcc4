#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Saves that are handed over: what is staged, how it gets there, who drains it, and what becomes of it.
. "$(dirname "$0")/../lib.sh"

spool() { echo "$1/.spool/$(hostname | tr ./ __)"; }
staged() { find "$(spool "$1")/staged" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l; }

# hold STORE [SPOOL]: no worker drains the spool until `let_go`.
hold() {
  local spool=${2:-$(spool "$1")}
  mkdir -p "$spool"
  exec 9>"$spool/lock"
  flock 9
}
let_go() { exec 9>&-; }

# detach ARGUMENT... STORE@STEP: is staged in silence.
detach() {
  expect 0 -o ckpt-save --detach "$@" 9>&-
  is "$OUT" "${!#}" 'address that ckpt-save prints'
}
durable() { expect 0 ckpt-wait --timeout=120 "$@"; }
# Until a worker that has stored all has also cleaned up and ended.
settled() { flock -w 30 "$(spool "$1")/lock" true || fail 'the worker does not end'; }
# workers_gave_up [SPOOL]: until those that found the spool locked have ended; their words go to its log.
workers_gave_up() {
  local log process waiting=yes
  log=$(readlink -f "${1:-$(spool st)}")/worker.log
  for _ in $(seq 1500); do
    waiting=
    for process in $(pgrep -x ckpt-worker); do
      [ "$(readlink "/proc/$process/fd/2" 2>/dev/null)" != "$log" ] || waiting=yes
    done
    [ -n "$waiting" ] || return 0
    sleep 0.02
  done
  fail 'a worker does not give up'
}
id_of() { ckpt-ls --get id "$1"; }
pending() { ckpt-ls --pending --format=tsv "$1" 9>&- | cut -f "$2"; }

# same_as_direct SOURCE... [OPTION...]: what is staged and drained is what a direct save stores.
same_as_direct() {
  save --base=none "$@" direct@1
  detach --base=none "$@" st@1
  durable st@1
  is "$(id_of st@1)" "$(id_of direct@1)" 'id of what was staged'
  settled st
  no_leftovers st
}

test_a_save_that_is_detached_prints_its_address_and_gets_durable() {
  step_file 1 state.pt
  is "$(ckpt-save --detach state.pt st@1000)" st@1000 address
  durable st
  restore st out
  same_file state.pt out/state.pt
  is "$(ckpt-ls --pending --format=tsv st)" '' 'saves that are not durable'
  settled st
  no_leftovers st
}

test_a_file_is_stored_as_by_a_direct_save() { step_file 1 state.pt; same_as_direct state.pt; }
test_a_directory_is_stored_as_by_a_direct_save() { make_dir 1 in; same_as_direct in; }
test_files_and_directories_are_stored_as_by_a_direct_save() { make_dir 1 in; step_file 2 b.pt; same_as_direct in b.pt; }
test_names_relative_to_a_directory_imply_no_directories() {
  mkdir -p top/a/b
  step_file 1 top/a/b/x.pt
  step_file 2 top/y.pt
  same_as_direct -C top a/b/x.pt y.pt
  is "$(ckpt-ls --format=tsv st@1 | wc -l)" 2 'entries'
}
test_links_modes_and_odd_names_are_stored_as_by_a_direct_save() {
  mkdir -p in/sub in/closed
  step_file 1 in/a.pt
  ln in/a.pt in/hard.pt
  ln -s a.pt in/soft.pt
  ln -s ../a.pt in/sub/up.pt
  : >in/empty
  echo x >"in/$(printf 'bad\377name')"
  echo y >"in/new"$'\n'"line"
  chmod 0640 in/a.pt
  chmod 2750 in/sub
  chmod 0500 in/closed
  same_as_direct in
}
test_a_link_out_of_the_tree_is_followed_as_by_a_direct_save() {
  step_file 1 real.pt
  mkdir in
  ln -s "$PWD/real.pt" in/link.pt
  save --base=none in direct@1
  detach --base=none --consume in st@1
  durable st@1
  is "$(id_of st@1)" "$(id_of direct@1)" id
  [ -e real.pt ] || fail 'a file that a link pointed to is gone'
}
test_standard_input_is_staged() {
  step_file 1 state.pt
  expect 0 -o bash -c 'ckpt-save --detach --name=state.pt - st@1 <state.pt'
  durable st
  restore st out
  same_file state.pt out/state.pt
}
test_metadata_and_the_way_to_encode_travel_along() {
  step_file 1 state.pt
  detach --meta=loss=0.5 --encode=raw --attempt=3 state.pt st@1
  durable st
  is "$(ckpt-ls --get loss st@1)" 0.5 metadata
  is "$(ckpt-ls --get attempt st@1)" 3 attempt
}

test_what_is_written_after_it_is_staged_is_not_stored() {
  step_file 1 state.pt
  cp state.pt first.pt
  hold st
  detach state.pt st@1
  step_file 2 other.pt
  cat other.pt >state.pt
  let_go
  durable st
  restore st out
  same_file first.pt out/state.pt
}

consumes() { # consumes EXPECTED-WAY OPERAND...
  local way=$1 operand
  shift
  expect 0 -o -e ckpt-save -v --detach --consume "$@" st@1
  like "$ERR" "staged by $way in"
  for operand; do [ ! -e "$operand" ] || fail "'$operand' is still there"; done
  durable st
}
test_a_file_that_is_consumed_is_renamed() {
  step_file 1 state.pt
  cp -p state.pt keep.pt
  consumes rename state.pt
  restore st out
  same_file keep.pt out/state.pt
}
test_a_directory_that_is_consumed_is_renamed() {
  make_dir 1 in
  cp -a in keep
  consumes rename in
  restore st out
  same_tree keep out
}
test_several_operands_that_are_consumed_are_renamed() {
  make_dir 1 in
  step_file 1 other.pt
  cp -a in keep
  cp -p other.pt keep
  consumes rename in other.pt
  restore st out
  same_tree keep out
}
test_a_file_with_a_second_name_is_copied_and_then_removed() {
  step_file 1 state.pt
  ln state.pt other.pt
  consumes '(copy|reflink)' state.pt
  hold st
  cp other.pt keep.pt
  let_go
  restore st out
  same_file keep.pt out/state.pt
  [ -e other.pt ] || fail 'the second name is gone'
}
test_what_lies_on_another_file_system_is_copied_and_then_removed() {
  elsewhere=$(mktemp -d /dev/shm/ckpt-test.XXXXXX)
  trap 'rm -rf "$elsewhere"' EXIT
  [ "$(stat -c %d "$elsewhere")" != "$(stat -c %d .)" ] || skip 'one file system'
  step_file 1 "$elsewhere/state.pt"
  cp "$elsewhere/state.pt" keep.pt
  consumes copy "$elsewhere/state.pt"
  restore st out
  same_file keep.pt out/state.pt
}
test_a_file_is_cloned_where_the_file_system_can() {
  [ "$(id -u)" = 0 ] || skip 'needs root'
  mkdir disk
  truncate -s 256M image
  mkfs.btrfs -q image || skip 'no mkfs.btrfs'
  mount -o loop image disk || skip 'no loop device can be mounted'
  mounted=$PWD/disk
  trap 'umount -l "$mounted"' EXIT
  cd disk
  step_file 1 state.pt
  cp state.pt keep.pt
  expect 0 -o -e ckpt-save -v --detach state.pt st@1
  like "$ERR" 'staged by reflink in'
  echo overwritten >state.pt
  durable st
  restore st out
  same_file keep.pt out/state.pt
  settled st
}
test_an_operand_that_leads_through_a_link_is_the_one_that_the_system_finds() {
  mkdir -p real/sub cwd
  ln -s ../real/sub cwd/link
  echo REAL >real/x.bin
  echo WRONG >cwd/x.bin
  cd cwd
  expect 0 -o ckpt-save --detach --consume link/../x.bin ../st@1
  durable ../st
  restore ../st ../out
  is "$(<../out/x.bin)" REAL 'what was stored'
  is "$(<x.bin)" WRONG 'the other file'
  [ ! -e ../real/x.bin ] || fail 'the input is still there'
}
test_what_a_link_leads_to_is_never_consumed() {
  mkdir dir outside other
  echo p >outside/data.bin
  echo q >other/data.bin
  ln -s ../outside dir/link
  ln -s other link
  expect 0 -o ckpt-save --detach --consume dir st@1
  expect 0 -o ckpt-save --detach --consume link st@2
  durable st
  is "$(<outside/data.bin)" p 'what a link in the source led to'
  is "$(<other/data.bin)" q 'what the source led to'
  [ ! -e dir ] && [ ! -L link ] || fail 'a link is still there'
  restore st@1 out
  same_file outside/data.bin out/link/data.bin
}
test_a_source_that_holds_the_store_or_the_spool_cannot_be_consumed() {
  mkdir runs
  step_file 1 runs/state.pt
  save runs/state.pt runs/st@1
  expect 2 -e ckpt-save --detach --consume runs runs/st@2
  like "$ERR" "can't be consumed: 'runs/st' lies in it"
  expect 2 -e ckpt-save --detach --consume --spool=runs/spool runs other@1
  is "$(steps runs/st)" 1 'committed steps'
  [ -e runs/state.pt ] || fail 'the input is gone'
}
test_a_spool_of_another_store_is_never_drained() {
  step_file 1 state.pt
  detach --spool=local state.pt a@1
  expect 0 ckpt-wait --timeout=60 a
  rm -rf local
  save state.pt b@1
  hold b local
  detach --spool=local state.pt b@77
  let_go
  expect 0 ckpt-serve --until-idle a
  is "$(steps a)" 1 'steps of the other store'
  expect 2 -e ckpt-wait --spool=local a
  like "$ERR" 'belongs to another store'
  expect 0 ckpt-wait --timeout=60 b
  is "$(steps b)" '1 77' 'committed steps'
}
test_a_full_spool_that_no_one_drains_gets_a_worker() {
  step_file 1 state.pt
  hold st
  detach state.pt st@1
  workers_gave_up
  let_go
  expect 0 -o ckpt-save --detach --max-staged=1 --timeout=60 state.pt st@2
  durable st
  is "$(steps st)" '1 2' 'committed steps'
}
test_a_spool_whose_folders_were_cleaned_away_goes_on() {
  step_file 1 state.pt
  hold st
  detach state.pt st@1
  workers_gave_up
  let_go
  rm -r "$(spool st)/tmp" "$(spool st)/failed"
  expect 0 ckpt-serve --until-idle st
  durable st
  is "$(staged st)" 0 'staged saves'
}
test_a_hand_over_that_cannot_be_settled_holds_up_no_other() {
  step_file 1 state.pt
  hold st
  detach state.pt st@1
  detach state.pt st@2
  workers_gave_up
  local entry
  entry=$(basename "$(spool st)"/staged/0000000001.*)
  mv "$(spool st)/staged/$entry" "$(spool st)/incoming/"
  rm "$(spool st)/incoming/$entry/intent.json"
  let_go
  expect 0 -e ckpt-serve --until-idle st
  is "$(steps st)" 2 'committed steps'
  same_file state.pt "$(spool st)/failed/$entry/tree/state.pt"
}
test_a_step_that_failed_and_was_saved_again_is_durable_for_one_who_asks_for_it() {
  step_file 1 state.pt
  head -c 1000 state.pt >cut.pt
  detach cut.pt st@1
  expect 2 -e ckpt-wait --timeout=60 st@1
  sleep 1.1 # manifests tell seconds
  save state.pt st@1
  expect 0 ckpt-wait st@1
  expect 2 -e ckpt-wait st
}
test_an_input_that_is_open_for_writing_stays_where_it_is() {
  step_file 1 state.pt
  cp state.pt keep.pt
  expect 75 -e bash -c 'exec 8>>state.pt; ckpt-save --detach --consume state.pt st@1 8>&-'
  like "$ERR" 'open for writing'
  same_file keep.pt state.pt
  is "$(staged st)" 0 'staged saves'
}
test_an_input_that_is_not_there_is_trouble() {
  expect 2 -e ckpt-save --detach nothing.pt st@1
  is "$(staged st)" 0 'staged saves'
}
test_an_option_of_the_background_needs_detach() {
  step_file 1 state.pt
  expect 2 -e ckpt-save --consume state.pt st@1
  like "$ERR" '--detach'
  [ -e state.pt ] || fail 'the input is gone'
}

test_a_spool_elsewhere_is_found_from_the_store() {
  step_file 1 state.pt
  mkdir local
  hold st local/spool
  detach --spool=local/spool state.pt st@1
  is "$(pending st 2)" staged state
  like "$(pending st 9)" 'local/spool/staged/'
  let_go
  durable st
  restore st out
  same_file state.pt out/state.pt
}
test_a_spool_belongs_to_one_store() {
  step_file 1 state.pt
  detach --spool=local state.pt st@1
  expect 2 -e ckpt-save --detach --spool=local state.pt other@1
  like "$ERR" "belongs to store '.*/st'"
  durable st
}
test_a_spool_elsewhere_is_drained_after_the_store_was_moved() {
  step_file 1 state.pt
  hold st local
  detach --spool=local state.pt st@1
  workers_gave_up local
  mv st moved
  let_go
  expect 0 ckpt-serve --until-idle --spool=local moved
  restore moved out
  same_file state.pt out/state.pt
}
test_a_pointer_to_a_spool_on_another_host_is_told_of() {
  step_file 1 state.pt
  save state.pt st@1
  mkdir -p st/.spool/node7
  ln -s /nvme/spool st/.spool/node7/elsewhere-0123456789abcdef
  expect 0 -O -e ckpt-ls --pending st
  like "$ERR" "spool '/nvme/spool' of host node7"
}

test_saves_are_drained_in_order_of_their_steps() {
  local step
  hold st
  for step in 30 10 20; do
    step_file $step state.pt
    detach --encode=raw state.pt st@$step
  done
  is "$(pending st 1 | tr '\n' ' ')" '10 20 30 ' steps
  workers_gave_up
  let_go
  expect 0 -O ckpt-serve --until-idle --format=tsv st
  is "$(cut -f 1 <<<"$OUT" | tr '\n' ' ')" '10 20 30 ' 'order of saves'
}

test_a_full_spool_fails_if_it_is_told_to() {
  step_file 1 state.pt
  hold st
  detach --max-staged=1 state.pt st@1
  expect 75 -e ckpt-save --detach --max-staged=1 --when-full=fail state.pt st@2 9>&-
  like "$ERR" 'is full: 1 save is staged, and 1 may be'
  is "$(staged st)" 1 'staged saves'
}
test_a_full_spool_is_waited_for_until_the_time_is_over() {
  step_file 1 state.pt
  hold st
  detach --max-staged=1K state.pt st@1
  expect 75 -e ckpt-save --detach --max-staged=1K --timeout=0.2 state.pt st@2 9>&-
  like "$ERR" 'bytes are staged'
}
test_a_full_spool_is_waited_for_until_there_is_room() {
  step_file 1 state.pt
  hold st
  detach --max-staged=1 state.pt st@1
  ckpt-save --detach --max-staged=1 state.pt st@2 9>&- >out2 &
  sleep 0.2
  [ ! -s out2 ] || fail 'it did not wait'
  let_go
  durable st@1
  wait $!
  is "$(<out2)" st@2 address
  durable st@2
}
test_one_save_alone_is_always_let_in() {
  step_file 1 state.pt
  detach --max-staged=1K --when-full=fail state.pt st@1
  durable st
}
test_a_save_that_is_skipped_prints_no_address_and_is_told_of_by_wait() {
  step_file 1 state.pt
  hold st
  detach --max-staged=1 --when-full=skip state.pt st@1
  expect 0 -e ckpt-save --detach --max-staged=1 --when-full=skip --consume state.pt st@2 9>&-
  like "$ERR" 'warning: skipped: 1 save is staged'
  [ -e state.pt ] || fail 'a skipped input is gone'
  is "$(pending st 2 | tr '\n' ' ')" 'staged skipped ' states
  let_go
  durable st@1
  expect 2 -e ckpt-wait st@2
  like "$ERR" "'st@2' skipped: 1 save is staged"
  expect 2 -e ckpt-wait st
  # What is newer makes up for it.
  detach state.pt st@3
  durable st
}
test_a_step_that_was_skipped_can_be_saved_all_the_same() {
  step_file 1 state.pt
  hold st
  detach --max-staged=1 state.pt st@1
  expect 0 -e ckpt-save --detach --max-staged=1 --when-full=skip state.pt st@2 9>&-
  let_go
  save state.pt st@2
  durable st
  settled st
  no_leftovers st
}

# Two ranks with a spool each, as on two nodes.
rank() { local rank=$1; shift; expect 0 -O -E ckpt-save --detach --rank="$rank" --world-size=2 --spool="spool$rank" "$@" 9>&- 8>&-; }
hold_both() { mkdir -p spool0 spool1; exec 9>spool0/lock 8>spool1/lock; flock 9; flock 8; }
test_a_set_that_one_rank_skips_is_skipped_by_all() {
  step_file 1 a.pt
  step_file 2 b.pt
  hold_both
  rank 0 --max-staged=1 --when-full=skip a.pt st@1
  rank 0 --max-staged=1 --when-full=skip a.pt st@2
  is "$OUT" '' 'address of a skipped save'
  rank 1 --max-staged=9 --when-full=skip b.pt st@2
  is "$OUT" '' 'address of a save whose set is skipped'
  rank 1 --when-full=wait b.pt st@2
  is "$OUT" '' 'address of a save whose set is skipped'
  expect 0 -e ckpt-save --rank=1 --world-size=2 b.pt st@2 9>&- 8>&-
  like "$ERR" 'as another rank decided'
}
test_a_set_that_one_rank_has_staged_is_skipped_by_none() {
  step_file 1 a.pt
  step_file 2 b.pt
  hold_both
  rank 1 b.pt st@1
  rank 0 a.pt st@2
  # Rank 1's spool is full, and its set is saved by rank 0: it waits.
  expect 75 -e ckpt-save --detach --rank=1 --world-size=2 --spool=spool1 --max-staged=1 --when-full=skip --timeout=0.2 b.pt st@2 9>&- 8>&-
  exec 8>&-
  expect 0 ckpt-serve --until-idle st 9>&-
  rank 1 --max-staged=1 --when-full=skip b.pt st@2
  is "$OUT" st@2 address
  exec 9>&-
  durable st@2
}
test_ranks_that_stage_on_their_own_nodes_make_one_checkpoint() {
  step_file 1 a.pt
  step_file 2 b.pt
  rank 0 a.pt st@1
  rank 1 b.pt st@1
  durable st@1
  restore st out
  same_file a.pt out/a.pt
  same_file b.pt out/b.pt
}

test_what_fails_twice_is_kept_with_its_reason() {
  step_file 1 state.pt
  head -c 1000 state.pt >cut.pt
  detach cut.pt st@1
  expect 2 -e ckpt-wait --timeout=60 st
  like "$ERR" "'st@1' failed: .*cut.pt.*it's kept in"
  is "$(pending st 2)" failed state
  same_file cut.pt "$(spool st)"/failed/*/tree/cut.pt
  # The next ones aren't held up.
  detach state.pt st@2
  durable st@2
  # It's a failure as long as it's there.
  expect 2 -e ckpt-wait st
  rm -r "$(spool st)"/failed/*
  durable st
}
test_a_dead_letter_that_is_moved_back_is_tried_again() {
  step_file 1 state.pt
  save --encode=raw state.pt st@1
  step_file 2 state.pt
  detach state.pt st@1
  expect 2 -e ckpt-wait --timeout=60 st@1
  like "$ERR" 'holds other content'
  rm -r st/0000000001
  mv "$(spool st)"/failed/* "$(spool st)/staged/"
  durable st@1
  restore st@1 out
  same_file state.pt out/state.pt
}
test_a_damaged_ticket_costs_its_own_entry_only() {
  step_file 1 state.pt
  hold st
  detach state.pt st@1
  detach state.pt st@2
  echo x >>"$(echo "$(spool st)"/staged/0000000001.*)/ticket.json"
  let_go
  expect 2 -e ckpt-wait --timeout=60 st
  like "$ERR" "'st@1' failed: .*checksum"
  durable st@2
}

test_a_wait_is_over_after_its_time() {
  step_file 1 state.pt
  hold st
  detach state.pt st@1
  expect 75 -e ckpt-wait --timeout=0.2 st 9>&-
  like "$ERR" "'st@1' isn't durable yet: staged"
}
test_a_wait_starts_a_worker_if_there_is_none() {
  step_file 1 state.pt
  hold st
  detach state.pt st@1
  workers_gave_up
  let_go
  durable st
}
test_a_wait_for_what_is_nowhere_is_trouble() {
  step_file 1 state.pt
  save state.pt st@1
  durable st
  durable st@1
  expect 2 -e ckpt-wait st@2
  like "$ERR" 'neither stored nor on its way'
  expect 2 -e ckpt-wait nothing
}

test_what_an_older_attempt_staged_is_never_stored() {
  step_file 1 state.pt
  hold st
  detach --attempt=1 state.pt st@1
  save --attempt=2 state.pt st@2 9>&-
  let_go
  expect 0 ckpt-serve --until-idle st
  is "$(steps st)" 2 'committed steps'
  is "$(find "$(spool st)/retired" -mindepth 1 -maxdepth 1 | wc -l)" 1 'retired entries'
  durable st
}

# The producer and the worker of a state large enough to be looked at meanwhile.
test_a_worker_has_a_session_of_its_own_and_none_of_the_descriptors() {
  local worker
  head -c 400000000 /dev/zero | tr '\0' x >big
  head -c 1000000 /dev/urandom >>big
  exec 7>held
  ckpt-save --detach --consume big st@1 >/dev/null
  worker=
  for _ in $(seq 200); do
    worker=$(pgrep -x ckpt-worker -n) && [ "$(readlink "/proc/$worker/fd/2")" = "$(readlink -f "$(spool st)")/worker.log" ] && break
    worker=
    sleep 0.01
  done
  [ -n "$worker" ] || skip 'it was too quick to be looked at'
  is "$(ps -o sid= -p "$worker" | tr -d ' ')" "$worker" session
  is "$(ps -o ni= -p "$worker" | tr -d ' ')" 19 'nice level'
  unlike "$(ls -l "/proc/$worker/fd" 2>/dev/null)" 'held$'
  is "$(readlink "/proc/$worker/cwd")" / 'working directory'
  durable st
}

test_an_entry_without_a_ticket_is_kept_aside() {
  step_file 1 state.pt
  hold st
  detach state.pt st@1
  rm "$(spool st)"/staged/*/ticket.json
  is "$(pending st 2)" staged state
  workers_gave_up
  let_go
  expect 0 -e ckpt-serve --until-idle st
  expect 2 -e ckpt-wait --timeout=60 st
  like "$ERR" 'its ticket is gone'
  same_file state.pt "$(spool st)"/failed/*/tree/state.pt
}
test_many_saves_in_a_row_are_all_stored() {
  local step pids=()
  step_file 1 state.pt
  for step in $(seq 60); do
    ckpt-save --detach --encode=raw state.pt "st@$step" >>out &
    pids+=($!)
    [ $((step % 4)) != 0 ] || wait "${pids[@]}"
  done
  wait "${pids[@]}"
  is "$(wc -l <out)" 60 'addresses'
  durable st
  is "$(steps st | wc -w)" 60 'committed steps'
}

test_a_save_into_a_store_that_cannot_be_made_is_trouble() {
  step_file 1 state.pt
  expect 2 -e ckpt-save --detach --no-create --consume state.pt st@1
  [ -e state.pt ] || fail 'the input is gone'
  echo x >file
  expect 2 -e ckpt-save --detach --consume state.pt file@1
  [ -e state.pt ] || fail 'the input is gone'
}

run_tests "$@"
