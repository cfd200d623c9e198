#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares a pipeline with data parallelism on four hosts, as in Table 1 of the SOSP 2019 paper.  Hosts are
# those of contrib/hosts.sh, so root runs it.  Links are shaped so that data parallelism spends as much of
# its time in communication as in the paper (Figure 1, 10 Gbit/s: 91 to 96 % for VGG-16, 88 % for the
# language model).  For each network the script runs pd-profile with workers on all processors, pd-topo on
# the hosts, and pd-plan.  Then it runs data parallelism, ours and PyTorch's (DDP over gloo), and the plan
# there.
#     sh test/bench/hosts.sh [vgg16|lstm|mlp]...     (default: vgg16 and lstm)
# mlp is small, and shows whether everything is there.
#
# The output has seconds per minibatch, predicted and measured, with the error; megabytes that all hosts'
# interfaces sent per minibatch, likewise; how many times as fast as data parallelism the plan is; and the
# percent of the processors that others took.  What DDP sends includes its parameters, once.  All hosts
# share this machine's processors, so pd-plan is told how many there are (--processors).
#
# SHARE is the percent of a step of data parallelism that is communication (vgg16 91, lstm 88).  RATE, such
# as 500mbit, sets the rate of links instead.  STEPS (2) are updates of data parallelism, BATCH (16, 20) is
# the number of samples.  PYTHON has PyTorch; otherwise DDP is left out.  hosts.svg and hosts.tsv go to the
# folder OUT (.).  The script takes some six minutes on two processors that nobody else uses.
#
# A prediction is for the machine that was profiled.  If a profile after the runs differs from that before
# them by more than DRIFT (5) percent, all is done again, up to TRIES (3) times.
set -e
. "$(dirname "$0")/bench-lib.sh"
steps=${STEPS:-2}

# ---- This part runs on the first of the hosts. ----

# line NAME MINIBATCHES SECONDS PLAN: adds a line to the table: seconds and megabytes per minibatch,
# predicted and measured.
line() {
	jq -r --arg name "$1" --argjson n "$2" --argjson s "$3" --argjson bytes "$bytes" --arg others "$others" '
		[$name, .predicted.period_ns / 1e9, $s,
		 .predicted.sent_bytes_per_sample * .profile.batch_size / 1e6, $bytes / $n / 1e6, $others] |
		@tsv' "$4" >>"$table"
	tail -n 1 "$table" >&2
}

# measure NAME PLAN MINIBATCHES: trains, with one rank on each of the first hosts, and adds a line.
measure() {
	train "$3" "$2"
	# A few updates have no period, so all the time counts.
	seconds=$(pd-replay --format=json "$work/trace" |
		jq --argjson n "$3" '(.period_ns // .elapsed_ns / $n) / 1e9')
	line "$1" "$3" "$seconds" "$2"
}

on_hosts() {
	mpirun --host h1,h2,h3,h4 -np 4 pd-topo -q >"$work/topology.json"
	jq -r '.levels[0] | "link: \(.bandwidth_bytes_per_s / 1e6) MB/s, \(.latency_ns / 1e3) us"' \
		"$work/topology.json" >&2
	layers=$(jq '.layers | length' profile.json)
	# pd-plan expects ranks that share processors to share a memory.  These do not, so they sum in a ring.
	plan="pd-plan --topology=$work/topology.json --processors=$(nproc) --all-reduce=ring"
	$plan --stages="${layers}x4" --bucket=auto profile.json >"$work/parallel.json"
	$plan profile.json >"$work/plan.json"
	jq -r '"plan: " + ([.stages[] | "\(.layers | length)x\(.replicas)"] | join(","))' \
		"$work/plan.json" >&2
	measure "$network data parallel" "$work/parallel.json" $((4 * steps))
	measure "$network pipeline" "$work/plan.json" $((20 * steps))
	has_torch || return 0
	train_ddp 4 model.json "$batch" "$steps"
	line "$network PyTorch DDP" $((4 * (steps + 1))) "$(echo "$seconds" | awk '{ print $1 / 4 }')" \
		"$work/parallel.json"
}

