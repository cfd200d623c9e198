#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shows whether the sum over a profile's layers predicts a training step.  For each model it prints the sum
# of forward, backward and update over the layers, the step that pd-profile measured as a whole, the step of
# a run of one worker (median time between its updates in a trace), and the differences.
#     sh test/bench/sum-of-layers.sh [MODEL BATCH-SIZE MINIBATCHES]...
# PD_BUILD names the build tree.
set -e
source=$(cd "$(dirname "$0")/../.." && pwd)
PATH=${PD_BUILD:-$source}/bin:$PATH
[ $# -gt 0 ] || set -- fashion-cnn 64 100 resnet18 8 20 vgg16 8 10
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

while [ $# -ge 3 ]; do
	pd-profile --threads=1 --batch-size="$2" "$source/share/models/$1.json" >"$work/profile"
	pd-plan --gpus=1 "$work/profile" >"$work/plan"
	pd-run --synthetic --threads=1 --minibatches="$3" --trace="$work/trace" "$work/plan" >"$work/out"
	sum=$(jq '[.layers[] | .forward_ns + .backward_ns + (.update_ns // 0)] | add' "$work/profile")
	whole=$(jq .step_ns "$work/profile")
	run=$(tail -n +2 "$work/trace" | jq -s '[.[] | select(.op == "step").end_ns] | sort |
		[.[1:], .[:-1]] | transpose | map(.[0] - .[1]) | sort | .[length / 2 | floor]')
	awk -v n="$1" -v b="$2" -v s="$sum" -v w="$whole" -v r="$run" 'BEGIN {
		printf "%s, batch %s: layers %.2f ms, step %.2f ms (%+.1f %%), run %.2f ms (%+.1f %%)\n",
			n, b, s / 1e6, w / 1e6, (w / s - 1) * 100, r / 1e6, (r / s - 1) * 100 }'
	shift 3
done
