#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ranks lose besides waiting for each other, as the profile says: launches, and computing that is slower
# beside transfers.
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

# A transfer of 500 ns, beside which computing takes twice as long.
made_up '[1,1]' '[1,0]' '.profile.device.beside_transfers = 2 | .profile.layers[].activation_bytes = 500' >beside.json
test_ok 'computing is slower while bytes leave, and while they come' '
	pd-replay --format=trace --minibatches=4 beside.json | awk "NR > 1" >beside.jsonl
	jq -c "select(.rank == 0 and .microbatch == 1 and .op == \"forward\") | .end_ns - .start_ns" beside.jsonl >found
	jq -c "select(.rank == 1 and .microbatch == 0 and .op == \"forward\") | .end_ns - .start_ns" beside.jsonl >>found
	# the activation of microbatch 0 leaves while microbatch 1 is computed: 500 ns do half the work; the one of
	# microbatch 1 comes 250 ns later than that of 0 would allow, in the last 250 of 1000 ns
	printf "1250\n1250\n" | cmp - found'
test_ok 'the report has that apart, and what is left is what the profile says' '
	pd-replay --format=json beside.json | jq -e ".period_ns as \$period | .window_ns as \$window
		| .ranks | length == 2 and all(.[]; .slowed_ns > 0 and
			(((.busy_ns - .slowed_ns) * \$period - 3000 * \$window) / \$window | fabs) < 1)"
	pd-replay beside.json | grep "^of busy, slower beside transfers: stage 0 [0-9.]* %, stage 1 [0-9.]* %"'
test_ok 'not where copies take processor time' '
	pd-replay --processors=2 --format=json beside.json | jq -e "all(.ranks[]; has(\"slowed_ns\") | not)"'
test_ok 'with a factor of 1 nothing changes' '
	jq ".profile.device.beside_transfers = 1" beside.json | pd-replay - >a
	jq "del(.profile.device.beside_transfers)" beside.json | pd-replay - | cmp - a'

test_ok 'pd-profile measures it, from seven timed steps on' '
	pd-profile --no-link --iterations=7 --batch-size=4 "$PD_SOURCE/share/models/mlp.json" |
		jq -e ".device | .launch_ns > 0 and .launch_ns < 1000000000 and .clock_ns > 0"
	pd-profile --no-link --iterations=1 --batch-size=4 "$PD_SOURCE/share/models/mlp.json" |
		jq -e ".device | has(\"launch_ns\") or has(\"clock_ns\") | not"'
test_done
