#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# 16 bits on a processor with matrix instructions (AMX), which oneDNN's kernels then use, with layouts
# of their own.  Any processor with AVX512-BF16 will do: test/emulated/amx.c stands in for the rest.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# skip_all WHY: ends the test.
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
PD_AMX_PATCH=$(objdump -d --no-show-raw-insn "$library" |
	sed -n 's/^ *\([0-9a-f]*\):.*\(cpuid\|xgetbv\).*/\1/p' | paste -sd, -)
PD_AMX_COUNT=$PWD/products
export PD_AMX_PATCH PD_AMX_COUNT

# emulated COMMAND...: its cases must pass, and have multiplied tiles.
emulated() {
	rm -f products
	LD_PRELOAD=$PWD/amx.so "$@" >out 2>&1 || {
		grep -v '^ok' out
		return 1
	}
	awk '{ sum += $1 } END { exit !(sum > 1000) }' products
}

test_ok "every layer is as plain C has it" 'emulated "$PD_BUILD/test/conform/layers"'
test_ok "the training tests of 16 bits pass" '
	PD_TEST_QUICK=yes emulated sh "$PD_SOURCE/test/t4009-mixed.sh"'
test_done
