#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A full disk, a read-only store, streams that can't be written, signals.
. "$(dirname "$0")/../lib.sh"

# A file system of its own at ./mnt, gone when the test ends. tmpfs OPTIONS
tmpfs() {
  mkdir -p mnt
  mount -t tmpfs -o "$1" tmpfs mnt 2>/dev/null || skip 'no mount here'
  trap 'umount -l mnt' EXIT
}

test_a_full_disk_leaves_older_checkpoints_intact() {
  tmpfs size=6m
  make_dir 1 run1
  "$PYTHON" "$TESTS_DIR/make_input.py" noise 1 big 5000000
  save run1 mnt/st@1
  head -c 3000000 /dev/urandom >mnt/ballast
  expect 2 -e ckpt-save big mnt/st@2
  like "$ERR" 'big|mnt/st'
  no_leftovers mnt/st
  is "$(steps mnt/st)" 1
  expect 0 ckpt-verify --deep mnt/st
  restore mnt/st out
  same_tree run1 out
  rm mnt/ballast
  save big mnt/st@2
  restore mnt/st@2 out2
  same_file big out2/big
  no_leftovers mnt/st
}

# The check before a save can't see that another writer takes the space meanwhile.
test_a_disk_that_fills_up_during_the_save() {
  tmpfs size=64m
  make_dir 1 run1
  "$PYTHON" "$TESTS_DIR/make_input.py" noise 1 big 40000000
  save run1 mnt/st@1
  local i code=0
  for i in 1 2 3 4 5 6; do
    rm -f mnt/ballast
    (for _ in $(seq 60); do head -c 1000000 /dev/zero >>mnt/ballast || break; done) 2>/dev/null &
    code=0
    ckpt-save big mnt/st@2 >out.txt 2>err.txt || code=$?
    wait
    case $code in
      0) break ;;
      2) is "$(cat out.txt)" '' stdout; [ -s err.txt ] || fail 'no message' ;;
      *) fail "exit status $code: $(cat err.txt)" ;;
    esac
    is "$(steps mnt/st)" 1
    no_leftovers mnt/st
  done
  rm -f mnt/ballast
  expect 0 ckpt-verify --deep mnt/st
  restore mnt/st@1 out
  same_tree run1 out
  save big mnt/st@2
  expect 0 ckpt-verify --deep mnt/st
}

test_a_disk_without_inodes() {
  tmpfs size=64m,nr_inodes=13
  step_file 1 state.pt
  local code=0 n
  for n in 1 2 3 4 5; do
    ckpt-save state.pt mnt/st@$n >out.txt 2>err.txt || { code=$?; break; }
  done
  is "$code" 2 'exit status when inodes run out'
  [ -s err.txt ] || fail 'no message'
  [ ! -e mnt/st/ckpt-store.json ] || expect 0 ckpt-verify --deep mnt/st
}

test_room_for_the_change_is_enough() {
  tmpfs size=16m
  local step raw free
  for step in 1 2 3 4; do
    "$PYTHON" "$TESTS_DIR/make_input.py" drift $step state.safetensors
    [ $step = 4 ] || save state.safetensors mnt/st@$step
  done
  raw=$(stat -c %s state.safetensors)
  free=$(df --output=avail -B1 mnt | tail -n 1)
  head -c $((free - raw * 8 / 10)) /dev/zero >mnt/ballast
  expect 2 -e ckpt-save --base=none state.safetensors mnt/st@4
  like "$ERR" 'are needed'
  save state.safetensors mnt/st@4
  expect 0 ckpt-verify --deep mnt/st
}

test_a_restore_to_a_full_disk_leaves_nothing() {
  tmpfs size=3m
  "$PYTHON" "$TESTS_DIR/make_input.py" noise 1 big 5000000
  save big st@1
  expect 2 -e ckpt-restore st@1 mnt/out
  is "$(find mnt -type f)" '' 'files on the full disk'
  expect 2 -e ckpt-restore --file=big -o mnt/got st@1
  is "$(find mnt -type f)" '' 'files on the full disk'
}

test_a_read_only_store_can_be_read() {
  tmpfs size=16m
  make_dir 1 run1
  save run1 mnt/st@1
  mount -o remount,ro mnt || skip 'cannot remount'
  expect 0 ckpt-verify mnt/st
  expect 0 ckpt-verify --deep mnt/st
  expect 0 ckpt-verify --state=state.json mnt/st
  expect 0 -o ckpt-ls mnt/st
  expect 0 ckpt-ls --exists mnt/st
  restore mnt/st out
  same_tree run1 out
  expect 2 -e ckpt-save run1 mnt/st@2
  expect 0 ckpt-verify mnt/st
}

test_a_store_without_write_permission_can_be_read() {
  local as=(env)
  [ "$(id -u)" != 0 ] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  make_dir 1 run1
  save run1 st@1
  chmod -R a-w,a+rX st
  chmod a+rx . ..
  "${as[@]}" test -r st/ckpt-store.json 2>/dev/null || skip 'the scratch directory is private'
  "${as[@]}" ckpt-ls --version >/dev/null 2>&1 || skip 'the tools are private'
  expect 0 "${as[@]}" ckpt-verify --deep st
  expect 0 -o "${as[@]}" ckpt-ls st
  expect 2 -e "${as[@]}" ckpt-save run1/state.pt st@2
}

