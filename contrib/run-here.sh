#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs what `make check-gpu` runs, in a folder made by contrib/gpu-bundle.sh, on a machine that has a GPU
# and CUDA's libraries.  The arguments are the tests to run, or a command after --.
#
#     sh run-here.sh                          runs all; ends with "N passed, N failed, N skipped"; a test
#                                             that looks at nothing, or skips anything, fails
#     sh run-here.sh test/conform/layers      runs some
#     PD_TIMEOUT=500 sh run-here.sh ...       limits each test to 500 s; otherwise to 900 s
#     sh run-here.sh -- bin/pd-profile ...    runs any command, with the libraries found
set -u

here=$(cd "$(dirname "$0")" && pwd)
# gpu-first.sh is told of a folder and an archive from where this was called.
OUT=$(cd "${OUT:-$here}" && pwd) || exit 1
case ${FROM-} in
"" | /*) ;;
*) FROM=$PWD/$FROM ;;
esac
export OUT FROM
cd "$here" || exit 1

# CUDA's libraries come from the toolkit, and else from Python packages (nvidia/cu13/lib, nvidia/cudnn/lib,
# nvidia/nccl/lib and so on).
paths=
for folder in /usr/local/cuda/lib64 /usr/local/nvidia/lib64 \
	$(python3 -c 'import glob, site, sys
for root in {*site.getsitepackages(), *sys.path}:
    print(*glob.glob(root + "/nvidia/*/lib"))' 2>/dev/null); do
	[ -d "$folder" ] && paths=$paths:$folder
done
PD_LIBRARY_PATH_BEFORE=${LD_LIBRARY_PATH-}      # PyTorch gets this path, since it finds its own libraries.
LD_LIBRARY_PATH=$here/lib$paths${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
UCX_MODULE_DIR=$here/lib/ucx
PD_SOURCE=$here PD_BUILD=$here PATH=$here/bin:$PATH
PD_GPU=${PD_GPU-yes}    # Without a GPU the tests fail.
PD_TEST_DEVICE=${PD_TEST_DEVICE-cuda}
export PD_TEST_DEVICE PD_LIBRARY_PATH_BEFORE LD_LIBRARY_PATH UCX_MODULE_DIR PD_SOURCE PD_BUILD PATH PD_GPU

missing=$(ldd bin/pd-worker | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p' | tr '\n' ' ')
[ -z "$missing" ] || { echo "$here: this machine lacks ${missing% }" >&2; exit 3; }

if [ "${1-}" = -- ]; then
	shift
	exec "$@"
fi
[ $# -gt 0 ] || set -- test/unit/cuda-arith test/conform/kernels \
	test/conform/stream test/conform/iteration test/conform/layers test/conform/partition test/conform/devices test/t9002-gpu.sh \
	test/conform/widened test/conform/chunks test/conform/nonfinite test/conform/transfers test/t9004-nccl.sh test/t9003-sanitizer.sh

passed=0 failed=0 skipped=0
for test in "$@"; do
	echo "== $test"
	case $test in
	*.sh) timeout "${PD_TIMEOUT:-900}" sh "$here/$test" ;;
	*) timeout "${PD_TIMEOUT:-900}" "$here/$test" ;;
	esac >"$here/out" 2>&1
	status=$?
	grep -vE '^ok ' "$here/out"
	s=$(grep -cE '^(ok .*|1\.\.0.*)# SKIP' "$here/out")
	p=$(($(grep -cE '^ok ' "$here/out") - $(grep -cE '^ok .*# SKIP' "$here/out")))
	f=$(grep -cE '^not ok ' "$here/out")
	[ $status -eq 0 ] && [ "$p" -gt 0 ] || [ "$f" -gt 0 ] || f=1
	echo "   $p passed, $f failed, $s skipped (status $status)"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$skipped" -eq 0 ]
