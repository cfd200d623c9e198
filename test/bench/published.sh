#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints what pd-plan predicts for published profiles on the machines of PipeDream's evaluation (SOSP 2019,
# tables 1 and 2), beside what the paper measured: configuration, and speed-up over data parallelism per
# epoch.  Each profile is planned as it is, and with times and activations scaled to the minibatch of the
# paper.
#     sh test/bench/published.sh [PROFILES]
# PROFILES is a folder of pd-profile documents named as below (../shared/profiles).  Documents that are not
# there are left out.  PD_BUILD names the build tree.  test/README says where the figures differ, and why.
set -e
. "$(dirname "$0")/bench-lib.sh"
profiles=${1:-$source/../shared/profiles}
pcie=12GB/s nvlink=30GB/s slow=1.25GB/s fast=3.125GB/s

# scaled BATCH PROFILE: prints the profile with the times and sizes of minibatches of so many samples.
scaled() {
	jq --argjson batch "$1" '($batch / .batch_size) as $by | .batch_size = $batch |
		.layers |= map(reduce ("forward_ns", "backward_ns", "activation_bytes") as $key
			(.; .[$key] = (.[$key] * $by | round)))' "$2"
}
# planned PROFILE TOPOLOGY: prints replicas by stage, and gain, and leaves the plan's limit in $limit.
planned() {
	pd-plan -e -t "$2" "$1" >"$work/plan" 2>"$work/explained"
	limit=$(sed -n 's/^limit: \([^,]*\),.*(\(.*\) of the period.*/\1 (\2)/p' "$work/explained")
	jq -r 'def runs: reduce .[] as $r ([]; if length > 0 and .[-1][0] == $r then .[-1][1] += 1
			else . + [[$r, 1]] end) |
			map(if .[1] > 2 then "\(.[0])x\(.[1])" else .[0] as $r |
				[range(.[1])] | map("\($r)") | join("-") end) | join("-");
		[([.stages[].replicas] | runs), .predicted.speedup_over_data_parallel] | @tsv' \
		"$work/plan"
}
row='%-10s %-7s  %-9s %6.6s  %6s  %-15s %6.6s  %6s  %-15s %6.6s  %s\n'
printf "$row" "" "" paper "" "the" "profile's" "" "the" "paper's" "" ""
printf "$row" model machine "" gain batch planned gain batch planned gain "what limits the latter"
# Each line has model, machine, topology, the paper's minibatch, configuration and speed-up per epoch.
while read -r model machine topology batch configuration speedup; do
	[ -e "$profiles/$model.json" ] || continue
	topology=$(eval echo "$topology")
	scaled "$batch" "$profiles/$model.json" >"$work/scaled"
	own=$(jq .batch_size "$profiles/$model.json")
	planned "$profiles/$model.json" "$topology" >"$work/as-is"
	planned "$work/scaled" "$topology" >"$work/at-batch"
	read -r first first_gain <"$work/as-is"
	read -r second second_gain <"$work/at-batch"
	printf "$row" "$model" "$machine" "$configuration" "$speedup" "$own" "$first" \
		"$(printf %.2f "$first_gain")" "$batch" "$second" "$(printf %.2f "$second_gain")" \
		"$limit"
done <<'END'
vgg16 4x4-A 4@$pcie,4@$slow 64 15-1 5.28
vgg16 2x8-B 8@$nvlink,2@$fast 64 15-1 2.98
resnet50 4x4-A 4@$pcie,4@$slow 128 16 1
resnet50 2x8-B 8@$nvlink,2@$fast 128 16 1
alexnet 4x4-A 4@$pcie,4@$slow 256 15-1 4.92
alexnet 2x8-B 8@$nvlink,2@$fast 256 15-1 2.04
gnmt_large 1x4-A 4@$pcie 64 straight 1.46
gnmt_large 4x4-A 4@$pcie,4@$slow 64 straight 2.34
gnmt_large 2x8-B 8@$nvlink,2@$fast 64 straight 3.14
gnmt 1x4-A 4@$pcie 64 straight 1.5
gnmt 3x4-A 4@$pcie,3@$slow 64 straight 2.95
gnmt 2x8-B 8@$nvlink,2@$fast 64 16 1
END
cat <<'END'

"gain" is how many times as fast as data parallelism.  Configurations are replicas by stage, AxN
standing for N stages of A; machines A: V100 over PCIe, 10 Gbit/s; B: V100 over NVLink, 25 Gbit/s;
16 GB each.  test/README says why predictions and measurements differ.
END
