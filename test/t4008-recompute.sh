#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With recomputation forward is done once more before backward.  The weights are, bit for bit, those without
# it.  The memory is what is predicted, and less than without it where much is in flight.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_plans 2 "" "1 1" "1 1 1" "1 1 1 1" "2 1" "1 2" "2 2" "3 1"
# Each of two ranks has two stages.
pd-plan --topology=4@10Gbit/s --stages=5,5,5,5 residual |
	jq '.stages |= [to_entries[] | .value.ranks = [.key % 2] | .value]' >chunks

# again PLAN SCHEDULE WEIGHTS MICROBATCHES STAGES: prints that plan, in which these stages (all, or a list)
# recompute; some: those layers of each stage that have no weights, but of batch normalisation; pieces: all, three by
# three, each just before its backward; parts: of each four the last three.
again() {
	jq --arg schedule "$2" --arg weights "$3" --argjson m "$4" --arg which "$5" '
		.schedule = $schedule | .weights = $weights | .microbatches = $m
		| .stages |= [to_entries[] | .value.recompute =
			if $which == "pieces" then [.value.layers as $l | range(0; $l | length; 3) | $l[.:. + 3]]
			elif $which == "parts" then [.value.layers as $l | range(0; $l | length; 4) | $l[. + 1:. + 4] | select(. != [])]
			elif $which == "some" then [.value.layers[] | select(test("^(bn|relu|drop|pool|add|mul|gelu|flat)"))]
			else $which == "all" or (.key as $s | $which | split(",") | index("\($s)") != null) end
			| .value.recompute |= (if . == [] then true else . end) | .value]' "$1"
}

while read -r schedule weights microbatches which plans; do
	for plan in $plans; do
		test_row "$schedule $weights" \
			"$schedule, $weights, $microbatches at a time, $plan, stages $which: the bits and the bytes" '
			again $plan $schedule $weights $microbatches $which >plan.json
			trained $((microbatches > 1 ? 11 : 20)) plan.json $sgd'
	done
done <<END
1f1b stash 1 all 1-1 1-1-1 2-1 1-2 2-2 3-1
1f1b stash 1 0 2-1
1f1b stash 1 1 1-1
1f1b stash 1 0,2 1-1-1
1f1b stash 4 all 1-1-1-1
1f1b vertical-sync 1 all 1-1-1 2-1 3-1
1f1b 2bw 4 all 1-1 1-1-1 2-1 2-2
1f1b 2bw 4 1,2 1-1-1
1f1b flush 4 all 1-1-1-1 2-1
1f1b flush 4 0 2-1
1f1b latest 1 all 1-1 1-1-1 2-1
gpipe flush 4 all 1-1-1 2-1 2-2
none flush 2 all 1-1-1
none stash 1 all 2-1
interleaved flush 4 all chunks 1-1-1-1
interleaved flush 4 1,2 chunks
zb-h1 flush 4 all 1-1 1-1-1 2-1
zb-h1 flush 4 1 1-1-1
zb-h1 flush 8 all 1-1-1-1
zb-h2 flush 8 all 1-1-1-1
zb-h2 flush 4 1 2-1
nf1b vertical-sync 2 all 1-1-1
nf1b stash 2 all 1-1
nf1b latest 2 all 1-1-1
1f1b stash 1 some 1-1-1 2-1
1f1b stash 1 pieces 1-1-1 2-1
1f1b stash 1 parts 1-1 2-2
1f1b 2bw 4 pieces 1-1 2-2
none flush 4 pieces 1-1
gpipe flush 4 parts 1-1-1 2-1
interleaved flush 4 pieces chunks
nf1b vertical-sync 2 pieces 1-1-1
1f1b 2bw 4 some 2-2
gpipe flush 4 some 1-1-1
interleaved flush 4 some chunks
zb-h1 flush 4 some 1-1-1
nf1b stash 2 some 1-1
END
test_ok "an eager start-up" '
	again 1-1-1-1 1f1b stash 1 all | jq ".startup = \"eager\"" >plan.json
	trained 20 plan.json $sgd'
test_ok "with the correction of PipeMare" '
	again 1-1-1 1f1b latest 1 all >plan.json
	sgd="$sgd --discrepancy=0.5" && trained 20 plan.json $sgd'
test_ok "with clipping" '
	again 1-1-1 1f1b 2bw 4 all >plan.json
	sgd="$sgd --clip-grad-norm=0.1" && trained 11 plan.json $sgd'
