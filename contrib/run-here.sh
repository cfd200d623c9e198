#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In a folder made by contrib/gpu-bundle.sh: runs there what `make check-gpu` runs, on a machine
# that has a GPU and CUDA's libraries.  Arguments: the tests to run, or a command after --.
#
#     sh run-here.sh                          all; ends with "N passed, N failed, N skipped"
#     sh run-here.sh test/conform/layers      some
#     PD_TIMEOUT=500 sh run-here.sh ...       no test longer than that; else 900 s each
#     sh run-here.sh -- bin/pd-profile ...    anything, with the libraries found
set -u

here=$(cd "$(dirname "$0")" && pwd)
cd "$here" || exit 1

# CUDA's libraries: the toolkit's, else those that came with Python packages (nvidia/cu13/lib,
# nvidia/cudnn/lib, nvidia/nccl/lib and so on)
paths=
for folder in /usr/local/cuda/lib64 /usr/local/nvidia/lib64 \
	$(python3 -c 'import glob, site, sys
for root in {*site.getsitepackages(), *sys.path}:
    print(*glob.glob(root + "/nvidia/*/lib"))' 2>/dev/null); do
	[ -d "$folder" ] && paths=$paths:$folder
done
PD_LIBRARY_PATH_BEFORE=${LD_LIBRARY_PATH-}      # for PyTorch, which finds its own
LD_LIBRARY_PATH=$here/lib$paths${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
UCX_MODULE_DIR=$here/lib/ucx
PD_SOURCE=$here PD_BUILD=$here PATH=$here/bin:$PATH
PD_GPU=${PD_GPU-yes}    # that there is none is a failure
export PD_LIBRARY_PATH_BEFORE LD_LIBRARY_PATH UCX_MODULE_DIR PD_SOURCE PD_BUILD PATH PD_GPU

missing=$(ldd bin/pd-worker | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p' | tr '\n' ' ')
[ -z "$missing" ] || { echo "$here: this machine lacks ${missing% }" >&2; exit 3; }

if [ "${1-}" = -- ]; then
	shift
	exec "$@"
fi
[ $# -gt 0 ] || set -- test/unit/cuda-arith test/t9001-gpu.sh test/conform/kernels \
	test/conform/stream test/conform/iteration test/conform/layers test/conform/partition test/conform/devices test/t9002-gpu.sh \
	test/conform/widened test/conform/transfers test/t9004-nccl.sh test/t9003-sanitizer.sh

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
	[ $status -eq 0 ] || [ "$f" -gt 0 ] || f=1
	echo "   $p passed, $f failed, $s skipped (status $status)"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
