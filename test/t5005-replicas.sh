#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ranks cost each other, where the profile says it.  Replicas of a stage: what they do at once
# takes longer, and a sum of gradients waits for the slowest.  Ranks that take turns on a processor.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# plan REPLICAS WARMUPS [FILTER]: layers of 10 ms, 20 ms and, for the update, 2 ms; two workers were timed
plan() {
	made_up "$1" "$2" '.profile.layers[] += {forward_ns: 10e6, backward_ns: 20e6, update_ns: 2e6}
		| .profile.device += {workers: 2, in_step: {forward: 1.1, backward: 1.2, update: 1.5,
			slowest_ns: 3000000}}' | jq "${3:-.}" >plan.json
}

# minibatches_ms N: the time of N minibatches, in the whole
minibatches_ms() {
	pd-replay --format=json -m "$1" plan.json | jq '.elapsed_ns / 1e6'
}

# within MS MOST: at least MS, and less than a tenth of a millisecond more
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
test_ok "what is wrong in a profile is refused" '
	plan "[2]" "[0]" ".profile.device.in_step = {forward: -1, slowest_ns: 0}"
	status 2 pd-replay plan.json 2>err
	one_line err && grep -q "in_step.forward" err
	plan "[2]" "[0]" ".profile.device.in_step = {forward: 1}"
	status 2 pd-replay plan.json 2>err
	one_line err && grep -q "slowest_ns" err
	plan "[2]" "[0]" ".profile.device.in_turns = 1e6"
	status 2 pd-replay plan.json 2>err
	one_line err && grep -q "in_turns" err'

test_done
