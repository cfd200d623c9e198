#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Replays, plans and runs report the sums among replicas: bytes, messages, and the time for which nothing is
# computed.  They also say what other sums would do.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
command -v jq >/dev/null || test_skip_all "jq is not installed"

# Three layers take 3 ms and have a megabyte each, on links of 250 MB/s.
jq -n '{format: "pd-profile", version: 1, name: "three", batch_size: 1, device: {kind: "cpu"},
	layers: [{name: "a", inputs: []}, {name: "b", inputs: ["a"]}, {name: "c", inputs: ["b"]} |
		. + {forward_ns: 1000000, backward_ns: 2000000, activation_bytes: 64,
		parameter_bytes: 1000000, stash_bytes: 64, workspace_bytes: 0}]}' >three
pd-plan --topology=4@250MB/s --stages=3x4 three >plan.json
# says BYTES MESSAGES MS OPTION...: checks what a replay of plan.json says of a replica and update.
says() {
	says_bytes=$1 says_messages=$2 says_ms=$3
	shift 3
	pd-replay --format=json "$@" plan.json >report.json
	jq -c '.stages[0] | [.reducer, .gradient_dtype, .sent_bytes, .messages, .exposed_ns]' report.json
	jq -e --argjson bytes "$says_bytes" --argjson messages "$says_messages" \
		--argjson ms "$says_ms" '.stages[0] | .sent_bytes == $bytes and
		.messages == $messages and (.exposed_ns / 1e6 - $ms | fabs) < 0.01' report.json
}
test_ok "dense: each sends its parts of three others' pieces and the sum of its own to three, in two parts" '
	says 4500000 12 18'
test_ok "a ring: 2 (n - 1) pieces to the next, in two parts" 'says 4500000 12 18 --all-reduce=ring'
test_ok "NCCL decides by itself: as a ring" 'says 4500000 12 18 --all-reduce=nccl'
test_ok "recursive doubling: all of it to two" 'says 6000000 2 24 --all-reduce=recursive-doubling'
test_ok "hierarchical: two on each of two hosts, along chains of 11 pieces and a ring of two in five parts" '
	says 4500000 16 36 --all-reduce=hierarchical --topology=2@250MB/s,2@250MB/s'
test_ok "in 16 bits" '
	says 2250000 12 9 --gradient-dtype=bf16
	says 3000000 12 12 --gradient-dtype=f16 --all-reduce=ring
	says 4500000 2 18 --gradient-dtype=f16 --all-reduce=recursive-doubling'
test_ok "in buckets, under backward: exposed is what is left of it, all but 9 ms of an update" '
	for type in f32 bf16; do
		pd-replay -t 4@500MB/s --format=json --bucket=1 --gradient-dtype=$type plan.json >report.json
		jq -e ".stages[0].messages == 18 and .stages[0].exposed_ns < 8e6 and
			(.period_ns * 4 - 9e6 - .stages[0].exposed_ns | fabs) < 10000" report.json
	done'
test_ok "what if is what a plan that has it does" '
	pd-replay --all-reduce=ring --gradient-dtype=bf16 -f text plan.json >1
	jq ".reducer = \"ring\" | .gradient_dtype = \"bf16\"" plan.json | pd-replay -f text >2
	cmp 1 2'
test_ok "what is none is refused" '
	status 2 pd-replay --all-reduce=tree plan.json 2>err && one_line err
	grep "^pd-replay: --all-reduce: expected one of dense, .*, found \"tree\"" err
	status 2 pd-replay --gradient-dtype=i32 plan.json 2>err && one_line err
	grep "^pd-replay: --gradient-dtype: expected one of f32, bf16, f16, found \"i32\"" err'
test_ok "NCCL sums f32 alone" '
	pd-plan --topology=4@250MB/s --stages=3x4 --all-reduce=nccl three >nccl.json
	jq -e ".reducer == \"nccl\" and .predicted.gap >= 0" nccl.json
	status 2 pd-plan --topology=4@250MB/s --all-reduce=nccl --gradient-dtype=f16 three 2>err
	one_line err
	grep "^pd-plan: --gradient-dtype: expected f32 with --all-reduce=nccl, found f16" err
	status 2 pd-replay --gradient-dtype=bf16 nccl.json 2>err && one_line err
	grep "^pd-replay: --gradient-dtype: expected f32 with --all-reduce=nccl, found bf16" err
	jq ".gradient_dtype = \"bf16\"" nccl.json >plan-16.json
	status 2 pd-replay plan-16.json 2>err && one_line err
	grep "gradient_dtype: expected \"f32\" with reducer \"nccl\", found \"bf16\"" err'
test_ok "the report, and pd-plan --explain, say the same" '
	pd-replay plan.json >out
	pd-plan --topology=4@250MB/s --stages=3x4 --explain three 2>why >plan.json
	grep -A 2 "^all-reduce of a replica.s update, dense, f32$" out >1
	grep -A 2 "^all-reduce of a replica.s update, dense, f32$" why >2
	grep -E "^stage 0 +1 +4.5 MB +12 +18 ms$" 1
	cmp 1 2'
test_ok "a stage without replicas has no sums" '
	pd-plan --topology=3@250MB/s --straight --explain three 2>why >straight.json
	if grep "all-reduce of" why; then false; fi
	pd-replay straight.json >out
	if grep "all-reduce of" out; then false; fi
	pd-replay --format=json straight.json | jq -e ".stages | all(.exposed_ns == null)"'
test_ok "a trace has it, and is read" '
	pd-replay --format=trace plan.json >trace.jsonl
	pd-replay --format=json trace.jsonl | jq -c ".stages[0] | [.sent_bytes, .messages]" >1
	pd-replay --format=json plan.json | jq -c ".stages[0] | [.sent_bytes, .messages]" >2
	cmp 1 2'
test_ok "a run sends what its plan says" '
	pd-profile --device=cpu --iterations=1 --no-link --threads=1 --batch-size=2 \
		"$PD_SOURCE/share/models/lenet5.json" >profile
	pd-plan --topology=3@10Gbit/s --stages="$(jq ".layers | length" profile)x3" \
		--gradient-dtype=bf16 --bucket=100kB profile >run.json
	pd-run --threads=1 --synthetic=24 --minibatches=24 --no-evaluate --trace=run.jsonl run.json >out
	pd-replay --format=json run.jsonl | jq -c ".stages[0] | [.sent_bytes, .messages]" >1
	pd-replay --minibatches=24 --format=json run.json | jq -c ".stages[0] | [.sent_bytes, .messages]" >2
	cat 1 2
	cmp 1 2
	pd-replay --format=json run.jsonl | jq -e ".stages[0].exposed_ns >= 0"'
test_ok "processors have no NCCL: one sentence, before anything is trained" '
	jq "del(.gradient_dtype) | .reducer = \"nccl\"" run.json >plan.json
	status 2 pd-run --device=cpu --threads=1 --synthetic --minibatches=4 plan.json >out 2>err
	one_line err && [ ! -s out ]
	grep "^pd-run: .*the plan.s reducer \"nccl\" needs GPUs that NCCL joins: expected --device=cuda" err'
test_done
