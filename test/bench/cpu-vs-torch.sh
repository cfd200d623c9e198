#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training on one CPU thread, ours and PyTorch's, in turn on the same machine: samples per
# second of wall clock and of processor time, medians of three runs, and their ratio.  Not a
# test: it says what it measured.
#     sh test/bench/cpu-vs-torch.sh [MODEL BATCH-SIZE STEPS]...
# PD_BUILD names the build tree, PYTHON a Python that has PyTorch, THREADS how many (1).
source=$(cd "$(dirname "$0")/../.." && pwd)
build=${PD_BUILD:-$source}
python=${PYTHON:-/usr/bin/python3}
threads=${THREADS:-1}

"$python" -c 'import torch' 2>/dev/null || { echo "$0: $python has no PyTorch" >&2; exit 3; }
[ $# -gt 0 ] || set -- fashion-cnn 64 40 vgg16 8 3

# The median of three runs, column N of the lines on standard input.
median() {
	awk -v n="$1" 'NF { print $n }' | sort -g | sed -n 2p
}

say() {
	ours=$(printf '%s\n' "$ours" | median "$2")
	torch=$(printf '%s\n' "$torch" | median "$2")
	printf '    %s %s, PyTorch %s, ratio %s\n' "$1" "$ours" "$torch" \
		"$(awk "BEGIN { printf \"%.2f\", $ours / $torch }")"
}

while [ $# -ge 3 ]; do
	model=$source/share/models/$1.json
	ours= torch=
	for run in 1 2 3; do
		ours="$ours
$("$build/test/bench/speed" "$model" "$2" "$3" cpu "$threads")" || exit 3
		torch="$torch
$("$python" "$source/test/bench/cpu-vs-torch.py" "$model" "$2" "$3" "$threads")" || exit 3
	done
	echo "$1, batch $2, $threads thread(s), training:"
	(say "samples/s" 1)
	(say "samples per second of processor time" 2)
	shift 3
done
