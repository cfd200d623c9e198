#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Images are normalised as a model document or --normalize says, and changed at random by --augment, the
# same whatever the plan.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# The image comes into both stages of two.
colours() {
	cat <<-END
	{"format": "pd-model", "version": 1, "name": "colours",
	 "inputs": [{"name": "image", "dtype": "f32", "shape": [2, 6, 5]$1},
	            {"name": "label", "dtype": "i32", "shape": []}],
	 "layers": [
	  {"name": "conv", "kind": "conv2d", "inputs": ["image"], "out_channels": 3, "kernel": 3},
	  {"name": "bn", "kind": "batchnorm2d", "inputs": ["conv"]},
	  {"name": "flat", "kind": "flatten", "inputs": ["bn"]},
	  {"name": "fc1", "kind": "linear", "inputs": ["flat"], "out_features": 6},
	  {"name": "skip", "kind": "flatten", "inputs": ["image"]},
	  {"name": "fc2", "kind": "linear", "inputs": ["skip"], "out_features": 6},
	  {"name": "sum", "kind": "add", "inputs": ["fc1", "fc2"]},
	  {"name": "fc3", "kind": "linear", "inputs": ["sum"], "out_features": 5},
	  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["fc3", "label"]}]}
	END
}
# bytes DIRECTORY: writes 42 images of bytes to train on, and 10 to test.
bytes() {
	mkdir "$1"
	for part in train test; do
		n=$([ $part = train ] && echo 42 || echo 10)
		mkdir "$1/$part"
		{ npy "|u1" "($n, 2, 6, 5)"; idx_bytes $((n * 60)) 1 127; } >"$1/$part/image.npy"
		{ npy "|u1" "($n,)"; idx_bytes "$n" 1 4; } >"$1/$part/label.npy"
	done
}
bytes data
colours >colours.json
profile colours.json 4 >colours
normalize=--normalize=0.25:0.5,0.5:2
sgd="--lr=0.01 --momentum=0.9"

for replicas in "1" "1 1" "2 1" "1 2" "1 1 1"; do
	test_ok "changed and normalised, stages of $replicas: 27 minibatches of the published rule" '
		plan colours '"$replicas"' >plan.json
		trained 27 plan.json $sgd --data=data --augment=crop:2,flip $normalize'
done
test_ok "in 16 bits" '
	PD_TEST_DTYPE=bf16 profile colours.json 4 >half
	plan half 1 1 >plan.json
	trained 12 plan.json $sgd --data=data --augment=flip,crop:1 $normalize'
plan colours 1 1 >plan.json
test_ok "stopped inside an epoch and resumed: the same bits" '
	resumed plan.json 25 4 13 -- $sgd --data=data --augment=crop:2,flip $normalize'
test_ok "another seed, or images that are not changed, or not normalised: other weights" '
	for with in "--seed=2 --augment=crop:2,flip $normalize" "--augment=crop:2 $normalize" "--augment=flip $normalize" \
		"$normalize" "--augment=crop:2,flip"; do
		rm -rf ck
		train ck plan.json --minibatches=25 --no-evaluate $sgd --data=data $with >out
		! cmp -s "$(at ck-whole 25)/stage-0.safetensors" "$(at ck 25)/stage-0.safetensors" || false
	done'

# normalised FILE: prints the images of bytes of FILE, as numbers that are normalised.
normalised() {
	tail -c +129 "$1" | od -An -v -tu1 -w30 | awk '
		# f32(x): returns the nearest f32 of one that is not small.
		function f32(x, s) {
			if (!x)
				return 0
			for (s = 1; x * s < 8388608 && x * s > -8388608; s *= 2)
				;
			x *= s
			s = 1 / s
			return (x < 0 ? -int(-x + 0.5) : int(x + 0.5)) * s
		}
		{
			for (i = 1; i <= 30; i++)
				printf "%.17g\n", NR % 2 ? f32((f32($i / 255) - 0.25) / 0.5) : f32((f32($i / 255) - 0.5) / 2)
		}'
}
cp -r data floats
for part in train test; do
	n=$([ $part = train ] && echo 42 || echo 10)
	{ npy "<f4" "($n, 2, 6, 5)"; normalised data/$part/image.npy | floats; } >floats/$part/image.npy
