#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-run follows a schedule file, as pd-schedule writes it or edited by hand.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_plans 2 residual- "1" "1 1" "1 1 1" "2 1" "1 2"
profile "$MODELS/mlp.json" 2 >mlp
plan mlp 1 1 >mlp-1-1
pd-plan --topology=4@10Gbit/s --stages=5,5,5,5 residual |
	ordered_jq '.stages |= [to_entries[] | .value.ranks = [.key % 2] | .value]' >chunks-2x2

# follows FILE DIRECTORY [OPTION...]: trains a file, and checks that it takes the memory predicted.
follows() {
	file=$1 directory=$2
	shift 2
	rm -rf "$directory"
	pd-run --threads=1 --checkpoint="$directory" $sgd ${data:---synthetic} "$@" "$file" >out
	tail -n 1 out
	tail -n 1 out | jq -e '.outcome == "done" and .memory == "as predicted"' >/dev/null
}

# An epoch has ten minibatches.  Where replicas add theirs, there are full updates and a partial one.
while read -r schedule weights microbatches plans; do
	for plan in $plans; do
		test_row "$schedule $weights" "$schedule, $weights, $microbatches at a time, $plan: as the plan" '
			pair $plan $schedule $weights $microbatches >plan.json
			minibatches=$((10 / microbatches))
			pd-schedule -m $minibatches plan.json >schedule.jsonl
			follows schedule.jsonl ck
			mv out listed
			follows plan.json ck-plan --minibatches=$minibatches
			"$same" "$(at ck-plan $minibatches)" "$(at ck $minibatches)"
			# Interleaved stages have an inbox to spare, and so have three stages of which a
			# tensor skips one.
			case $schedule,$plan in
			interleaved,* | *,residual-1-1-1) least=0 ;;
			*) least=1 ;;
			esac
			jq -s -e "map(select(.memory_bytes).memory_bytes) | .[0] as \$list | .[1] as \$plan |
				\$list == \$plan or ($least == 0 and all(range(\$plan | length);
				\$list[.] <= \$plan[.]))" listed out'
	done
done <<END
1f1b stash 1 residual-1 residual-1-1 residual-1-1-1 residual-2-1 residual-1-2
1f1b stash 2 residual-1-1-1
1f1b vertical-sync 1 residual-1-1-1 residual-2-1
1f1b 2bw 2 residual-1-1
1f1b 2bw 5 residual-1-1-1
1f1b flush 4 residual-1-1 residual-1-1-1 residual-2-1
1f1b latest 1 residual-1-1-1 residual-2-1
gpipe flush 4 residual-1-1 residual-2-1
none stash 1 residual-1-1
zb-h1 flush 4 residual-1-1 residual-1-1-1
interleaved flush 4 chunks-2x2
nf1b vertical-sync 2 residual-1-1-1
END

test_ok "made-up data: an epoch of as many minibatches as asked, as a schedule of so many has it" '
	pd-schedule -m 25 mlp-1-1 >schedule.jsonl
	follows schedule.jsonl ck
	data=--synthetic=25 follows mlp-1-1 ck-plan --epochs=1
	"$same" "$(at ck-plan 25)" "$(at ck 25)"'
test_ok "it is ten if nobody asks, and the pipeline is empty in between: other weights" '
	follows mlp-1-1 ck-ten --epochs=2
	data=--synthetic=10 follows mlp-1-1 ck-asked --epochs=2
	"$same" "$(at ck-asked 20)" "$(at ck-ten 20)"
	data=--synthetic=25 follows mlp-1-1 ck-plan --minibatches=20
	! "$same" "$(at ck-plan 20)" "$(at ck-ten 20)" || false'
for wrong in 0 -1 many 1e13; do
	test_ok "--synthetic=$wrong: refused" \
		'status 2 pd-run --synthetic=$wrong mlp-1-1 2>err && grep -q "^pd-run: --synthetic: expected" err'
done

# edit FILTER <FILE: puts the operations of each rank, an array, into another order.
edit() {
	jq -c -s "def at(f): map(f) | index(true);
		# behind(f; g): moves the first that is f behind the first that is g.
		def behind(f; g): at(f) as \$i | .[\$i] as \$op | del(.[\$i])
			| at(g) as \$j | .[:\$j + 1] + [\$op] + .[\$j + 1:];
		def is(\$op; \$b): .op == \$op and .microbatch == \$b;
		.[0], (.[1:] | group_by(.rank)[] | ($1) | .[])"
}
# right N: checks that edited.jsonl has another order than schedule.jsonl, and ends with the weights that
# the serial program has after N minibatches.
right() {
	! cmp -s schedule.jsonl edited.jsonl || false
	pd-schedule --check edited.jsonl
	follows edited.jsonl ck
	"$serial" $sgd --minibatches="$1" --output=serial plan.json
	"$same" serial "$(at ck "$1")"
}
first_bytes() {
	tail -n 1 out | jq '.memory_bytes[0]'
}

