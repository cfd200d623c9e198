#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-schedule writes schedules as documents, reads them, and checks them after changes by hand.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# plan REPLICAS WARMUPS [FILTER]: prints a plan in which transfers and updates take time, changed by FILTER.
plan() {
	made_up "$1" "$2" '.profile.layers[] += {update_ns: 10, activation_bytes: 700}
		| .topology.levels[0] += {count: 16, latency_ns: 300}' | jq "${3:-.}"
}
plan '[1,1,1,1]' '[3,2,1,0]' >straight.json
plan '[3,2,1]' '[1,1,0]' >replicas.json
pd-schedule -m 8 straight.json >straight.jsonl
pd-schedule -m 10 replicas.json >replicas.jsonl

# wrong FILE: checks that it is refused with status 1 and one line, which begins with the file and the line
# in it.
wrong() {
	status 1 pd-schedule --check "$1" 2>err
	cat err
	one_line err
	grep -Eq "^pd-schedule: $1:[0-9]+: rank [0-9]+, .*: .*" err
}
# change FILTER [FILE]: changes each operation of a schedule, but not the header, and writes changed.jsonl.
change() {
	jq -c "if .format then . else ($1) end" "${2:-straight.jsonl}" >changed.jsonl
	! cmp -s "${2:-straight.jsonl}" changed.jsonl
}

test_ok 'a schedule is right' '
	pd-schedule --check straight.jsonl 2>err
	grep -qx "pd-schedule: $(($(wc -l <straight.jsonl) - 1)) operations of 4 ranks: correct" err'
test_ok 'on replicas too, and from a plan' '
	pd-schedule -c replicas.jsonl && pd-schedule -c replicas.json && pd-schedule -c -m 1 replicas.json'
test_ok 'a send that is missing: where its receiver waits, and what the sender is at' '
	! grep -v "\"rank\":0,\"op\":\"send_activation\",\"stage\":0,\"microbatch\":2," straight.jsonl |
		pd-schedule --check 2>err || false
	grep "rank 1, recv_activation of microbatch 2 at stage 1: its peer, rank 0, is not" err |
		grep -q "but at send_activation of microbatch 3$"
	! grep -v "\"rank\":1,\"op\":\"send_gradient\",\"stage\":1,\"microbatch\":7," straight.jsonl |
		pd-schedule --check 2>err || false
	grep "rank 0, recv_gradient of microbatch 7" err | grep -q "but at its end$"'
test_ok 'from standard input' 'pd-schedule --check <straight.jsonl'
test_ok 'what is written is read and written the same' '
	pd-schedule straight.jsonl | cmp - straight.jsonl
	pd-schedule - <replicas.jsonl | cmp - replicas.jsonl'
