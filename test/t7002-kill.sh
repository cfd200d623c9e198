#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A worker that dies or hangs at any moment ends the run in seconds, with one sentence and nothing left
# behind.  So does the death of pd-run.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json
profile residual.json 4 >residual
plan residual 1 1 >plan-1
plan residual 1 1 1 >plan-2
plan residual 2 1 >plan-3
plan residual 1 2 1 >plan-4

# clean PIDS: checks that these processes are gone, with all that they had, and gives them a moment for it.
clean() {
	for try in $(seq 600); do
		left=$(unattached | grep -vxF -f before || :)
		for process in $1; do
			case $(cat "/proc/$process/comm" 2>/dev/null) in
			pd-worker) left="$left $process" ;;
			esac
		done
		for file in trace* ck/.step*; do
			[ ! -e "$file" ] || left="$left $file"
		done
		[ -n "$left" ] || return 0
		sleep 0.1
	done
	echo "left: $left"
	return 1
}

# begin PLAN OPTION...: starts a run as $run, and waits until its workers are there.  A death that only the
# heartbeat noticed would take ten minutes.
begin() {
	{ unattached; echo none; } >before
	begin_plan=$1
	shift
	rm -rf trace
	# pd-run starts as from a terminal, also where these tests run under nohup.
	env --default-signal=HUP pd-run --threads=1 --synthetic --checkpoint=ck \
		--checkpoint-every=20 --trace=trace --timeout=600 "$@" "$begin_plan" >out 2>err &
	run=$!
	workers= ranks=$(jq '[.stages[].replicas] | add' "$begin_plan")
	while [ "$(echo "$workers" | wc -w)" -ne "$ranks" ] && kill -0 "$run" 2>/dev/null; do
		workers=$(children "$run")
		sleep 0.01
	done
}

# ended SECONDS: waits for the run, puts its exit status into $ended, and checks that it took no longer.
ended() {
	since=$(date +%s%N)
	ended=0
	wait "$run" || ended=$?
	took=$((($(date +%s%N) - since) / 1000000))
	echo "status $ended after $took ms"
	[ "$took" -lt $(($1 * 1000)) ]
}

# killed MOMENT: kills a random worker of a random plan at a random time, and checks how the run ends.
killed() {
	set -- "$1" $(awk -v s="$1" 'BEGIN {
		srand(s * 7919)
		print 1 + int(rand() * 4), rand() * (s % 5 ? 0.6 : 0.15), int(rand() * 4)
	}')
	rm -rf ck
	begin "plan-$2" --minibatches=$([ $(($1 % 10)) -eq 9 ] && echo 300 || echo 100000)
	sleep "$3"
	set -- "$1" "$2" $(echo "$workers" | awk -v n="$4" '{ n %= NF; print n, $(n + 1) }')
	kill -KILL "$4" 2>/dev/null || :
	ended 100
	cat err
	[ "$ended" -ne 0 ] || rm trace          # The signal came too late: the run is done.
	clean "$workers"
	[ "$ended" -ne 0 ] || { [ "$(tail -n 1 out | jq -r .outcome)" = done ]; return; }
	[ "$ended" -eq 3 ]
	one_line err
	grep -q "rank $3 (stage [0-9] of [0-9]).*killed by signal 9" err
	ls ck 2>/dev/null | grep -q step- || return 0
	[ $(($1 % 5)) -eq 0 ] || return 0
	step=$(ls ck | tail -n 1 | sed 's/step-0*//')
	pd-run --threads=1 --synthetic --checkpoint=ck --resume --minibatches=$((step + 7)) \
		"plan-$2" >out 2>err
	[ "$(tail -n 1 out | jq .step)" -eq $((step + 7)) ]
}

moment=1
while [ $moment -le 30 ]; do
	test_row "moment $((moment % 5))" "a worker killed at random moment $moment" "killed $moment"
	moment=$((moment + 1))
done

