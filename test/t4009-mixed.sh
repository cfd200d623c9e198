#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training in 16 bits: weights, activations and their gradients in bf16, masters and sums in f32.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

sgd="--lr=0.002 --momentum=0.9 --weight-decay=0.001"
residual_model >residual.json

# refused STATUS SENTENCE COMMAND...: one line on standard error.
refused() {
	refused_status=$1 refused_text=$2
	shift 2
	status "$refused_status" "$@" >out 2>err
	cat err
	[ "$(wc -l <err)" -eq 1 ] && grep -q -- "$refused_text" err
}

test_ok "a type that there is not" '
	refused 2 "^pd-profile: --dtype: expected f32, bf16 or f16, found \"f64\"$" \
		pd-profile --dtype=f64 "$MODELS/mlp.json"
	refused 2 "^pd-profile: --dtype: expected f32, bf16 or f16, found \"i32\"$" \
		pd-profile --dtype=i32 "$MODELS/mlp.json"'
if [ "${PD_TEST_DEVICE:-cpu}" = cpu ]; then
	test_ok "processors do not compute in f16" '
		refused 2 "dtype f16: processors compute in f32 or bf16$" \
			pd-profile --device=cpu --dtype=f16 "$MODELS/mlp.json"'
	test_ok "nor in bf16 without AVX-512" '
		DNNL_MAX_CPU_ISA=AVX2 refused 2 "dtype bf16: this processor has no AVX-512" \
			pd-profile --device=cpu --dtype=bf16 "$MODELS/mlp.json"'
fi
profile residual.json 2 >f32
if ! PD_TEST_DTYPE=bf16 profile residual.json 2 >residual 2>why; then
	test_skip "all else" "$(cat why)"
	test_done
fi
PD_TEST_DTYPE=bf16 profile "$MODELS/mlp.json" 2 >mlp
PD_TEST_DTYPE=bf16 profile "$MODELS/lenet5.json" 2 >lenet5

test_ok "the profile says so, the plan has it from there; what travels is half as large" '
	plan residual 1 1 >plan.json
	jq -e ".profile.dtype == \"bf16\"" plan.json
	# the losses, the last, never travel: a GPU has them in f32
	jq -e --slurpfile f32 f32 "[.layers[:-1], \$f32[0].layers[:-1]] | transpose |
		length > 0 and all(.[0].activation_bytes * 2 == .[1].activation_bytes)" residual'
test_ok "f16 is for plans whose stages agree on updates" '
	plan residual 1 1 | jq ".profile.dtype = \"f16\"" >plan.json
	refused 2 "dtype f16, whose loss is scaled: a plan with weights \"stash\" updates after" \
		pd-run --device="${PD_TEST_DEVICE:-cpu}" --synthetic -m 4 plan.json'

# pair PLAN SCHEDULE WEIGHTS MICROBATCHES
pair() {
	jq --arg schedule "$2" --arg weights "$3" --argjson m "$4" \
		'.schedule = $schedule | .weights = $weights | .microbatches = $m' "$1"
}
# equals N PLAN OPTION...: pd-run and the serial program agree after N microbatches, and the
# memory is as predicted.
equals() {
	rm -rf ck
	n=$1 plan=$2
	shift 2
	train ck "$plan" $sgd --minibatches="$n" --synthetic --no-evaluate "$@" >out
	"$serial" $sgd --minibatches="$n" --output=serial "$@" "$plan"
	"$same" serial "$(at ck "$n")"
	tail -n 1 out | jq -e '.memory == "as predicted"'
}
for replicas in "1" "1 1" "1 1 1" "1 1 1 1" "2 1" "1 2" "2 2"; do
	plan residual $replicas >"residual-$(echo "$replicas" | tr ' ' -)"
done
plan mlp 1 1 1 >mlp-1-1-1
plan lenet5 2 1 >lenet5-2-1
while read -r schedule weights microbatches plans; do
	for plan in $plans; do
		test_ok "$schedule, $weights, $microbatches at a time, $plan" '
			pair $plan $schedule $weights $microbatches >plan.json
			equals 12 plan.json'
	done
