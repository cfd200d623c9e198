#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# LSTMs in pipelines end with the bits of a serial program.  Their state goes on from minibatch to minibatch
# and is resumed, their memory is as predicted, and what cannot be right is refused.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# text LANES: prints a model with a label at each step.  LANES, such as ', "lanes": 6', goes into both
# layers that can have it.
text() {
	cat <<-END
	{"format": "pd-model", "version": 1, "name": "text",
	 "inputs": [{"name": "x", "dtype": "f32", "shape": [5, 2]},
	            {"name": "y", "dtype": "i32", "shape": [5]}],
	 "layers": [
	  {"name": "in", "kind": "linear", "inputs": ["x"], "out_features": 6},
	  {"name": "l1", "kind": "lstm", "inputs": ["in"], "hidden_size": 12 $1},
	  {"name": "drop", "kind": "dropout", "inputs": ["l1"], "p": 0.1},
	  {"name": "l2", "kind": "lstm", "inputs": ["drop"], "hidden_size": 8,
	   "weight_dropout": 0.1 $1},
	  {"name": "out", "kind": "linear", "inputs": ["l2"], "out_features": 2},
	  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["out", "y"]}]}
	END
}
# answers DIRECTORY: writes six texts of four samples.  Only the first sample of a text says what all its
# labels are.
answers() {
	mkdir "$1"
	for part in train test; do
		mkdir "$1/$part"
		{
			npy "<f4" "(24, 5, 2)"
			awk 'BEGIN {
				for (text = 0; text < 6; text++)
					for (n = 0; n < 40; n++)
						print (n > 9 ? 0 : n % 2 ? (text % 2 ? 1 : -1) : 1)
			}' | floats
		} >"$1/$part/x.npy"
		{
			npy "|u1" "(24, 5)"
			printf "$(awk 'BEGIN {
				for (text = 0; text < 6; text++)
					for (n = 0; n < 20; n++)
						printf "\\%03o", text % 2
			}')"
		} >"$1/$part/y.npy"
	done
}
answers data
text ', "lanes": 6' >text.json
text >short.json
profile text.json 3 >text
profile short.json 3 >short
sgd="--lr=0.05 --momentum=0.9 --data=data"

for replicas in "1" "1 1" "1 1 1"; do
	for weights in stash flush 2bw; do
		test_row "$weights" "stages of $replicas, weights $weights: 21 minibatches of the published rule" '
			plan_with="--weights=$weights --microbatches=$([ $weights = stash ] && echo 1 || echo 2)"
			plan text $replicas >plan.json
			trained 21 plan.json $sgd'
	done
done
profile text.json 1 >ones
for replicas in "2 1" "1 3" "3 2"; do
	for weights in stash flush 2bw; do
		test_row dealt "replicas that have some of the lanes each, $replicas, $weights, recomputing" '
			plan_with="--weights=$weights --microbatches=$([ $weights = stash ] && echo 1 || echo 6)
				--recompute"
			plan ones $replicas >plan.json
			jq -e "any(.stages[]; .recompute)" plan.json
			trained 31 plan.json $sgd'
	done
done
plan_with=
# Synthetic epochs have ten minibatches.
test_ok "lanes are dealt anew in each epoch, among replicas that do not divide its minibatches" '
	for replicas in "1 3" "3 2"; do
		plan ones $replicas >plan.json
		trained 31 plan.json --lr=0.05 --momentum=0.9
	done
	plan ones 1 3 >plan.json
	resumed plan.json 25 13 -- --lr=0.05 --momentum=0.9 --synthetic'
test_ok "one stage or two: the same bits, the state of the lanes too" '
	for replicas in "1" "1 1"; do
		plan_with="--weights=flush --microbatches=2"
		plan text $replicas >plan.json
		plan_with=
		rm -rf "ck $replicas"
		train "ck $replicas" plan.json $sgd --minibatches=21 >out
	done
	"$same" "$(at "ck 1" 21)" "$(at "ck 1 1" 21)"
	grep -a -o "l2\.hidden" "$(at "ck 1" 21)"/stage-0.safetensors'
test_ok "an evaluation leaves the state alone" '
	plan text 1 1 >plan.json
	rm -rf ck ck-none
	train ck plan.json $sgd --minibatches=24 >out
	train ck-none plan.json $sgd --minibatches=24 --no-evaluate >out
	"$same" "$(at ck 24)" "$(at ck-none 24)"'
test_ok "stopped inside an epoch and resumed: the same bits" '
	plan text 1 1 >plan.json
	resumed plan.json 18 4 13 -- $sgd'
test_ok "replicas are stopped inside an epoch and resumed: the same bits" '
	plan ones 2 3 >plan.json
	resumed plan.json 30 6 18 -- $sgd'
test_ok "in 16 bits" '
	PD_TEST_DTYPE=bf16 profile text.json 3 >half
	plan half 1 1 >plan.json
	trained 12 plan.json $sgd'

# right PROFILE: trains, and prints the share of labels that are found.
right() {
	plan_with="--weights=flush --microbatches=2"
	plan "$1" 1 1 >plan.json
	plan_with=
	train "ck-$1" plan.json --optimizer=adam --lr=0.02 --minibatches=160 --data=data >out
	jq -s "map(select(.event == \"evaluation\")) | last | .accuracy" out
}
test_full "what a sample cannot tell is known from those before it" '
	right text >with
	right short >without
	cat with without
	awk "{ a[NR] = \$1 } END { exit !(a[1] > 0.95 && a[2] < 0.8) }" with without'

