#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-replay runs a plan in virtual time, and writes a report and pictures.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# plan REPLICAS WARMUPS ACTIVATION_BYTES LATENCY: prints a plan for up to four servers of four.
plan() {
	made_up "$1" "$2" ".profile.name = \"made <up> & \\\"quoted\\\"\"
		| .profile.layers[].activation_bytes = $3
		| .topology.levels = [
			{count: 4, bandwidth_bytes_per_s: 1000000000, latency_ns: $4},
			{count: 4, bandwidth_bytes_per_s: 500000000, latency_ns: $4}]"
}
plan '[1,1,1,1]' '[3,2,1,0]' 0 0 >straight.json
plan '[3,2,1]' '[1,1,0]' 700 300 >replicas.json

test_ok 'a report on a plan' 'pd-replay straight.json >out && grep -q "^time per minibatch  *3 us" out && grep -q "80 minibatches" out'
test_ok 'the plan on standard input' 'pd-replay <straight.json | cmp - out'
test_ok 'twice the same' 'pd-replay -f chrome replicas.json >1 && pd-replay -f chrome replicas.json >2 && cmp 1 2'
test_ok 'as many minibatches as wanted' 'pd-replay --minibatches=7 straight.json | grep -q "; 7 minibatches"'

test_ok 'how long stages compute again, where any does' '
	! grep -q recompute out || false
	jq ".stages[1].recompute = true" straight.json | pd-replay >again
	sed -n "/ recompute /,/^$/p" again >table
	cat table
	awk "NR == 1 { exit !(\$2 == \"recompute\" && \$3 == \"backward\") }" table
	awk "\$1 == \"stage\" { print \$2, \$3 \$4, \$5 \$6 }" table | head -2 >times
	printf "0 1us -2\n1 1us 1us\n" | cmp - times'

test_ok 'a timeline of the start' '
	COLUMNS=77 pd-replay -f text -m 4 straight.json >out
	cat out
	grep -qx "0:0 F0-*F1-*F2-*F3-*\.*B0=*\.*B1=*\.*B2=*\.*B3=*" out
	grep -qx "3:3 \.*F0-*B0=*F1-*B1=*F2-*B2=*F3-*B3=*\.*" out
	! grep -q "$(printf "\033")" out || false'
test_ok 'no row is wider than the terminal' '
	for columns in 40 80 132; do
		COLUMNS=$columns pd-replay -f text replicas.json >out
		awk -v most=$columns "/^[0-9]+:[0-9]+ / { rows++; if (length > most) exit 1 }
			END { if (rows != 12) exit 1 }" out
	done'

