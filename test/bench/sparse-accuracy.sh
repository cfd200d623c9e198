#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares what sparse sums do to learning, with data parallelism over four replicas and several SEEDS
# (1 2 3).
#     sh test/bench/sparse-accuracy.sh [lenet5] [gpt]              without a name: both
# lenet5 trains on Fashion-MNIST for EPOCHS (4); its figure is the accuracy on the test set after every
# epoch.  gpt has 2 blocks of 64 and trains MINIBATCHES (600) of English prose; its figure is the loss of
# samples not trained before, after every quarter of them.  The table and the drawing have the mean over the
# seeds and half of the range between the worst and the best.
#
# PD_BUILD names the build tree, DATA the folder of Fashion-MNIST, TEXT a folder of contrib/text-data.sh
# (made for the purpose if it is not set), OUT (.) the folder for sparse-NETWORK.tsv and .svg.  RULES="dense
# corrected" runs these alone.  lenet5 takes some five minutes on two processors, gpt two.
#
# All rules have this in common: 64 samples in an update (16 for gpt), a quarter at each replica, their
# order for a seed, the initial parameters, SGD with momentum 0.9, a learning rate LR that does not change,
# and the number of updates.  Replicas add gradients (pd(7)), so pd-run is told LR / 4.
#
# The rules differ in what travels and what becomes of the rest:
#
#     dense           all gradients travel
#     both            SPARSITY (0.85) of the chunks stay, after a warm-up of WARMUP percent (5) of the
#                     minibatches; what stays is corrected for momentum (Algorithm 1)
#     corrected       as both, without warm-up
#     warm            as both, but what stays is lost, without correction
#     neither         without warm-up, and what stays is lost
#     kept            without warm-up; what stays is kept whole, not times the momentum
set -e
. "$(dirname "$0")/bench-lib.sh"
seeds=${SEEDS:-1 2 3}
sparsity=${SPARSITY:-0.85}

# train RULE RESIDUAL OPTION-OF-PD-PLAN...: trains with every seed, and adds lines "RULE seed x y" to
# $table, by $point.
train() {
	rule=$1 residual=$2
	shift 2
	case " ${RULES:-$rule} " in *" $rule "*) ;; *) return 0 ;; esac
	pd-plan --topology=4@10GB/s --stages="${layers}x4" "$@" "$work/profile" >"$work/plan"
	for seed in $seeds; do
		at=0
		rm -rf "$work/ck"
		for stop in $stops; do
			# shellcheck disable=SC2086
			pd-run --threads=1 --seed="$seed" --lr="$(awk "BEGIN { print $lr / 4 }")" $residual \
				$training --minibatches="$stop" $([ $at = 0 ] || echo --resume) \
				--checkpoint="$work/ck" --report-every=1000000 "$work/plan" 2>/dev/null |
				jq -r --arg rule "$rule" --arg seed "$seed" --argjson x "$stop" \
					"select(.event == \"evaluation\") | [\$rule, \$seed, $point] | @tsv" |
				tail -n 1 >>"$table"
			at=$stop
		done
		echo "$network, $rule, seed $seed: $(tail -n 1 "$table" | cut -f 4)" >&2
	done
}

# rules LAST CHUNK: trains under all rules, to so many minibatches.
rules() {
	warm=--sparsity-warmup=$(($1 * ${WARMUP:-5} / 100))
	sparse="--sparsity=$sparsity --chunk=$2"
	: >"$table"
	train dense ""
	# shellcheck disable=SC2086
	{
		train both "" $sparse "$warm"
		train corrected "" $sparse
		train warm --residual=0 $sparse "$warm"
		train neither --residual=0 $sparse
		train kept --residual=1 $sparse
	}
}

# show TITLE X Y: prints the table, and draws it.
show() {
	means "$table" >"$work/means"
	echo "$1: $3, mean over seeds $seeds, +- half of their range"
	awk -F '\t' -v x="$2" '{
		if (!($1 in row)) {
			name[++names] = $1
			row[$1] = sprintf("%-10s", $1)
		}
		if ($1 == name[1])
			head = head sprintf("  %15s", x " " $2)
		row[$1] = row[$1] sprintf("  %7.3f +-%.3f", $3, $4)
	}
	END {
		printf "%-10s%s\n", "", head
		for (i = 1; i <= names; i++)
			print row[name[i]]
	}' "$work/means"
	awk -f "$source/test/bench/plot.awk" -v kind=lines -v xlabel="$2" -v ylabel="$3" \
		-v title="$1" "$work/means" >"$out/sparse-$network.svg"
}

# quarters N: prints where each quarter of N ends.
quarters() { echo $(($1 / 4)) $(($1 / 2)) $(($1 * 3 / 4)) "$1"; }

lenet5() {
	network=lenet5 table=$out/sparse-lenet5.tsv lr=${LR:-0.01}
	pd-profile --threads=1 --iterations=3 --no-link --batch-size=16 "$source/share/models/lenet5.json" \
		>"$work/profile"
	layers=$(jq '.layers | length' "$work/profile")
	training="--data=${DATA:-/usr/share/datasets/fashion-mnist}"
	stops=
	for epoch in $(seq "${EPOCHS:-4}"); do
		stops="$stops $((epoch * 3750))"
	done
	point='$x / 3750, .accuracy * 100'
	# shellcheck disable=SC2086
	rules $((${EPOCHS:-4} * 3750)) "${CHUNK:-256}"
	show "LeNet-5 on Fashion-MNIST, chunks of ${CHUNK:-256}" epoch "test accuracy, %"
}

gpt() {
	network=gpt table=$out/sparse-gpt.tsv lr=${LR:-0.2} minibatches=$((${MINIBATCHES:-600} * 4))
	if [ -z "$TEXT" ]; then
		TEXT=$work/text
		sh "$source/contrib/text-data.sh" "$TEXT"
	fi
	pd-model gpt-bytes --dropout=0 --layers=2 --hidden=64 --heads=4 --sequence=64 |
		pd-profile --threads=1 --iterations=3 --no-link --batch-size=4 >"$work/profile"
	layers=$(jq '.layers | length' "$work/profile")
	training="--data=$TEXT/prose"
	stops=$(quarters "$minibatches")
	point='$x / 4, .loss / 0.6931471805599453'
	rules "$minibatches" "${CHUNK:-512}"
	show "a GPT of 2 blocks of 64, chunks of ${CHUNK:-512}" update "loss, bits per byte"
}

[ $# -gt 0 ] || set -- lenet5 gpt
for name; do
	case $name in
	lenet5 | gpt) "$name" ;;
	*) echo "usage: sparse-accuracy.sh [lenet5] [gpt]" >&2; exit 2 ;;
	esac
done
