#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Made the golden stores of format version 1. They are never made again: a later program must read what this one wrote.
# usage: make_golden.sh DIRECTORY, with the tools in PATH. What it makes is in v1-*, and in v1-*.json what every
# checkpoint must be restored to.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree() { /usr/bin/python3 -B "$here/golden_tree.py" "$@"; }
export SOURCE_DATE_EPOCH=1700000000
umask 022
cd "$1"
scratch=$(mktemp -d ./golden.XXXXXX)
trap 'rm -rf "$scratch"' EXIT

# finish NAME INPUT...: what the inputs hold; the names of the inputs say where the test finds them restored.
finish() {
  local store=$PWD/$1
  shift
  (cd "$scratch" && tree describe "$@") >"$store.json"
  # What a store doesn't need, and git wouldn't keep.
  find "$store" -type d -empty -delete
}

tree make single 5 "$scratch/s5"
tree make single 6 "$scratch/s6"
ckpt-save --encode=raw --meta=loss=0.5 --meta='who=größe' "$scratch/s5" v1-single@5
ckpt-save --encode=raw --owner "$scratch/s6" v1-single@6
finish v1-single s5 s6

for rank in 1 0; do
  tree make ranks $rank "$scratch/r$rank"
  ckpt-save --encode=raw --rank=$rank --world-size=2 --attempt=3 "$scratch/r$rank" v1-ranks@100
done
finish v1-ranks r0 r1

for step in 1 2; do
  tree make suspect $step "$scratch/u$step"
  ckpt-save --encode=raw -q --allow-malformed "$scratch/u$step" v1-suspect@$step
done
finish v1-suspect u1 u2

for step in 1 2 3; do
  tree make retired $step "$scratch/t$step"
  ckpt-save --encode=raw --attempt=0 "$scratch/t$step" v1-retired@$step
done
tree make retired 22 "$scratch/t22"
ckpt-save --encode=raw --attempt=1 --resumed-from=1 "$scratch/t22" v1-retired@2
finish v1-retired t1 t2 t3 t22

# Blocks of all codecs: three steps, each against the one before.
for step in 1 2 3; do
  tree make typed $step "$scratch/y$step"
  ckpt-save "$scratch/y$step" v1-typed@$step
done
finish v1-typed y1 y2 y3
