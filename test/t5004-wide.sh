#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With data parallelism over many ranks an all-reduce ends in the time in which links can carry it.  In
# groups, where there are thousands, it takes not much more.  What the plan says is what every rank
# allocates.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# plan REPLICAS PARAMETER_BYTES: prints a plan of one layer on all replicas.
plan() {
	made_up "[$1]" '[0]' ".profile.layers[].parameter_bytes = $2"
}

# reduced MINIBATCHES TOPOLOGY: prints the nanoseconds from the beginning of the first all-reduce to the end
# of the last.
reduced() {
	pd-replay -m "$1" -t "$2" -f trace plan.json |
		jq -n '[inputs | select(.op == "allreduce")] |
			(map(.end_ns) | max) - (map(.start_ns) | min)'
}

# Each of n replicas sends (n - 1)/n of the parameters twice, and no link ever waits for another.
for n in 3 8 15 100; do
	test_ok "an exchange among $n goes in rounds" "
		plan $n 100000000 >plan.json
		ns=\$(reduced $n $n@1GB/s)
		test \$ns -ge \$((200000000 * ($n - 1) / $n))
		test \$ns -lt \$((200200000 * ($n - 1) / $n))"
done
# 100 MB at 1 GB/s take 200 ms there and back.
while read -r n most_ms; do
	test_row all-reduce "an all-reduce among $n" "
		plan $n 100000000 >plan.json
		ns=\$(reduced $n $n@1GB/s)
		echo \$ns
		test \$ns -ge 200000000
		test \$ns -lt ${most_ms}000000"
done <<END
256 240
1000 229
4096 240
END
test_ok "servers of eight, whose links all of it crosses twice each way" '
	plan 512 100000000 >plan.json
	ns=$(reduced 512 8@12GB/s,64@10GB/s)
	test $ns -ge 20000000
	test $ns -lt 60000000'
test_ok "two servers of four: once each way over the link between them, and little more" '
	plan 8 100000000 >plan.json
	ns=$(reduced 8 4@25GB/s,2@12.5GB/s)
	test $ns -ge 8000000
	test $ns -lt 16000000'
test_ok "what goes back gets to a link between what goes on" '
	plan 8 100000000 >plan.json
	ns=$(reduced 8 2@12GB/s,2@6GB/s,2@1.25GB/s)
	test $ns -ge 80000000
	test $ns -lt 93000000
	plan 64 100000000 >plan.json
	ns=$(reduced 64 8@12GB/s,8@1.25GB/s)
	test $ns -ge 160000000
	test $ns -lt 220000000'
test_ok "a few bytes, in steps that take long" '
	plan 4096 64 >plan.json
	test $(reduced 4096 4096@1GB/s+5us) -lt 1500000'
test_done
