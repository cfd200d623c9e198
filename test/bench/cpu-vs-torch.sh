#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares training steps on the CPU, ours and PyTorch's, in turn: milliseconds of processor time and of
# wall clock per step, medians over all rounds, and how many times as fast ours is as the faster of
# PyTorch's two.  PyTorch's are with channels last, eager and compiled; bf16 is by autocast.  This is not a
# test: it prints what it measured, and its progress on standard error.
#     sh test/bench/cpu-vs-torch.sh [MODEL BATCH-SIZE STEPS]...
# A round is a process of ours, and as many steps of PyTorch's; the first two steps of either do not count.
# PD_BUILD names the build tree, PYTHON a Python that has PyTorch 2 (its compiler needs g++).  THREADS is
# the number of threads (1), ROUNDS that of rounds (5), TYPES some of f32 and bf16 (both).
source=$(cd "$(dirname "$0")/../.." && pwd)
build=${PD_BUILD:-$source}
python=${PYTHON:-/usr/bin/python3}

"$python" -c 'import torch' 2>/dev/null || { echo "$0: $python has no PyTorch" >&2; exit 3; }
[ $# -gt 0 ] || set -- fashion-cnn 64 20 resnet50 8 3 vgg16 8 3
printf '%-12s %5s %-4s  %-26s %-26s %-26s %s\n' model batch type 'ours: processor, wall (ms)' \
	'eager' 'compiled' 'times as fast: processor, wall'
while [ $# -ge 3 ]; do
	for type in ${TYPES:-f32 bf16}; do
		"$python" "$source/test/bench/cpu-vs-torch.py" "$source/share/models/$1.json" \
			"$2" "$3" "$type" "${THREADS:-1}" "${ROUNDS:-5}" "$build/test/bench/speed" ||
			exit 3
	done
	shift 3
done
