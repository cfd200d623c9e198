# SPDX-License-Identifier: Apache-2.0
# Sourced by every test/t*.sh.  A test is
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

# What is said of the processors is tested on them, also where --device=auto would take a GPU.
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

# test_ok WHAT COMMANDS: the first that fails ends them and is the verdict (`!` alone cannot:
# say `! command || false`); their output is shown on failure.
test_ok() {
	test_count=$((test_count + 1))
	# not as the condition of an `if`: the shell would ignore set -e there
	(set -e; eval "$2") >"$test_directory/.out" 2>&1 </dev/null
	if [ $? -eq 0 ]; then
		echo "ok $test_count - $1"
	else
		test_failed=$((test_failed + 1))
		echo "not ok $test_count - $1"
		sed 's/^/# /' "$test_directory/.out"
	fi
}

# test_row KIND WHAT COMMANDS: test_ok of one row of many; with PD_TEST_QUICK set only the first of
# its kind is run.
test_rows=
test_row() {
	case $test_rows in
	*"<$1>"*) [ -z "${PD_TEST_QUICK-}" ] || return 0 ;;
	esac
	test_rows="$test_rows<$1>"
	shift
	test_ok "$@"
}

# test_skip WHAT WHY
test_skip() {
	test_count=$((test_count + 1))
	echo "ok $test_count - $1 # SKIP $2"
}

# test_skip_all WHY: the whole script.
test_skip_all() {
	echo "1..0 # SKIP $1"
	exit 0
}

test_done() {
	echo "1..$test_count"
	[ "$test_failed" -eq 0 ]
	exit
}

# status N COMMAND...: the command exits with N, neither more nor less.
status() {
	expected_status=$1
	shift
	actual_status=0
	"$@" || actual_status=$?
	[ "$actual_status" -eq "$expected_status" ] ||
		{ echo "exit status $actual_status, expected $expected_status: $*"; return 1; }
}

# within SECONDS: that limit where nothing else runs; a busy machine has as many times longer as there are
# processes that want a processor.
within() {
	awk -v seconds="$1" -v processors="$(nproc)" \
		'{ print int(seconds * (1 + $1 / processors)) }' /proc/loadavg
}

# one_line FILE: it has exactly one line, which is not empty.
one_line() {
	[ "$(wc -l <"$1")" -eq 1 ] && [ -n "$(cat "$1")" ]
}

# gojq starts in a tenth of jq's time.  It sorts the keys of objects: it answers questions (-e) alone, and
# jq writes what is read again.
asked_jq=jq
! command -v gojq >/dev/null || asked_jq=gojq

# quick_jq ARGUMENT...: jq, where nothing goes by the order of keys.
quick_jq() {
	command "$asked_jq" "$@"
}

# jq whose -e says no where there is nothing: before 1.7 it says yes to that, and a program that
# ends before it has written anything would pass.
jq() {
	case " $* " in
	*" -e "* | *" -"[a-z]"e "*) ;;
	*)
		command jq "$@"
		return
		;;
	esac
	jq_status=0
	jq_out=$(command "$asked_jq" "$@") || jq_status=$?
	printf '%s\n' "$jq_out"
	[ "$jq_status" -eq 0 ] && [ -n "$jq_out" ]
}

# unattached: shared memory that no process has, of UCX and of System V; a line each.  What belongs
# to programs that run beside a test is not in it.
unattached() {
	for segment in /dev/shm/ucx_*; do
		[ ! -e "$segment" ] || grep -qsF "$segment" /proc/[0-9]*/maps || echo "$segment"
	done
	awk 'NR > 1 && $7 == 0 { print "sysv", $2 }' /proc/sysvipc/shm
}

# chain LAYERS >FILE: a profile of equal layers of 3 ms and 1 MB parameters.
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

# made_up REPLICAS WARMUPS [FILTER] >FILE: a plan of one layer per stage, forward 1 us, backward 2 us,
# 640 bytes of parameters, nothing to send, on links of 1 byte per ns; then changed.
made_up() {
	quick_jq -n --argjson replicas "$1" --argjson warmups "$2" '
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
			    warmup: $warmups[$s], recompute: false}]}' | quick_jq "${3:-.}"
}
