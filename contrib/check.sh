#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and passes the tests on a machine with nothing but Debian 12; ends with one line,
# "N passed, N failed, N skipped", and fails if any test did.
#
#     sh contrib/check.sh            everything, as CI does
#     sh contrib/check.sh quick      without the sanitizers and the distribution
set -u

source=$(cd "$(dirname "$0")/.." && pwd)
build=${PD_BUILD:-$source/build-check}
passed=0 failed=0 skipped=0

step() { printf '\n== %s\n' "$*"; }

die() {
	echo "$*" >&2
	echo "$passed passed, $((failed + 1)) failed, $skipped skipped"
	exit 1
}

# check NAME WHAT TESTS MAKE-ARGUMENTS: make check in ./NAME of these; adds up what it says.
check() {
	name=$1 out=$build/$1/check-$2.out tests=$3
	shift 3
	[ -n "$tests" ] || return 0
	(cd "$build/$name" && make check TESTS="$tests" "$@" >"$out" 2>&1)
	status=$?
	count() { sed -n "s/^# $1: *//p" "$out" | tail -n 1; }
	grep -E '^(PASS|FAIL|ERROR|XPASS|SKIP):' "$out" | grep -Ev '^PASS:' | head -50
	p=$(count PASS) f=$(count FAIL) e=$(count ERROR) s=$(count SKIP)
	passed=$((passed + ${p:-0})) skipped=$((skipped + ${s:-0}))
	failed=$((failed + ${f:-0} + ${e:-0}))
	if [ $status -ne 0 ]; then
		[ "$((${f:-0} + ${e:-0}))" -gt 0 ] || failed=$((failed + 1))
		tail -n 30 "$out"
		for log in $(sed -n 's/^FAIL: \([^ ]*\) .*/\1/p; s/^ERROR: \([^ ]*\).*/\1/p' "$out" |
			     sort -u | head -5); do
			echo "-- $log"
			grep -A20 -E '^not ok|^ERROR|Sanitizer' \
				"$build/$name/${log%.sh}.log" 2>/dev/null | head -60
		done
	fi
	echo "$name: ${p:-0} passed, $((${f:-0} + ${e:-0})) failed, ${s:-0} skipped"
}

# run NAME TESTS MAKE-ARGUMENTS: all of those, or all there are.  Those of several processes, which
# wait for each other and cost more beside others, come one after the other; of the rest as many at
# once as there are processors.
run() {
	name=$1 all=$2
	shift 2
	[ -n "$all" ] || all=$(cd "$build/$name" &&
			       printf 'all-tests:\n\t@echo $(TESTS)\n' | make -s -f Makefile -f - all-tests)
	several='/t[479][0-9]*-|/ucx|/nccl|/rendezvous|/conform/'
	check "$name" together "$(printf '%s\n' $all | grep -Ev "$several" | tr '\n' ' ')" \
		-j"$(nproc)" "$@"
	check "$name" alone "$(printf '%s\n' $all | grep -E "$several" | tr '\n' ' ')" "$@"
}

configure() {
	name=$1
	shift
	rm -rf "${build:?}/$name" && mkdir -p "$build/$name" &&
		(cd "$build/$name" && "$source/configure" "$@" >configure.out 2>&1 &&
		 make -j"$(nproc)" >make.out 2>&1) ||
		{ tail -n 30 "$build/$name"/*.out; die "$name: the build failed"; }
}

sh "$source/contrib/packages.sh" build test >/dev/null || die "packages cannot be installed"
(cd "$source" && autoreconf -fi >/dev/null 2>&1) || die "autoreconf failed"

step "build without CUDA, warnings are errors; all tests"
configure plain --enable-werror --with-cuda=no
run plain ""

if [ "${1-}" != quick ] && { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null; then
	step "build with CUDA, warnings are errors; what can be seen without a GPU"
	configure cuda --enable-werror --with-cuda=guess
	if grep -q '^CUDA_LIBS = .*cudnn' "$build/cuda/Makefile"; then
		run cuda "test/unit/cuda-arith test/conform/stream test/t9001-gpu.sh
			test/t9002-gpu.sh test/t9003-sanitizer.sh test/t9004-nccl.sh
			test/t9005-cudnn.sh test/unit/nccl test/conform/transfers
			test/t8002-layers.sh" \
			check_PROGRAMS="$(echo test/unit/cuda-arith test/conform/stream \
				test/unit/cudnn test/unit/nccl test/conform/transfers)"

		step "an emulated GPU: lib/device/cuda, computed by the processor"
		if command -v python3 >/dev/null && command -v g++ >/dev/null; then
			sh "$source/contrib/emulate-cuda.sh" "$build/cuda-emulated" \
				>"$build/emulate.out" 2>&1 ||
				{ cat "$build/emulate.out"; die "the GPU cannot be emulated"; }
			configure emulated --enable-werror --with-cuda="$build/cuda-emulated" \
				--with-nccl=no LIBS=-lstdc++
			export PD_TEST_DEVICE=cuda
			run emulated "test/conform/stream test/conform/kernels test/conform/layers
				test/conform/widened"
			export PD_CUDA_LAYOUT=last
			run emulated "test/conform/layers"
			unset PD_TEST_DEVICE PD_CUDA_LAYOUT
		else
			echo "emulated: skipped, since g++ or python3 is absent"
			skipped=$((skipped + 1))
		fi
	else
		echo "not built: $(grep "for the CUDA toolkit" "$build/cuda/configure.out")"
	fi
fi

if [ "${1-}" != quick ]; then
	step "build with oneDNN 3; the conformity suite, and training"
	if sh "$source/contrib/packages.sh" "onednn3=$build/onednn3" >"$build/onednn3.out" 2>&1; then
		configure with-onednn3 --enable-werror --with-cuda=no --with-onednn="$build/onednn3"
		run with-onednn3 "test/conform/layers test/conform/partition test/conform/half
			test/conform/stream test/t4001-weights.sh test/t4011-kernels.sh"
	else
		tail -n 3 "$build/onednn3.out"
		echo "with-onednn3: skipped, since pip cannot bring oneDNN 3 here"
		skipped=$((skipped + 1))
	fi

	step "address and undefined behaviour sanitizers; the tests that they can follow"
	configure sanitized --enable-werror --with-cuda=no --enable-asan --enable-ubsan CFLAGS='-g -O1'
	run sanitized "$(cd "$build/sanitized" && make -s print-sanitized-tests)"

	step "fuzzers: every reader, 20 s each"
	if sh "$source/contrib/packages.sh" fuzz >/dev/null; then
		mkdir -p "$build/fuzz"
		FUZZ_BUILD=$build/fuzz sh "$source/contrib/fuzz/run.sh" 20 >"$build/fuzz/run.out" 2>&1 ||
			failed=$((failed + 1))
		cat "$build/fuzz/run.out"
		passed=$((passed + $(grep -c "nothing found$" "$build/fuzz/run.out")))
	else
		skipped=$((skipped + 1))
		echo "no clang: nothing was fuzzed"
	fi

	step "distribution: builds from its own tarball, installs, uninstalls"
	if (cd "$build/plain" && make distcheck -j"$(nproc)" DISTCHECK_CONFIGURE_FLAGS=--with-cuda=no \
	    TESTS= >distcheck.out 2>&1); then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		tail -n 30 "$build/plain/distcheck.out"
	fi
fi
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
