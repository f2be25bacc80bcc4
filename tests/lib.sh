# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0
# Shell tests that speak TAP. Each function test_* is one test: it runs in a scratch directory of its own, and the
# first assertion that fails ends it. The function's name states its condition. A test file sources this one first,
# and ends with run_tests.
set -u
export LC_ALL=C.UTF-8
unset WORLD_SIZE CKPT_JOBS SOURCE_DATE_EPOCH NO_COLOR
TESTS_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FIXTURES=$TESTS_DIR/fixtures
PYTHON=/usr/bin/python3
OUT=$'\n'  # of the last command that `expect` ran
ERR=$'\n'

fail() { printf '%s\n' "$*" >&2; exit 1; }
skip() { printf '%s\n' "$*" >"$SKIP_FILE"; exit 77; }

# expect CODE [-o] [-e] [-O] [-E] COMMAND...: the exit status is CODE, and both streams are empty. -o and -e: the stream
# must not be empty instead; -O and -E: it may be either. What came is in $OUT and $ERR, without trailing newlines.
expect() {
  local want=$1 o=empty e=empty got
  shift
  while :; do
    case $1 in
      -o) o=text ;; -O) o=any ;; -e) e=text ;; -E) e=any ;;
      *) break ;;
    esac
    shift
  done
  got=0
  "$@" >"$STREAMS.out" 2>"$STREAMS.err" || got=$?
  # Without NULs, which the shell drops with a warning.
  { OUT=$(<"$STREAMS.out") ERR=$(<"$STREAMS.err"); } 2>/dev/null
  [ "$got" = "$want" ] || fail "exit status $got, not $want: $*"$'\n'"stdout: ${OUT:0:2000}"$'\n'"stderr: ${ERR:0:2000}"
  expect_stream stdout "$o" "$OUT" "$*"
  expect_stream stderr "$e" "$ERR" "$*"
}

expect_stream() {
  case $2 in
    empty) [ -z "$3" ] || fail "$1 isn't empty: $4"$'\n'"${3:0:2000}" ;;
    text) [ -n "$3" ] || fail "$1 is empty: $4" ;;
  esac
}

# save ARGUMENT... STORE@STEP: succeeds in silence and prints nothing but the address.
save() {
  expect 0 -o ckpt-save "$@"
  is "$OUT" "${!#}" 'address that ckpt-save prints'
}

# restore ADDRESS DEST [OPTION...]: succeeds in silence and prints one address.
restore() { expect 0 -o ckpt-restore "$@"; }

is() { [ "$1" = "$2" ] || fail "${3:-value} is '$1', not '$2'"; }
like() { grep -qE -- "$2" <<<"$1" || fail "${3:-text} doesn't match /$2/: $1"; }
unlike() { ! grep -qE -- "$2" <<<"$1" || fail "${3:-text} matches /$2/: $1"; }

# Everything that a restore must give back: names, types, modes, link targets, mtimes in nanoseconds, contents.
tree() {
  "$PYTHON" - "$1" <<'PY'
import hashlib, os, stat, sys
root = os.fsencode(sys.argv[1])
seen = {}
for base, dirs, files in os.walk(root):
    dirs.sort()
    for name in sorted(dirs + files):
        path = os.path.join(base, name)
        st = os.lstat(path)
        rel = os.path.relpath(path, root)
        line = [repr(rel), oct(st.st_mode)]
        if stat.S_ISLNK(st.st_mode):
            line.append(repr(os.readlink(path)))
        elif stat.S_ISREG(st.st_mode):
            if st.st_nlink > 1:
                line.append("is " + repr(seen.setdefault(st.st_ino, rel)))
            line += [str(st.st_size), str(st.st_mtime_ns), hashlib.md5(open(path, "rb").read()).hexdigest()]
        print(*line)
PY
}

same_tree() {
  local left right
  left=$(tree "$1") right=$(tree "$2")
  [ "$left" = "$right" ] || fail "trees differ: $1 $2"$'\n'"$(diff <(echo "$left") <(echo "$right"))"
}
same_file() { cmp -- "$1" "$2" >&2 || fail "files differ: $1 $2"; }

# Committed steps, as the directory shows them.
steps() { (cd "$1" && ls -d [0-9]* 2>/dev/null | sed 's/^0*\(.\)/\1/' | tr '\n' ' ' | sed 's/ $//'); }

# Nothing in the making, nothing half done: what a store holds at rest.
no_leftovers() {
  local found
  found=$(find "$1" \( -path "$1/.pending/*" -o -path "$1/.trash/*" -o -path "$1/.spool/*" -o -path "$1/.pins/*" -o -name '*tmp*' \) ! -type d ! -name '*lock*' ! -name 'attempt-*' ! -name worker.log ! -name '.nfs*' -print)
  found+=$(find "$1/.pending" -mindepth 1 -maxdepth 1 -name '[0-9]*' -print 2>/dev/null)
  [ -z "$found" ] || fail "leftovers in $1:"$'\n'"$found"
}

# A small torch file whose tensors depend on $1.
step_file() { "$PYTHON" "$TESTS_DIR/make_input.py" torch "$1" "$2"; }

# A directory as a trainer leaves it.
make_dir() { "$PYTHON" "$TESTS_DIR/make_input.py" dir "$1" "$2"; }

run_tests() {
  local names scratch n=0 failed=0 name title rc
  names=$(sed -n 's/^\(test_[A-Za-z0-9_]*\)() *[{(].*/\1/p' "$0")
  [ "$#" -eq 0 ] || names=$(printf '%s\n' "$@")
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-test.XXXXXX")
  # Also as root a test may have taken permissions away.
  trap 'chmod -R u+rwX "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT
  trap 'exit 129' HUP INT TERM
  echo "1..$(wc -w <<<"$names")"
  for name in $names; do
    n=$((n + 1))
    title=${name#test_}
    title=${title//_/ }
    mkdir "$scratch/$n"
    STREAMS=$scratch/$n.stream SKIP_FILE=$scratch/$n.skip
    (set -e; cd "$scratch/$n"; "$name") >"$scratch/log" 2>&1 </dev/null
    rc=$?
    case $rc in
      0) echo "ok $n - $title" ;;
      77) echo "ok $n - $title # SKIP $(cat "$SKIP_FILE" 2>/dev/null)" ;;
      *) failed=1; echo "not ok $n - $title"; sed 's/^/# /' "$scratch/log" | tail -n 60 ;;
    esac
    chmod -R u+rwX "$scratch/$n" 2>/dev/null
    # A worker may be at work in it.
    rm -rf "${scratch:?}/$n" 2>/dev/null || { sleep 0.5; rm -rf "${scratch:?}/$n"; }
  done
  exit $failed
}
