#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gradients travel in 16 bits.  The weights are, bit for bit, those of test/conform/serial.c, which rounds
# each replica's gradients once and their sum once, under several schedules and weights, in any buckets and
# groups.  All replicas agree, memory is as predicted, and plans and replays know of it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_plans 2 "" "2" "3" "4" "2 1" "2 2"
layers=$(jq ".layers | length" residual)
pd-plan --topology=2@10GB/s,2@1Gbit/s --stages="${layers}x4" residual >servers

# rounds PLAN SCHEDULE WEIGHTS MICROBATCHES DTYPE REDUCER BYTES: prints that plan; 0 bytes give one bucket.
rounds() {
	jq --arg schedule "$2" --arg weights "$3" --argjson m "$4" --arg dtype "$5" --arg reducer "$6" \
		--argjson bytes "$7" '.schedule = $schedule | .weights = $weights | .microbatches = $m |
		.gradient_dtype = $dtype | .reducer = $reducer |
		if $bytes > 0 then .bucket_bytes = $bytes else . end | del(.stages[].predicted)' "$1"
}

# judged N PLAN SCHEDULE WEIGHTS MICROBATCHES DTYPE REDUCER BYTES OPTION...: trains N minibatches of that
# plan, and compares with the serial program.
judged() {
	judged_n=$1
	rounds "$2" "$3" "$4" "$5" "$6" "$7" "$8" >plan.json
	shift 8
	trained "$judged_n" plan.json $sgd "$@"
}

test_row stash "two replicas, bf16" 'judged 8 2 1f1b stash 1 bf16 dense 0'
test_row stash "three, f16, a bucket of each layer" 'judged 9 3 1f1b stash 1 f16 dense 1'
test_row stash "four on two servers, whose sums go on in f32" 'judged 8 servers 1f1b stash 1 bf16 dense 1200'
test_row stash "two before one, f16" 'judged 8 2-1 1f1b stash 1 f16 dense 1200'
test_row stash "two before two, round a ring" 'judged 6 2-2 1f1b stash 4 bf16 ring 0'
test_row stash "two before two, hierarchical: on one level a ring" 'judged 6 2-2 1f1b stash 4 bf16 hierarchical 1200'
test_row stash "two before one, recursive doubling" 'judged 8 2-1 1f1b stash 1 f16 recursive-doubling 0'
test_row flush "flush" 'judged 4 2-1 1f1b flush 4 bf16 dense 1200'
test_row flush "zb-h1" 'judged 4 2-2 zb-h1 flush 4 f16 dense 1200'
test_row 2bw "2bw" 'judged 5 2-2 1f1b 2bw 4 bf16 dense 0'
test_row 2bw "2bw, all ranks agree on updates" 'judged 5 2-1 1f1b 2bw 4 f16 dense 1200 --clip-grad-norm=0.5'

PD_TEST_DTYPE=f16 profile residual.json 2 >residual-f16
plan residual-f16 2 1 >f16-2-1
plan residual-f16 2 2 >f16-2-2
test_row f16-net "a network of f16, whose gradients have its loss scale" '
	judged 4 f16-2-1 1f1b flush 4 f16 dense 1200 --loss-scale=1000'
test_row f16-net "of f16, 2bw, round a ring" 'judged 4 f16-2-2 1f1b 2bw 4 f16 ring 0 --loss-scale=1000'
test_row scale "of f32 with f16 gradients: a constant loss scale, which f16 need not hold" '
	judged 4 2-1 1f1b flush 4 f16 dense 1200 --loss-scale=3e6'
test_row scale "and one that adapts: an overflow leaves out the update" '
	judged 10 2-1 1f1b flush 4 f16 dense 0 --loss-scale=dynamic --loss-scale-init=1e7 \
		--loss-scale-interval=3
	tail -n 1 out | jq -e ".skipped >= 1 and .skipped < 10"'
test_ok "of f16: an overflow on one replica leaves out the update on all" '
	judged 10 f16-2-1 1f1b flush 4 f16 dense 0 --loss-scale=dynamic --loss-scale-init=1e7 \
		--loss-scale-interval=3
	tail -n 1 out | jq -e ".skipped >= 1 and .skipped < 10"'

test_ok "the judge sees whether the gradients of replicas are rounded" '
	rounds 2 1f1b stash 1 bf16 dense 0 >plan.json
	"$serial" $sgd --minibatches=4 --mutate=round --output=wrong plan.json
	trained 4 plan.json $sgd
	if "$same" wrong "$(at ck 4)" >/dev/null; then false; fi'
