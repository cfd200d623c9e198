#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training in 16 bits has weights, activations and their gradients in bf16 or f16, and masters and sums in
# f32.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json

# refused STATUS SENTENCE COMMAND...: checks that the command ends with that status, and has the sentence in
# one line on standard error.
refused() {
	refused_status=$1 refused_text=$2
	shift 2
	status "$refused_status" "$@" >out 2>err
	cat err
	[ "$(wc -l <err)" -eq 1 ] && grep -q -- "$refused_text" err
}

test_ok "a type that there is not" '
	refused 2 "^pd-profile: --dtype: expected one of f32, bf16, f16, found \"f64\"$" \
		pd-profile --dtype=f64 "$MODELS/mlp.json"
	refused 2 "^pd-profile: --dtype: expected one of f32, bf16, f16, found \"i32\"" \
		pd-profile --dtype=i32 "$MODELS/mlp.json"'
if [ "${PD_TEST_DEVICE:-cpu}" = cpu ]; then
	test_ok "processors without AVX-512 compute in 16 bits too, with kernels of f32" '
		for type in bf16 f16; do
			ONEDNN_MAX_CPU_ISA=AVX2 PD_TEST_DTYPE=$type profile residual.json 2 |
				jq -e --arg type $type ".dtype == \$type"
		done'
	test_full "but those of bf16 they have not" '
		PD_CPU_BF16=native ONEDNN_MAX_CPU_ISA=AVX2 refused 2 \
			"dtype bf16: PD_CPU_BF16 is \"native\", and this processor has no AVX-512" \
			pd-profile --device=cpu --dtype=bf16 "$MODELS/mlp.json"'
fi
profile residual.json 2 >f32
if ! PD_TEST_DTYPE=bf16 profile residual.json 2 >residual 2>why; then
	test_skip "all else" "$(cat why)"
	test_done
fi
PD_TEST_DTYPE=bf16 profile "$MODELS/mlp.json" 2 >mlp
PD_TEST_DTYPE=bf16 profile "$MODELS/lenet5.json" 2 >lenet5

# The kernel of a convolution chooses the layout, padded or not, and other kernels choose others.  So only
# what no kernel lays out is sure to be half as large.
test_ok "the profile says so, the plan has it from there; what travels is half as large" '
	plan residual 1 1 >plan.json
	jq -e ".profile.dtype == \"bf16\"" plan.json
	profile "$MODELS/mlp.json" 2 >f32-mlp
	# The losses come last and never travel.  A GPU has them in f32, and gaps between rows of logits.
	jq -e --slurpfile f32 f32-mlp "[.layers[:-2], \$f32[0].layers[:-2]] | transpose |
		length > 0 and all(.[0].activation_bytes * 2 == .[1].activation_bytes)" mlp'
test_ok "f16 is for plans whose stages agree on updates" '
	plan residual 1 1 | jq ".profile.dtype = \"f16\"" >plan.json
	refused 2 "dtype f16, whose loss is scaled: a plan with weights \"stash\" updates after" \
		pd-run --device="${PD_TEST_DEVICE:-cpu}" --synthetic -m 4 plan.json'

for replicas in "1" "1 1" "1 1 1" "1 1 1 1" "2 1" "1 2" "2 2"; do
	plan residual $replicas >"residual-$(echo "$replicas" | tr ' ' -)"
done
plan mlp 1 1 1 >mlp-1-1-1
plan lenet5 2 1 >lenet5-2-1
while read -r schedule weights microbatches plans; do
	for plan in $plans; do
		test_row "$weights" "$schedule, $weights, $microbatches at a time, $plan" '
			pair $plan $schedule $weights $microbatches >plan.json
			trained 12 plan.json $sgd'
	done
done <<END
1f1b stash 1 residual-1-1-1-1 residual-1 residual-2-1 lenet5-2-1
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
test_ok "f16 gets weights that stages agree on, unless others are named" '
	PD_TEST_DTYPE=f16 profile residual.json 2 >f16.json
	for weights in "" --weights=auto; do
		pd-plan -q -t 2@1GB/s $weights f16.json >f16.plan
		jq -e ".weights == \"flush\"" f16.plan
	done
	pd-run --synthetic --no-evaluate --minibatches=3 f16.plan >/dev/null
	pd-plan -q -t 2@1GB/s --weights=stash f16.json | jq -e ".weights == \"stash\""'
test_ok "adam, with a moment more" '
	sgd="--optimizer=adam --lr=0.003 --weight-decay=0.01"
	trained 12 residual-1-1-1 $sgd'
