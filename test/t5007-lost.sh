#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ranks lose besides waiting for each other, as the profile says: launches.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# period PLAN: prints the time per microbatch of its replay.
period() {
	pd-replay --format=json "$1" | jq .period_ns
}
launch='.profile.device.launch_ns = 100'

# With one minibatch in flight each stage is idle before its forward (stage 1) or backward (stage 0): 6 us of
# computing, and two launches.
made_up '[1,1]' '[0,0]' >one.json
jq "$launch" one.json >launched.json
test_ok 'a stage that was idle begins later than it could' '
	[ "$(period one.json)" = 6000 ] && [ "$(period launched.json)" = 6200 ]'
test_ok 'the report has that time apart' '
	pd-replay launched.json | sed -n "/^%/,/^$/p" >use
	cat use
	awk "\$1 == \"stage\" { print \$8, \$9 }" use >found
	printf "1.6 0.0\n1.6 0.0\n" | cmp - found
	pd-replay --format=json launched.json | jq -e "all(.ranks[]; .wait_other_ns == 0 and
		.wait_launch_ns > 0) and .window_ns / 62 == .ranks[0].wait_launch_ns"
	pd-replay --format=json one.json | jq -e "all(.ranks[]; .wait_launch_ns == 0)"'
test_ok 'a stage that is always busy launches meanwhile' '
	made_up "[1,1]" "[1,0]" "$launch | .profile.layers[1].backward_ns = 4000" >full.json
	[ "$(period full.json)" = 5000 ]
	pd-replay --format=json full.json | jq -e ".ranks[0].wait_launch_ns > 0 and .ranks[1].wait_launch_ns == 0"'
test_ok 'so does one whose processors are shared, for what it waits' '
	[ "$(pd-replay --processors=1 --format=json launched.json | jq .period_ns)" = 6200 ]'
test_ok 'plans count it' '
	jq ".profile | .layers[].backward_ns = 2000" launched.json >profile.json
	pd-plan -t 2@1GB/s --schedule=none --weights=flush --stages=1,1 profile.json >plan.json
	jq -e ".predicted.period_ns == 6200" plan.json'
test_ok 'a comparison has it beside the rest, and it adds up' '
	pd-replay --format=trace launched.json >trace.jsonl
	pd-replay --compare=one.json trace.jsonl | sed -n "/^where the time went/,/^$/p" >where
	cat where
	awk "\$1 == \"all\" { print \$(NF - 1), \$NF }" where >found
	printf "1.6 0.0\n0.0 0.0\n" | cmp - found
	awk "\$NF ~ /^[0-9.]+\$/ { s = 0; for (i = NF - 5; i <= NF; i++) s += \$i; d = s - \$(NF - 6)
		if (d > 0.31 || d < -0.31) exit 1 }" where'

# What all had arrived for and did not begin is a launch; what may have waited for a buffer is not.
test_ok 'in a run, the time from when all was there to the beginning' '
	awk "NR > 1" trace.jsonl | jq -c "if .op == \"forward\" and .rank == 1 then .start_ns += 50 else . end" >rest
	{ head -n 1 trace.jsonl | jq -c ".device = \"cpu\""; cat rest; } >later.jsonl
	pd-replay --format=json later.jsonl | jq -e "(.window_ns / 62 * 1.5) as \$expected
		| .ranks[1].wait_launch_ns == \$expected and .ranks[1].wait_other_ns == 0"'

test_ok 'pd-profile measures it, from seven timed steps on' '
	pd-profile --no-link --iterations=7 --batch-size=4 "$PD_SOURCE/share/models/mlp.json" |
		jq -e ".device.launch_ns > 0 and .device.launch_ns < 1000000000"
	pd-profile --no-link --iterations=1 --batch-size=4 "$PD_SOURCE/share/models/mlp.json" |
		jq -e ".device | has(\"launch_ns\") | not"'
test_done
