#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What sparse sums do to learning, data parallelism over four replicas, SEEDS (three):
#     sh test/bench/sparse-accuracy.sh [lenet5] [gpt]              without a name: both
# lenet5: on Fashion-MNIST, EPOCHS (4); accuracy on the test set after every epoch.  gpt: one of 2
# blocks of 64 on English prose, MINIBATCHES (600); the loss of samples not trained before after every
# quarter of them.  Mean over the seeds and half of the range between the worst and the best, as a
# table and as a drawing.
# PD_BUILD names the build tree, DATA Fashion-MNIST, TEXT a folder of contrib/text-data.sh (made for
# the purpose where it is not set), OUT (.) where sparse-NETWORK.tsv and .svg go; RULES="dense
# corrected" does some alone.  lenet5 takes some five minutes on two processors, gpt two.
#
# What is the same for all: 64 samples in an update (gpt 16), a quarter at each replica, in the same
# order for a seed, the same initial parameters, SGD with momentum 0.9 and a learning rate LR that does
# not change; as many updates.  Replicas add gradients (pd(7)), so pd-run is told LR / 4.
#
# What differs:
#     dense           all gradients travel
#     both            SPARSITY (0.85) of the chunks stay, after a warm-up of WARMUP percent (5) of the
#                     minibatches; what stays is corrected for momentum (Algorithm 1)
#     corrected       the same without warm-up
#     warm            warm-up, and what stays is lost: no correction
#     neither         no warm-up, no correction
#     kept            no warm-up; what stays is kept whole, not times the momentum
set -e
. "$(dirname "$0")/bench-lib.sh"
seeds=${SEEDS:-1 2 3}
sparsity=${SPARSITY:-0.85}

# train RULE RESIDUAL OPTION-OF-PD-PLAN...: of every seed, lines "RULE seed x y", by $points.
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

# rules LAST CHUNK: all of them, to so many minibatches.
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

# show TITLE X Y
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

# quarters N
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
