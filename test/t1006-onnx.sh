#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-model reads what torch.onnx writes (test/data/import): the layers and parameters of the module, by its
# names; and says what to do where something else is given.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
command -v jq >/dev/null || test_skip_all "jq is not installed"
data=$PD_SOURCE/test/data/import

for network in convnet gpt llama-onnx torchvision-vit; do
	test_ok "$network: as many parameters as in PyTorch, and a plan" '
		pd-model --name=$network "$data/$network/model.onnx" >model.json
		pd-model --summary model.json | tail -n 1 | tr -d , >sum
		cat sum
		grep -q "$network: [0-9]* layers $(jq .parameters "$data/$network/expected.json") parameters" sum
		pd-profile --no-link --batch-size=2 --iterations=1 model.json | pd-plan --gpus=1 >plan.json'
done

# has KIND COUNT: the model has so many layers of a kind.
has() {
	jq -e --arg kind "$1" "([.layers[] | select(.kind == \$kind)] | length) == $2" model.json
}
test_ok "heads, masks and rotary positions are found: nothing is left of how they are written" '
	pd-model "$data/llama-onnx/model.onnx" >model.json
	has rope 2 && has attention 1 && has rmsnorm 3 && has silu 1 && has transpose 0 && has reshape 0 && has slice 0
	jq -e ".layers[] | select(.kind == \"attention\") | .causal and .heads == 2 * .kv_heads" model.json
	jq -e "all(.layers[] | select(.kind == \"rope\"); .head_dim == 4)" model.json'
test_ok "layers are called like the modules, and names say where the file has others" '
	pd-model "$data/convnet/model.onnx" >model.json
	jq -e "any(.layers[]; .name == \"stem.0\" and .kind == \"conv2d\" and .bias == false)" model.json
	jq -e ".source.format == \"onnx\" and .inputs[0].name == \"image\" and .inputs[1].name == \"labels\"" model.json
	pd-model "$data/gpt/model.onnx" >model.json
	jq -e "any(.layers[]; .shares)" model.json'
test_ok "--loss=mse" '
	pd-model --loss=mse "$data/convnet/model.onnx" >model.json
	has mse 1
	jq -e ".inputs[-1] | .name == \"target\" and .dtype == \"f32\"" model.json'

# refused SENTENCE ARGUMENT...: pd-model says it, and ends with 2.
refused() {
	sentence=$1
	shift
	if pd-model "$@" >out 2>said; then
		return 1
	else
		[ $? -eq 2 ] || return 1
	fi
	cat said
	[ ! -s out ] && [ "$(wc -l <said)" -eq 1 ] && grep -qF -- "$sentence" said
}
test_ok "a default export is refused with the call that is expected" '
	refused "optimize=False, opset_version=23" "$data/convnet/refused.onnx"'
test_ok "what is no ONNX model" '
	echo text >net.onnx
	refused "net.onnx: expected an ONNX model" net.onnx
	head -c 5000 "$data/convnet/model.onnx" >cut.onnx
	refused "cut.onnx: expected an ONNX model, found a file that is none, or is damaged" cut.onnx
	printf "PK\003\004......................\012\000\000\000m/data.pkl" >mlp.pt
	refused "mlp.pt: expected a network, found a PyTorch archive (.pt): in Python, torch.onnx.export(" mlp.pt
	printf "PK\003\004......................\030\000\000\000m/data/weights/weight_00" >mlp.pt2
	refused "found a program exported from PyTorch (.pt2): in Python, torch.onnx.export(" mlp.pt2'
test_ok "options that an ONNX model does not take, and one that others do not" '
	refused "--layers: $data/gpt/model.onnx is an ONNX model" --layers=2 "$data/gpt/model.onnx"
	refused "--loss: networks of a family" --loss=mse mlp
	pd-model mlp >mlp.json
	refused "--loss: mlp.json has its losses" --loss=mse mlp.json'
test_ok "what it cannot say is told, and --freeze says some of it" '
	pd-model "$data/convnet/model.onnx" >model.json 2>said
	[ "$(wc -l <said)" -eq 1 ]
	grep -q "parameters learn, batch normalisation sees each microbatch.*--freeze=NAME" said
	pd-model --freeze=stem,classifier "$data/convnet/model.onnx" >model.json
	jq -e "[.layers[] | select(.frozen).name] == [\"stem.0\", \"stem.1.running_mean\",
		\"stem.1.running_var\", \"stem.1.weight\", \"stem.1.bias\", \"classifier\"]" model.json
	has batchnorm2d 1
	refused "--freeze: no layer with parameters of its own is called \"stump\"" --freeze=stump mlp
	pd-model --freeze=* mlp | jq -e "[.layers[] | select(.frozen)] | length > 1"'
test_done
