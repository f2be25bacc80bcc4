#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same input and SOURCE_DATE_EPOCH make the same store, bit for bit, whatever runs beside it.
. "$(dirname "$0")/../lib.sh"

# Names and contents of a whole store, without locks.
picture() { (cd "$1" && find . -type f ! -name '*lock*' -exec md5sum {} + | sort -k 2); }

input() {
  make_dir 1 run
  "$PYTHON" "$TESTS_DIR/make_input.py" noise 3 run/large.bin.dat 13000000
  "$PYTHON" "$TESTS_DIR/make_input.py" safetensors 4 run/large.safetensors 300000
  find run -exec touch -h -d @1000000000 {} +
}

test_any_number_of_jobs_makes_the_same_store() {
  input
  export SOURCE_DATE_EPOCH=1700000000
  local jobs
  for jobs in 1 2 8; do save -j $jobs run st$jobs@1; done
  picture st1 >one
  same_file one <(picture st2)
  same_file one <(picture st8)
  CKPT_JOBS=3 save run st3@1
  same_file one <(picture st3)
}

test_two_runs_make_the_same_store() {
  input
  export SOURCE_DATE_EPOCH=1700000000
  save run a@1
  sleep 1.1
  save run b@1
  same_file <(picture a) <(picture b)
}

test_shards_in_another_order_make_the_same_store() {
  mkdir r0 r1
  step_file 1 r0/a.pt
  step_file 2 r1/b.pt
  find r0 r1 -exec touch -d @1000000000 {} +
  export SOURCE_DATE_EPOCH=1700000000
  save --rank=0 --world-size=2 r0 a@1
  save --rank=1 --world-size=2 r1 a@1
  save --rank=1 --world-size=2 r1 b@1
  save --rank=0 --world-size=2 r0 b@1
  same_file <(picture a) <(picture b)
}

test_times_are_left_out_of_the_id() {
  input
  save --meta=a=1 run a@1
  touch run/state.pt
  save --meta=a=2 run b@1
  is "$(ckpt-ls --get=id a@1)" "$(ckpt-ls --get=id b@1)" id
}

run_tests "$@"
