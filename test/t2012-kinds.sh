# SPDX-License-Identifier: Apache-2.0
# Devices of several kinds in one machine, and links that differ: documents, plans, replays.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# profile NAME SPEED MEMORY: a chain of six layers on a device that is SPEED times as fast as the slowest.
profile() {
	jq -nc --arg name "$1" --argjson speed "$2" --argjson memory "$3" '
		{format: "pd-profile", version: 1, name: "chain", batch_size: 4,
		 device: {kind: "cuda", name: $name, memory_bytes: $memory}, inputs: ["x"],
		 layers: [range(6) | {name: "l\(.)", inputs: [if . == 0 then "x" else "l\(. - 1)" end],
			  forward_ns: (1000000 * (1 + . % 3) / $speed | floor),
			  backward_ns: (2000000 * (1 + . % 3) / $speed | floor), update_ns: 1000,
			  activation_bytes: 10000, parameter_bytes: 40000, stash_bytes: 20000}]}'
}
profile slow 1 16000000000 >slow.json
profile fast 3 80000000000 >fast.json
profile twin 1 16000000000 >twin.json
cat >machine.json <<'END'
{"format": "pd-topology", "version": 1,
 "devices": [{"name": "fast", "count": 2, "memory_bytes": 80000000000}, {"name": "slow", "count": 2, "memory_bytes": 16000000000}],
 "levels": [
  {"count": 2, "links": [
   {"count": 2, "bandwidth_bytes_per_s": 100000000000, "latency_ns": 1000},
   {"count": 2, "bandwidth_bytes_per_s": 10000000000, "latency_ns": 5000}]},
  {"count": 2, "bandwidth_bytes_per_s": 1000000000, "latency_ns": 10000}]}
END
# even NAME SPEED LAYERS: a chain of equal layers, each of 3 ms on the slowest.
even() {
	jq -nc --arg name "$1" --argjson speed "$2" --argjson layers "$3" '
		{format: "pd-profile", version: 1, name: "chain", batch_size: 4,
		 device: {kind: "cuda", name: $name}, inputs: ["x"],
		 layers: [range($layers) | {name: "l\(.)", inputs: [if . == 0 then "x" else "l\(. - 1)" end],
			  forward_ns: (1000000 / $speed | floor), backward_ns: (2000000 / $speed | floor),
			  activation_bytes: 10000, parameter_bytes: 40000000, stash_bytes: 20000}]}'
}
# refused WORDS COMMAND...: checks that a command is refused in one line with the WORDS.
refused() {
	words=$1
	shift
	status 2 "$@" >out 2>err
	grep -e "$words" err && one_line err
}
# period OPERAND...: prints the period of a plan.
period() {
	pd-plan -q "$@" | jq .predicted.period_ns
}

