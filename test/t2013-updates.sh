# SPDX-License-Identifier: Apache-2.0
# A period is that of whole updates: of plans with many microbatches, in plans, replays and ranges, and beside data
# parallelism.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

chain 12 >chain.json
# The update, and what is summed before it, take as long as some microbatches.
jq '.layers[] |= (.update_ns = 20000000 | .parameter_bytes = 100000000)' chain.json >heavy.json
# spread FILE: times that may be off by a tenth, all together.
spread() {
	jq '.rounds = {count: 20, elapsed_ns: 60000000000, step_spread: [0.9, 1.1]}' "$1"
}

# update M PROFILE [OPTION]...: writes m.json, r.json; prints the time of an update of the plan, and of its replay.
update() {
	m=$1 profile=$2
	shift 2
	pd-plan -q --weights=flush --microbatches="$m" "$@" "$profile" >m.json
	pd-replay --format=json m.json >r.json
	jq -n --slurpfile p m.json --slurpfile r r.json \
		'[($p[0].predicted.period_ns * $p[0].microbatches), ($r[0].period_ns * $p[0].microbatches)]'
}

test_ok "an update of 1,040 microbatches is one of 1,024 and 16 more, with its fill, drain, sum and update" '
	for stages in 3x4,3x4,3x4,3x4 12x16; do
		update 992 heavy.json -t 8@10GB/s,2@1GB/s --stages=$stages >a
		update 1008 heavy.json -t 8@10GB/s,2@1GB/s --stages=$stages >b
		update 1024 heavy.json -t 8@10GB/s,2@1GB/s --stages=$stages >c
		update 1040 heavy.json -t 8@10GB/s,2@1GB/s --stages=$stages >d
		jq -e ".predicted.period_from == \"replay\"" m.json
		cat a b c d
		jq -s -e "def near(a; b): (a - b | fabs) < 0.001 * b;
			near(.[3][0] - .[2][0]; .[1][0] - .[0][0]) and near(.[3][1] - .[2][1]; .[1][1] - .[0][1]) and
			all(.[]; near(.[0]; .[1]))" a b c d
	done'
test_ok "no rank is busy for longer than the period" '
	for m in 1024 1040 4096; do
		pd-plan -t 8@10GB/s,2@1GB/s --weights=flush --microbatches=$m --stages=3x8,9x8 heavy.json 2>err >m.json
		sed -n "s/.*(\([0-9]*\)% of the period).*/\1/p" err >part
		[ "$(cat part)" -le 100 ]
		pd-replay --format=json m.json >r.json
		jq -e ".window_ns as \$window | all(.ranks[]; .busy_ns <= \$window)" r.json
	done'
test_ok "an update that is too long to be replayed is priced by two shorter ones, here and there" '
	update 1048576 heavy.json -t 4@10GB/s --stages=3,3,3,3 >long
	jq -e ".predicted.period_from == \"estimate\"" m.json
	jq -e ".estimated" r.json
	pd-replay m.json | grep -q "(an estimate: two whole updates take too long to be replayed)"
	update 4096 heavy.json -t 4@10GB/s --stages=3,3,3,3 >short
	update 8192 heavy.json -t 4@10GB/s --stages=3,3,3,3 >twice
	cat long short twice
	jq -s -e "(.[1][0] + (.[2][0] - .[1][0]) * 255) as \$ns | .[0] | all(.[]; (. - \$ns | fabs) < 0.001 * \$ns)" \
		long short twice'
test_ok "2bw, whose pipeline never drains, has the sum and the update of a long one, too" '
	for m in 1024 1040; do
		pd-plan -q -t 4@10GB/s --weights=2bw --microbatches=$m --stages=6x2,6x2 heavy.json >m.json
		jq -e ".predicted.period_from == \"replay\"" m.json
		jq ".predicted.period_ns" m.json
	done >periods
	cat periods
	jq -s -e ".[2] as \$x | .[0:4] | map(select(type == \"number\")) | .[1] <= .[0] and .[1] > 0.999 * .[0]" periods'
test_ok "an estimate has a range as wide as its times say" '
	spread heavy.json >spread.json
	pd-plan -q -t 4@10GB/s --weights=flush --microbatches=1048576 --stages=3,3,3,3 spread.json >m.json
	jq -c .predicted m.json
	jq -e ".predicted | .period_from == \"estimate\" and .period_range_ns[0] < 0.92 * .period_ns and
		.period_range_ns[1] > 1.08 * .period_ns" m.json'

