#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gradients travel in several buckets while backward goes on.  The weights are, bit for bit, those with one
# bucket, and those of test/conform/serial.c.  The memory is as predicted, and replays show the time that is
# gained.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_plans 2 "" "3" "2 1" "1 2" "2 2"
layers=$(jq ".layers | length" residual)
pd-plan --topology=2@10GB/s,2@1Gbit/s --stages="${layers}x4" residual >servers
pd-plan --topology=4@10Gbit/s --stages=5,5,5,5 residual |
	jq '.topology.levels[0].count = 8 | .stages |= [to_entries[] | .value.replicas = 2 |
		.value.ranks = [.key % 2, .key % 2 + 2] | .value]' >chunks

# bucketed PLAN SCHEDULE WEIGHTS MICROBATCHES BYTES: prints that plan; 0 bytes give one bucket.
bucketed() {
	jq --arg schedule "$2" --arg weights "$3" --argjson m "$4" --argjson bytes "$5" '
		.schedule = $schedule | .weights = $weights | .microbatches = $m |
		if $bytes > 0 then .bucket_bytes = $bytes else . end | del(.stages[].predicted)' "$1"
}

# alike N PLAN SCHEDULE WEIGHTS MICROBATCHES OPTION...: compares N minibatches with one bucket, with one for
# each layer, and with some.
alike() {
	alike_n=$1
	bucketed "$2" "$3" "$4" "$5" 0 >one.json
	bucketed "$2" "$3" "$4" "$5" 1 >each.json
	bucketed "$2" "$3" "$4" "$5" 1200 >some.json
	shift 5
	"$serial" $sgd "$@" --minibatches="$alike_n" --output=serial one.json
	for alike_plan in one each some; do
		rm -rf "ck-$alike_plan"
		pd-schedule --check --minibatches="$alike_n" "$alike_plan.json"
		train "ck-$alike_plan" "$alike_plan.json" $sgd "$@" --minibatches="$alike_n" \
			--synthetic --no-evaluate --trace="$alike_plan.jsonl" >out
		tail -n 1 out | jq -e '.memory == "as predicted"'
		"$same" serial "$(at "ck-$alike_plan" "$alike_n")"
	done
	diff -r "$(at ck-one "$alike_n")" "$(at ck-each "$alike_n")"
	diff -r "$(at ck-one "$alike_n")" "$(at ck-some "$alike_n")"
	[ "$(grep -c bucket one.jsonl)" = 0 ]
	grep -q "\"allreduce\".*\"bucket\":2" each.jsonl
	grep -q "\"allreduce\".*\"bucket\":2" some.jsonl
}

test_row stash "three replicas" 'alike 14 3 1f1b stash 1'
test_row stash "two replicas before one" 'alike 13 2-1 1f1b stash 1'
test_row stash "one before two" 'alike 13 1-2 1f1b stash 1'
test_row stash "two before two, several microbatches" 'alike 5 2-2 1f1b stash 4'
test_row stash "four on two servers, whose sums go from one to the other" 'alike 9 servers 1f1b stash 1'
test_row flush "flush" 'alike 5 2-1 1f1b flush 4'
test_row flush "gpipe" 'alike 5 2-2 gpipe flush 4'
test_row flush "zb-h1: the gradients of weights in parts" 'alike 5 2-2 zb-h1 flush 4'
test_row flush "interleaved: two stages on each of four ranks" 'alike 4 chunks interleaved flush 4'
test_row 2bw "2bw" 'alike 5 2-1 1f1b 2bw 4'
test_row 2bw "2bw, all ranks agree on updates" 'alike 5 2-1 1f1b 2bw 4 --clip-grad-norm=0.5'
test_row latest "latest" 'alike 9 2-1 1f1b latest 1'

# Large buckets, which both ranks add in each other's memory, alternate with small ones, which travel as
# messages.  The two ranks once waited for each other for ever, in about every second run: one had begun a
# large bucket that the other could not begin before a small one ended.
test_full "more buckets than a rank begins at once, of all sizes" '
	pd-model resnext --layers=50 --width=1 --groups=4 --size=32 --classes=10 >resnext.json
	profile resnext.json 2 >resnext
	pd-plan --topology=2@10Gbit/s --stages="$(jq ".layers | length" resnext)x2" --bucket=1 resnext >plan.json
	for run in 1 2 3 4; do
		as_predicted --minibatches=3 --no-evaluate --timeout=30
	done'
