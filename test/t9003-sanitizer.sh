#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernels run under compute-sanitizer, which takes minutes on a machine with a GPU.  It does not report
# what CUDA's calls return: the libraries try out what a GPU can do by failing, and we look at everything
# that is returned to us.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

if ! pd-profile --device=cuda --no-link --iterations=1 --batch-size=4 "$MODELS/lenet5.json" \
	>profile.json 2>why; then
	[ "${PD_GPU-}" = yes ] || grep -q "no GPU can be used" why || PD_GPU=yes
	[ "${PD_GPU-}" = yes ] || test_skip_all "$(cat why)"
	test_ok "a GPU is there and can be used" 'cat why; false'
	test_done
fi

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
for tool in memcheck racecheck initcheck; do
	if [ -z "$sanitizer" ]; then
		test_skip "$tool" "compute-sanitizer is not installed"
		continue
	fi
	for what in stream kernels; do
		test_ok "$tool finds nothing in test/conform/$what" '
			PD_TEST_DEVICE=cuda "$sanitizer" --tool "$tool" --report-api-errors no \
				--error-exitcode 9 "$PD_BUILD/test/conform/$what" >log 2>&1 ||
				{ tail -n 60 log; false; }
		'
	done
done

test_done
