#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Everything on a file system without direct I/O, nameless files, clones and a sync of directories, as some network
# mounts are.
. "$(dirname "$0")/../lib.sh"
export LD_PRELOAD=$CKPT_PLAIN_DISK${LD_PRELOAD:+ $LD_PRELOAD}

test_saves_deltas_and_restores() {
  make_dir 1 in1
  make_dir 2 in2
  head -c 30000000 /dev/urandom >in2/large
  save in1 st@1
  save in2 st@2
  expect 0 ckpt-verify --deep st
  restore st@1 out1
  restore st@2 out2
  same_tree in1 out1
  same_tree in2 out2
  no_leftovers st
}
test_standard_input() {
  step_file 1 state.pt
  expect 0 -o bash -c 'ckpt-save --name=state.pt - st@1 <state.pt'
  restore st out
  same_file state.pt out/state.pt
}
test_saves_in_the_background() {
  make_dir 1 in
  cp -a in keep
  expect 0 -o ckpt-save --detach in st@1
  expect 0 -o ckpt-save --detach --consume in st@2
  expect 0 ckpt-wait --timeout=60 st
  restore st@2 out
  same_tree keep out
}
test_copies_and_what_comes_back_from_them() {
  make_dir 1 in
  save in a@1
  head -c 3000000 /dev/urandom >in/more
  save in a@2
  expect 0 ckpt-sync a b
  expect 0 ckpt-verify --deep b
  rm a/0000000002/*.ckpt
  expect 0 -o -e ckpt-restore --from=b a@2 out
  same_tree in out
  expect 0 -o -e ckpt-verify --repair --from=b a
  expect 0 ckpt-verify --deep a
}
test_prunes_and_compressions() {
  local step
  for step in 1 2 3; do
    step_file $step state.pt
    save state.pt st@$step
  done
  expect 0 ckpt-compress --newest-full st
  expect 0 -O ckpt-prune --keep-last=1 st
  is "$(steps st)" 3 'committed steps'
  expect 0 ckpt-verify --deep st
  restore st out
  same_file state.pt out/state.pt
  no_leftovers st
}

run_tests "$@"
