#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Questions as JSON Lines in, answers out (pd-plan --questions).
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

chain 6 >chain.json
chain 8 >other.json
cat >questions <<'END'
{"id": 1, "profile": "chain.json", "topology": "4@1GB/s", "schedule": "zb-h1", "weights": "flush", "microbatches": 8}
{"id": "two", "profile": "none.json", "topology": "4@1GB/s"}

not JSON
{"id": 3, "profile": "chain.json", "topology": "4@1GB/s", "straight": true, "agree": false, "min-gain": 0.5}
[4]
{"id": 5, "profile": "chain.json", "topology": "4@1GB/s", "memory": "10kB"}
{"id": 6, "profile": ["chain.json"], "topology": "4@1GB/s", "top": 2, "pareto": true}
{"id": 7, "profile": "chain.json", "topolgy": "4@1GB/s"}
{"id": 8, "profile": "chain.json", "topology": "4@1GB/s", "like": "pp=2 dp=2"}
{"id": 9, "profile": "chain.json", "topology": "4@1GB/s", "pareto": true}
{"id": 10, "profile": "chain.json", "topology": "4@1GB/s", "microbatches": "many"}
{"id": 11, "profile": "chain.json", "topology": "4@1GB/s", "microbatches": {}}
{"id": 12, "topology": "4@1GB/s"}
{"id": 13, "profile": "chain.json", "topology": "4@1GB/s", "format": "svg"}
{"id": 14, "profile": "other.json", "gpus": 2}
{"id": 15, "profile": "other.json", "topology": "2@1GB/s", "stages": "4x1,4x1"}
{"id": 16, "profile": "chain.json", "topology": "4@1GB/s", "schedule": "zb-h1", "weights": "flush", "microbatches": 8}
END
pd-plan --questions <questions >answers 2>said
# about ID FILTER: checks the answer of a question.
about() { jq -e "select(.id == $1) | $2" answers; }

test_ok "a line for each question, in their order, and nothing else is said" '
	cat said
	[ ! -s said ] && [ "$(wc -l <answers)" -eq 17 ]
	jq -sc "map(.id)" answers | grep -F "[1,\"two\",null,3,null,5,6,7,8,9,10,11,12,13,14,15,16]"
	jq -se "all(.[]; .format == \"pd-answer\" and .version == 1 and has(\"error\") != has(\"choices\"))" answers'
test_ok "an answer is what the same options plan" '
	for line in "1|--schedule=zb-h1 --weights=flush --microbatches=8" "3|--straight --min-gain=0.5" "8|--like=pp=2,dp=2"; do
		pd-plan -q -t 4@1GB/s ${line#*|} chain.json >plan.json
		jq -e --argjson id "${line%%|*}" --slurpfile plan plan.json "select(.id == \$id) | (.choices | length) == 1 and
			.choices[0].period_ns == \$plan[0].predicted.period_ns and
			.choices[0].schedule == \$plan[0].schedule and .choices[0].weights == \$plan[0].weights" answers
	done
	pd-plan -q -t 4@1GB/s --top=2 --pareto chain.json | jq -sc . >a
	jq -c "select(.id == 6) | .choices" answers | cmp - a
	about 8 ".choices[0].plan == [\"--like=pp=2 dp=2\"]"
	about 15 "any(.choices[0].plan[]; . == \"--stages=4x1,4x1\")"'
test_ok "a model on machines by name, and a profile behind it" '
	PD_MACHINES=$PD_SOURCE/share/machines PD_DEVICES=$PD_SOURCE/share/devices
	export PD_MACHINES PD_DEVICES
	sed -n "/\"id\": 16,/p" questions >late
	echo "{\"id\": 1, \"on\": \"dgx-a100\", \"model\": \"lenet5\", \"batch\": 64, \"schedule\": \"1f1b\"}" |
		cat - late | pd-plan --questions >both
	pd-plan -q --top=1 --format=jsonl --on=dgx-a100 --batch=64 --schedule=1f1b lenet5 | jq -c .period_ns >alone
	sed -n 1p both | jq -c ".choices[0].period_ns" | cmp - alone
	sed -n 2p both | jq -c . >last
	jq -c "select(.id == 16)" answers | cmp - last'
test_ok "nothing of a question is left for the next" '
	[ "$(jq -c "select(.id == 1) | .choices" answers)" = "$(jq -c "select(.id == 16) | .choices" answers)" ]
	jq -c "select(.id == 16)" answers | grep -v straight
	sed -n "/\"id\": 15,/p" questions | pd-plan --questions | jq -c . >alone
	jq -c "select(.id == 15)" answers | cmp - alone'
test_ok "what cannot be answered has an error in its place, with the status of its program" '
	about "\"two\"" "(.error | test(\"^none.json: .*No such file\")) and .status == 2"
	[ "$(jq -r "select(.id == null) | .error" answers | grep -c "^expected an object")" -eq 2 ]
	about 5 "(.error | test(\"^no plan fits\")) and .status == 1"
	about 7 ".error == \"unknown key \\\"topolgy\\\"; did you mean \\\"topology\\\"?\""
	about 9 ".error | test(\"pareto.*top\")"
	about 10 ".error | test(\"^\\\"microbatches\\\": expected .*many\")"
	about 11 ".error | test(\"^\\\"microbatches\\\": expected a string, a number\")"
	about 12 ".error | test(\"^expected the key .profile., or .model. with .on.\")"
	about 13 ".error == \"\\\"format\\\": is no option of a question\""
	about 14 ".error | test(\"no measured link\")"'
test_ok "an answer comes before the next question is asked" '
	mkfifo in out
	pd-plan --questions <in >out &
	exec 8>in 9<out
	for id in 1 2 3; do
		echo "{\"id\": $id, \"profile\": \"chain.json\", \"topology\": \"2@1GB/s\"}" >&8
		read -r answer <&9
		echo "$answer" | jq -e ".id == $id and has(\"choices\")"
	done
	exec 8>&- 9<&-
	wait $!'
test_ok "it goes with no other option, and with no profile" '
	status 2 pd-plan --questions --gpus=2 <questions 2>err >out.txt
	one_line err && [ ! -s out.txt ]
	status 2 pd-plan --questions chain.json 2>err </dev/null
	one_line err && grep -q "each question names its own" err
	pd-plan --questions </dev/null >out.txt && [ ! -s out.txt ]'
test_done
