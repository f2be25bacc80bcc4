#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ckpt-save: what is taken, under which names, and what is refused.
. "$(dirname "$0")/../lib.sh"

# Nothing committed, nothing left behind: there is no store, or one without a checkpoint or a leftover.
refused() {
  local store=$1
  shift
  expect 2 -e ckpt-save "$@"
  nothing_in "$store"
}
nothing_in() {
  [ -e "$1" ] || return 0
  is "$(steps "$1")" '' 'committed steps'
  no_leftovers "$1"
}
names_of() { (cd "$1" && find . -mindepth 1 | sort | tr '\n' ' '); }

test_a_file_is_stored_under_its_base_name() {
  mkdir -p a/b
  step_file 1 a/b/state.pt
  save a/b/state.pt st@1
  restore st@1 out
  is "$OUT" st@1 'address that ckpt-restore prints'
  is "$(names_of out)" './state.pt '
  same_file a/b/state.pt out/state.pt
}

test_a_directory_contributes_its_contents() {
  make_dir 1 run
  save run st@1
  restore st@1 out
  same_tree run out
}

test_several_sources_are_merged() {
  mkdir one two
  step_file 1 one/a.pt
  step_file 2 two/b.pt
  echo log >c.txt
  save one c.txt two st@1
  restore st out
  is "$(names_of out)" './a.pt ./b.pt ./c.txt '
}

test_a_name_twice_is_an_error() {
  mkdir one two
  echo 1 >one/x
  echo 2 >two/x
  refused st one two st@1
  like "$ERR" '^ckpt-save: .*x'
  refused st one/x two/x st@1
}

test_directories_of_one_name_are_merged() {
  mkdir -p one/sub two/sub
  echo 1 >one/sub/a
  echo 2 >two/sub/b
  save one two st@1
  restore st@1 out
  is "$(names_of out)" './sub ./sub/a ./sub/b '
}

test_with_C_names_are_stored_as_given() {
  mkdir -p base/deep/er
  echo 1 >base/deep/er/a
  echo 2 >base/b
  save -C base deep b st@1
  restore st@1 out
  is "$(names_of out)" './b ./deep ./deep/er ./deep/er/a '
  save -C base deep/er/a st@2
  restore st@2 out2
  same_file base/deep/er/a out2/deep/er/a
}

test_with_C_a_name_that_leaves_the_tree_is_refused() {
  mkdir base
  echo 1 >secret
  refused st -C base ../secret st@1
  refused st -C base "$PWD/secret" st@1
}

test_stdin_is_stored_under_the_given_name() {
  step_file 1 state.pt
  expect 0 -o bash -c 'cat state.pt | ckpt-save --name=piped.pt - st@1'
  restore st@1 out
  is "$(names_of out)" './piped.pt '
  same_file state.pt out/piped.pt
  like "$(ckpt-ls --tensors st@1)" 'model.weight' 'tensors of what came from stdin'
}

test_stdin_is_called_so_in_messages() {
  step_file 1 state.pt
  truncate -s -300 state.pt
  expect 2 -e bash -c 'ckpt-save --name=state.pt - st@1 <state.pt'
  like "$ERR" 'standard input: cut short'
  unlike "$ERR" 'proc'
  expect 0 -o -e bash -c 'ckpt-save --allow-malformed --name=state.pt - st@1 <state.pt'
  like "$ERR" 'standard input: cut short'
  unlike "$ERR" 'proc'
  mkdir d
  echo x >d/state.pt
  expect 2 -e bash -c 'ckpt-save --name=state.pt - -C d state.pt st@2 <state.pt'
  like "$ERR" 'is there twice: .*standard input'
}

test_stdin_without_a_name_is_an_error() { refused st - st@1; }

test_a_damaged_file_from_stdin_is_refused() {
  step_file 1 state.pt
  expect 2 -e bash -c 'head -c 3000 state.pt | ckpt-save --name=piped.pt - st@1'
  nothing_in st
}

test_modes_mtimes_and_empty_directories_are_kept() {
  make_dir 1 run
  chmod 0600 run/state.pt
  chmod 0755 run/empty.txt
  chmod 0444 run/rng.bin.txt
  chmod 0711 run/sub
  chmod 0700 run/sub/empty
  touch -d '2001-02-03 04:05:06.123456789' run/state.pt
  touch -d '1999-12-31 23:59:59' run/sub/model.safetensors
  save run st@1
  restore st@1 out
  same_tree run out
}