test_ok 'events for trace viewers are JSON' 'pd-replay -f chrome -m 96 replicas.json >chrome.json && jq -e ".traceEvents | length > 1000" chrome.json'
test_ok 'every arrow has both ends, and does not point back in time' '
	jq -e "[.traceEvents[] | select(.ph == \"s\" or .ph == \"f\")] | group_by(.id)
		| length == 4 * 96 and all(.[]; length == 2 and (map(.ph) | sort) == [\"f\", \"s\"]
			and (map(select(.ph == \"s\"))[0].ts <= map(select(.ph == \"f\"))[0].ts))" chrome.json'
test_ok 'and lies on an operation at both' '
	jq -e "([.traceEvents[] | select(.ph == \"X\")] | group_by([.pid, .tid])
			| map({key: \"\(.[0].pid) \(.[0].tid)\", value: .}) | from_entries) as \$bars
		| [.traceEvents[] | select(.ph == \"s\" or .ph == \"f\")]
		| all(.[]; . as \$tip | any(\$bars[\"\(.pid) \(.tid)\"][];
			.ts <= \$tip.ts + 1e-6 and \$tip.ts <= .ts + .dur + 1e-6))" chrome.json'
test_ok 'operations of a thread follow each other' '
	jq -e "[.traceEvents[] | select(.ph == \"X\")] | group_by([.pid, .tid])
		| all(.[]; sort_by(.ts) as \$b | all(range(1; \$b | length);
			\$b[. - 1].ts + \$b[. - 1].dur <= \$b[.].ts + 1e-6))" chrome.json'
test_ok 'all that is in flight comes back' '
	jq -e "[.traceEvents[] | select(.name == \"in flight\")] | group_by(.pid)
		| length == 6 and all(.[]; .[-1].args.minibatches == 0
			and all(.[]; .args.minibatches >= 0 and .args.minibatches <= 2))" chrome.json'
test_ok "memory goes up, and comes down to what is always held" '
	jq -e "[.traceEvents[] | select(.name == \"memory\")] | group_by(.pid)
		| length == 6 and all(.[]; map(.args.bytes) | .[-1] == min and max > min)" chrome.json'
test_ok "and comes down when a backward ends, not when it begins" '
	jq -e "[.traceEvents[] | select(.cat == \"backward\")] | group_by(.pid)
		| map(map(.ts + .dur) | max)" chrome.json >ends
	jq -e --slurpfile ends ends "[.traceEvents[] | select(.name == \"memory\")]
		| group_by(.pid) | map(.[-1].ts) | length == 6 and
		all(range(6) as \$r | .[\$r] - \$ends[0][\$r] | fabs < 1e-6; .)" chrome.json'
test_ok 'processes and threads have names' '
	jq -e "[.traceEvents[] | select(.ph == \"M\" and .name == \"process_name\")]
		| length == 6 and .[5].args.name == \"rank 5: stage 2, replica 0\"" chrome.json'

test_ok 'rows of a process have names that differ, with stage and peer' '
	jq -e "[.traceEvents[] | select(.ph == \"M\" and .name == \"thread_name\")]
		| group_by(.pid) | map(map(.args.name)) | length == 6 and
		all(.[]; (unique | length) == length and all(.[]; test(\"^stage \")))" chrome.json
	pd-replay -f chrome straight.json | jq -r "[.traceEvents[] | select(.ph == \"M\" and
		.name == \"thread_name\" and .pid == 1)][].args.name" >names
	cat names
	grep -qx "stage 1: activations in from rank 0" names
	grep -qx "stage 1: gradients out to rank 0" names'

# A report can be had as data, too.
test_ok 'a report as JSON: what adds up, adds up' '
	pd-replay -f json -m 96 replicas.json >report.json
	jq -e ".format == \"pd-report\" and .version == 1 and .window_ns as \$window
		| (.ranks | length == 6) and all(.ranks[]; [.busy_ns, .wait_activation_ns,
			.wait_gradient_ns, .wait_allreduce_ns, .wait_load_ns, .wait_launch_ns, .wait_other_ns] | add
			== \$window)" report.json
	jq -e "([.ranks[].busy_ns] | add) as \$busy | .bubble_percent - 100 + 100 * \$busy /
		(6 * .window_ns) | fabs < 1e-9" report.json'
test_ok 'it has the figures of the report for people' '
	pd-replay -m 96 replicas.json >report
	grep -q "^bubble  *$(jq -r "(.bubble_percent * 10 | round) / 10" report.json) %" report
	grep -q "^samples per second  *$(jq -r "(.samples_per_s * 10 | round) / 10" report.json)" report'
test_ok 'a report as CSV has the same' '
	pd-replay -f csv -m 96 replicas.json | tr -d "\r" >report.csv
	[ "$(head -n 1 report.csv)" = "table,row,key,value" ]
	ordered_jq -r "to_entries[] | select(.value | type != \"array\") |
		\"report,0,\(.key),\(.value // if .value == false then false else \"\" end)\"" report.json >a
	grep "^report," report.csv | cut -d, -f1-3 >b
	cut -d, -f1-3 a | diff - b
	for key in busy_ns wait_gradient_ns; do
		jq -r ".ranks[].$key" report.json >a
		grep "^ranks,.*,$key," report.csv | cut -d, -f4 | diff a -
	done'
test_ok 'names with commas and quotes stand in quotes in CSV' '
	jq ".profile.name = \"a,\\\"b\\\"\"" replicas.json | pd-replay -f csv -m 8 |
		grep -q "^report,0,name,\"a,\"\"b\"\"\""'
test_ok 'of a trace, with its plan replayed' '
	pd-replay -f json "$PD_SOURCE/test/data/small-trace.jsonl" >report.json
	jq -e ".measured and .replayed_period_ns > 0 and .period_ns == null" report.json'
test_ok 'no comparison as data' '
	status 2 pd-replay -f json --compare=replicas.json replicas.json 2>err
	one_line err
	grep -q "^pd-replay: --compare and --format=json exclude each other$" err'
test_ok 'what is shorter than half a column is seen' '
	# A forward takes a fiftieth of its backward.
	jq ".profile.layers[].forward_ns = 1000 | .profile.layers[].backward_ns = 50000 |
		del(.predicted, .stages[].predicted)" straight.json >short.json
	COLUMNS=80 pd-replay -f text -m 3 short.json >drawn
	cat drawn
	# The first stage does all its forwards within one column, the last one does them in turn.
	[ "$(grep -c "^[0-3]:[0-3] F" drawn)" -eq 4 ]
	grep -q "^3:3 FB0=*FB1=*FB2=*\.*$" drawn'

pd-replay -f svg replicas.json >replicas.svg
pd-replay -f svg -m 6 straight.json >straight.svg
if command -v xmllint >/dev/null; then
	test_ok 'drawings are well-formed' 'xmllint --noout replicas.svg straight.svg'
elif command -v python3 >/dev/null; then
	test_ok 'drawings are well-formed' 'for f in replicas straight; do
		python3 -c "import sys, xml.dom.minidom as m; m.parse(sys.argv[1])" $f.svg; done'
else
	test_skip 'drawings are well-formed' 'neither xmllint nor python3'
fi
test_ok 'a drawing shows every operation that takes time' '
	[ "$(grep -c "<title>0F[0-9]* forward" straight.svg)" -eq 6 ] &&
	[ "$(grep -c "<title>3B[0-9]* backward" straight.svg)" -eq 6 ]'

test_ok 'its title has the period, the rate and the bubble' '
	pd-replay -f svg straight.json >long.svg
	pd-replay -f json straight.json | jq -r "\"\(.period_ns / 1000) us per minibatch, \(
		.samples_per_s * 10 | round / 10) samples/s, bubble \"" >figures
	cat figures
	grep -F "$(cat figures)" long.svg
	grep -q ">steady state, which repeats every 3 us<" long.svg'
test_ok 'its legend has what is drawn, and nothing else' '
	for what in forward backward idle; do grep -q ">$what<" straight.svg; done
	! grep -E ">(activations|gradients|update|all-reduce|load|recompute|forward of)" straight.svg || false
	for what in activations gradients all-reduce; do grep -q ">$what" replicas.svg; done'
test_ok 'transfers too short to be seen are not drawn, and a note says so' '
	jq ".profile.layers[].activation_bytes = 10" straight.json | pd-replay -f svg >short.svg
	! grep "<title>.*activation" short.svg || false
	grep -q ">transfers and updates shorter than 2 pixels are not drawn<" short.svg'
test_ok 'an operation has a label in its bar or none in its row' '
	jq ".profile.layers[1].forward_ns = 300" straight.json | pd-replay -f svg -m 8 |
		awk "/<title>[0-9]*[FB]/ { y = \$3; bars[y]++ } /<text class=\"s m\"/ { labels[y]++ }
			END { for (y in bars) { n++; if (labels[y] + 0 != bars[y] && labels[y] + 0 != 0) exit 1 }
			      if (n != 4) exit 1 }"'
test_ok 'the legend of a timeline has what the timeline shows' '
	for f in straight replicas; do
		pd-replay -f text $f.json >out
		sed -n 3p out
		for letter in F B U I W R E; do
			legend=0 rows=0
			sed -n 3p out | grep -q "[;,] $letter[-=+:~] " && legend=1
			sed -n "s/^ *[0-9,]*:[0-9]* //p" out | grep -q $letter && rows=1
			[ $legend -eq $rows ] || { echo "$letter: legend $legend, rows $rows"; exit 1; }
		done
	done'
# many: prints a plan with sixteen replicas of its first stage.
many() {
	plan '[16,1]' '[1,0]' 0 0 | jq '.topology.levels[1].count = 5'
}
test_ok 'above sixteen ranks a row stands for the replicas of a stage' '
	many >many.json
	pd-replay -f text many.json >folded
	[ "$(grep -c "^ *0:0-15 F" folded)" -ge 1 ]
	grep -q "of replicas, the first is drawn" folded
	! grep "0:15 " folded || false
	pd-replay -f svg many.json >folded.svg
	grep -q ">stage 0, ranks 0-15<" folded.svg
	! grep ">stage 0, rank 15<" folded.svg || false'
test_ok 'and with --all each has its own' '
	pd-replay -f text --all many.json >rows
	grep -q "^ *0:15 F" rows
	pd-replay -f svg --all many.json | grep -q ">stage 0, rank 15<"
	pd-replay -f text replicas.json | grep -q "^0:2 "'
test_ok 'of many operations viewers of traces get the first, and a word' '
	made_up "[$(seq -s, 1 40 | sed "s/[0-9]\{1,\}/1/g")]" "[$(seq -s, 78 -2 0)]" >deep.json
	pd-replay -f chrome deep.json 2>err >short.json
	one_line err
	grep -Eq "^pd-replay: chrome: only the first [0-9]+ minibatches, [0-9]+ of [0-9]+ operations; --all" err
	[ "$(grep -c "\"ph\":\"X\"" short.json)" -le 100000 ]
	pd-replay -f chrome --all deep.json 2>err >long.json
	[ ! -s err ]
	[ "$(grep -c "\"ph\":\"X\"" long.json)" -gt 100000 ]
	rm -f short.json long.json'

# The trace is what the replay of a plan did, as if it had been measured.
plan '[1,1,1,1]' '[3,2,1,0]' 700 300 >links.json
pd-replay -f chrome links.json | jq -c --slurpfile plan links.json '
	{format: "pd-trace", version: 1, plan: $plan[0], device: "cpu", start_ns: 0},
	(.traceEvents[] | select(.ph == "X") | .args.stage as $s
	 | {rank: .pid, op: .cat, stage: $s, microbatch: .args.microbatch}
	   + (if .args.version then {weight_version: .args.version} else {} end)
	   + (if .args.bytes then {bytes: .args.bytes} else {} end)
	   + (if .cat == "send_activation" or .cat == "recv_gradient" then {peer: ($s + 1)}
	      elif .cat == "recv_activation" or .cat == "send_gradient" then {peer: ($s - 1)}
	      else {} end)
	   + {start_ns: (.ts * 1000 | round), end_ns: ((.ts + .dur) * 1000 | round)})' >trace.jsonl
test_ok 'a trace is held against its plan: whole, cut, with lines that lack, stand twice or belong to another' '
	pd-replay trace.jsonl >out 2>err
	[ ! -s err ]
	lines=$(grep -c . trace.jsonl)
	head -n $((lines / 2)) trace.jsonl >cut.jsonl
	pd-replay cut.jsonl 2>&1 >out | tee err
	one_line err && grep "warning: cut.jsonl: it lacks [0-9]* of [0-9]* operations" err
	line=$(grep -n "\"forward\"" trace.jsonl | grep "\"microbatch\":3," | grep "\"stage\":0," | cut -d: -f1)
	sed "${line}d" trace.jsonl | pd-replay 2>&1 >out | tee err
	one_line err && grep "lacks 1 of .*the first: forward of microbatch 3 at stage 0" err
	sed "${line}p" trace.jsonl | pd-replay 2>&1 >out | tee err
	one_line err && grep ":$((line + 1)): rank [0-9]* has forward of microbatch 3 at stage 0 twice; so it is with 1 of" err
	sed "${line}s/forward/backward/" trace.jsonl | pd-replay 2>&1 >out | tee err
	grep "lacks 1 of" err && grep "has backward of microbatch 3 at stage 0 twice" err
	sed "${line}s/\"microbatch\":3/\"microbatch\":1000000000000/" trace.jsonl >far.jsonl
	pd-replay --format=csv far.jsonl 2>&1 >out | grep "lacks"
	head -n 1 trace.jsonl >none.jsonl
	pd-replay none.jsonl 2>&1 >out | tee err
	[ ! -s err ]'
test_ok 'a report on a trace is that on its plan, and beside it' '
	pd-replay links.json | sed "s/simulated/measured/" >predicted
	pd-replay trace.jsonl >measured
	cat measured
	sed "s/ *$//" measured >clean && cmp measured clean
	[ "$(grep "^time\|^bubble\|^stage . .* - " predicted)" = \
	  "$(grep "^time\|^bubble\|^stage . .* - " measured)" ]
	[ "$(grep -c "^stage . .* +0.0% .* +0.0%$" measured)" -eq 4 ]
	grep -q "replayed, takes .*; measured: +0.0 %" measured'
test_ok 'the first minibatches of a trace' '
	pd-replay -m 3 trace.jsonl | grep -q "; 3 minibatches of 8 samples, measured"'
test_ok 'a picture of a trace is that of its replay' '
	pd-replay -f text links.json | tail -n +2 >1
	pd-replay -f text trace.jsonl | tail -n +2 >2
	cmp 1 2'

test_ok 'a document that is neither' 'echo "{}" >x; status 2 pd-replay x 2>err && one_line err'
test_ok 'a pipeline that would deadlock' '
	jq ".stages[0].warmup = 0 | .stages[1].warmup = 2" straight.json >x
	status 2 pd-replay x 2>err && one_line err && grep -q "stages\[1\].warmup" err'
# traced RECORD...: prints a trace of these records.
traced() {
	pd-replay -f trace -m 1 straight.json | head -n 1
	printf '%s\n' "$@"
}
test_ok 'microbatches and versions as high as can be, and steps without a version: drawn' '
	traced "{\"rank\":0,\"op\":\"forward\",\"stage\":0,\"microbatch\":9223372036854775807,\"weight_version\":9223372036854775807,\"start_ns\":0,\"end_ns\":5}" \
		"{\"rank\":0,\"op\":\"step\",\"stage\":0,\"microbatch\":0,\"start_ns\":5,\"end_ns\":6}" \
		"{\"rank\":0,\"op\":\"step\",\"stage\":0,\"microbatch\":1,\"start_ns\":6,\"end_ns\":7}" >x
	for format in report text svg chrome trace; do
		pd-replay -f $format x >out
	done
	pd-replay -f chrome x | jq -e "[.traceEvents[] | select(.name == \"memory\" and .pid == 0)]
		| length > 0"'
test_ok 'a moment that cannot be counted to' '
	traced "{\"rank\":0,\"op\":\"forward\",\"stage\":0,\"microbatch\":0,\"start_ns\":0,\"end_ns\":9223372036854775807}" >x
	status 2 pd-replay x 2>err && one_line err
	grep -q "x:2: end_ns: expected a whole number from 0 to 9007199254740991, found" err'
test_ok 'bytes that cannot be counted, and sums of many that can' '
	pd-replay -f trace -m 2000 straight.json | sed "s/\"seq\"/\"bytes\":9007199254740991,&/" >x
	pd-replay x >out
	grep -q "^activations, stage 0 to 1  *4.61 PB  *9.22e+03 PB " out
	sed "s/9007199254740991/9007199254740992/" x >y
	status 2 pd-replay y 2>err && one_line err
	grep -q "bytes: expected a whole number from 0 to 9007199254740991, found" err'

# Times and bandwidths that are all eight times as long make a replay eight times as long: nothing in it is a
# time of its own, nor how a sum is cut.
made_up '[4]' '[0]' '.profile.layers |= map(. + {parameter_bytes: 1605184})' >short.json
jq '.profile.layers |= map(.forward_ns *= 8 | .backward_ns *= 8)' short.json >long.json
test_ok "a replay has no times of its own" '
	pd-replay -t 2@10GB/s+2us,2@1GB/s+20us -f json short.json >short
	pd-replay -t 2@1250MB/s+16us,2@125MB/s+160us -f json long.json >long
	jq -s -e ".[1].period_ns / .[0].period_ns / 8 - 1 | fabs < 1e-4" short long'

test_ok "plans of two models are not compared" '
	made_up "[1,1]" "[1,0]" >one.json
	made_up "[1,1]" "[1,0]" | sed "s/\"l1\"/\"other\"/g" >two.json
	pd-replay --compare=one.json one.json
	status 2 pd-replay --compare=one.json two.json 2>err; one_line err; grep -q "different models" err'
# An update of 0 ns stands before each forward, and waits for nothing.
test_ok "who waits for an activation is not said to wait for something else" '
	made_up "[2,1]" "[1,0]" ".profile.layers = [.profile.layers[0] + {forward_ns: 5000000,
		backward_ns: 9000000, activation_bytes: 1600000, parameter_bytes: 64},
		.profile.layers[1] + {forward_ns: 500000, backward_ns: 900000}]" >slow.json
	pd-replay -t 4@12GB/s -f json slow.json |
		jq -e ".ranks[2] | .wait_activation_ns > 0 and .wait_other_ns < .wait_activation_ns / 100"'

test_done
