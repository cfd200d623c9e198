#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Layers that are frozen keep their parameters; the others learn what they would learn beside them, in every
# schedule; memory is as predicted, and less.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# freeze LAYER...: prints residual_model's document with these layers frozen.
freeze() {
	residual_model | jq '.layers |= map(if .name | IN($ARGS.positional[]) then .frozen = true else . end)' \
		--args "$@"
}

# tensors_of STEP: prints the names of a checkpoint's tensors.
tensors_of() {
	for file in "$(at ck "$1")"/stage-*.safetensors; do
		head -c 65536 "$file" | tr -d '\0' | grep -o '"[a-z0-9]*\.[a-z_.@0-9]*":' | tr -d '":'
	done | sort
}

freeze conv1 bn1 conv2 bn2 fc1 >frozen.json
residual_model >whole.json
for model in whole frozen; do
	profile $model.json 3 >$model
done
test_ok 'the profile has no parameters of frozen layers to update, and counts them once' '
	jq -e --slurpfile whole whole ".layers as \$l | \$whole[0].layers as \$w |
		all(range(\$l | length); \$l[.].name as \$n |
		    if \$n | IN(\"conv1\", \"bn1\", \"conv2\", \"bn2\", \"fc1\")
		    then \$l[.].parameter_bytes == 0 and \$w[.].parameter_bytes > 0 and
			 \$l[.].state_bytes == (\$w[.].state_bytes // 0) + \$w[.].parameter_bytes
		    else \$l[.].parameter_bytes == \$w[.].parameter_bytes end)" frozen'
test_ok 'a model says how many of its parameters are frozen' '
	pd-model --summary frozen.json | grep "of which [0-9,]* are frozen"'

while read -r replicas schedule weights microbatches options; do
	test_row "$schedule" "$schedule, $weights, $microbatches at a time, replicas $replicas $options" "
		plan frozen $(echo $replicas | tr - ' ') >base
		pair base $schedule $weights $microbatches >plan.json
		trained 6 plan.json $sgd $options"
done <<'END'
1-1 1f1b stash 1
2-1 1f1b stash 1
1-1-1 1f1b 2bw 4 --clip-grad-norm=0.5
1-1 zb-h1 flush 4
1-2 gpipe flush 2
END

test_ok 'it takes less memory than when all learn' '
	for model in whole frozen; do
		plan $model 1 1 >plan.json
		as_predicted --minibatches=2
		as_planned
		jq ".memory_bytes | add" last >$model.bytes
	done
	cat frozen.bytes whole.bytes
	[ "$(cat frozen.bytes)" -lt "$(cat whole.bytes)" ]'

test_ok 'a checkpoint has what is frozen once, and unchanged; a run that was stopped goes on from it' '
	plan frozen 1 1 >plan.json
	resumed plan.json 8 3 5 -- $sgd --synthetic
	rm -rf ck
	train ck plan.json --synthetic --no-evaluate --minibatches=1 --keep=9 $sgd >out
	train ck plan.json --synthetic --no-evaluate --minibatches=6 --keep=9 --resume $sgd >out
	tensors_of 6 >names
	cat names
	grep -qx conv1.weight names && grep -qx bn1.running_mean names
	! grep -qE "^(conv1|bn1|conv2|bn2|fc1)\..*(velocity|@)" names
	grep -qx conv3.weight.velocity names
	grep -o "\"frozen\": \[[^]]*\]" "$(at ck 6)/checkpoint.json"'
test_ok 'a run in which other layers learn does not go on from it' '
	plan whole 1 1 >plan.json
	status 2 train ck plan.json --synthetic --minibatches=8 --resume $sgd 2>err
	grep "trained with layer \"conv1\" frozen, found a plan in which it learns" err'

test_ok '--init begins with what it has for frozen layers, too, and they stay so' '
	plan whole 1 >plan.json
	train first plan.json --synthetic --no-evaluate --minibatches=3 >out
	plan frozen 1 >plan.json
	rm -rf ck
	train ck plan.json --synthetic --no-evaluate --minibatches=2 \
		--init="$(at first 3)/stage-0000.safetensors" >out 2>err || cat err'

test_ok 'all of a stage may be frozen' '
	freeze conv1 bn1 conv2 bn2 >front.json
	profile front.json 3 >front
	pd-plan --topology=2@10Gbit/s --stages=7x1,13x1 front >plan.json
	trained 6 plan.json $sgd
	jq -e ".predicted" plan.json >/dev/null'

test_done
