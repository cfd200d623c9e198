#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a request leaves open: the best layouts as a table and as JSON Lines, virtual stages, and orders of long updates.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# chain LAYERS >FILE: writes a profile of a chain of layers that differ.
chain() {
	jq -n --argjson n "$1" '{format: "pd-profile", version: 1, name: "chain", batch_size: 4, dtype: "f32",
		device: {kind: "cpu", name: "none"}, layers: [range($n) | {name: "l\(.)",
			inputs: (if . == 0 then [] else ["l\(. - 1)"] end), forward_ns: (100000 + 7000 * (. % 3)),
			backward_ns: (200000 + 9000 * (. % 4)), activation_bytes: 40000, parameter_bytes: 400000,
			stash_bytes: 80000}]}'
}
refused() {
	words=$1
	shift
	status 2 pd-plan "$@" 2>err >out
	cat err
	one_line err && [ ! -s out ] && grep -q -e "$words" err
}
chain 12 >chain.json
options="-q -t 4@1GB/s --schedule=auto --weights=flush --microbatches=8"
pd-plan $options --top=6 chain.json >top.jsonl
test_ok "--top: the best first, each as its own command plans it" '
	[ "$(wc -l <top.jsonl)" -eq 6 ]
	jq -se "map(.place) == [1, 2, 3, 4, 5, 6] and all(.[]; .format == \"pd-choice\" and .devices <= 4)" top.jsonl
	pd-plan $options chain.json >best.json
	jq -se ".[0].predicted.period_ns == .[1].period_ns" best.json top.jsonl
	jq -c "select(.period_from == \"replay\" and .schedule != \"ordered\")" top.jsonl >replayed
	[ -s replayed ]
	while read -r row; do
		pd-plan -q -t 4@1GB/s $(echo "$row" | jq -r ".plan[]") chain.json >again.json
		echo "$row" | jq -e --slurpfile plan again.json ".period_ns >= \$plan[0].predicted.period_ns"
	done <replayed'
test_ok "a table of as many rows, and the layouts that no other beats" '
	pd-plan $options --top=6 --format=table chain.json >table
	cat table
	[ "$(wc -l <table)" -eq 7 ]
	pd-plan $options --top=50 --pareto chain.json >pareto.jsonl
	jq -se "length > 0 and . as \$all | all(.[]; . as \$one | .pareto and any(\$all[];
		.samples_per_s >= \$one.samples_per_s and .devices <= \$one.devices and .memory_bytes <= \$one.memory_bytes and
		[.samples_per_s, .devices, .memory_bytes] != (\$one | [.samples_per_s, .devices, .memory_bytes])) == false)" \
		pareto.jsonl
	jq -se "map([.schedule, .devices, .stages, .virtual_stages, .pipelines, .microbatches, .recomputed_stages > 0, .plan]) |
		length == (unique | length)" top.jsonl
	jq -se "map(.devices) == (map(.devices) | sort)" pareto.jsonl'
test_ok "virtual stages: the best number is no slower than any by name" '
	pd-plan -q -t 4@1GB/s --schedule=interleaved --microbatches=8 --virtual-stages=auto chain.json >auto.json
	for v in 2 3; do
		pd-plan -q -t 4@1GB/s --schedule=interleaved --microbatches=8 --virtual-stages=$v chain.json >by-name.json
		pd-plan -q -t 4@1GB/s --schedule=interleaved --microbatches=8 --chunks=$v chain.json | cmp - by-name.json
		jq -se ".[0].predicted.period_ns <= .[1].predicted.period_ns * 1.005" auto.json by-name.json
	done
	pd-schedule --check auto.json'
test_ok "an order of a long update: correct, and no slower than ZB-H1" '
	pd-plan -q -t 4@1GB/s --schedule=zb-auto --microbatches=1200 --min-gain=0 chain.json >long.json
	pd-schedule --check --minibatches=1 long.json
	pd-plan -q -t 4@1GB/s --schedule=zb-h1 --microbatches=1200 --min-gain=0 chain.json >zb-h1.json
	jq -se ".[0].microbatches == 1200 and .[0].predicted.period_ns <= .[1].predicted.period_ns * 1.005" long.json zb-h1.json'
test_ok "what does not go together is refused" '
	refused "expected it with --top" -t 4@1GB/s --format=table chain.json
	refused "expected --format=table, markdown, csv or jsonl" -t 4@1GB/s --top=3 --format=svg chain.json
	refused "pareto" -t 4@1GB/s --pareto chain.json
	refused "virtual-stages" -t 4@1GB/s --virtual-stages=many chain.json
	refused "virtual-stages=auto: expected --schedule=interleaved" -t 4@1GB/s --virtual-stages=auto chain.json
	refused "exclude each other" -t 4@1GB/s --schedule=interleaved --virtual-stages=2 --chunks=2 chain.json'
test_done
