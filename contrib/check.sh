#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the tree and runs the tests on a machine with nothing but Debian 12.  It ends with one line,
# "N passed, N failed, N skipped", and fails if any test failed.
#
#     sh contrib/check.sh            runs everything, as CI does
#     sh contrib/check.sh quick      runs the plain build alone
#
# It also prints the lines of each room of lib, and with PD_AGAINST=COMMIT what has changed since.
set -u

source=$(cd "$(dirname "$0")/.." && pwd)
build=${PD_BUILD:-$source/build-check}

since=$(date +%s)
step() { printf '\n== %s (after %d s)\n' "$*" $(($(date +%s) - since)); }

# tally PASSED FAILED SKIPPED: adds these to a file, since several builds are tested at once.
tally() {
	echo "$@" >>"$build/tally"
}

skip() {
	echo "$*"
	tally 0 0 1
}

# ends: prints the sum of all tallies and exits, with status 1 if anything failed.
ends() {
	awk '{ p += $1; f += $2; s += $3 }
		END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }' "$build/tally"
	exit
}

die() {
	echo "$*" >&2
	tally 0 1 0
	ends
}

# check NAME WHAT TESTS MAKE-ARGUMENTS: runs make check in build NAME with these tests, and tallies its
# counts.  WHAT is part of the name of the log, check-WHAT.out.
check() {
	name=$1 out=$build/$1/check-$2.out tests=$3
	shift 3
	[ -n "$tests" ] || return 0
	(cd "$build/$name" && make check TESTS="$tests" "$@" >"$out" 2>&1)
	status=$?
	count() { sed -n "s/^# $1: *//p" "$out" | tail -n 1; }
	grep -E '^(PASS|FAIL|ERROR|XPASS|SKIP):' "$out" | grep -Ev '^PASS:' | head -50
	p=$(count PASS) s=$(count SKIP) f=$(($(count FAIL)+0 + $(count ERROR)+0))
	if [ $status -ne 0 ]; then
		[ "$f" -gt 0 ] || f=1
		tail -n 30 "$out"
		for log in $(sed -n 's/^FAIL: \([^ ]*\) .*/\1/p; s/^ERROR: \([^ ]*\).*/\1/p' "$out" |
			     sort -u | head -5); do
			echo "-- $log"
			grep -A20 -E '^not ok|^ERROR|Sanitizer' \
				"$build/$name/${log%.sh}.log" 2>/dev/null | head -60
		done
	fi
	tally "${p:-0}" "$f" "${s:-0}"
	echo "$name: ${p:-0} passed, $f failed, ${s:-0} skipped"
}

# run NAME TESTS MAKE-ARGUMENTS: runs these tests in a build, or all tests if TESTS is empty.  First it runs
# those that may run beside others, two at once for each processor, since tests of several processes wait
# for each other.  Then it runs those that must be alone; only ahead() may still be building.
run() {
	name=$1 beside=$(print "$1" beside-tests "$2") alone=$(print "$1" alone-tests "$2")
	shift 2
	check "$name" beside "$beside" -j"$((2 * $(nproc)))" "$@"
	check "$name" alone "$alone" "$@"
}

# print NAME LIST TESTS: prints that list of test/local.mk, of these tests or, if TESTS is empty, of all.
print() {
	if [ -n "$3" ]; then
		make -s -C "$build/$1" "print-$2" TESTS="$(echo $3)"
	else
		make -s -C "$build/$1" "print-$2"
	fi
}

# some NAME TESTS: runs these tests alone, and builds only the programs for tests that they need.
some() {
	run "$1" "$2" check_PROGRAMS="$(print "$1" programs "$2")"
}

# as_other_processors: runs the conformity tests, in short form, with the kernels, oneDNN's and our own, of
# processors that have fewer instructions than this one.
as_other_processors() {
	for isa in SSE41/any AVX2/x86-64-v3; do
		case $isa in
		AVX2*) grep -q avx2 /proc/cpuinfo || continue ;;
		esac
		(export PD_TEST_QUICK=yes ONEDNN_MAX_CPU_ISA="${isa%/*}" PD_CPU_TILES="${isa#*/}"
		check plain "${isa%/*}" "test/conform/layers test/conform/nonfinite test/conform/partition
			test/conform/frozen test/conform/iteration test/t4001-weights.sh" -j"$((2 * $(nproc)))")
	done
}

# configure NAME ARGUMENTS: configures a build; built() reports what goes wrong.  The path to the source is
# relative, so it is the same in all builds and in that of the distribution.  So ccache finds what another
# build compiled.
configure() {
	name=$1
	shift
	rm -rf "${build:?}/$name" && mkdir -p "$build/$name" &&
		(cd "$build/$name" && "$(realpath --relative-to=. "$source")/configure" $untracked "$@" \
			>configure.out 2>&1 && : >configured)
}

