#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Orders that pd-plan searches for, on random small requests: no other schedule is faster in its own memory, and more
# memory, more devices or faster links make none slower.  PD_ORDER_CASES (3) says how many; test/bench/orders.sh has
# more.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# profile SEED LAYERS: prints a profile of random layers.
profile() {
	awk -v seed="$1" -v layers="$2" '
		function draw(low, high) { state = (state * 16807) % 2147483647; return low + state % (high - low + 1) }
		BEGIN {
			state = 7919 * (seed + 1); draw(0, 1); draw(0, 1)
			printf "{\"format\": \"pd-profile\", \"version\": 1, \"name\": \"random\", \"batch_size\": 1, "
			printf "\"device\": {\"kind\": \"cuda\"}, \"layers\": ["
			for (l = 0; l < layers; l++) {
				input = draw(10, 40); weight = draw(8, 30)
				printf "%s{\"name\": \"l%d\", \"inputs\": [%s], \"forward_ns\": %d000, ", l ? ", " : "", l,
					l ? "\"l" l - 1 "\"" : "", draw(10, 40)
				printf "\"backward_ns\": %d000, \"backward_input_ns\": %d000, \"backward_weight_ns\": %d000, ",
					input + weight, input, weight
				printf "\"activation_bytes\": %d, \"stash_bytes\": 1000000, \"parameter_bytes\": %d}",
					draw(8, 2000), draw(8, 2000)
			}
			print "]}"
		}'
}

# plan NAME OPTION...: plans; prints the time and the memory, or nothing where no plan fits.
plan() {
	pd-plan --quiet --weights=flush --min-gain=0 --recompute=none --microbatches="$microbatches" "$@" random.json \
		>plan.json 2>err || return 0
	jq -r '"\(.predicted.period_ns) \(.predicted.memory_bytes)"' plan.json
}

# at_most GOT LIMIT WHAT: a time is at most half a percent above another.
at_most() {
	echo "$3: $1, at most $2"
	[ -n "$1" ] && [ $((200 * $1)) -le $((201 * $2)) ]
}

# best OPTION...: prints the time with an order that is searched for.
best() {
	plan --schedule=zb-auto "$@" | cut -d" " -f1
}

# in_memory_of SCHEDULE: an order is as fast in the memory of a schedule, which it may not have.
in_memory_of() {
	plan --topology="$devices@$link" --memory=1TB --schedule="$1" >own
	[ -s own ] || return 0
	read -r period_ns bytes <own
	at_most "$(best --topology="$devices@$link" --memory="${bytes}B")" "$period_ns" "$1, $bytes bytes"
}

more() {
	before=
	for memory in $((layers * 1100000)) $((layers * 1600000)) $((layers * 2700000)) $((layers * 5000000)); do
		now=$(best --topology="$devices@$link" --memory="${memory}B")
		[ -z "$before" ] || at_most "$now" "$before" "$memory bytes"
		before=$now
	done
	more=$(best --topology=$((devices + 1))@"$link" --memory="${memory}B")
	at_most "$more" "$before" "one more device"
	at_most "$(best --topology="$devices@1TB/s" --memory="${memory}B")" "$before" "faster links"
}

case=0
while [ $case -lt "${PD_ORDER_CASES:-3}" ]; do
	devices=$((2 + case % 3)) layers=$((4 + case % 4)) microbatches=$((2 + case * 5 % 6))
	link=1GB/s+$((case % 4 * 3))us
	profile $case $layers >random.json
	for schedule in 1f1b gpipe zb-h1 zb-h2 interleaved zb-v v-half v-min; do
		test_row own "request $case, $devices devices, $layers layers, $microbatches microbatches: $schedule" \
			'in_memory_of $schedule'
	done
	test_row more "request $case: more of everything" more
	case=$((case + 1))
done
test_ok "where the order of a formula is not the best, a line says so" '
	profile 5 8 >random.json
	set -- --straight --weights=flush --min-gain=0 --recompute=none --topology=2@1TB/s random.json
	pd-plan --schedule=zb-v --microbatches=2 "$@" 2>err >out
	grep "zb-v is by its formula, which wants .*; --schedule=zb-auto searches for a better one" err
	pd-plan --schedule=1f1b --microbatches=2 "$@" 2>err >out
	! grep "formula" err || false
'
test_done
