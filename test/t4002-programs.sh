#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One pipe leads from a model to a trained network.  These tests check what a run reports, what a trace
# says, and what workers do that have nothing to do.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# reports FILE N: checks that it has lines of JSON with the documented events, which end after N
# minibatches.
reports() {
	cat "$1"
	jq -se --argjson n "$2" '
		all(.[]; .event | IN("progress", "evaluation", "checkpoint", "done")) and
		all(.[] | select(.event == "progress");
		    (.step | type == "number") and .epoch >= 1 and has("loss") and
		    .accuracy >= 0 and .samples_per_s > 0) and
		(map(select(.event == "progress")) | last.step == $n) and
		(last | .event == "done" and .outcome == "done" and .step == $n) and
		(map(select(.event == "done")) | length == 1)' "$1" >/dev/null
}

cat >six.json <<'END'
{"format": "pd-model", "version": 1, "name": "six",
 "inputs": [{"name": "a", "dtype": "f32", "shape": [3]},
            {"name": "b", "dtype": "f32", "shape": [3]},
            {"name": "c", "dtype": "f32", "shape": [3]},
            {"name": "d", "dtype": "f32", "shape": [3]},
            {"name": "e", "dtype": "f32", "shape": [3]},
            {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "all", "kind": "concat", "inputs": ["a", "b", "c", "d", "e"]},
  {"name": "fc", "kind": "linear", "inputs": ["all"], "out_features": 10},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["fc", "label"]}]}
END
test_ok "a network, and a stage, of more inputs than most have" '
	profile six.json 4 >six && plan six 1 >one && plan six 1 1 >two
	pd-run --synthetic --minibatches=2 one >out.one && reports out.one 2
	pd-run --synthetic --minibatches=2 two >out.two && reports out.two 2
	[ "$(jq -s ".[0].loss" out.one)" = "$(jq -s ".[0].loss" out.two)" ]'

test_ok "the link and what an operation costs are measured" '
	pd-profile --threads=1 --batch-size=8 --iterations=1 "$MODELS/mlp.json" >whole
	jq -e ".link.bandwidth_bytes_per_s > 0 and .device.operation_ns > 0 and
		.device.operation_ns < 10000000" whole &&
	pd-plan --gpus=2 --processors=2 whole | jq -e --slurpfile from whole \
		".profile.device.operation_ns == \$from[0].device.operation_ns" &&
	jq ".device.operation_ns = -1" whole >bad && status 2 pd-plan --gpus=2 bad 2>err &&
	one_line err && grep -q "device.operation_ns: .*found -1" err'
test_ok "places where nothing can be written are refused before anything is trained" '
	pd-profile --no-link --threads=1 --batch-size=8 --iterations=1 "$MODELS/mlp.json" |
		pd-plan -t 1@1GB/s >one
	: >file
	status 2 pd-run --synthetic --checkpoint=file one >out 2>err && one_line err && [ ! -s out ]
	grep -q "^pd-run: --checkpoint: file: expected a directory, found a file" err
	mkdir folder
	status 2 pd-run --synthetic --trace=folder one >out 2>err && one_line err && [ ! -s out ]
	grep -q "^pd-run: --trace: folder: expected a file, found a directory" err
	[ -z "$(ls folder.* 2>/dev/null)" ]'
# Workers sum in each other's memory from 65,536 numbers on, of which lenet5 has so many only where a processor's
# blocks of 16 pad them.
if [ "$(nproc)" -ge 2 ]; then
	test_ok "a worker is timed beside another, of which nothing is left" '
		pd-profile --workers=2 --threads=1 --no-link --batch-size=8 --iterations=2 \
			"$MODELS/fashion-cnn.json" >beside
		jq -e ".device | .workers == 2 and .threads == 1 and .sum_bytes_per_s > 0 and
			.round_bytes_per_s > 0 and .mixed_sum_bytes_per_s > 0 and
			(.in_step | .forward > 0 and .backward > 0 and .update > 0 and .slowest_ns > 0 and
				.sum_bytes_per_s > 0)" beside
		pd-plan -t 2@1GB/s --stages=15x2 beside | jq .profile.device.in_step >again
		jq .device.in_step beside | cmp again'
else
	test_skip "a worker is timed beside another" "one processor"
fi
test_ok "more workers than processors are refused" '
	status 2 pd-profile --workers=4096 --threads=1 "$MODELS/lenet5.json" 2>err
	one_line err && grep -q "^pd-profile: --workers=4096: 1 threads each" err'

profile "$MODELS/fashion-cnn.json" 64 >cnn
pd-plan --topology=2@10Gbit/s --stages=5x1,10x1 cnn >plan.json
test_ok "two stages train, with a trace" '
	pd-run --threads=1 --synthetic --minibatches=12 --trace=trace plan.json >out
	reports out 12
	sed 1d trace | jq -s . >ops
	jq -e -s "length > 1 and .[0].format == \"pd-trace\"" trace >/dev/null'

