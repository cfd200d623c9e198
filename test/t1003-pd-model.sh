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
	refused "\"vgg17\": expected a family of networks, one of mlp, .*--list" vgg17
	refused "--preset=vgg16: resnet has none of that name" resnet --preset=vgg16
	refused "--groups: vgg has no such option; expected some of --layers --hidden" vgg --groups=2'
test_ok "sizes that do not fit" '
	refused "--layers=17: vgg has 11, 13, 16 or 19" vgg --layers=17
	refused "--layers=18: resnext has 50, 101 or 152" resnext --layers=18
	refused "the network: layers\[[0-9]*\]: maxpool2d \"pool2\" has a window" alexnet --size=20'
test_ok "a disk that is full" '
	[ -c /dev/full ]
	status 3 pd-model resnet50 2>err >/dev/full
	one_line err'
test_done