test_hard_links_stay_hard_links() {
  mkdir -p run/sub
  step_file 1 run/a.pt
  ln run/a.pt run/sub/b.pt
  ln run/a.pt run/c.pt
  save run st@1
  restore st@1 out
  same_tree run out
  is "$(stat -c %h out/a.pt)" 3 'number of links'
}

test_a_symlink_inside_the_tree_is_kept() {
  mkdir -p run/sub
  echo data >run/file
  ln -s ../file run/sub/up
  ln -s file run/same
  ln -s sub run/dir
  save run st@1
  restore st@1 out
  same_tree run out
}

test_a_symlink_out_of_the_tree_is_followed() {
  mkdir run cache cache/dir
  step_file 1 cache/blob
  echo nested >cache/dir/n
  ln -s ../cache/blob run/model.pt
  ln -s "$PWD/cache/dir" run/more
  save run st@1
  restore st@1 out
  is "$(stat -c %F out/model.pt)" 'regular file'
  same_file cache/blob out/model.pt
  same_file cache/dir/n out/more/n
}

test_a_symlink_given_as_source_is_followed() {
  step_file 1 real.pt
  ln -s real.pt link.pt
  save link.pt st@1
  restore st@1 out
  is "$(stat -c %F out/link.pt)" 'regular file'
  same_file real.pt out/link.pt
}

test_a_loop_of_symlinks_is_refused() {
  mkdir run other
  ln -s ../run other/back
  ln -s ../other run/out
  expect 2 -e timeout 60 ckpt-save run st@1
  nothing_in st
}

test_sockets_fifos_and_devices_are_refused() {
  mkdir fifo socket device
  mkfifo fifo/f
  "$PYTHON" -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket/s")'
  refused st fifo st@1
  refused st fifo/f st@1
  refused st socket st@1
  refused st /dev/null st@1
  mknod device/null c 1 3 2>/dev/null || return 0
  refused st device st@1
}

test_owners_are_kept_with_owner() {
  [ "$(id -u)" = 0 ] || skip 'only root can give files away'
  mkdir run
  echo 1 >run/a
  chown 1234:5678 run/a 2>/dev/null || skip 'this root cannot give files away'
  save --owner run st@1
  save run st@2
  restore st@1 out
  is "$(stat -c %u:%g out/a)" 1234:5678 owner
  restore st@2 out2
  is "$(stat -c %u out2/a)" 0 'owner without --owner'
}

test_names_with_newlines_and_invalid_utf8() {
  mkdir run
  echo 1 >$'run/new\nline'
  echo 2 >$'run/bad\xff\xfeutf8'
  echo 3 >$'run/tab\tand\\backslash'
  echo 4 >'run/-dash'
  echo 5 >'run/ space '
  mkdir $'run/d\xc3'
  echo 6 >$'run/d\xc3/\xb6'
  save run st@1
  restore st@1 out
  same_tree run out
  expect 0 -o ckpt-ls --json st@1
  "$PYTHON" -c 'import json, sys; [json.loads(l) for l in open(sys.argv[1], encoding="utf-8", errors="strict")]' "$STREAMS.out"
  expect 0 ckpt-verify --deep st
}

test_a_store_path_with_odd_bytes() {
  step_file 1 state.pt
  save state.pt $'st \xff@x@7'
  expect 0 ckpt-verify $'st \xff@x@7'
  restore $'st \xff@x@7' out
  same_file state.pt out/state.pt
}

test_a_file_open_for_writing_is_temporary_trouble() {
  step_file 1 state.pt
  exec 9>>state.pt
  expect 75 -e ckpt-save state.pt st@1
  like "$ERR" '^ckpt-save: .*state.pt'
  nothing_in st
  exec 9>&-
  save state.pt st@1
}

test_a_source_that_is_missing_is_an_error() {
  step_file 1 state.pt
  refused st state.pt nowhere.pt st@1
  like "$ERR" "nowhere.pt.*No such file or directory"
}

test_the_same_step_with_the_same_content_writes_nothing() {
  make_dir 1 run
  save run st@1
  find st -printf '%p %i %s %C@\n' | grep -v lock | sort >before
  save run st@1
  find st -printf '%p %i %s %C@\n' | grep -v lock | sort >after
  grep '0000000001' before >b1
  grep '0000000001' after >a1
  same_file b1 a1
  cut -d' ' -f1 before >b2
  cut -d' ' -f1 after >a2
  same_file b2 a2
}