test_a_manifest_that_may_not_be_read_does_not_stop_the_others() {
  local as=(env)
  [ "$(id -u)" != 0 ] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  mkdir mine
  chmod a+rwx mine .
  chmod a+rx ..
  make_dir 1 run1
  make_dir 2 run2
  "${as[@]}" ckpt-ls --version >/dev/null 2>&1 || skip 'the tools are private'
  "${as[@]}" test -r run1/state.pt 2>/dev/null || skip 'the scratch directory is private'
  expect 0 -o "${as[@]}" ckpt-save run1 mine/st@1
  expect 0 -o "${as[@]}" ckpt-save run2 mine/st@2
  chmod 000 mine/st/0000000002/manifest.json
  expect 2 -o -e "${as[@]}" ckpt-ls --format=tsv mine/st
  like "$OUT" '^1	durable'
  like "$OUT" '^2	unreadable'
  like "$ERR" 'manifest.json.: Permission denied'
  expect 0 "${as[@]}" ckpt-ls --exists mine/st
  expect 2 -e "${as[@]}" ckpt-ls --exists mine/st@2
  expect 2 -e "${as[@]}" ckpt-verify mine/st
  like "$ERR" 'st@2: .*Permission denied'
  expect 0 "${as[@]}" ckpt-verify mine/st@1
  expect 0 -o "${as[@]}" ckpt-ls --get=state mine/st@1
  is "$OUT" verified
  expect 2 -e "${as[@]}" ckpt-restore mine/st mine/out
  expect 0 -o -e "${as[@]}" ckpt-restore --fallback mine/st mine/out
  is "$OUT" mine/st@1
  like "$ERR" 'warning: mine/st@2 passed over: .*Permission denied'
  same_file run1/state.pt mine/out/state.pt
  expect 0 -o "${as[@]}" ckpt-save run1 mine/st@3
  expect 2 -e "${as[@]}" ckpt-save run1 mine/st@2
  expect 0 -o "${as[@]}" ckpt-ls --get=step "mine/st@id:$(ckpt-ls --get=id mine/st@1)"
  is "$OUT" 1
}

test_an_address_that_cannot_be_printed_is_an_error() {
  make_dir 1 run1
  expect 2 -e bash -c 'ckpt-save run1 st@1 >/dev/full'
  like "$ERR" 'stdout|standard output|No space left'
  expect 0 ckpt-verify --deep st
}

test_closed_streams_never_get_into_the_store() {
  make_dir 1 run1
  expect 2 -e bash -c 'ckpt-save run1 a@1 >&-'
  expect 0 -O bash -c 'ckpt-save run1 b@1 2>&-'
  expect 0 -O bash -c 'ckpt-save run1 c@1 <&-'
  expect 2 bash -c 'ckpt-save run1 d@1 <&- >&- 2>&-'
  expect 2 bash -c 'ckpt-save nowhere e@1 >&- 2>&-'
  local store
  for store in a b c d; do
    [ -e $store ] || continue
    expect 0 ckpt-verify --deep $store
    [ -z "$(steps $store)" ] || { restore $store@1 out.$store; same_tree run1 out.$store; }
  done
}

test_a_reader_that_goes_away_is_no_crash() {
  make_dir 1 run1
  save run1 st@1
  bash -c 'ckpt-restore --file=state.pt -o - st@1 2>err; echo $? >code' | head -c 10 >/dev/null
  like "$(cat code)" '^(0|2|141)$'
}

test_a_signal_ends_a_save_and_leaves_nothing() {
  local signal delay code seen=0
  make_dir 1 run1
  "$PYTHON" "$TESTS_DIR/make_input.py" noise 1 big 150000000
  save run1 st@1
  for signal in INT TERM HUP; do
    for delay in 0.01 0.03 0.06; do
      code=0
      # A shell ignores INT for what it starts in the background, so timeout is what sends it.
      timeout --foreground -s $signal $delay ckpt-save big st@2 >out.txt 2>err.txt || code=$?
      [ "$code" != 0 ] || break
      seen=1
      is "$(cat out.txt)" '' stdout
      is "$(steps st)" 1
      no_leftovers st
    done
  done
  [ "$seen" = 1 ] || skip 'this machine is too quick'
  expect 0 ckpt-verify --deep st
  save big st@2
}

test_a_signal_is_raised_again() {
  "$PYTHON" "$TESTS_DIR/make_input.py" noise 1 big 150000000
  "$PYTHON" - <<'PY'
import signal, subprocess, time
seen = False
for delay in (0.0, 0.01, 0.02, 0.04, 0.08):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        p = subprocess.Popen(["ckpt-save", "big", f"st@{int(delay * 100)}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(delay)
        p.send_signal(number)
        p.communicate(timeout=60)
        assert p.returncode in (-number, 0), (p.returncode, number)
        seen = seen or p.returncode == -number
assert seen, "no signal came in time"
PY
}

test_many_checkpoints_in_one_store() {
  local i
  step_file 1 state.pt
  for i in $(seq 1 60); do ckpt-save state.pt st@$i >/dev/null; done
  is "$(ckpt-ls --format=tsv st | wc -l)" 60
  expect 0 ckpt-verify st
  restore st@latest~59 out
  is "$OUT" st@1
}

test_a_store_below_directories_that_are_not_there() {
  step_file 1 state.pt
  expect 0 -O -E bash -c 'ckpt-save state.pt a/b/st@1 || [ $? = 2 ]'
  [ ! -e a/b/st/0000000001 ] || expect 0 ckpt-verify a/b/st
}

run_tests "$@"
