#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-model writes networks that the other programs read, of the sizes that papers have.  share/models has
# what it writes.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
command -v jq >/dev/null || test_skip_all "jq is not installed"

reader=$PD_BUILD/test/unit/read-document

# This command makes the files:
#     for m in share/models/*.json; do n=${m##*/}; bin/pd-model "${n%.json}" >$m; done
for file in "$MODELS"/*.json; do
	name=$(basename "$file" .json)
	test_ok "share/models/$name.json is what pd-model writes" '
		pd-model "$name" >written.json
		diff "$file" written.json'
done

# --list has lines for families, "vgg: VGG", and for presets, "  vgg16  138357544  layers=16 ...".
pd-model --list >list
sed -n 's/^\([a-z0-9-]*\): .*/\1/p' list >families
sed -n 's/^  \([a-z0-9.-]*\) .*/\1/p' list >presets
test_ok "pd-model(1) has every family, and no others" '
	[ "$(wc -l <families)" -ge 7 ]
	awk "/^\.Sh/ { inside = /FAMILIES\$/ }
		inside && /^\.It Cm/ { print \$3 }" "$PD_SOURCE/man/pd-model.1" | diff families -'

# parameters PRESET: prints the number of parameters in the list.
parameters() {
	awk -v name="$1" '$1 == name { print $2 }' list
}
# These are the numbers of torchvision 0.20 and of the papers.
while read -r name count; do
	test_ok "$name has $count parameters" '[ "$(parameters "$name")" -eq "$count" ]'
done <<'END'
alexnet 61100840
vgg11 132863336
vgg13 133047848
vgg16 138357544
vgg19 143667240
resnet18 11689512
resnet34 21797672
resnet50 25557032
resnet101 44549160
resnet152 60192808
resnext50-32x4d 25028904
resnext101-32x8d 88791336
resnext101-64x4d 83455272
vit-b-16 86567656
vit-l-16 304326632
vit-h-14 632045800
END
test_ok "the weight of the embedding is the one of the classifier, or not" '
	pd-model gpt2 | jq -e "[.layers[] | select(.shares == \"wte\").name] == [\"head\"]"
	pd-model gpt2 --untied | jq -e "all(.layers[]; has(\"shares\") | not)"'

test_ok "every preset is a model of that name" '
	while read -r preset; do
		pd-model "$preset" >model.json
		"$reader" model model.json >out
		jq -e --arg name "$preset" ".name == \$name" model.json
	done <presets'
test_ok "--preset says the same as the name of a preset" '
	pd-model vgg --preset=vgg11 >one
	pd-model vgg11 >two
	cmp one two'
test_ok "options change a preset, and the name then is that of the family" '
	pd-model resnet18 --size=32 --classes=10 >small.json
	"$reader" model small.json >out
	jq -e ".name == \"resnet\" and .inputs[0].shape == [3, 32, 32] and
		(.layers | map(select(.kind == \"linear\").out_features) == [10])" small.json
	pd-model mlp --layers=2 --name=shallow | jq -e ".name == \"shallow\" and (.layers | length) == 5"'
test_ok "without dropout there is no such layer" '
	pd-model alexnet --dropout=0 | jq -e "[.layers[].kind] | index(\"dropout\") == null"'
test_ok "what it writes goes through a pipe into a plan" '
	pd-model mlp --hidden=64 | pd-profile --no-link --batch-size=4 --iterations=1 |
		pd-plan --topology=2@10Gbit/s --straight | jq -e ".stages | length == 2"'

# refused WORDS ARGUMENT...: checks that pd-model refuses these in one sentence with the WORDS, and writes
# nothing.
refused() {
	words=$1
	shift
	status 2 pd-model "$@" 2>err >out
	cat err
	one_line err && grep -q -e "^pd-model: $words" err && [ ! -s out ]
}
test_ok "a family, a preset or an option that there is not" '
	refused "expected a family of networks, one of mlp, .*--list"
	refused "expected a family of networks, one of mlp, .*--list.*found \"vgg17\"; did you mean \"vgg16\"?" vgg17
	refused "expected a family .*found \"gtp\"; did you mean \"gpt\"?" gtp
	refused "--preset: expected one of resnet50, .*, found \"vgg16\"$" resnet --preset=vgg16
	refused "--groups: vgg has no such option; expected some of --layers --hidden" vgg --groups=2'
test_ok "sizes that do not fit" '
	refused "--layers=17: vgg has 11, 13, 16 or 19" vgg --layers=17
	refused "--layers=18: resnext has 50, 101 or 152" resnext --layers=18
	refused "--heads=7: llama expects a divisor of its 64 hidden features" llama --heads=7 --hidden=64
	refused "--kv-heads=3: llama expects a divisor of its 4 heads" llama --heads=4 --kv-heads=3
	refused "--layers=1: gnmt expects 2 or more" gnmt --layers=1
	refused "the network: layers\[[0-9]*\]: maxpool2d \"pool2\" has a window" alexnet --size=20'

# sizes ARGUMENT...: prints heads, heads of keys and values, and features of queries and of the output.
sizes() {
	pd-model --layers=1 "$@" | jq -r "[.layers[] | select(.kind == \"attention\") | .heads, .kv_heads // .heads] +
		[.layers[] | select(.name | test(\"[.]q(_proj)?\$|gate_proj\")) | .out_features] | join(\" \")"
}
test_ok "sizes that are not given follow those that are" '
	[ "$(sizes llama)" = "32 32 4096 11008" ]
	[ "$(sizes llama --heads=4)" = "4 4 4096 11008" ]
	[ "$(sizes llama --hidden=512)" = "4 4 512 1376" ]
	[ "$(sizes llama --hidden=64)" = "1 1 64 172" ]
	[ "$(sizes llama --hidden=64 --kv-heads=2)" = "2 2 64 172" ]
	[ "$(sizes llama --preset=llama-3-8b --heads=8)" = "8 2 4096 14336" ]
	[ "$(sizes llama --preset=llama-3-8b --heads=6 --hidden=384)" = "6 2 384 1344" ]
	[ "$(sizes llama --kv-heads=3 --feed-forward=100)" = "33 3 4092 100" ]
	[ "$(sizes gpt --heads=5)" = "5 5 770" ]
	[ "$(sizes gpt --hidden=128)" = "2 2 128" ]
	[ "$(sizes bert --hidden=6)" = "1 1 6" ]'
test_ok "a family takes any value of any size that alone is given, or says that the value is none" '
	while read -r family option values; do
		for value in $values; do
			pd-model $family --$option=$value >out
		done
	done <<-END
	gpt hidden 1 2 7 100 1000
	gpt heads 1 2 7 100 1000
	bert hidden 1 3 96
	bert heads 1 3 96
	llama hidden 2 6 100 1000
	llama heads 1 2 7 100 1000
	llama kv-heads 1 2 7 100 1000
	gnmt hidden 1 7
	awd-lm embedding 1 7
	awd-lm hidden 1 7
	cnn layers 1 5 8
	resnext width 1 3
	resnext groups 1 3
	END'
test_ok "a disk that is full" '
	[ -c /dev/full ]
	status 3 pd-model resnet50 2>err >/dev/full
	one_line err'
test_done
