#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What each rule for weight versions does to learning: LeNet-5 on Fashion-MNIST, 4 stages,
# SEEDS (three), EPOCHS (8); accuracy on the test set after every epoch, mean over the seeds and
# half of the range between the worst and the best, as a table and as a drawing.
#     sh test/bench/convergence.sh
# PD_BUILD names the build tree, DATA the data set, OUT (.) where convergence.tsv and
# convergence.svg go.  Some ten minutes on two processors.
#
# What is the same for all: 64 samples in an update, in the same order for a seed, the same
# initial parameters, SGD with momentum 0.9 and the learning rate LR (0.01) for the mean
# gradient of those 64 samples; it never changes.  Replicas under stash add the gradients of
# their minibatches (pd(7)): for data parallelism over 4 of 16 samples pd-run is told LR / 4.
#
# What differs: how late the weights are that a gradient was computed with, in updates.
#     data parallelism    4 replicas, 16 samples each: 0
#     flush               4 microbatches of 16: 0, and so the same bits as data parallelism
#     2bw                 4 microbatches of 16: 1, at every stage
#     stash               updates of 64: 3 at the first stage, 2, 1, 0 at the last
#     vertical-sync       updates of 64: 3 at every stage
#     latest              as stash in forward; backward takes the newest weights, with which
#                         forward was not computed
#     latest, PipeMare    the same with both answers of PipeMare: backward takes about what
#                         forward had (--discrepancy=0.5), and the rates of the first two
#                         stages begin at a third and a half and rise during the first epoch
set -e
. "$(dirname "$0")/bench-lib.sh"
data=${DATA:-/usr/share/datasets/fashion-mnist}
model=$source/share/models/lenet5.json
lr=${LR:-0.01}
quarter=$(awk "BEGIN { print $lr / 4 }")

# train NAME PROFILE RATE OPTION-OF-PD-PLAN...: of every seed, lines "NAME seed epoch accuracy".
train() {
	name=$1 profile=$2 rate=$3
	shift 3
	pd-plan --gpus=4 "$@" "$work/$profile" >"$work/plan"
	for seed in ${SEEDS:-1 2 3}; do
		pd-run --threads=1 --data="$data" --seed="$seed" --epochs="${EPOCHS:-8}" \
			--lr="$rate" $pipemare --report-every=1000000 "$work/plan" |
			jq -r --arg name "$name" --arg seed "$seed" 'select(.event == "evaluation") |
				"\($name)\t\($seed)\t\(.epoch)\t\(.accuracy * 10000 | round / 100)"' >>"$out/convergence.tsv"
		echo "$name, seed $seed: $(tail -n 1 "$out/convergence.tsv" | cut -f 4) %" >&2
	done
}

for batch in 16 64; do
	pd-profile --threads=1 --iterations=3 --batch-size=$batch "$model" >"$work/$batch"
done
: >"$out/convergence.tsv"
cut=2,2,4,5
pipemare=
train "data parallelism" 16 "$quarter" --stages=13x4
train flush 16 "$lr" --stages=$cut --weights=flush --microbatches=4
train 2bw 16 "$lr" --stages=$cut --weights=2bw --microbatches=4
train stash 64 "$lr" --stages=$cut --weights=stash
train vertical-sync 64 "$lr" --stages=$cut --weights=vertical-sync
train latest 64 "$lr" --stages=$cut --weights=latest
pipemare="--discrepancy=0.5 --lr-reschedule=937"
train "latest, PipeMare" 64 "$lr" --stages=$cut --weights=latest

# Mean and half of the range of every NAME and epoch, in the order in which they were trained.
awk -F '\t' '{
	if (!(($1, $3) in n)) {
		key[++keys] = $1 SUBSEP $3
		low[$1, $3] = high[$1, $3] = $4
	}
	n[$1, $3]++
	sum[$1, $3] += $4
	if ($4 < low[$1, $3]) low[$1, $3] = $4
	if ($4 > high[$1, $3]) high[$1, $3] = $4
}
END {
	for (i = 1; i <= keys; i++) {
		split(key[i], k, SUBSEP)
		printf "%s\t%d\t%.3f\t%.3f\n", k[1], k[2], sum[key[i]] / n[key[i]],
			(high[key[i]] - low[key[i]]) / 2
	}
}' "$out/convergence.tsv" >"$work/means"

echo "LeNet-5, Fashion-MNIST, 4 stages, 64 samples in an update, learning rate $lr;"
echo "test accuracy in %, mean over seeds ${SEEDS:-1 2 3}, +- half of their range"
awk -F '\t' '{
	if (!($1 in row)) {
		name[++names] = $1
		row[$1] = sprintf("%-18s", $1)
	}
	if ($1 == name[1])
		head = head sprintf("  %11s", "epoch " $2)
	row[$1] = row[$1] sprintf("  %5.2f +-%.2f", $3, $4)
}
END {
	printf "%-18s%s\n", "", head
	for (i = 1; i <= names; i++)
		print row[name[i]]
}' "$work/means"
awk -f "$source/test/bench/plot.awk" -v kind=lines -v xlabel=epoch -v ylabel="test accuracy, %" \
	-v title="LeNet-5 on Fashion-MNIST, 4 stages" "$work/means" >"$out/convergence.svg"