test_row edited "edited: a deeper warm-up" '
	pair residual-1-1-1 1f1b flush 5 >plan.json
	pd-schedule -m 2 plan.json >schedule.jsonl
	follows schedule.jsonl ck
	before=$(first_bytes)
	edit "if .[0].rank == 0 then
		behind(is(\"load\"; 3); is(\"forward\"; 2)) | behind(is(\"forward\"; 3); is(\"load\"; 3))
		else . end" <schedule.jsonl >edited.jsonl
	right 2
	[ "$(first_bytes)" -gt "$before" ]'
test_row edited "edited: no warm-up at all, in less memory" '
	pair residual-1-1-1 1f1b flush 5 >plan.json
	pd-schedule -m 2 plan.json >schedule.jsonl
	follows schedule.jsonl ck
	before=$(first_bytes)
	pair residual-1-1-1 none flush 5 | pd-schedule -m 2 | tail -n +2 >none
	{ head -n 1 schedule.jsonl; cat none; } >edited.jsonl
	right 2
	[ "$(first_bytes)" -lt "$before" ]'
for plan in residual-1-1-1 residual-2-1; do
	test_row edited "edited: every receive as late as can be, $plan" '
		pair $plan 1f1b stash 1 >plan.json
		pd-schedule -m 10 plan.json >schedule.jsonl
		# A receive goes behind operations that meet no other rank, up to the one that needs it.
		edit "reduce range(length) as \$n (.; reduce range(length - 1) as \$i (.;
			.[\$i] as \$a | .[\$i + 1] as \$b
			| if (\$a.op | startswith(\"recv\")) and (\$b | has(\"seq\") | not)
				and \$a.microbatch != \$b.microbatch
			  then .[\$i] = \$b | .[\$i + 1] = \$a else . end))" <schedule.jsonl >edited.jsonl
		right 10'
done
# This network has no running statistics, which would follow that order.
test_row edited "edited: microbatches change places on their way up" '
	pair mlp-1-1 gpipe flush 4 >plan.json
	pd-schedule -m 2 plan.json >schedule.jsonl
	edit "map(if (.op | IN(\"load\", \"forward\") or endswith(\"activation\"))
		then .microbatch |= (. / 2 | floor) * 4 + 1 - . else . end)" <schedule.jsonl >edited.jsonl
	right 2'
test_row edited "edited: and on their way down" '
	pair residual-1-1 gpipe flush 2 >plan.json
	pd-schedule -m 4 plan.json >schedule.jsonl
	edit "map(if (.op | IN(\"backward\") or endswith(\"gradient\"))
		then .microbatch |= (. / 2 | floor) * 4 + 1 - . else . end)" <schedule.jsonl >edited.jsonl
	right 4'
test_row edited "edited: backwards whole and in parts" '
	pair residual-1-1-1 zb-h1 flush 4 >plan.json
	pd-schedule -m 2 plan.json >schedule.jsonl
	edit "map(if .microbatch % 4 == 0 and .op == \"backward_weight\" then empty
		elif .microbatch % 4 == 0 and .op == \"backward_input\" then .op = \"backward\"
		else . end)" <schedule.jsonl >edited.jsonl
	right 2'
