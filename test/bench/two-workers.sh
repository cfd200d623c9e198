#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares two pipelined workers with one, each on one thread, in turn on the same machine.  It prints
# samples per second of training, medians of RUNS runs (5), and their ratio, for the plan that pd-plan makes
# of the network for two straight stages, and the plan's own prediction beside it.
#     sh test/bench/two-workers.sh [MODEL BATCH-SIZE MINIBATCHES]...
# DATA is the data set (Debian's Fashion-MNIST), which fits fashion-cnn and lenet5.  Other models train on
# made-up data, in one epoch.  PD_BUILD names the build tree.
set -e
source=$(cd "$(dirname "$0")/../.." && pwd)
PATH=${PD_BUILD:-$source}/bin:$PATH
[ $# -gt 0 ] || set -- fashion-cnn 64 150
data=${DATA:-/usr/share/datasets/fashion-mnist}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

rate() {
	pd-run $source_of_data --threads=1 --minibatches="$2" --report-every=1000000 "$1" |
		jq 'select(.event == "done").samples_per_s'
}

while [ $# -ge 3 ]; do
	case $1 in
	fashion-cnn|lenet5) source_of_data="--data=$data --no-evaluate" ;;
	*) source_of_data=--synthetic=$3 ;;
	esac
	pd-profile --threads=1 --batch-size="$2" "$source/share/models/$1.json" >"$work/profile"
	pd-plan --gpus=1 "$work/profile" >"$work/one"
	pd-plan --gpus=2 --straight "$work/profile" >"$work/two"
	: >"$work/rates"
	for run in $(seq "${RUNS:-5}"); do
		echo "$(rate "$work/one" "$3") $(rate "$work/two" "$3")" >>"$work/rates"
	done
	predicted=$(jq -s '.[0].predicted.period_ns / .[1].predicted.period_ns' \
		"$work/one" "$work/two")
	awk '{ print $1 }' "$work/rates" | sort -g >"$work/ones"
	awk '{ print $2 }' "$work/rates" | sort -g >"$work/twos"
	awk '{ print $2 / $1 }' "$work/rates" | sort -g >"$work/ratios"
	middle=$(((${RUNS:-5} + 1) / 2))
	printf '%s, batch %s: one worker %.1f samples/s, two %.1f, ratio %.2f, predicted %.2f\n' \
		"$1" "$2" "$(sed -n ${middle}p "$work/ones")" "$(sed -n ${middle}p "$work/twos")" \
		"$(sed -n ${middle}p "$work/ratios")" "$predicted"
	shift 3
done
