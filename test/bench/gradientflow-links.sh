#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures what each of GradientFlow's steps brings on real links, with data parallelism on four hosts
# (contrib/hosts.sh, so root runs it).  The networks have AlexNet's shape at small images, and ResNet-18's.
# PyTorch's DistributedDataParallel over gloo runs on the same links in the same run.
#     sh test/bench/gradientflow-links.sh [alexnet|resnet18|mlp]...     (default: the first two)
# mlp is small, and shows whether everything is there.
#
#     one-sum   a ring sums once, behind the whole backward
#     +overlap  each layer with parameters has a sum, as soon as its backward is done
#     +lazy     gradients travel in buckets of the size that pd-plan chooses
#     +16       gradients are rounded to bf16 before they travel
#     +sparse   15 % of the chunks of 32,000 travel, without warm-up
#
# The table has samples per second of all hosts, and how many times those of the step before and of one-sum
# they are; the milliseconds of an update in which a host computes nothing since it waits for a sum; and the
# megabytes that a host's interface sends for an update.  Each is measured.  In brackets is what pd-replay
# says of the plan, with the links that pd-topo measured at first.  Figures are medians over ROUNDS (2), in
# which the steps take turns.
#
# RATE (500mbit) is that of each host's link, STEPS (10) are the updates of a training, of which the second
# half counts, and BATCH (16) the samples of a host.  THETAS ("1MB 4MB 16MB") are sizes of buckets that are
# drawn, each trained once.  PYTHON has PyTorch; otherwise DDP is left out.  gradientflow-links.svg and
# links-theta.svg go to the folder OUT (.).  The script takes some seven minutes on two processors that
# nobody else uses.
set -e
. "$(dirname "$0")/bench-lib.sh"
steps=${STEPS:-10} batch=${BATCH:-16} rounds=${ROUNDS:-2} rate=${RATE:-500mbit}

# ---- This part runs on the first of the hosts. ----

# figures REPORT: prints samples per second, and the milliseconds exposed and bytes sent of a host and
# update.
figures() {
	jq -r 'def known: . // error("no steady state: more STEPS");
		[(.samples_per_s | known), (.stages[0].exposed_ns | known) / 1e6,
		 .stages[0].sent_bytes + .stages[0].norm_bytes] | @tsv' "$1"
}

# plan NAME OPTION...: makes the plan of that name, and notes what is expected of it.
plan() {
	name=$1
	shift
	pd-plan --topology="$work/topology" --processors="$(nproc)" --all-reduce=ring \
		--stages="$(jq '.layers | length' profile)x4" "$@" profile >"$work/plan$name"
	pd-replay --format=json "$work/plan$name" >"$work/report"
	figures "$work/report" >"$work/expected$name"
}

# measure NAME: trains that plan, and adds a line to the table.
measure() {
	train $((4 * steps)) "$work/plan$1"
	pd-replay --format=json "$work/trace" >"$work/report"
	figures "$work/report" >"$work/figures"
	printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$network" "$1" "$(cut -f 1,2 "$work/figures")" \
		"$((bytes / 4 / steps))" "$(cat "$work/expected$1")" "$others" >>"$table"
	tail -n 1 "$table" >&2
}

on_hosts() {
	mpirun --host "$PD_HOSTS" -np 4 pd-topo -q >"$work/topology"
	jq -r '.levels[0] | "link: \(.bandwidth_bytes_per_s / 1e6) MB/s, \(.latency_ns / 1e3) us"' \
		"$work/topology" >&2
	plan one-sum
	plan +overlap --bucket=1
	plan +lazy --bucket=auto
	theta=$(jq '.bucket_bytes // empty' "$work/plan+lazy")
	echo "theta: ${theta:-all in one}" >&2
	plan +16 --gradient-dtype=bf16 ${theta:+--bucket=$theta}
	plan +sparse --gradient-dtype=bf16 ${theta:+--bucket=$theta} --sparsity=0.85
	for round in $(seq "$rounds"); do
		for name in one-sum +overlap +lazy +16 +sparse; do
			measure $name
		done
		has_torch || continue
		train_ddp 4 model.json "$batch" "$steps"
		printf '%s\tDDP\t%s\t-\t%s\t-\t-\t-\t%s\n' "$network" \
			"$(echo "$seconds" | awk -v n="$((4 * batch))" '{ print n / $1 }')" \
			"$((bytes / 4 / (steps + 1)))" "$others" >>"$table"
		tail -n 1 "$table" >&2
	done
	for theta in ${THETAS-1MB 4MB 16MB}; do
		plan "theta:$theta" --bucket="$theta"
		measure "theta:$theta"
	done
}

