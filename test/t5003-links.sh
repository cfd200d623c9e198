#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Transfers wait for links.  A second level of one component is the same machine, so both must take the same
# times, though a way has as many links more.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# plan REPLICAS WARMUPS BYTES PARAMETERS: prints a plan in which each forward is a little longer than the
# one before.
plan() {
	made_up "$1" "$2" ".profile.layers |= [to_entries[] | .key as \$l | .value
		+ {forward_ns: (1000 + 7 * \$l), activation_bytes: $3, parameter_bytes: $4}]"
}

# alike MINIBATCHES TOPOLOGY: checks that one level and two take the same times.
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
