#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every schedule runs with every policy of weights that goes with it.  The weights after training are, bit
# for bit, those of test/conform/serial.c, which knows the published rules and no schedule.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json
profile residual.json 2 >residual
profile "$MODELS/mlp.json" 2 >mlp
for replicas in "1" "1 1" "1 1 1" "1 1 1 1" "2 1" "1 2" "2 2" "3 1" "1 3"; do
	for model in residual mlp; do
		plan $model $replicas >"$model-$(echo "$replicas" | tr ' ' -)"
	done
done
# chunks RANKS LAYERS...: prints a plan whose stage s is on rank s mod RANKS.
chunks() {
	ranks=$1
	shift
	pd-plan --topology=$#@10Gbit/s --stages="$(echo "$@" | tr ' ' ,)" residual |
		ordered_jq --argjson p "$ranks" '.stages |= [to_entries[] | .value.ranks = [.key % $p] | .value]'
}
chunks 2 5 5 5 5 >chunks-2x2
chunks 2 3 4 3 3 4 3 >chunks-2x3
chunks 3 3 4 3 3 4 3 >chunks-3x2
cp residual-1 chunks-1
ordered_jq '.round = 4' chunks-3x2 >rounds-3x2

# An epoch has ten minibatches, and the run goes on into the next.  Where replicas add theirs, there are
# full updates and partial ones.
while read -r schedule weights microbatches plans; do
	for plan in $plans; do
		test_row "$schedule $weights" "$schedule, $weights, $microbatches at a time, $plan" '
			pair $plan $schedule $weights $microbatches >plan.json
			trained $((microbatches > 1 ? 11 : 20)) plan.json $sgd'
	done
done <<END
1f1b stash 1 residual-1-1-1-1 residual-2-2 residual-3-1
1f1b stash 4 residual-1-1 residual-1-1-1-1 residual-2-1 residual-1-2 residual-2-2
1f1b vertical-sync 1 residual-2-1 residual-1-2 residual-1-1 residual-1-1-1 residual-1-1-1-1
1f1b vertical-sync 1 residual-2-2 residual-3-1 residual-1-3
1f1b vertical-sync 2 residual-1-1-1-1 residual-1-2
1f1b 2bw 4 residual-2-1 residual-1-2 residual-2-2 residual-1-1-1-1
1f1b 2bw 2 residual-1-1 residual-1-1-1
1f1b 2bw 6 residual-3-1
1f1b flush 4 residual-2-1 residual-1-2 residual-2-2
1f1b flush 6 residual-3-1
1f1b flush 1 residual-1-1-1
1f1b latest 1 residual-1-1 residual-1-1-1 residual-1-1-1-1 residual-2-1 residual-1-2
1f1b latest 1 residual-2-2 residual-3-1
1f1b latest 4 residual-1-1-1-1 residual-2-1
gpipe flush 4 residual-2-1 residual-1-2 residual-2-2
gpipe flush 6 residual-3-1
none flush 1 residual-1-1-1
none flush 4 residual-1-1-1-1 residual-2-2
none stash 1 residual-1-1-1 residual-2-1
interleaved flush 2 chunks-2x2
interleaved flush 4 chunks-2x2
interleaved flush 8 residual-1-1-1-1
interleaved flush 6 chunks-2x3
interleaved flush 3 chunks-2x2
interleaved flush 7 chunks-3x2 rounds-3x2
nf1b vertical-sync 2 residual-1-1 residual-1-1-1 residual-1-1-1-1
nf1b vertical-sync 3 residual-1-1-1
nf1b stash 2 residual-1-1 residual-1-1-1-1
nf1b stash 3 residual-1-1-1
nf1b latest 2 residual-1-1 residual-1-1-1-1
nf1b latest 3 residual-1-1-1
END

# Two servers have a slow link between them, and links of high latency inside.  A chain of eight and an
# exchange take twice as long there as two groups of four (lib/sums/allreduce).
plan residual 8 | ordered_jq --argjson bytes "$(jq '[.layers[].parameter_bytes] | add' residual)" '
	.topology.levels = [{count: 4, bandwidth_bytes_per_s: 12000000000, latency_ns: 20000000},
			    {count: 2, bandwidth_bytes_per_s: (10 * $bytes), latency_ns: 0}]' >wide
test_ok "eight replicas in two groups, stash" 'trained 20 wide $sgd'
test_ok "the same, 2bw" '
	pair wide 1f1b 2bw 8 >plan.json
	trained 11 plan.json $sgd'

# eager PLAN SCHEDULE WEIGHTS MICROBATCHES: prints that plan with the start-up of the SOSP 2019 paper,
# Figure 4, which reads other versions at first.
eager() {
	pair "$@" | jq '.startup = "eager"'
}
while read -r weights microbatches plans; do
	for plan in $plans; do
		test_row "eager $weights" "eager 1f1b, $weights, $microbatches at a time, $plan" '
			eager $plan 1f1b $weights $microbatches >plan.json
			trained $((microbatches > 1 ? 11 : 20)) plan.json $sgd'
	done