# ahead NAME...: builds those that are configured, one after the other, while a processor is idle, so that
# tests take as long as without it.  built() reports what fails.
ahead() {
	for name in "$@"; do
		[ ! -f "$build/$name/configured" ] ||
			chrt --idle 0 make -C "$build/$name" -j"$(nproc)" >"$build/$name/ahead.out" 2>&1 || :
	done
}

# whole: checks that the tarball has every file that git has, except those of git and CI.
whole() {
	tar tf "$build"/plain/pipedream-*.tar.xz | sed 's,^[^/]*/,,' | sort >"$build/distributed"
	git -C "$source" ls-files | sort | comm -23 - "$build/distributed" | grep -v '^\.' >"$build/missing"
	[ ! -s "$build/missing" ] || { echo "not in the distribution:"; cat "$build/missing"; } >&2
	[ ! -s "$build/missing" ]
}

# distribution: builds from the package's own tarball, which is compressed as little as can be.  It builds
# no programs for tests, since they could only fail for want of a file, and whole() notices that.
distribution() {
	if (cd "$build/plain" && XZ_OPT=-0 make -j2 distcheck TESTS= check_PROGRAMS= \
		distcleancheck_listfiles="find . -type f ! -name '*.d'" \
		DISTCHECK_CONFIGURE_FLAGS="--with-cuda=no --enable-werror $untracked $gold" && whole) \
		>"$build/plain/distcheck.out" 2>&1
	then
		echo "distribution: builds, installs, uninstalls"
		tally 1 0 0
	else
		tally 0 1 0
		tail -n 30 "$build/plain/distcheck.out"
	fi
}

# fuzzed: fuzzes every reader, once the fuzzers are built while a processor is idle.
fuzzed() {
	mkdir -p "$build/fuzz"
	export FUZZ_BUILD="$build/fuzz" FUZZ_JOBS=1
	sh "$source/contrib/packages.sh" fuzz >/dev/null || return 0
	nice -n 19 sh "$source/contrib/fuzz/run.sh" 0 >"$build/fuzz/built.out" 2>&1 &&
		FUZZ_BUILT=yes sh "$source/contrib/fuzz/run.sh" 1 >"$build/fuzz/run.out" 2>&1 || tally 0 1 0
}

