#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Small networks as people have them (test/data/import, which contrib/make-import-data.py makes with PyTorch)
# give PyTorch's numbers: parameters, the loss with the weights that they come with, and the loss after five
# updates on two stages.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
data=$PD_SOURCE/test/data/import

# expected KEY: prints what PyTorch found.
expected() {
	jq ".$1" "$folder/expected.json"
}
# near NUMBER NUMBER TOLERANCE
near() {
	[ $# -eq 3 ]
	echo "$1, expected $2"
	awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { exit !(a - b <= t && b - a <= t) }'
}
# evaluated OPTION...: prints the loss of the test set.
evaluated() {
	pd-run --threads=1 --evaluate --data="$folder" "$@" plan.json | jq 'select(.event == "evaluation").loss'
}

# Everything is one minibatch, which normalisations of batches see whole.
plan_with="--weights=flush --microbatches=1"
# planned WHAT: makes plan.json of two stages.
planned() {
	pd-model "$1" >model.json
	profile model.json 8 >profile.json
	plan profile.json 1 1 >plan.json
}

for network in gpt2 bert llama qwen2 qwen3 vit convnet unet gpt torchvision-vit llama-onnx; do
	folder=$data/$network
	what=$folder
	[ ! -e "$folder/model.onnx" ] || what=$folder/model.onnx
	test_row count "$network: as many parameters as in PyTorch" '
		pd-model --summary "$what" | tail -n 1 | tr -d , >sum
		cat sum
		grep -q " layers $(expected parameters) parameters" sum'
	test_row loss "$network: PyTorch's loss, before and after five updates" '
		planned "$what"
		near $(evaluated --init="$what") $(expected loss) 1e-5
		rm -rf ck
		train ck plan.json --data="$folder" --init="$what" --lr=$(expected rate) \
			--momentum=$(expected momentum) --epochs=$(expected steps) --no-evaluate >out
		near $(evaluated --checkpoint=ck) $(expected trained) 1e-4'
	test_row export "$network: what was trained goes back and comes in again" '
		rm -rf exported
		pd-export --output=exported --dtype=f32 ck
		again=exported/model.safetensors
		[ ! -e exported/config.json ] || again=exported
		near $(evaluated --init=$again) $(evaluated --checkpoint=ck) 0'
done
test_ok "a file of a folder, or the index of several, is as good as the folder" '
	folder=$data/qwen2
	planned "$folder"
	near $(evaluated --init="$folder/model.safetensors") $(evaluated --init="$folder") 0
	folder=$data/llama
	planned "$folder"
	near $(evaluated --init="$folder/model.safetensors.index.json") $(evaluated --init="$folder") 0'
test_ok "the default of the exporter, which folds and merges parameters, is refused with the call to use" '
	status 2 pd-model $data/convnet/refused.onnx 2>err
	cat err
	one_line err && grep -q "optimize=False, opset_version=23" err'
test_done
