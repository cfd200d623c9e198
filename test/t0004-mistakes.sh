#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What people type at first: each answer says what to do instead.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
chain 4 >profile.json
PD_DEVICES=$PD_SOURCE/share/devices
export PD_DEVICES

# refused WORDS COMMAND...: checks that a command is refused in one sentence that has these words.
refused() {
	words=$1
	shift
	status 2 "$@" 2>err >out
	cat err
	one_line err
	grep -qF "$words" err
}
test_ok "a name of the hub: how to download it" '
	refused "hf download meta-llama/Llama-3.1-8B config.json --local-dir DIR" pd-model meta-llama/Llama-3.1-8B'
test_ok "a folder where a document is expected: who reads folders" '
	mkdir folder
	refused "folder: is a folder, expected a document: pd-model folder" pd-profile folder
	refused "folder: is a folder, expected a document: pd-model folder" pd-plan --gpus=2 folder'
test_ok "16G may be either" '
	refused "expected such as 16GB or 16GiB" pd-plan --gpus=2 --memory=16G profile.json
	refused "expected such as 16GB or 16GiB" pd-plan --gpus=2 --memory=16Gi profile.json
	refused "expected a number of bytes" pd-plan --gpus=2 --memory=G profile.json'
test_ok "h100 is the one with SXM, and a line says so; v100 may be either" '
	pd-model mlp >mlp.json
	pd-profile --device=h100 mlp.json >profile.json 2>err
	grep -qx "pd-profile: device \"h100\" is taken as h100-sxm" err
	jq -e ".device.name == \"h100-sxm\"" profile.json
	refused "did you mean \"v100-16\"" pd-profile --device=v100 mlp.json'
test_ok "PyTorch's names of schedules are ours, or answered with ours" '
	while read -r theirs ours; do
		for name in $theirs Schedule$theirs; do
			pd-plan -q --gpus=2 --schedule=$name --effort=0 profile.json >plan.json 2>err ||
				{ cat err; status 2 pd-plan -q --gpus=2 --schedule=$ours --effort=0 profile.json; continue; }
			jq -e --arg ours $ours ".schedule == \$ours" plan.json
		done
	done <<-END
	1F1B 1f1b
	GPipe gpipe
	Interleaved1F1B interleaved
	ZBVZeroBubble zb-v
	DualPipeV dualpipe-v
	END
	refused "expected interleaved" pd-plan --gpus=2 --schedule=LoopedBFS profile.json
	refused "expected zb-auto or zb-v" pd-plan --gpus=2 --schedule=ScheduleInterleavedZeroBubble profile.json
	refused "found \"2F2B\"" pd-plan --gpus=2 --schedule=2F2B profile.json'
test_ok "a table where a profile is expected: pd-schedule" '
	echo "0F0,0B0" >table.csv
	refused "pd-schedule --plan=plan.json makes a schedule of it" pd-plan --gpus=2 table.csv'
test_ok "a folder of images: the lines that make an archive of them" '
	mkdir -p images/cat
	: >images/cat/1.jpeg
	pd-plan -q --gpus=1 profile.json >plan.json
	refused "images: found images, which pd-run does not decode" pd-run --data=images plan.json
	mkdir none
	refused "none: no data set found" pd-run --data=none plan.json'
test_ok "pd-topo: no more ranks than processors" '
	refused "this machine lets us use" pd-topo --ranks=60000 --device=cpu'
test_ok "data without a test set: --no-evaluate" '
	pd-model gpt --layers=1 --hidden=8 --heads=1 --sequence=8 --vocabulary=256 |
		pd-profile --no-link --iterations=1 --batch-size=2 - | pd-plan -q --gpus=1 - >gpt.plan
	mkdir texts
	seq 300 >texts/train.txt
	refused "; --no-evaluate trains without a test set" pd-run --data=texts --minibatches=1 gpt.plan
	pd-run --data=texts --minibatches=1 --no-evaluate gpt.plan >out'
test_ok "a network by name where a file is expected: pd-model, or how to download it" '
	refused "gpt2: no such file; pd-model gpt2 writes that network" pd-profile gpt2
	refused "hf download some/net config.json" pd-profile some/net
	refused "missing.json: cannot open: No such file" pd-profile --device=h100-sxm missing.json
	refused "a/missing.json: cannot open: No such file" pd-profile --dtype=bf16 a/missing.json'
test_ok "programs that are not installed say where they look for names" '
	refused "devices by their data sheets, no/devices, is not there: PD_DEVICES names" \
		env PD_DEVICES=no/devices pd-profile --device=h100 "$MODELS/lenet5.json"
	refused "known by name, no/machines, is not there: PD_MACHINES names another" \
		env PD_MACHINES=no/machines pd-plan --on=dgx-h100 gpt2'
test_done