test_row edited "edited: two buffers, a forward before its time" '
	pair residual-1-1 1f1b 2bw 4 >plan.json
	pd-schedule -m 2 plan.json >schedule.jsonl
	edit "if .[0].rank == 0 then
		behind(is(\"load\"; 2); is(\"forward\"; 1)) | behind(is(\"forward\"; 2); is(\"load\"; 2))
		else . end" <schedule.jsonl >edited.jsonl
	right 2'

# refused STATUS WORDS OPTION...: checks that pd-run refuses edited.jsonl in one line with the WORDS, and
# starts nothing.
refused() {
	expected=$1 words=$2
	shift 2
	status "$expected" pd-run --synthetic "$@" edited.jsonl >out 2>err
	cat err
	one_line err && [ ! -s out ] && grep -q "$words" err
}
pair residual-1-1-1 1f1b stash 1 >plan.json
pd-schedule -m 8 plan.json >schedule.jsonl
test_ok "refused: what the checker refuses, with its line" '
	edit "if .[0].rank == 1 then behind(is(\"forward\"; 2); is(\"backward\"; 2)) else . end" \
		<schedule.jsonl >edited.jsonl
	status 1 pd-schedule --check edited.jsonl 2>err
	line=$(sed "s/^pd-schedule: //" err)
	refused 1 "edited.jsonl:[0-9]*: rank 1, "
	[ "pd-run: $line" = "$(cat err)" ]
	jq -c "if .op == \"forward\" and .microbatch == 7 then .weight_version -= 1 else . end" \
		schedule.jsonl >edited.jsonl
	refused 1 "reads version"'
test_ok "refused: a line that is none" '
	{ cat schedule.jsonl; echo "{\"rank\": 0, \"op\": \"dance\"}"; } >edited.jsonl
	refused 2 "op: expected"'
test_ok "refused: a backward in two parts where there is no room for it" '
	jq -c "if .op == \"backward\" and .microbatch == 3 then (.op = \"backward_input\"),
		(.op = \"backward_weight\") else . end" schedule.jsonl >edited.jsonl
	pd-schedule --check edited.jsonl
	refused 2 "edited.jsonl:[0-9]*: rank 0: a backward in two parts"'
test_ok "refused: to cut it short, to repeat it, to begin elsewhere" '
	cp schedule.jsonl edited.jsonl
	refused 2 "says itself what is trained, 8 minibatches" --minibatches=4
	refused 2 "cannot be cut short or repeated" --epochs=1
	refused 2 "resume is for plans" --checkpoint=ck --resume
	refused 2 "checkpoint-every is for plans" --checkpoint=ck --checkpoint-every=2'
test_ok "from standard input, with a trace" '
	pd-run --synthetic --trace=t.jsonl <schedule.jsonl >out
	[ "$(tail -n +2 t.jsonl | wc -l)" -eq "$(tail -n +2 schedule.jsonl | wc -l)" ]
	pd-replay t.jsonl >report'

test_ok "in compact form it is trained the same" '
	pd-schedule -m 40 plan.json >schedule.jsonl
	pd-schedule --compact -m 40 plan.json >compact.jsonl
	follows schedule.jsonl ck-plain
	mv out listed
	follows compact.jsonl ck
	"$same" "$(at ck-plain 40)" "$(at ck 40)"
	jq -s -e "map(select(.memory_bytes).memory_bytes) | .[0] == .[1]" listed out'

idx_data data		# An epoch has 55 minibatches.
test_ok "a data set, through the end of an epoch, and evaluated once" '
	data=--data=data
	pd-schedule -m 70 plan.json >schedule.jsonl
	follows schedule.jsonl ck
	# The checkpoint can be written while the evaluation goes on, so it may be reported after that.
	jq -s -e "map(select(.event != \"checkpoint\")) | map(select(.event == \"evaluation\")) as [\$one] |
		length > 2 and (map(.event)[-2:] == [\"evaluation\", \"done\"]) and last.step == 70 and
		last.evaluation == (\$one | {loss, accuracy})" out
	pd-schedule -m 55 plan.json >schedule.jsonl
	follows schedule.jsonl ck
	grep "\"event\": \"evaluation\"" out >listed
	follows plan.json ck-plan --minibatches=55
	grep "\"event\": \"evaluation\"" out | cmp - listed
	"$same" "$(at ck-plan 55)" "$(at ck 55)"'
test_ok "adam counts its updates through the epochs" '
	sgd="--optimizer=adam --lr=0.003"
	pair residual-1-1 1f1b flush 4 >plan.json
	pd-schedule -m 5 plan.json >schedule.jsonl
	follows schedule.jsonl ck
	data=--data=data
	follows schedule.jsonl ck
	follows plan.json ck-plan --minibatches=5
	"$same" "$(at ck-plan 5)" "$(at ck 5)"'
test_ok "its checkpoint can be gone on from with a plan" '
	pd-schedule -m 8 plan.json >schedule.jsonl
	pair residual-1-1 1f1b stash 1 >plan.json
	pd-schedule -m 8 plan.json >schedule.jsonl
	follows schedule.jsonl ck
	pd-run --synthetic $sgd --checkpoint=ck --resume --minibatches=12 plan.json'
test_ok "interrupted, it stops at once and says so" '
	pd-schedule -m 3000 plan.json >schedule.jsonl
	rm -f out
	pd-run --synthetic schedule.jsonl >out 2>err &
	run=$!
	until [ -s out ]; do sleep 0.1; done
	kill -TERM $run
	status 143 wait $run
	grep -v "what GPUs exchange" err >said
	one_line said && grep -q "cannot be cut short" said'
test_done
