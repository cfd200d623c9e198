#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Data parallelism over thousands of ranks: an all-reduce in groups ends, in not much more than the
# time in which links can carry it; and what the plan says is what every rank allocates.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# plan REPLICAS PARAMETER_BYTES: one layer on all of them, forward 1 us, backward 2 us
plan() {
	jq -n --argjson n "$1" --argjson bytes "$2" '
		{format: "pd-plan", version: 1,
		 profile: {format: "pd-profile", version: 1, name: "made up", batch_size: 8,
			   dtype: "f32",
			   device: {kind: "cpu", name: "none", threads: 1, memory_bytes: 0},
			   layers: [{name: "l", inputs: [], forward_ns: 1000, backward_ns: 2000,
				     activation_bytes: 0, parameter_bytes: $bytes}]},
		 topology: {format: "pd-topology", version: 1, device: {memory_bytes: 0},
			    levels: [{count: $n, bandwidth_bytes_per_s: 1000000000,
				      latency_ns: 0}]},
		 schedule: "1f1b", weights: "stash", microbatches: 1,
		 stages: [{layers: ["l"], replicas: $n, ranks: [range($n)], warmup: 0,
			   recompute: false}]}'
}

# reduced MINIBATCHES TOPOLOGY: nanoseconds from the first backward to the end of all-reduces
reduced() {
	pd-replay -m "$1" -t "$2" -f trace plan.json |
		jq -n '[inputs | select(.op == "allreduce")] |
			(map(.end_ns) | max) - (map(.start_ns) | min)'
}

# 100 MB at 1 GB/s: 200 ms there and back
for n in 256 1000 4096; do
	test_ok "an all-reduce among $n" "
		plan $n 100000000 >plan.json
		ns=\$(reduced $n $n@1GB/s)
		test \$ns -ge 200000000
		test \$ns -lt 260000000"
done
test_ok "servers of eight, whose links all of it crosses twice each way" '
	plan 512 100000000 >plan.json
	ns=$(reduced 512 8@12GB/s,64@10GB/s)
	test $ns -ge 20000000
	test $ns -lt 60000000'
test_ok "a few bytes, in steps that take long" '
	plan 4096 64 >plan.json
	test $(reduced 4096 4096@1GB/s+5us) -lt 1500000'
test_done