done <<END
stash 1 residual-1-1 residual-1-1-1 residual-1-1-1-1 mlp-1-1-1-1 residual-2-1 residual-1-2
stash 1 residual-2-2 residual-3-1 residual-1-3
stash 2 residual-1-1-1-1
vertical-sync 1 residual-1-1-1-1
2bw 4 residual-1-1-1-1
flush 6 residual-1-1-1-1
latest 1 residual-1-1-1-1
END
test_ok "eager is not frugal, which the serial program tells apart" '
	eager residual-1-1-1-1 1f1b stash 1 >plan.json
	trained 10 plan.json $sgd
	pair residual-1-1-1-1 1f1b stash 1 >frugal.json
	"$serial" $sgd --minibatches=10 --output=serial frugal.json
	status 1 "$same" serial "$(at ck 10)"'

# Accumulated gradients are added in the order of the microbatches.  So no partition changes a bit where
# each replica has one microbatch of a group, or a stage has no replicas.
#
# alone PLAN SCHEDULE MICROBATCHES ONE: checks that the weights are also those of the serial program for one
# stage.
alone() {
	pair "$1" "$2" flush "$3" >plan.json
	trained 11 plan.json $sgd
	pair "$4" gpipe flush "$3" >one.json
	"$serial" $sgd --minibatches=11 --output=one one.json
	"$same" one "$(at ck 11)"
}
while read -r schedule microbatches plans; do
	for plan in $plans; do
		test_row one "$schedule, $microbatches at a time, $plan: the bits of one worker" '
			alone $plan $schedule $microbatches ${plan%%-*}-1'
	done
done <<END
gpipe 4 residual-1-1 residual-1-1-1 residual-1-1-1-1
gpipe 2 mlp-2-1 mlp-1-2 mlp-2-2
1f1b 4 residual-1-1 residual-1-1-1 residual-1-1-1-1
1f1b 2 mlp-2-1 mlp-1-2 mlp-2-2
1f1b 5 mlp-1
none 4 residual-1-1-1
none 2 mlp-2-2
interleaved 6 chunks-2x2 chunks-3x2
END

# The comparison can fail: with another version, the newest one, or another order of the sum.
while read -r schedule weights microbatches plan mutations; do
	test_row wrong "$schedule, $weights, $plan: wrong rules give other weights ($mutations)" '
		pair $plan $schedule $weights $microbatches >plan.json
		trained 10 plan.json $sgd
		for how in $mutations; do
			"$serial" $sgd --minibatches=10 --mutate=$how --output=serial plan.json
			status 1 "$same" serial "$(at ck 10)"
		done'
done <<END
1f1b stash 2 residual-1-1-1 version latest
1f1b vertical-sync 1 residual-1-1-1 version latest
1f1b vertical-sync 1 residual-3-1 version latest
1f1b 2bw 4 residual-2-1 version latest sum mean
1f1b flush 4 residual-2-2 version sum mean
1f1b latest 1 residual-1-1-1 version latest
gpipe flush 2 residual-1-1 version
interleaved flush 2 chunks-2x2 version
nf1b vertical-sync 2 residual-1-1-1 version latest
END
test_ok "vertical sync is not stashing" '
	pair residual-1-1-1 1f1b vertical-sync 1 >sync.json
	pair residual-1-1-1 1f1b stash 1 >stash.json
	train ck-sync sync.json $sgd --minibatches=10 --synthetic --no-evaluate >out
	train ck-stash stash.json $sgd --minibatches=10 --synthetic --no-evaluate >out
	status 1 "$same" "$(at ck-sync 10)" "$(at ck-stash 10)"'

# The next runs are stopped inside an epoch and resumed.
idx_data data		# An epoch has 55, 27, 18, 13 minibatches of 1, 2, 3, 4 microbatches.
while read -r schedule weights microbatches plan n stops; do
	test_row resumed "$schedule, $weights, $plan: resumed at $stops" '
		case $schedule in
		eager) eager $plan 1f1b $weights $microbatches ;;
		*) pair $plan $schedule $weights $microbatches ;;
		esac >plan.json
		resumed plan.json $n $stops -- $sgd --data=data'
done <<END
1f1b 2bw 4 residual-1-1-1-1 16 2 6 13
1f1b 2bw 4 residual-2-1 16 1 5
1f1b vertical-sync 1 residual-1-1-1 66 7 9
1f1b vertical-sync 1 residual-1-2 66 8 10 26
1f1b vertical-sync 1 residual-3-1 66 6 30
1f1b vertical-sync 2 residual-1-1-1-1 33 3 4 15
1f1b flush 4 residual-1-1-1 16 3 6 14
gpipe flush 4 residual-2-1 16 1 5
interleaved flush 2 chunks-2x2 33 3 28
none flush 2 residual-1-1 33 3
nf1b vertical-sync 3 residual-1-1-1 22 4
1f1b stash 4 residual-1-1-1 16 2 5
eager stash 1 residual-1-1-1-1 66 2 3 7 57
eager stash 2 residual-1-1-1-1 33 2 29
eager flush 4 residual-1-1-1-1 16 2
END

test_done