test_ok "resumed in the middle of an epoch" '
	bucketed 2-1 1f1b stash 1 1200 >plan.json
	resumed plan.json 13 4 10 -- $sgd --synthetic'
test_ok "resumed from one bucket to several" '
	bucketed 2-1 1f1b 2bw 4 0 >one.json
	bucketed 2-1 1f1b 2bw 4 1200 >some.json
	rm -rf ck-one ck-some
	train ck-one one.json $sgd --minibatches=6 --synthetic --no-evaluate >out
	train ck-some one.json $sgd --minibatches=3 --synthetic --no-evaluate >out
	train ck-some some.json $sgd --minibatches=6 --synthetic --no-evaluate --resume >out
	diff -r "$(at ck-one 6)" "$(at ck-some 6)"'

# reduced NAME BYTES CHECKPOINT: trains nine minibatches of four replicas with that reducer.
reduced() {
	jq --arg name "$1" ".reducer = \$name" 4 >plan.json
	bucketed plan.json 1f1b stash 1 "$2" >named.json
	rm -rf "$3"
	pd-schedule --check --minibatches=9 named.json
	train "$3" named.json $sgd --minibatches=9 --synthetic --no-evaluate >out
	tail -n 1 out >last
	jq -e ".memory == \"as predicted\"" last
}
# near A B: checks that the losses of two last lines are about equal.
near() { jq -e -n "($(jq .loss "$1") - $(jq .loss "$2")) | fabs < 1e-3"; }
plan residual 4 >4
test_full "recursive doubling: in its own order, which is that of two replicas, in any buckets" '
	reduced dense 0 ck-dense
	mv last last-dense
	reduced recursive-doubling 0 ck-one
	near last last-dense
	reduced recursive-doubling 1200 ck-some
	diff -r "$(at ck-one 9)" "$(at ck-some 9)"
	if diff -r "$(at ck-one 9)" "$(at ck-dense 9)"; then false; fi
	bucketed 2-1 1f1b stash 1 1200 | jq ".reducer = \"recursive-doubling\"" >plan.json
	trained 13 plan.json $sgd'
test_ok "a ring: each run the same, near the ordered sums" '
	reduced dense 0 ck-dense
	mv last last-dense
	reduced ring 1200 ck-one
	near last last-dense
	reduced ring 1200 ck-some
	diff -r "$(at ck-one 9)" "$(at ck-some 9)"
	if diff -r "$(at ck-one 9)" "$(at ck-dense 9)"; then false; fi'
test_full "hierarchical on two servers: in its own order, the same in any buckets" '
	reduced dense 0 ck-dense
	mv last last-dense
	cp 4 flat
	cp servers 4
	reduced hierarchical 0 ck-one
	near last last-dense
	reduced hierarchical 1200 ck-some
	cp flat 4
	diff -r "$(at ck-one 9)" "$(at ck-some 9)"
	if diff -r "$(at ck-one 9)" "$(at ck-dense 9)"; then false; fi'
test_ok "a reducer that is none" '
	jq ".reducer = \"tree\"" 4 >plan.json
	if pd-schedule --check plan.json 2>why; then false; fi
	grep "reducer" why | grep "recursive-doubling"
	if pd-plan --all-reduce=tree --topology=2@1GB/s residual 2>why; then false; fi
	grep "^pd-plan: --all-reduce: expected one of dense, ring" why'
test_ok "pd-plan --bucket: the plan says so, and has the memory of it" '
	plan_with="--bucket=1200"
	plan residual 2 1 >plan.json
	plan_with=
	[ "$(jq .bucket_bytes plan.json)" = 1200 ]
	as_predicted --minibatches=2 --no-evaluate
	as_planned'
test_ok "what is no number of bytes is refused" '
	for bytes in 0 -1 many 1.5.2 ""; do
		! pd-plan --topology=2@1GB/s --straight "--bucket=$bytes" residual 2>why
		grep -q "^pd-plan: --bucket: expected" why
	done'

