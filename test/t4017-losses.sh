#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Networks may have several losses.  Their sum is trained, each is reported by its name, a minibatch is
# still one step, and an evaluation takes the whole test set.  A network without a loss cannot be trained.
# If samples have several labels, the mean over all of them is trained and reported.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# three HEADS: prints a trunk, and those of the losses side, mid and main that are asked for.
three() {
	jq -n --arg heads "$1" '
		def layer($name; $kind; $from; $more): {name: $name, kind: $kind, inputs: $from} + $more;
		{format: "pd-model", version: 1, name: "three",
		 inputs: [{name: "image", dtype: "f32", shape: [1, 28, 28]},
			  {name: "label", dtype: "i32", shape: []}],
		 layers: [
		  layer("flat"; "flatten"; ["image"]; {}),
		  layer("fc1"; "linear"; ["flat"]; {out_features: 20}),
		  layer("a1"; "tanh"; ["fc1"]; {}),
		  layer("fcside"; "linear"; ["a1"]; {out_features: 10}),
		  layer("side"; "softmax_cross_entropy"; ["fcside", "label"]; {}),
		  layer("fc2"; "linear"; ["a1"]; {out_features: 20}),
		  layer("a2"; "tanh"; ["fc2"]; {}),
		  layer("fcmid"; "linear"; ["a2"]; {out_features: 12}),
		  layer("mid"; "softmax_cross_entropy"; ["fcmid", "label"]; {}),
		  layer("fc3"; "linear"; ["a2"]; {out_features: 10}),
		  layer("main"; "softmax_cross_entropy"; ["fc3", "label"]; {})]}
		| .layers |= map(select((.kind == "softmax_cross_entropy" | not) or
			(.name as $n | $heads | split(" ") | index($n) != null)))'
}
three "side mid main" >three.json
profile three.json 5 >three
# cut LAYERSxREPLICAS,... MICROBATCHES WEIGHTS >PLAN: plans the network three with these.
cut() {
	pd-plan --topology="$(echo "$1" | tr , '\n' | awk -Fx '{ n += $2 } END { print n }')@10Gbit/s" \
		--stages="$1" three | jq --argjson m "$2" --arg weights "$3" \
		'.microbatches = $m | .weights = $weights | del(.stages[].predicted, .predicted)'
}
idx_data data		# 110 images to train on make 22 microbatches, 10 to test make 2.
sgd="--lr=0.05 --momentum=0.9"

# reported N: checks that ./out has the losses of N minibatches.
reported() {
	tail -n 1 out | jq -e ".step == $1 and .memory == \"as predicted\""
	jq -s -e "map(select(.event == \"progress\").step) == [range(1; $1 + 1)]" out
	jq -s -e 'map(select(.event == "progress" or .event == "evaluation")) | length > 0 and
		all(.[]; (.losses | keys) == ["main", "mid", "side"]
			and ((.losses | map(.loss) | add) / .loss - 1 | fabs) < 1e-6
			and .accuracy == .losses.main.accuracy)' out
}
while read -r stages microbatches weights n; do
	test_ok "$stages, $microbatches in a minibatch, $weights: steps, sums, names, weights" '
		cut $stages $microbatches $weights >plan.json
		rm -rf ck
		train ck plan.json $sgd --minibatches=$n --data=data --report-every=1 >out
		reported $n
		"$serial" $sgd --minibatches=$n --data=data --output=serial plan.json
		"$same" serial "$(at ck $n)"
		jq -s -e "map(select(.event == \"evaluation\").samples) | length > 0 and all(.[]; . == 10)" out
		cp out reports-$stages'
done <<END
11x1 1 stash 24
5x1,6x1 1 stash 24
3x1,4x1,4x1 1 stash 24
5x2,6x1 1 stash 24
5x1,6x2 2 flush 13
3x2,4x1,4x2 4 2bw 7
11x1 2 flush 13
END
test_ok "the losses of three stages are those of one, to the last bit" '
	cut 11x1 2 flush >one.json
	cut 3x1,4x1,4x1 2 flush >three-stages.json
	for plan in one three-stages; do
		train ck-$plan $plan.json $sgd --minibatches=13 --data=data --report-every=4 |
			jq -c "del(.samples_per_s) | select(.event == \"progress\" or .event == \"evaluation\")
				" >$plan
	done
	cmp one three-stages
	jq -s -e "length == 6" one'
test_ok "a loss for which no label counts is null, and the sum is that of the others" '
	jq "(.layers[] | select(.name == \"side\")).ignore_index = 0" three.json >zero.json
	profile zero.json 5 >zero
	plan zero 1 >plan.json
	mkdir -p zeros/train
	{ npy "<f4" "(5, 1, 28, 28)"; head -c $((5 * 784 * 4)) /dev/zero; } >zeros/train/image.npy
	{ npy "|u1" "(5,)"; head -c 5 /dev/zero; } >zeros/train/label.npy
	pd-run --threads=1 --data=zeros --minibatches=1 --no-evaluate plan.json >out
	cat out
	jq -s -e ".[0] | .event == \"progress\" and .losses.side.loss == null and
		((.losses.main.loss + .losses.mid.loss) / .loss - 1 | fabs) < 1e-6" out'