cat >pairs.json <<'END'
{"format": "pd-model", "version": 1, "name": "pairs",
 "inputs": [{"name": "x", "dtype": "f32", "shape": [9, 5]},
            {"name": "length", "dtype": "i32", "shape": []},
            {"name": "y", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "a", "kind": "lstm", "inputs": ["x", "length"], "hidden_size": 7,
   "bidirectional": true},
  {"name": "b", "kind": "lstm", "inputs": ["a"], "hidden_size": 14, "bias": false},
  {"name": "sum", "kind": "add", "inputs": ["a", "b"]},
  {"name": "c", "kind": "lstm", "inputs": ["sum", "length"], "hidden_size": 5,
   "bidirectional": true, "weight_dropout": 0.2},
  {"name": "flat", "kind": "flatten", "inputs": ["c"]},
  {"name": "out", "kind": "linear", "inputs": ["flat"], "out_features": 4},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["out", "y"]}]}
END
profile pairs.json 3 >pairs
for with in "--schedule=1f1b" "--schedule=zb-h1 --microbatches=4" "--schedule=gpipe --microbatches=4"; do
	for of in text pairs; do
		test_ok "memory of $of, $with" '
			plan_with=$with
			plan $of 1 1 >plan.json
			plan_with=
			as_predicted --minibatches=4 --no-evaluate
			as_planned'
	done
done
test_ok "memory of a stage that recomputes, with lanes and without" '
	again short 1 1
	again text 1 1 1
	again ones 2 1'
test_ok "a stage with lanes that recomputes under latest: the state is that of the first forward" '
	plan_with="--weights=latest --recompute"
	plan text 1 1 1 >plan.json
	plan_with=
	trained 21 plan.json $sgd'
test_full "replicas, without lanes" '
	plan pairs 2 1 >plan.json
	rm -rf ck
	train ck plan.json --lr=0.05 --synthetic --minibatches=8 >out
	"$serial" --lr=0.05 --minibatches=8 --output=serial plan.json
	"$same" serial "$(at ck 8)"'
test_ok "AWD-LM: words are dropped, activations regularised, tied weights in stages with replicas" '
	pd-model awd-lm --layers=2 --hidden=12 --embedding=8 --sequence=5 --vocabulary=12 --lanes=6 >awd.json
	jq -e "[.layers[] | select(.kind == \"mse\").weight] == [1, 2] and .layers[0].weight_dropout" awd.json
	profile awd.json 3 >awd
	plan_with="--weights=flush --microbatches=2"
	plan awd 2 1 >plan.json
	plan_with=
	rm -rf ck
	train ck plan.json --lr=0.5 --synthetic --minibatches=8 >out
	"$serial" --lr=0.5 --minibatches=8 --output=serial plan.json
	"$same" serial "$(at ck 8)"
	as_predicted --minibatches=2 --no-evaluate
	as_planned'
# All six lanes are in 3, 2 or 6 microbatches.  Stages that carry state have that many replicas, however
# slow they are.
for round in 3 2 6; do
	test_full "pd-plan: the replicas of stages with lanes divide $round" '
		profile text.json $((6 / round)) |
			jq ".layers |= map(.forward_ns = 1e6 | .backward_ns = 2e6 | .update_ns = 0 |
				if .name == \"l1\" then .forward_ns = 1e8 else . end)" >slow
		pd-plan --topology=7@10GB/s slow >plan.json
		jq -e "[.stages[] | select(.layers | index(\"l1\")).replicas] == [$round]" plan.json
		train ck-dealt plan.json $sgd --minibatches=12 >out
		"$serial" $sgd --minibatches=12 --output=serial-dealt plan.json
		"$same" serial-dealt "$(at ck-dealt 12)"
		rm -rf ck-dealt
		pd-plan --topology=7@10GB/s --cost=sosp19 slow | jq -e ".stages | all(.replicas == 1)"'
done
refused() {
	status 2 "$@" 2>err
	cat err
	[ "$(wc -l <err)" = 1 ]
}
test_ok "replicas that a lane would not stay with are refused, and their checkpoints inside an epoch" '
	refused plan text 3 1
	grep -F "stage 0 has 3 replicas: expected a divisor of 2, the microbatches of 3 samples that 6 lanes" err
	plan text 2 1 >plan.json
	refused pd-run --synthetic --checkpoint=ck-inside --checkpoint-every=2 plan.json
	grep -F "stage 0 has lanes and 2 replicas, whose state is together at the end of an epoch" err'
test_ok "a schedule in which a minibatch overtakes the one whose state it goes on with is wrong" '
	profile text.json 6 >six
	plan_with="--schedule=gpipe --microbatches=2"
	plan six 1 1 >plan.json
	plan_with=
	pd-schedule --minibatches=1 plan.json >schedule.jsonl
	pd-schedule --check schedule.jsonl
	forward="\"rank\":1,\"op\":\"forward\",\"stage\":1,\"microbatch\":"
	awk -v forward="$forward" "
		index(\$0, forward 0) { held = \$0; next }
		{ print }
		index(\$0, forward 1) { print held }" schedule.jsonl >overtaken.jsonl
	status 1 pd-schedule --check overtaken.jsonl >out 2>&1
	grep -F "the forward of microbatch 0, with whose state it goes on, does not stand before" out'
test_ok "microbatches that do not divide the lanes are refused" '
	refused profile text.json 4
	grep -F "\"l1\" has 6 lanes: expected microbatches whose samples divide that, found 4" err'
test_done
