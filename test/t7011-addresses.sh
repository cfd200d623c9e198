#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpirun's PMIx server passes the addresses of the ranks, and only to those that exchange something with
# them.  A rank that is lost on the way is named.  test/double/pmix.c takes notes.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
. "$PD_SOURCE/test/hosts-lib.sh"
need_mpirun

if nm "$PD_BUILD/bin/pd-run" 2>/dev/null | grep -q __asan_init; then
	test_skip_all "sanitizers must come before anything that is preloaded"
fi
cc -O1 -shared -fPIC $(sed -n 's/^PMIX_CPPFLAGS = //p' "$PD_BUILD/Makefile") -o pmix.so \
	"$PD_SOURCE/test/double/pmix.c" -ldl || test_skip_all "the compiler does not make what looks on"

residual_model >residual.json
profile residual.json 4 >residual
plan residual 1 1 1 1 >line
plan_with=--all-reduce=ring
plan residual 4 >replicas

# watched RANKS COMMAND...: runs the command by mpirun, while notes are taken.
watched() {
	rm -f notes
	watched_ranks=$1
	shift
	timeout 600 env PD_PMIX_NOTES="$PWD/notes" mpirun -np "$watched_ranks" \
		-x LD_PRELOAD="$PWD/pmix.so" "$@" 2>err
}

# asked TEXT: checks that these are the notes; a line of TEXT is "RANK OTHER...".
asked() {
	echo "$1" | awk '{ print "put", $1; print "get", $1, $1; for (i = 2; i <= NF; i++) print "get", $1, $i }' |
		sort >expected
	sort notes | diff expected -
}

test_ok "a line of stages: each asks for its neighbours alone, once" '
	watched 4 pd-run --threads=1 --synthetic --minibatches=20 --checkpoint=there line >out
	asked "0 1
1 0 2
2 1 3
3 2"
	pd-run --threads=1 --synthetic --minibatches=20 --checkpoint=here line >out.here
	same_weights here there
'
test_ok "replicas: each for those that it meets in a ring, and in what they share" '
	watched 4 pd-run --threads=1 --synthetic --minibatches=20 replicas >out
	asked "0 1 2 3
1 0 2
2 0 1 3
3 0 2"
'
test_ok "pd-topo: each for its neighbours, and those as far away as components may be large" '
	watched 4 pd-topo >out
	asked "0 1 2
1 0 2 3
2 0 1 3
3 1 2"
'
# killed RANK CALL: kills the process of that rank after that call, and checks that it is named.
killed() {
	begun=$(date +%s)
	export PD_PMIX_VICTIM="$1" PD_PMIX_AFTER="$2"
	status 3 watched 4 pd-run --threads=1 --synthetic --minibatches=100000000 line >out
	grep -qx "put $1" notes
	said "rank $1 (stage $1 of 4) was killed by signal 9 (Killed)"
	[ $(($(date +%s) - begun)) -le "$(within 10)" ]
}

test_ok "a rank that is killed before anybody has its address is named within seconds" 'killed 2 put'
test_ok "so is one that is killed while it asks for those of others" 'killed 2 get'
test_ok "also where the first process gets no answer to what it has asked for" '
	export PD_PMIX_DEAF=0
	killed 2 get
'
test_done