test_ok "resumed in the middle, and from f32" '
	rounds 2-1 1f1b stash 1 bf16 dense 1200 >plan.json
	resumed plan.json 8 4 6 -- $sgd --synthetic
	jq "del(.gradient_dtype)" plan.json >f32.json
	rm -rf ck
	train ck f32.json $sgd --minibatches=4 --synthetic --no-evaluate >out
	train ck plan.json $sgd --minibatches=8 --synthetic --no-evaluate --resume >out
	tail -n 1 out | jq -e ".memory == \"as predicted\""'
test_ok "pd-plan --gradient-dtype: the plan says so, and has the memory of it" '
	for type in bf16 f16; do
		plan_with="--gradient-dtype=$type"
		plan residual 3 >plan.json
		plan_with=
		[ "$(jq -r .gradient_dtype plan.json)" = $type ]
		as_predicted --minibatches=2 --no-evaluate
		as_planned
	done
	plan_with="--gradient-dtype=f32"
	plan residual 3 >plan.json
	plan_with=
	jq -e ".gradient_dtype == null" plan.json'
test_ok "what is no type is refused" '
	if pd-plan --gradient-dtype=f8 --topology=2@1GB/s residual 2>why; then false; fi
	grep "gradient-dtype" why
	jq ".gradient_dtype = \"i32\"" 2 >plan.json
	if pd-schedule --check plan.json 2>why; then false; fi
	grep "gradient_dtype: expected one of \"f32\", \"bf16\", \"f16\"" why'

# Three layers have a megabyte each, which replicas sum over links of 250 MB/s.
jq -n '{format: "pd-profile", version: 1, name: "three", batch_size: 1, device: {kind: "cpu"},
	layers: [{name: "a", inputs: []}, {name: "b", inputs: ["a"]}, {name: "c", inputs: ["b"]} |
		. + {forward_ns: 1000000, backward_ns: 2000000, activation_bytes: 64,
		parameter_bytes: 1000000, stash_bytes: 64, workspace_bytes: 0}]}' >three
# takes REPLICAS REDUCER DTYPE MS: checks that an update takes so long: 9 ms of computing and the sum.
takes() {
	pd-plan --topology="$1@250MB/s" --stages="3x$1" --all-reduce="$2" --gradient-dtype="$3" \
		three >plan.json
	jq -e ".predicted | .gap >= 0 and .period_ns >= .lower_bound_ns" plan.json
	pd-replay --format=json plan.json >report.json
	jq -c '.period_ns' report.json
	jq -e --argjson n "$1" --argjson ms "$4" \
		'(.period_ns * $n / 1e6 - $ms | fabs) < 0.01' report.json
	[ "$(jq '.period_ns | ceil' report.json)" = "$(jq .predicted.period_ns plan.json)" ]
}
test_ok "a replay: dense sums take half the time" '
	takes 2 dense f32 21 && takes 2 dense bf16 15 && takes 4 dense f32 27 && takes 4 dense f16 18'
test_ok "a ring: parts of sums go on in f32" 'takes 2 ring bf16 15 && takes 4 ring f16 21'
test_ok "recursive doubling: after the first round, too" '
	takes 2 recursive-doubling bf16 15 && takes 4 recursive-doubling f16 27'
# period FILTER: prints that of two replicas in bf16, with a profile that FILTER changes.
period() {
	jq ".device.sum_bytes_per_s = 4000000000 | $1" three |
		pd-plan --topology=2@250MB/s --stages=3x2 --gradient-dtype=bf16 - |
		jq .predicted.period_ns
}
test_ok "rounding and sums of 16 bits take what the profile says, and bytes that they read without that" '
	old=$(period .)
	[ "$(period ".device.round_bytes_per_s = 8000000000")" = "$old" ]
	[ "$(period ".device.mixed_sum_bytes_per_s = 4800000000")" = "$old" ]
	round=$(period ".device.round_bytes_per_s = 1000000000")
	mixed=$(period ".device.mixed_sum_bytes_per_s = 1000000000")
	echo "$old $round $mixed"
	[ "$round" -gt "$old" ] && [ "$mixed" -gt "$old" ]'
test_ok "searches know of it: data parallelism where its sums take half as long" '
	jq "(.layers[] | .parameter_bytes) = 300000 | (.layers[] | .activation_bytes) = 1500000" three >wide
	pd-plan --topology=2@250MB/s wide >f32.json
	pd-plan --topology=2@250MB/s --gradient-dtype=bf16 wide >bf16.json
	jq -e --slurpfile f32 f32.json ".predicted | .period_ns < \$f32[0].predicted.period_ns and
		.lower_bound_ns <= .period_ns" bf16.json'
test_done
