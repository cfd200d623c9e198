# SPDX-License-Identifier: Apache-2.0
# Every test/t*.sh sources this file.  A test looks like this:
#
#     . "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
#     test_ok "what must be true" 'shell commands, which run in a directory of their own'
#     test_done
#
# PD_SOURCE is the source tree, PD_BUILD the build tree, PATH begins with its bin.

PD_SOURCE=$(cd "${PD_SOURCE:-$(dirname "$0")/..}" && pwd)
PD_BUILD=$(cd "${PD_BUILD:-$PD_SOURCE}" && pwd)
PATH=$PD_BUILD/bin:$PATH
MODELS=$PD_SOURCE/share/models
SHARED=$PD_SOURCE/../shared
LC_ALL=C
export PD_SOURCE PD_BUILD PATH MODELS SHARED LC_ALL

# Tests of the processors hide the GPUs, one of which --device=auto would take.
case ${0##*/} in
t9[0-9][0-9][0-9]-*) ;;
*)
	if [ "${PD_TEST_DEVICE:-cpu}" = cpu ]; then
		export CUDA_VISIBLE_DEVICES=
	fi
	;;
esac

test_count=0 test_failed=0
test_directory=$(mktemp -d "${TMPDIR:-/tmp}/pd-test.XXXXXX") || exit 99
trap 'cd /; rm -rf "$test_directory"' EXIT
trap 'exit 1' HUP INT TERM
cd "$test_directory" || exit 99

# test_ok WHAT COMMANDS: runs the commands up to the first that fails, and shows their output if one does.
# A failed `! command` does not end them, so write `! command || false`.
test_ok() {
	test_count=$((test_count + 1))
	# This is not the condition of an `if`, since the shell would ignore set -e there.
	(set -e; eval "$2") >"$test_directory/.out" 2>&1 </dev/null
	if [ $? -eq 0 ]; then
		echo "ok $test_count - $1"
	else
		test_failed=$((test_failed + 1))
		echo "not ok $test_count - $1"
		sed 's/^/# /' "$test_directory/.out"
	fi
}

# test_row KIND WHAT COMMANDS: does test_ok for one row of many.  With PD_TEST_QUICK set only the first row
# of each kind is run.
test_rows=
test_row() {
	case $test_rows in
	*"<$1>"*) [ -z "${PD_TEST_QUICK-}" ] || return 0 ;;
	esac
	test_rows="$test_rows<$1>"
	shift
	test_ok "$@"
}

# test_full WHAT COMMANDS: does test_ok, but nothing with PD_TEST_QUICK set.
test_full() {
	[ -n "${PD_TEST_QUICK-}" ] || test_ok "$@"
}

# test_skip WHAT WHY: reports a test as skipped.
test_skip() {
	test_count=$((test_count + 1))
	echo "ok $test_count - $1 # SKIP $2"
}

# test_skip_all WHY: reports the whole script as skipped, and ends it.
test_skip_all() {
	echo "1..0 # SKIP $1"
	exit 0
}

test_done() {
	echo "1..$test_count"
	[ "$test_failed" -eq 0 ]
	exit
}

# status N COMMAND...: runs the command, and fails unless it exits with N.
status() {
	expected_status=$1
	shift
	actual_status=0
	"$@" || actual_status=$?
	[ "$actual_status" -eq "$expected_status" ] ||
		{ echo "exit status $actual_status, expected $expected_status: $*"; return 1; }
}

# within SECONDS: prints this limit for an idle machine.  For a busy one it prints more, in proportion to
# the processes that want a processor.
within() {
	awk -v seconds="$1" -v processors="$(nproc)" \
		'{ print int(seconds * (1 + $1 / processors)) }' /proc/loadavg
}

# children PID: prints the processes that this one started, the oldest first.  Not every kernel has
# /proc/PID/task/PID/children.
children() {
	grep -sl "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status | cut -d / -f 3 | sort -n
}

