#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every schedule with every policy of weights that goes with it: the weights after training are,
# bit for bit, those of test/conform/serial.c, which knows the published rules and no schedule.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

sgd="--lr=0.002 --momentum=0.9 --weight-decay=0.001"
residual_model >residual.json
profile residual.json 2 >residual
profile "$MODELS/mlp.json" 2 >mlp
for replicas in "1" "1 1" "1 1 1" "1 1 1 1" "2 1" "1 2" "2 2" "3 1" "1 3"; do
	for model in residual mlp; do
		plan $model $replicas >"$model-$(echo "$replicas" | tr ' ' -)"
	done
done
# chunks RANKS LAYERS...: stage s on rank s mod RANKS.
chunks() {
	ranks=$1
	shift
	pd-plan --topology=$#@10Gbit/s --stages="$(echo "$@" | tr ' ' ,)" residual |
		jq --argjson p "$ranks" '.stages |= [to_entries[] | .value.ranks = [.key % $p] | .value]'
}
chunks 2 5 5 5 5 >chunks-2x2
chunks 2 3 4 3 3 4 3 >chunks-2x3
chunks 3 3 4 3 3 4 3 >chunks-3x2

# pair PLAN SCHEDULE WEIGHTS MICROBATCHES >PLAN
pair() {
	jq --arg schedule "$2" --arg weights "$3" --argjson m "$4" \
		'.schedule = $schedule | .weights = $weights | .microbatches = $m' "$1"
}

# equals N PLAN: pd-run and the serial program agree about weights after N microbatches.
equals() {
	rm -rf ck
	train ck "$2" $sgd --minibatches="$1" --synthetic --no-evaluate >out
	"$serial" $sgd --minibatches="$1" --output=serial "$2"
	"$same" serial "$(at ck "$1")"
}

# An epoch is ten microbatches: full groups and partial ones, twice.
while read -r schedule weights microbatches plans; do
	for plan in $plans; do
		test_ok "$schedule, $weights, $microbatches at a time, $plan" '
			pair $plan $schedule $weights $microbatches >plan.json
			equals 20 plan.json'
	done
done <<END
1f1b stash 1 residual-1-1-1-1 residual-2-2 residual-3-1
1f1b stash 4 residual-1-1 residual-1-1-1-1 residual-2-1 residual-1-2 residual-2-2
1f1b vertical-sync 1 residual-1-1 residual-1-1-1 residual-1-1-1-1 residual-2-1 residual-1-2
1f1b vertical-sync 1 residual-2-2 residual-3-1 residual-1-3
1f1b vertical-sync 2 residual-1-1-1-1 residual-1-2
1f1b 2bw 2 residual-1-1 residual-1-1-1
1f1b 2bw 4 residual-1-1-1-1 residual-2-1 residual-1-2 residual-2-2
1f1b 2bw 6 residual-3-1
1f1b flush 1 residual-1-1-1
1f1b flush 4 residual-1-1 residual-1-1-1-1 residual-2-1 residual-1-2 residual-2-2
1f1b flush 6 residual-3-1
1f1b latest 1 residual-1-1 residual-1-1-1 residual-1-1-1-1 residual-2-1 residual-1-2
1f1b latest 1 residual-2-2 residual-3-1
1f1b latest 4 residual-1-1-1-1 residual-2-1
gpipe flush 4 residual-1-1 residual-1-1-1 residual-1-1-1-1 residual-2-1 residual-1-2 residual-2-2
gpipe flush 6 residual-3-1
none flush 1 residual-1-1-1
none flush 4 residual-1-1-1-1 residual-2-2
none stash 1 residual-1-1-1 residual-2-1
interleaved flush 2 chunks-2x2
interleaved flush 4 chunks-2x2
interleaved flush 6 chunks-2x3
interleaved flush 6 chunks-3x2
nf1b vertical-sync 2 residual-1-1 residual-1-1-1 residual-1-1-1-1
nf1b vertical-sync 3 residual-1-1-1
nf1b stash 2 residual-1-1 residual-1-1-1-1
nf1b stash 3 residual-1-1-1
nf1b latest 2 residual-1-1 residual-1-1-1-1
nf1b latest 3 residual-1-1-1
END

test_done
