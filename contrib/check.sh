#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and passes the tests on a machine with nothing but Debian 12; ends with one line,
# "N passed, N failed, N skipped", and fails if any test did.
#
#     sh contrib/check.sh            everything, as CI does
#     sh contrib/check.sh quick      the plain build alone
set -u

source=$(cd "$(dirname "$0")/.." && pwd)
build=${PD_BUILD:-$source/build-check}
passed=0 failed=0 skipped=0

since=$(date +%s)
step() { printf '\n== %s (after %d s)\n' "$*" $(($(date +%s) - since)); }

skip() {
	echo "$*"
	skipped=$((skipped + 1))
}

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

# run NAME TESTS MAKE-ARGUMENTS: all of those, or all there are.  Several at once, more than there are
# processors since tests of several processes wait for each other; then those that must be alone.
run() {
	name=$1 beside=$(print "$1" beside-tests "$2") alone=$(print "$1" alone-tests "$2")
	shift 2
	check "$name" beside "$beside" -j"$((2 * $(nproc)))" "$@"
	check "$name" alone "$alone" "$@"
}

# print NAME LIST TESTS: that list of test/local.mk, of those tests or of all.
print() {
	if [ -n "$3" ]; then
		make -s -C "$build/$1" "print-$2" TESTS="$(echo $3)"
	else
		make -s -C "$build/$1" "print-$2"
	fi
}

# some NAME TESTS: those alone, and of the programs for tests what they need.
some() {
	run "$1" "$2" check_PROGRAMS="$(print "$1" programs "$2")"
}

# configure NAME ARGUMENTS: what goes wrong is said when it is built.
configure() {
	name=$1
	shift
	rm -rf "${build:?}/$name" && mkdir -p "$build/$name" &&
		(cd "$build/$name" && "$source/configure" "$@" >configure.out 2>&1)
}

built() {
	[ -f "$build/$1/Makefile" ] && make -C "$build/$1" -j"$(nproc)" >"$build/$1/make.out" 2>&1 ||
		{ tail -n 30 "$build/$1"/*.out "$build/cuda-$1.out" 2>/dev/null; die "$1: the build failed"; }
}

sh "$source/contrib/packages.sh" build test >/dev/null || die "packages cannot be installed"
(cd "$source" && autoreconf -fi >/dev/null 2>&1) || die "autoreconf failed"

cuda= emulated=
if [ "${1-}" != quick ] && { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null; then
	cuda=yes
	if sh "$source/contrib/packages.sh" emulated >/dev/null; then
		emulated=yes
	else
		skip "emulated: skipped, since g++ or python3 is absent"
	fi
fi

# All others are configured while the first is built, and oneDNN 3 comes from afar.
mkdir -p "$build"
# They have the same flags, so that what is the same in several of them is compiled once.
if command -v ccache >/dev/null; then
	export CC="ccache ${CC-gcc}" CCACHE_DIR="${CCACHE_DIR-$build/ccache}" CCACHE_NOHASHDIR=yes
fi
configure plain --enable-werror --with-cuda=no &
plain=$!
[ -z "$cuda" ] || configure cuda --enable-werror --with-cuda=guess &
if [ -n "$emulated" ]; then
	sh "$source/contrib/emulate-cuda.sh" "$build/cuda-emulated" >"$build/cuda-emulated.out" 2>&1 &&
		configure emulated --enable-werror --with-cuda="$build/cuda-emulated" \
			--with-nccl=no LIBS=-lstdc++ &
fi
if [ "${1-}" != quick ]; then
	sh "$source/contrib/packages.sh" "onednn3=$build/onednn3" >"$build/onednn3.out" 2>&1 &&
		configure with-onednn3 --enable-werror --with-cuda=no \
			--with-onednn="$build/onednn3" &
	configure sanitized --enable-werror --with-cuda=no --enable-asan --enable-ubsan \
		CFLAGS='-g1 -O1' &
fi

step "build without CUDA, warnings are errors; all tests"
wait "$plain"
built plain
run plain ""
wait    # for the others to be configured

if [ -n "$cuda" ]; then
	step "build with CUDA, warnings are errors; what can be seen without a GPU"
	built cuda
	if grep -q '^CUDA_LIBS = .*cudnn' "$build/cuda/Makefile"; then
		some cuda "test/unit/cuda-arith test/conform/stream test/t9001-gpu.sh
			test/t9002-gpu.sh test/t9003-sanitizer.sh test/t9004-nccl.sh
			test/t9005-cudnn.sh test/unit/nccl test/conform/transfers
			test/t8002-layers.sh"
	else
		echo "not built: $(grep "for the CUDA toolkit" "$build/cuda/configure.out")"
		emulated=
	fi
fi
if [ -n "$emulated" ]; then
	step "an emulated GPU: lib/device/cuda, computed by the processor"
	built emulated
	export PD_TEST_DEVICE=cuda
	some emulated "test/conform/stream test/conform/kernels test/conform/layers
		test/conform/iteration test/conform/widened"
	export PD_CUDA_LAYOUT=last
	some emulated "test/conform/layers"
	unset PD_TEST_DEVICE PD_CUDA_LAYOUT
fi

if [ -d "$build/with-onednn3" ]; then
	step "build with oneDNN 3; the conformity suite, and training"
	built with-onednn3
	export PD_TEST_QUICK=yes
	some with-onednn3 "test/conform/layers test/conform/partition
		test/conform/half test/conform/stream test/t4001-weights.sh test/t4011-kernels.sh"
	unset PD_TEST_QUICK
elif [ "${1-}" != quick ]; then
	tail -n 3 "$build/onednn3.out"
	skip "with-onednn3: skipped, since pip cannot bring oneDNN 3 here"
fi

if [ "${1-}" != quick ]; then
	step "address and undefined behaviour sanitizers; units, conformity, refusals, a row of each kind"
	built sanitized
	export PD_TEST_QUICK=yes
	run sanitized "$(print sanitized sanitized-tests "")"
	unset PD_TEST_QUICK

	step "fuzzers: every reader, 10 s each; meanwhile the distribution builds from its own tarball"
	(cd "$build/plain" && exec make distcheck TESTS= \
		DISTCHECK_CONFIGURE_FLAGS="--with-cuda=no CFLAGS=-O0" >distcheck.out 2>&1) &
	distribution=$!
	if sh "$source/contrib/packages.sh" fuzz >/dev/null; then
		mkdir -p "$build/fuzz"
		FUZZ_BUILD=$build/fuzz sh "$source/contrib/fuzz/run.sh" 10 >"$build/fuzz/run.out" 2>&1 ||
			failed=$((failed + 1))
		cat "$build/fuzz/run.out"
		passed=$((passed + $(grep -c "nothing found$" "$build/fuzz/run.out")))
	else
		skip "nothing was fuzzed, since clang is absent"
	fi
	if wait "$distribution"; then
		echo "distribution: builds, installs, uninstalls"
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		tail -n 30 "$build/plain/distcheck.out"
	fi
fi
step done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
