#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares training steps of networks of sequences on the CPU, ours and PyTorch's, eager and compiled, in
# turn.  The table is that of cpu-vs-torch.sh, which says what can be set.
#     sh test/bench/sequences-vs-torch.sh [NETWORK STEPS]...       (gpt 10 lstm 5 gnmt 5)
# gpt has 6 blocks of 256 with 8 heads, and 8 x 256 bytes.  lstm has 400-1150-1150-400, vocabulary 10,000,
# and 20 x 70 tokens.  gnmt is GNMT-8 with 256 hidden features, vocabulary 32,320, and 32 pairs of 50
# tokens, all of the full length.  None has dropout.  MEMORY=yes prints another table, in MB: the most
# memory that a process of each had resident in as many steps, and what PyTorch has before it makes a
# network.
source=$(cd "$(dirname "$0")/../.." && pwd)
build=${PD_BUILD:-$source}
python=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d) || exit 3
trap 'rm -rf "$work"' EXIT

"$python" -c 'import torch' 2>/dev/null || { echo "$0: $python has no PyTorch" >&2; exit 3; }
[ $# -gt 0 ] || set -- gpt 10 lstm 5 gnmt 5
"$build/bin/pd-model" gpt-bytes --dropout=0 --name=gpt >"$work/gpt.json" &&
	"$build/bin/pd-model" awd-lm --dropout=0 --alpha=0 --beta=0 --lanes=0 | jq '.name = "lstm" |
		.layers |= map(if .kind == "lstm" then del(.weight_dropout) else . end)' \
		>"$work/lstm.json" &&
	"$build/bin/pd-model" gnmt --hidden=256 --dropout=0 --name=gnmt |
		jq 'del(.inputs[1]) | .layers |= map(.inputs -= ["source_length"])' \
		>"$work/gnmt.json" || exit 3
if [ -n "$MEMORY" ]; then
	printf '%-12s %5s %-4s  %8s %8s %8s %8s\n' model batch type ours eager compiled torch
else
	printf '%-12s %5s %-4s  %-26s %-26s %-26s %s\n' model batch type \
		'ours: processor, wall (ms)' 'eager' 'compiled' 'times as fast: processor, wall'
fi
while [ $# -ge 2 ]; do
	for type in ${TYPES:-f32 bf16}; do
		"$python" "$source/test/bench/sequences-vs-torch.py" "$work/$1.json" "$2" "$type" \
			"${THREADS:-1}" "${ROUNDS:-5}" "$build/test/bench/speed" \
			${MEMORY:+memory} || exit 3
	done
	shift 2
done
