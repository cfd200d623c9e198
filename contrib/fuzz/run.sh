#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds contrib/fuzz with clang, in a build tree of its own, and fuzzes all readers.
#
#     sh contrib/packages.sh build fuzz
#     sh contrib/fuzz/run.sh SECONDS [KIND...]       fuzzes each kind for SECONDS; 0 only builds
#
# FUZZ_BUILD names the build tree (build-fuzz), FUZZ_JOBS says how many kinds run at once (2).  With
# FUZZ_BUILT=yes nothing is built again.  Inputs that break a reader stay in the build tree, in KIND.found;
# there `./KIND FILE` shows one again.  Once the reader is repaired the input becomes a seed,
# test/data/fuzz/KIND/NAME.
set -u

source=$(cd "$(dirname "$0")/../.." && pwd)
build=${FUZZ_BUILD:-$source/build-fuzz}
seconds=${1:?"usage: run.sh SECONDS [KIND...]"}
shift
[ $# -gt 0 ] ||
	set -- model config onnx profile topology plan schedule trace kineto safetensors index topology-string idx cifar \
		npy npz tokens checkpoint

mkdir -p "$build" && cd "$build" || exit 3
build() {
	sanitize=address,undefined
	[ -f Makefile ] || "$source/configure" CC=clang --with-cuda=no \
		CFLAGS="-g1 -O1 -fsanitize=fuzzer-no-link,$sanitize -fno-sanitize-recover=undefined" \
		>configure.out 2>&1 || { tail -n 5 configure.out; exit 3; }
	# Only what the readers call is built, since clang takes three times as long as gcc.
	make Makefile >make.out 2>&1    # This says much if the Makefile is made anew.
	readers=$(make -s print-readers)
	make -j"$(nproc)" $readers >make.out 2>&1 || { tail -n 20 make.out; exit 3; }
	rm -f readers.a && ar rcs readers.a $readers || exit 3
	# The program fuzz reads most kinds, and goes by their names.
	for program in fuzz checkpoint; do
		clang -g1 -O1 -std=gnu11 -D_GNU_SOURCE -fsanitize=fuzzer,$sanitize \
			-fno-sanitize-recover=undefined -I"$source/lib" -I. "$source/contrib/fuzz/$program.c" \
			readers.a -ljansson -lz -lxxhash -lprotobuf-c -lm -lpthread -o $program || exit 3
	done
}

[ -n "${FUZZ_BUILT-}" ] || build
[ "$seconds" -gt 0 ] || exit 0

# seed KIND: fills the corpus with the documents of the tests and the files in test/data/fuzz, and makes a
# dictionary of their words.
seed() {
	mkdir -p "$1.corpus" "$1.found"
	for file in "$source"/test/data/small-"$1".json* "$source/test/data/fuzz/$1"/*; do
		[ -f "$file" ] && cp "$file" "$1.corpus/seed-${file##*/}"
	done
	cat "$1.corpus"/seed-* | grep -a -o '"[A-Za-z0-9_.-]*"' | sort -u |
		sed 's/"/\\"/g; s/.*/"&"/' >"$1.dict"
	[ "$1" = checkpoint ] || ln -sf fuzz "$1"
}

fuzz() {
	words=
	[ ! -s "$1.dict" ] || words=-dict=$1.dict
	# shellcheck disable=SC2086
	"./$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3072 -max_len=16384 \
		$words -artifact_prefix="$1.found/" -print_final_stats=1 "$1.corpus" \
		>"$1.out" 2>&1
	status=$?
	cov=$(grep -a -o 'cov: [0-9]*' "$1.out" | tail -n 1 | cut -d ' ' -f 2)
	echo "$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$1.out") executions, ${cov:-0} edges," \
		"$([ $status -eq 0 ] && echo nothing found || echo FOUND: "$(ls -t "$1.found" | head -n 1)")"
	[ $status -eq 0 ] || grep -a -m 3 -E 'ERROR|runtime error|SUMMARY|ended with|not read again' "$1.out"
	return $status
}

trap 'rm -rf fuzz-data-*' EXIT
bad=0
while [ $# -gt 0 ]; do
	pids=
	for n in $(seq "${FUZZ_JOBS:-2}"); do
		[ $# -gt 0 ] || break
		seed "$1"
		fuzz "$1" &
		pids="$pids $!"
		shift
	done
	for pid in $pids; do
		wait "$pid" || bad=1
	done
done
exit $bad
