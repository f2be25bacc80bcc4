#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sizes and offsets above 4 GiB: a sparse file with a tensor that ends beyond, and bytes at both ends of it.
. "$(dirname "$0")/../lib.sh"

test_a_tensor_above_4_GiB_comes_back() {
  [ "$(df --output=avail -B1 . | tail -n 1)" -gt $((12 << 30)) ] || skip 'less than 12 GiB free'
  "$PYTHON" - <<'PY'
import json, struct
size = (4 << 30) + (64 << 20)
header = json.dumps({"big": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
                     "last": {"dtype": "I32", "shape": [2], "data_offsets": [size, size + 8]}}).encode()
header += b" " * (-len(header) % 8)
with open("m.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(header)) + header)
    f.write(b"first")
    f.seek(8 + len(header) + (4 << 30) - 3)
    f.write(b"across")
    f.seek(8 + len(header) + size)
    f.write(struct.pack("<2i", -7, 8))
PY
  save m.safetensors st@1
  expect 0 -o ckpt-ls --get=raw_bytes st@1
  is "$OUT" "$(stat -c %s m.safetensors)" 'raw bytes'
  ckpt-restore --tensor=last --as=raw -o - st@1 | cmp - <("$PYTHON" -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<2i", -7, 8))') >&2
  expect 0 ckpt-verify --deep st
  restore st@1 out
  same_file m.safetensors out/m.safetensors
  expect 0 -o ckpt-ls --json --tensors st@1
  "$PYTHON" -c 'import json, sys
assert [r["shape"] for r in map(json.loads, open(sys.argv[1])) if r.get("name") == "big"] == [[(4 << 30) + (64 << 20)]]' "$STREAMS.out"
}

run_tests "$@"
