#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Hosts that share a store on a network file system whose listings lag: what one has just made the other doesn't list
# yet (tests/faults/lagging_disk.cpp).
. "$(dirname "$0")/../lib.sh"
NO_LAG=${LD_PRELOAD:-}

# On the other host, whose client asks anew; and on one whose client can't.
there() { LD_PRELOAD=$CKPT_LAGGING_DISK${NO_LAG:+ $NO_LAG} "$@"; }
deaf() { CKPT_LAG=deaf there "$@"; }

# Steps 1 and 2 of the same file, whose contents stay in 1.st and 2.st.
two_steps() {
  local step
  for step in 1 2; do
    state $step
    save state.st st@$step
  done
}
state() {
  "$PYTHON" "$TESTS_DIR/make_input.py" drift "$1" state.st
  cp -p state.st "$1.st"
}

test_the_listing_lags() {
  two_steps
  is "$(there ls st | wc -l)" 0 'entries that ls lists'
  is "$(deaf ckpt-ls --format=tsv st)" '' 'checkpoints that a deaf client lists'
}
test_a_checkpoint_of_another_host_is_listed_at_once_and_is_the_base_of_the_next() {
  two_steps
  is "$(there ckpt-ls --format=tsv st | cut -f1 | tr '\n' ' ')" "$(ckpt-ls --format=tsv st | cut -f1 | tr '\n' ' ')" 'steps'
  state 3
  expect 0 -o there ckpt-save state.st st@3
  like "$(tr -d ' \n' <st/0000000003/manifest.json)" '"depends_on":\[\{' 'its manifest'
  expect 0 ckpt-verify --deep st
}
test_prune_sees_what_depends_on_what_it_removes() {
  state 1
  save state.st st@1
  sleep 0.05
  touch mark
  sleep 0.05
  state 2
  save state.st st@2
  like "$(tr -d ' \n' <st/0000000002/manifest.json)" '"depends_on":\[\{' 'its manifest'
  is "$(CKPT_LAG_SINCE=mark deaf ckpt-ls --format=tsv st | cut -f1)" 1 'the step that a deaf client lists'
  CKPT_LAG_SINCE=mark expect 0 -O there ckpt-prune --remove=1 st
  is "$(steps st)" 2 'committed steps'
  expect 0 ckpt-verify --deep st
  restore st@2 out
  same_file 2.st out/state.st
  no_leftovers st
}
test_prune_sees_pins_of_another_host() {
  two_steps
  expect 0 -O ckpt-prune --pin=1 st
  expect 0 -O there ckpt-prune --keep-last=1 st
  is "$(steps st)" '1 2' 'committed steps'
}
test_ranks_on_two_hosts_complete_a_set() {
  local client
  for client in there deaf; do
    step_file 1 r0.pt
    step_file 2 r1.st
    rm -rf st
    expect 0 -O ckpt-save --rank=0 --world-size=2 r0.pt st@1
    expect 0 -O "$client" ckpt-save --rank=1 --world-size=2 r1.st st@1
    is "$(steps st)" 1 "committed steps by $client"
    expect 0 ckpt-verify --deep st
  done
}
test_a_save_that_sees_no_base_is_a_whole_one() {
  two_steps
  state 3
  expect 0 -o deaf ckpt-save state.st st@3
  expect 0 ckpt-verify --deep st
  restore st@3 out
  same_file 3.st out/state.st
}
test_a_step_that_isn_t_listed_is_restored_by_its_number() {
  two_steps
  expect 0 -o deaf ckpt-restore st@2 out
  same_file 2.st out/state.st
  expect 0 -o deaf ckpt-restore st@1 out1
  same_file 1.st out1/state.st
}
test_a_sync_sends_what_it_sees_and_the_rest_later() {
  two_steps
  expect 0 -E deaf ckpt-sync st copy
  expect 0 there ckpt-sync st copy
  is "$(steps copy)" '1 2' 'committed steps of the copy'
  expect 0 ckpt-verify --deep copy
  state 3
  save state.st st@3
  expect 0 ckpt-sync st copy
  # The other side lags: what it has and doesn't list is found there when it's sent again.
  expect 0 deaf ckpt-sync st copy
  is "$(steps copy)" '1 2 3' 'committed steps of the copy'
  expect 0 ckpt-verify --deep copy
  no_leftovers copy
}
test_a_set_of_nodes_is_gathered_where_listings_lag() {
  local rank client
  for client in there deaf; do
    rm -rf n0 n1 all
    for rank in 0 1; do
      step_file $rank r$rank.pt
      expect 0 -O ckpt-save --rank=$rank --world-size=2 r$rank.pt n$rank@5
    done
    expect 0 -O -E ckpt-sync --gather n0 all
    expect 0 -O -E there ckpt-sync --gather n1 all
    is "$(steps all)" 5 "committed steps by $client"
    expect 0 ckpt-verify --deep all
  done
}
test_what_was_staged_on_another_host_is_found() {
  step_file 1 a.pt
  expect 0 -o ckpt-save --detach a.pt st@1
  expect 0 there ckpt-wait --timeout=60 st@1
  is "$(steps st)" 1 'committed steps'
}

run_tests "$@"