# built NAME [PROGRAM...]: makes these programs in a tree in which nothing is made, one by one, then all.
built() {
	for program in "$@"; do
		[ "$program" = "$1" ] || make -C "$build/$1" "$program" >"$build/$1/make.out" 2>&1 ||
			{ tail -n 30 "$build/$1/make.out"; die "$1: $program alone cannot be made"; }
	done
	[ -f "$build/$1/Makefile" ] && make -C "$build/$1" -j"$(nproc)" >"$build/$1/make.out" 2>&1 ||
		{ tail -n 30 "$build/$1"/*.out "$build/cuda-$1.out" 2>/dev/null; die "$1: the build failed"; }
}

# dash begins in half the time of bash, which configure and make would run many thousand times.
if command -v dash >/dev/null; then
	CONFIG_SHELL=$(command -v dash)
	export CONFIG_SHELL
fi
mkdir -p "$build" && : >"$build/tally"
sh "$source/contrib/packages.sh" build >/dev/null || die "packages cannot be installed"
sh "$source/contrib/packages.sh" test >/dev/null &
packages=$!
(cd "$source" && autoreconf -fi >/dev/null 2>&1) || die "autoreconf failed"
wait "$packages" || die "packages for the tests cannot be installed"

cuda= emulated=
if [ "${1-}" != quick ] && { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null; then
	cuda=yes
	if sh "$source/contrib/packages.sh" emulated >/dev/null; then
		emulated=yes
	else
		skip "emulated: skipped, since g++ or python3 is absent"
	fi
fi

# The other builds are configured, and oneDNN 3 is downloaded, while the plain one is built.  Most builds
# have the same flags, so ccache compiles what they share once.  It runs no preprocessor (CCACHE_DEPEND), since
# the compiler lists what a file includes.  gold links all except the one with CUDA, in a third of the time.
if command -v ccache >/dev/null; then
	export CC="ccache ${CC-gcc}" CCACHE_DIR="${CCACHE_DIR-$build/ccache}" CCACHE_NOHASHDIR=yes \
		CCACHE_DEPEND=yes
fi
gold=$(command -v ld.gold >/dev/null && echo LDFLAGS=-fuse-ld=gold)
# Nothing is compiled twice in a build, so make need not know what an object includes.  -MD is for ccache.
untracked=--disable-dependency-tracking
depend=-MD
export CFLAGS="${CFLAGS--g1 -O2} $depend"
configure plain --enable-werror --with-cuda=no $gold &
plain=$!
# The build with CUDA is for one kind of GPU, since another one only takes another back end of the same
# compiler.  Without a GPU no kernel runs here, so the longest passes of the compiler, which only make
# kernels faster, are left out.
[ -e /dev/nvidia0 ] || export NVCC_APPEND_FLAGS='-Xcicc -O1 -Xptxas -O1'
[ -z "$cuda" ] || configure cuda --enable-werror --with-cuda=guess --with-cuda-arch=80 &
if [ -n "$emulated" ]; then
	sh "$source/contrib/emulate-cuda.sh" "$build/cuda-emulated" >"$build/cuda-emulated.out" 2>&1 &&
		configure emulated --enable-werror --with-cuda="$build/cuda-emulated" \
			--with-nccl=no LIBS=-lstdc++ $gold &
fi
if [ "${1-}" != quick ]; then
	sh "$source/contrib/packages.sh" "onednn3=$build/onednn3" >"$build/onednn3.out" 2>&1 &&
		configure with-onednn3 --enable-werror --with-cuda=no \
			CPPFLAGS='-DPD_VECTOR_CLONES=\"avx2\",\"default\"' \
			--with-onednn="$build/onednn3" $gold &
	configure sanitized --enable-werror --with-cuda=no --enable-asan --enable-ubsan \
		CFLAGS="-g1 -O1 $depend" $gold &
fi

step "build without CUDA, warnings are errors; all tests"
wait "$plain"
built plain bin/pd-plan test/unit/onnx
[ "${1-}" = quick ] || ahead cuda emulated with-onednn3 sanitized &
run plain ""
wait
if [ "${1-}" != quick ]; then
	step "conformity with the kernels of processors that have SSE4.1 or AVX2 alone"
	as_other_processors
	distribution &
fi

if [ -n "$cuda" ]; then
	step "build with CUDA, warnings are errors; what can be seen without a GPU; beside the next three"
	built cuda
	if grep -q '^CUDA_LIBS = .*cudnn' "$build/cuda/Makefile"; then
		some cuda "test/unit/cuda-arith test/conform/stream test/t9001-gpu.sh
			test/t9002-gpu.sh test/t9003-sanitizer.sh test/t9004-nccl.sh
			test/t9005-cudnn.sh test/t8005-gpu-bundle.sh test/unit/nccl test/conform/transfers
			test/t8002-layers.sh" &
	else
		echo "not built: $(grep "for the CUDA toolkit" "$build/cuda/configure.out")"
		emulated=
	fi
fi
if [ -n "$emulated" ]; then
	step "an emulated GPU: lib/run/device/cuda, computed by the processor"
	built emulated
	(export PD_TEST_DEVICE=cuda
	some emulated "test/conform/iteration test/conform/layers test/conform/nonfinite test/conform/frozen
		test/t9006-layouts.sh test/t9007-visible.sh
		test/t9008-emulated.sh test/conform/stream test/conform/kernels test/conform/chunks test/conform/widened") &
fi

if [ "${1-}" != quick ] && [ -d "$build/with-onednn3" ]; then
	step "build with oneDNN 3; the conformity suite, and training"
	built with-onednn3
	(export PD_TEST_QUICK=yes
	some with-onednn3 "test/conform/layers test/conform/nonfinite test/conform/partition
		test/conform/half test/conform/stream test/t4001-weights.sh test/t4011-kernels.sh") &
elif [ "${1-}" != quick ]; then
	tail -n 3 "$build/onednn3.out"
	skip "with-onednn3: skipped, since pip cannot bring oneDNN 3 here"
fi

if [ "${1-}" != quick ]; then
	step "address and undefined behaviour sanitizers; units, conformity, refusals, a row of each kind"
	built sanitized
	fuzzed &
	export PD_TEST_QUICK=yes
	some sanitized "$(print sanitized sanitized-tests "")"
	unset PD_TEST_QUICK
	wait

	step "fuzzers: every reader, 1 s each; ran beside the tests"
	if [ -e "$build/fuzz/run.out" ]; then
		cat "$build/fuzz/run.out"
		tally "$(grep -c "nothing found$" "$build/fuzz/run.out")" 0 0
	elif [ -e "$build/fuzz/built.out" ]; then
		tail -n 20 "$build/fuzz/built.out"
	else
		skip "nothing was fuzzed, since clang is absent"
	fi
fi
step "lines by room"
sh "$source/contrib/lines.sh" ${PD_AGAINST:+"$PD_AGAINST"}
step done
ends
