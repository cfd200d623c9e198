#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch is the judge: minibatches cut into any microbatches, over stages and replicas, end with the
# weights of torch.optim.SGD on the mean over all samples, and the sum of all losses.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
python3 -c 'import sys, torch.func; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
	test_skip_all "there is no PyTorch 2 for python3"

cp "$PD_SOURCE/test/data/judged-model.json" judged.json
# This model takes the rows of an image as a sequence, and labels as lengths, too.
cat >looking.json <<'END'
{"format": "pd-model", "version": 1, "name": "looking",
 "inputs": [{"name": "image", "dtype": "f32", "shape": [28, 28]},
            {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "q", "kind": "linear", "inputs": ["image"], "out_features": 16},
  {"name": "k", "kind": "linear", "inputs": ["image"], "out_features": 8, "bias": false},
  {"name": "v", "kind": "linear", "inputs": ["image"], "out_features": 8},
  {"name": "self", "kind": "attention", "inputs": ["q", "k", "v"], "heads": 4, "kv_heads": 2,
   "causal": true},
  {"name": "out", "kind": "linear", "inputs": ["self"], "out_features": 8},
  {"name": "curve", "kind": "tanh", "inputs": ["out"]},
  {"name": "near", "kind": "attention", "inputs": ["curve", "v", "k"], "heads": 2, "causal": true, "window": 5,
   "relative_buckets": 8, "max_distance": 20, "init": {"weight": "normal(1)"}},
  {"name": "far", "kind": "attention", "inputs": ["near", "v", "k"], "heads": 2, "scale": 1, "relative_buckets": 8,
   "max_distance": 12, "shares": "near"},
  {"name": "look", "kind": "additive_attention", "inputs": ["far", "v", "label"]},
  {"name": "few", "kind": "linear", "inputs": ["look"], "out_features": 2},
  {"name": "flat", "kind": "flatten", "inputs": ["few"]},
  {"name": "fc", "kind": "linear", "inputs": ["flat"], "out_features": 10},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["fc", "label"]}]}
END
# This one has squeeze and excitation, normalised groups, slopes that are learned, lines of channels, parameters as layers, and every kind that computes element by
# element, side by side, and with attributes that differ.
curves=$(sed -n 's/^LAYER_KIND(\([a-z0-9_]*\), same,.*/\1/p' "$PD_SOURCE/lib/model/layer_kind.def")
jq -n --args '{format: "pd-model", version: 1, name: "curves",
 inputs: [{name: "image", dtype: "f32", shape: [1, 28, 28]}, {name: "label", dtype: "i32", shape: []}],
 layers: ([{name: "conv", kind: "conv2d", inputs: ["image"], out_channels: 6, kernel: 5, stride: 3},
  {name: "soft", kind: "softmax", inputs: ["conv"], dim: 2},
  {name: "lines", kind: "mean", inputs: ["conv"], dim: 3, keepdim: true},
  {name: "grouped", kind: "groupnorm", inputs: ["conv"], num_groups: 3},
  {name: "bent", kind: "prelu", inputs: ["grouped"], num_parameters: 6},
  {name: "steep", kind: "prelu", inputs: ["grouped"]},
  {name: "places", kind: "reshape", inputs: ["bent"], shape: [6, 64]},
  {name: "line", kind: "conv1d", inputs: ["places"], out_channels: 4, kernel: 3, stride: 2, padding: 2,
   dilation: 2, groups: 2},
  {name: "plane", kind: "reshape", inputs: ["line"], shape: [2, 8, 8]},
  {name: "squeezed", kind: "mean", inputs: ["lines"], dim: 2, keepdim: true},
  {name: "gate", kind: "sigmoid", inputs: ["squeezed"]},
  {name: "excited", kind: "mul", inputs: ["conv", "gate"]},
  {name: "scale", kind: "parameter", inputs: ["image"], shape: [6, 1, 1], init: {weight: 3}},
  {name: "scaled", kind: "mul", inputs: ["scale", "excited"]},
  {name: "shift", kind: "parameter", inputs: ["conv"], shape: [1, 8, 8]},
  {name: "far", kind: "add", inputs: ["scaled", "shift"]}] +
  [$ARGS.positional[] | {name: ., kind: ., inputs: ["far"]}] +
  [{name: "by_tanh", kind: "gelu", inputs: ["far"], approximate: "tanh"},
  {name: "leaky", kind: "leaky_relu", inputs: ["far"], negative_slope: 0.3},
  {name: "shallow", kind: "elu", inputs: ["far"], alpha: 0.7},
  {name: "raised", kind: "conv_transpose2d", inputs: ["far"], out_channels: 4, kernel: [3, 2], stride: 2,
   padding: [1, 0], output_padding: [1, 0], groups: 2},
  {name: "larger", kind: "upsample", inputs: ["raised"], scale_factor: [1.3, 0.8], mode: "bilinear"},
  {name: "smaller", kind: "upsample", inputs: ["larger"], size: [15, 17]},
  {name: "again", kind: "upsample", inputs: ["smaller"], size: 16, mode: "bilinear", align_corners: true},
  {name: "lowered", kind: "conv2d", inputs: ["again"], out_channels: 4, kernel: 2, stride: 2},
  {name: "all", kind: "concat",
   inputs: ($ARGS.positional + ["soft", "steep", "plane", "by_tanh", "leaky", "shallow", "lowered"])},
  {name: "flat", kind: "flatten", inputs: ["all"]},
  {name: "norm", kind: "layernorm", inputs: ["flat"]},
  {name: "fc", kind: "linear", inputs: ["norm"], out_features: 10},
  {name: "loss", kind: "softmax_cross_entropy", inputs: ["fc", "label"]}])}' $curves >curves.json
