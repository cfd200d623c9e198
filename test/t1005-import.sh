#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Small networks as people have them (test/data/import, which contrib/make-import-data.py makes with PyTorch)
# give PyTorch's numbers: parameters, the loss with the weights that they come with, and the loss after five
# updates on two stages.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
data=$PD_SOURCE/test/data/import

# expected NAME KEY: prints what PyTorch found.
expected() {
	jq ".$2" "$data/$1/expected.json"
}
# near NUMBER NUMBER TOLERANCE
near() {
	echo "$1, expected $2"
	awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { exit !(a - b <= t && b - a <= t) }'
}
# read_in NAME: makes model.json and its profile; all samples are one minibatch.
read_in() {
	pd-model "$data/$1" >model.json
	profile model.json 8 >profile.json
}
# evaluated OPTION...: prints the loss of the test set.
evaluated() {
	pd-run --threads=1 --evaluate --data="$data/$network" "$@" plan.json | jq 'select(.event == "evaluation").loss'
}

plan_with="--weights=flush --microbatches=1"
while read -r network weights; do
	test_ok "$network: as many parameters as in PyTorch" '
		pd-model --summary "$data/$network" | tail -n 1 | tr -d , >sum
		cat sum
		grep -q " layers $(expected $network parameters) parameters" sum'
	test_ok "$network: PyTorch's loss, before and after five updates" '
		read_in $network
		plan profile.json 1 1 >plan.json
		init=$data/$network/$weights
		near $(evaluated --init=$init) $(expected $network loss) 1e-5
		rm -rf ck
		train ck plan.json --data=$data/$network --init=$init --lr=$(expected $network rate) \
			--momentum=$(expected $network momentum) --epochs=$(expected $network steps) >out
		near $(evaluated --checkpoint=ck) $(expected $network trained) 1e-4'
done <<'END'
qwen2 model.safetensors
qwen3 .
bert .
gpt2 .
llama .
llama model.safetensors.index.json
vit .
END
test_done