test_ok "to recompute with other weights is another thing" '
	again 1-1-1 1f1b latest 1 all >plan.json
	train ck-again plan.json $sgd --minibatches=10 --synthetic --no-evaluate >out
	again 1-1-1 1f1b latest 1 none >plan.json
	train ck-once plan.json $sgd --minibatches=10 --synthetic --no-evaluate >out
	status 1 "$same" "$(at ck-once 10)" "$(at ck-again 10)"'

test_ok "statistics are added to once, and the masks of dropout are those of the first time" '
	jq -e "[.layers[].name] | index(\"bn1\") < 5 and index(\"drop1\") > 9 and index(\"drop2\") > 16
		" residual
	idx_data data
	for which in none some all; do
		again 1-1-1 1f1b flush 4 $which >plan.json
		rm -rf ck-$which
		train ck-$which plan.json $sgd --minibatches=14 --data=data >out
		grep "\"event\": \"evaluation\"" out >evaluation-$which
	done
	grep -aq "bn1\.running_mean" "$(at ck-all 14)"/*
	diff -r "$(at ck-none 14)" "$(at ck-all 14)"
	diff -r "$(at ck-none 14)" "$(at ck-some 14)"
	cmp evaluation-none evaluation-all && cmp evaluation-none evaluation-some'

# Four slots become one, and two places for what leaves the stage.  Workspaces are the device's, and stay.
test_ok "less memory where more than one is in flight" '
	for which in none some all; do
		rm -rf ck-$which
		again 1-1-1-1 1f1b 2bw 4 $which >plan.json
		train ck-$which plan.json --minibatches=2 --synthetic --no-evaluate >out
		tail -n 1 out >$which
	done
	"$same" "$(at ck-none 2)" "$(at ck-all 2)"
	"$same" "$(at ck-none 2)" "$(at ck-some 2)"
	jq -s -c "map(.memory_bytes)" none all some
	jq -s -e "map(.memory_bytes) | (.[1][0] < .[0][0] * 0.75) and
		(.[1][1] < .[0][1]) and (.[1][3] == .[0][3]) and
		(.[2][0] < .[0][0]) and (.[2][0] > .[1][0])" none all some'

# order RANK FILE: prints the computations of a rank.
order() {
	jq -j --argjson rank "$1" "select(.rank == \$rank) | (.op | {forward: \"F\", recompute: \"R\",
		backward: \"B\"}[.]) as \$letter | select(\$letter)
		| \"\(\$letter)\(.microbatch)@\(.weight_version) \"" "$2"
}
again 1-1-1 1f1b stash 1 0,1 >plan.json
pd-schedule -m 6 plan.json >schedule.jsonl
test_ok "a recompute stands before each backward, and reads what its forward read" '
	pd-schedule --check schedule.jsonl
	order 0 schedule.jsonl
	[ "$(order 0 schedule.jsonl)" = "F0@0 F1@0 F2@0 R0@0 B0@0 F3@1 R1@0 B1@0 F4@2 R2@0 B2@0 F5@3 R3@1 B3@1 R4@2 B4@2 R5@3 B5@3 " ]
	[ "$(order 2 schedule.jsonl | tr -d R | wc -c)" = "$(order 2 schedule.jsonl | wc -c)" ]'
test_ok "the checker finds one that is not there, and one too many" '
	jq -c "if .op == \"recompute\" and .rank == 1 and .microbatch == 3 then empty else . end" \
		schedule.jsonl >changed.jsonl
	status 1 pd-schedule --check changed.jsonl >out 2>&1
	grep -q "its recompute does not stand before it" out
	jq -c "., (select(.op == \"recompute\" and .rank == 0 and .microbatch == 3))" \
		schedule.jsonl >changed.jsonl
	status 1 pd-schedule --check changed.jsonl >out 2>&1
	grep -q "a second time" out
	jq -c "if .op == \"recompute\" and .microbatch == 5 then .weight_version = 4 else . end" \
		schedule.jsonl >changed.jsonl
	status 1 pd-schedule --check changed.jsonl >out 2>&1
	grep -q "as its forward" out'
for plan in "1-1-1 1f1b stash 1 all" "1-1 zb-h1 flush 4 all" "chunks interleaved flush 4 all" "2-1 1f1b 2bw 2 all" \
	"1-1-1 1f1b stash 1 some" "1-1 zb-h1 flush 4 some"; do
	test_ok "a schedule file, $plan: as the plan" '
		again $plan | jq "del(.stages[].predicted)" >plan.json
		set -- $plan
		n=$((8 / $4))
		pd-schedule -m $n plan.json >list.jsonl
		pd-schedule --check list.jsonl
		rm -rf ck-list ck-plan
		train ck-list list.jsonl $sgd --synthetic >out
		tail -n 1 out >listed
		jq -e ".memory == \"as predicted\"" listed
		train ck-plan plan.json $sgd --minibatches=$n --synthetic >out
		"$same" "$(at ck-list $n)" "$(at ck-plan $n)"
		# The list takes no more room, since a forward leaves nothing in the slot that it works in.
		tail -n 1 out | jq -s -c "map(.memory_bytes)" listed -
		tail -n 1 out | jq -s -e "map(.memory_bytes) | transpose | all(.[]; .[0] <= .[1])" \
			listed -'
done
test_ok "a recompute may stand earlier, and takes the room that it then needs" '
	jq -c -s "reduce range(1; length) as \$i (.; if .[\$i].op == \"recompute\" and .[\$i].rank == 0
			and .[\$i - 1].op == \"recv_gradient\" then .[\$i] as \$x
			| .[\$i] = .[\$i - 1] | .[\$i - 1] = \$x else . end) | .[]" \
		schedule.jsonl | jq -c "del(.plan.stages?[]?.predicted)" >early.jsonl
	! cmp -s early.jsonl schedule.jsonl || false
	pd-schedule --check early.jsonl
	rm -rf ck-list ck-plan
	train ck-list early.jsonl $sgd --synthetic --no-evaluate >out
	tail -n 1 out | jq -e ".memory == \"as predicted\""
	again 1-1-1 1f1b stash 1 none >p.json
	train ck-plan p.json $sgd --minibatches=6 --synthetic --no-evaluate >out
	"$same" "$(at ck-list 6)" "$(at ck-plan 6)"'

test_ok "a replay prices those layers that are computed again" '
	again 1-1-1 1f1b stash 1 some >plan.json
	for what in "pd-schedule -m 5" "pd-replay -f trace -m 5"; do
		$what plan.json | jq -s -e --slurpfile plan plan.json "(\$plan[0].stages[1].recompute) as \$names
			| ([\$plan[0].profile.layers[] | select(.name | IN(\$names[])).forward_ns] | add) as \$sum
			| map(select(.rank == 1 and .op == \"recompute\") | .duration_ns // .end_ns - .start_ns)
			| length == 5 and unique == [\$sum]"
	done
	pd-plan --topology=3@10Gbit/s --stages=7,7,6 --explain residual >whole.json 2>out
	grep "^layout .*; nothing is recomputed$" out
	! grep -v "^layout" out | grep recomputed || false'
# bad WORDS RECOMPUTE: checks that a plan whose first stage recomputes so is refused.
bad() {
	again 1-1-1 1f1b stash 1 none | jq ".stages[0].recompute = $2" >bad.json
	status 2 pd-replay bad.json 2>err
	grep "stages\[0\].recompute.*$1" err && one_line err
}
test_ok "what is no layer of the stage, or overwritten, is refused" '
	again 1-1-1 1f1b stash 1 none >plan.json
	last=$(jq ".stages[2].layers[0]" plan.json) first=$(jq ".stages[0].layers[0]" plan.json)
	bad "expected true, false, an array of layers or one of such arrays" 1
	bad "expected 1 to [0-9]* layers, as many as the stage has" "[]"
	bad "expected a non-empty string" "[1]"
	bad "the stage has no layer" "[$last]"
	bad "the stage has no layer .conv11.; did you mean" "[\"conv11\"]"
	bad "is there twice" "[$first, $first]"
	bad "is there twice" "[[$first], [$first]]"
	bad "expected 1 to [0-9]* layers, as many as the stage has" "[[$first], []]"
	second=$(jq ".stages[0].layers[1]" plan.json) third=$(jq ".stages[0].layers[2]" plan.json)
	bad "lists of layers that follow one another, and .*$(echo "$third" | tr -d "\"")" "[[$first, $third], [$second]]"
	again 1-1-1 zb-h1 flush 4 none | jq ".stages[0].recompute = [[$first], [$second]]" >bad.json
	status 2 pd-replay bad.json 2>err
	grep "backward in two parts.*expected one list" err && one_line err
	bad "expected layer .*, too, which overwrites the output of" "[\"bn1\"]"'
test_ok "a replay prices it: once more the forward" '
	again 1-1-1 1f1b stash 1 all >plan.json
	for what in "pd-schedule -m 5" "pd-replay -f trace -m 5"; do
		$what plan.json | jq -s -e "map(select(.rank == 1) | .ns = (.duration_ns // .end_ns - .start_ns))
			| (map(select(.op == \"forward\").ns) | unique) as \$f
			| map(select(.op == \"recompute\").ns) | length == 5 and unique == \$f and \$f[0] > 0"
	done'

test_done
