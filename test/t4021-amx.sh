#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On a processor with matrix instructions (AMX) oneDNN's kernels of 16 bits use these, with layouts of their
# own.  The test needs a processor with AVX512-BF16: test/emulated/amx.c stands in for the rest.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# skip_all WHY: ends the script as skipped.
skip_all() {
	test_skip "layers and training with AMX" "$1"
	test_done
}

if [ "${PD_TEST_DEVICE:-cpu}" != cpu ]; then
	skip_all "device $PD_TEST_DEVICE"
elif ! grep -q avx512_bf16 /proc/cpuinfo; then
	skip_all "the processor has no AVX512-BF16"
elif grep -q amx_tile /proc/cpuinfo; then
	skip_all "the processor has AMX: all tests are with it"
elif nm "$PD_BUILD/bin/pd-run" 2>/dev/null | grep -q __asan_init; then
	skip_all "sanitizers must come before anything that is preloaded"
fi
library=$(ldd "$PD_BUILD/bin/pd-run" | sed -n 's/.*libdnnl[^ ]* => \([^ ]*\).*/\1/p')
if [ ! -e "$library" ] || ! command -v objdump >/dev/null; then
	skip_all "libdnnl or objdump is not found"
fi
cc -O2 -shared -fPIC -Wl,-z,initfirst -o amx.so "$PD_SOURCE/test/emulated/amx.c" -ldl ||
	skip_all "the compiler does not make it"
# PD_AMX_PATCH lists where the library asks what the processor is.  Only pages that have such bytes are
# disassembled, from a bit before each, so that instructions are found.
PD_AMX_PATCH=$(LC_ALL=C grep -obUaP '\x0f\xa2|\x0f\x01\xd0' "$library" |
	awk -F: '{ print int($1 / 4096) * 4096 }' | uniq | while read -r page; do
		objdump -d --no-show-raw-insn --start-address=$((page - 256)) \
			--stop-address=$((page + 4098)) "$library"
	done | sed -n 's/^ *\([0-9a-f]*\):.*\(cpuid\|xgetbv\).*/\1/p' | sort -u | paste -sd, -)
PD_AMX_COUNT=$PWD/products
export PD_AMX_PATCH PD_AMX_COUNT

# emulated COMMAND...: checks that its cases pass, and that tiles were multiplied.
emulated() {
	rm -f products
	set +e  # A failure is shown below.  In a condition the shell would ignore set -e.
	(set -e; export LD_PRELOAD=$PWD/amx.so; "$@") >out 2>&1
	emulated_status=$?
	set -e
	[ $emulated_status -eq 0 ] || grep -v '^ok' out
	[ $emulated_status -eq 0 ]
	awk '{ sum += $1 } END { exit !(sum > 1000) }' products
}

test_ok "every layer is as plain C has it" 'emulated "$PD_BUILD/test/conform/layers" bf16'
# narrow: trains in bf16.  The memory of tensors with padded layouts was once wrong here.
residual_model >residual.json
narrow() {
	PD_TEST_DTYPE=bf16 profile residual.json 2 >residual
	for replicas in "1 1 1" "2 1"; do
		plan residual $replicas >plan.json
		trained 12 plan.json $sgd
	done
}
test_ok "stages and replicas end with the bits of a serial program, in the memory predicted" '
	emulated narrow'
test_done