# one_line FILE: succeeds if the file has exactly one line, which is not empty.
one_line() {
	{ IFS= read -r one_line && [ -n "$one_line" ] && ! IFS= read -r one_line && [ -z "$one_line" ]; } <"$1"
}

# gojq starts in a tenth of jq's time, but sorts the keys of objects.
asked_jq=jq
! command -v gojq >/dev/null || asked_jq=gojq

# ordered_jq ARGUMENT...: runs jq itself, for output whose order of keys matters.
ordered_jq() {
	command jq "$@"
}

# jq ARGUMENT...: runs gojq, if it is there, as jq, but fails with -e on empty output.  jq before 1.7 succeeds
# there, so a program that ends before it writes anything would pass.
jq() {
	case " $* " in
	*" -e "* | *" -"[a-z]"e "*) ;;
	*)
		command "$asked_jq" "$@"
		return
		;;
	esac
	jq_status=0
	jq_out=$(command "$asked_jq" "$@") || jq_status=$?
	printf '%s\n' "$jq_out"
	[ "$jq_status" -eq 0 ] && [ -n "$jq_out" ]
}

# unattached: lists shared memory of UCX and of System V that no process has, one segment a line.  So it
# does not list what belongs to programs that run beside a test.
unattached() {
	for segment in /dev/shm/ucx_*; do
		[ ! -e "$segment" ] || grep -qsF "$segment" /proc/[0-9]*/maps || echo "$segment"
	done
	awk 'NR > 1 && $7 == 0 { print "sysv", $2 }' /proc/sysvipc/shm
}

# chain LAYERS >FILE: writes a profile of equal layers of 3 ms and 1 MB of parameters.
chain() {
	awk -v n="$1" 'BEGIN {
		printf "{\"format\": \"pd-profile\", \"version\": 1, \"name\": \"chain\", \"batch_size\": 8,"
		printf " \"dtype\": \"f32\", \"device\": {\"kind\": \"cpu\", \"name\": \"none\"}, \"layers\": ["
		for (l = 0; l < n; l++)
			printf "%s{\"name\": \"l%d\", \"inputs\": [%s], \"forward_ns\": 1000000," \
				" \"backward_ns\": 2000000, \"activation_bytes\": 1000," \
				" \"parameter_bytes\": 1000000}", l ? ", " : "", l,
				l ? "\"l" l - 1 "\"" : ""
		print "]}"
	}'
}

# made_up REPLICAS WARMUPS [FILTER] >FILE: writes a plan of one layer per stage, changed by FILTER.  A layer
# takes 1 us forward and 2 us backward, has 640 bytes of parameters and sends nothing; a link carries 1 byte
# per ns.
made_up() {
	jq -n --argjson replicas "$1" --argjson warmups "$2" '
		($replicas | length) as $n | ($replicas | add) as $ranks
		| {format: "pd-plan", version: 1,
		   profile: {format: "pd-profile", version: 1, name: "made up", batch_size: 8,
			     dtype: "f32",
			     device: {kind: "cpu", name: "none", threads: 1, memory_bytes: 0},
			     layers: [range($n) | {name: "l\(.)",
				      inputs: (if . == 0 then [] else ["l\(. - 1)"] end),
				      forward_ns: 1000, backward_ns: 2000,
				      activation_bytes: 0, parameter_bytes: 640}]},
		   topology: {format: "pd-topology", version: 1, device: {memory_bytes: 0},
			      levels: [{count: $ranks, bandwidth_bytes_per_s: 1000000000,
					latency_ns: 0}]},
		   schedule: "1f1b", weights: "stash", microbatches: 1,
		   stages: [range($n) as $s | {layers: ["l\($s)"], replicas: $replicas[$s],
			    ranks: [range($replicas[$s]) + ([$replicas[:$s][]] | add // 0)],
			    warmup: $warmups[$s], recompute: false}]}' | jq "${3:-.}"
}
