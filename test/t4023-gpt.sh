#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A small GPT has tokens and positions, two blocks, and an output layer that shares the weight of the
# tokens.  With several stages that weight lies in the first and in the last.  Every partition ends with the
# same bits, those of the published rule, and PyTorch ends with the same weights.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# gpt: prints a model with 12 tokens of a vocabulary of 40, which ignores label 7.
gpt() {
	jq -n 'def start($std): {weight: "normal(\($std))"};
	def linear($name; $in; $out; $std): {name: $name, kind: "linear", inputs: [$in],
		out_features: $out, init: start($std)};
	def part($name; $in; $k): {name: $name, kind: "slice", inputs: [$in], dim: 2,
		start: (16 * $k), end: (16 * $k + 16)};
	def block($n; $in): "b\($n)" as $b | [
		{name: "\($b)norm1", kind: "layernorm", inputs: [$in]},
		linear("\($b)qkv"; "\($b)norm1"; 48; 0.2),
		part("\($b)q"; "\($b)qkv"; 0), part("\($b)k"; "\($b)qkv"; 1),
		part("\($b)v"; "\($b)qkv"; 2),
		{name: "\($b)attention", kind: "attention", inputs: ["\($b)q", "\($b)k", "\($b)v"],
			heads: 2, causal: true},
		linear("\($b)out"; "\($b)attention"; 16; 0.1),
		{name: "\($b)sum1", kind: "add", inputs: [$in, "\($b)out"]},
		{name: "\($b)norm2", kind: "layernorm", inputs: ["\($b)sum1"]},
		linear("\($b)up"; "\($b)norm2"; 64; 0.2),
		{name: "\($b)gelu", kind: "gelu", inputs: ["\($b)up"], approximate: "tanh"},
		linear("\($b)down"; "\($b)gelu"; 16; 0.1),
		{name: $b, kind: "add", inputs: ["\($b)sum1", "\($b)down"]}];
	{format: "pd-model", version: 1, name: "gpt",
	 inputs: [{name: "tokens", dtype: "i32", shape: [12]},
		  {name: "labels", dtype: "i32", shape: [12]}],
	 layers: ([{name: "tok", kind: "embedding", inputs: ["tokens"], num_embeddings: 40,
			embedding_dim: 16, init: start(0.3)},
		{name: "pos", kind: "position_embedding", inputs: ["tok"], num_embeddings: 20,
			init: start(0.1)}] + block(1; "pos") + block(2; "b1") + [
		{name: "norm", kind: "layernorm", inputs: ["b2"]},
		{name: "head", kind: "linear", inputs: ["norm"], out_features: 40, bias: false,
			shares: "tok"},
		{name: "loss", kind: "softmax_cross_entropy", inputs: ["head", "labels"],
			ignore_index: 7}])}'
}
gpt >gpt.json
profile gpt.json 2 >gpt
sgd="--lr=0.05 --momentum=0.9 --weight-decay=0.001"

# pair STAGES WEIGHTS MICROBATCHES: prints that plan, with about as many layers in each stage.
pair() {
	plan_with="--weights=$2 --microbatches=$3"
	plan gpt $(seq "$1" | sed 's/.*/1/')
	plan_with=
}

while read -r weights microbatches; do
	test_ok "$weights, $microbatches at a time: no partition changes a bit" '
		for stages in 1 2 3; do
			pair $stages $weights $microbatches >plan.json
			rm -rf ck-$stages
			train ck-$stages plan.json $sgd --synthetic --minibatches=7 --no-evaluate >out
			tail -n 1 out | jq -e ".memory == \"as predicted\""
			"$same" "$(at ck-1 7)" "$(at ck-$stages 7)"
			"$serial" $sgd --minibatches=7 --output=serial plan.json
			"$same" serial "$(at ck-$stages 7)"
		done'
done <<END
flush 4
2bw 4
END
test_ok "recomputed, in two parts: the same bits" '
	pair 1 flush 4 >plan.json
	rm -rf ck-whole
	train ck-whole plan.json $sgd --synthetic --minibatches=5 --no-evaluate >out
	for with in --recompute --schedule=zb-h1; do
		plan_with="--weights=flush --microbatches=4 $with"
		plan gpt 1 1 >plan.json
		plan_with=
		rm -rf ck
		train ck plan.json $sgd --synthetic --minibatches=5 --no-evaluate >out
		tail -n 1 out | jq -e ".memory == \"as predicted\""
		"$same" "$(at ck-whole 5)" "$(at ck 5)"
	done'
test_ok "the loss is that of a token, and perplexity e to the power of it" '
	pair 2 flush 2 >plan.json
	pd-run --threads=1 --synthetic --minibatches=3 --lr=1e-9 --report-every=1 plan.json >out
	jq -s -e "map(select(.event == \"progress\")) | length == 3 and
		all(.loss > 3 and .loss < 6 and (.perplexity / (.loss | exp) - 1 | fabs) < 1e-6)" out'

if ! python3 -c 'import sys, torch; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
	test_skip "trained by PyTorch, too" "there is no PyTorch for python3"
	test_done
	exit
