#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures how much of a link a run gets while it computes, between two hosts and in a ring of four
# (contrib/hosts.sh, so root runs it).
#     sh test/bench/rates.sh [RATE]...     (200mbit 500mbit 1gbit) of each host's link
#
#     idle          one direction carries data while nobody computes, as pd-topo measures it
#     activations   tensors of 8.4 MB go from one stage of wide layers to the next, on two hosts
#     gradients     tensors of 8.4 MB go back
#     dense, alone  the ordered exchange of four sums 16.8 MB, behind the whole backward
#     ring, alone   rings of four sum 16.8 MB, behind the whole backward
#     ring          rings of four sum 16.8 MB, while the backward of convolutions goes on
#
# A transfer lasts from when both its sides were ready to when it had arrived.  A sum lasts from when the
# last member began to when the last had it.  Bytes are those of tensors: without headers, of which a link
# has 4.4 %, and without the 256 KB that a shaper lets through at once.  The table has medians: megabytes
# per second of each host, in percent of RATE and of idle, and the share of this time in which hosts
# computed.  All hosts share this machine's processors, and packets need them, too.
#
# TRANSFERS (10) is the number of each kind.  rates.svg goes to the folder OUT (.).  The script takes about
# two minutes on two processors.
set -e
. "$(dirname "$0")/bench-lib.sh"
transfers=${TRANSFERS:-10}

# ---- This part runs on the first of the hosts. ----

# megabytes_per_s OPERATION: prints the median rate of the operation in the trace, and the percent of that
# time that is computed.  Records of one transfer or sum have the same number; the first three warm up.
megabytes_per_s() {
	jq -n --arg kind "$1" '
		[inputs | select(.op)] as $all |
		([$all[].rank] | max + 1) as $ranks |
		[$all[] | select(.op | test("^(forward|backward)"))] as $computing |
		[[$all[] | select((.op | sub("send_|recv_"; "")) == $kind and (.bucket // 1) == 1)] |
			group_by(.seq)[] |
			{bytes: (map(.sent_bytes // .bytes) | max), begin: map(.start_ns) | max,
			 end: map(.end_ns) | max}][3:] |
		map(.begin as $from | .end as $to | ($to - $from) as $ns |
			[(.bytes - 262144) * 1e3 / $ns,
			 ([$computing[] | select(.start_ns < $to and .end_ns > $from) |
				([.end_ns, $to] | min) - ([.start_ns, $from] | max)] | add // 0) * 100 / $ns / $ranks]) |
		sort | (.[(length - 1) / 2 | floor] // error("too few TRANSFERS")) |
		@text "\(.[0])\t\(.[1])"' -r "$work/trace"
}

# line WHAT OPERATION: adds a line to the table.
line() {
	megabytes_per_s "$2" >"$work/figures"
	printf '%s\t%s\t%s\t%s\t%s\n' "$rate" "$1" "$(cat "$work/figures")" "$idle" "$others" >>"$table"
	tail -n 1 "$table" >&2
}

# plan PROFILE OPTION...: writes $work/plan.
plan() {
	profile=$1
	shift
	pd-plan --topology="$work/topology" --processors="$(nproc)" "$@" "$profile" >"$work/plan"
}

on_hosts() {
	mpirun --host "$PD_HOSTS" -np 4 pd-topo >"$work/topology" 2>"$work/links"
	cat "$work/links" >&2
	idle=$(jq '.levels[0].bandwidth_bytes_per_s / 1e6' "$work/topology")
	plan wide --stages=7,6
	train $((transfers + 4)) "$work/plan"
	line activations activation
	line gradients gradient
	layers=$(jq '.layers | length' rings)
	for reducer in dense ring; do
		plan rings --stages="${layers}x4" --all-reduce="$reducer"
		train $((4 * (transfers + 3))) "$work/plan"
		line "$reducer, alone" allreduce
	done
	plan rings --stages="${layers}x4" --all-reduce=ring --bucket=1MB
	train $((4 * (transfers + 3))) "$work/plan"
	line ring allreduce
}

if [ -n "${PD_NETNS-}" ]; then
	on_hosts
	exit
fi

# ---- This part runs before and after the hosts. ----

# The network wide has large tensors between stages, and rings has gradients for a large bucket.
folder=$(mktemp -d)
trap 'rm -rf "$work" "$folder"' EXIT
cd "$folder"
[ $# -gt 0 ] || set -- 200mbit 500mbit 1gbit
pd-model mlp --layers=6 --hidden=4096 >wide.json
jq -n '{format: "pd-model", version: 1, name: "rings", inputs: [
		{name: "image", dtype: "f32", shape: [64, 32, 32]}, {name: "label", dtype: "i32", shape: []}],
	layers: ([range(8) | {name: "conv\(.)", kind: "conv2d", out_channels: 64, kernel: 3, padding: 1}] + [
		{name: "pool", kind: "maxpool2d", kernel: 4, stride: 4}, {name: "flatten", kind: "flatten"},
		{name: "fc", kind: "linear", out_features: 1024}])} |
	.layers |= (. as $all | to_entries | map(.value.inputs = [$all[.key - 1].name] | .value)) |
	.layers[0].inputs = ["image"] |
	.layers += [{name: "loss", kind: "softmax_cross_entropy", inputs: ["fc", "label"]}]' >rings.json
pd-profile --threads=1 --no-link --batch-size=512 --iterations=1 wide.json >wide
pd-profile --threads=1 --no-link --batch-size=32 --iterations=1 rings.json >rings
table=$folder/table
: >"$table"
for rate; do
	export rate table transfers
	sh "$source/contrib/hosts.sh" --rate="$rate" --limit=300 4 sh "$source/test/bench/${0##*/}"
done
cd - >/dev/null
awk -F '\t' '
	function mega(rate) { return rate / 8 * (rate ~ /gbit/ ? 1e3 : 1) }
	$1 != last { last = $1
		printf "%-8s %-12s %7.1f MB/s  %5.1f %% of the rate\n", $1, "idle", $5, 100 * $5 / mega($1) }
	{ printf "%-8s %-12s %7.1f MB/s  %5.1f %% of the rate  %5.1f %% of idle; computing %3.0f %%; others %d %%\n",
		$1, $2, $3, 100 * $3 / mega($1), 100 * $3 / $5, $4, $6 }' "$table"
awk -F '\t' -v OFS='\t' '{ print $2, $1, $3, $5 }' "$table" |
	awk -f "$source/test/bench/plot.awk" -v kind=bars -v title="Links while hosts compute" \
		-v ylabel="megabytes per second" -v other=idle >"$out/rates.svg"
