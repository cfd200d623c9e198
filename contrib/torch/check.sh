#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Profiles networks of torchvision and transformers with pd_profile.py, and plans each:
#
#     PYTHON=PYTHON sh contrib/torch/check.sh
#
# PYTHON is a Python that has torch, torchvision and transformers (python3), PD_BUILD the build tree.  The
# script says ok or not ok, as a test does.  It takes minutes, so `make check` does not run it.
PD_SOURCE=${PD_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
. "$PD_SOURCE/test/test-lib.sh"
torch=$PD_SOURCE/contrib/torch
PYTHONPATH=$torch:$PD_SOURCE/share/torch
export PYTHONPATH
python=${PYTHON:-python3}
"$python" -c 'import torch, torchvision, transformers' 2>/dev/null ||
	test_skip_all "there is no PyTorch with torchvision and transformers for $python"

"$python" "$torch/check.py" >checked 2>log || cat log
while read -r line; do
	name=$(echo "$line" | sed 's/.* - \([^ ]*\) .*/\1/')
	test_ok "$name is profiled: $line" 'case $line in not*) false ;; esac'
	test_ok "$name is planned for one and for four devices" '
		pd-plan -t 1@1GB/s "$name.json" | jq -e ".stages | length == 1"
		pd-plan -t 4@10GB/s --straight --weights=flush --microbatches=8 "$name.json" >plan.json
		pd-replay plan.json'
done <checked
# kept NAME: prints the bytes that the layers of a profile keep from forward to backward.
kept() {
	jq "[.layers[].stash_bytes] | add" "$1.json"
}
test_ok "checkpointed segments are layers, which keep what they get and run forward again" '
	for name in checkpointed checkpointed_reentrant checkpointed_closure; do
		jq -e "[.layers[] | select(.parameter_bytes == 526848)] | length == 4 and
			all(.backward_input_ns == null and .workspace_bytes > 262144)" $name.json
		# The inputs of segments 2 to 4 and of the last layer, and what the loss keeps.
		[ "$(kept $name)" -ge 131072 ] && [ "$(kept $name)" -lt 136000 ]
	done
	jq -e "[.layers[].name] | index(\"f.0\") and index(\"f.3\")" checkpointed.json
	jq -e "[.layers[].name] | index(\"model.layers.1\")" checkpointed_llama.json
	[ $(($(kept checkpointed_llama) * 2)) -lt "$(kept llama)" ]'
test_ok "what is frozen is no parameter that is trained, and its layers are there" '
	jq -e "[.layers[] | select(.state_bytes > 0) | .name] == [\"f.0.0\", \"f.0.2\", \"f.1.0\", \"f.1.2\",
		\"f.2.0.inner\", \"f.3.2.inner\"]" adapted.json
	jq -e "[.layers[] | select(.name == \"f.0.0\" or .name == \"gelu\") | .backward_ns] == [0, 0]" adapted.json'
test_ok "compiled modules are called as those they were made of" '
	grep -q "profiled as it runs uncompiled" log
	jq -e "[.layers[].name | select(startswith(\"f.\"))] | index(\"f.1.0\") and index(\"f.2.0\")" compiled.json'
cat >meta.py <<END
import torch
def meta():
    return torch.nn.Linear(2, 3, device="meta"), (torch.zeros(1, 2),)
def frozen():
    return torch.nn.Linear(2, 3).requires_grad_(False), (torch.zeros(1, 2),)
END
test_ok "refused in one line: a network on the meta device, one that trains nothing" '
	# refused NAME WORDS: checks that a network is refused in one line with these words.
	refused() {
		status 1 "$python" "$PD_SOURCE/share/torch/pd_profile.py" "meta.py:$1" >out 2>err
		[ ! -s out ] && one_line err && grep "$2" err
	}
	refused meta "is on the meta device"
	refused frozen "no parameter of the network is trained"'
# trained NAME BLOCKS: plans train_NAME for two ranks, has PyTorch train it, and compares the gradients with those
# of one process, and the memory with what was planned.
trained() {
	"$python" "$PD_SOURCE/share/torch/pd_profile.py" --threads=1 --rounds=2 --blocks="$2" --link \
		"$torch/networks.py:train_$1" >"$1.json"
	pd-plan -t 2@2GB/s+50us --straight --weights=flush --microbatches=4 --memory-model=torch --memory-margin=0 \
		"$1.json" >plan.json
	"$python" -m torch.distributed.run --nproc-per-node=2 "$PD_SOURCE/share/torch/pd_run.py" plan.json \
		"$torch/networks.py:train_$1" --steps=2 --optimizer=adamw --save=gradients >result.json
	jq -e ".step_ns > 0 and .losses[0] > 0" result.json
	jq -s -e "[.[0].stages[].predicted.memory_bytes, .[1].peak_bytes[]] |
		[.[2] / .[0], .[3] / .[1]] | all(. > 0.6 and . < 1.4)" plan.json result.json
	"$python" "$torch/check.py" "train_$1" gradients
}
test_ok "ResNet-18, trained by PyTorch as planned: gradients are those of one process" \
	'trained resnet18 "layer\d\.\d"'
test_ok "a small GPT, trained by PyTorch as planned: gradients are those of one process" 'trained gpt "h\.\d"'
test_ok "a U-Net, trained by PyTorch as planned: gradients are those of one process" 'trained unet "net|deeper"'
test_ok "all networks were profiled" '[ "$(grep -c "^ok" checked)" -ge 18 ]'
test_done
