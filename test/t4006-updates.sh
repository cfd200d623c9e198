#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All stages agree on an update.  The weights are, bit for bit, those of test/conform/serial.c, which sees
# the whole network at once.  The norm has the same bits wherever the network is cut.  Agreeing costs 2bw no
# time.  Nothing of it is in schedules where nobody asks for it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json
# plans DIRECTORY SAMPLES: writes plans there for so many samples in a microbatch.
plans() {
	mkdir -p "$1"
	profile residual.json "$2" >"$1/residual"
	for replicas in "1" "1 1" "1 1 1" "1 1 1 1" "2 1" "1 2" "2 2" "3 1"; do
		plan "$1/residual" $replicas >"$1/$(echo "$replicas" | tr ' ' -)"
	done
	pd-plan --topology=4@10Gbit/s --stages=5,5,5,5 "$1/residual" |
		ordered_jq '.stages |= [to_entries[] | .value.ranks = [.key % 2] | .value]' >"$1/chunks"
}
plans . 2
plans single 1          # A large scale makes these gradients infinite.

# An epoch has ten minibatches, and the run goes on into the next.
while read -r schedule weights microbatches plans; do
	for plan in $plans; do
		test_row "$schedule $weights" "$schedule, $weights, $microbatches at a time, $plan: clipped" '
			pair $plan $schedule $weights $microbatches >plan.json
			trained 11 plan.json $sgd --clip-grad-norm=0.5
			jq -e ".skipped == 0 and .grad_norm > 0.5" last
			jq .agree=true plan.json >agree.json
			pd-schedule --check agree.json
			pd-replay agree.json >report'
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
zb-h2 flush 8 1-1-1-1 2-1
interleaved flush 4 chunks
END
test_ok "a stage without parameters" '
	profile "$MODELS/mlp.json" 2 >mlp
	layers=$(jq ".layers | length" mlp)
	pd-plan --topology=3@10Gbit/s --stages=1,1,$((layers - 2)) mlp |
		jq ".weights = \"2bw\" | .microbatches = 2 | del(.stages[].predicted)" >plan.json
	trained 10 plan.json $sgd --clip-grad-norm=0.5'
test_ok "clipped, where works are handed over together" '
	together
	for plan in 1-1-1 2-1; do
		pair $plan 1f1b 2bw 4 >plan.json
		trained 11 plan.json $sgd --clip-grad-norm=0.5 --loss-scale=1024
	done'
test_ok "clipped, adam" '
	pair 1-1-1 1f1b 2bw 4 >plan.json
	trained 11 plan.json --lr=0.001 --optimizer=adam --clip-grad-norm=0.5'
test_ok "clipped, lars, whose norms are those of clipped gradients" '
	pair 1-1-1 1f1b 2bw 4 >plan.json
	trained 11 plan.json --lr=0.5 --optimizer=lars --weight-decay=0.01 --clip-grad-norm=0.5'
# scaled SCHEDULE WEIGHTS MICROBATCHES PLAN SKIPPED OPTION...: checks that so many updates are left out.
scaled() {
	pair single/$4 $1 $2 $3 >plan.json
	skipped=$5
	shift 5
	trained 12 plan.json $sgd "$@"
	jq -e ".skipped == $skipped" last
}
while read -r schedule weights microbatches plan; do
	test_row "scaled $weights" "$schedule, $weights, $microbatches at a time, $plan: loss scales" '
		scaled $schedule $weights $microbatches $plan 0 --loss-scale=1000
		jq -e ".loss_scale == 1000" last
		# Some gradients are too large.
		trained 12 plan.json $sgd --loss-scale=1e38
		jq -e ".loss_scale == 1e38 and .skipped > 0" last
		# The scale halves until all is finite, and grows again.
		trained 12 plan.json $sgd --loss-scale=dynamic --loss-scale-init=8e37 \
			--loss-scale-interval=1
		jq -e ".skipped > 1 and .skipped < 12" last
		trained 12 plan.json $sgd --loss-scale=dynamic --clip-grad-norm=0.5 \
			--loss-scale-interval=2
		jq -e ".skipped == 0 and .loss_scale > 65536" last'
