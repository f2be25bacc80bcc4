#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ckpt-restore: what comes back, where, and what it never touches.
. "$(dirname "$0")/../lib.sh"

names_of() { (cd "$1" && find . -mindepth 1 | sort | tr '\n' ' '); }

# st@1 and st@2, from run1 and run2.
two_steps() {
  make_dir 1 run1
  make_dir 2 run2
  save run1 st@1
  save run2 st@2
}
# Damages the stored bytes of a step without changing its size.
damage() {
  "$PYTHON" - "$1"/*.ckpt <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    data = bytearray(f.read())
    middle = len(data) // 2
    for i in range(middle, middle + 64):
        data[i] ^= 0xFF
    f.seek(0)
    f.write(data)
PY
}
id_of() { ckpt-ls --get=id "$1"; }

test_without_a_step_the_latest_comes_back() {
  two_steps
  restore st out
  is "$OUT" st@2
  same_tree run2 out
}

test_latest_counts_back() {
  two_steps
  restore st@latest a
  is "$OUT" st@2
  restore st@latest~0 b
  is "$OUT" st@2
  restore st@latest~1 c
  is "$OUT" st@1
  same_tree run1 c
  expect 2 -e ckpt-restore st@latest~2 d
  [ ! -e d ] || fail 'a directory was made'
}

test_a_checkpoint_is_found_by_its_id() {
  two_steps
  local id
  id=$(id_of st@1)
  like "$id" '^[0-9a-f]{32}$'
  restore "st@id:$id" a
  like "$OUT" "^st@(1|id:$id)$"
  restore "st@id:${id:0:8}" b
  like "$OUT" "^st@(1|id:$id)$"
  same_tree run1 b
  expect 2 -e ckpt-restore st@id:00000000000000000000000000000000 c
}

test_a_step_that_is_not_there_is_an_error() {
  two_steps
  expect 2 -e ckpt-restore st@3 out
  like "$ERR" '^ckpt-restore: '
  expect 2 -e ckpt-restore nowhere out
  expect 2 -e ckpt-restore nowhere@1 out
  [ ! -e out ] || fail 'a directory was made'
}

test_one_file_goes_to_the_given_name() {
  two_steps
  restore --file=state.pt -o got.pt st@1
  is "$OUT" st@1
  same_file run1/state.pt got.pt
  is "$(names_of . | tr ' ' '\n' | grep -c 'got')" 1 'files named got'
}

test_one_file_goes_to_stdout_without_an_address() {
  two_steps
  ckpt-restore --file=sub/model.safetensors -o - st@1 >got 2>err
  is "$(cat err)" ''
  same_file run1/sub/model.safetensors got
  ckpt-restore --file=empty.txt -o - st@1 >got
  is "$(stat -c %s got)" 0 size
}

test_several_files_to_one_name_are_an_error() {
  two_steps
  expect 2 -e ckpt-restore -o got st@1
  expect 2 -e ckpt-restore -o - st@1
  [ ! -e got ] || fail 'got was made'
}

test_data_to_a_terminal_is_refused() {
  two_steps
  "$PYTHON" - <<'PY'
import os, pty, subprocess
master, slave = pty.openpty()
p = subprocess.run(["ckpt-restore", "--file=state.pt", "-o", "-", "st@1"], stdout=slave, stderr=subprocess.PIPE)
assert p.returncode == 2, p
assert b"terminal" in p.stderr, p
PY
}

test_files_are_chosen_by_pattern() {
  two_steps
  restore --file='*.safetensors' st@1 a
  is "$(names_of a)" './sub ./sub/model.safetensors '
  restore --file=state.pt --file='empty*' st@1 b
  is "$(names_of b)" './empty.txt ./state.pt '
  expect 2 -e ckpt-restore --file='*.nothing' st@1 c
}

test_an_exact_name_goes_before_a_pattern() {
  mkdir run
  echo 1 >'run/[ab]'
  echo 2 >run/a
  save run st@1
  restore --file='[ab]' st@1 out
  is "$(names_of out)" './[ab] '
}

test_identical_files_are_not_written_again() {
  two_steps
  restore st@1 out
  stat -c '%n %i %Y' out/state.pt out/sub/model.safetensors >before
  restore st@1 out
  stat -c '%n %i %Y' out/state.pt out/sub/model.safetensors >after
  same_file before after
  rm out/state.pt
  restore st@1 out
  same_tree run1 out
  stat -c '%n %i %Y' out/sub/model.safetensors >third
  same_file third <(tail -n 1 before)
}

test_files_of_other_content_are_in_the_way_without_force() {
  two_steps
  mkdir -p out/sub
  echo mine >out/sub/model.safetensors
  expect 2 -e ckpt-restore st@1 out
  like "$ERR" 'model.safetensors'
  is "$(cat out/sub/model.safetensors)" mine
  is "$(names_of out)" './sub ./sub/model.safetensors ' 'nothing else was written'
  restore --force st@1 out
  same_tree run1 out
}

test_foreign_files_stay_untouched() {
  two_steps
  mkdir -p out/sub
  echo mine >out/notes
  echo mine >out/sub/notes
  stat -c '%n %i %Y' out/notes out/sub/notes >before
  restore st@1 out
  restore --force st@2 out
  stat -c '%n %i %Y' out/notes out/sub/notes >after
  same_file before after
  same_file run2/state.pt out/state.pt
}

test_a_symlink_in_the_way_is_never_followed() {
  two_steps
  mkdir out outside
  ln -s ../outside out/sub
  expect 2 -E ckpt-restore st@1 out
  is "$(ls outside)" '' 'files outside'
  ln -s ../outside/victim out/state.pt
  echo victim >outside/victim
  expect 2 -E ckpt-restore st@1 out
  expect 0 -O -E bash -c 'ckpt-restore --force st@1 out || [ $? = 2 ]'
  is "$(cat outside/victim)" victim
  is "$(ls outside)" victim 'files outside'
}

test_a_directory_in_the_way_of_a_file_is_an_error() {
  two_steps
  mkdir -p out/state.pt/keep
  expect 2 -e ckpt-restore st@1 out
  expect 2 -e ckpt-restore --force st@1 out
  [ -d out/state.pt/keep ] || fail 'a foreign directory was removed'
}

test_nothing_is_left_beside_the_target() {
  two_steps
  restore st@1 out
  is "$(ls -A | tr '\n' ' ')" 'out run1 run2 st '
  same_tree run1 out
}

test_a_damaged_checkpoint_is_not_restored() {
  two_steps
  damage st/0000000002
  expect 2 -e ckpt-restore st@2 out
  expect 2 -e ckpt-restore st out
  is "$(find out -type f 2>/dev/null)" '' 'restored files'
  restore st@1 out
  same_tree run1 out
}

test_with_fallback_the_newest_good_one_comes_back() {
  two_steps
  make_dir 3 run3
  save run3 st@3
  damage st/0000000003
  expect 0 -o -e ckpt-restore --fallback st out
  is "$OUT" st@2
  like "$ERR" '3'
  same_tree run2 out
  rm st/0000000002/*.ckpt
  expect 0 -o -e ckpt-restore --fallback st out1
  is "$OUT" st@1
  same_tree run1 out1
}

test_fallback_without_damage_says_nothing() {
  two_steps
  restore --fallback st out
  is "$OUT" st@2
}

test_fallback_without_a_good_one_is_an_error() {
  two_steps
  damage st/0000000001
  damage st/0000000002
  expect 2 -e ckpt-restore --fallback st out
  is "$(find out -type f 2>/dev/null)" '' 'restored files'
}

test_a_rank_alone_and_by_rank() {
  mkdir a b
  step_file 1 a/rank0.pt
  step_file 2 b/rank1.pt
  echo same | tee a/config >b/config
  touch -d 2020-01-01 a/config b/config
  save --rank=0 --world-size=2 a st@1
  save --rank=1 --world-size=2 b st@1
  restore st@1 all
  is "$(names_of all)" './config ./rank0.pt ./rank1.pt '
  restore --rank=1 st@1 one
  is "$(names_of one)" './config ./rank1.pt '
  restore --by-rank st@1 ranks
  is "$(names_of ranks)" './rank-00000 ./rank-00000/config ./rank-00000/rank0.pt ./rank-00001 ./rank-00001/config ./rank-00001/rank1.pt '
  expect 2 -e ckpt-restore --rank=2 st@1 none
}

test_a_path_of_different_content_in_two_shards_is_an_error() {
  mkdir a b
  echo 0 >a/state.txt
  echo 1 >b/state.txt
  save --rank=0 --world-size=2 a st@1
  save --rank=1 --world-size=2 b st@1
  expect 2 -e ckpt-restore st@1 out
  like "$ERR" 'state.txt'
  is "$(find out -type f 2>/dev/null)" '' 'restored files'
  restore --by-rank st@1 ranks
  is "$(cat ranks/rank-00000/state.txt ranks/rank-00001/state.txt | tr '\n' ' ')" '0 1 '
  restore --rank=1 st@1 one
  is "$(cat one/state.txt)" 1
}

test_a_tensor_comes_out_raw() {
  step_file 1 state.pt
  save state.pt st@1
  ckpt-restore --tensor=model.bias --as=raw -o - st@1 >got
  "$PYTHON" -c 'import sys; sys.path.insert(0, sys.argv[1]); import make_input as m
open("want", "wb").write(m.floats(2, 10))' "$TESTS_DIR"
  same_file want got
  restore --tensor=model.weight --as=raw -o weight.raw st@1
  is "$(stat -c %s weight.raw)" 8000 size
}

test_a_tensor_comes_out_as_npy() {
  step_file 1 state.pt
  save state.pt st@1
  restore --tensor=model.weight --as=npy -o w.npy st@1
  "$PYTHON" - "$TESTS_DIR" <<'PY'
import ast, struct, sys
sys.path.insert(0, sys.argv[1])
import make_input
data = open("w.npy", "rb").read()
assert data[:6] == b"\x93NUMPY", data[:8]
size = struct.unpack("<H", data[8:10])[0]
header = ast.literal_eval(data[10:10 + size].decode())
assert header == {"descr": "<f4", "fortran_order": False, "shape": (200, 10)}, header
assert (10 + size) % 64 == 0
assert data[10 + size:] == make_input.floats(1, 2000)
PY
}

test_nothing_is_restored_into_the_store() {
  make_dir 1 run
  save run st@1
  ln -s st alias
  mkdir st/sub
  find st | sort >before
  local to
  for to in st st/ ./st/new st/0000000001 alias/new alias/sub/../deep/er "$PWD/st"; do
    expect 2 -e ckpt-restore --force st "$to"
    like "$ERR" 'lies in the store'
  done
  expect 2 -e ckpt-restore --file=rng.bin.txt -o st/x st
  expect 2 -e ckpt-restore --tensor=step --file=state.pt --as=raw -o alias/x st
  find st | sort >after
  same_file before after
  restore st st2
  same_tree run st2
  (cd st && expect 0 -o ckpt-restore . ../st3)
  same_tree run st3
}

test_tensors_come_out_as_safetensors() {
  step_file 1 state.pt
  save state.pt st@1
  restore --tensor='model.*' --strip-prefix=model. --as=safetensors -o w.safetensors st@1
  "$PYTHON" - "$TESTS_DIR" <<'PY'
import json, struct, sys
sys.path.insert(0, sys.argv[1])
import make_input
data = open("w.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
header.pop("__metadata__", None)
assert set(header) == {"weight", "bias"}, header
for name, seed, count in (("weight", 1, 2000), ("bias", 2, 10)):
    begin, end = header[name]["data_offsets"]
    assert header[name]["dtype"] == "F32"
    assert data[8 + size:][begin:end] == make_input.floats(seed, count), name
assert header["weight"]["shape"] == [200, 10]
PY
}

test_tensors_come_out_as_a_tar_of_npy_files() {
  step_file 1 state.pt
  save state.pt st@1
  ckpt-restore --tensor='*' --as=tar -o - st@1 >w.tar
  is "$(tar -tf w.tar | sort | tr '\n' ' ')" 'model.bias.npy model.weight.npy step.npy '
  tar -xf w.tar
  is "$(tail -c 40 model.bias.npy | md5sum)" "$(ckpt-restore --tensor=model.bias --as=raw -o - st@1 | md5sum)"
}

test_two_tensors_as_one_raw_are_an_error() {
  step_file 1 state.pt
  save state.pt st@1
  expect 2 -e ckpt-restore --tensor='model.*' --as=raw -o got st@1
  expect 2 -e ckpt-restore --tensor='model.*' --as=npy -o got st@1
  expect 2 -e ckpt-restore --tensor=nowhere --as=raw -o got st@1
  [ ! -e got ] || fail 'got was made'
}

test_an_output_file_in_the_way_needs_force() {
  two_steps
  echo mine >got
  expect 2 -e ckpt-restore --file=state.pt -o got st@1
  is "$(cat got)" mine
  restore --force --file=state.pt -o got st@1
  same_file run1/state.pt got
}

test_stdout_that_is_full_is_an_error() {
  two_steps
  expect 2 -e bash -c 'ckpt-restore --file=state.pt -o - st@1 >/dev/full'
  expect 2 -e bash -c 'ckpt-restore st@1 out >/dev/full'
}

run_tests "$@"
