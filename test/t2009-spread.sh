#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How far the times of a profile may be off, from pd-profile to the period of plans and replays.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# profile LAYERS [FILTER]: prints the profile of a chain, of which each layer takes 3 us and sends nothing.
profile() {
	jq -n --argjson n "$1" '{format: "pd-profile", version: 1, name: "made up", batch_size: 8,
		device: {kind: "cpu", name: "none", threads: 1, memory_bytes: 0},
		layers: [range($n) | {name: "l\(.)", inputs: (if . == 0 then [] else ["l\(. - 1)"] end),
			forward_ns: 1000, backward_ns: 2000, activation_bytes: 0, parameter_bytes: 640}]}' |
		jq "${2:-.}"
}
links='2@1GB/s'
rounds='.rounds = {count: 20, elapsed_ns: 60000000000, step_spread: [0.9, 1.2]}'

test_ok 'what all times have in common moves the period as much' '
	profile 2 "$rounds" >common.json
	pd-plan -t $links --straight common.json >plan.json 2>line
	cat line
	jq -e ".predicted | .period_ns == 3000 and .period_range_ns == [2700, 3600]" plan.json
	grep -q "^speed  *3 us a step (2.7 us to 3.6 us in eight runs of ten):" line'
test_ok '--explain, and replays, say the same' '
	pd-plan -t $links --straight --explain common.json 2>explained | cmp - plan.json
	grep -q "^period: 3 us, 2.7 us to 3.6 us, per minibatch of 8 samples" explained
	pd-replay plan.json >report
	grep -q "^ *2.7 us to 3.6 us in eight runs of ten" report
	pd-replay --format=json plan.json | jq -e ".period_range_ns == [2700, 3600]"
	pd-replay --format=csv plan.json | grep -q "period_range_ns,2700 3600"'
test_ok 'a profile that does not say it makes the same plan and replay without a range' '
	profile 2 >plain.json
	pd-plan -t $links --straight plain.json >plain-plan.json 2>line
	! grep -q " to " line || false
	jq -e ".predicted | has(\"period_range_ns\") | not" plain-plan.json
	jq "del(.profile.rounds, .predicted.period_range_ns)" plan.json >a
	jq . plain-plan.json | cmp - a
	pd-replay plain-plan.json >b
	grep -v "eight runs of ten" report | cmp - b'
test_ok 'nor does the spread of single steps, which older profiles have' '
	profile 2 ".layers[].spread = 0.3" | pd-plan -t $links --straight - |
		jq -e ".predicted | has(\"period_range_ns\") | not"'

own='.rounds = {count: 20} | .layers[].forward_spread = [0.8, 1.2] | .layers[].backward_spread = [0.8, 1.2]'
test_ok 'what each layer has of its own averages out over the layers of a stage' '
	profile 64 "$own" | pd-plan -t 1@1GB/s - >many.json
	profile 1 "$own" | pd-plan -t 1@1GB/s - >one.json
	for plan in many one; do
		jq -c ".predicted | [.period_range_ns[] / .period_ns]" $plan.json
	done
	jq -e ".predicted | .period_range_ns[0] > 0.96 * .period_ns and .period_range_ns[1] < 1.04 * .period_ns
		and .period_range_ns[0] < .period_ns and .period_range_ns[1] > .period_ns" many.json
	jq -e ".predicted | .period_range_ns[0] < 0.93 * .period_ns and .period_range_ns[1] > 1.07 * .period_ns" one.json'
test_ok 'stages wait for the slowest: with many of them the period is hardly ever shorter' '
	profile 8 "$own" | pd-plan -t 8@1GB/s --straight - >pipeline.json
	jq -c .predicted.period_range_ns pipeline.json
	jq -e ".predicted | .period_range_ns[0] == .period_ns and .period_range_ns[1] > 1.1 * .period_ns" pipeline.json'
test_ok 'it is always the same' '
	profile 8 "$own" | pd-plan -t 8@1GB/s --straight - | cmp - pipeline.json'
test_ok 'both are joined as causes that are independent' '
	profile 1 "$own | $rounds" | pd-plan -t 1@1GB/s - >both.json
	jq -es "(.[0].predicted | .period_range_ns[1] / .period_ns - 1) as \$own
		| (.[1].predicted | .period_range_ns[1] / .period_ns - 1) as \$both
		| ((\$own * \$own + 0.04 | sqrt) - \$both | fabs) < 0.001" one.json both.json'
test_ok 'a link that the profile measured varies by itself, another does not' '
	link=".rounds = {count: 20} | .link = {bandwidth_bytes_per_s: 1000000000, spread: [0.5, 3]}
		| .layers[].activation_bytes = 6000"
	profile 2 "$link" >linked.json
	pd-plan --gpus=2 --stages=1,1 linked.json | jq -e ".predicted | .period_range_ns[1] > 1.5 * .period_ns"
	pd-plan -t 2@1.1GB/s --stages=1,1 linked.json | jq -e ".predicted | .period_range_ns == [.period_ns, .period_ns]"'
test_ok 'so does a profile by a data sheet, with the spread of the sheet' '
	profile 2 ".device.estimated = {from: \"sheet\", spread: 0.25}" | pd-plan -t $links --straight - |
		jq -e ".predicted.period_range_ns == [2400, 3750]"'
test_ok 'what was measured in a run has no range by the profile' '
	pd-replay --format=trace plan.json >trace.jsonl
	pd-replay --device-speed=2 trace.jsonl >what-if
	! grep -q "eight runs of ten" what-if || false'

test_ok 'a spread has two numbers, around 1' '
	profile 2 "$rounds | .rounds.step_spread = [0.9]" >bad.json
	status 2 pd-plan -t $links bad.json 2>err
	grep -q "rounds.step_spread: expected two numbers" err
	profile 2 "$rounds | .layers[1].forward_spread = [1.1, 1.2]" >bad.json
	status 2 pd-plan -t $links bad.json 2>err
	grep -q "layers\[1\].forward_spread\[0\]: expected" err'

model=$PD_SOURCE/share/models/mlp.json
test_ok 'pd-profile writes the spread of every time, from seven timed steps on' '
	pd-profile --no-link --iterations=7 --batch-size=4 "$model" >profile.json
	jq -c "[.rounds, .layers[0]]" profile.json
	jq -e ".rounds.count == 7 and .rounds.elapsed_ns > 0 and
		all([.rounds.step_spread] + [.layers[] | .forward_spread, .backward_spread] +
			[.layers[] | select(.parameter_bytes > 0) | .update_spread] | .[];
		    .[0] > 0 and .[0] <= 1 and .[1] >= 1)" profile.json
	pd-profile --no-link --iterations=6 --batch-size=4 "$model" |
		jq -e "(has(\"rounds\") or any(.layers[]; has(\"forward_spread\"))) | not"'
test_ok 'over as long as is asked for' '
	pd-profile --no-link --iterations=8 --over=1 --batch-size=4 "$model" |
		jq -e ".rounds.count == 8 and .rounds.elapsed_ns >= 1000000000"'
test_done
