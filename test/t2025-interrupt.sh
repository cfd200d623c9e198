#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A search that is interrupted, and how far it is, on a terminal.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# such a search takes minutes, on any machine
chain 300 >long.json
long="-t 8@1GB/s,8@1GB/s --schedule=auto --weights=flush --microbatches=64 --effort=1000 long.json"
# begin OPTION...: begins it, and waits until it would be interrupted.
begin() {
	env --default-signal=INT pd-plan "$@" >plan.json 2>err &
	search=$!
	until sed -n "s/^SigCgt:.*\(.\)$/\1/p" /proc/$search/status | grep -q "[2367abef]"; do
		kill -0 $search
		sleep 0.01
	done
}
[ -r /proc/self/status ] || test_skip_all "/proc says which signals are caught"
if ! timeout -s KILL 5 env --default-signal=INT true 2>/dev/null; then
	test_skip_all "env cannot have a signal do what it does by default"
fi

test_ok "an interrupt ends it with the best plan so far, which says that it is not done, and status 1" '
	begin $long
	kill -INT $search
	status 1 wait $search
	cat err
	grep -q "^pd-plan: interrupted: the search is not done, and what it has is the best so far$" err
	grep -q "^bottleneck .*; the search ended early" err
	jq -e ".predicted.ended_early and .predicted.period_ns > 0" plan.json
	pd-schedule --check --minibatches=2 plan.json'
test_ok "with --top these are the best so far" '
	begin --top=3 --quiet $long
	kill -INT $search
	status 1 wait $search
	cat err
	one_line err && grep -q "^pd-plan: interrupted" err
	[ -s plan.json ] && jq -e .samples_per_s plan.json >out && [ "$(wc -l <out)" -le 3 ]'
test_ok "where signals are ignored, as of nohup, it goes on" '
	sh -c "trap \"\" INT; exec pd-plan $long" >plan.json 2>err &
	search=$!
	sleep 0.2
	kill -INT $search
	sleep 0.2
	kill -0 $search
	kill -KILL $search
	status 137 wait $search'
test_ok "a search that is done has no such status" '
	chain 4 | pd-plan -q -t 2@1GB/s | jq -e ".predicted | has(\"ended_early\") | not"'
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
	test_ok "on a terminal one line says how far it is, and never runs backwards" '
		timeout -s KILL 300 script -qec "env --default-signal=INT timeout -s INT 8 pd-plan $long >plan.json" said \
			</dev/null >/dev/null || :
		tr "\r" "\n" <said | grep -a "^searching \[[#.]*\] .*% .*[0-9] of [0-9]* variants looked at, best [0-9]" >lines
		tail -n 3 lines
		[ "$(wc -l <lines)" -ge 2 ]
		sed "s/%.*//; s/.* //" lines >done
		sort -s -n done | cmp - done
		sed -n "s/.* about \([0-9]*\) s left.*/\1/p" lines >left
		sort -s -n -r left | cmp - left
		grep -a -q "interrupted: the search is not done" said'
else
	test_skip "script(1) makes terminals"
fi
test_done
