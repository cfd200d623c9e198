#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Devices that a plan leaves idle: when that is, and what is said of it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# twelve layers that are not alike, so that some numbers of devices gain little
jq -n '{format: "pd-profile", version: 1, name: "chain", batch_size: 4, dtype: "f32", device: {kind: "cpu", name: "none"},
	layers: [range(12) | {name: "l\(.)", inputs: (if . == 0 then [] else ["l\(. - 1)"] end),
		forward_ns: (100000 + 7000 * (. % 3)), backward_ns: (200000 + 9000 * (. % 4)), activation_bytes: 40000,
		parameter_bytes: 400000, stash_bytes: 80000}]}' >chain.json
# plan OPTION...: plans into plan.json, and what is said into said.
plan() {
	pd-plan "$@" chain.json >plan.json 2>said || { cat said; return 1; }
}
used() { jq '[.stages[].ranks[]] | unique | length' plan.json; }

test_ok "a plan on all devices says nothing of them" '
	plan -t 4@1GB/s --min-gain=0
	[ "$(used)" -eq 4 ] && ! grep "^idle" said || false
	jq -e ".predicted | has(\"more_devices\") | not" plan.json'
test_ok "idle devices are counted, and what the rest would bring is what a plan on them has" '
	for schedule in zb-h1 auto; do
		plan -t 16@1GB/s --min-gain=10 --schedule=$schedule --weights=flush --microbatches=16
		cat said
		idle=$((16 - $(used)))
		[ $idle -gt 0 ] && grep -q "^idle  *$idle of 16 devices: .*more samples/s (--min-gain=0)$" said
		jq -e --argjson used "$(used)" ".predicted | .more_devices > \$used and .more_devices <= 16 and
			.more_devices_samples_per_s > .samples_per_s" plan.json
		more=$(jq .predicted.more_devices_samples_per_s plan.json)
		plan -q -t 16@1GB/s --min-gain=0 --schedule=$schedule --weights=flush --microbatches=16
		jq -e --argjson more "$more" ".predicted.samples_per_s >= \$more * 0.995" plan.json
	done'
test_ok "where others bring nothing, that is said, and no option is named" '
	plan -t 4@1GB/s,4@10MB/s
	cat said
	[ "$(used)" -lt 16 ] && grep -q "^idle .* fewer samples/s$" said'
test_ok "servers are paid for whole: by default any gain is enough; devices of one level are shared with others" '
	for machine in 4@1GB/s,2@1GB/s 16@1GB/s; do
		plan -q -t $machine; cp plan.json default.json
		plan -q -t $machine --min-gain=0; cp plan.json any.json
		plan -q -t $machine --min-gain=1
		case $machine in
		*,*) cmp default.json any.json ;;
		*) cmp default.json plan.json && ! cmp -s default.json any.json ;;
		esac || { echo "$machine"; false; }
	done
	plan -q -t 4@1GB/s,2@1GB/s --min-gain=10 && cp plan.json ten.json
	[ "$(used)" -le "$(jq "[.stages[].ranks[]] | unique | length" default.json)" ]'
test_ok "plans by hand say how many are idle, and nothing of others" '
	plan -t 4@1GB/s --stages=6x1,6x1
	grep -q "^idle  *2 of 4 devices$" said
	jq -e ".predicted | has(\"more_devices\") | not" plan.json'
test_done
