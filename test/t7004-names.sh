#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Names may have any length, and differ only at their ends.  A network then trains, is saved and resumed as
# it would under short names.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json
profile residual.json 4 >short
plan short 1 1 1 >plan-short
train ck-short plan-short $sgd --synthetic --minibatches=12 --no-evaluate >out

# lengthen LENGTH: makes every name of a model so long; it ends with the characters that it had.
lengthen() {
	jq --argjson length "$1" '
		def long: . as $name | "n" * ($length - ($name | length)) + $name;
		.inputs |= map(.name |= long) | .layers |= map(.name |= long | .inputs |= map(long))'
}

# data_of FILE: prints what a safetensors file has behind its header.
data_of() {
	tail -c +$((9 + $(od -A n -t u8 -N 8 "$1"))) "$1"
}

# Names of 152 and fewer characters were once all that fitted with a parameter's name.
for length in 152 153 160 5000; do
	test_ok "names of $length characters: profiled, planned, trained, resumed" '
		lengthen $length <residual.json >model.json
		profile model.json 4 >long
		plan long 1 1 1 >plan.json
		rm -rf ck-whole
		resumed plan.json 12 5 -- $sgd --synthetic'
	test_ok "names of $length characters: the bits of short names" '
		for s in 0 1 2; do
			data_of "$(at ck 12)/stage-$s.safetensors" >long.data
			data_of "$(at ck-short 12)/stage-$s.safetensors" >short.data
			[ -s long.data ]
			cmp long.data short.data
		done'
	test_ok "names of $length characters: found again by name" '
		"$serial" $sgd --minibatches=12 --output=serial plan.json
		"$same" serial "$(at ck 12)"'
	test_ok "names of $length characters: an error says what is wrong" '
		jq ".layers[3].inputs[0] |= .[1:]" model.json >bad.json
		status 2 pd-profile --no-link bad.json 2>err
		cat err
		one_line err
		grep -q "bad.json: layers\[3\].inputs\[0\]: " err'
	test_ok "names of $length characters: replayed and drawn" '
		for format in report text svg chrome trace; do
			pd-replay --format=$format plan.json >drawn
			[ -s drawn ]
		done'
done

# A path has the bytes that the system takes, whatever a document may have.
latin=$(printf "caf\351 \377")
test_ok "paths that are not UTF-8: data, parameters, checkpoints and a trace are those that were named" '
	mkdir "$latin"
	idx_data "$latin/data"
	cp plan-short "$latin/plan.json"
	set -- $sgd --minibatches=6 --data="$latin/data"
	"$serial" "$@" --output=serial plan-short
	train "$latin/ck" "$latin/plan.json" --no-evaluate "$@" --trace="$latin/trace" >out
	"$same" serial "$(at "$latin/ck" 6)"
	[ -s "$latin/trace" ]
	iconv -f UTF-8 -t UTF-8 out >/dev/null
	jq -s -e "last.outcome == \"done\"" out
'
test_ok "paths with a newline: sentences are lines all the same" '
	odd=$(printf "a\nb")
	mkdir "$odd"
	train "$odd/ck" plan-short $sgd --minibatches=2 --synthetic --no-evaluate >out
	jq -s -e "map(select(.event == \"checkpoint\"))[0].directory == \"a\\nb/ck\"" out
	train "$odd/ck" plan-short $sgd --minibatches=3 --synthetic --no-evaluate --resume >out 2>err
	cat err
	one_line err'
test_ok "paths that are not UTF-8: what a rank says of one is told" '
	rm -r "$latin/data"
	status 2 train "$latin/other" plan-short $sgd --synthetic --minibatches=6 --init="$latin/gone" 2>err
	cat err
	one_line err
	grep -aq "$latin/gone: cannot open" err'

# A message has limited room.  What is wrong stands at its end, and is seen whatever the name.
test_ok "a file with a long name: the end of the sentence is there" '
	folder=$(printf "%0240d/%0240d/%0240d" 1 2 3)
	status 2 pd-plan "$folder/none.json" 2>err
	cat err
	one_line err
	grep -q "^pd-plan: 000.* \.\.\. .*none.json: cannot open: No such file" err'

test_done