test_ok "a plan has the profiles by name, and a topology its devices" '
	pd-plan -q fast.json slow.json --topology=machine.json --stages=4,2 >plan.json
	jq -e ".profile == null and (.profiles | keys) == [\"fast\", \"slow\"]" plan.json
	jq -S .topology plan.json >after && jq -S . machine.json >before && cmp before after
	pd-plan -q slow.json fast.json -t machine.json --stages=4,2 | cmp - plan.json
	pd-plan -q fast.json slow.json -t 2@10GB/s,2@1GB/s --devices=fastx2,slowx2 --stages=4,2 >string.json
	jq -e ".topology.devices == [{name: \"fast\", count: 2, memory_bytes: 80000000000},
				     {name: \"slow\", count: 2, memory_bytes: 16000000000}]" string.json
	pd-plan -q fast.json slow.json -t 4@1GB/s --devices=FASTx1,slowx3 --stages=6 >part.json
	jq -e ".topology.devices[0] == {name: \"fast\", count: 1, memory_bytes: 80000000000}" part.json'

test_ok "of a stage on several kinds of devices the slowest decides" '
	pd-plan -q fast.json slow.json -t 4@100GB/s --devices=fastx2,slowx2 --stages=4x3,2x1 >plan.json
	jq -e "[.stages[].predicted.forward_ns] == [7000000, 5000000]" plan.json
	pd-plan -q fast.json slow.json -t 4@100GB/s --devices=fastx2,slowx2 --stages=4x2,2x2 >plan.json
	jq -e "[.stages[].predicted.forward_ns] == [2333332, 5000000]" plan.json
	pd-plan -q fast.json slow.json -t 4@100GB/s --devices=fastx2,slowx2 --stages=6x4 --microbatches=1 >all.json
	[ "$(jq .predicted.period_ns all.json)" -ge 9000000 ]'

test_ok "the search puts as many layers on a device as it is fast, whatever the order of the kinds" '
	even slow 1 48 >even-slow.json
	even fast 4 48 >even-fast.json
	for devices in slowx12,fastx4 fastx4,slowx12; do
		pd-plan -q even-slow.json even-fast.json -t 16@10GB/s --devices=$devices --straight >plan.json
		# 4 fast ones with 8 layers, 8 slow ones with 2: the least time with whole layers.
		jq -e ".predicted.period_ns <= 6010000 and .predicted.lower_bound_ns == 5142857" plan.json
		jq -e "[.stages[].layers | length] | sort == [2, 2, 2, 2, 2, 2, 2, 2, 8, 8, 8, 8]" plan.json
	done
	even slow 1 6 >even-slow.json
	even fast 100 6 >even-fast.json
	pd-plan even-slow.json even-fast.json -t 4@10GB/s --devices=slowx2,fastx2 2>err >plan.json
	jq -e "[.topology.devices[].name] == [\"fast\", \"slow\"] and ([.stages[].ranks[]] | sort == [0, 1])" plan.json
	grep "start ranks 0-1 fast, 2-3 slow" err
	pd-plan even-fast.json even-slow.json -t 4@10GB/s --devices=fastx2,slowx2 2>err >plan.json
	! grep "start" err || false'

test_ok "the plan is no worse than what was tried by hand" '
	pd-plan -q fast.json slow.json -t machine.json >plan.json
	best=$(jq .predicted.period_ns plan.json)
	for stages in 6x4 6x2 5x2,1x2 4x2,2x2 3x2,3x2 4x2,1,1 2,2,1,1 3,2,1 1,2,2,1; do
		by_hand=$(period fast.json slow.json -t machine.json --stages=$stages)
		[ "$best" -le "$by_hand" ] || { echo "$stages: $by_hand, $best"; exit 1; }
	done'

test_ok "two equal profiles under two names make a plan of the same period" '
	for stages in 6x4 4x2,2x2 3,1,1,1 3x3,3; do
		a=$(period slow.json -t 4@1GB/s --stages=$stages)
		b=$(period slow.json twin.json -t 4@1GB/s --devices=slowx2,twinx2 --stages=$stages)
		[ "$a" = "$b" ] || { echo "$stages: $a, $b"; exit 1; }
	done'

test_ok "links that are all alike say what the level itself would" '
	jq "(.levels[0].links[] |= (.bandwidth_bytes_per_s = 10000000000 | .latency_ns = 5000)) |
	    del(.devices)" machine.json >links.json
	jq ".levels[0] = {count: 2, bandwidth_bytes_per_s: 10000000000, latency_ns: 5000}" links.json >level.json
	for stages in 6x4 4x2,2x2 3,1,1,1 3x3,3; do
		a=$(period slow.json -t links.json --stages=$stages)
		b=$(period slow.json -t level.json --stages=$stages)
		[ "$a" = "$b" ] || { echo "$stages: $a, $b"; exit 1; }
	done'

test_ok "a slow link of one server slows only what crosses it" '
	jq ".levels[0].links[1].bandwidth_bytes_per_s = 1000000" machine.json >narrow.json
	a=$(period fast.json slow.json -t machine.json --stages=2,1,3)
	b=$(period fast.json slow.json -t narrow.json --stages=3,3)
	c=$(period fast.json slow.json -t narrow.json --stages=2,1,3)
	[ "$b" -lt 20000000 ] && [ "$c" -ge 20000000 ] && [ "$a" -lt 20000000 ]'

test_ok "memory is that of each kind" '
	profile small 1 600000 >small.json
	pd-plan -q fast.json small.json -t 2@1GB/s --devices=fastx1,smallx1 --stages=5,1 >plan.json
	status 1 pd-plan -q fast.json small.json -t 2@1GB/s --devices=fastx1,smallx1 --stages=1,5 2>err
	grep "stage 1.*600 kB" err
	pd-plan -q fast.json small.json -t 2@1GB/s --devices=fastx1,smallx1 --stages=1,5 -m 1GB >/dev/null'

test_ok "whoever shows a plan says what its devices are" '
	pd-plan -q fast.json slow.json -t machine.json --stages=4x2,2x2 >plan.json
	pd-plan --explain fast.json slow.json -t machine.json --stages=4x2,2x2 2>err >/dev/null
	grep "ranks 0-1 fast, 2-3 slow" err && grep ", on slow" err
	pd-plan -q --format=dot fast.json slow.json -t machine.json --stages=4x2,2x2 | grep "ranks 2-3 on slow"
	pd-plan -q --format=svg fast.json slow.json -t machine.json --stages=4x2,2x2 >plan.svg
	grep "on slow" plan.svg && grep "100 GB/s each" plan.svg && grep "10 GB/s each" plan.svg
	pd-replay plan.json >report && grep "ranks 0-1 fast, 2-3 slow" report && grep ", on slow" report
	pd-replay --format=json plan.json | jq -e "[.stages[].devices] == [\"fast\", \"slow\"]"'

test_ok "what is asked of a plan in a replay holds for all kinds" '
	pd-plan -q fast.json slow.json -t machine.json --stages=4x2,2x2 >plan.json
	pd-replay --format=json plan.json >a && pd-replay --format=json --device-speed=2 plan.json >b
	[ "$(jq -s "(.[0].stages[1].forward_ns / .[1].stages[1].forward_ns * 100 | round)" a b)" = 200 ]
	pd-replay --format=json --topology=4@1GB/s plan.json | jq -e ".stages[1].devices == \"slow\""
	refused "kinds" pd-replay --topology=8@1GB/s plan.json
	pd-schedule plan.json >list && pd-replay list >/dev/null'

test_ok "what does not go together is refused" '
	refused "device.name: found \"slow\", and \"fast\"" pd-plan fast.json slow.json -t 4@1GB/s
	refused "add up to the 4 devices" pd-plan fast.json slow.json -t 4@1GB/s --devices=fastx2,slowx1
	refused "no device \"twin\"" pd-plan fast.json slow.json twin.json -t machine.json
	refused "of \"slow\" there is none" pd-plan fast.json -t machine.json
	refused "NAMExCOUNT" pd-plan fast.json slow.json -t 4@1GB/s --devices=fast,slow
	refused "says itself" pd-plan fast.json slow.json -t machine.json --devices=fastx2,slowx2
	refused "of one kind" pd-plan fast.json slow.json -t machine.json --cost=sosp19
	refused "of one kind" pd-plan fast.json slow.json -t machine.json --processors=2
	jq ".batch_size = 8" slow.json >eight.json
	refused "batch_size: found 4, of which there is no profile of \"slow\"" \
		pd-plan fast.json eight.json -t machine.json
	jq ".layers[2].activation_bytes = 5" slow.json >other.json
	refused "exchange the same tensors" pd-plan fast.json other.json -t machine.json
	refused "does not say on which of them" \
		pd-plan -q fast.json slow.json -t machine.json --stages=4,2 --weights=flush --format=deepspeed
	jq ".levels[0].links[1].count = 1" machine.json >few.json
	refused "levels\[0\].links: expected counts that add up to 4" pd-plan fast.json slow.json -t few.json
	jq ".devices[1].count = 1" machine.json >few.json
	refused "devices: expected counts that add up to the 4" pd-plan fast.json slow.json -t few.json
	jq ".device = {}" machine.json >both.json
	refused "expected one of" pd-plan fast.json slow.json -t both.json
	pd-plan -q fast.json slow.json -t machine.json --stages=4,2 >plan.json
	jq "del(.profiles.slow)" plan.json >less.json && refused "profiles: expected one of device \"slow\"" pd-replay less.json
	jq ".profile = .profiles.slow" plan.json >both.json && refused "expected one of" pd-replay both.json
	jq ".profile = .profiles.slow | del(.profiles)" plan.json >one.json && refused "devices of 2 kinds" pd-replay one.json'

test_done
