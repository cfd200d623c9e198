#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks slow each other down where the profile says so.  Replicas of a stage compute at once, which takes
# longer, and a sum of gradients waits for the slowest.  Ranks may take turns on a processor.  Sums may go
# through each other's memory.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# plan REPLICAS WARMUPS [FILTER]: writes a plan with layers of 10 ms, 20 ms and, for the update, 2 ms.  Two
# workers were timed.
plan() {
	made_up "$1" "$2" '.profile.layers[] += {forward_ns: 10e6, backward_ns: 20e6, update_ns: 2e6}
		| .profile.device += {workers: 2, in_step: {forward: 1.1, backward: 1.2, update: 1.5,
			slowest_ns: 3000000}}' | jq "${3:-.}" >plan.json
}

# minibatches_ms N: prints the time of N minibatches in all.
minibatches_ms() {
	pd-replay --format=json -m "$1" plan.json | jq '.elapsed_ns / 1e6'
}

# within MS LEAST: checks that MS is at least LEAST, and less than a tenth of a millisecond more.
within() {
	awk -v ms="$1" -v least="$2" 'BEGIN { exit !(ms >= least - 1e-6 && ms < least + 0.1) }'
}

test_ok "two replicas compute longer and wait for the slowest, once an update" '
	plan "[2]" "[0]"
	within "$(minibatches_ms 2)" 41
	within "$(minibatches_ms 20)" 410'
test_ok "of four, the slowest is later: 1/2 + 1/3 + 1/4 times as late as 1/2" '
	plan "[4]" "[0]"
	within "$(minibatches_ms 4)" 44.5'
test_ok "between four passes the slowest becomes twice as late, not four times" '
	plan "[2]" "[0]" ".microbatches = 8 | .weights = \"flush\""
	within "$(minibatches_ms 1)" $((4 * 35 + 6 + 3))'
test_ok "one replica, or a profile that does not say it: as in the layers" '
	plan "[1]" "[0]"
	within "$(minibatches_ms 1)" 32
	plan "[2]" "[0]" "del(.profile.device.in_step)"
	within "$(minibatches_ms 2)" 32
	plan "[2]" "[0]" ".profile.device.in_step = {slowest_ns: 0}"
	within "$(minibatches_ms 2)" 32'