# ranked FILTER: checks that FILTER is true of the operations of each rank, in the order of the trace.
ranked() {
	jq -e 'group_by(.rank) | length == 2 and all(.[]; '"$1"')' ops >/dev/null
}

test_ok "every operation of every minibatch is there once" '
	jq -e "map([.rank, .op, .microbatch]) | length == (unique | length)" ops >/dev/null
	jq -r ".[] | \"\(.rank) \(.op)\"" ops | sort | uniq -c |
		awk "{ print \$2, \$3, \$1 }" | sort >found
	sort >expected <<-END
	0 load 12
	0 forward 12
	0 send_activation 12
	0 recv_gradient 12
	0 backward 12
	0 step 12
	1 load 12
	1 recv_activation 12
	1 forward 12
	1 backward 12
	1 send_gradient 12
	1 step 12
	END
	diff expected found'
test_ok "operations of a kind come in the order of the minibatches" '
	ranked "group_by(.op) | all(.[]; [.[].microbatch] == ([.[].microbatch] | sort))"'
test_ok "one computation at a time on a rank, in the order of the list" '
	ranked "map(select(.op | IN(\"forward\", \"backward\", \"step\"))) |
		[.[:-1], .[1:]] | transpose | all(.[]; .[0].end_ns <= .[1].start_ns)"'
test_ok "each rank alternates forward and backward after its warm-up" '
	jq -r "map(select(.rank == 0 and (.op | IN(\"forward\", \"backward\")))) | .[:8] |
		map(.op[:1]) | add" ops >order
	cat order
	[ "$(cat order)" = ffbfbfbf ] || [ "$(cat order)" = ffbfbfbfb ]'
test_ok "nothing ends before it begins, nor arrives before it is sent" '
	jq -e "all(.[]; .end_ns >= .start_ns and .start_ns >= 0)" ops >/dev/null
	jq -e "[.[] | select(has(\"seq\"))] | group_by(.seq) | all(.[]; length == 2) and
		all(.[]; (map(select(.op | startswith(\"recv\")))[0].end_ns) >
			 (map(select(.op | startswith(\"send\")))[0].start_ns))" ops >/dev/null'
test_ok "a transfer overlaps a computation of its own rank" '
	jq -e "[.[] | select(.op | IN(\"forward\", \"backward\"))] as \$work |
		any(.[] | select(has(\"seq\")); . as \$t | any(\$work[]; .rank == \$t.rank and
			.start_ns < \$t.end_ns and \$t.start_ns < .end_ns))" ops >/dev/null'
test_ok "the trace can be replayed" '
	pd-replay --format=report trace >report
	[ -s report ]'

profile "$MODELS/lenet5.json" 4 >lenet
pd-plan --topology=3@10Gbit/s --stages=13x3 lenet >three.json
idx_data data		# An epoch has 27 minibatches.
test_ok "an evaluation belongs to the epoch it follows, however far other replicas are" '
	pd-run --threads=1 --data=data --epochs=20 --report-every=1000 three.json >out
	jq -c "select(.event == \"evaluation\") | [.epoch, .step]" out >found
	for epoch in $(seq 20); do
		echo "[$epoch,$((epoch * 27))]"
	done | diff - found'

# With a sanitizer the processor time says nothing, so the script ends here.
[ -z "${PD_TEST_QUICK-}" ] || test_done

# cpu_ms PLAN: prints the processor time of 30 minibatches on all workers, in milliseconds.  It is that of
# 35 less that of 5, so that starting up does not count.
cpu_ms() {
	for n in 5 35; do
		sh -c '"$@" >/dev/null; times' sh pd-run --threads=1 --synthetic --minibatches=$n "$1" |
			tail -n 1 | sed 's/[ms]/ /g'
	done | awk '{ ms[NR] = ($1 * 60 + $2 + $3 * 60 + $4) * 1000 }
		END { printf "%d\n", ms[2] - ms[1] }'
}

pd-plan --topology=1@10Gbit/s --stages=15x1 cnn >one.json
pd-plan --topology=8@10Gbit/s --stages=2x1,2x1,2x1,2x1,2x1,2x1,2x1,1x1 cnn >eight.json
test_ok "eight workers burn little more than one" '
	for try in 1 2 3; do    # Other programs may have used the caches meanwhile.
		one=$(cpu_ms one.json)
		eight=$(cpu_ms eight.json)
		echo "one worker: $one ms, eight: $eight ms"
		[ "$eight" -ge $((one * 3 / 2)) ] || break
	done
	[ "$eight" -lt $((one * 3 / 2)) ]'

test_done