test_ok "lars, whose norms are those of the masters and of sums in f32" '
	plan lenet5 2 >plan.json
	lars="--optimizer=lars --lr=0.5 --trust=0.01"
	trained 8 plan.json $lars --weight-decay=0.01
	"$serial" $lars --minibatches=8 --output=other plan.json
	status 1 "$same" other serial'
test_ok "recomputed forwards" '
	jq ".stages[].recompute = true" residual-1-1-1 >plan.json
	trained 12 plan.json $sgd'
test_ok "weights that are not stashed, corrected" '
	pair residual-1-1-1 1f1b latest 1 >plan.json
	trained 12 plan.json $sgd --discrepancy=0.3'
test_ok "gradients clipped, the loss scaled" '
	pair residual-1-1-1 1f1b 2bw 4 >plan.json
	trained 12 plan.json $sgd --clip-grad-norm=0.3 --loss-scale=1000'
test_ok "a scale with which gradients overflow is halved until they do not" '
	pair residual-1-1 1f1b flush 2 >plan.json
	trained 20 plan.json $sgd --loss-scale=dynamic --loss-scale-init=1e38 --loss-scale-interval=3
	tail -n 1 out | jq -e ".skipped >= 1"'
test_ok "the comparison can fail: in f32 the weights are others" '
	train ck-narrow residual-1-1 $sgd --minibatches=4 --synthetic --no-evaluate >out
	jq ".profile.dtype = \"f32\"" residual-1-1 >plan.json
	"$serial" $sgd --minibatches=4 --output=serial plan.json
	status 1 "$same" serial "$(at ck-narrow 4)"'