# The stage has three layers, each with 1 ms forward, 2 ms backward and a megabyte, which two replicas sum
# over their link in 4 ms.
jq -n '{format: "pd-profile", version: 1, name: "three", batch_size: 1, device: {kind: "cpu"},
	layers: [{name: "a", inputs: []}, {name: "b", inputs: ["a"]}, {name: "c", inputs: ["b"]} |
		. + {forward_ns: 1000000, backward_ns: 2000000, activation_bytes: 64,
		parameter_bytes: 1000000, stash_bytes: 64, workspace_bytes: 0}]}' >three
pd-plan --topology=2@250MB/s --stages=3x2 three | jq 'del(.stages[].predicted)' >one.json
# takes BYTES MS: checks that an update of two minibatches takes so long with buckets of so many bytes.
takes() {
	jq --argjson bytes "$1" 'if $bytes > 0 then .bucket_bytes = $bytes else . end' one.json >plan.json
	pd-replay --format=json plan.json >report.json
	jq -c '.period_ns' report.json
	jq -e --argjson ms "$2" '(.period_ns * 2 / 1e6 | . * 1000 | round) == $ms * 1000' report.json
}
test_ok "a replay: with one bucket the sum of 12 ms is behind 9 ms of computing" 'takes 0 21'
test_ok "with three the first begins after 5 ms" 'takes 1 17'
test_ok "a bucket is closed above the threshold, not at it: two layers, one" 'takes 1000000 19'
test_ok "the same as a what-if" '
	pd-replay --bucket=1000000 --format=json one.json |
		jq -e "(.period_ns * 2 / 1000 | round) == 19000"'
test_ok "auto: the fastest, as few sums as that takes, and what pd-replay says of it" '
	pd-plan --topology=2@250MB/s --stages=3x2 --bucket=auto --explain three >plan.json 2>why
	jq -e ".bucket_bytes == 750000 and (.predicted.period_ns / 1000 | round) == 8500" plan.json
	[ "$(pd-replay --format=json plan.json | jq ".period_ns | ceil")" = \
	  "$(jq .predicted.period_ns plan.json)" ]
	grep -E "^one of a stage +1 +10.5 ms$" why
	grep -E "^1.5 MB +2 +9.5 ms$" why
	grep -E "^750 kB +3 +8.5 ms +\(the plan.s\)$" why'
test_ok "auto: one bucket where more are no faster" '
	jq "(.layers[1, 2] | .parameter_bytes) = 400" three >first
	pd-plan --topology=2@25GB/s --stages=3x2 --bucket=auto --explain first >plan.json 2>why
	jq -e ".bucket_bytes == null" plan.json'
test_ok "--explain shows what others would have taken, too; without auto no table of one bucket" '
	grep -E "^one of a stage +1 +[0-9.]+ ms +\(the plan.s\)$" why
	grep -E "^488 B +2 +[0-9.]+ ms$" why
	grep -E "^244 B +3 +[0-9.]+ ms$" why
	pd-plan --topology=2@25GB/s --stages=3x2 --explain first 2>why >plan.json
	! grep "buckets above" why'
test_ok "buckets of links with a long latency: all of them are on their way at once" '
	pd-plan --topology=2@25GB/s+100ms --stages=3x2 three >one.json
	pd-replay --format=json one.json | jq .period_ns >1
	pd-replay --format=json --bucket=1 one.json | jq .period_ns >3
	jq -n -e "$(cat 3) <= 1.02 * $(cat 1)"'
test_ok "searches know of it: data parallelism where its sums are under backward" '
	jq "(.layers[] | .parameter_bytes) = 300000 | (.layers[] | .activation_bytes) = 2000000" three >wide
	pd-plan --topology=2@250MB/s wide >one.json
	pd-plan --topology=2@250MB/s --bucket=1 wide >plan.json
	jq -e ".stages[0].replicas == 2" plan.json
	jq -e --slurpfile one one.json ".predicted | .period_ns < \$one[0].predicted.period_ns and
		.lower_bound_ns <= .period_ns" plan.json'
