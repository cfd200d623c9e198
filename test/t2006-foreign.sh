# SPDX-License-Identifier: Apache-2.0
# Profiles without a model, as other programs write them: layers that share parameters.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# layer NAME INPUT PARAMETERS MORE: prints a layer of a profile; MORE are further members.
layer() {
	printf '%s{"name": "%s", "inputs": ["%s"], "forward_ns": 1000000, "backward_ns": 2000000,' \
		"$comma" "$1" "$2"
	printf ' "activation_bytes": 1000, "parameter_bytes": %s%s}\n' "$3" "$4"
	comma=,
}
# profile HEAD: makes a profile of four layers; HEAD are further members of the last.
profile() {
	comma=
	echo '{"format": "pd-profile", "version": 1, "name": "foreign", "batch_size": 1,
		"device": {"kind": "cpu"}, "inputs": ["tokens"], "layers": ['
	layer wte tokens 4000000 ''
	layer h.0 wte 1000 ''
	layer h.1 h.0 1000 ''
	layer lm_head h.1 0 "$1"
	echo ']}'
}
profile ', "shares": "wte"' >tied.json
profile '' >untied.json
# stages DOCUMENT OPTION...: plans for two devices, and prints the stages' numbers of layers.
stages() {
	document=$1
	shift
	pd-plan -t 2@1GB/s --straight "$@" "$document" >plan.json && jq -c "[.stages[].layers | length]" plan.json
}
# refused WORDS DOCUMENT: checks that pd-plan refuses it in one line with the WORDS.
refused() {
	status 2 pd-plan -t 2@1GB/s "$2" >out 2>err
	grep "$1" err && one_line err
}
# bad NAME WORDS: has layer lm_head share NAME, a JSON value, which is refused with WORDS.
bad() {
	profile ", \"shares\": $1" >bad.json
	refused "^pd-plan: bad.json: .*layers\[3\].shares: $2" bad.json
}

test_ok "layers that share parameters are in one stage with weights that have no copies" '
	[ "$(stages untied.json)" = "[2,2]" ]
	[ "$(stages tied.json)" = "[4]" ]
	pd-plan -t 2@1GB/s --straight tied.json 2>&1 >plan.json |
		grep "layers \"wte\" and \"lm_head\" share parameters and stay in one stage"'
test_ok "with weights that have copies, these are in memory twice, and their gradients are on the link" '
	[ "$(stages untied.json --weights=flush --microbatches=4)" = "[2,2]" ]
	jq ".stages[1].predicted.memory_bytes" plan.json >memory
	[ "$(stages tied.json --weights=flush --microbatches=4)" = "[2,2]" ]
	[ $(($(jq ".stages[1].predicted.memory_bytes" plan.json) - $(cat memory))) -ge 12000000 ]
	pd-replay --format=json plan.json | jq -e ".period_ns > 8000000"'
test_ok "what a layer has besides what it shares is counted once, and is on no link" '
	jq ".layers[3].parameter_bytes = 400000" tied.json >more.json
	[ "$(stages more.json --weights=flush --microbatches=4)" = "[2,2]" ]
	[ $(($(jq ".stages[1].predicted.memory_bytes" plan.json) - $(cat memory))) -ge 13200000 ]
	pd-replay plan.json
	[ "$(stages more.json)" = "[4]" ]
	[ $(($(jq ".stages[0].predicted.memory_bytes" plan.json) -
		$(pd-plan -t 2@1GB/s --straight tied.json | jq ".stages[0].predicted.memory_bytes"))) -ge 1200000 ]'
test_ok "a plan keeps what its profile says is shared" '
	stages tied.json --weights=flush --microbatches=4
	jq -e ".profile.layers[3].shares == \"wte\"" plan.json
	pd-schedule plan.json >list.jsonl'
test_ok "who has no parameters to share is named" '
	bad "\"wtf\"" "no layer is called \"wtf\".*wte"
	bad "\"lm_head\"" "layer \"lm_head\" has no parameters of its own to share"
	bad 1 "expected a non-empty string, found 1"
	jq ".layers[1].shares = \"wte\" | .layers[3].shares = \"h.0\"" tied.json >bad.json
	refused "layers\[3\].shares: layer \"h.0\" has no parameters of its own" bad.json
	jq "{format: \"pd-profile\", version: 1, name: \"x\", batch_size: 1, device: {kind: \"cpu\"}, model: .,
		layers: [.layers[] | {name, inputs, forward_ns: 1, backward_ns: 1, activation_bytes: 4,
		parameter_bytes: 4, shares: \"x\"}]}" "$PD_SOURCE/test/data/small-model.json" >bad.json
	refused "layers\[0\].shares: expected only where there is no model" bad.json'
test_done
