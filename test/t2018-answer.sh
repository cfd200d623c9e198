#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What pd-plan says of a plan: does it fit, how is it laid out, how fast is it, what limits it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
chain 12 >chain.json

# nouns: prints what the lines of an answer begin with.
nouns() {
	awk '{ print $1 }' | paste -s -d " "
}
test_ok "an answer has a line for each question" '
	pd-plan -t 4@1GB/s chain.json >plan 2>err
	cat err
	[ "$(nouns <err)" = "model machine fits layout speed bottleneck next next" ]
	grep -q "^machine  *4 of 4 devices" err
	grep -q "^speed  *.* 888.9 samples/s" err
	grep -q "^bottleneck the processors of stage [0-3], busy for 9 ms per minibatch (100% of the period)" err
	pd-plan -t 4@10MB/s --stages=12 chain.json 2>err >plan
	cat err
	grep -q "^machine  *1 of 4 devices" err
	grep -q "^speed  *36 ms a step" err'
test_ok "--quiet says nothing, --explain its tables behind the answer" '
	pd-plan -t 4@1GB/s --quiet chain.json >plan 2>err
	[ ! -s err ]
	pd-plan -t 4@1GB/s --explain chain.json >plan 2>err
	head -n 1 err | grep -q "^model "
	grep -q "^limit: " err'

# A network whose products can be counted by hand, on a device of a tenth of a TFLOP/s.
cat >device.json <<'END'
{"format": "pd-device", "version": 1, "name": "slow", "kind": "cuda", "memory_bytes": 1000000000,
 "products_per_s": {"f32": 1e11}, "bandwidth_bytes_per_s": 1e11, "kernel_ns": 1000,
 "efficiency": {"products": 0.5, "memory": 0.5, "attention": 0.5}, "spread": 0.1}
END
cat >net.json <<'END'
{"format": "pd-model", "version": 1, "name": "net",
 "inputs": [{"name": "token", "dtype": "i32", "shape": [16]}, {"name": "label", "dtype": "i32", "shape": [16]}],
 "layers": [
  {"name": "embed", "kind": "embedding", "inputs": ["token"], "num_embeddings": 100, "embedding_dim": 64},
  {"name": "up", "kind": "linear", "inputs": ["embed"], "out_features": 256, "bias": false},
  {"name": "mix", "kind": "attention", "inputs": ["up", "up", "up"], "heads": 4, "causal": true},
  {"name": "head", "kind": "linear", "inputs": ["mix"], "out_features": 100, "bias": false},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["head", "label"]}]}
END
# figure WHAT FILE: prints the number in front of WHAT on the line of speed.
figure() {
	sed -n "s|^speed .*[ (]\([0-9.,]*\) $1.*|\1|p" "$2" | tr -d ,
}
test_ok "FLOPs and MFU are those of the products, counted by hand" '
	pd-profile --device=./device.json --batch-size=8 net.json >profile.json
	pd-plan -t 2@1GB/s --weights=flush --microbatches=4 --stages=5x2 profile.json 2>err >plan
	cat err
	jq -e ".predicted | .global_batch == 32 and .step_ns == 4 * .period_ns and .tokens_per_s == 16 * .samples_per_s and
		.mfu == .device_flops_per_s / 1e11" plan
	[ "$(jq -c ".predicted | [.device_flops_per_s / 1e12, .mfu * 100]" plan |
		awk -F "[][,]" "{ printf \"%.3g %.1f\", \$2, \$3 }")" = "$(figure TFLOP/s err) $(sed -n "s/.*MFU \(.*\) %/\1/p" err)" ]
	grep -q "^model  *net: 48,384 parameters, 16 tokens a sample, f32, SGD with momentum; global batch 32 (512 tokens)$" err
	# a token: 64 x 256 and 256 x 100 products; scores and their sums, 16 keys x 256 features each
	forward=$((2 * (64 * 256 + 256 * 100 + 2 * 16 * 256)))
	ns=$(jq ".predicted.period_ns * 4" plan)
	awk -v forward=$forward -v ns=$ns -v tera="$(figure TFLOP/s err)" -v mfu="$(sed -n "s/.*MFU //p" err)" "BEGIN {
		flops = 3 * forward * 512 / (ns / 1e9) / 2
		print flops, tera * 1e12, 100 * flops / 1e11, mfu
		exit !(tera * 1e12 / flops < 1.01 && flops / (tera * 1e12) < 1.01 && (mfu + 0) / (100 * flops / 1e11) < 1.05)
	}"
	awk -v tokens="$(figure tokens/s, err)" -v ns=$ns "BEGIN { exit !(tokens * ns / 512e9 > 0.99 && tokens * ns / 512e9 < 1.01) }"'
test_ok "degrees, accumulation and recomputation; unequal replicas" '
	pd-plan -t 4@1GB/s --weights=flush --microbatches=8 --stages=3x2,2x2 --recompute=all profile.json 2>err >plan
	cat err
	grep -q "^layout  *pp 2 x dp 2, 1f1b with weights flush; microbatch 8, 4 accumulated; 1 of 2 stages recompute$" err
	pd-plan -t 4@1GB/s --weights=flush --microbatches=8 --schedule=interleaved --chunks=2 --straight \
		--stages=2,1,1,1 profile.json 2>err >plan
	cat err
	grep -q "^layout  *pp 2 x dp 1, 2 virtual stages a rank, interleaved" err
	pd-plan -t 4@1GB/s --stages=3x2,2x1 profile.json 2>err >plan
	cat err
	grep -q "each stage updates after one minibatch of each of its replicas$" err
	grep -q "^layout  *pp 2 x dp 2-1, 1f1b with weights stash" err'
test_ok "the fullest device, by part and out of what it has" '
	pd-plan -t 2@1GB/s --stages=3,2 -m 500MB profile.json 2>err >plan
	cat err
	grep -q "^fits  *.* of 500 MB on the fullest device, of stage [01]: weights .*, gradients .*, optimizer .*, saved activations " err
	pd-plan -t 2@1GB/s --stages=3,2 profile.json 2>err >plan
	grep -q "^fits  *.* of 1 GB on" err'
test_done