done <<END
1f1b 2bw 2 1-1-1
1f1b 2bw 1 1-1
1f1b 2bw 3 1-1-1-1
1f1b 2bw 2 2-1
1f1b 2bw 2 1-2
1f1b 2bw 2 2-2
1f1b 2bw 3 3-1
1f1b flush 2 1-1
1f1b flush 1 1-1-1-1
gpipe flush 2 2-2
zb-h1 flush 2 1-1-1
interleaved flush 2 chunks
END
test_ok "a limit that no norm reaches changes no bit" '
	pair 1-1-1 1f1b 2bw 4 >plan.json
	rm -rf ck-a ck-b
	train ck-a plan.json $sgd --minibatches=11 --synthetic --no-evaluate >out
	train ck-b plan.json $sgd --minibatches=11 --synthetic --no-evaluate \
		--clip-grad-norm=1e9 >out
	"$same" "$(at ck-a 11)" "$(at ck-b 11)"'

test_ok "the norm has the same bits wherever the network is cut" '
	for plan in 1 1-1 1-1-1 1-1-1-1; do
		pair $plan 1f1b 2bw 4 >plan.json
		pd-run --threads=1 --synthetic --minibatches=11 --no-evaluate $sgd \
			--clip-grad-norm=0.5 plan.json | tail -n 1 | jq .grad_norm
	done >norms
	[ "$(sort -u norms | wc -l)" -eq 1 ]'

# All layers are alike, and messages take next to no time.
test_ok "2bw: agreeing takes no time from the pipeline" '
	for m in 3 6; do
		pair 1-1-1-1 1f1b 2bw $m | jq ".topology.levels[0].latency_ns = 1000 |
			.profile.layers |= map(.forward_ns = 1000000 | .backward_ns = 2000000 |
				.update_ns = 1000 | .update_apart_ns = 1000)" >a.json
		jq .agree=true a.json >b.json
		pd-replay --minibatches=$((60 / m)) a.json >a
		pd-replay --minibatches=$((60 / m)) b.json >b
		grep "in steady state\|over all" a b
		# The agreement takes microseconds, so periods may differ by one part in 10,000.
		for x in a b; do
			pd-replay --format=json --minibatches=$((60 / m)) $x.json | jq .period_ns
		done | paste -s - | tee periods
		awk "{ exit !(NF == 2 && \$1 > 0 && \$2 <= 1.0001 * \$1 && \$1 <= 1.0001 * \$2) }" periods
		# The last update waits for microseconds, which may round to another millisecond.
		cat a b | sed -n "s/.* over all of \([0-9]*\) ms.*/\1/p" | paste -s - |
			awk "{ print; exit !(NF == 2 && \$1 > 500 && \$2 - \$1 <= 1 && \$1 <= \$2) }"
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
	train ck-b plan.json $sgd --clip-grad-norm=1.5 --synthetic --minibatches=2 >out
	"$same" "$(at ck-a 2)" "$(at ck-b 2)"
	pair 1-1-1 1f1b 2bw 4 >plain.json
	pd-schedule --minibatches=5 plain.json >plain.jsonl
	status 2 pd-run --clip-grad-norm=1.5 --synthetic plain.jsonl 2>err
	one_line err
	grep "does not have its ranks agree" err'
test_ok "the trace tells when ranks agreed" '
	pair 1-1 1f1b 2bw 2 >plan.json
	pd-run --threads=1 --synthetic --minibatches=4 --clip-grad-norm=1 --trace=trace.jsonl \
		plan.json >out
	[ "$(grep -c "\"op\":\"agree\"" trace.jsonl)" -eq 8 ]
	head -n 1 trace.jsonl | jq -e ".plan.agree"
	pd-replay trace.jsonl >report'

# The comparison can fail.
while read -r mutation what options; do
	test_row wrong "$(echo $what | tr _ " ") gives other weights" '
		pair 1-1-1 1f1b 2bw 2 >plan.json
		trained 20 plan.json $sgd $options
		"$serial" $sgd $options --minibatches=20 --mutate=$mutation --output=serial plan.json
		status 1 "$same" serial "$(at ck 20)"'
