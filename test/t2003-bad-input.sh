# SPDX-License-Identifier: Apache-2.0
# pd-plan soon refuses impossible machines and profiles, with exit status 2 and one line that names the file
# and the place.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

chain 3 >good.json

# refused WORDS ARGUMENT...: checks that pd-plan refuses these in one line with the WORDS.
refused() {
	words=$1
	shift
	status 2 timeout 600 pd-plan "$@" >out 2>err
	cat err
	one_line err
	[ ! -s out ]
	grep -q -- "$words" err
}

# profile FILTER WORDS: checks that pd-plan refuses bad.json, which FILTER makes from good.json, with the
# WORDS.
profile() {
	jq "$1" good.json >bad.json
	refused "^pd-plan: bad.json: \(in \"l[0-9]*\", \)*$2" -t 2@1GB/s bad.json
}

# topology TEXT WORDS: checks that pd-plan refuses machine.json, with TEXT for its levels, with the WORDS.
topology() {
	echo "{\"format\": \"pd-topology\", \"version\": 1, \"levels\": $1}" >machine.json
	refused "^pd-plan: machine.json:$2" -t machine.json good.json
}

test_ok "no devices, or fewer" '
	refused "--gpus: expected a whole number from 1" -g 0 good.json
	refused "--gpus: .*found \"-1\"" -g -1 good.json
	refused "topology \"0@1GB/s\": .*found \"0\"" -t 0@1GB/s good.json
	topology "[{\"count\": 0, \"bandwidth_bytes_per_s\": 1}]" " levels.0..count: .*found 0"
	topology "[{\"count\": -4, \"bandwidth_bytes_per_s\": 1}]" " levels.0..count: .*found -4"
	topology "[]" " levels: expected 1 to 8 levels"'
test_ok "no memory, or less" '
	for bytes in 0 0GB 0.2B -1 -1GB nan 1e30 GB 16gb; do
		refused "--memory: expected .*found \"$bytes\"" -t 2@1GB/s --memory=$bytes good.json
	done'
test_ok "a bandwidth of 0, below, or no number" '
	for rate in 0GB/s 0.0GB/s -1GB/s nanGB/s NaNGB/s infGB/s 1e400B/s GB/s; do
		refused "topology \"4@$rate\": expected a" -t 4@$rate good.json
	done
	topology "[{\"count\": 2, \"bandwidth_bytes_per_s\": 0}]" " levels.0..bandwidth_bytes_per_s: "
	topology "[{\"count\": 2, \"bandwidth_bytes_per_s\": -1}]" " levels.0..bandwidth_bytes_per_s: "
	topology "[{\"count\": 2, \"bandwidth_bytes_per_s\": 1.5}]" " levels.0..bandwidth_bytes_per_s: "
	topology "[{\"count\": 2, \"bandwidth_bytes_per_s\": NaN}]" "1:[0-9]*: not JSON"
	topology "[{\"count\": 2, \"bandwidth_bytes_per_s\": 1, \"latency_ns\": -1}]" " levels.0..latency_ns: "'
test_ok "a product of levels that overflows" '
	refused "at most 8 levels and 1048576 devices" -t 1048576@1GB/s,1048576@1GB/s good.json
	refused "at most 8 levels" -t 2@1B/s,2@1B/s,2@1B/s,2@1B/s,2@1B/s,2@1B/s,2@1B/s,2@1B/s,2@1B/s good.json
	refused "expected a whole number" -t 9223372036854775808@1GB/s good.json
	refused "expected a whole number" -t 99999999999999999999@1GB/s good.json
	level="{\"count\": 65536, \"bandwidth_bytes_per_s\": 1}"
	topology "[$level, $level, $level, $level]" " levels.1.: expected at most 1048576 devices"'
test_ok "times that are negative, no whole numbers, or too many" '
	for key in forward_ns backward_ns update_ns update_apart_ns parameter_bytes activation_bytes stash_bytes; do
		profile ".layers[1].$key = -1" "layers.1..$key: .*found -1"
		profile ".layers[1].$key = 1.5" "layers.1..$key: .*found 1.5"
		profile ".layers[1].$key = 1e30" "layers.1..$key: "
		profile ".layers[1].$key = \"3\"" "layers.1..$key: "
	done
	profile ".layers[].forward_ns = 9007199254740991" "layers: the sum of forward_ns"
	sed "s/\"forward_ns\": 1000000/\"forward_ns\": NaN/" good.json >bad.json
	refused "^pd-plan: bad.json:1:[0-9]*: not JSON" -t 2@1GB/s bad.json'
test_ok "cycles, and names that are not there, or twice" '
	profile ".layers[0].inputs = [\"l2\"]" "layers.0.: layer \"l0\" lies on a cycle"
	profile ".layers[1].inputs = [\"l1\"]" "layers.1.: layer \"l1\" lies on a cycle"
	profile ".layers[1].inputs = [\"x\"]" "layers.1..inputs.0.: no input or layer is called \"x\""
	profile ".layers[2].name = \"l0\"" "layers.2..name: \"l0\" is the name of an earlier"
	profile ".layers = []" "layers: expected 1 to"
	profile ".batch_size = 0" "batch_size: "'
