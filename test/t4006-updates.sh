#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Updates that all stages agree on: the weights are, bit for bit, those of test/conform/serial.c,
# which sees the whole network at once; the norm has the same bits wherever it is cut; agreeing
# costs 2bw no time; and nothing of it is there where nobody asks for it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

sgd="--lr=0.002 --momentum=0.9 --weight-decay=0.001"
residual_model >residual.json
profile residual.json 2 >residual
for replicas in "1" "1 1" "1 1 1" "1 1 1 1" "2 1" "1 2" "2 2" "3 1"; do
	plan residual $replicas >"$(echo "$replicas" | tr ' ' -)"
done
pd-plan --topology=4@10Gbit/s --stages=5,5,5,5 residual |
	jq '.stages |= [to_entries[] | .value.ranks = [.key % 2] | .value]' >chunks

# pair PLAN SCHEDULE WEIGHTS MICROBATCHES: that plan, and no prediction of its memory
pair() {
	jq --arg schedule "$2" --arg weights "$3" --argjson m "$4" '.schedule = $schedule |
		.weights = $weights | .microbatches = $m | del(.stages[].predicted)' "$1"
}

# trained N PLAN OPTION...: pd-run agrees with the serial program after N microbatches, and has
# the memory that was predicted; its last line is in `last`.
trained() {
	n=$1 plan=$2
	shift 2
	rm -rf ck
	train ck "$plan" "$@" --minibatches="$n" --synthetic --no-evaluate >out
	tail -n 1 out >last
	cat last
	jq -e '.memory == "as predicted"' last >/dev/null
	"$serial" "$@" --minibatches="$n" --output=serial "$plan"
	"$same" serial "$(at ck "$n")"
}

# An epoch is ten microbatches: full groups and partial ones, twice.
while read -r schedule weights microbatches plans; do
	for plan in $plans; do
		test_ok "$schedule, $weights, $microbatches at a time, $plan: clipped" '
			pair $plan $schedule $weights $microbatches >plan.json
			trained 20 plan.json $sgd --clip-grad-norm=1.5
			jq -e ".skipped == 0 and .grad_norm > 0" last
			jq .agree=true plan.json | pd-schedule --check
			jq .agree=true plan.json | pd-replay >report'
	done
done <<END
1f1b 2bw 2 1-1 1-1-1
1f1b 2bw 3 1-1-1-1
1f1b 2bw 4 1-1-1-1 2-1 1-2 2-2
1f1b 2bw 6 3-1
1f1b flush 1 1-1-1
1f1b flush 4 1-1 1-1-1-1 2-1 1-2 2-2
1f1b flush 6 3-1
gpipe flush 4 1-1-1 2-1
none flush 4 1-1-1
zb-h1 flush 4 1-1-1-1 2-1
interleaved flush 4 chunks
END
test_ok "clipped, adam" '
	pair 1-1-1 1f1b 2bw 4 >plan.json
	trained 20 plan.json --lr=0.001 --optimizer=adam --clip-grad-norm=3'
test_ok "a limit that no norm reaches changes no bit" '
	pair 1-1-1 1f1b 2bw 4 >plan.json
	rm -rf ck-a ck-b
	train ck-a plan.json $sgd --minibatches=20 --synthetic --no-evaluate >out
	train ck-b plan.json $sgd --minibatches=20 --synthetic --no-evaluate \
		--clip-grad-norm=1e9 >out
	"$same" "$(at ck-a 20)" "$(at ck-b 20)"'

test_ok "the norm has the same bits wherever the network is cut" '
	for plan in 1 1-1 1-1-1 1-1-1-1; do
		pair $plan 1f1b 2bw 4 >plan.json
		pd-run --threads=1 --synthetic --minibatches=20 --no-evaluate $sgd \
			--clip-grad-norm=1.5 plan.json | tail -n 1 | jq .grad_norm
	done >norms
	[ "$(sort -u norms | wc -l)" -eq 1 ]'

