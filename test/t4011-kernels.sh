#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The processor's layers run on none of oneDNN's plain loops where there is a quick kernel, whatever layout
# a convolution before them prefers.  pd-profile says where there is none.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

if [ "${PD_TEST_DEVICE:-cpu}" != cpu ]; then
	test_skip "kernels of the processor" "device $PD_TEST_DEVICE"
	test_done
fi

# grouped CHANNELS GROUPS: prints two blocks like those of ResNeXt, with pooling in between.
grouped() {
	jq -n --argjson c "$1" --argjson g "$2" '
		def conv($name; $in; $out; $kernel; $groups): {name: $name, kind: "conv2d",
			inputs: [$in], out_channels: $out, kernel: $kernel,
			padding: ($kernel / 2 | floor), groups: $groups, bias: false};
		def norm($name; $in): {name: "\($name)-norm", kind: "batchnorm2d", inputs: [$in]},
			{name: $name, kind: "relu", inputs: ["\($name)-norm"]};
		def block($n; $in): conv("\($n)-narrow"; $in; $c; 1; 1), norm("\($n)-a"; "\($n)-narrow"),
			conv("\($n)-groups"; "\($n)-a"; $c; 3; $g), norm("\($n)-b"; "\($n)-groups"),
			conv("\($n)-wide"; "\($n)-b"; 2 * $c; 1; 1), norm("\($n)-c"; "\($n)-wide");
		{format: "pd-model", version: 1, name: "grouped",
		 inputs: [{name: "image", dtype: "f32", shape: [3, 16, 16]},
			  {name: "label", dtype: "i32", shape: []}],
		 layers: [conv("stem"; "image"; 2 * $c; 3; 1), norm("start"; "stem"),
			block("one"; "start"),
			{name: "sum", kind: "add", inputs: ["one-c", "start"]},
			conv("grouped"; "sum"; 2 * $c; 3; $g),
			{name: "half", kind: "maxpool2d", inputs: ["grouped"], kernel: 2},
			block("two"; "half"),
			{name: "mean", kind: "adaptive_avgpool2d", inputs: ["two-c"], output_size: 1},
			{name: "flat", kind: "flatten", inputs: ["mean"]},
			{name: "out", kind: "linear", inputs: ["flat"], out_features: 10},
			{name: "loss", kind: "softmax_cross_entropy", inputs: ["out", "label"]}]}'
}

# kernels ISA TYPE MODEL: profiles the model with no more instructions than ISA has, into ./profile.
kernels() {
	ONEDNN_MAX_CPU_ISA=$1 pd-profile --device=cpu --no-link -i 1 -b 2 -t 1 --dtype="$2" \
		"$3" >profile 2>err
	cat err
}
quick='[.layers[].slow_kernel // empty] == []'

while read -r channels groups; do
	grouped "$channels" "$groups" >model.json
	for isa in AVX2 ALL; do
		for type in f32 bf16; do
			test_row "$isa $type" "$channels channels, $groups groups, $isa, $type: quick kernels" '
				kernels $isa $type model.json
				jq -e "$quick" profile
				[ ! -s err ]'
		done
	done
done <<END
64 16
48 1
32 32
END
test_ok "alexnet.json, AVX2: quick kernels, though some convolutions write the plain layout" '
	kernels AVX2 f32 "$MODELS/alexnet.json"
	jq -e "$quick" profile'

# winograd [NAME=VALUE]...: prints the number of Winograd's kernels; what oneDNN says of itself is in
# ./said.
winograd() {
	env "$@" ONEDNN_VERBOSE=1 pd-profile --device=cpu --no-link -i 1 -b 16 -t 1 \
		"$MODELS/fashion-cnn.json" >said
	grep -o "convolution,jit_wino[^,]*,[^,]*" said | sort -u | wc -l
}
count=$(winograd PD_CPU_WINOGRAD=)
if ! grep -q "info,.*v2\." said || ! grep -q "info,cpu,isa:.*AVX-512" said; then
	test_skip "windows of 3x3 go Winograd's way" "oneDNN 2 has kernels for it, of AVX-512"
else
	test_ok "windows of 3x3 go Winograd's way, forward and both ways back, unless told not to" '
		[ "$count" = 3 ]
		[ "$(winograd PD_CPU_WINOGRAD=no)" = 0 ]
		grep -q "exec,cpu,convolution,jit:" said'
fi

# step TILES: prints the loss of the second of two steps of a small GPT by the kernels of such a processor.
step() {
	PD_CPU_TILES=$1 pd-run --device=cpu --threads=1 --synthetic --minibatches=2 --optimizer=adam gpt.plan |
		jq -r "select(.event == \"done\") | .loss"
}
test_ok "PD_CPU_TILES chooses our own kernels, whose results differ by rounding alone" '
	pd-model gpt --layers=1 --hidden=32 --heads=2 --sequence=24 --vocabulary=64 --dropout=0 |
		pd-profile --device=cpu --no-link -i 1 -b 2 -t 1 | pd-plan --gpus=1 >gpt.plan
	best=$(step "") any=$(step any)
	echo "$best $any"
	awk -v a="$best" -v b="$any" "BEGIN { exit !(a > 0 && a - b < 1e-4 * a && b - a < 1e-4 * a) }"
	if grep -q avx2 /proc/cpuinfo; then
		v3=$(step x86-64-v3)
		awk -v a="$v3" -v b="$any" "BEGIN { exit !(a > 0 && a - b < 1e-4 * a && b - a < 1e-4 * a) }"
	fi
	PD_CPU_TILES=sse9 status 2 pd-run --device=cpu --synthetic --minibatches=2 gpt.plan 2>err
	one_line err && grep "PD_CPU_TILES is \"sse9\", which this processor has no kernels for; expected .*\"any\"\$" err'

# With 11 channels and SSE4.1 alone there may be no quick kernel.
grouped 11 1 >model.json
kernels SSE41 f32 model.json >/dev/null
if jq -e "$quick" profile >/dev/null; then
	test_skip "slow kernels are told" "oneDNN has quick ones for all layers"
	test_done
fi
test_ok "slow kernels are told: once for all layers of a kind and shape, in the profile for each" '
	cat err
	jq -r ".layers[].slow_kernel // empty" profile | sort | uniq -c
	! grep -qv "^pd-profile: warning: layer \".*\".* runs on a slow kernel, \".*\": the library has no quick one for this [a-z0-9_]*$" err || false
	grep -q "^pd-profile: warning: layer \".*\" (and 1 more of its kind and shape) runs" err
	[ $(jq "[.layers[].slow_kernel // empty] | length" profile) -gt $(wc -l <err) ]
	pd-plan --topology=2@1GB/s profile >plan.json
	jq -e "[.profile.layers[].slow_kernel // empty] | length > 0" plan.json'
test_done
