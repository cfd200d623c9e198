#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In every program an update is made of a minibatch, and its microbatches are what travels (pd(7)).  The
# gradient of a minibatch is the mean over its samples; replicas under stash add their minibatches.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# The model has dropout, whose masks are those of the samples, in place of normalisation, and one loss.
jq 'del(.layers[] | select(.name | test("side"))) |
	(.layers[] | select(.name == "norm")) |= (.kind = "dropout" | .p = 0.25)' \
	"$PD_SOURCE/test/data/judged-model.json" >small.json
# made BATCH MICROBATCHES WEIGHTS REPLICAS... >PLAN: plans small.json with these.
made() {
	made_batch=$1 made_m=$2 made_weights=$3
	shift 3
	[ -f "profile-$made_batch" ] || profile small.json "$made_batch" >"profile-$made_batch"
	plan "profile-$made_batch" "$@" | jq --arg weights "$made_weights" --argjson m "$made_m" \
		'.weights = $weights | .microbatches = $m | del(.stages[].predicted, .predicted)'
}
idx_data data		# There are 110 images.

# All plans have the same minibatches of 16 samples: six in an epoch, 14 samples of which are left out.
made 16 1 flush 1 1 >16x1
made 8 2 flush 1 1 >8x2
made 4 4 flush 1 1 >4x4
made 2 8 flush 2 2 >2x8
made 4 4 flush 4 >4x4-data-parallel
made 4 4 2bw 1 >4x4-2bw
made 16 1 2bw 1 >16x1-2bw

# ends PLAN OPTION...: trains nine minibatches into ck-PLAN.
ends() {
	ends_plan=$1
	shift
	rm -rf "ck-$ends_plan"
	train "ck-$ends_plan" "$ends_plan" --minibatches=9 --no-evaluate "$@" >"out-$ends_plan"
}
sgd="--lr=0.2 --momentum=0.9 --weight-decay=0.01 --lr-schedule=cosine --lr-warmup=3"
adam="--optimizer=adam --lr=0.01 --weight-decay=0.01 --lr-schedule=step --lr-step=1"
while read -r what options; do
	test_row rate "a rate keeps its meaning when microbatches change: $(echo $what | tr _ " ")" '
		ends 16x1 $options
		for plan in 8x2 4x4 2x8 4x4-data-parallel; do
			ends $plan $options
			"$same" "$(at ck-16x1 9)" "$(at ck-$plan 9)" 1e-4
			tail -n 1 out-$plan | jq -e ".step == 9"
		done
		ends 16x1-2bw $options
		ends 4x4-2bw $options
		"$same" "$(at ck-16x1-2bw 9)" "$(at ck-4x4-2bw 9)" 1e-4
		status 1 "$same" "$(at ck-16x1 9)" "$(at ck-4x4-2bw 9)" 1e-3'
done <<END
synthetic_data $sgd --synthetic
images $sgd --data=data
clipped $sgd --data=data --clip-grad-norm=0.3
with_a_loss_scale $sgd --data=data --loss-scale=1000 --clip-grad-norm=0.3
adam $adam --data=data
END
test_ok "the loss and the norm that are reported are those of the minibatch" '
	for plan in 16x1 8x2 4x4 2x8 4x4-data-parallel; do
		ends $plan $sgd --data=data --clip-grad-norm=1e9 --report-every=1
		jq -c "select(.event == \"progress\" or .event == \"done\") |
			[.event, .step, .epoch, .loss, select(.event == \"done\").grad_norm]" \
			out-$plan
	done | jq -s -e "length == 50 and (group_by(.[:2]) | length == 10 and all(.[];
		length == 5 and (.[0] as \$first | all(.[]; .[2] == \$first[2] and
			([.[3:], \$first[3:]] | transpose |
			 all(.[]; (.[0] / .[1] - 1 | fabs) < 1e-4))))))"'
test_ok "the comparison can fail: another rate, or gradients that are added" '
	ends 16x1 $sgd --data=data
	ends 4x4 $sgd --lr=0.19 --data=data
	status 1 "$same" "$(at ck-16x1 9)" "$(at ck-4x4 9)" 1e-3
	ends 4x4 $sgd --data=data
	"$serial" $sgd --minibatches=9 --data=data --output=serial 4x4
	"$same" serial "$(at ck-4x4 9)"
	"$serial" $sgd --minibatches=9 --data=data --mutate=mean --output=added 4x4
	status 1 "$same" added "$(at ck-4x4 9)"
	status 1 "$same" added "$(at ck-16x1 9)" 1e-3'
test_ok "where M is a power of two, dividing by it rounds nothing" '
	# Without decay, momentum and clipping this is the sum of gradients at a quarter of the rate.
	ends 4x4 --lr=0.5 --momentum=0 --synthetic
	"$serial" --lr=0.125 --momentum=0 --minibatches=9 --mutate=mean --output=added 4x4
	"$same" added "$(at ck-4x4 9)"'

test_ok "replicas under stash add their minibatches, under flush they are averaged" '
	made 8 1 stash 2 >adds
	made 8 2 flush 2 >averages
	rm -rf ck-adds ck-averages
	train ck-adds adds --lr=0.125 --momentum=0 --minibatches=8 --synthetic >out
	train ck-averages averages --lr=0.25 --momentum=0 --minibatches=4 --synthetic >out
	"$same" "$(at ck-adds 8)" "$(at ck-averages 4)"'

