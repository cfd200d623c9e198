#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch judges what comes in from it and goes back: networks of transformers (tiny, as saved) and ONNX files
# (by the recipe of pd-model(1)): ResNet-18, MobileNetV3, EfficientNet-B0, ConvNeXt, ViT, U-Net and others.  For
# each of them
#
#     as many parameters as in PyTorch
#     the loss of the test set to 1e-5
#     pd-export of what was read in: the same bits
#     five updates on two stages: loss and parameters to 1e-4 of float64
#     pd-export of these, loaded by from_pretrained or load_state_dict without a line of code: PyTorch's loss
#     is pd-run's to 1e-6
#
#     sh contrib/import-judge.sh [NETWORK...]
#     sh contrib/import-judge.sh --random[=COUNT] [SEED]
#
# The second form judges COUNT (500) random small modules, from a seed on (1): the loss and one update, and what
# is refused by its reason.
#
# PYTHON is a Python that has torch, torchvision, timm, transformers, onnx, onnxscript and safetensors
# (python3), PD_BUILD the build tree; TABLE names a file to which a line is added for each network, KEEP a
# folder in which the networks stay and from which they are taken.  The script says ok or not ok, as a test
# does.  A large network takes a minute, a small one seconds, so `make check` does not run it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
python=${PYTHON:-python3}
judge=$PD_SOURCE/contrib/import-judge.py
$python -c 'import torch, torchvision, transformers, onnx, onnxscript, safetensors' 2>/dev/null ||
	test_skip_all "$python lacks one of torch, torchvision, transformers, onnx, onnxscript and safetensors"
case $1 in
--random*)
	count=${1#--random}
	count=${count#=}
	$python "$PD_SOURCE/contrib/import_random.py" "${count:-500}" "${2:-1}" "${KEEP:-wrong}"
	exit ;;
esac
keep=$(realpath -m "${KEEP:-kept}")

# said KEY: prints what PyTorch found.
said() {
	jq ".$1" "$folder/expected.json"
}
# near NUMBER NUMBER TOLERANCE
near() {
	[ $# -eq 3 ]
	echo "$1, expected $2"
	awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { exit !(a - b <= t && b - a <= t) }'
}
# evaluated OPTION...: prints pd-run's loss of the test set.
evaluated() {
	pd-run --threads=1 --evaluate --data="$folder" "$@" plan.json >out
	jq 'select(.event == "evaluation").loss' out
}
# row WORD...: adds to the network's line of the table.
row() {
	printf ' %s' "$@" >>row
}

plan_with="--weights=flush --microbatches=1"
for network in ${*:-$($python "$judge" list 2>/dev/null)}; do
	folder=$keep/$network
	what=$folder
	rm -rf ck first exported same row model.json profile.json plan.json
	test_ok "$network: PyTorch writes it" '
		[ -e $folder/trained.pt ] || { rm -rf $folder; $python $judge write $network $folder; }'
	[ ! -e "$folder/model.onnx" ] || what=$folder/model.onnx
	test_ok "$network: it is read, and has as many parameters" '
		pd-model $what >model.json
		pd-model --summary $what | tail -n 1 | tr -d , >sum
		cat sum
		grep -q " layers $(said parameters) parameters" sum
		row $(said parameters)
		profile model.json 8 >profile.json
		plan profile.json 1 1 >plan.json'
	test_ok "$network: the loss is that of PyTorch" '
		loss=$(evaluated --init=$what)
		row $(said loss) $loss
		near $loss $(said loss) 1e-5'
	test_ok "$network: five updates on two stages" '
		train ck plan.json --data=$folder --init=$what --lr=$(said rate) --momentum=$(said momentum) \
			--epochs=$(said steps) --no-evaluate >out
		evaluated --checkpoint=ck >after
		row $(said trained) $(cat after)
		near $(cat after) $(said trained) 1e-4'
	test_ok "$network: exported, PyTorch loads it and finds the same loss" '
		pd-export --dtype=f32 -o exported ck
		$python $judge judge $network $folder exported $(cat after) >verdict || { cat verdict; false; }
		row $(sed "s/.*off by \([^ ]*\).*differs by \([^ ]*\).*/\1 \2/" verdict)'
	test_ok "$network: read and exported, it is the same" '
		train first plan.json --data=$folder --init=$what --lr=0 --momentum=0 --minibatches=1 \
			--no-evaluate >out
		pd-export -o same first
		$python $judge same $network same'
	echo "$network$(cat row)" | tee -a "${TABLE:-/dev/null}"
done
test_done
