# SPDX-License-Identifier: Apache-2.0
# pd-profile --device=NAME: profiles of devices by their data sheets.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
PD_DEVICES=$PD_SOURCE/share/devices
export PD_DEVICES

# A device whose times can be worked out by hand: 1000 operations and 100 bytes take a microsecond.
cat >hand.json <<'END'
{"format": "pd-device", "version": 1, "name": "hand", "kind": "cuda", "memory_bytes": 1000000000,
 "products_per_s": {"f32": 1e9, "bf16": 4e9}, "bandwidth_bytes_per_s": 1e8, "kernel_ns": 7,
 "efficiency": {"products": 1, "memory": 1}, "spread": 0.1}
END
cat >net.json <<'END'
{"format": "pd-model", "version": 1, "name": "net",
 "inputs": [{"name": "x", "dtype": "f32", "shape": [30]}, {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "fc1", "kind": "linear", "inputs": ["x"], "out_features": 20, "bias": false},
  {"name": "relu", "kind": "relu", "inputs": ["fc1"]},
  {"name": "shape", "kind": "reshape", "inputs": ["relu"], "shape": [20, 1]},
  {"name": "flat", "kind": "flatten", "inputs": ["shape"]},
  {"name": "fc2", "kind": "linear", "inputs": ["flat"], "out_features": 10, "bias": false},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["fc2", "label"]}]}
END
# parts LAYER: prints forward, the two parts of backward, and the update of a layer, in ns.
parts() {
	jq -c ".layers[] | select(.name == \"$1\") | [.forward_ns, .backward_input_ns, .backward_weight_ns, .update_ns // 0]" \
		profile.json
}
# refused WORDS OPTION...: checks that pd-profile refuses these in one line with the WORDS.
refused() {
	words=$1
	shift
	status 2 pd-profile "$@" >out 2>err
	grep "$words" err && one_line err
}
same() {
	[ "$1" = "$2" ] || { echo "found $1, expected $2"; return 1; }
}

test_ok "times by hand: products or bytes, whichever take longer, and kernels" '
	pd-profile --device=./hand.json --batch-size=100 net.json >profile.json
	# 2 * 100 * 30 * 20 operations take 120 us; 4 * (3000 + 2000 + 600) bytes 224 us
	same "$(parts fc1)" "[224007,0,248007,120007]"
	# input: dy, w, dx; weight: dy, x, and the sum of 200 read and written
	same "$(parts fc2)" "[128007,128007,136007,40007]"
	same "$(parts relu)" "[160007,240007,0,0]"
	same "$(parts shape)" "[0,0,0,0]"
	jq -e ".device.estimated.from == \"hand\" and .device.estimated.spread == 0.1 and
		.device.estimated.sheet.bandwidth_bytes_per_s == 100000000 and .device.memory_bytes == 1000000000 and
		.layers[0].parameter_bytes == 2400 and .layers[0].activation_bytes == 8000" profile.json
	pd-profile --device=./hand.json --dtype=bf16 --batch-size=100 net.json >profile.json
	same "$(parts fc1)" "[112007,0,148007,132007]"'
test_ok "whole waves of whole tiles, with a beginning and an end" '
	jq ".units = 4 | .tiles = [[64, 16]] | .fill = 30 | .bandwidth_bytes_per_s = 1e15" hand.json >tiles.json
	pd-profile --device=./tiles.json --batch-size=100 net.json >profile.json
	# 2 x 2 tiles of 64 x 16 are one wave: 4 * 64 * 16 * 2 * 30 * (1 + 30 / 30) operations
	same "$(parts fc1 | jq -c "[.[0], .[2]]")" "[491527,$((2 * 4 * 64 * 16 * 130 + 7))]"'
test_ok "convolutions by Winograd's algorithm, where a device has it" '
	cat >window.json <<END
{"format": "pd-model", "version": 1, "name": "window",
 "inputs": [{"name": "x", "dtype": "f32", "shape": [32, 8, 8]}, {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "conv", "kind": "conv2d", "inputs": ["x"], "out_channels": 64, "kernel": 3, "padding": 1, "bias": false},
  {"name": "strides", "kind": "conv2d", "inputs": ["conv"], "out_channels": 64, "kernel": 3, "padding": 1, "stride": 2, "bias": false},
  {"name": "flat", "kind": "flatten", "inputs": ["strides"]},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["flat", "label"]}]}