done
colours ', "normalize": {"mean": [0.25, 0.5], "std": [0.5, 2]}' >normal.json
profile normal.json 4 >normal
plan normal 1 1 >normal-plan.json
# figures OPTION... PLAN: trains, and writes losses and evaluations.
figures() {
	rm -rf ck
	pd-run --threads=1 --epochs=2 --report-every=1 --checkpoint=ck $sgd "$@" |
		ordered_jq -S -c 'select(.event == "progress" or .event == "evaluation") | del(.samples_per_s)'
}
test_ok "the option, the document, and numbers that were normalised before: the same bits" '
	figures --data=data $normalize plan.json >option
	cp -r ck ck-option
	figures --data=data normal-plan.json >document
	for stage in 0 1; do
		cmp "$(at ck-option 20)/stage-$stage.safetensors" "$(at ck 20)/stage-$stage.safetensors"
	done
	figures --data=floats plan.json >before
	for stage in 0 1; do
		cmp "$(at ck-option 20)/stage-$stage.safetensors" "$(at ck 20)/stage-$stage.safetensors"
	done
	[ "$(grep -c evaluation option)" -eq 2 ]
	cmp option document && cmp option before'
test_ok "an evaluation normalises, too" '
	pd-run --threads=1 --evaluate --data=data --checkpoint=ck-option normal-plan.json >out
	pd-run --threads=1 --evaluate --data=data $normalize --checkpoint=ck-option plan.json >same
	[ "$(head -n 1 out | jq .loss)" = "$(tail -n 1 option | jq .loss)" ]
	[ "$(head -n 1 out | jq .loss)" = "$(head -n 1 same | jq .loss)" ]'
test_ok "a checkpoint says how: what it goes on from, or evaluates, is normalised alike" '
	pd-run --threads=1 --evaluate --data=data --checkpoint=ck-option plan.json >out 2>err
	[ "$(head -n 1 out | jq .loss)" = "$(tail -n 1 option | jq .loss)" ]
	grep -q "^pd-run: ck-option: normalises its data as in training\$" err
	rm -rf ck
	train ck plan.json --minibatches=4 --no-evaluate $sgd --data=data $normalize >out
	train ck plan.json --minibatches=10 --no-evaluate $sgd --data=data --resume >out
	train ck-other plan.json --minibatches=10 --no-evaluate $sgd --data=data $normalize >out
	diff -r "$(at ck 10)" "$(at ck-other 10)"
	status 2 pd-run --evaluate --data=data --checkpoint=ck --normalize=0.25,0.5 plan.json 2>err
	one_line err && grep -q "^pd-run: ck: was trained with \"image\" normalised with other numbers" err
	train ck-none plan.json --minibatches=4 --no-evaluate $sgd --data=data >out
	pd-run --evaluate --data=data --checkpoint=ck-none $normalize plan.json >out 2>err
	grep -q "^pd-run: ck-none: was trained on data that --normalize, or its model, did not normalise\$" err'
test_ok "profile and plan pass on what the document says, and a schedule trains so" '
	jq -e ".profile.model.inputs[0].normalize == {mean: [0.25, 0.5], std: [0.5, 2]}" normal-plan.json
	pd-schedule --minibatches=10 normal-plan.json >schedule
	pd-run --threads=1 --data=data --report-every=1 $sgd schedule >out
	[ "$(sed -n 10p out | jq .loss)" = "$(sed -n 10p option | jq .loss)" ]'