test_ok "what replicas send to other stages is not late" '
	plan "[2, 1]" "[1, 0]"
	pd-replay -f trace -m 2 plan.json | jq -se "map(select(.op)) as \$ops
		| (\$ops | map(select(.op == \"forward\" and .stage == 0 and .microbatch == 0))[0].end_ns)
		== (\$ops | map(select(.op == \"forward\" and .stage == 1 and .microbatch == 0))[0].start_ns)"'
test_ok "ranks that take turns on a processor take longer while they do" '
	plan "[2]" "[0]" "del(.profile.device.in_step) | .profile.device.in_turns = 1.25"
	pd-replay -f json --processors=1 -m 2 plan.json | jq -e ".elapsed_ns / 1e6 - 2 * 32 * 1.25 | fabs < 0.1"
	pd-replay -f json --processors=2 -m 2 plan.json | jq -e ".elapsed_ns / 1e6 - 32 | fabs < 0.1"
	plan "[2]" "[0]" "del(.profile.device.in_step)"
	pd-replay -f json --processors=1 -m 2 plan.json | jq -e ".elapsed_ns / 1e6 - 2 * 32 | fabs < 0.1"'
test_ok "and while one of them waits for the other it does not" '
	plan "[1, 1]" "[0, 0]" ".schedule = \"none\" | .profile.device.in_turns = 1.25 |
		.profile.layers[].update_ns = 0"
	pd-replay -f json --processors=1 -m 1 plan.json | jq -e ".elapsed_ns / 1e6 - 60 | fabs < 0.1"'
# sums MS FILTER: checks that a minibatch of 30 ms and a sum of 65,536 gradients take so long in all, with
# links of 100 MB/s and 0.1 ms.  In each other's memory the sum takes 1 ms and two empty messages; by
# messages it takes 2 x 1.311 ms and two latencies.
sums() {
	made_up "[2]" "[0]" ".profile.layers[] += {forward_ns: 10e6, backward_ns: 20e6,
			parameter_bytes: 262144}
		| .profile.device += {workers: 2, in_step: {slowest_ns: 0, sum_bytes_per_s: 262144000}}
		| .topology.levels[0] += {bandwidth_bytes_per_s: 100000000, latency_ns: 100000,
			shared_memory: true}" | jq "$2" >plan.json
	pd-replay --format=json plan.json >report.json
	jq -c "[.period_ns * 2 / 1e6, .stages[0].allreduce_ns / 1e6]" report.json
	jq -e --argjson ms "$1" "(.period_ns * 2 / 1e6 - \$ms | fabs) < 0.01" report.json
}
test_ok "replicas of one host sum in each other.s memory, at the speed that the profile says" '
	sums 31.2 .
	jq -e ".stages[0] | .sent_bytes == 262144 and .messages == 2" report.json
	sums 31.2 ".profile.layers[].parameter_bytes = 262145 - 1"
	sums 30.7 ".profile.device.in_step.sum_bytes_per_s *= 2"
	sums 31.2 "del(.topology.levels[0].shared_memory) | .topology.processors = 2"'
test_ok "by messages where that is not known, or they do not" '
	sums 32.821 "del(.profile.device.in_step.sum_bytes_per_s)"
	sums 32.821 "del(.topology.levels[0].shared_memory)"
	sums 32.821 ".topology.levels = [{count: 1, bandwidth_bytes_per_s: 1e9, shared_memory: true}] +
		(.topology.levels | map(del(.shared_memory)))"
	sums 32.821 ".profile.layers[].parameter_bytes -= 64"
	sums 32.821 ".reducer = \"ring\""
	sums 31.511 ".gradient_dtype = \"bf16\""'
test_ok "a sum waits for the slowest once, there too" '
	sums 34.2 ".profile.device.in_step.slowest_ns = 3000000"'
test_ok "buckets of 65,536 gradients or more each go so" '
	made_up "[2]" "[0]" ".profile.layers = [{name: \"a\", inputs: []}, {name: \"b\", inputs: [\"a\"]} |
			. + {forward_ns: 10e6, backward_ns: 20e6, activation_bytes: 0}]
		| .profile.layers[0].parameter_bytes = 64000 | .profile.layers[1].parameter_bytes = 1000000
		| .profile.device += {workers: 2, in_step: {slowest_ns: 0, sum_bytes_per_s: 1000000000}}
		| .topology.levels[0] += {bandwidth_bytes_per_s: 100000000, shared_memory: true}
		| .stages[0].layers = [\"a\", \"b\"] | .bucket_bytes = 64000" >plan.json
	pd-replay --format=trace plan.json | jq -se "map(select(.op == \"allreduce\")) |
		group_by(.bucket) | map(map((.end_ns - .start_ns) / 1e6) | min * 100 | round) == [100, 64]"'
test_ok "the planner knows: replicas where they are faster, and no plan is below the bound" '
	jq ".profile | .layers[] += {parameter_bytes: 10000000, activation_bytes: 4000000} | .link = {bandwidth_bytes_per_s: 100000000}
		| .device.in_step.sum_bytes_per_s = 10000000000" plan.json >direct
	jq "del(.device.in_step)" direct >messages
	pd-plan --gpus=2 direct >1
	pd-plan --gpus=2 messages >2
	jq -e ".topology.levels[0].shared_memory and (.stages | map(.replicas)) == [2] and
		(.predicted | .gap >= 0 and .period_ns < 32.1e6)" 1
	jq -e "(.topology.levels[0] | has(\"shared_memory\") | not) and (.stages | length) == 2 and
		.predicted.gap >= 0" 2
	pd-plan --gpus=2 --weights=flush --microbatches=2 --stages=2x2 direct |
		jq -e ".stages[0].predicted.allreduce_ns == 2000000 and .predicted.gap >= 0"'
test_ok "what is wrong in a profile is refused" '
	plan "[2]" "[0]" ".profile.device.in_step = {forward: -1, slowest_ns: 0}"
	status 2 pd-replay plan.json 2>err
	one_line err && grep -q "in_step.forward" err
	plan "[2]" "[0]" ".profile.device.in_step = {forward: 1}"
	status 2 pd-replay plan.json 2>err
	one_line err && grep -q "slowest_ns" err
	plan "[2]" "[0]" ".profile.device.in_turns = 1e6"
	status 2 pd-replay plan.json 2>err
	one_line err && grep -q "in_turns" err
	plan "[2]" "[0]" ".profile.device.in_step.sum_bytes_per_s = -1"
	status 2 pd-replay plan.json 2>err
	one_line err && grep -q "in_step.sum_bytes_per_s: .*found -1" err'

test_done
