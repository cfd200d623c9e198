#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sequences per second of GPT of 2.2 and 3.8 billion parameters on 64 V100, by plans and replays of profiles by data
# sheet, beside what PipeDream-2BW's paper measured (Narayanan and others, Memory-Efficient Pipeline-Parallel DNN
# Training, arXiv 2006.09503, figure 6, read off a drawing): tensor parallelism over 8 and over 16 devices, no
# pipelining, GPipe, flush and 2BW.
#     sh test/bench/2bw-degrees.sh
# The device is v100-16 with PyTorch's kernels of 2020: scores in memory, 60 us from one kernel to the next, 0.52 of the
# products, which fit the paper's figure 12 (one server, 2.2 billion, microbatches of 1 to 16: +12 -7 -3 -1 +1 %),
# and sums that nothing hides.  Gradients travel in 16 bits.  "exposed" is the paper's own formula, where a stage
# computes, its transfers being over: its replicas share a server's link.  PD_BUILD names the build tree.
# test/README says where the figures differ, and why.
set -e
. "$(dirname "$0")/bench-lib.sh"
PD_DEVICES=$source/share/devices
export PD_DEVICES
machine=8@150GB/s,8@3.125GB/s

jq '.attention = "unfused" | .kernel_ns = 60000 | .overlap_cost = 1 | .efficiency.products = 0.52 | .link.efficiency = 0.7' \
	"$PD_DEVICES/v100-16.json" >"$work/v100.json"
# Sixteen devices are two servers: the link between them.
jq '.link.bandwidth_bytes_per_s = 3125000000 | .link.latency_ns = 20000' "$work/v100.json" >"$work/apart.json"

# profiles NETWORK: writes those of several microbatches.
profiles() {
	pd-model "gpt-$1" >"$work/$1.json"
	for samples in 1 2 4 8 16; do
		pd-profile --device="$work/v100.json" --dtype=f16 --batch-size=$samples "$work/$1.json" >"$work/b$samples.json"
	done
}
# speed PLAN: prints sequences per second.
speed() {
	jq -r '.predicted.samples_per_s' "$1"
}
# tensor NETWORK DEVICES BATCH DEVICE: prints the best of what fits, all blocks recomputed.
tensor() {
	for samples in 4 8 16; do
		pd-profile --device="$4" --dtype=f16 --batch-size=$samples --tensor="$2" "$work/$1.json" >"$work/group.json"
		pd-plan -t $machine --group-spans --weights=flush -q --microbatches=$(($3 / samples)) --recompute=0 \
			--stages="$(jq '.layers | length' "$work/group.json")x$((64 / $2))" --gradient-dtype=f16 \
			--memory-margin=0 --memory-model=megatron "$work/group.json" >"$work/plan.json" 2>"$work/why" || continue
		speed "$work/plan.json"
	done | sort -g | tail -n 1
}
# pipeline STAGES BATCH OPTION...: prints that of the best microbatch, and leaves the plan.
pipeline() {
	stages=$1 batch=$2
	shift 2
	pd-plan -t $machine --batch="$batch" --stages="$stages" --gradient-dtype=f16 -q "$@" "$work"/b*.json >"$work/plan.json" &&
		speed "$work/plan.json"
}
# exposed OUTSIDE: prints 2BW's by the formula: the blocks of a stage, with a recomputation, and its transfers each way
# over OUTSIDE links between servers.
exposed() {
	jq -r --argjson outside "$1" '(.stages | length) as $depth | .stages[0].replicas as $width | .profile |
		.batch_size as $samples | (.layers[] | select(.name == "h.1.mlp.add") | .activation_bytes) as $bytes |
		([.layers[] | select(.name | startswith("h.")) | 2 * .forward_ns + .backward_ns] | add / $depth) as $ns |
		1e9 * $width * $samples / ($ns + 2 * $outside * $width * $bytes / 3.125)' "$work/b16.plan"
}
row='%-8s %-9s %6s  %8s %8s %6s %10s\n'
# shellcheck disable=SC2059
printf "$row" network way batch ours paper "" "2BW, times"
# say WAY OURS PAPER: prints a line; the last one given is 2BW.
say() {
	# shellcheck disable=SC2059
	printf "$row" "$network" "$1" "$batch" "$(printf %.1f "$2")" "$3" \
		"$(awk "BEGIN { printf \"%+.0f%%\", 100 * ($2 / $3 - 1) }")" \
		"$(awk "BEGIN { printf \"%.1f (%.1f)\", $fastest / $2, $theirs / $3 }")"
}
while read -r network batch degree blocks stages width outside none tensor gpipe flush theirs; do
	profiles "$network"
	list="megatron:Et*$blocks|(t*$blocks|)*$((stages - 2))t*${blocks}Lx$width"
	device=$work/v100.json
	[ "$degree" = 8 ] || device=$work/apart.json
	fastest=$(pipeline "$list" "$batch" --weights=2bw)
	say 2bw "$fastest" "$theirs"
	jq --slurpfile b "$work/b16.json" '.profile = $b[0]' "$work/plan.json" >"$work/b16.plan"
	say exposed "$(exposed "$outside")" "$theirs"
	say flush "$(pipeline "$list" "$batch" --weights=flush)" "$flush"
	say gpipe "$(pipeline "$list" "$batch" --schedule=gpipe)" "$gpipe"
	say none "$(pipeline "$list" "$batch" --schedule=none)" "$none"
	say "tensor $degree" "$(tensor "$network" "$degree" "$batch" "$device")" "$tensor"
done <<'END'
2.2b 512 8 4 8 8 2 27 90 81 114 164
2.2b 2048 8 4 8 8 2 27 157 81 147 169
3.8b 512 16 2 16 4 1 12 5.5 39 83 127
3.8b 2048 16 2 16 4 1 12 7 39 118 136
END
network=3.8b
profiles 3.8b
for batch in 512 2048; do
	fastest=$(pipeline "megatron:Et*2|(t*2|)*14t*2Lx4" $batch --weights=2bw)
	own=$(tensor 3.8b 8 $batch "$work/v100.json")
	# shellcheck disable=SC2059
	printf "$row" 3.8b "tensor 8" $batch "$(printf %.1f "$own")" - "" "$(awk "BEGIN { printf \"%.1f\", $fastest / $own }")"
done