test_ok "--all-reduce: what it does to the plan, auto what is fastest" '
	for name in dense ring hierarchical recursive-doubling auto; do
		pd-plan --topology=4@250MB/s+1ms --stages=3x4 --all-reduce=$name three >$name.json
		jq -e ".predicted | .gap >= 0 and .period_ns >= .lower_bound_ns" $name.json
		[ "$(pd-replay --format=json $name.json | jq ".period_ns | ceil")" = \
		  "$(jq .predicted.period_ns $name.json)" ]
	done
	jq -e .reducer\ ==\ \"ring\" ring.json
	jq -e "(.predicted.period_ns) as \$p | [inputs.predicted.period_ns] | all(. >= \$p)" \
		auto.json dense.json ring.json hierarchical.json recursive-doubling.json'
test_ok "--explain: what each reducer is expected to do; the limit is what a replay shows" '
	machine=4@250MB/s,4@100MB/s+1ms
	pd-plan --topology=$machine --stages=3x16 --all-reduce=auto --explain three 2>why >plan.json
	cat why
	for name in dense ring hierarchical recursive-doubling; do
		pd-plan --topology=$machine --stages=3x16 --all-reduce=$name --explain three 2>one >named.json
		grep -E "^$name +one of a stage +$(sed -n "s/^period: \([^ ]* [^ ]*\) .*/\1/p" one)( |$)" why
		grep -E "^limit: .* \(([0-9]{2}|100)% of the period\)" one
	done
	grep -E "^$(jq -r ".reducer // \"dense\"" plan.json) .* \(the plan.s\)$" why
	pd-plan --topology=2@250MB/s --stages=3x2 --all-reduce=auto --bucket=auto --explain three 2>why >plan.json
	cat why
	grep -E "^$(jq -r ".reducer // \"dense\"" plan.json) +750 kB +8.5 ms +\(the plan.s\)$" why'
test_ok "hierarchical: eight on each of four servers, whose links carry little more than all once each way" '
	pd-plan --topology=8@10GB/s,4@1GB/s+1ms --stages=3x32 --all-reduce=hierarchical three >plan.json
	pd-plan --topology=8@10GB/s,4@1GB/s+1ms --stages=3x32 --all-reduce=ring three >ring.json
	jq -e ".predicted | .gap >= 0 and .period_ns >= .lower_bound_ns" plan.json
	jq -e --slurpfile ring ring.json ".predicted.period_ns * 1.4 < \$ring[0].predicted.period_ns" plan.json
	jq -e "(.predicted.period_ns * 32 - 9e6 - .stages[0].predicted.allreduce_ns | fabs) < 5e5" plan.json'
test_ok "--explain: the way of a minibatch has the all-reduce of a replay, too" '
	jq "(.layers[] | .parameter_bytes) = 64" three >short
	pd-plan --topology=4@1GB/s,4@1GB/s+10ms --stages=1x8,1x7,1x1 --all-reduce=ring --explain short 2>why >plan.json
	grep "^limit: " why
	grep -qE "^limit: .* \(([0-9]{2}|100)% of the period\)" why'
test_ok "auto: a ring that is about as fast as dense sums; these where it is not" '
	# auto TOPOLOGY REPLICAS: prints the reducer, and its period over that of dense sums.
	auto() {
		pd-plan --topology="$1" --stages="3x$2" --all-reduce=dense three >dense.json
		pd-plan --topology="$1" --stages="3x$2" --all-reduce=auto three >auto.json
		jq -c --slurpfile dense dense.json "[(.reducer // \"dense\"), .predicted.period_ns /
			\$dense[0].predicted.period_ns]" auto.json | tee choice
	}
	auto 8@250MB/s+20us 8
	jq -e ".[0] == \"ring\" and .[1] > 1 and .[1] < 1.05" choice
	auto 8@250MB/s+1ms 8
	jq -e ".[0] == \"dense\"" choice'
test_ok "auto: few bytes among many over long links: recursive doubling has the fewest steps" '
	jq "(.layers[] | .parameter_bytes) = 64" three >short
	pd-plan --topology=33@1GB/s+10ms --stages=3x16 --all-reduce=auto short >plan.json
	pd-plan --topology=33@1GB/s+10ms --stages=3x16 --all-reduce=ring short >ring.json
	jq .reducer plan.json
	jq -e "(.predicted.period_ns) as \$p | [inputs.predicted.period_ns] | all(. > \$p)" \
		plan.json ring.json'
test_done
