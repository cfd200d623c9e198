# SPDX-License-Identifier: Apache-2.0
# Makes a profile of an image network without running it:
#     pd-model alexnet | jq -f roofline.jq --argjson batch 128 --argjson flops 9.5e12 \
#         --argjson bandwidth 732e9 --argjson step_ns 76600000 --arg dtype f32
# A layer's share of the step is the longer of what its products take at so many operations a second
# and what its tensors take at so many bytes a second; all shares together are step_ns.  Backward is
# twice forward, as it has twice the products.
def product: reduce .[] as $n (1; . * $n);
def out($x; $kernel; $stride; $padding):
	[.out_channels // $x[0]] + ($x[1:] | map((. + 2 * $padding - $kernel) / $stride | floor + 1));
def window($x): out($x; .kernel; .stride // (if .kind == "conv2d" then 1 else .kernel end); .padding // 0);
def shape($x):
	if .kind == "conv2d" or .kind == "maxpool2d" then window($x)
	elif .kind == "adaptive_avgpool2d" then [$x[0], .output_size, .output_size]
	elif .kind == "flatten" then [$x | product]
	elif .kind == "linear" then [.out_features]
	elif .kind == "softmax_cross_entropy" then [1]
	else $x end;
def parameters($x):
	if .kind == "conv2d" then .out_channels * ($x[0] * .kernel * .kernel + (if .bias == false then 0 else 1 end))
	elif .kind == "linear" then .out_features * ($x[0] + 1)
	elif .kind == "batchnorm2d" then 2 * $x[0]
	else 0 end;
def products($x; $y):
	if .kind == "conv2d" then ($y | product) * $x[0] * .kernel * .kernel
	elif .kind == "linear" then $x[0] * $y[0]
	else 0 end;

. as $model
| reduce $model.layers[] as $layer ({shapes: ($model.inputs | map({key: .name, value: .shape}) | from_entries),
				     layers: []};
	.shapes[$layer.inputs[0]] as $x
	| ($layer | shape($x)) as $y
	| ($layer | parameters($x)) as $parameters
	| ([$layer.inputs[] as $i | .shapes[$i] | product] | add + ($y | product)) as $numbers
	| .shapes[$layer.name] = $y
	| .layers += [{layer: $layer, y: $y, $parameters, share: (
		[$batch * 2 * ($layer | products($x; $y)) / $flops,
		 4 * ($batch * $numbers + $parameters) / $bandwidth] | max)}])
| .layers as $layers
| ($layers | map(.share) | add) as $all
| {format: "pd-profile", version: 1, name: $model.name, batch_size: $batch, dtype: $dtype,
   device: {kind: "cuda", name: "by its data sheet", memory_bytes: 16000000000},
   $step_ns, inputs: [$model.inputs[].name],
   layers: [$layers[] | (.share / $all * $step_ns / 3) as $ns
	| {name: .layer.name, inputs: .layer.inputs, forward_ns: ($ns | round),
	   backward_ns: (2 * $ns | round),
	   activation_bytes: ($batch * (.y | product) * (if $dtype == "f32" then 4 else 2 end)),
	   parameter_bytes: (4 * .parameters)}]}