done <<END
clip not_to_clip --clip-grad-norm=0.5
skip not_to_skip --loss-scale=dynamic --loss-scale-init=8e37 --loss-scale-interval=1
scale another_scale --loss-scale=dynamic --loss-scale-init=1e38 --loss-scale-interval=1
unscale not_to_unscale --loss-scale=1000
END

while read -r weights; do
	test_ok "$weights: refused" '
		jq ".weights = \"$weights\"" 1-1 >plan.json
		status 2 pd-run --clip-grad-norm=1 --synthetic plan.json 2>err
		one_line err
		grep -e "--clip-grad-norm: a plan with weights \"$weights\"" err
		jq .agree=true plan.json >agree.json
		status 2 pd-schedule agree.json 2>err
		one_line err
		grep "^pd-schedule: agree.json: agree: weights \"$weights\"" err'
done <<END
stash
vertical-sync
latest
END
test_ok "a constant scale that is a power of two changes no bit" '
	pair 1-1-1 1f1b 2bw 4 >plan.json
	rm -rf ck-a ck-b
	train ck-a plan.json $sgd --minibatches=11 --synthetic --no-evaluate >out
	train ck-b plan.json $sgd --minibatches=11 --synthetic --no-evaluate --loss-scale=1024 >out
	"$same" "$(at ck-a 11)" "$(at ck-b 11)"'
test_ok "adam does not count updates that are left out" '
	pair 1-1-1 1f1b 2bw 2 >plan.json
	trained 20 plan.json --lr=0.001 --optimizer=adam --loss-scale=dynamic \
		--loss-scale-init=8e37 --loss-scale-interval=2
	jq -e ".skipped > 1" last'

# The next runs are stopped inside an epoch and resumed.  The whole folder is compared, with the scales.
idx_data data		# An epoch has 13 minibatches.
while read -r weights plan options; do
	test_row resumed "$weights, $plan, $options: resumed" '
		pair $plan 1f1b $weights 4 >plan.json
		rm -rf ck ck-whole
		train ck-whole plan.json $options --minibatches=16 --data=data --no-evaluate >out
		again=
		for k in 2 6 13 16; do
			train ck plan.json $options --minibatches=$k --data=data --no-evaluate $again >out
			again=--resume
		done
		jq -e ".optimizer.scales[-1].skipped > 0" "$(at ck 16)/checkpoint.json"
		diff -r "$(at ck-whole 16)" "$(at ck 16)"'
done <<END
2bw 1-1-1-1 --loss-scale=dynamic --loss-scale-init=1e38 --loss-scale-interval=3
2bw 2-1 --optimizer=adam --loss-scale=dynamic --loss-scale-init=1e38 --loss-scale-interval=2
flush 1-1-1 --clip-grad-norm=1 --loss-scale=dynamic --loss-scale-init=1e38 --loss-scale-interval=2
END

test_ok "malformed" '
	for x in 0 -1 nan inf x "" dynamics 1e39; do
		status 2 pd-run --loss-scale=$x --synthetic 1-1 2>err
		one_line err
		grep loss-scale err
	done
	for option in init=0 init=x interval=0 interval=1.5; do
		status 2 pd-run --loss-scale=dynamic --loss-scale-$option --synthetic 1-1 2>err
		one_line err
	done
	for option in init=2 interval=3; do
		status 2 pd-run --loss-scale=8 --loss-scale-$option --synthetic 1-1 2>err
		grep "needs --loss-scale=dynamic" err
		status 2 pd-run --loss-scale-$option --synthetic 1-1 2>err
		grep "needs --loss-scale=dynamic" err
	done
	status 2 pd-run --loss-scale=8 --synthetic 1-1 2>err
	grep -e "--loss-scale: a plan with weights" err
	for x in 0 -1 nan inf x ""; do
		status 2 pd-run --clip-grad-norm=$x --synthetic 1-1 2>err
		one_line err
	done
	jq ".agree = 1" 1-1 >plan.json
	status 2 pd-schedule plan.json 2>err
	grep "agree" err'

test_done
