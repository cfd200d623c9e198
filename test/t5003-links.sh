#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Who waits for which link: on one level it is worked out (lib/transport/sim/link), on several
# they move from one link to the next.  A second level of one component is the same machine.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# plan REPLICAS WARMUPS BYTES PARAMETERS: a layer per stage, forward 1 us, backward 2 us
plan() {
	jq -n --argjson replicas "$1" --argjson warmups "$2" --argjson bytes "$3" \
		--argjson parameters "$4" '
		($replicas | length) as $n | ($replicas | add) as $ranks
		| {format: "pd-plan", version: 1,
		   profile: {format: "pd-profile", version: 1, name: "made up", batch_size: 8,
			     dtype: "f32",
			     device: {kind: "cpu", name: "none", threads: 1, memory_bytes: 0},
			     layers: [range($n) | {name: "l\(.)",
				      inputs: (if . == 0 then [] else ["l\(. - 1)"] end),
				      forward_ns: (1000 + 7 * .), backward_ns: 2000,
				      activation_bytes: $bytes, parameter_bytes: $parameters}]},
		   topology: {format: "pd-topology", version: 1, device: {memory_bytes: 0},
			      levels: [{count: $ranks, bandwidth_bytes_per_s: 1000000000,
					latency_ns: 0}]},
		   schedule: "1f1b", weights: "stash", microbatches: 1,
		   stages: [range($n) as $s | {layers: ["l\($s)"], replicas: $replicas[$s],
			    ranks: [range($replicas[$s]) + ([$replicas[:$s][]] | add // 0)],
			    warmup: $warmups[$s], recompute: false}]}'
}

# alike MINIBATCHES TOPOLOGY: the same times
alike() {
	pd-replay -m "$1" -t "$2" -f trace plan.json | tail -n +2 >one
	pd-replay -m "$1" -t "$2,1@9GB/s" -f trace plan.json | tail -n +2 >two
	test "$(wc -l <one)" -gt 20
	cmp one two
}

for replicas in 2 3 5 16 37 100; do
	test_ok "an all-reduce of $replicas" "
		plan '[$replicas]' '[0]' 0 99968 >plan.json
		alike $((2 * replicas + 1)) $replicas@1GB/s
		alike $((2 * replicas + 1)) $replicas@90MB/s+3us"
done
while read -r replicas warmups count; do
	test_ok "stages of $replicas replicas" "
		for bytes in 0 64 3000; do
			plan '$replicas' '$warmups' \$bytes 9984 >plan.json
			alike 130 $count@1GB/s
			alike 130 $count@300MB/s+1us
		done"
done <<END
[3,2] [1,0] 5
[2,3] [2,0] 5
[7,5,4] [3,2,0] 16
[11,9,3,1] [5,4,3,0] 24
[30,1] [1,0] 31
[20,13] [1,0] 33
END
test_done
