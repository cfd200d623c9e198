#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares what each rule for weight versions does to learning, on 4 stages, with several SEEDS (1 2 3).
#     sh test/bench/convergence.sh [lenet5] [gpt] [gnmt]           without a name: lenet5
# lenet5 trains on Fashion-MNIST for EPOCHS (8); its figure is the accuracy on the test set after every
# epoch.  gpt is a GPT of 4 blocks of 64 on English prose, gnmt a translator from English to German with
# LSTMs of 64.  They train MINIBATCHES (800, 600) of the data of contrib/text-data.sh; their figure is the
# loss of samples that were not trained before.  A second table has the minibatches that it took to equal
# loss: the lowest that every run, of every rule and seed, reached.  Tables and drawings have the mean over
# the seeds and half of the range between the worst and the best.
#
# PD_BUILD names the build tree, DATA the folder of Fashion-MNIST, TEXT a folder of text-data.sh (made for
# the purpose if it is not set), OUT (.) the folder for convergence-NETWORK.tsv and .svg.  RULES="stash 2bw"
# runs these alone.  On two processors lenet5 and gpt take some ten minutes, gnmt four.
#
# All rules have this in common: the number of samples in an update (64; 32 for gpt and gnmt), their order
# for a seed, the initial parameters, the mean gradient of these samples, and the learning rate LR, which
# does not change.  LR is 0.01 for SGD with momentum 0.9 (lenet5), 0.0003 (gpt) and 0.001 (gnmt) for Adam,
# after 20 minibatches of warm-up.  Replicas under stash add the gradients of their minibatches (pd(7)), so
# for data parallelism over 4 replicas of 16 samples pd-run is told LR / 4.
#
# The rules differ in how late the weights are that a gradient was computed with, in updates:
#
#     data parallelism    4 replicas, a quarter of the samples each: 0 (lenet5)
#     flush               4 microbatches: 0, and so the same bits as data parallelism
#     2bw                 4 microbatches: 1, at every stage
#     stash               3 at the first stage, 2, 1, 0 at the last
#     vertical-sync       3 at every stage
#     latest              as stash in forward; backward reads the newest weights, with which
#                         forward was not computed
#     latest, PipeMare    as latest, with both answers of PipeMare: backward reads about what
#                         forward read (--discrepancy=0.5), and the rates of the first two
#                         stages begin at a third and a half and rise during the first epoch (lenet5)
set -e
. "$(dirname "$0")/bench-lib.sh"
seeds=${SEEDS:-1 2 3}

# train NAME PROFILE RATE RULE OPTION-OF-PD-PLAN...: trains with every seed, and adds lines "NAME seed x y"
# to $table, by $points.
train() {
	name=$1 profile=$2 rate=$3
	shift 3
	case " ${RULES:-$1} " in *" $1 "*) ;; *) return 0 ;; esac
	shift
	pd-plan --gpus=4 "$@" "$work/$profile" >"$work/plan"
	for seed in $seeds; do
		pd-run --threads=1 --seed="$seed" --lr="$rate" $training "$work/plan" |
			jq -r --arg name "$name" --arg seed "$seed" \
				"$points | [\$name, \$seed] + . | @tsv" >>"$table"
		echo "$network, $name, seed $seed: $(tail -n 1 "$table" | cut -f 4)" >&2
	done
}

# profiles MODEL BATCH: profiles the model with so many samples, and with a quarter of them.
profiles() {
	for batch in $(($2 / 4)) "$2"; do
		pd-profile --threads=1 --iterations=3 --batch-size="$batch" "$1" >"$work/$batch"
	done
}

# rules BATCH CUT: trains under the rules that all networks have.
rules() {
	train flush $(($1 / 4)) "$lr" flush --stages="$2" --weights=flush --microbatches=4
	train 2bw $(($1 / 4)) "$lr" 2bw --stages="$2" --weights=2bw --microbatches=4
	for rule in stash vertical-sync latest; do
		train $rule "$1" "$lr" $rule --stages="$2" --weights=$rule
	done
}

image() {
	lr=${LR:-0.01} ylabel="test accuracy, %" xlabel=epoch
	title="LeNet-5 on Fashion-MNIST, 4 stages, 64 samples in an update"
	shared="--data=${DATA:-/usr/share/datasets/fashion-mnist} --epochs=${EPOCHS:-8} \
		--report-every=1000000"
	training=$shared
	points='select(.event == "evaluation") | [.epoch, (.accuracy * 10000 | round / 100)]'
	profiles "$source/share/models/lenet5.json" 64
	train "data parallelism" 16 "$(awk "BEGIN { print $lr / 4 }")" data-parallelism --stages=13x4
	rules 64 2,2,4,5
	training="$shared --discrepancy=0.5 --lr-reschedule=937"
	train "latest, PipeMare" 64 "$lr" pipemare --stages=2,2,4,5 --weights=latest
}

