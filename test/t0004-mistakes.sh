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
test_done
