#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Readers accept the seeds of the fuzzers, and refuse in one sentence what a fuzzer once found (bad-*).
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

for kind in model config onnx profile topology plan schedule trace kineto safetensors index topology-string idx cifar npy npz tokens; do
	ln -s "$PD_BUILD/test/unit/seeds" "$kind"
	set --
	for file in "$PD_SOURCE/test/data/small-$kind".json* "$PD_SOURCE/test/data/fuzz/$kind"/*; do
		[ -f "$file" ] && set -- "$@" "$file"
	done
	export files="$*" count="$#"
	test_ok "$kind: seeds are read, what was found is refused" '
		./$kind $files >said
		cat said
		[ "$count" -gt 0 ] && [ "$(wc -l <said)" -eq "$count" ]
		! grep -v "/bad-[^/:]*: refused: \|/[^/:]*: read$" said || false
		! grep "/bad-[^/:]*: read" said || false'
done

test_done