if [ -n "${PD_NETNS-}" ]; then
	on_hosts
	exit
fi

# ---- This part runs before and after the hosts. ----

# model NAME: prints its document.
model() {
	case $1 in
	alexnet) pd-model alexnet --size=64 --hidden=1024 --classes=100 --dropout=0 ;;
	resnet18) pd-model resnet18 --size=64 --classes=100 ;;
	mlp) pd-model mlp ;;
	*) echo "gradientflow-links.sh: expected alexnet, resnet18 or mlp, found $1" >&2; return 2 ;;
	esac
}

folder=$(mktemp -d)
trap 'rm -rf "$work" "$folder"' EXIT
cd "$folder"
[ $# -gt 0 ] || set -- alexnet resnet18
table=$folder/table
: >"$table"
for network; do
	model "$network" >model.json
	undisturbed profile pd-profile --threads=1 --workers="$(nproc)" --batch-size="$batch" model.json
	export network table
	sh "$source/contrib/hosts.sh" --rate="$rate" --limit=600 4 sh "$source/test/bench/${0##*/}"
done
cd - >/dev/null

# median_of NETWORK NAME COLUMN: prints the median of a column, or - if it has no figures.
median_of() {
	found=$(awk -F '\t' -v network="$1" -v name="$2" -v column="$3" \
		'$1 == network && $2 == name && $column != "-" { print $column }' "$table" | median)
	echo "${found:--}"
}

# names NETWORK: prints the steps in the table.
names() {
	awk -F '\t' -v network="$1" '$1 == network && !seen[$2]++ { print $2 }' "$table"
}

for network; do
	for name in $(names "$network"); do
		printf '%s\t%s' "$network" "$name"
		for column in 3 4 5 6 7 8 9; do
			printf '\t%s' "$(median_of "$network" "$name" $column)"
		done
		echo
	done
done >"$work/medians"
printf '%-10s %-10s %27s %6s %6s %18s %20s %7s\n' model step "samples/s" "before" "first" \
	"exposed, ms" "sent, MB" others
awk -F '\t' '
	$2 ~ /theta/ { next }
	$1 != model { model = $1; first = before = $3; dense = 0 }
	$2 ~ /one|over|lazy/ && $3 > dense { dense = $3 }
	$2 == "DDP" {
		printf "%-10s %-10s %9.1f: the best of ours in f32 is %.2f times as fast %23.1f %21s %%\n",
			$1, $2, $3, dense / $3, $5 / 1e6, $9
		next
	}
	{
		printf "%-10s %-10s %9.1f (%7.1f %+5.1f%%) %6.2f %6.2f %7.0f (%7.0f) %8.1f (%8.1f) %5s %%\n",
			$1, $2, $3, $6, 100 * ($6 / $3 - 1), $3 / before, $3 / first, $4, $7, $5 / 1e6, $8 / 1e6, $9
		before = $3
	}' "$work/medians"
awk -F '\t' -v OFS='\t' '$2 !~ /theta/ { print $2, $1, $3, $6 == "-" ? "" : $6 }' "$work/medians" |
	awk -f "$source/test/bench/plot.awk" -v kind=bars -v width=1000 -v other=predicted \
		-v ylabel="samples per second" -v title="GradientFlow's steps on four hosts, $rate" \
		>"$out/gradientflow-links.svg"
awk -F '\t' -v OFS='\t' 'sub(/theta:/, "", $2) { sub(/MB/, "", $2); print $1, $2, $3
	print $1 ", predicted", $2, $6 }' "$work/medians" | sort -s -t '	' -k 1,1 >"$work/curve"
[ ! -s "$work/curve" ] || awk -f "$source/test/bench/plot.awk" -v kind=lines -v zero=1 \
	-v xlabel="theta, MB" -v ylabel="samples per second" \
	-v title="Lazy all-reduce on four hosts, $rate" "$work/curve" >"$out/links-theta.svg"