fi

# Every sample has one label that is ignored, so any microbatch has as many as any other.
mkdir -p data/train data/test
python3 - <<'END'
import random
import struct

def save(name, rows):
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(rows)}, 12), }}".ljust(117)
    with open(name, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + b"\n")
        for row in rows:
            out.write(struct.pack("<12i", *row))

random.seed(5)
for part, count in ("train", 8), ("test", 2):
    tokens = [[random.randrange(40) for _ in range(12)] for _ in range(count)]
    labels = [[(3 * t + 1) % 40 for t in row] for row in tokens]
    for n, row in enumerate(labels):
        row[:] = [8 if label == 7 else label for label in row]
        row[n % 12] = 7
    save(f"data/{part}/tokens.npy", tokens)
    save(f"data/{part}/labels.npy", labels)
END

# judged STAGES MICROBATCHES: trains one minibatch of all samples, then up to six.  PyTorch goes on from the
# first and compares.
judged() {
	profile gpt.json $((8 / $2)) >judged
	plan_with="--weights=flush --microbatches=$2"
	plan judged $(seq "$1" | sed 's/.*/1/') >plan.json
	plan_with=
	rm -rf ck
	for n in 1 6; do
		train ck plan.json --lr=0.2 --momentum=0.9 --weight-decay=0.01 --data=data --keep=9 \
			--minibatches=$n --no-evaluate $([ $n = 1 ] || echo --resume) >out
	done
	python3 "$PD_SOURCE/test/torch-judge.py" gpt.json data "$(at ck 1)" "$(at ck 6)" ${3:-5}
}
while read -r stages microbatches; do
	test_ok "trained by PyTorch, too: stages $stages, microbatches $microbatches" '
		judged $stages $microbatches'
done <<END
1 1
2 4
4 2
END
test_ok "the comparison can fail" 'status 4 judged 2 4 4'

# This model has what GPT has not: rotated queries, a gate, other norms and curves, layers along other axes,
# and two losses.
cat >others.json <<'END'
{"format": "pd-model", "version": 1, "name": "others",
 "inputs": [{"name": "tokens", "dtype": "i32", "shape": [12]},
	    {"name": "labels", "dtype": "i32", "shape": [12]}],
 "layers": [
  {"name": "tok", "kind": "embedding", "inputs": ["tokens"], "num_embeddings": 40,
   "embedding_dim": 16, "padding_idx": 3},
  {"name": "norm1", "kind": "rmsnorm", "inputs": ["tok"]},
  {"name": "q", "kind": "linear", "inputs": ["norm1"], "out_features": 16, "bias": false},
  {"name": "k", "kind": "linear", "inputs": ["norm1"], "out_features": 8, "bias": false},
  {"name": "v", "kind": "linear", "inputs": ["norm1"], "out_features": 8, "bias": false},
  {"name": "qr", "kind": "rope", "inputs": ["q"], "head_dim": 8, "base": 100},
  {"name": "kr", "kind": "rope", "inputs": ["k"], "head_dim": 8, "base": 100},
  {"name": "attention", "kind": "attention", "inputs": ["qr", "kr", "v"], "heads": 2,
   "kv_heads": 1, "causal": true},
  {"name": "sum1", "kind": "add", "inputs": ["tok", "attention"]},
  {"name": "turned", "kind": "rope", "inputs": ["sum1"], "interleaved": true},
  {"name": "norm2", "kind": "rmsnorm", "inputs": ["turned"], "eps": 1e-5},
  {"name": "gate", "kind": "linear", "inputs": ["norm2"], "out_features": 24, "bias": false},
  {"name": "silu", "kind": "silu", "inputs": ["gate"]},
  {"name": "up", "kind": "linear", "inputs": ["norm2"], "out_features": 24, "bias": false},
  {"name": "product", "kind": "mul", "inputs": ["silu", "up"]},
  {"name": "down", "kind": "linear", "inputs": ["product"], "out_features": 16},
  {"name": "gelu", "kind": "gelu", "inputs": ["down"]},
  {"name": "across", "kind": "transpose", "inputs": ["gelu"], "dim0": 1, "dim1": -1},
  {"name": "mix", "kind": "linear", "inputs": ["across"], "out_features": 12},
  {"name": "shape", "kind": "reshape", "inputs": ["mix"], "shape": [12, 2, 8]},
  {"name": "mean", "kind": "mean", "inputs": ["shape"], "dim": 2},
  {"name": "rest", "kind": "slice", "inputs": ["gelu"], "dim": -1, "start": 5},
  {"name": "wide", "kind": "concat", "inputs": ["mean", "rest", "sum1"], "dim": 2},
  {"name": "far", "kind": "mse", "inputs": ["turned", "gelu"]},
  {"name": "large", "kind": "mse", "inputs": ["gelu"], "weight": 0.3},
  {"name": "head", "kind": "linear", "inputs": ["wide"], "out_features": 40},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["head", "labels"],
   "label_smoothing": 0.1}]}
END
cp others.json gpt.json
test_ok "other layers of sequences, trained by PyTorch, too" 'judged 2 4'
test_done