test_ok "options that are unknown, want a value or take none; a name that is empty" '
	refused "unknown option --nosuch" --nosuch good.json
	refused "option --gpus needs an argument" good.json --gpus
	refused "option --straight=3 takes no value" -t 2@1GB/s --straight=3 good.json
	refused "^pd-plan: \"\": cannot open" -t "" good.json
	profile ".layers[1].nosuch = 1" "layers.1.: unknown key \"nosuch\"; expected one of .*spread"
	profile ".layers[1].nosuch = 1" ".* update_spread$"'
test_ok "links so slow that no clock shows it" '
	jq ".layers[].activation_bytes = 13000000" good.json >large.json
	pd-plan -t 3@1B/s --stages=1,1,1 large.json >slow.json
	status 2 timeout 600 pd-replay --minibatches=1000 slow.json >out 2>err
	cat err; one_line err; [ ! -s out ]
	grep -q "^pd-replay: slow.json: the replay takes more than 73 years of virtual time" err
	# One transfer, and one sum, take more nanoseconds than 63 bits hold.
	made_up "[1,1]" "[1,0]" ".profile.layers[].activation_bytes = 2251799813685248
		| .topology.levels[0].bandwidth_bytes_per_s = 1" >slow.json
	made_up "[4,1]" "[0,0]" ".profile.layers[].parameter_bytes = 2251799813685248
		| .profile.device.sum_bytes_per_s = 1" >sums.json
	for how in slow.json sums.json "--processors=1 sums.json"; do
		status 2 timeout 600 pd-replay --minibatches=2 $how >out 2>err
		cat err; one_line err; [ ! -s out ]
		grep -q "^pd-replay: .*: the replay takes more than 73 years" err
	done'
test_ok "links so slow that another plan is better, or none" '
	jq ".layers[] += {activation_bytes: 250000000, parameter_bytes: 500000000}" good.json >large.json
	pd-plan -t 4@1B/s large.json | jq -e "[.stages[].replicas] == [1] and
		.predicted.data_parallel.period_ns > 1e17"
	pd-plan -t 3@1B/s --stages=1,1,1 large.json | jq .predicted.period_ns >years
	pd-plan -t 3@1kB/s --stages=1,1,1 large.json | jq .predicted.period_ns >days
	echo $(cat years days) | awk "{ print; exit !(\$1 > 999 * \$2 && \$1 < 1001 * \$2) }"
	for rate in 1 2; do
		pd-plan -t 5@${rate}B/s --stages=1,1x3,1 large.json | jq .predicted.period_ns
	done >years
	echo $(cat years) | awk "{ print; exit !(\$2 > 1e17 && \$1 > 1.99 * \$2 && \$1 < 2.01 * \$2) }"
	jq ".layers[].activation_bytes = 2251799813685248" good.json >larger.json
	refused "^pd-plan: the best plan found takes more than 73 years" --stages=1,1,1 -t 3@1B/s \
		larger.json
	refused "^pd-plan: the best plan found takes more than 73 years" --cost=sosp19 --stages=1,1,1 \
		-t 3@1B/s larger.json
	pd-plan -t 3@1B/s --cost=sosp19 larger.json | jq -e "[.stages[].replicas] == [1]"'
test_ok "more memory than can be said" '
	made_up "[1,1]" "[8191,0]" ".profile.layers[].parameter_bytes = 2251799813685248" >large.json
	status 2 timeout 600 pd-replay --minibatches=2 large.json >out 2>err
	cat err; one_line err; [ ! -s out ]
	grep -q "^pd-replay: rank 0 holds 2^63 bytes or more" err'
chain 20000 >many.json
# twenty_seconds COMMAND...: limits the processor time, which other programs on the machine do not lengthen.
twenty_seconds() { (ulimit -t 20; "$@"); }
test_ok "a million layers; twenty thousand" '
	# The layers are not read to the end, which would take longer than this and 1.6 GB.
	chain 1000000 | status 2 twenty_seconds pd-plan -t 4@1GB/s >out 2>err
	cat err; one_line err; [ ! -s out ]
	grep -q "^pd-plan: standard input: layers: expected at most 16384 of them, found more" err
	chain 1000000 | sed "s/^/{\"model\": /" | status 2 twenty_seconds pd-plan -t 4@1GB/s >out 2>err
	one_line err
	refused "^pd-plan: many.json: layers: expected at most 16384 " --stages=20000 -t 4@1GB/s many.json
	status 2 timeout 600 pd-plan -t 4@1GB/s <many.json >out 2>err; one_line err; [ ! -s out ]
	grep -q "^pd-plan: standard input: layers: expected at most" err'
# dense TEXT: prints sixty megabytes of TEXT, as an array that never ends.
dense() { printf '['; yes "$1" | tr -d '\n' | head -c 60000000; }
while read -r value program; do
	test_row sixty "sixty megabytes of $value are not read to the end by $program" '
		dense "$value" | status 2 twenty_seconds $program >out 2>err
		cat err; one_line err; [ ! -s out ]
		grep -q "^[a-z-]*: standard input: too large: its values take more than 256 MiB" err'
done <<END
[], pd-plan -t 4@1GB/s
0, pd-replay
"", pd-run --synthetic
1e9, pd-schedule
{}, pd-replay
END
test_ok "a line of a schedule or a trace that has no end" '
	for file in small-schedule.jsonl small-trace.jsonl; do
		{ head -n 1 "$PD_SOURCE/test/data/$file"; dense " "; } | status 2 pd-replay >out 2>err
		cat err; one_line err; [ ! -s out ]
		grep -q "standard input:2: longer than 1048576 bytes: expected one object per line" err
	done'
test_done