# forwards FILE: prints how many forwards there are on stage 0.
forwards() {
	jq -s "[.[] | select(.op == \"forward\" and .stage == 0 and (.evaluate | not)) |
		(.repeat // 1)] | add" "$1"
}
test_ok "-m 2 of a plan with four microbatches is eight forwards in every program" '
	pd-schedule -m 2 4x4 >schedule.jsonl
	[ "$(forwards schedule.jsonl)" -eq 8 ]
	head -n 1 schedule.jsonl | jq -e ".minibatches == 2"
	pd-replay --format=trace -m 2 4x4 >replayed.jsonl
	[ "$(forwards replayed.jsonl)" -eq 8 ]
	pd-run --threads=1 --synthetic -m 2 --trace=trace.jsonl 4x4 >out
	[ "$(forwards trace.jsonl)" -eq 8 ]
	tail -n 1 out | jq -e ".step == 2"
	rm -rf ck
	train ck schedule.jsonl --synthetic --trace=listed.jsonl >out
	[ -d "$(at ck 2)" ]
	[ "$(forwards listed.jsonl)" -eq 8 ]
	tail -n 1 out | jq -e ".step == 2"
	pd-run --threads=1 --synthetic -m 6 --trace=trace.jsonl 4x4 >out
	pd-replay --format=trace -m 3 trace.jsonl >shown.jsonl
	[ "$(forwards shown.jsonl)" -eq 12 ]
	pd-replay trace.jsonl | grep "6 minibatches of 4 x 4 samples, measured"
	pd-replay -m 2 4x4 | grep "2 minibatches of 4 x 4 samples, simulated"
	pd-replay -m 2 4x4 | grep "^time per microbatch "
	pd-replay -m 2 16x1 | grep "^time per minibatch "
	for program in pd-schedule "pd-replay --format=trace"; do
		$program 4x4 >out                 # It takes whole minibatches, as many as show it well.
		[ $(($(forwards out) % 4)) -eq 0 ]
	done'
test_ok "epochs, reports and checkpoints count minibatches" '
	rm -rf ck
	train ck 4x4 --data=data --epochs=3 --checkpoint-every=4 --keep=9 --report-every=3 >out
	jq -r "select(.event == \"checkpoint\").step" out | sort -n | paste -s -d" " - >steps
	cat steps
	[ "$(cat steps)" = "4 6 10 12 16 18" ]
	jq -c "select(.event == \"progress\") | [.step, .epoch]" out | paste -s -d" " - >reports
	cat reports
	[ "$(cat reports)" = "[3,1] [6,1] [9,2] [12,2] [15,3] [18,3]" ]
	jq -c "select(.event == \"evaluation\") | [.step, .epoch, .samples]" out | paste -s -d" " - >tests
	cat tests
	[ "$(cat tests)" = "[6,1,10] [12,2,10] [18,3,10]" ]
	jq -e ".step == 16 and .epoch == 2 and .minibatch == 4 and .batch_size == 16 and
		.stages[0].versions[-1] == 16" "$(at ck 16)/checkpoint.json"
	rm -rf ck
	train ck 16x1 --data=data --epochs=3 --no-evaluate >out
	tail -n 1 out | jq -e ".step == 18"'

# A run stops only between minibatches.
for plan in 4x4 2x8 4x4-2bw; do
	test_row resumed "$plan, stopped with -m and resumed, inside an epoch and at its end" '
		resumed $plan 15 1 4 6 7 13 -- $sgd --lr-schedule=constant --data=data
		resumed $plan 12 3 6 -- $sgd --lr-schedule=constant --synthetic'
done
test_ok "terminated in the middle and resumed" '
	rm -rf ck ck-whole out
	pd-run --threads=1 --checkpoint=ck --lr=0.01 --data=data --minibatches=1000000 \
		--no-evaluate 4x4 >out &
	until grep -qs checkpoint out; do sleep 0.01; done
	kill -TERM $!
	wait $! || :
	step=$(tail -n 1 out | jq -e "select(.outcome == \"stopped\").step")
	[ -d "$(at ck "$step")" ]
	train ck 4x4 --lr=0.01 --data=data --minibatches=$((step + 8)) --no-evaluate --resume >out
	train ck-whole 4x4 --lr=0.01 --data=data --minibatches=$((step + 8)) --no-evaluate >out
	diff -r "$(at ck-whole $((step + 8)))" "$(at ck $((step + 8)))"'
test_ok "another number of microbatches goes on where minibatches stay as large" '
	rm -rf ck
	ends 16x1 --lr=0.2 --data=data
	train ck 8x2 --lr=0.2 --data=data --minibatches=4 --no-evaluate >out
	train ck 4x4 --lr=0.2 --data=data --minibatches=9 --no-evaluate --resume >out
	"$same" "$(at ck-16x1 9)" "$(at ck 9)" 1e-4
	made 8 4 flush 1 1 >8x4
	status 2 pd-run --checkpoint=ck --resume --synthetic --minibatches=12 8x4 >out 2>err
	one_line err
	grep "trained with minibatches of 16 samples, found a plan for 32 (4 x 8)" err'
test_ok "a stop inside an update of replicas that add is said when the run goes on" '
	made 4 1 stash 2 1 >adds
	rm -rf ck
	train ck adds --synthetic --minibatches=5 >out 2>err
	[ ! -s err ]
	train ck adds --synthetic --minibatches=8 --resume >out 2>err
	grep "step 5 is inside an update" err
	train ck adds --synthetic --minibatches=13 --resume >out 2>err
	! grep "inside an update" err || false'
test_ok "too few samples for a minibatch" '
	made 16 8 flush 1 >16x8
	status 2 pd-run --data=data 16x8 >out 2>err
	one_line err
	grep "110 samples are fewer than one minibatch of 128" err'

test_done