done <<END
1f1b stash 1 residual-1 residual-1-1-1-1 residual-2-1 lenet5-2-1
1f1b stash 4 residual-2-2
1f1b vertical-sync 1 residual-1-1-1
1f1b 2bw 4 residual-1-1-1-1 residual-1-2
1f1b flush 4 residual-2-1
1f1b latest 1 residual-1-1-1 mlp-1-1-1
gpipe flush 4 residual-1-1-1
zb-h1 flush 4 residual-1-1 residual-2-1
nf1b vertical-sync 2 residual-1-1
none stash 1 residual-2-1
END
test_ok "adam, with a moment more" '
	sgd="--optimizer=adam --lr=0.003 --weight-decay=0.01"
	equals 12 residual-1-1-1'
test_ok "recomputed forwards" '
	jq ".stages[].recompute = true" residual-1-1-1 >plan.json
	equals 12 plan.json'
test_ok "weights that are not stashed, corrected" '
	pair residual-1-1-1 1f1b latest 1 >plan.json
	equals 12 plan.json --discrepancy=0.3'
test_ok "gradients clipped, the loss scaled" '
	pair residual-1-1-1 1f1b 2bw 4 >plan.json
	equals 16 plan.json --clip-grad-norm=0.5 --loss-scale=1000'
test_ok "a scale with which gradients overflow is halved until they do not" '
	pair residual-1-1 1f1b flush 2 >plan.json
	equals 20 plan.json --loss-scale=dynamic --loss-scale-init=1e38 --loss-scale-interval=3
	tail -n 1 out | jq -e ".skipped >= 1"'
test_ok "the comparison can fail: in f32 the weights are others" '
	train ck-narrow residual-1-1 $sgd --minibatches=4 --synthetic --no-evaluate >out
	jq ".profile.dtype = \"f32\"" residual-1-1 >plan.json
	"$serial" $sgd --minibatches=4 --output=serial plan.json
	status 1 "$same" serial "$(at ck-narrow 4)"'

test_ok "four stages stash versions of half the size, and have a master each" '
	plan mlp 1 1 1 1 >narrow.json
	PD_TEST_DTYPE=f32 profile "$MODELS/mlp.json" 2 >wide
	plan wide 1 1 1 1 >wide.json
	for p in narrow wide; do
		train ck-$p $p.json $sgd --minibatches=2 --synthetic --no-evaluate |
			tail -n 1 >last-$p
	done
	# of each parameter on the first: in f32 four versions, gradient, velocity, 24 bytes; in
	# bf16 four versions of two, those and the master, 20
	jq -e --slurpfile wide last-wide "
		.memory == \"as predicted\" and \$wide[0].memory == \"as predicted\" and
		.memory_bytes[0] < \$wide[0].memory_bytes[0]" last-narrow'

idx_data data		# 55 microbatches an epoch
while read -r schedule weights microbatches plan stops; do
	test_ok "$schedule, $weights, $plan: resumed at $stops" '
		pair $plan $schedule $weights $microbatches >plan.json
		rm -rf ck ck-whole
		train ck-whole plan.json $sgd --minibatches=60 --data=data --no-evaluate >out
		again=
		for k in $stops 60; do
			train ck plan.json $sgd --minibatches=$k --data=data --no-evaluate $again >out
			again=--resume
		done
		diff -r "$(at ck-whole 60)" "$(at ck 60)"'
done <<END
1f1b stash 1 residual-1-1-1 3 57
1f1b 2bw 4 residual-2-1 4 20
END
test_ok "another type goes on from a checkpoint, which has the master" '
	plan f32 1 1 >wide.json
	rm -rf ck
	train ck residual-1-1 $sgd --minibatches=6 --synthetic --no-evaluate >out
	train ck wide.json $sgd --minibatches=6 --synthetic --no-evaluate --resume >out
	train ck wide.json $sgd --minibatches=12 --synthetic --no-evaluate --resume >out
	train ck residual-1-1 $sgd --minibatches=18 --synthetic --no-evaluate --resume >out
	tail -n 1 out | jq -e ".step == 18"'
test_ok "replayed in virtual time, in the memory that it takes" '
	pd-replay --minibatches=8 --format=report residual-2-1 >out
	grep -q . out'

test_done