test_ok "one loss is reported as ever" '
	three "main" >one.json
	profile one.json 5 >one-loss
	plan one-loss 1 >plan.json
	pd-run --threads=1 --data=data plan.json >out
	jq -s -e "all(.[]; has(\"losses\") | not) and (map(select(.event == \"evaluation\")) | length == 1)
		" out'
test_ok "an evaluation whose last microbatch is not full: the same, whether the loss stage loads data or not" '
	jq -n "{format: \"pd-model\", version: 1, name: \"square\",
		inputs: [{name: \"x\", dtype: \"f32\", shape: [1]}],
		layers: [{name: \"a\", kind: \"linear\", inputs: [\"x\"], out_features: 1},
			{name: \"loss\", kind: \"mse\", inputs: [\"a\"]}]}" >square.json
	profile square.json 4 >square
	for part in train test; do
		mkdir -p squares/$part
		{ npy "|u1" "(5, 1)"; printf "\1\2\3\4\5"; } >squares/$part/x.npy
	done
	for stages in 2x1 1x1,1x1; do
		pd-plan --topology=2@10GB/s --stages=$stages square >plan.json
		pd-run --threads=1 --data=squares --lr=0 --minibatches=1 plan.json |
			jq -c "select(.event == \"evaluation\")"
	done >out
	cat out
	[ "$(wc -l <out)" = 2 ] && [ "$(sort -u out | wc -l)" = 1 ]
	jq -e ".samples == 5 and .loss > 0" out'
test_ok "an evaluation by a first stage that works in its inbox: that of one stage" '
	jq ".layers |= [{name: \"r\", kind: \"relu\", inputs: [\"x\"]}] + (.[0].inputs = [\"r\"])" \
		square.json >relu.json
	profile relu.json 2 >relu
	{ npy "<f4" "(20, 1)"; numbers 20 3 | floats; } >squares/test/x.npy
	for stages in 3x1 1x1,2x1; do
		pd-plan --topology=2@10GB/s --stages=$stages --weights=flush --microbatches=1 relu >plan.json
		for again in 1 2 3 4 5 6; do
			pd-run --threads=1 --data=squares --lr=0.01 --epochs=4 plan.json |
				jq -c "select(.event == \"evaluation\")" | cksum
		done
	done >out
	cat out
	[ "$(sort -u out | wc -l)" = 1 ]'
test_ok "every loss is trained: without one the weights are others" '
	three "side main" >two.json
	profile two.json 5 >two
	plan two 1 >plan.json
	cut 11x1 1 stash >all.json
	rm -rf ck ck-two
	train ck all.json $sgd --minibatches=3 --data=data >out
	train ck-two plan.json $sgd --minibatches=3 --data=data >out
	status 1 "$same" "$(at ck 3)" "$(at ck-two 3)"'
test_ok "none: profiled, planned and replayed, but not trained" '
	three "" >none.json
	profile none.json 5 >none
	plan none 1 1 >plan.json
	pd-replay plan.json >report
	for data in --synthetic --data=data; do
		status 2 pd-run $data --checkpoint=ck-none plan.json >out 2>err
		cat err
		one_line err
		grep "\"three\" has no loss" err
		[ ! -s out ] && [ ! -e ck-none ]
	done'
test_ok "a label must be a class of every loss" '
	jq "(.layers[] | select(.name == \"fcmid\")).out_features = 5" three.json >few.json
	profile few.json 5 >few
	plan few 1 >plan.json
	pd-run --threads=1 --synthetic plan.json >out
	status 2 pd-run --data=data plan.json >out 2>err
	one_line err'
# rows SHAPE: prints a network whose samples have labels of this shape.
rows() {
	jq -n --argjson rows "$1" '{format: "pd-model", version: 1, name: "rows",
		inputs: [{name: "x", dtype: "f32", shape: ($rows + [6])},
			 {name: "y", dtype: "i32", shape: $rows}],
		layers: [{name: "fc", kind: "linear", inputs: ["x"], out_features: 1000},
			 {name: "loss", kind: "softmax_cross_entropy", inputs: ["fc", "y"]}]}'
}
test_ok "seven labels in a sample: the loss and the accuracy are means over them" '
	rows "[7]" >rows.json
	profile rows.json 4 >rows
	plan rows 1 >plan.json
	pd-run --threads=1 --synthetic --minibatches=20 --lr=1e-9 plan.json >out
	tail -n 1 out
	# ln 1000 is 6.9.
	tail -n 1 out | jq -e ".memory == \"as predicted\" and .loss > 6.9 and .loss < 9"'
test_done