test_the_same_step_with_other_content_is_refused() {
  make_dir 1 run
  make_dir 2 other
  save run st@1
  expect 2 -e ckpt-save other st@1
  is "$(steps st)" 1
  no_leftovers st
  restore st@1 out
  same_tree run out
}

test_a_changed_mode_is_other_content() {
  echo 1 >file
  chmod 644 file
  save file st@1
  chmod 600 file
  expect 2 -e ckpt-save file st@1
}

test_a_changed_mtime_is_not_other_content() {
  echo 1 >file
  save file st@1
  touch -d '2001-01-01' file
  save file st@1
}

test_replace_puts_other_content_in_its_place() {
  make_dir 1 run
  make_dir 2 other
  save run st@1
  save run st@2
  save --replace other st@2
  restore st@2 out
  same_tree other out
  restore st@1 out1
  same_tree run out1
  is "$(steps st)" '1 2'
  no_leftovers st
  expect 0 ckpt-verify --deep st
}

test_replace_takes_over_a_step_whose_manifest_is_damaged_or_gone() {
  make_dir 1 run
  make_dir 2 other
  save run st@1
  save run st@2
  echo '{' >st/0000000002/manifest.json
  expect 2 -e ckpt-save other st@2
  save --replace other st@2
  restore st@2 out
  same_tree other out
  is "$(find st/0000000002 -type f | wc -l)" 2 'files of the checkpoint'
  rm st/0000000002/manifest.json
  save --replace run st@2
  restore st@2 again
  same_tree run again
  expect 0 ckpt-verify --deep st
  no_leftovers st
}

test_replace_touches_nothing_but_a_checkpoint() {
  make_dir 1 run
  save run st@1
  mkdir st/0000000007
  echo mine >st/0000000007/notes
  expect 2 -e ckpt-save --replace run st@7
  is "$(cat st/0000000007/notes)" mine
}

test_replace_of_a_step_that_is_not_there_saves_it() {
  make_dir 1 run
  save --replace run st@5
  is "$(steps st)" 5
}

test_a_damaged_torch_file_is_refused() {
  step_file 1 state.pt
  head -c 5000 state.pt >cut.pt
  { head -c 200 state.pt; head -c 100 /dev/zero; tail -c +301 state.pt; } >holed.pt
  refused st cut.pt st@1
  like "$ERR" 'cut.pt'
  # What the pickle says can be damaged where the directory is sound; then the file is what it is.
  expect 0 -O -E bash -c 'ckpt-save holed.pt other@1 || [ $? = 2 ]'
}

test_an_empty_torch_file_is_refused() {
  : >empty.pt
  refused st empty.pt st@1
  : >empty.safetensors
  refused st empty.safetensors st@1
  : >empty.distcp
  refused st empty.distcp st@1
}

test_a_damaged_safetensors_file_is_refused() {
  "$PYTHON" "$TESTS_DIR/make_input.py" safetensors 1 m.safetensors
  head -c 4000 m.safetensors >cut.safetensors
  refused st cut.safetensors st@1
}

test_a_torch_name_on_other_content_is_opaque() {
  echo 'not a checkpoint' >notes.bin
  echo 'neither' >model.pt
  save notes.bin model.pt st@1
  restore st@1 out
  same_file model.pt out/model.pt
  expect 0 ckpt-ls --tensors st@1
}

test_a_damaged_file_is_kept_as_suspect_when_allowed() {
  step_file 1 state.pt
  head -c 5000 state.pt >cut.pt
  expect 0 -o -E ckpt-save --allow-malformed cut.pt st@9
  like "$OUT" '^st@9$'
  expect 1 ckpt-ls --exists st
  expect 2 -e ckpt-restore st out
  like "$ERR" "'st@9' is marked suspect"
  like "$ERR" "hint: 'st@9' names it"
  expect 0 -o -E ckpt-restore st@9 out9
  same_file cut.pt out9/cut.pt
  save state.pt st@5
  expect 0 ckpt-ls --exists st
  restore st out
  is "$OUT" st@5 'latest'
}

test_no_create_does_not_make_a_store() {
  step_file 1 state.pt
  expect 2 -e ckpt-save --no-create state.pt st@1
  [ ! -e st ] || fail 'a store was made'
  save state.pt st@1
  save --no-create state.pt st@2
}

test_world_size_in_the_environment_is_warned_of() {
  step_file 1 state.pt
  WORLD_SIZE=4 expect 0 -o -e ckpt-save state.pt st@1
  like "$ERR" 'warning:.*WORLD_SIZE'
  is "$(steps st)" 1
  WORLD_SIZE=1 expect 0 -o ckpt-save state.pt st@2
  WORLD_SIZE=4 expect 0 -o ckpt-save --world-size=1 state.pt st@3
  WORLD_SIZE=4 expect 0 -o ckpt-save --rank=0 --world-size=2 state.pt st@4
}