END
	jq ".bandwidth_bytes_per_s = 1e18" hand.json >fast.json
	jq ".efficiency.winograd = 0.5" fast.json >winograd.json
	pd-profile --device=./fast.json --batch-size=16 window.json >profile.json
	plain=$(parts strides)
	same "$(parts conv | jq .[0])" $((2 * 16 * 64 * 9 * 32 * 64 + 7))
	pd-profile --device=./winograd.json --batch-size=16 window.json >profile.json
	same "$(parts strides)" "$plain"
	# 4 tiles of 36 products instead of 64 places of 9, at half of the rate
	same "$(parts conv | jq .[0])" $((2 * 2 * 16 * 4 * 36 * 32 * 64 + 7))
	jq ".bandwidth_bytes_per_s = 1e8" winograd.json >slow.json
	pd-profile --device=./slow.json --batch-size=16 window.json >profile.json
	# and tiles of inputs, outputs and weights go through memory: 36 f32 each, written and read
	same "$(parts conv | jq .[0])" $((2 * 2 * 16 * 4 * 36 * 32 * 64 + 2 * 4 * 36 * (16 * 4 * (32 + 64) + 32 * 64) * 10 + 7))
	pd-profile --device=./winograd.json --dtype=bf16 --batch-size=16 window.json >profile.json
	same "$(parts conv | jq .[0])" $((2 * 16 * 64 * 9 * 32 * 64 / 4 + 7))'