test_ok "a worker that is stopped is given up" '
	rm -rf ck
	begin plan-2 --minibatches=1000000 --timeout=3
	sleep 0.7
	set -- $workers
	kill -STOP "$2"
	ended 100
	cat err
	[ "$ended" -eq 3 ]
	one_line err
	grep -q "rank 1 (stage 1 of 3) hangs" err
	clean "$workers"'

# slowly DOES SECONDS OPTION...: runs plan-1 with workers that do this for so long before they begin.
slowly() {
	rm -rf slow
	mkdir slow
	cp "$PD_BUILD/bin/pd-run" slow/
	printf "#!/bin/sh\n%s\nexec %s/bin/pd-worker \"\$@\"\n" \
		"until=\$((\$(cut -d. -f1 /proc/uptime) + $2)); $1" "$PD_BUILD" >slow/pd-worker
	chmod +x slow/pd-worker
	shift 2
	slow/pd-run --threads=1 --synthetic --minibatches=2 --no-evaluate "$@" plan-1
}
computes="while read -r now rest </proc/uptime && [ \${now%.*} -lt \$until ]; do :; done"
test_ok "a worker that computes for long before it begins does not hang, whatever --silence says" '
	slowly "$computes" 7 --silence=2 --timeout=3
	slowly "$computes" 0 --silence=2'
test_ok "one that sleeps does, and --timeout is asked as well" '
	status 3 slowly "exec sleep 600" 0 --silence=2 2>err
	cat err
	one_line err
	grep -q "rank 0 (stage 0 of 2) hangs: it has not answered for [0-9]* s while starting" err
	status 3 slowly "exec sleep 600" 0 --timeout=2 2>err
	cat err
	grep -q "rank [01] (stage [01] of 2).* while starting" err'

test_ok "pd-run killed: its workers go with it" '
	rm -rf ck
	begin plan-4 --minibatches=1000000
	sleep 0.7
	kill -KILL "$run"
	ended 100 || :
	rm -f ck/.step*/* && rmdir ck/.step* || :
	clean "$workers"'

test_ok "and one that is stopped" '
	rm -rf ck
	begin plan-2 --minibatches=1000000
	sleep 0.7
	set -- $workers
	kill -STOP "$2"
	kill -KILL "$run"
	ended 100 || :
	rm -f ck/.step*/* && rmdir ck/.step* || :
	clean "$workers"'

# alone: checks that there is no file of a trace except the trace itself.
alone() {
	ls -A >names
	cat names
	! grep trace names | grep -vx trace || false
}
test_ok "pd-run killed: the trace of before stays, and nothing of the new one" '
	rm -rf ck
	pd-run --threads=1 --synthetic --minibatches=20 --trace=trace plan-2 >out
	cp trace kept
	begin plan-2 --minibatches=1000000
	mv kept trace
	sleep 0.5
	alone
	kill -KILL "$run"
	ended 100 || :
	alone
	pd-replay trace >report
	rm trace'
test_full "and killed while it puts the trace together" '
	for try in 1 2 3; do
		rm -rf ck
		begin plan-2 --minibatches=300
		while kill -0 "$run" && ! grep -q outcome out; do sleep 0.01; done
		sleep 0.00$try
		kill -KILL "$run" || :
		ended 100 || :
		alone
		[ ! -e trace ] || { pd-replay trace >report && echo whole; }
		rm -f trace
	done'
test_ok "a trace that goes into a pipe" '
	mkfifo stream
	cat stream >copy &
	pd-run --threads=1 --synthetic --minibatches=20 --trace=stream plan-2 >out
	wait $!
	pd-replay copy >report'

test_ok "the terminal goes: stopped in order; under nohup nothing is" '
	rm -rf ck
	begin plan-2 --minibatches=1000000
	while kill -0 "$run" && ! ls ck 2>/dev/null | grep -q step-; do sleep 0.05; done
	kill -HUP "$run"
	ended 100
	[ "$ended" -eq 129 ]
	[ "$(tail -n 1 out | jq -r .outcome)" = stopped ]
	pd-replay trace >report
	rm trace
	clean "$workers"
	rm out
	(trap "" HUP; exec pd-run --threads=1 --synthetic --minibatches=3000 plan-1) >out 2>err &
	run=$!
	until [ -s out ]; do sleep 0.1; done
	kill -HUP "$run"
	ended 600
	[ "$(tail -n 1 out | jq -r .outcome)" = done ]'