# The size of a version is the difference between the stage that stashes versions and the one that does not.
# The sizes of scratch and padding are up to the kernels.
test_ok "four stages stash versions of half the size of the master, as the device lays them out" '
	for dtype in bf16 f32; do
		PD_TEST_DTYPE=$dtype profile "$MODELS/mlp.json" 2 >sized
		plan sized 1 1 1 1 >stash.json
		pair stash.json 1f1b latest 1 >latest.json
		for weights in stash latest; do
			train of-$dtype-$weights $weights.json $sgd --minibatches=2 --synthetic \
				--no-evaluate | tail -n 1 >last-$weights
			jq -e ".memory == \"as predicted\"" last-$weights >predicted
		done
		jq --slurpfile plan stash.json --slurpfile latest last-latest "
			(\$plan[0] | .stages[0].layers as \$names | [.profile.layers[] |
				select(.name as \$n | \$names | index(\$n)).parameter_bytes // 0] |
				add) as \$full |
			(.memory_bytes[0] - \$latest[0].memory_bytes[0]) / \$full" last-stash
	done >versions
	cat versions
	# The first stage has four versions instead of one.
	jq -s -e ". == [1.5, 3]" versions'

idx_data data		# An epoch has 55 microbatches.
while read -r schedule weights microbatches plan n stops; do
	test_row resumed "$schedule, $weights, $plan: resumed at $stops" '
		pair $plan $schedule $weights $microbatches >plan.json
		resumed plan.json $n $stops -- $sgd --data=data'
done <<END
1f1b stash 1 residual-1-1-1 60 3 57
1f1b 2bw 4 residual-2-1 15 1 5
END
test_ok "another type goes on from a checkpoint, which has the master" '
	plan f32 1 1 >wide.json
	rm -rf ck
	train ck residual-1-1 $sgd --minibatches=6 --synthetic --no-evaluate >out
	train ck wide.json $sgd --minibatches=6 --synthetic --no-evaluate --resume >out
	train ck wide.json $sgd --minibatches=12 --synthetic --no-evaluate --resume >out
	train ck residual-1-1 $sgd --minibatches=18 --synthetic --no-evaluate --resume >out
	tail -n 1 out | jq -e ".step == 18"'

# bf16 runs on each kind of kernels, also on the kind that is not the default.
for way in native wide; do
	export PD_CPU_BF16=$way
	if [ "${PD_TEST_DEVICE:-cpu}" != cpu ] ||
	   ! PD_TEST_DTYPE=bf16 profile residual.json 2 >bf16-$way 2>why; then
		test_skip "bf16, $way" "$(cat why)"
		unset PD_CPU_BF16
		continue
	fi
	test_ok "bf16 by kernels that are $way" '
		plan bf16-$way 1 1 1 >plan.json
		trained 12 plan.json $sgd
		mv "$(at ck 12)" ck-$way'
	unset PD_CPU_BF16
done
if [ -d ck-native ] && [ -d ck-wide ]; then
	test_ok "they are not the same kernels" 'status 1 "$same" ck-native ck-wide'
fi

if ! PD_TEST_DTYPE=f16 profile residual.json 2 >f16 2>why; then
	test_skip "f16" "$(cat why)"
	test_done
fi
cp "$PD_SOURCE/test/data/tied-model.json" tied.json
PD_TEST_DTYPE=f16 profile tied.json 2 >tied
PD_TEST_DTYPE=f16 profile "$MODELS/lenet5.json" 2 >lenet5
for replicas in "1 1" "1 1 1" "1 1 1 1" "2 1" "1 2"; do
	plan f16 $replicas >"f16-$(echo "$replicas" | tr ' ' -)"
done
# pd-plan would not cut this network into three stages.
pd-plan --topology=3@10Gbit/s --weights=flush --stages=14 tied | jq 'del(.stages[].predicted) |
	.stages = ([.profile.layers[].name] | [.[:4], .[4:7], .[7:]] | to_entries |
		map({layers: .value, replicas: 1, ranks: [.key]}))' >tied-1-1-1
plan lenet5 2 1 >lenet5-2-1
# These are the defaults of pd-run.
scale="--loss-scale=dynamic --loss-scale-init=65536 --loss-scale-interval=2000"
while read -r schedule weights microbatches plans; do
	for plan in $plans; do
		test_row "f16 $weights" "f16: $schedule, $weights, $microbatches at a time, $plan" '
			pair $plan $schedule $weights $microbatches >plan.json
			trained 12 plan.json $sgd $scale'
	done
done <<END
1f1b 2bw 4 f16-1-1-1-1 f16-1-2
1f1b flush 4 f16-2-1 tied-1-1-1
gpipe flush 4 f16-1-1-1
zb-h1 flush 4 f16-1-1
none flush 2 lenet5-2-1
END
test_ok "f16: recomputed forwards, adam, clipped" '
	sgd="--optimizer=adam --lr=0.003 --weight-decay=0.01"
	pair f16-1-1-1 1f1b 2bw 4 | jq ".stages[].recompute = true" >plan.json
	trained 12 plan.json $sgd $scale --clip-grad-norm=0.5'
test_ok "f16: scaled as said without being asked" '
	pair f16-1-1-1 1f1b 2bw 4 >plan.json
	rm -rf ck
	train ck plan.json $sgd --minibatches=12 --synthetic --no-evaluate >out
	"$serial" $sgd --minibatches=12 --output=serial $scale plan.json
	"$same" serial "$(at ck 12)"'
# Gradients that are too large for f16 become infinite in some stages.  All stages then skip the update and
# halve the scale, which begins at 2^20.  Soon the scale grows and is too large again; the good updates
# before that no longer count.
large="--loss-scale=dynamic --loss-scale-init=1048576 --loss-scale-interval=3"
for weights in flush 2bw; do
	test_ok "f16, $weights: what overflows is skipped by all stages, and the scale halved" '
		pair f16-1-1-1 1f1b $weights 4 >plan.json
		trained 16 plan.json $sgd $large
		tail -n 1 out | jq -e ".skipped >= 2 and .skipped < 16 and .loss_scale < 1048576"
		for mutation in skip scale; do
			"$serial" $sgd --minibatches=16 $large --mutate=$mutation --output=other plan.json
			status 1 "$same" other "$(at ck 16)"
		done'
done
test_ok "f16: resumed, with the scale that it had" '
	pair f16-2-1 1f1b 2bw 4 >plan.json
	resumed plan.json 6 2 -- $sgd $large --synthetic'

# Scratch is left out of it, since its size is up to the kernels.
test_ok "replayed in virtual time, in less memory than f32" '
	plan mlp 1 1 1 >of-mlp
	plan f32-mlp 1 1 1 >of-f32-mlp
	for p in of-mlp of-f32-mlp; do
		jq ".profile.layers[] |= del(.forward_workspace_bytes, .backward_workspace_bytes,
			.workspace_bytes)" $p >plan.json
		pd-replay --minibatches=8 --format=report plan.json |
			grep "8 minibatches of 2 samples, simulated"
		pd-replay --minibatches=8 --format=chrome plan.json |
			jq "[.traceEvents[] | select(.name == \"memory\" and .pid == 0).args.bytes] | max"
	done >out
	cat out
	grep -v simulated out | jq -s -e "length == 2 and .[0] < .[1]"'

test_done