idx_data data
# A minibatch is the whole data set, so that the order of the samples does not matter.
for batch in 110 22 11; do
	profile judged.json $batch >judged-$batch
done
profile looking.json 22 >looking-22
profile curves.json 110 >curves-110

# This model has LSTMs in both directions, lengths, and state that goes on.
cat >sequences.json <<'END'
{"format": "pd-model", "version": 1, "name": "sequences",
 "inputs": [{"name": "x", "dtype": "f32", "shape": [7, 5]},
            {"name": "length", "dtype": "i32", "shape": []},
            {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "both", "kind": "lstm", "inputs": ["x", "length"], "hidden_size": 6,
   "bidirectional": true},
  {"name": "plain", "kind": "lstm", "inputs": ["both"], "hidden_size": 9, "bias": false},
  {"name": "on", "kind": "lstm", "inputs": ["plain"], "hidden_size": 8, "lanes": 110},
  {"name": "flat", "kind": "flatten", "inputs": ["on"]},
  {"name": "fc", "kind": "linear", "inputs": ["flat"], "out_features": 10},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["fc", "label"]}]}
END
for part in train test; do
	mkdir -p sequences-data/$part
	{ npy "<f4" "(110, 7, 5)"; numbers 3850 1 | floats; } >sequences-data/$part/x.npy
	{ npy "|u1" "(110,)"; idx_bytes 110 1 7; } >sequences-data/$part/length.npy
	{ npy "|u1" "(110,)"; idx_bytes 110 1 9; } >sequences-data/$part/label.npy
done
for batch in 110 22; do
	profile sequences.json $batch >sequences-$batch
done

# judged BATCH REPLICAS CLIP: trains one minibatch, then up to six.  PyTorch goes on from the first and
# compares.
judged() {
	rm -rf ck
	plan $network-$1 $2 | jq --argjson m $((110 / $1)) \
		'.weights = "flush" | .microbatches = $m | del(.stages[].predicted, .predicted)' >plan.json
	for n in 1 6; do
		train ck plan.json --lr=0.2 --momentum=0.9 --weight-decay=0.01 --data=$network_data \
			--keep=9 --minibatches=$n $([ $n = 1 ] || echo --resume) ${3:+--clip-grad-norm=$3} >out
	done
	tail -n 1 out
	python3 "$PD_SOURCE/test/torch-judge.py" $network.json $network_data "$(at ck 1)" \
		"$(at ck 6)" 5 $3
}
network=judged network_data=data
while read -r batch clip replicas; do
	[ "$clip" != - ] || clip=
	test_ok "$((110 / batch)) microbatches of $batch, replicas $replicas${clip:+, clipped at $clip}" '
		judged $batch "$replicas" $clip'
done <<END
110 - 1
22 - 1 1
11 - 5
11 0.5 1 2
END
test_ok "attention and additive attention, replicas 1 1" '
	network=looking
	judged 22 1 1'
test_ok "curves and unlike shapes, replicas 1 1" '
	network=curves
	judged 110 "1 1"'
test_ok "layers that are frozen, in front and in the middle, replicas 1 1" '
	network=frozen
	jq ".layers |= map(if .name | IN(\"conv\", \"norm\") then .frozen = true else . end)" \
		judged.json >frozen.json
	profile frozen.json 22 >frozen-22
	judged 22 "1 1" 0.5'
test_ok "the comparison can fail" '
	network=judged
	judged 22 1
	status 4 python3 "$PD_SOURCE/test/torch-judge.py" judged.json data "$(at ck 1)" "$(at ck 6)" 4'
network=sequences network_data=sequences-data
for replicas in "1" "1 1"; do
	for batch in 110 22; do
		test_ok "LSTMs, $((110 / batch)) microbatches of $batch, stages of $replicas" '
			judged $batch "$replicas"'
	done
done
test_ok "their comparison can fail" '
	jq ".layers[2].lanes = 0" sequences.json >short.json
	status 4 python3 "$PD_SOURCE/test/torch-judge.py" short.json sequences-data "$(at ck 1)" \
		"$(at ck 6)" 5'
test_done
