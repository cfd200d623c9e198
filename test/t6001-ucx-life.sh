#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Processes that talk through shared memory cost nothing while they sleep, and leave nothing behind, however
# they end.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

life=$PD_BUILD/test/unit/ucx-life
[ -x "$life" ] || test_skip_all "test/unit/ucx-life is not built (make check builds it)"

# left_behind BEFORE: lists segments of both kinds that are not in the file BEFORE, and fails once there are
# none.  Killed processes may take a moment to go.
left_behind() {
	for try in $(seq 200); do
		unattached | grep -vxF -f "$1" >left || return 1
		sleep 0.3
	done
	cat left
}

test_ok "four connected processes asleep for 2 s: under 20 ms of processor time each" '
	"$life" idle 2 >cpu_ms
	cat cpu_ms
	awk "{ exit !(\$1 < 20) }" cpu_ms'

test_ok "an orderly end leaves nothing behind" '
	{ unattached; echo none; } >before
	"$life" idle 0.1
	! left_behind before'

test_ok "20 kills at any moment leave nothing behind" '
	{ unattached; echo none; } >before
	for i in 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20; do
		"$life" churn &
		sleep 0.$(awk "BEGIN { srand($i); printf \"%03d\", 20 + rand() * 150 }")
		kill -KILL $!
		wait $! || :
	done
	! left_behind before'

test_ok "a hang-up ends them, as it does without UCX" '
	env --default-signal=HUP "$life" idle 20 &
	until grep -qs libucs /proc/$!/maps; do sleep 0.1; done
	sleep 0.2
	kill -HUP $!
	status 129 wait $!'

test_ok "nohup keeps its meaning" '
	(trap "" HUP; exec "$life" idle 3) &
	until grep -qs libucs /proc/$!/maps; do sleep 0.1; done
	sleep 0.2
	kill -HUP $!
	wait $!'

test_done
