#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans, predictions, replays and reports know sparse sums, and refuse what does not go with them.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# The stage has three layers, each with 1 ms forward, 2 ms backward and 250,000 gradients.  They make 24
# chunks of 32,000 and less, and two replicas sum a layer over their link in 4 ms.
jq -n '{format: "pd-profile", version: 1, name: "three", batch_size: 1, device: {kind: "cpu"},
	layers: [{name: "a", inputs: []}, {name: "b", inputs: ["a"]}, {name: "c", inputs: ["b"]} |
		. + {forward_ns: 1000000, backward_ns: 2000000, activation_bytes: 64,
		parameter_bytes: 1000000, stash_bytes: 64, workspace_bytes: 0}]}' >three
# planned OPTION...: plans the three layers for two replicas.
planned() { pd-plan --topology=2@250MB/s --stages=3x2 "$@" three >plan.json; }
# takes US OPTION...: checks by a replay that an update of two minibatches takes so many microseconds.
takes() {
	takes_us=$1
	shift
	pd-replay --format=json "$@" >report.json
	jq -c '.period_ns * 2 / 1000' report.json
	jq -e --argjson us "$takes_us" '(.period_ns * 2 / 1000 - $us) | fabs < 1' report.json
}

test_ok "pd-plan writes what was asked for; chunks of 32000 where nothing is said" '
	planned --sparsity=0.5
	jq -e ".sparse == {sparsity: 0.5, chunk: 32000, warmup: 0}" plan.json
	planned --sparsity=0.5 --chunk=1000 --sparsity-warmup=7
	jq -e ".sparse == {sparsity: 0.5, chunk: 1000, warmup: 7}" plan.json
	planned
	jq -e ".sparse == null" plan.json'
test_ok "12 of 24 chunks: 1.536 MB in 6.144 ms behind 9 ms of computing, where all take 12" '
	planned
	takes 21000 plan.json
	takes 15144 --sparsity=0.5 plan.json
	planned --sparsity=0.5
	takes 15144 plan.json
	takes 21000 --sparsity=0 plan.json
	takes 11048 --sparsity=0.85 plan.json'
test_ok "a prediction is that behind the warm-up, and what a replay says" '
	for warmup in 0 1000; do
		planned --sparsity=0.5 --sparsity-warmup=$warmup
		takes 15144 plan.json
		[ "$(jq ".period_ns | ceil" report.json)" = "$(jq .predicted.period_ns plan.json)" ]
		jq -e ".predicted | .gap >= 0 and .period_ns >= .lower_bound_ns" plan.json
	done'
test_ok "in buckets they are under backward" '
	planned --sparsity=0.5 --bucket=1000000
	takes 11144 plan.json || takes 11048 plan.json || jq -e ".period_ns * 2 < 15000000" report.json'
test_ok "a search finds what travels: with six devices replicas are faster than a device for each layer" '
	pd-plan --topology=6@250MB/s three | jq -e ".predicted.period_ns == 3000000"
	for bucket in "" --bucket=1; do
		pd-plan --topology=6@250MB/s --stages=3x6 --sparsity=0.85 $bucket three >hand.json
		pd-plan --topology=6@250MB/s --sparsity=0.85 $bucket three >plan.json
		jq -c ".predicted | [.period_ns, .lower_bound_ns]" hand.json plan.json
		jq -e --slurpfile hand hand.json ".predicted.period_ns <= \$hand[0].predicted.period_ns" plan.json
	done'
test_ok "replicas without parameters have no chunks, and wait for nobody" '
	jq "del(.layers[].parameter_bytes) | .layers[].parameter_bytes = 0" three |
		pd-plan --topology=2@250MB/s --stages=3x2 --sparsity=0.5 - | pd-replay --format=json |
		jq -e ".period_ns == 4500000"'
test_ok "reports have the bytes: of a sum, and of the norms" '
	planned --sparsity=0.85
	pd-replay --format=json --minibatches=20 plan.json >report.json
	jq -e ".stages[0] | .allreduce_bytes == 512000 and .sent_bytes == 512000 and
		.norm_bytes == 20 * 24 * 4" report.json
	pd-replay --minibatches=20 plan.json >report
	grep -E "^all-reduce, stage 0 of 2 ranks +512 kB" report
	grep -E "^norms, stage 0 +96 B" report'
test_ok "pd-plan --explain says what is sent, as the report does: sums, and the norms behind them" '
	pd-plan --topology=2@250MB/s --stages=3x2 --sparsity=0.5 --explain three 2>why >plan.json
	pd-replay plan.json >report
	for out in why report; do
		grep -A 3 "^all-reduce of a replica.s update, dense, f32, sparsity 0.5$" $out >$out.sums
		grep -E "^stage 0 +1 +1.54 MB +4 +6.14 ms$" $out.sums
		grep -E "^  norms +96 B +2$" $out.sums
	done
	cmp why.sums report.sums'
test_ok "at least six times fewer bytes at 85 %" '
	planned
	pd-replay --format=json plan.json | jq ".stages[0].allreduce_bytes" >dense
	planned --sparsity=0.85 --chunk=1000
	pd-replay --format=json plan.json |
		jq -e --argjson dense "$(cat dense)" ".stages[0].allreduce_bytes * 6 <= \$dense"'
test_ok "schedules have the norms, and the checker misses them" '
	planned --sparsity=0.5
	pd-schedule --minibatches=4 plan.json >schedule.jsonl
	[ "$(grep -c "\"op\":\"norms\"" schedule.jsonl)" = 4 ]
	pd-schedule --check schedule.jsonl
	awk "!/\"norms\"/ || n++" schedule.jsonl >without.jsonl
	if pd-schedule --check without.jsonl 2>why; then false; fi
	grep "norms" why'

residual_model >residual.json
profile residual.json 2 >residual
plan_with="--sparsity=0.5 --chunk=300"
plan residual 2 1 >plan.json
# refused WORD PROGRAM ARGUMENT...: checks that it ends with status 2 and a sentence that has the word.
refused() {
	word=$1
	shift
	status=0
	"$@" >/dev/null 2>why || status=$?
	cat why
	[ "$status" = 2 ] && [ "$(wc -l <why)" = 1 ] && grep -q -e "$word" why
}
run="pd-run --synthetic --minibatches=3"
test_ok "what sparse sums are not made for is refused" '
	refused "--optimizer=adam" $run --optimizer=adam plan.json
	refused "--optimizer=lars" $run --optimizer=lars plan.json
	refused "--momentum=0" $run --momentum=0 plan.json
	jq ".weights = \"latest\"" plan.json >other.json
	refused "--discrepancy" $run --discrepancy=0.1 other.json
	jq ".weights = \"2bw\" | .microbatches = 4" plan.json >other.json
	refused "--clip-grad-norm" $run --clip-grad-norm=1 other.json
	jq "del(.sparse)" plan.json >other.json
	refused "--residual" $run --residual=1 other.json
	refused "agree" pd-plan --topology=2@1GB/s --weights=2bw --agree --sparsity=0.5 residual
	refused "--chunk" pd-plan --topology=2@1GB/s --chunk=100 residual
	refused "sparsity-warmup" pd-plan --topology=2@1GB/s --sparsity-warmup=100 residual'
test_ok "documents that say it wrong are refused" '
	for edit in ".sparsity = 1" ".sparsity = -0.1" "del(.sparsity)" "del(.chunk)" ".chunk = 0" ".part = 1" \
		".warmup = -1"; do
		jq ".sparse |= ($edit)" plan.json >other.json
		refused "sparse" $run other.json
	done'
test_done
