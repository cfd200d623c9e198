#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpirun starts the ranks.  Each of its processes is one, and the first speaks for all.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
. "$PD_SOURCE/test/hosts-lib.sh"
need_mpirun

residual_model >residual.json
profile residual.json 4 >residual
plan residual 1 2 1 >plan
pd-run --threads=1 --synthetic --minibatches=20 --checkpoint=here plan >out.here

# mpi N ARGUMENT...: runs N processes of pd-run; standard error goes to ./err.
mpi() {
	mpi_ranks=$1
	shift
	timeout 600 mpirun -np "$mpi_ranks" pd-run --threads=1 "$@" 2>err
}

test_ok "four ranks: weights bit-equal to those without mpirun, memory as predicted" '
	mpi 4 --synthetic --minibatches=20 --checkpoint=there --trace=trace plan >out
	same_weights here there
	tail -n 1 out | jq -e ".outcome == \"done\" and .memory == \"as predicted\" and
		(.memory_bytes | length) == 4"
'
test_ok "the reports are those of one run" '
	reports out >reports
	reports out.here | diff - reports
'
test_ok "the trace has the operations of all ranks" '
	jq -se "[.[] | .rank // empty] | unique == [0, 1, 2, 3]" trace
'
list=$(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status)
first=${list%%[-,]*} last=${list##*[-,]}
if [ "$first" = "$last" ]; then
	test_skip "a trace counts the processors of all ranks" "there is one processor"
else
	test_ok "a trace counts the processors of all ranks" '
		timeout 600 mpirun -np 4 sh -c "
			[ \$((OMPI_COMM_WORLD_RANK % 2)) -eq 0 ] && mine=$first || mine=$last
			exec taskset -c \$mine pd-run --threads=1 --synthetic --minibatches=20 \
				--trace=dealt plan" >out 2>err
		head -n 1 dealt | jq -e ".processors == 2 and .threads == 1"
	'
fi
test_ok "ranks of one host exchange through shared memory: none listens" '
	begin out mpirun -np 4 pd-run --threads=1 --report-every=1 --synthetic \
		--minibatches=100000000 plan
	workers=$(of pd-worker) agents=$(of pd-run)
	for process in $workers $agents; do
		ls -l "/proc/$process/fd"
	done | sed -n "s/.*socket:\[\([0-9]*\)\]/\1/p" | sort -u >sockets
	awk "FNR > 1 && \$4 == \"0A\" { print \$10 }" /proc/net/tcp /proc/net/tcp6 | sort >listen
	kill -9 $workers || :   # One that is killed takes the others along.
	wait $run || :
	[ "$(echo $workers | wc -w)" -eq 4 ] && [ "$(echo $agents | wc -w)" -eq 4 ]
	[ -s sockets ] && [ -z "$(comm -12 sockets listen)" ]
'
plan residual 8 8 >plan.json		# It has 16 ranks, as in pd-machines(7).
test_ok "so many ranks that their connections are more than the soft limit of descriptors" '
	cat >few <<-END
		ulimit -Sn 32
		exec pd-run --threads=1 --synthetic --minibatches=16 plan.json
	END
	timeout 600 mpirun -np 16 sh few 2>err >out
	tail -n 1 out | jq -e ".outcome == \"done\""
'
test_ok "the line in pd-machines(7)" '
	sed -n "/^\.Bd/,/^\.Ed/s/^\(mpirun .*--data=\)DIR/\1data/p" "$PD_SOURCE/man/pd-machines.7" >line
	one_line line
	idx_data data
	echo localhost slots=16 >hosts
	timeout 600 sh line 2>err >out
	tail -n 1 out | jq -e ".outcome == \"done\" and (.memory_bytes | length) == 16"
'
test_ok "a plan of another number of ranks is refused in one sentence, with status 2" '
	status 2 mpi 3 --synthetic plan
	said "the plan has 4 ranks, and 3 processes were started"
'
test_ok "so is what is wrong with options or files: the first speaks, all end" '
	status 2 mpi 4 --bogus
	said "unknown option --bogus"
	status 2 mpi 4 --synthetic absent.json
	said "absent.json: cannot open"
	mpi 4 --help >out
	[ "$(grep -c ^Usage: out)" -eq 1 ]
'
test_ok "one process alone is a run of its own, of all ranks" '
	mpi 1 --synthetic --minibatches=20 --checkpoint=alone plan >out
	same_weights here alone
'
test_ok "a rank that is killed is named within seconds, and the status is 3" '
	begin out mpirun -np 4 pd-run --threads=1 --report-every=1 --synthetic \
		--minibatches=100000000 plan
	kill -9 $(of pd-worker 2)
	ended 10 3
	said "rank 2 (stage 1 of 3) was killed by signal 9 (Killed)"
'
# After a signal mpirun may read no reports any more, so they go into files.
test_ok "SIGTERM to mpirun ends in a checkpoint" '
	cat >apart <<-END
		exec pd-run --threads=1 --synthetic --minibatches=100000000 --report-every=20 \
			--checkpoint=ended plan >reports.\$OMPI_COMM_WORLD_RANK
	END
	timeout 600 mpirun --mca odls_base_sigkill_timeout 10 -np 4 sh apart \
		>out 2>err &
	run=$!
	until grep -qs progress reports.0; do
		kill -0 $run
		sleep 0.1
	done
	kill -TERM $(of mpirun)
	ended 60 ""
	step=$(tail -n 1 reports.0 | jq -e "select(.outcome == \"stopped\") | .step")
	mpi 4 --synthetic --minibatches=$((step + 10)) --checkpoint=ended --resume=$step plan >out
	tail -n 1 out | jq -e ".step == $step + 10"
'
test_ok "SIGUSR1, which mpirun hands on, too; and the run goes on where it stopped" '
	begin out mpirun -np 4 pd-run --threads=1 --synthetic --minibatches=100000000 \
		--report-every=20 --checkpoint=usr1 plan
	kill -USR1 $(of mpirun)
	ended 60 ""
	step=$(tail -n 1 out | jq -e "select(.outcome == \"stopped\") | .step")
	mpi 4 --synthetic --minibatches=$((step + 10)) --checkpoint=usr1 --resume plan >out
	tail -n 1 out | jq -e ".step == $step + 10"
'
test_done