if [ -n "${PD_NETNS-}" ]; then
	on_hosts
	exit
fi

# ---- This part runs before and after the hosts. ----

profile() {
	quietly pd-profile --threads=1 --workers="$(nproc)" --batch-size="$batch" model.json
}

# prepare NETWORK: makes model.json and profile.json, and sets the rate of links, in bits per second.
prepare() {
	case $network in
	vgg16) share=${SHARE:-91} batch=${BATCH:-16}
		pd-model vgg16 --size=32 --classes=10 --dropout=0 >model.json ;;
	lstm) share=${SHARE:-88} batch=${BATCH:-20}
		# The network has six layers, as in the paper, and halves that take equally long.
		pd-model awd-lm --name=lstm --layers=6 --hidden=640 --embedding=640 --vocabulary=2000 \
			--untied --sequence=16 --lanes=0 --dropout=0 --alpha=0 --beta=0 >model.json ;;
	mlp) share=${SHARE:-90} batch=${BATCH:-16}
		pd-model mlp >model.json ;;
	*) echo "hosts.sh: expected vgg16, lstm or mlp, found $network" >&2; exit 2 ;;
	esac
	profile >profile.json
	pd-plan --topology=4@1GB/s --stages="$(jq '.layers | length' profile.json)x4" \
		--all-reduce=ring profile.json >parallel.json
	rate=${RATE:-$(jq --argjson share "$share" --argjson processors "$(nproc)" '
		([.profile.layers[] | .forward_ns + .backward_ns + (.update_ns // 0)] | add / 1e9) as $step |
		([4 / $processors, 1] | max * $step) as $computes |
		# These bytes are of a rank, for all four minibatches.
		.predicted.sent_bytes_per_sample * .profile.batch_size as $bytes |
		8 * $bytes / ($computes * $share / (100 - $share)) | floor' parallel.json)bit}
	echo "$network: links of $rate; others took $others % while it was profiled" >&2
}

folder=$(mktemp -d)
trap 'rm -rf "$work" "$folder"' EXIT
cd "$folder"
[ $# -gt 0 ] || set -- vgg16 lstm
table=$folder/these
: >"$folder/table"
for network; do
	for try in $(seq "${TRIES:-3}"); do
		: >"$table"
		prepare
		export network batch table
		sh "$source/contrib/hosts.sh" --rate="$rate" --limit=900 4 sh "$source/test/bench/hosts.sh"
		profile >again.json
		drift=$(drift profile.json again.json)
		echo "$network: a step takes $drift % longer than before" >&2
		[ "${drift#-}" -gt "${DRIFT:-5}" ] || break
	done
	cat "$table" >>"$folder/table"
done
table=$folder/table
cd - >/dev/null
{
	printf 'run\tpredicted_s\tmeasured_s\tpredicted_MB\tsent_MB\tothers_percent\n'
	cat "$table"
} >"$out/hosts.tsv"
awk -F '\t' '
	{ printf "%-22s %8.3f s predicted, %8.3f measured (%+.1f %%); %8.1f MB predicted, %8.1f sent (%+.1f %%); others %d %%\n",
		$1, $2, $3, 100 * ($2 / $3 - 1), $4, $5, 100 * ($5 / $4 - 1), $6 }
	/data parallel/ { ours = $3; predicted = $2 }
	/pipeline/ { pipe = $3; printf "%-22s %8.2f times data parallelism predicted, %.2f measured\n", "",
		predicted / $2, ours / $3 }
	/DDP/ { printf "%-22s %8.2f times as fast as PyTorch'"'"'s data parallelism\n", "", $3 / pipe }' "$table"
awk -F '\t' '{ kind = $1; sub(/^[^ ]* /, "", kind); sub(/ .*/, "", $1)
	printf "%s\t%s\t%s\t%s\n", kind, $1, $3, $2 }' "$table" |
	awk -f "$source/test/bench/plot.awk" -v kind=bars -v title="Four hosts" -v ylabel="seconds per minibatch" \
		-v other=predicted >"$out/hosts.svg"