test_ok "standard output that takes nothing: nothing is trained" '
	rm -rf ck
	[ ! -c /dev/full ] || {
		status 3 pd-run --synthetic --checkpoint=ck plan-1 >/dev/full 2>err
		one_line err && grep -q "standard output.*No space left on device" err
	}
	status 3 pd-run --synthetic --checkpoint=ck plan-1 >&- 2>err
	one_line err && grep -q "standard output.*Bad file descriptor" err
	[ ! -e ck ]'

# unheard COMMAND...: checks that the run ends in order, though nobody hears any more how it goes.  What has
# been trained is in a checkpoint, which the last sentence names, and the trace is whole.
unheard() {
	status 3 "$@" --threads=1 --synthetic --minibatches=1000000 --checkpoint=ck --trace=trace \
		plan-2 2>err
	cat err >&2
	one_line err
	step=$(ls ck | tail -n 1 | sed "s/step-0*//")
	grep -q "^pd-run: standard output: cannot write: .*; stopped after $step minibatches; .*$step\$" err
	pd-replay trace >report
	rm trace
}
test_ok "who reads standard output leaves: stopped in order" '
	rm -rf ck
	mkfifo pipe
	head -n 1 pipe >first &
	unheard pd-run >pipe
	[ "$(jq -r .event first)" = progress ]
	wait'

# full: checks that a run that met a full disk says so.
full() {
	one_line err
	cat err
	grep -q "No space left on device" err
}

test_ok "who reads the trace leaves before it is written" '
	mkfifo left
	: <left &
	status 3 pd-run --threads=1 --synthetic --minibatches=20 --trace=left plan-2 2>err >out
	one_line err
	cat err
	grep -q "^pd-run: left: cannot write.*: Broken pipe" err
	[ "$(tail -n 1 out | jq -r .outcome)" = done ]
	wait'
if [ "$(id -u)" -eq 0 ] && mkdir small && mount -t tmpfs -o size=4m none small 2>/dev/null; then
	trap 'cd /; umount "$test_directory/small"; rm -rf "$test_directory"' EXIT
	test_ok "no room for a checkpoint: the one before stays" '
		pd-run --threads=1 --synthetic --checkpoint=small/ck --minibatches=10 plan-2 >out
		head -c 3400000 /dev/zero >small/rest || :
		status 3 pd-run --threads=1 --synthetic --checkpoint=small/ck --resume \
			--minibatches=200 --keep=1000 --checkpoint-every=1 plan-2 2>said >out
		grep -q "goes on from step 10\$" said
		grep -v "goes on from" said >err
		full
		ls -A small/ck
		[ -z "$(ls -A small/ck | grep -v ^step-)" ]
		rm small/rest
		pd-run --threads=1 --synthetic --checkpoint=small/ck --resume --minibatches=200 \
			plan-2 >out
		[ "$(tail -n 1 out | jq .step)" -eq 200 ]'
	test_full "no room for the trace of a long run" '
		rm -rf small/*
		head -c 4000000 /dev/zero >small/rest || :
		status 3 pd-run --threads=1 --synthetic --minibatches=2000 --trace=small/trace \
			plan-2 2>err >out
		full
		[ "$(ls -A small)" = rest ]'
	test_ok "no room for what is reported: stopped in order" '
		rm -rf small/* ck
		head -c 4200000 /dev/zero >small/rest || :
		truncate -s -4096 small/rest
		unheard pd-run --report-every=10 >small/out
		head -n 1 small/out | jq -e .step'
else
	test_skip "no room for a checkpoint" "a small file system cannot be mounted here"
fi

test_done