test_ok "every device that is known by name says where each figure is from, and has its name" '
	for file in "$PD_DEVICES"/*.json; do
		jq -e --arg name "$(basename "$file" .json)" ".name == \$name and .sources as \$from |
			(keys - [\"format\", \"version\", \"name\", \"kind\", \"spread\", \"sources\"]) == (\$from | keys)" \
			"$file" || { echo "$file"; false; }
	done'
test_ok "each makes a profile in the types that it has, and a plan" '
	pd-model gpt2 --layers=2 >model.json
	for file in "$PD_DEVICES"/*.json; do
		device=$(basename "$file" .json)
		dtype=$(jq -r ".products_per_s | if .bf16 then \"bf16\" else \"f16\" end" "$file")
		pd-profile --device="$device" --dtype="$dtype" --batch-size=4 model.json >profile.json
		jq -e ".device.name == \"$device\" and ([.layers[].forward_ns] | add > 0)" profile.json
		pd-plan -t 2@32GB/s profile.json >plan.json
	done
	refused "device \"v100-16\": products_per_s has no \"bf16\"" --device=v100-16 --dtype=bf16 model.json'
test_ok "every family has a profile, and a plan" '
	for network in mlp lenet5 resnet18 resnext50-32x4d "awd-lm --lanes=8" gnmt bert-large vit-b16 tinyllama s2vt; do
		# shellcheck disable=SC2086
		pd-model $network >model.json || continue
		pd-profile --device=h100-sxm --batch-size=8 model.json >profile.json
		jq -e "[.layers[].forward_ns] | add > 0" profile.json
		pd-plan -t 8@450GB/s --straight profile.json >plan.json 2>err
		grep "times of h100-sxm by its specification, off by up to 25 %" err
	done'
test_ok "a larger device takes less time" '
	for device in v100-32 a100-80 h100-pcie h100-sxm b200; do
		pd-model gpt2 | pd-profile --device=$device --dtype=f16 --batch-size=8 - | jq "[.layers[].forward_ns] | add"
	done >times
	sort -rn times | cmp - times'
test_ok "--explain and plans say where times come from" '
	pd-profile --device=./hand.json --batch-size=100 net.json >profile.json
	pd-plan -t 2@1GB/s --explain profile.json >plan.json 2>out
	grep "times are estimated for hand by its data sheet, and may be off by 10%" out
	jq -e ".profile.device.estimated.from == \"hand\"" plan.json
	pd-replay plan.json'
test_ok "--fit finds the efficiencies of which times were made" '
	jq ".efficiency = {products: 0.5, memory: 0.25, attention: 0.125} | .kernel_ns = 3000" \
		"$PD_DEVICES/a100-80.json" >slow.json
	pd-model gpt2 --layers=3 | pd-profile --device=./slow.json --dtype=bf16 --batch-size=4 - >measured.json
	pd-profile --device=a100-80 --fit measured.json >fitted.json
	jq -e ".efficiency | (.products / 0.5 - 1 | fabs < 0.05) and (.memory / 0.25 - 1 | fabs < 0.05) and
		(.attention / 0.125 - 1 | fabs < 0.05)" fitted.json
	jq -e ".spread < 0.05 and .fitted_to == \"A100 SXM 80 GB\" or .fitted_to == \"a100-80\"" fitted.json
	pd-model bert-large --layers=2 >bert.json
	for device in slow fitted; do
		pd-profile --device=./$device.json --dtype=bf16 --batch-size=4 bert.json |
			jq "[.layers[] | .forward_ns + .backward_ns] | add"
	done >times
	awk "NR == 1 { slow = \$1 } NR == 2 { exit !(\$1 / slow > 0.95 && \$1 / slow < 1.05) }" times'
test_ok "--fit alone: a device without a data sheet, whose rates are what was reached" '
	jq ".kind = \"cpu\" | .efficiency = {products: 1, memory: 1, attention: 0.5, winograd: 0.5} | .kernel_ns = 500 |
		.products_per_s.f32 = 4e11 | .bandwidth_bytes_per_s = 5e10" hand.json >here.json
	pd-model resnet50 >resnet50.json
	pd-model gpt-bytes --layers=2 >bytes.json
	for model in resnet50 bytes; do
		pd-profile --device=./here.json --batch-size=4 $model.json >$model.measured
	done
	pd-profile --fit resnet50.measured bytes.measured >fitted.json
	jq -c "{products_per_s, bandwidth_bytes_per_s, kernel_ns, efficiency}" fitted.json
	jq -e "def near(\$x): . / \$x - 1 | fabs < 0.05;
		.efficiency as \$e | .products_per_s.f32 as \$rate | .kind == \"cpu\" and .memory_bytes == 1000000000 and
		(\$rate * \$e.products | near(4e11)) and (\$rate * \$e.winograd | near(2e11)) and
		(\$rate * \$e.attention | near(2e11)) and (.bandwidth_bytes_per_s * \$e.memory | near(5e10)) and
		all(\$e[]; . <= 2)" fitted.json
	for device in here fitted; do
		pd-profile --device=./$device.json --batch-size=4 resnet50.json |
			jq "[.layers[] | .forward_ns + .backward_ns] | add"
	done >times
	awk "NR == 1 { is = \$1 } NR == 2 { exit !(\$1 / is > 0.95 && \$1 / is < 1.05) }" times
	# a data sheet that says less than what was reached is raised
	jq ".products_per_s.f32 = 1e11 | .efficiency = {products: 1, memory: 1}" here.json >low.json
	pd-profile --device=./low.json --fit bytes.measured | jq -e ".products_per_s.f32 > 3.8e11"'
test_ok "devices and options that are none are refused" '
	refused "a device by its data sheet (pd-device(5)), found \"h100-sxn\"; did you mean \"h100-sxm\"?" --device=h100-sxn net.json
	refused "device: expected one of auto, cuda, cpu, found \"tpu\"" --no-link --device=tpu net.json
	refused "absent.json: cannot open" --device=./absent.json net.json
	refused "threads does nothing with --device=h100-sxm: times are by its data sheet" --device=h100-sxm --threads=2 net.json
	refused "fit: expected --device=NAME" --device=cpu --fit net.json
	refused "threads does nothing with --fit" --threads=2 --fit net.json
	refused "net.json: .* expected .pd-profile." --fit net.json
	refused "fit: expected the files of measured profiles" --device=h100-sxm --fit
	jq "del(.model) | .inputs = [\"x\", \"label\"]" profile.json >bare.json
	refused "0 measured times: expected profiles with a model" --device=h100-sxm --fit bare.json
	refused "products_per_s has no \"f16\"" --device=./hand.json --dtype=f16 net.json
	jq ".units = 4" hand.json >bad.json
	refused "expected both of \"units\" and \"tiles\"" --device=./bad.json net.json
	jq ".efficiency.products = 2" hand.json >bad.json
	refused "efficiency.products: expected" --device=./bad.json net.json
	jq "del(.bandwidth_bytes_per_s)" hand.json >bad.json
	refused "expected a \"bandwidth_bytes_per_s\"" --device=./bad.json net.json
	jq ".tiles = [[1, 2, 3]] | .units = 1" hand.json >bad.json
	refused "two sides" --device=./bad.json net.json'
test_ok "the sheet in a profile is read, whatever is asked of the profile" '
	pd-profile --device=h100-sxm --dtype=bf16 net.json >estimated.json
	bad() {
		jq ".device.estimated.sheet$1" estimated.json >bad.json
		status 2 pd-plan -t 2@10GB/s bad.json >out 2>err
		one_line err && ! [ -s out ] && grep -F "bad.json: device.estimated.sheet$2" err || { cat err; false; }
	}
	bad ".efficiency.products = -1" ".efficiency.products: expected a number above 0, found -1"
	bad ".efficiency.attention = 1.5" ".efficiency.attention: expected a number from 0 to 1, found 1.5"
	bad ".link.efficiency = 0" ".link.efficiency: expected a number above 0, found 0"
	bad ".units = -4" ".units: expected a whole number from 1 to"
	bad ".speed = 3" ": unknown key \"speed\"; expected one of format, version, name"
	bad " |= del(.memory_bytes)" ".memory_bytes: expected a whole number, at least 1, found nothing"
	bad ".format = \"pd-model\"" ".format: expected \"pd-device\""
	bad " = 3" ": expected a pd-device document"'
test_done
