#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares what each schedule and rule for weight versions costs in memory and time, on the same four stages
# of a VGG-style network (vgg11.json, images of 32 x 32), with one thread a rank.  The figures are the peak
# of what each rank allocates and the samples trained per second, measured and predicted.
#     sh test/bench/memory-time.sh
# PD_BUILD names the build tree.  memory.svg (bytes of every rank, with what the plan predicted as a tick)
# and memory-time.svg (the fullest rank against the time of a sample) go to the folder OUT (.).  RUNS (3) is
# the number of rounds; each has all kinds, and figures are medians.  A round takes some two minutes on two
# processors.
#
# A microbatch has 16 samples.  none (model parallelism), gpipe, flush (1f1b) and 2bw make an update of 8 of
# them, and need a second buffer of gradients to add them up.  stash and vertical-sync make an update of
# each.  gpipe keeps the activations of all 8 microbatches, the others those of as many as there are stages
# from here on.  The weights are there once with none, gpipe and flush, and twice with 2bw.  stash has as
# many versions as microbatches are in flight, so it has most where such a network has few weights;
# vertical-sync has as many at every stage.  stash, vertical-sync and 2bw never drain the pipeline and
# should be equally fast, flush and gpipe slower by their bubble.  Predicted time is that of the plan
# replayed on as many processors as there are; if ranks are more, they take turns.
set -e
. "$(dirname "$0")/bench-lib.sh"
microbatches=48
cut=9,3,4,14

# Ranks share the processors if there are fewer than four, so the profile is of as many workers as run at
# once.
pd-profile --threads=1 --workers=$(($(nproc) < 4 ? $(nproc) : 4)) --batch-size=16 --iterations=9 \
	"$source/test/bench/vgg11.json" >"$work/profile"
plan() {
	pd-plan --gpus=4 --stages=$cut $2 "$work/profile" >"$work/plan"
	pd-schedule --minibatches=$((microbatches / $(jq .microbatches "$work/plan"))) \
		"$work/plan" >"$work/$1.schedule"
	echo "$1" >>"$work/kinds"
}
plan none "--schedule=none --microbatches=8"
plan gpipe "--schedule=gpipe --microbatches=8"
plan flush "--weights=flush --microbatches=8"
plan stash "--weights=stash"
plan vertical-sync "--weights=vertical-sync"
plan 2bw "--weights=2bw --microbatches=8"

# once KIND: runs a round, and adds a line "KIND samples/s predicted-samples/s others" to $work/rates.
once() {
	quietly pd-run --synthetic --threads=1 --trace="$work/trace" "$work/$1.schedule" \
		>"$work/$1.out"
	pd-replay "$work/trace" | awk -v kind="$1" -v others="$others" '
		/^samples per second/ { rate = $4 }
		/^the plan, replayed/ { sub(/.*: /, ""); over = $1 / 100 }
		END { print kind, rate, rate * (1 + over), others }' >>"$work/rates"
}
for run in $(seq "${RUNS:-3}"); do
	while read -r kind; do
		once "$kind" </dev/null
	done <"$work/kinds"
done

column() {
	awk -v kind="$1" -v n="$2" '$1 == kind { print $n }' "$work/rates" | median
}
printf '%s\n%-14s  %31s  %12s  %19s  %7s\n%-14s  %7s %7s %7s %7s  %12s  %9s %9s  %7s\n' \
	"VGG-11, 4 stages, microbatches of 16; $(nproc) processors" \
	"" "MB allocated by rank" "difference" "samples/s" "others" \
	"" 0 1 2 3 "to the plan" measured predicted "busy, %"
while read -r kind; do
	measured=$(column "$kind" 2) predicted=$(column "$kind" 3)
	jq -r 'select(.event == "done") | [.memory_bytes, .predicted_memory_bytes] | transpose[] | @tsv' \
		"$work/$kind.out" >"$work/memory"
	awk -v kind="$kind" -v measured="$measured" -v predicted="$predicted" \
		-v others="$(column "$kind" 4)" -v bars="$work/bars" -v points="$work/points" '
	{
		row = row sprintf("%7.1f ", $1 / 1e6)
		off += $1 > $2 ? $1 - $2 : $2 - $1
		most = $1 > most ? $1 : most
		planned = $2 > planned ? $2 : planned
		printf "rank %d\t%s\t%f\t%f\n", NR - 1, kind, $1 / 1e6, $2 / 1e6 >>bars
	}
	END {
		printf "%-14s  %s %6d bytes  %9.1f %9.1f  %7.0f\n", kind, row, off, measured,
			predicted, others
		printf "measured\t%f\t%f\t%s\n", most / 1e6, 1e3 / measured, kind >>points
		printf "predicted\t%f\t%f\t%s\n", planned / 1e6, 1e3 / predicted, kind >>points
	}' "$work/memory"
done <"$work/kinds"

draw() {
	awk -f "$source/test/bench/plot.awk" "$@"
}
draw -v kind=bars -v ylabel="MB allocated" -v other=predicted \
	-v title="Memory of each rank: VGG-11, 4 stages" "$work/bars" >"$out/memory.svg"
draw -v kind=points -v zero=1 -v xlabel="MB allocated by the fullest rank" \
	-v ylabel="ms per sample" -v title="Memory against time: VGG-11, 4 stages" \
	-v remark="filled: measured, hollow: predicted" \
	"$work/points" >"$out/memory-time.svg"