# text DATA MINIBATCHES RATE CUT FAMILY OPTION-OF-PD-MODEL...: trains such a network on text under all
# rules.
text() {
	data=$1 minibatches=$2 lr=${LR:-$3} cut=$4 ylabel="loss, nats per token" xlabel=minibatch
	shift 4
	title="$network on text, 4 stages, 32 samples in an update"
	if [ -z "$TEXT" ]; then
		TEXT=$work/text
		LENGTH=20 VOCABULARY=2000 sh "$source/contrib/text-data.sh" "$TEXT" "$data" >&2
	fi
	training="--data=$TEXT/$data --minibatches=$minibatches --optimizer=adam --lr-warmup=20 \
		--no-evaluate --report-every=$((minibatches / 20))"
	points='select(.event == "progress") | [.step, (.loss * 10000 | round / 10000)]'
	pd-model --dropout=0 "$@" >"$work/model"
	profiles "$work/model" 32
	rules 32 "$cut"
}

# print_table: prints all columns if there are at most ten, and else every fifth.
print_table() {
	awk -F '\t' -v what="$xlabel" '{
		if (!($1 in row)) {
			name[++names] = $1
			row[$1] = sprintf("%-18s", $1)
		}
		n[$1]++
		cell[$1, n[$1]] = sprintf("  %6.3f +-%.3f", $3, $4)
		if ($1 == name[1])
			x[n[$1]] = $2
	}
	END {
		head = sprintf("%-18s", "")
		every = n[name[1]] > 10 ? 5 : 1
		for (k = every; k <= n[name[1]]; k += every) {
			head = head sprintf("  %14s", what " " x[k])
			for (i = 1; i <= names; i++)
				row[name[i]] = row[name[i]] cell[name[i], k]
		}
		print head
		for (i = 1; i <= names; i++)
			print row[name[i]]
	}' "$work/means"
}

# print_equal_loss: prints the minibatches to the lowest loss that all runs reached, on a straight line
# between two reports.
print_equal_loss() {
	awk -F '\t' '
	{ run = $1 SUBSEP $2; if (!(run in least) || $4 < least[run]) least[run] = $4 }
	END { for (run in least) if (target == "" || least[run] > target) target = least[run]
		print target }' "$table" >"$work/target"
	awk -F '\t' -v target="$(cat "$work/target")" '
	$1 SUBSEP $2 != run { run = $1 SUBSEP $2; there = x = 0; y = 1e9 }
	!there && $4 <= target {
		there = 1
		at = x + ($3 - x) * (y < 1e9 ? (y - target) / (y - $4) : 1)
		if (!($1 in runs)) { order[++names] = $1; low[$1] = high[$1] = at }
		runs[$1]++
		sum[$1] += at
		if (at < low[$1]) low[$1] = at
		if (at > high[$1]) high[$1] = at
	}
	{ x = $3; y = $4 }
	END {
		printf "\nminibatches to a loss of %.3f, which all runs reached, mean +- half of the range\n", target
		for (i = 1; i <= names; i++) {
			name = order[i]
			printf "%-18s  %6.0f +-%.0f\n", name, sum[name] / runs[name],
				(high[name] - low[name]) / 2
		}
	}' "$table"
}

[ $# -gt 0 ] || set -- lenet5
for network; do
	table=$out/convergence-$network.tsv
	: >"$table"
	case $network in
	lenet5) image ;;
	gpt)	# Each stage has a block.
		text prose "${MINIBATCHES:-800}" 0.0003 14,12,12,15 gpt-bytes --layers=4 --hidden=64 --heads=4 \
			--sequence=64 ;;
	gnmt)	text pairs "${MINIBATCHES:-600}" 0.001 3,4,6,2 gnmt --layers=3 --hidden=64 --vocabulary=2000 \
			--sequence=20 ;;
	*)	echo "$0: $network: expected lenet5, gpt or gnmt" >&2; exit 2 ;;
	esac
	means "$table" >"$work/means"
	echo "$title, learning rate $lr;"
	echo "$ylabel, mean over seeds $seeds, +- half of their range"
	print_table
	[ "$xlabel" = epoch ] || print_equal_loss
	awk -f "$source/test/bench/plot.awk" -v kind=lines -v xlabel="$xlabel" -v ylabel="$ylabel" \
		-v title="$title" "$work/means" >"$out/convergence-$network.svg"
done