test_a_malformed_environment_variable_is_named() {
  step_file 1 state.pt
  CKPT_JOBS=many expect 2 -e ckpt-save state.pt st@1
  like "$ERR" CKPT_JOBS
  SOURCE_DATE_EPOCH=now expect 2 -e ckpt-save state.pt st@1
  like "$ERR" SOURCE_DATE_EPOCH
  nothing_in st
}

test_an_empty_or_impossible_step_is_an_error() {
  local address
  step_file 1 state.pt
  for address in st st@ st@x st@latest st@-1 st@99999999999 st@id:abcdef @1 ''; do
    expect 2 -e ckpt-save state.pt "$address"
    is "$(ls)" state.pt 'files after an impossible address'
  done
  save state.pt st@9999999999
  save state.pt st@0
  is "$(steps st)" '0 9999999999'
}

test_no_source_is_an_error() {
  expect 2 -e ckpt-save st@1
  expect 2 -e ckpt-save
  is "$(ls)" ''
}

test_ranks_outside_the_world_are_an_error() {
  step_file 1 state.pt
  refused st --rank=2 --world-size=2 state.pt st@1
  refused st --rank=0 --world-size=0 state.pt st@1
  refused st --rank=-1 --world-size=2 state.pt st@1
}

test_metadata_is_kept() {
  step_file 1 state.pt
  save --meta=loss=0.25 --meta='note=a = b' state.pt st@1
  expect 0 -o ckpt-ls --get=loss st@1
  is "$OUT" 0.25
  expect 0 -o ckpt-ls --get=note st@1
  is "$OUT" 'a = b'
  expect 2 -e ckpt-save --meta=novalue state.pt st@2
  is "$(steps st)" 1
}

test_umask_is_for_what_the_store_holds() {
  make_dir 1 run
  (umask 077 && save --umask=027 run st@1)
  is "$(find st -perm /027)" '' 'what has permissions that it should not have'
  is "$(stat -c %a st/0000000001)" 750 'mode of the directory'
  (umask 077 && save --umask=0 run open@1)
  is "$(find open ! -perm -444)" '' 'what not everybody can read'
  expect 2 -e ckpt-save --umask=9 run st@2
}

test_what_is_written_is_read_back() {
  make_dir 1 run
  save --read-back run st@1
  restore st@1 out
  same_tree run out
}

test_the_source_is_as_it_was() {
  make_dir 1 run
  tree run >before
  save run st@1
  tree run >after
  same_file before after
}

test_an_empty_directory_can_be_saved() {
  mkdir run
  save run st@1
  expect 0 ckpt-verify --deep st
  restore st@1 out
  is "$(names_of out)" ''
}

test_an_empty_file_can_be_saved() {
  : >nothing.txt
  save nothing.txt st@1
  restore st@1 out
  same_file nothing.txt out/nothing.txt
}

test_files_of_many_sizes_come_back() {
  local size
  mkdir run
  for size in 1 7 4095 4096 4097 65535 65536 65537 131072 4194303 4194304 4194305 9000001; do
    "$PYTHON" "$TESTS_DIR/make_input.py" noise "$size" run/f$size "$size"
  done
  save run st@1
  expect 0 ckpt-verify --deep st
  restore st@1 out
  same_tree run out
}

test_options_may_follow_operands() {
  step_file 1 state.pt
  expect 0 -o ckpt-save state.pt st@1 --meta=a=b
  expect 0 -o ckpt-save -- state.pt st@2
  mkdir d
  step_file 1 d/--meta=x
  (cd d && expect 0 -o ckpt-save -- --meta=x ../st@3)
}

test_an_existing_empty_directory_becomes_a_store() {
  mkdir home
  step_file 1 state.pt
  save state.pt home@1
  expect 0 ckpt-verify home
}

test_a_directory_that_holds_other_things_is_refused() {
  mkdir home
  echo important >home/notes
  step_file 1 state.pt
  expect 2 -e ckpt-save state.pt home@1
  is "$(ls -A home)" notes 'files in the directory'
}

test_a_file_in_the_place_of_the_store_is_an_error() {
  step_file 1 state.pt
  echo x >st
  expect 2 -e ckpt-save state.pt st@1
  is "$(cat st)" x
}

run_tests "$@"
