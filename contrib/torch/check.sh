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
PYTHONPATH=$PD_SOURCE/contrib/torch
export PYTHONPATH
python=${PYTHON:-python3}
"$python" -c 'import torch, torchvision, transformers' 2>/dev/null ||
	test_skip_all "there is no PyTorch with torchvision and transformers for $python"

"$python" "$PYTHONPATH/check.py" >checked 2>log || cat log
while read -r line; do
	name=$(echo "$line" | sed 's/.* - \([^ ]*\) .*/\1/')
	test_ok "$name is profiled: $line" 'case $line in not*) false ;; esac'
	test_ok "$name is planned for one and for four devices" '
		pd-plan -t 1@1GB/s "$name.json" | jq -e ".stages | length == 1"
		pd-plan -t 4@10GB/s --straight --weights=flush --microbatches=8 "$name.json" >plan.json
		pd-replay plan.json'
done <checked
# trained NAME BLOCKS: plans train_NAME for two ranks, has PyTorch train it, and compares the gradients with those
# of one process, and the memory with what was planned.
trained() {
	"$python" "$PYTHONPATH/pd_profile.py" --threads=1 --rounds=2 --blocks="$2" --link \
		"$PYTHONPATH/networks.py:train_$1" >"$1.json"
	pd-plan -t 2@2GB/s+50us --straight --weights=flush --microbatches=4 --memory-model=torch --memory-margin=0 \
		"$1.json" >plan.json
	"$python" -m torch.distributed.run --nproc-per-node=2 "$PYTHONPATH/pd_run.py" plan.json \
		"$PYTHONPATH/networks.py:train_$1" --steps=2 --optimizer=adamw --save=gradients >result.json
	jq -e ".step_ns > 0 and .losses[0] > 0" result.json
	jq -s -e "[.[0].stages[].predicted.memory_bytes, .[1].peak_bytes[]] |
		[.[2] / .[0], .[3] / .[1]] | all(. > 0.6 and . < 1.4)" plan.json result.json
	"$python" "$PYTHONPATH/check.py" "train_$1" gradients
}
test_ok "ResNet-18, trained by PyTorch as planned: gradients are those of one process" \
	'trained resnet18 "layer\d\.\d"'
test_ok "a small GPT, trained by PyTorch as planned: gradients are those of one process" 'trained gpt "h\.\d"'
test_ok "a U-Net, trained by PyTorch as planned: gradients are those of one process" 'trained unet "net|deeper"'
test_ok "all networks were profiled" '[ "$(grep -c "^ok" checked)" -ge 12 ]'
test_done
