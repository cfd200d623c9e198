#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Terminals, timeout(1) and batch systems send signals to a whole process group.  pd-run alone decides,
# nothing is lost, and it ends by the signal.  A group that is stopped for a while and continued goes on.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json
profile residual.json 4 >residual
plan residual 1 1 1 >plan-3
plan residual 2 1 >plan-2
ulimit -c 0
# Runs start as from a terminal, whatever started these tests.  Their priority is low, since they train
# while others are tested, and leave those most of the processors.
fresh='nice -n 5 env --default-signal=INT,TERM,HUP,QUIT'

# begin DIRECTORY OPTION...: starts a run in a group of its own; $run is its process and its group.
begin() {
	rm -rf "$1"
	mkdir "$1"
	begin_in=$1
	shift
	(cd "$begin_in" && exec setsid $fresh pd-run --threads=1 --synthetic \
		--minibatches=100000000 --checkpoint=ck --trace=trace "$@" ../plan-3 >out 2>err) &
	run=$!
}

# trains DIRECTORY: waits until the run has begun to train.
trains() {
	for try in $(seq 600); do
		[ ! -s "$1/out" ] || return 0
		sleep 0.1
	done
	cat "$1/err"
	return 1
}

# gone GROUP: waits until no process of it is left; those that are killed may take a moment.
gone() {
	for try in $(seq 600); do
		kill -s 0 -- "-$1" 2>/dev/null || return 0
		sleep 0.1
	done
	ps -ef
	return 1
}

# orderly DIRECTORY: checks that the run said that it was stopped, and left its checkpoint and its trace.
orderly() {
	cat "$1/err"
	one_line "$1/err"
	grep "^pd-run: stopped; [a-z/]*ck has the checkpoint of step $(tail -n 1 "$1/out" | jq .step), and the same command with --resume goes on from it$" "$1/err"
	[ "$(tail -n 1 "$1/out" | jq -r .outcome)" = stopped ]
	[ -d "$(at "$1/ck" "$(tail -n 1 "$1/out" | jq .step)")" ]
	pd-replay "$1/trace" >/dev/null
}

