#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Four hosts (contrib/hosts.sh) train the same weights as one.  Whatever is lost, a rank, a host, the first
# process or a link, is named within seconds, and nothing is left on any host.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
. "$PD_SOURCE/test/hosts-lib.sh"
need_mpirun

on_hosts --limit=1000 --clocks 4

residual_model >residual.json
profile residual.json 4 >residual
plan residual 1 2 1 >plan
pd-run --threads=1 --synthetic --minibatches=20 --checkpoint=here plan >out.here

# there ARGUMENT...: runs pd-run on all hosts, with a rank on each.
there() {
	set -- mpirun --host "$PD_HOSTS" -np 4 pd-run --threads=1 "$@"
	timeout 600 "$@" 2>err
}

# begin_there: starts a run that would go on for ever.
begin_there() {
	begin out mpirun --host "$PD_HOSTS" -np 4 pd-run --threads=1 --synthetic \
		--minibatches=100000000 --report-every=1 plan
}

# on HOST NAME: prints the processes there of that name.
on() {
	for process in $(ip netns pids "$PD_NETNS$1"); do
		[ "$(cat "/proc/$process/comm" 2>/dev/null)" != "$2" ] || echo "$process"
	done
}

# none_left SECONDS: waits until no process of pd-run is on any host, within that limit.
none_left() {
	for try in $(seq $(($(within "$1") * 10))); do
		left=
		for host in h1 h2 h3 h4; do
			left="$left$(on $host pd-run)$(on $host pd-worker)"
		done
		[ -n "$left" ] || return 0
		sleep 0.1
	done
	echo "left: $left"
	return 1
}

test_ok "weights and reports as on one host" '
	there --synthetic --minibatches=20 --checkpoint=there --trace=trace plan >out
	same_weights here there
	reports out >reports
	reports out.here | diff - reports
'
# agree TRACE: checks that no forward or backward begins more than 5 ms before what it needs from another
# stage has ended.  A clock that is taken to be ahead by too much shows in what its host waits for, one by
# too little in what waits for its host.
agree() {
	jq -se 'map(select(.op == "forward" or .op == "backward")) as $done |
		[$done[] | {key: "\(.op) \(.stage) \(.microbatch)", value: .end_ns}] | from_entries as $ended |
		[$done[] | (if .op == "forward" then .stage - 1 else .stage + 1 end) as $from |
			.start_ns - ($ended["\(.op) \($from) \(.microbatch)"] // empty)] |
		length == 80 and min > -5e6' "$1"
}
test_ok "the clocks of the hosts, 1000 s apart, do not show in the trace" '
	agree trace
	for wrong in -50e6 50e6; do
		jq -c "if .rank == 3 then .start_ns += $wrong | .end_ns += $wrong else . end" trace >other
		! agree other || false
	done
	jq -se "[.[] | select(.op) | .start_ns] | min >= 0" trace
	pd-replay trace
'
# The topology has two machines of two.
jq ".topology.levels = [{count: 2, bandwidth_bytes_per_s: 1e9, latency_ns: 0},
			{count: 2, bandwidth_bytes_per_s: 1e8, latency_ns: 0}]" plan >paired

test_ok "--print-mapping says where ranks are, and trains nothing" '
	there --print-mapping --synthetic --checkpoint=none plan >out
	jq -ce "select(.event == \"rank\") | [.rank, .host, .stages[0], .replica]" out >mapping
	diff - mapping <<-END
		[0,"h1",0,0]
		[1,"h2",1,0]
		[2,"h3",1,1]
		[3,"h4",2,0]
	END
	[ ! -e none/step* ]
'
test_ok "a plan for two machines of two is refused on four" '
	status 2 there --synthetic --minibatches=20 paired
	said " has ranks 0 and 1 on one machine, found them on hosts h1 and h2; --force "
'
test_ok "--force trains all the same, and says so" '
	there --force --synthetic --minibatches=20 --checkpoint=forced paired >out
	said " has ranks 0 and 1 on one machine, found them on hosts h1 and h2; predictions"
	same_weights here forced
'
PD_HOSTS=h1:2,h2:2
test_ok "on two machines of two it is right, and the other plan is not" '
	there --synthetic --minibatches=20 --checkpoint=paired.ck paired >out
	same_weights here paired.ck
	status 2 there --synthetic --minibatches=20 plan
	said " has ranks 0 and 1 on different machines, found both on host h1; --force "
'
PD_HOSTS=h1,h2,h3,h4

test_ok "kill -9 of a rank" '
	begin_there
	kill -9 $(on h3 pd-worker)
	none_left 3
	ended 10 3
	said "rank 2 (stage 1 of 3, host h3) was killed by signal 9 (Killed)"
'
test_ok "kill -9 of all processes of a host" '
	begin_there
	kill -9 $(on h2 pd-worker) $(on h2 pd-run) $(on h2 orted) || :
	none_left 3
	ended 10 ""
	# mpirun, which has lost its own process there, may kill the first process before it speaks.
	said "rank 1 (stage 1 of 3, host h2) is lost with the process that started it" ||
		grep -A 5 "lost communication with a remote daemon" err | grep -w h2
'
test_ok "kill -9 of the first process" '
	begin_there
	kill -9 $(on h1 pd-run)
	none_left 3
	ended 10 ""
'
test_ok "kill -9 of mpirun" '
	begin_there
	kill -9 $(of mpirun)
	none_left 5
	wait $run || :
'
test_ok "a rank that is stopped hangs, and is named" '
	begin_there
	kill -STOP $(on h4 pd-worker)
	none_left 15
	ended 10 3
	said "rank 3 (stage 2 of 3, host h4) hangs: it has not answered for "
'
test_ok "a link that is down for two seconds holds a run up; down for good, its host is lost" '
	begin_there
	ip -n "${PD_NETNS}h4" link set eth0 down
	sleep 1
	held=$(grep -c progress out)
	sleep 1
	[ "$(grep -c progress out)" -eq "$held" ]
	ip -n "${PD_NETNS}h4" link set eth0 up
	for try in $(seq $(($(within 8) * 10))); do
		[ "$(grep -c progress out)" -le $((held + 20)) ] || break
		sleep 0.1
	done
	[ "$(grep -c progress out)" -gt $((held + 20)) ]
	ip -n "${PD_NETNS}h4" link set eth0 down
	none_left 12
	said "rank 3 (stage 2 of 3, host h4) has not been heard of for 7 s, nor has its host"
	# mpirun itself waits for its own process on that host
	kill -9 $(of mpirun) $run 2>/dev/null || :
	wait $run || :
	ip -n "${PD_NETNS}h4" link set eth0 up
'
test_done
