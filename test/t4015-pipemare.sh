#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PipeMare (MLSys 2021) is for weights that are not stashed.  The learning rates of late stages are lowered
# at first, and backward reads weights from which their latest moves are taken away.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_plans 2 residual- "1 1" "1 1 1" "1 1 1 1" "2 1" "1 2" "2 2" "3 1"
profile "$MODELS/mlp.json" 2 >mlp
plan mlp 1 1 1 >mlp-1-1-1

# late PLAN [FILTER]: writes plan.json with weights that are not stashed.
late() {
	jq ".weights = \"latest\" | ${2:-.}" "$1" >plan.json
}
# learned N OPTION...: trains plan.json for N minibatches, and checks that the loss is a number.
learned() {
	n=$1
	shift
	trained "$n" plan.json "$@"
	jq -e ".loss | isnormal" last
}

# An epoch has ten minibatches.  What was learned of the moves of weights goes on in the next.
for replicas in 1-1-1-1 2-1; do
	test_row rescheduling "rescheduling, $replicas" '
		late residual-$replicas && learned 25 $sgd --lr-reschedule=15'
	test_row correction "correction, $replicas" '
		late residual-$replicas && learned 25 $sgd --discrepancy=0.5'
done
for replicas in 1-1 1-1-1 1-1-1-1 2-1 1-2 2-2 3-1; do
	test_row both "both, $replicas" '
		late residual-$replicas && learned 25 $sgd --lr-reschedule=40 --discrepancy=0.1'
done
test_ok "with several microbatches to an update" '
	late residual-1-1-1-1 ".microbatches = 2" && learned 12 $sgd --lr-reschedule=11 --discrepancy=0.5
	late residual-2-1 ".microbatches = 4" && learned 12 $sgd --lr-reschedule=11 --discrepancy=0.5'
test_ok "with nf1b" '
	late residual-1-1-1 ".schedule = \"nf1b\" | .microbatches = 2"
	learned 12 $sgd --lr-reschedule=11 --discrepancy=0.5'
test_ok "with an eager start-up" '
	late residual-1-1-1-1 ".startup = \"eager\"" && learned 20 $sgd --discrepancy=0.5'
test_ok "with adam, adamw, and no momentum" '
	late mlp-1-1-1
	for how in "--optimizer=adam --lr=0.001" "--optimizer=adamw --lr=0.001 --weight-decay=0.01" \
		   "--lr=0.002 --momentum=0"; do
		learned 20 $how --lr-schedule=cosine --lr-reschedule=12 --discrepancy=0.9
	done'
test_ok "D = 0 takes away the last move alone" 'late residual-1-1 && learned 20 $sgd --discrepancy=0'
test_ok "one stage has no late gradients, and nothing to correct" '
	plan residual 1 >one && late one && learned 12 $sgd --lr-reschedule=15 --discrepancy=0.5
	mv serial both && "$serial" $sgd --minibatches=12 --output=serial plan.json && "$same" both serial'

test_ok "each makes a difference" '
	late residual-1-1-1
	for options in "" "--lr-reschedule=15" "--discrepancy=0.5" "--discrepancy=0.1"; do
		rm -rf ck
		train ck plan.json $sgd --minibatches=10 --synthetic --no-evaluate $options >out
		"$serial" $sgd --minibatches=10 --output=with-$options $options plan.json
		for other in with-*; do
			[ "$other" = "with-$options" ] || status 1 "$same" "$other" "$(at ck 10)"
		done
	done'
test_ok "the same twice" '
	late residual-2-2
	for k in 1 2; do
		train ck-$k plan.json $sgd --minibatches=20 --synthetic --no-evaluate --discrepancy=0.5 >out
	done
	diff -r "$(at ck-1 20)" "$(at ck-2 20)"'
test_ok "the memory is two more copies of the weights, where gradients are late" '
	late mlp-1-1-1
	for options in "" "--discrepancy=0.5"; do
		pd-run --synthetic -m 5 --threads=1 $options plan.json | tail -n 1 >last$options
	done
	jq -e --slurpfile with "last--discrepancy=0.5" --slurpfile plan plan.json "
		[\$plan[0].stages[] | [.layers[] as \$l | \$plan[0].profile.layers[] |
			select(.name == \$l) | (.parameter_bytes + 63) / 64 | floor * 64] | add] as \$w
		| .memory_bytes as \$m | [\$with[0].memory_bytes, \$m] | transpose | map(.[0] - .[1])
		| .[0] >= 2 * \$w[0] and .[0] < 2 * \$w[0] + 1024 and .[1] > 0 and .[2] == 0" last'

# A checkpoint at the end of an epoch holds all there is, since the pipeline is empty.
test_ok "stopped at the end of an epoch and resumed" '
	idx_data data		# An epoch has 55 minibatches.
	late residual-1-1-1
	options="$sgd --lr-reschedule=80 --discrepancy=0.5 --data=data --no-evaluate"
	train ck-whole plan.json $options --minibatches=66 >out
	train ck-again plan.json $options --minibatches=55 >out
	train ck-again plan.json $options --minibatches=66 --resume >out
	diff -r "$(at ck-whole 66)" "$(at ck-again 66)"'
test_ok "resumed without it before, and without it after" '
	late residual-1-1-1
	rm -rf ck
	train ck plan.json $sgd --minibatches=10 --synthetic --no-evaluate >out
	train ck plan.json $sgd --minibatches=20 --synthetic --no-evaluate --discrepancy=0.5 --resume >out
	train ck plan.json $sgd --minibatches=30 --synthetic --no-evaluate --resume >out'

test_ok "other weights are refused in one sentence" '
	for weights in stash vertical-sync; do
		jq ".weights = \"$weights\"" residual-1-1-1 >plan.json
		for option in --lr-reschedule=15 --discrepancy=0.5; do
			status 2 pd-run --synthetic -m 5 $option plan.json >out 2>err
			one_line err && grep -q -- "${option%=*}: only with weights \"latest\"" err
			grep -q "found a plan with weights \"$weights\"" err
		done
	done'
test_ok "values that cannot be" '
	late residual-1-1
	for option in --lr-reschedule=0 --lr-reschedule=x --discrepancy=1 --discrepancy=-1 \
		      --discrepancy=nan --discrepancy=; do
		status 2 pd-run --synthetic -m 5 $option plan.json >out 2>err
		grep -q -- "${option%=*}" err
	done'

test_done