# The last stage takes 4 us, the first 3 us; the first may be 200 microbatches ahead, and runs ahead for long.
test_ok "stages that run ahead of the slowest do not make the period" '
	made_up "[1, 1]" "[200, 0]" ".profile.layers[1].forward_ns = 2000" >ahead.json
	pd-replay --format=json ahead.json >r.json
	jq -c "[.period_ns, .periodic]" r.json
	jq -e ".period_ns >= 4000" r.json
	pd-replay -m 150 --format=json ahead.json >r.json
	jq -c "[.period_ns, .periodic]" r.json
	jq -e ".period_ns >= 4000" r.json'

test_ok "data parallelism is not faster than itself" '
	for options in "" "--weights=flush" "--weights=flush --microbatches=256" "--weights=2bw --microbatches=48"; do
		pd-plan -e -t 16@1GB/s $options --stages=12x16 chain.json 2>err >a.json
		jq -e ".predicted | .speedup_over_data_parallel == 1 and .data_parallel.period_ns == .period_ns and
			.data_parallel.memory_bytes == .memory_bytes" a.json
		grep -q "^this plan is data parallelism on all devices$" err
	done'
test_ok "data parallelism has as many samples in an update as the plan" '
	pd-plan -t 16@1GB/s --weights=flush --microbatches=256 --stages=6x8,6x8 chain.json >a.json
	pd-plan -t 16@1GB/s --weights=flush --microbatches=256 --stages=12x16 chain.json >b.json
	jq -s -e ".[0].predicted.data_parallel.period_ns == .[1].predicted.period_ns and
		.[0].predicted.alternatives[0].microbatches == 256 and
		.[0].predicted.data_parallel.memory_bytes == .[1].predicted.memory_bytes" a.json b.json
	jq -e ".predicted | .speedup_over_data_parallel == .data_parallel.period_ns / .period_ns" a.json'
test_ok "or, where it has more, is charged for them, and has no device without a microbatch" '
	pd-plan -t 16@1GB/s --weights=flush --microbatches=40 --stages=6x8,6x8 chain.json >a.json
	pd-plan -t 16@1GB/s --weights=flush --microbatches=48 --stages=12x16 chain.json >b.json
	jq -s -e "(.[0].predicted.data_parallel.period_ns - .[1].predicted.period_ns * 48 / 40 | fabs) <= 1" a.json b.json
	pd-plan -e -t 16@1GB/s --weights=flush --microbatches=4 --stages=6x2,6x2 chain.json 2>err >a.json
	jq -e ".predicted.alternatives[0] | .ranks == 4 and .microbatches == 4 and .stages == \"12x4\"" a.json
	grep -q "^data parallelism on 4 of 16 devices, one for each microbatch: " err'
test_ok "data parallelism recomputes as the plan was asked to" '
	jq ".layers[].stash_bytes = 10000000" chain.json >stash.json
	pd-plan -t 4@1GB/s --weights=flush --microbatches=8 --recompute=all --stages=6x2,6x2 stash.json >a.json
	pd-plan -t 4@1GB/s --weights=flush --microbatches=8 --recompute=all --stages=12x4 stash.json >b.json
	jq -s -e ".[0].predicted.data_parallel.period_ns == .[1].predicted.period_ns" a.json b.json'

PD_DEVICES=$PD_SOURCE/share/devices
export PD_DEVICES
pd-model gpt --layers=1 --hidden=256 --heads=4 --sequence=128 >model.json
pd-profile --device=a100-80 --dtype=bf16 --batch-size=1 model.json >gpt.json
test_ok "where weights can only be flush they are, and others are refused" '
	for options in --tensor=1,2 --shard=full --shard=optimizer\ --memory-model=megatron --memory-model=torch \
		"--memory-model=torch --weights=auto"; do
		pd-plan -q -t 2@300GB/s $options gpt.json | jq -e ".weights == \"flush\""
		status 2 pd-plan -t 2@300GB/s $options --weights=stash gpt.json 2>err
	done
	pd-plan -q -t 2@300GB/s --tensor=1,2 --schedule=auto gpt.json | jq -e ".weights == \"flush\""'
test_done