for signal in TERM:143 HUP:129 INT:130; do
	number=${signal#*:} signal=${signal%:*}
	test_ok "SIG$signal to the group: ended in order, and by it" "
		begin one
		trains one
		kill -s $signal -- -\$run
		status $number wait \$run
		orderly one
		gone \$run"
done

test_ok "timeout(1), which signals twice: one wish" '
	mkdir timed
	$fresh timeout 600 pd-run --threads=1 --synthetic --minibatches=100000000 \
		--checkpoint=timed/ck --trace=timed/trace plan-3 >timed/out 2>timed/err &
	run=$!
	trains timed
	kill -s TERM $run       # timeout(1) then acts as if the time were over.
	status 143 wait $run
	orderly timed'

test_ok "what comes next in a shell does not" '
	mkdir next
	status 143 $fresh sh -c "pd-run --threads=1 --synthetic --minibatches=100000000 plan-2 \
		>next/out 2>next/err & until [ -s next/out ]; do sleep 0.1; done; kill \$!; wait \$! &&
		touch next/went-on"
	[ ! -e next/went-on ]
	[ "$(tail -n 1 next/out | jq -r .outcome)" = stopped ]'

test_ok "a signal while the workers start: nothing is left" '
	begin early
	sleep 0.03
	until kill -s TERM -- -$run 2>/dev/null; do sleep 0.01; done
	status 143 wait $run
	cat early/err           # empty where the signal comes before pd-run has begun
	[ ! -s early/err ] ||
		[ "$(cat early/err)" = "pd-run: stopped before the first checkpoint: nothing is kept" ]
	gone $run'

test_ok "a worker alone does not end by it" '
	begin alone
	trains alone
	kill -TERM $(children $run)
	sleep 0.5
	kill -TERM $run
	status 143 wait $run
	orderly alone'

test_ok "SIGQUIT ends it at once, and the workers with it" '
	begin quit
	trains quit
	kill -s QUIT -- -$run
	status 131 wait $run
	gone $run
	[ ! -s quit/err ]
	[ ! -e quit/trace ]'

# The address sanitizer would take these signals itself.
test_ok "a worker that fails: a sentence, and no library speaks" '
	ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_segv=0:handle_sigbus=0:handle_sigfpe=0
	export ASAN_OPTIONS="$ASAN_OPTIONS:handle_sigill=0:handle_abort=0"
	for signal in SEGV BUS FPE ILL ABRT; do
		begin fails
		trains fails
		set -- $(children $run)
		kill -s $signal $3
		status 3 wait $run
		cat fails/err
		one_line fails/err
		grep -q "rank 2 (stage 2 of 3) was killed by signal" fails/err
	done'

# An orderly end takes as long as a worker is stopped.
test_ok "two signals in a moment are one wish" '
	begin twice
	trains twice
	set -- $(children $run)
	kill -STOP $2 $run
	kill -s HUP -- -$run
	kill -s TERM -- -$run
	kill -CONT $run         # It reads both in the same moment, the lower number first.
	sleep 0.5
	kill -CONT $2
	status 129 wait $run
	orderly twice'

test_ok "a second one, a second later, ends it at once" '
	begin second
	trains second
	set -- $(children $run)
	kill -STOP $2
	kill -s TERM -- -$run
	for try in $(seq 40); do
		sleep 1.3
		kill -s INT -- -$run 2>/dev/null || break
	done
	status 130 wait $run
	one_line second/err
	grep -q "interrupted twice" second/err
	[ ! -e second/trace ]
	gone $run'

test_ok "what was ignored when it began stays so" '
	rm -f out
	(trap "" INT TERM; exec setsid pd-run --threads=1 --synthetic --minibatches=2000 plan-2) >out 2>err &
	until [ -s out ]; do sleep 0.1; done
	kill -s INT -- -$!
	kill -s TERM -- -$!
	wait $!
	[ "$(tail -n 1 out | jq -r .outcome)" = done ]'

test_ok "all stopped for longer than any limit, and pd-run alone: they go on" '
	begin all --timeout=1
	all=$run
	trains all
	begin self --timeout=1
	self=$run
	trains self
	kill -s STOP -- -$all
	kill -STOP $self
	sleep 12
	kill -s CONT -- -$all
	kill -CONT $self
	sleep 3
	cat all/err self/err
	kill -s TERM -- -$all
	kill -s TERM -- -$self
	status 143 wait $all
	status 143 wait $self
	orderly all
	orderly self'

# named RANK: stops this rank, and checks that it is blamed, not a rank that waits for it.
named() {
	begin "named-$1" --timeout=2
	trains "named-$1"
	shift_by=$1
	set -- "$1" $(children $run)
	shift $((shift_by + 1))
	kill -STOP "$1"
	status 3 wait $run
	cat "named-$shift_by/err"
	one_line "named-$shift_by/err"
	grep -q "rank $shift_by (stage $shift_by of 3) hangs" "named-$shift_by/err"
}
for rank in 0 1 2; do
	test_ok "--timeout names the rank that does not move: $rank" "named $rank"
done


# A worker may die before its main(), when libraries have handlers of their own, which draw backtraces.
mkdir dying
cp "$PD_BUILD/bin/pd-run" dying
cat >dying/pd-worker <<'END'
#!/bin/sh
cat >&2 <<'TEXT'
[here:17:0:17] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)
==== backtrace (tid:     17) ====
 0 0x000000000003c050 __sigaction()  ???:0
=================================
TEXT
kill -SEGV $$
END
chmod +x dying/pd-worker
test_ok "a worker that dies while it starts: what it said last, and no rule below that" '
	status 3 dying/pd-run --threads=1 --synthetic plan-3 >out 2>err
	cat err
	one_line err
	grep "^pd-run: rank [0-9] (stage [0-9] of 3) was killed by signal 11 (Segmentation fault) (.here:17:0:17. Caught signal 11 .* while starting$" err'
test_ok "a worker that cannot be started says why" '
	(ulimit -n 12; ! pd-run --threads=1 --synthetic --minibatches=2 plan-2) >out 2>err
	cat err
	grep -Eq "^pd-run: rank [0-9] (.* exited with status 3 \(.*pd-worker: Too many open files\) while starting|cannot be started: Too many open files)" err'
test_done