test_ok 'ranks may be mixed in any way' '
	{ head -n 1 replicas.jsonl
	  tail -n +2 replicas.jsonl | jq -s -c "to_entries | sort_by(.value.rank % 2, .key)
		| map(.value) | .[]"; } >mixed.jsonl
	! cmp -s mixed.jsonl replicas.jsonl || false
	pd-schedule --check mixed.jsonl && pd-schedule mixed.jsonl | cmp - replicas.jsonl'
test_ok 'predictions may be left out, and are filled in' '
	jq -c "del(.duration_ns, .memory_delta_bytes, .group)" straight.jsonl >short.jsonl
	pd-schedule --check short.jsonl && pd-schedule short.jsonl | cmp - straight.jsonl'
test_ok 'and may say what was measured' '
	change ".duration_ns += 7" && pd-schedule --check changed.jsonl
	pd-schedule changed.jsonl >again.jsonl
	tail -n +2 changed.jsonl >1 && tail -n +2 again.jsonl | jq -c . | cmp - 1'

test_ok 'times are those of the profile and the topology' '
	[ "$(tail -n +2 straight.jsonl | jq -r "\"\(.op) \(.duration_ns)\"" | sort -u | tr "\n" ";")" = \
	  "backward 2000;forward 1000;load 0;recv_activation 1000;recv_gradient 1000;send_activation 1000;send_gradient 1000;step 10;" ]
	# Three replicas take 4 steps of a third of 640 bytes, each with its latency.
	grep allreduce replicas.jsonl | jq -e -s "all(.[]; .stage != 0 or .duration_ns == 4 * 300 + 854)"'
test_ok 'what a rank holds comes back to where it was' '
	tail -n +2 replicas.jsonl | jq -s -e "group_by(.rank) | all(.[];
		(map(.memory_delta_bytes) | add) == 0 and all(range(length) as \$n | .[:\$n];
		(map(.memory_delta_bytes) | add // 0) >= 0))"'

# order RANK FILE: prints its operations: F0@0 is the forward of microbatch 0 that reads version 0, U1
# writes version 1.
order() {
	tail -n +2 "$2" | jq -r "select(.rank == $1)
		| if .op == \"forward\" then \"F\(.microbatch)@\(.weight_version)\"
		  elif .op == \"backward\" then \"B\(.microbatch)@\(.weight_version)\"
		  elif .op == \"step\" then \"U\(.weight_version)\" else empty end" | tr "\n" " "
}
# Figures 4 and 8 of the SOSP 2019 paper have these orders.
test_ok 'stashing on four stages is the published figure' '
	[ "$(order 0 straight.jsonl)" = "F0@0 F1@0 F2@0 F3@0 B0@0 U1 F4@1 B1@0 U2 F5@2 B2@0 U3 F6@3 B3@0 U4 F7@4 B4@1 U5 B5@2 U6 B6@3 U7 B7@4 U8 " ]
	[ "$(order 3 straight.jsonl)" = "F0@0 B0@0 U1 F1@1 B1@1 U2 F2@2 B2@2 U3 F3@3 B3@3 U4 F4@4 B4@4 U5 F5@5 B5@5 U6 F6@6 B6@6 U7 F7@7 B7@7 U8 " ]'
test_ok 'with an eager start-up it is the figure as printed' '
	plan "[1,1,1,1]" "[3,2,1,0]" ".startup = \"eager\"" | pd-schedule -m 7 >eager.jsonl
	[ "$(order 1 eager.jsonl)" = "F0@0 F1@0 F2@0 F3@0 B0@0 U1 B1@0 U2 F4@2 B2@0 U3 F5@3 B3@0 U4 F6@4 B4@2 U5 B5@3 U6 B6@4 U7 " ]
	[ "$(order 2 eager.jsonl)" = "F0@0 F1@0 F2@0 F3@0 B0@0 U1 B1@0 U2 B2@0 U3 F4@3 B3@0 U4 F5@4 B4@3 U5 F6@5 B5@4 U6 B6@5 U7 " ]
	[ "$(order 3 eager.jsonl)" = "F0@0 B0@0 U1 F1@1 B1@1 U2 F2@2 B2@2 U3 F3@3 B3@3 U4 F4@4 B4@4 U5 F5@5 B5@5 U6 F6@6 B6@6 U7 " ]
	pd-schedule --check eager.jsonl
	jq -c "if .format then del(.plan.startup) else . end" eager.jsonl >changed.jsonl && wrong changed.jsonl'
test_ok 'and on two replicas before one' '
	plan "[2,1]" "[1,0]" | pd-schedule -m 6 >two.jsonl
	[ "$(order 0 two.jsonl)" = "F0@0 F2@0 B0@0 U2 F4@2 B2@0 U4 B4@2 U6 " ]
	[ "$(order 1 two.jsonl)" = "F1@0 F3@0 B1@0 U2 F5@2 B3@0 U4 B5@2 U6 " ]'
# Figure 2 of the ICML 2021 paper has this order.  The old version goes after the backward that uses it
# last.
test_ok 'two buffers on four stages is the published figure' '
	plan "[1,1,1,1]" "[3,2,1,0]" ".weights = \"2bw\" | .microbatches = 4" | pd-schedule -m 3 >2bw.jsonl
	[ "$(order 0 2bw.jsonl)" = "F0@0 F1@0 F2@0 F3@0 B0@0 F4@0 B1@0 F5@0 B2@0 F6@0 B3@0 U4 F7@0 B4@0 F8@4 B5@0 F9@4 B6@0 F10@4 B7@0 U8 F11@4 B8@4 B9@4 B10@4 B11@4 U12 " ]
	[ "$(tail -n +2 2bw.jsonl | jq -r "select(.rank == 0 and .op == \"backward\" and .microbatch < 9)
		| .memory_delta_bytes" | tr "\n" " ")" = "-700 -700 -700 -700 -700 -700 -700 -1340 -700 " ]
	pd-schedule --check 2bw.jsonl'

# Each line has a way of being wrong: its name, a filter, and words of the reason.
while IFS=: read -r what filter reason; do
	test_ok "it is found: $what" 'change "$filter" && wrong changed.jsonl && grep -q "$reason" err'
done <<-'END'
	an operation is missing:if .rank == 2 and .op == "forward" and .microbatch == 3 then empty else . end:its forward does not stand before it
	an operation is there twice:if .rank == 0 and .op == "load" and .microbatch == 1 then (., .) else . end:a second time
	forward reads another version:if .rank == 1 and .op == "forward" and .microbatch == 5 then .weight_version = 1 else . end:reads version 1; expected 3
	backward reads another version:if .rank == 1 and .op == "backward" and .microbatch == 5 then .weight_version = 5 else . end:expected 3, as its forward
	an update writes another version:if .rank == 1 and .op == "step" and .microbatch == 2 then .weight_version = 4 else . end:writes version 4; expected 3
	nobody reads a version:del(.weight_version):expected a weight_version
	a microbatch is another:if .rank == 3 and .op == "backward" and .microbatch == 4 then .microbatch = 5 else . end:does not stand before it
	a sequence number is missing:if .op == "send_gradient" then del(.seq) else . end:expected a seq
	it is another at one party:if .rank == 0 and .op == "send_activation" and .microbatch == 2 then .seq += 1 else . end:same seq
	it does not ascend:if .seq then .seq = 1000000 - .seq else . end:expected a seq above all before it
	a local operation has one:if .op == "step" then .seq = 1 else . end:meets no other rank
END
test_ok 'it is found: two operations change places' '
	{ head -n 1 straight.jsonl; tail -n +2 straight.jsonl | jq -s -c "(map(.rank == 3 and .op == \"forward\")
		| index(true)) as \$f | .[\$f] as \$x | .[\$f] = .[\$f + 1] | .[\$f + 1] = \$x | .[]"; } >changed.jsonl
	wrong changed.jsonl && grep -q "backward of microbatch 0 at stage 3: its forward does not" err'
test_ok 'it is found: a peer that has another microbatch' '
	change "if .rank == 0 and .op == \"send_activation\" and .microbatch == 0 then .peer = 4 else . end" replicas.jsonl
	wrong changed.jsonl && grep -q "its peer is rank 4; expected 3" err'
test_ok 'it is found: not all of a group sum' '
	change "if .rank == 1 and .op == \"allreduce\" then empty else . end" replicas.jsonl && wrong changed.jsonl'
test_ok 'the first line that is wrong is named' '
	change "if .microbatch >= 5 and .op == \"forward\" then .weight_version += 1 else . end"
	line=$(jq -r "(.op == \"forward\" and .microbatch >= 5)" changed.jsonl | grep -n true | head -n 1 | cut -d: -f1)
	wrong changed.jsonl && grep -q "changed.jsonl:$line: rank 0, forward of microbatch 5 at stage 0" err'
test_ok 'it is found: more memory than a device has' '
	jq -c "if .format then .plan.topology.device.memory_bytes = 3000 else . end" straight.jsonl >small.jsonl
	wrong small.jsonl && grep -q "expected at most 3000, the memory of a device" err'
test_ok 'a deadlock is found, though each list is in order' '
	# Two ranks both send first: one sends activations up, the other gradients down.
	jq -c -s "(map(.rank == 1 and .op == \"recv_activation\" and .microbatch == 4) | index(true)) as \$r
		| (map(.rank == 1 and .op == \"send_gradient\" and .microbatch == 1) | index(true)) as \$s
		| .[\$r] as \$x | .[\$r] = .[\$s] | .[\$s] = \$x | .[]" straight.jsonl >changed.jsonl
	wrong changed.jsonl'

for made in straight replicas; do
	test_ok "a steady state once, $made" '
		pd-schedule -m 500 $made.json >plain && pd-schedule --compact -m 500 $made.json >compact
		[ "$(wc -c <compact)" -lt 40000 ]
		[ "$(jq -s "map(select(.repeat)) | length" compact)" -ge 4 ]
		pd-schedule compact | cmp - plain
		pd-schedule --compact plain | cmp - compact
		pd-schedule --check compact
		pd-replay compact >1 && pd-replay plain | cmp - 1'
done
test_ok 'it can be changed: more repetitions, and what is behind them later' '
	pd-schedule --compact -m 100 straight.json >compact
	jq -c "if .format then .minibatches += 7
		else .rank as \$r | if .repeat then .repeat += 7 else . end end" compact >longer
	status 1 pd-schedule --check longer 2>err
	jq -c -s ".[0].minibatches += 7 | .[0], (.[1:] | group_by(.rank)[]
		| (map(has(\"repeat\")) | index(true)) as \$i | .[\$i] as \$block
		| .[:\$i][], (\$block | .repeat += 7), (.[\$i + 1:][]
		  | .microbatch += 7 * \$block.microbatch_advance
		  | if .weight_version then .weight_version += 7 * \$block.weight_version_advance
		    else . end
		  | if .seq then .seq += 7 * \$block.seq_advance else . end))" compact >longer
	pd-schedule --check longer
	tail -n +2 longer >1
	pd-schedule --compact -m 107 straight.json | tail -n +2 | jq -c . | cmp - 1'
test_ok 'what is wrong in it is found where it stands' '
	jq -c "if .repeat and .rank == 2 then (.operations[] | select(.op == \"forward\")
		.weight_version) += 1 else . end" compact >changed.jsonl
	wrong changed.jsonl
	line=$(jq -r "(.repeat != null) and .rank == 2" changed.jsonl | grep -n true | cut -d: -f1)
	grep -q "changed.jsonl:$line: rank 2, forward" err'
test_ok 'what is no repetition' '
	while IFS=: read -r filter reason; do
		jq -c "if .repeat and .rank == 1 then $filter else . end" compact >x
		status 2 pd-schedule --check x 2>err && one_line err
		cat err
		grep -q "$reason" err
	done <<-"END"
		.repeat = 0:repeat: expected
		.repeat += 3:its last repetition is of microbatch
		.microbatch_advance = 0:microbatch_advance: expected
		.weight_version_advance += 1:its last repetition has version
		.operations = []:operations: expected one or more
		.operations = {}:operations: expected an array
		.operations[0].rank = 1:unknown key
		.op = "load":unknown key
		del(.repeat):repeat: expected
	END
	# This number has more digits than jq keeps.
	sed "s/\"seq_advance\":[0-9]*/\"seq_advance\":9000000000000000000/" compact >x
	status 2 pd-schedule --check x 2>err && one_line err
	grep -q "the seq of its last repetition" err'

test_ok 'what is no operation of the plan, or has what others have' '
	while IFS=: read -r op filter reason; do
		change "if .op == \"$op\" then $filter else . end" replicas.jsonl
		status 2 pd-schedule --check changed.jsonl 2>err && one_line err
		cat err
		grep -q "changed.jsonl:[0-9]*: $reason" err
	done <<-"END"
		load:.rank = 6:rank: expected a whole number from 0 to 5, found 6
		load:.stage = 3:stage: expected a whole number from 0 to 2, found 3
		load:.stage = 1:rank 0 is of stage 0 in the plan, found stage 1
		load:.microbatch = 10:microbatch: expected a whole number from 0 to 9, found 10
		step:.weight_version = 11:weight_version: expected a whole number from 0 to 10, found 11
		send_activation:.peer = 6:peer: expected a whole number from 0 to 5, found 6
		send_activation:.peer_stage = 3:peer_stage: expected a whole number from 0 to 2, found 3
		send_activation:.peer = 1:nothing travels this way between stage 0 of rank 0 and its peer 1
		send_activation:del(.peer):expected a "peer" for send_activation
		forward:.peer = 3:forward has no "peer"
		forward:.peer_stage = 1:forward has no "peer_stage"
		forward:.group = 0:"group" is 0; expected none, or with allreduce and norms the stage, 0
		allreduce:.group = 2:"group" is 2; expected none, or with allreduce and norms the stage, 0
		forward:.bucket = 1:forward has no "bucket"
		backward:.bucket = 1:"bucket" is 1; stage 0 has 1 in the plan
		forward:.beside = 1:beside: expected true or false, found 1
		forward:.duration_ns = -1:duration_ns: expected a whole number from 0
		forward:.memory_delta_bytes = 0.5:memory_delta_bytes: expected a whole number
	END'

test_ok 'what is no schedule' '
	echo "{}" >x; status 2 pd-schedule x 2>err && one_line err
	status 2 pd-schedule --check no-such-file 2>err && one_line err
	{ head -n 1 straight.jsonl; echo "{\"rank\": 9}"; } >x
	status 2 pd-schedule --check x 2>err && one_line err && grep -q "x:2: rank: expected" err
	{ head -n 1 straight.jsonl; echo "{\"rank\": 0, \"op\": \"dance\"}"; } >x
	status 2 pd-schedule --check x 2>err && grep -q "x:2: op: expected" err'
test_ok 'minibatches are for plans' 'status 2 pd-schedule -m 3 straight.jsonl 2>err && one_line err'
test_ok 'an update takes its time: in place, or where the version before it is still read' '
	jq ".profile.layers[] += {update_ns: 10, update_apart_ns: 35}" straight.json >apart.json
	pd-schedule -m 8 apart.json >x
	jq -s -e "map(select(.op == \"step\")) | group_by(.rank) | map(map(.duration_ns))
		| .[3] == [range(8) | 10] and .[0][0] == 35 and .[0][7] == 10
		and (.[0] | unique) == [10, 35]" x'
test_ok 'a step that does not say what it writes: copied as it is, and not right' '
	sed "s/\\(\"op\":\"step\".*\\),\"weight_version\":[0-9]*/\\1/" straight.jsonl >x
	! cmp -s x straight.jsonl || false
	pd-schedule x >copy
	# The first version stays as long as anybody reads it.
	jq -s -e "[.[] | select(.op == \"step\" and .rank == 0).memory_delta_bytes]
		| .[:3] == [640, 640, 640] and .[-1] == 0" copy
	jq -e "select(.op == \"step\") | has(\"weight_version\") | not" copy >out
	pd-schedule --compact x >copy
	status 1 pd-schedule --check x 2>err && one_line err
	grep -q "step of microbatch 0 at stage 0: expected a weight_version, 1$" err'
most=400000
[ -z "${PD_TEST_QUICK-}" ] || most=40000
test_row wide 'four thousand ranks stream' '
	plan "[4000]" "[0]" ".topology.levels[0].count = 4096" >many.json
	limit=150000    # This is in KiB; a sanitizer needs more than that for itself.
	(ulimit -v $limit; pd-schedule --help) >help 2>&1 || limit=unlimited
	(ulimit -v $limit; pd-schedule -m 20000 many.json) | tail -n 1 >last
	[ -s last ] && jq -e ".rank == 3999 and .op == \"step\" and .weight_version == 20000" last
	# Operations are checked without being kept.
	(ulimit -v $limit; pd-schedule --check -m $most straight.json)'
test_row wide 'and in compact form are checked' '
	pd-schedule --compact -m 100000 many.json >compact
	[ "$(wc -c <compact)" -lt 40000000 ]
	pd-schedule --check compact 2>err
	grep -q " of 4000 ranks: correct" err'
test_ok 'numbers of operations that do not fit in 63 bits' '
	ones=$(yes 1 | head -1024 | paste -sd,) none=$(yes 0 | head -1024 | paste -sd,)
	made_up "[$ones]" "[$none]" ".weights = \"flush\"" >deep.json
	status 2 pd-schedule --compact -m 1000000000 deep.json >out 2>err
	cat err; [ ! -s out ]
	grep -q "^pd-schedule: deep.json: 1000000000 microbatches on 1024 stages: the numbers" err
	status 2 pd-schedule --check -m 1000000000 deep.json
	pd-schedule --compact -m 40000000 deep.json | tail -n +2 |
		jq -se "all(.[]; .repeat == null or .seq_advance > 0)"'
test_ok 'a rank of too many stages' '
	made_up "[1]" "[0]" ".schedule = \"interleaved\" | .weights = \"flush\"
		| .profile.layers = [.profile.layers[0] as \$l | range(4097) as \$i | \$l
			+ {name: \"l\\(\$i)\", inputs: [range([\$i, 1] | min) | \"l\\(\$i - 1)\"]}]
		| .stages = [.stages[0] as \$s | range(4097) as \$i | \$s
			+ {layers: [\"l\\(\$i)\"]}]" >stack.json
	status 2 pd-schedule stack.json 2>err; cat err; one_line err
	grep -q "stages: expected at most 4096 on a rank, found 4097" err'
test_done
