#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Weights after training in a pipeline are, bit for bit, those of test/conform/serial.c, which
# follows the published rule and keeps every version.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json
profile "$MODELS/mlp.json" 4 >mlp
profile "$MODELS/lenet5.json" 4 >lenet5
profile residual.json 4 >residual
idx_data data		# An epoch has 27 minibatches.

# equals N OPTION...: trains N minibatches of plan.json, and compares with the serial program.
equals() {
	n=$1
	shift
	trained "$n" plan.json $sgd "$@"
}

# An epoch of synthetic data has ten minibatches, in full groups and partial ones.
for replicas in "1" "2 1" "3 2 1" "1 1 1 1" "1 1" "1 1 1" "1 2" "3 1" "2 2" "1 3" "5 1"; do
	test_row "residual ${#replicas}" "residual, replicas $replicas" '
		plan residual $replicas >plan.json
		equals 25'
done
for replicas in "2 1" "1" "1 1 1 1" "3 2 1"; do
	test_row lenet5 "lenet5 over epochs of 27, replicas $replicas" '
		plan lenet5 $replicas >plan.json
		equals 40 --data=data'
done
for replicas in "1 2" "1 1" "3"; do
	test_row mlp "mlp over epochs of 27, replicas $replicas" '
		plan mlp $replicas >plan.json
		equals 40 --data=data'
done
# The all-reduce of replicas on two servers is a chain, with the same sums.
test_row servers "residual, four replicas on two servers" '
	layers=$(jq ".layers | length" residual)
	pd-plan --topology=2@10GB/s,2@1Gbit/s --stages="${layers}x4" residual >plan.json
	equals 25'
test_row servers "residual, five replicas on two servers and a stage behind them" '
	layers=$(jq ".layers | length" residual)
	pd-plan --topology=3@10GB/s,2@1Gbit/s --stages="$((layers - 3))x5,3x1" residual >plan.json
	equals 25'
# Works are handed over together where a device gains from that, as a GPU does (lib/engine/worker/batch.c).
for replicas in "2 1" "1 1 1" "1"; do
	test_row together "residual, handed over together, replicas $replicas" '
		together
		plan residual $replicas >plan.json
		equals 25'
done
test_ok "without momentum" '
	plan residual 2 1 >plan.json
	sgd="--lr=0.002 --momentum=0"
	equals 21'

# The next rows have other optimizers and learning rates.
adam="--optimizer=adam --lr=0.003 --weight-decay=0.01"
for schedule in "cosine --lr-warmup=6" "polynomial --lr-power=1.5" "step --lr-step=1 --lr-gamma=0.3"; do
	test_row adam "adam, learning rate $schedule" '
		plan residual 1 1 >plan.json
		sgd="$adam --lr-schedule=$schedule"
		equals 25'
done
test_ok "adam, replicas and partial groups over epochs of 27" '
	plan residual 2 1 >plan.json
	sgd="$adam --beta1=0.8 --beta2=0.99 --epsilon=1e-6 --lr-schedule=cosine --lr-warmup=30"
	equals 61 --data=data'
test_row adam "adamw" '
	plan residual 1 1 1 >plan.json
	sgd="--optimizer=adamw --lr=0.003 --weight-decay=0.01"
	equals 25'
test_ok "lars, replicas and another plan" '
	sgd="--optimizer=lars --lr=0.5 --trust=0.01 --weight-decay=0.01 --decay=matrices"
	plan residual 2 1 >plan.json
	equals 21
	plan residual 1 1 1 >plan.json
	equals 21'
test_ok "nesterov, replicas; without momentum" '
	plan residual 2 1 >plan.json
	sgd="--optimizer=nesterov --lr=0.01 --momentum=0.8 --weight-decay=0.01"
	equals 21
	sgd="--optimizer=nesterov --lr=0.002 --momentum=0"
	equals 9'
test_ok "weights decay, biases and normalisation do not: all optimizers" '
	plan residual 1 1 >plan.json
	for kind in sgd nesterov adam adamw "lion --beta2=0.99"; do
		sgd="--optimizer=$kind --lr=0.002 --weight-decay=0.1 --decay=matrices"
		equals 9
		"$serial" ${sgd%--decay*} --minibatches=9 --output=other plan.json
		status 1 "$same" other serial
	done'
test_ok "sgd, learning rate cosine with a warm-up" '
	plan residual 1 2 >plan.json
	sgd="--lr=0.002 --lr-schedule=cosine --lr-warmup=4"
	equals 25'
test_ok "another warm-up, schedule or optimizer gives other weights" '
	plan residual 1 1 >plan.json
	train ck-adam plan.json $adam --lr-schedule=cosine --lr-warmup=6 --synthetic --minibatches=15
	for other in "$adam --lr-schedule=cosine --lr-warmup=7" \
		     "$adam --lr-schedule=polynomial --lr-warmup=6" \
		     "$adam --lr-schedule=cosine --lr-warmup=6 --optimizer=adamw" \
		     "$adam --lr-schedule=cosine --lr-warmup=6 --beta2=0.9991"; do
		"$serial" $other --minibatches=15 --output=serial plan.json
		status 1 "$same" serial "$(at ck-adam 15)"
	done'

# The comparison can fail.
test_ok "another choice of versions gives other weights" '
	plan residual 1 1 1 >plan.json
	train ck-mutate plan.json $sgd --synthetic --minibatches=10
	for how in version latest; do
		"$serial" $sgd --minibatches=10 --mutate=$how --output=serial plan.json
		status 1 "$same" serial "$(at ck-mutate 10)"
	done'
test_ok "another order of stages gives other weights" '
	plan residual 1 2 >other.json
	"$serial" $sgd --minibatches=10 --output=serial other.json
	status 1 "$same" serial "$(at ck-mutate 10)"'

# With one minibatch in flight there is one version.  That is plain SGD, wherever it is computed.
test_ok "plain SGD: one stage is the same as its first minibatches in any pipeline" '
	plan residual 1 >one.json
	plan residual 1 1 1 1 >four.json
	train ck-one one.json $sgd --synthetic --minibatches=1
	train ck-four four.json $sgd --synthetic --minibatches=1
	"$same" "$(at ck-one 1)" "$(at ck-four 1)"'
test_ok "the same seed gives the same bits, another seed others" '
	plan residual 2 1 >plan.json
	train ck-a plan.json $sgd --synthetic --minibatches=15 --seed=3
	train ck-b plan.json $sgd --synthetic --minibatches=15 --seed=3
	train ck-c plan.json $sgd --synthetic --minibatches=15 --seed=4
	diff -r ck-a ck-b
	status 1 "$same" "$(at ck-a 15)" "$(at ck-c 15)"'

test_done