test_ok "pixels of IDX: in place of the statistics of the training set" '
	idx_data idx
	residual_model >residual.json
	profile residual.json 4 >residual
	plan residual 1 1 >residual-plan
	mkdir bytes bytes/train bytes/test
	{ npy "|u1" "(110, 1, 28, 28)"; tail -c +17 idx/train-images-idx3-ubyte; } >bytes/train/image.npy
	{ npy "|u1" "(110,)"; tail -c +9 idx/train-labels-idx1-ubyte; } >bytes/train/label.npy
	{ npy "|u1" "(10, 1, 28, 28)"; tail -c +17 idx/t10k-images-idx3-ubyte; } >bytes/test/image.npy
	{ npy "|u1" "(10,)"; tail -c +9 idx/t10k-labels-idx1-ubyte; } >bytes/test/label.npy
	figures --data=idx --normalize=0.1307,0.3081 --augment=crop:4 residual-plan >pixels
	figures --data=bytes --normalize=0.1307,0.3081 --augment=crop:4 residual-plan >of-bytes
	cmp pixels of-bytes
	trained 27 residual-plan --lr=0.002 --data=idx --augment=crop:4,flip'

# refused WORDS OPTION...: checks that pd-run refuses these at once, in one sentence with the WORDS.
refused() {
	words=$1
	shift
	status 2 pd-run "$@" 2>err >out
	cat err
	one_line err && grep -q -e "^pd-run: $words" err && [ ! -s out ]
}
test_ok "what cannot be read is refused" '
	for text in "" 0.5 , 0.5, 0.5:, 0.5,x 1,2,3 "0.5;1" 0.5:0.5:,1 nan,1; do
		refused "--normalize: expected" --data=data "--normalize=$text" plan.json
	done
	refused "--normalize: std: expected .*found 0" --data=data --normalize=0,0 plan.json ||
		refused "--normalize: std\[0\]: expected" --data=data --normalize=0,0 plan.json
	refused "--normalize: mean: 3 numbers: expected one, or one for each channel of \"image\", 2" \
		--data=data --normalize=1:2:3,1 plan.json
	for text in "" crop crop: crop:0 crop:x flip:1 crop:1,crop:2 flip,flip flip, ,flip mirror; do
		refused "--augment: expected" --data=data "--augment=$text" plan.json
	done
	refused "--augment: crop:6: expected at most the height and width of the image \"image\", 6 and 5" \
		--data=data --augment=crop:6 plan.json'
test_ok "so is what has no effect, or contradicts" '
	refused "--normalize: the model.s input \"image\" says itself how it is normalised, with other numbers" \
		--data=data --normalize=0.25,0.5 normal-plan.json
	pd-run --threads=1 --data=data $normalize --minibatches=1 normal-plan.json
	refused "--normalize needs --data=DIR|FILE: made-up data" --synthetic $normalize plan.json
	refused "--augment needs --data=DIR|FILE: made-up data" --synthetic --augment=flip plan.json
	refused "--augment does nothing with --evaluate" --evaluate --checkpoint=ck --data=data --augment=flip plan.json
	pd-model gpt --layers=1 --hidden=8 --heads=1 --sequence=8 --vocabulary=256 >gpt.json
	profile gpt.json 2 >gpt
	plan gpt 1 >gpt-plan
	seq 100 >text.txt
	refused "--normalize: model \"gpt\" has no f32 input" --data=text.txt --normalize=0,1 gpt-plan
	refused "--augment: model \"gpt\" has no f32 input" --data=text.txt --augment=flip gpt-plan'
test_ok "documents that say it wrongly are refused" '
	while read -r words; do
		read -r value
		colours ", \"normalize\": $value" >bad.json
		status 2 pd-profile bad.json 2>err >out
		cat err
		one_line err && grep -q "^pd-profile: bad.json: .*inputs\[0\].normalize$words" err
	done <<-"END"
	: expected an object
	7
	.std: expected a number, or an array of numbers, found nothing
	{"mean": 0.5}
	.mean: 3 numbers: expected one, or one for each channel of "image", 2
	{"mean": [1, 2, 3], "std": 1}
	.std\[1\]: expected a number from 1e-30
	{"mean": 0, "std": [1, 0]}
	: unknown key "deviation"
	{"mean": 0, "deviation": 1}
	END
	sed "s/\"shape\": \[\]/&, \"normalize\": {\"mean\": 0, \"std\": 1}/" colours.json >bad.json
	status 2 pd-profile bad.json 2>err
	grep -q "bad.json: .*inputs\[1\].normalize: \"label\" has whole numbers: expected it of an f32 input" err'
test_done