# All layers alike, and messages that take next to no time.
test_ok "2bw: agreeing takes no time from the pipeline" '
	for m in 3 6; do
		pair 1-1-1-1 1f1b 2bw $m | jq ".topology.levels[0].latency_ns = 1000 |
			.profile.layers |= map(.forward_ns = 1000000 | .backward_ns = 2000000)" >a.json
		jq .agree=true a.json >b.json
		pd-replay --minibatches=60 a.json >a
		pd-replay --minibatches=60 b.json >b
		grep "in steady state\|over all" a b
		[ "$(grep "^time per" a)" = "$(grep "^time per" b)" ]
		[ "$(grep "over all" a)" = "$(grep "over all" b)" ]
	done'
test_ok "no operation agree where nobody asks for it, and one a group at every rank" '
	pair 2-1 1f1b 2bw 4 >plan.json
	pd-schedule --minibatches=3 plan.json >without
	! grep -q "\"agree\"" without || false
	jq .agree=true plan.json | pd-schedule --minibatches=3 >with
	[ "$(grep -c "\"op\":\"agree\"" with)" -eq 9 ]
	[ "$(grep "\"op\":\"agree\"" with | jq .seq | sort -u | wc -l)" -eq 3 ]'
test_ok "a schedule file that has them is trained as the plan" '
	pair 1-1-1 1f1b 2bw 4 | jq .agree=true >plan.json
	pd-schedule --minibatches=2 plan.json >schedule.jsonl
	pd-schedule --check schedule.jsonl
	rm -rf ck-a ck-b
	train ck-a schedule.jsonl $sgd --clip-grad-norm=1.5 --synthetic >out
	tail -n 1 out | jq -e ".memory == \"as predicted\""
	train ck-b plan.json $sgd --clip-grad-norm=1.5 --synthetic --minibatches=8 >out
	"$same" "$(at ck-a 8)" "$(at ck-b 8)"
	pair 1-1-1 1f1b 2bw 4 >plain.json
	pd-schedule --minibatches=5 plain.json >plain.jsonl
	status 2 pd-run --clip-grad-norm=1.5 --synthetic plain.jsonl 2>err
	one_line err
	grep "does not have its ranks agree" err'
test_ok "the trace tells when ranks agreed" '
	pair 1-1 1f1b 2bw 2 >plan.json
	pd-run --threads=1 --synthetic --minibatches=8 --clip-grad-norm=1 --trace=trace.jsonl \
		plan.json >out
	[ "$(grep -c "\"op\":\"agree\"" trace.jsonl)" -eq 8 ]
	head -n 1 trace.jsonl | jq -e ".plan.agree"
	pd-replay trace.jsonl >report'

# The comparison can fail.
test_ok "gradients that are not clipped give other weights" '
	pair 1-1-1 1f1b 2bw 4 >plan.json
	trained 20 plan.json $sgd --clip-grad-norm=1.5
	"$serial" $sgd --clip-grad-norm=1.5 --minibatches=20 --mutate=clip --output=serial plan.json
	status 1 "$same" serial "$(at ck 20)"'

while read -r weights; do
	test_ok "$weights: refused" '
		jq ".weights = \"$weights\"" 1-1 >plan.json
		status 2 pd-run --clip-grad-norm=1 --synthetic plan.json 2>err
		one_line err
		grep -e "--clip-grad-norm: a plan with weights \"$weights\"" err
		jq .agree=true plan.json >agree.json
		status 2 pd-schedule agree.json 2>err
		one_line err
		grep "plan: agree: weights \"$weights\"" err'
done <<END
stash
vertical-sync
latest
END
test_ok "malformed" '
	for x in 0 -1 nan inf x ""; do
		status 2 pd-run --clip-grad-norm=$x --synthetic 1-1 2>err
		one_line err
	done
	jq ".agree = 1" 1-1 >plan.json
	status 2 pd-schedule plan.json 2>err
	grep "agree" err'

test_done
