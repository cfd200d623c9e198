# SPDX-License-Identifier: Apache-2.0
# Devices that act as one rank: profiles of groups, plans of them, and what they are refused for.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
PD_DEVICES=$PD_SOURCE/share/devices
export PD_DEVICES

# Times that can be worked out by hand: 1000 operations, 100 bytes or 10 bytes between devices take a microsecond.
cat >hand.json <<'END'
{"format": "pd-device", "version": 1, "name": "hand", "kind": "cuda", "memory_bytes": 1000000000,
 "products_per_s": {"f32": 1e9}, "bandwidth_bytes_per_s": 1e8, "kernel_ns": 7,
 "efficiency": {"products": 1, "memory": 1},
 "link": {"bandwidth_bytes_per_s": 20000000, "efficiency": 0.5, "latency_ns": 3}, "overlap_cost": 0.25}
END
cat >net.json <<'END'
{"format": "pd-model", "version": 1, "name": "net",
 "inputs": [{"name": "x", "dtype": "f32", "shape": [40]}, {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "front", "kind": "bias", "inputs": ["x"]},
  {"name": "up", "kind": "linear", "inputs": ["front"], "out_features": 80, "bias": false},
  {"name": "relu", "kind": "relu", "inputs": ["up"]},
  {"name": "down", "kind": "linear", "inputs": ["relu"], "out_features": 20, "bias": false},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["down", "label"]}]}
END
# refused WORDS COMMAND...: checks that it refuses in one line with the WORDS.
refused() {
	words=$1
	shift
	status 2 "$@" >out 2>err
	cat err
	grep -e "$words" err && one_line err
}
# layer NAME: prints forward, the two parts of backward, parameters and what is kept.
layer() {
	jq -c ".layers[] | select(.name == \"$1\") | [.forward_ns, .backward_input_ns, .backward_weight_ns,
		.parameter_bytes, .stash_bytes]" profile.json
}
same() {
	[ "$1" = "$2" ] || { echo "found $1, expected $2"; return 1; }
}

test_ok "a pair over two devices, by hand: times of one, bytes of both" '
	pd-profile --device=./hand.json --batch-size=100 --tensor=2 net.json >profile.json
	jq -e ".group == {tensor: 2, sequence: false, sharded: 1, bandwidth_bytes_per_s: 20000000, latency_ns: 3} and
		.device.memory_bytes == 2000000000 and .batch_size == 100 and .memory.model == \"megatron\"" profile.json
	# forward and input: 2 * 100 * 40 * 40 operations, 320 us, but 4 * (4000 + 4000 + 1600) bytes, 384 us;
	# weight: bytes of x, dy, and a sum of 1600 read and written, 448 us.
	# The sum of both gradients of front, 2 * 3 ns + 16000 bytes, 1600.003 us, hides 448.007 us at a quarter.
	same "$(layer up)" "[384007,$((384007 + 1600003 - 448007 + 448007 / 4)),448007,12800,0]"
	same "$(layer relu | jq -c "[.[0], .[3:][]]")" "[320007,0,32000]"
	# 4 * (4000 + 2000 + 800) bytes, and the sum of both parts of 8000 bytes
	same "$(layer down | jq -c "[.[0], .[3:][]]")" "[$((272007 + 800003)),6400,0]"
	same "$(layer front | jq -c "[.[0], .[3:][]]")" "[321607,320,32000]"'
test_ok "sequence parallelism: halves of sums, and what is whole by rows" '
	pd-profile --device=./hand.json --batch-size=100 --tensor=2,sequence net.json >profile.json
	same "$(layer up | jq .[0])" "$((384007 + 800003))"
	same "$(layer down | jq .[0])" "$((272007 + 400003))"
	same "$(layer front | jq -c "[.[0], .[3:][]]")" "[161607,320,16000]"'
test_ok "weights shared out by two: gathered while the layers before compute, a sample each" '
	pd-profile --device=./hand.json --batch-size=100 --sharded=2 net.json >profile.json
	jq -e ".group.sharded == 2 and .batch_size == 200 and .device.memory_bytes == 2000000000" profile.json
	# half of 160 bytes of weights are waited for, 8.003 us, then half of 12800, 640.003 us, less what is computed
	# meanwhile, 329.61 us; what is hidden costs a quarter
	same "$(layer front | jq -c "[.[0], .[3]]")" "[$((321607 + 8003)),160]"
	same "$(layer up | jq -c "[.[0], .[3]]")" "[$((640007 + 318396 + 321607 / 4)),12800]"
	jq -e ".layers[1] | .workspace_bytes == 2 * 3200 * (4 + 4 + 4)" profile.json'
pd-model gpt2 --layers=1 >gpt2-m.json
pd-profile --device=a100-80 --dtype=bf16 --batch-size=1 gpt2-m.json >gpt2-1.json
test_ok "two links: layers are exchanged inside a server, weights over the half of its link that one of two has" '
	pd-profile --device=./hand.json --dtype=f32 --batch-size=100 --tensor=2 --sharded=2 \
		--topology=2@40MB/s+3ns,2@20MB/s+5us net.json >profile.json 2>err
	same "$(cat err)" ""
	jq -e ".group == {tensor: 2, sequence: false, sharded: 2, bandwidth_bytes_per_s: 40000000, latency_ns: 3,
		sharded_bandwidth_bytes_per_s: 10000000, sharded_latency_ns: 5000}" profile.json
	# half of 160 bytes at half of 10 MB/s, and 5 us
	same "$(layer front | jq .[0])" "$((321607 + 16000 + 5000))"
	for way in 2@20MB/s+3ns,2@20MB/s+3ns 2@20MB/s+3ns,2@1MB/s+3ns; do
		pd-profile --device=./hand.json --batch-size=100 --tensor=2 --topology=$way net.json
	done | jq -es ".[0] == .[1] and .[0].group.bandwidth_bytes_per_s == 20000000"
	# four of a server and two servers: four gathers leave a server at once; eight in a row: one of them
	for split in "--tensor=4 --sharded=2" --sharded=8; do
		pd-profile --device=a100-80 --dtype=bf16 --batch-size=1 $split --topology=4@300GB/s,2@100GB/s gpt2-m.json
	done >two-links.json
	jq -cs "map(.group | .sharded_bandwidth_bytes_per_s // .bandwidth_bytes_per_s)" two-links.json >bandwidths
	same "$(cat bandwidths)" "[25000000000,100000000000]"
	pd-plan -t 4@300GB/s,2@100GB/s --group-spans --effort=0 --weights=flush --tensor=4 --shard=full --microbatches=4 \
		--explain gpt2-1.json >plan.json 2>out
	awk "/^tensor/ { on = 1; next } on && /^\$/ { exit } on { print \$1, \$2 }" out >tried
	printf "%s\n" "4 1" "4 2" | cmp - tried
	jq -s ".[0]" two-links.json >eight.json
	pd-plan -t 4@300GB/s,2@100GB/s --group-spans --weights=flush --microbatches=4 --explain eight.json >plan.json 2>out
	grep "a rank is 8 devices, 2 times 4, .*, over 300 GB/s and 25 GB/s" out'
test_ok "a link that is taken for granted is told, and a machine that is too small refused" '
	pd-profile --device=./hand.json --sharded=64 net.json 2>err >profile.json
	grep "each of the 64 devices .* over the link of \"hand\", 20 MB/s, .*--topology" err
	refused "found 4 devices: expected at least 8" pd-profile --device=./hand.json --sharded=8 --topology=4@1GB/s net.json
	refused "topology needs --tensor=.* or --sharded=" pd-profile --device=./hand.json --topology=4@1GB/s net.json'
test_ok "whole numbers are taken as programs write them" '
	sed "s/1000000000/1e9/; s/: 20000000,/: 20000000.0,/" hand.json >real.json
	cmp real.json hand.json && return 1
	for device in hand real; do
		pd-profile --device=./$device.json net.json
	done | jq -es ".[0].layers == .[1].layers and .[1].device.memory_bytes == 1000000000"
	sed "s/: 20000000,/: 20000000.5,/" hand.json >real.json
	refused "bandwidth_bytes_per_s: expected a whole number" pd-profile --device=./real.json net.json'
test_ok "the blocks of a GPT keep what is published of Megatron-LM: s b h (10 + 24 / t), and / t with sequence" '
	pd-model gpt2 --layers=1 --hidden=768 --heads=12 >gpt.json
	for split in 4:16 4,sequence:8.5; do
		pd-profile --device=a100-80 --dtype=bf16 --batch-size=2 --tensor=${split%:*} gpt.json >profile.json
		same "$(jq "[.layers[] | select(.name | startswith(\"h.\")) | .stash_bytes] | add / 4 / (1024 * 2 * 768)" \
			profile.json)" "${split#*:}"
	done
	jq ".attention = \"unfused\"" "$PD_DEVICES/a100-80.json" >unfused.json
	pd-profile --device=./unfused.json --dtype=bf16 --batch-size=2 --tensor=4 gpt.json >profile.json
	same "$(jq "[.layers[] | select(.name | startswith(\"h.\")) | .stash_bytes] | add / 4 / (1024 * 2 * 768)" \
		profile.json)" "$((16 + 5 * 12 * 1024 / 768 / 4))"'
test_ok "ranks of several devices: links side by side, memory of all, reports of one" '
	pd-model gpt2 --layers=8 | pd-profile --device=a100-80 --dtype=bf16 --batch-size=2 --tensor=4 - >profile.json
	pd-plan -t 8@300GB/s,2@100GB/s --effort=0 --weights=flush --microbatches=8 --straight --explain profile.json >plan.json 2>out
	jq -e ".topology.levels | map([.count, .bandwidth_bytes_per_s]) == [[2, 1200000000000], [2, 100000000000]]" plan.json
	grep "on 4 of 4 ranks of 4 devices" out
	grep "a rank is 4 devices, which share layers out, over 300 GB/s" out
	grep "a device  of it for what is ahead" out
	jq -e ".profile.group.tensor == 4" plan.json
	pd-replay plan.json
	pd-replay -t 8@300GB/s,2@1GB/s plan.json
	# half of a server, a server, and two
	pd-plan -t 4@300GB/s,4@100GB/s --effort=0 --weights=flush --straight -q profile.json |
		jq -e ".topology.levels | map([.count, .bandwidth_bytes_per_s]) == [[4, 100000000000]]"
	pd-plan -t 2@300GB/s,4@100GB/s --group-spans --effort=0 --weights=flush --straight -q profile.json |
		jq -e ".topology.levels | map([.count, .bandwidth_bytes_per_s]) == [[2, 200000000000]]"
	pd-plan -t 4@300GB/s --weights=flush -q profile.json | jq -e ".topology.levels | length == 1"
	for format in svg dot; do
		pd-plan -t 8@300GB/s,2@100GB/s --effort=0 --weights=flush --straight -q --format=$format profile.json \
			>drawing
		grep "4 of 4 ranks of 4 devices" drawing
	done'
test_ok "memory of a device is what --memory says" '
	pd-plan -t 4@300GB/s --weights=flush --recompute=none -q profile.json >plan.json
	# the parameters of a group, 18 bytes each, and what is kept; a tenth more
	all=$(jq "[.profile.layers[] | .parameter_bytes] | add" plan.json)
	jq -e "$all / 4 * 18 < .stages[0].predicted.memory_bytes" plan.json
	each=$(jq ".stages[0].predicted.memory_bytes / 4 | floor" plan.json)
	pd-plan -t 4@300GB/s --weights=flush -q --recompute=none --memory=$((each + 10)) profile.json >plan.json
	status 1 pd-plan -t 4@300GB/s --weights=flush -q --memory=$((each - 1000)) --recompute=none profile.json 2>err
	cat err
	grep "needs $((each / 1000000)) MB\|needs $((each / 1000000 + 1)) MB" err'
test_ok "Megatron-LM is told" '
	pd-model gpt2 --layers=8 | pd-profile --device=a100-80 --dtype=bf16 --batch-size=2 --tensor=4,sequence - >profile.json
	pd-plan -t 8@300GB/s --weights=flush --microbatches=4 --stages="megatron:Et*4|t*4L" --format=megatron -q profile.json >out
	cat out
	grep -- "--pipeline-model-parallel-size 2 .*--tensor-model-parallel-size 4 --sequence-parallel --bf16$" out'
test_ok "of several degrees the best is taken, and all are told" '
	pd-model gpt2 --layers=6 --hidden=1024 --heads=16 | pd-profile --device=a100-80 --dtype=bf16 --batch-size=1 - >one.json
	options="-t 4@300GB/s,2@100GB/s --microbatches=8 --effort=0"
	pd-plan $options --tensor=1,2,4,3 --explain one.json >plan.json 2>out
	cat out
	grep "none: layer \"h.0.attn\" has 16 heads, which 3 devices cannot share out" out
	best=$(awk "/^tensor/ { on = 1 } on && /\/s/ { sub(\"/s.*\", \"\"); if (\$NF > most) { most = \$NF; at = \$1 } }
		on && /^$/ { exit } END { print at }" out)
	taken=$(awk "/taken/ { print \$1 }" out)
	same "$taken" "$best"
	jq -e "(.profile.group.tensor // 1) == $taken and .profile.memory.model == \"megatron\" and .weights == \"flush\"" plan.json
	# plain tensor parallelism: two groups of four
	jq -e ".predicted.alternatives[] | select(.name == \"tensor-parallel\") | .tensor == 4 and .ranks == 2" plan.json
	pd-replay plan.json
	# one degree is what pd-profile writes for it, over the link of the topology
	pd-plan $options --tensor=2,sequence -q one.json >two.json
	pd-profile --device=a100-80 --dtype=bf16 --batch-size=1 --tensor=2,sequence \
		<"$(jq .profile.model two.json >model.json; echo model.json)" >group.json
	pd-plan $options --weights=flush -q group.json >given.json
	same "$(jq -c "[.stages, .profile.layers, .topology, .predicted.period_ns]" two.json | cksum)" \
		"$(jq -c "[.stages, .profile.layers, .topology, .predicted.period_ns]" given.json | cksum)"
	pd-plan -t 4@300GB/s,2@100GB/s --effort=0 --tensor=1,2 --batch=8 -q one.json | jq -e ".microbatches <= 8"
	status 1 pd-plan ${options% --effort=0} --tensor=1,2 --memory=10MB -q one.json 2>err
	grep "no plan fits" err'
test_ok "weights are shared out in twos, fours and eights, where that is asked" '
	pd-plan -t 4@300GB/s,2@100GB/s --effort=0 --tensor=1,2 --shard=full --batch=16 --explain one.json >plan.json 2>out
	cat out
	awk "/^tensor/ { on = 1; next } on && /^\$/ { exit } on { print \$1, \$2 }" out >tried
	printf "%s\n" "1 1" "2 1" "1 2" "1 4" "2 2" | cmp - tried
	pd-replay plan.json
	pd-plan -t 4@300GB/s,2@100GB/s --effort=0 --tensor=1 --shard=optimizer,full --microbatches=4 --explain one.json \
		>plan.json 2>out
	awk "/^tensor/ { on = 1; next } on && /^\$/ { exit } on { print \$2, /optimizer shared out/ }" out >tried
	printf "%s\n" "1 1" "2 0" "4 0" | cmp - tried
	jq -e ".profile.memory.sharded == ((.profile.group.sharded // 1) == 1)" plan.json
	refused "shard: expected optimizer, full, or optimizer,full, found \"fully\"" pd-plan -t 4@1GB/s --shard=fully one.json'
test_ok "replicas that share the optimizer out: memory, the time of updates, and what they send" '
	pd-plan -t 4@300GB/s --tensor=1 --microbatches=8 --stages=90x4 -q one.json >plain.json
	pd-plan -t 4@300GB/s --tensor=1 --microbatches=8 --stages=90x4 -q --shard=optimizer one.json >shared.json
	jq -e ".profile.memory.sharded" shared.json
	for plan in plain shared; do
		pd-replay --format=json $plan.json | jq -c ".stages[0] | [.step_ns, .sent_bytes]"
	done | jq -se ".[1][0] / .[0][0] > 0.249 and .[1][0] / .[0][0] < 0.251 and
		.[1][1] / .[0][1] > 0.7499 and .[1][1] / .[0][1] < 0.7501"
	jq -se ".[1].predicted.memory_bytes < .[0].predicted.memory_bytes and .[1].predicted.period_ns < .[0].predicted.period_ns and
		.[1].predicted.lower_bound_ns <= .[1].predicted.period_ns" plain.json shared.json
	pd-plan -t 4@300GB/s --tensor=2 --weights=flush --shard=optimizer --microbatches=8 --stages="megatron:Et*6Lx2" \
		--format=megatron -q one.json | grep -- "--tensor-model-parallel-size 2 --use-distributed-optimizer --bf16$"'
test_ok "what cannot be shared out is refused, and so is a run" '
	pd-plan -t 8@300GB/s --weights=flush --straight -q profile.json >plan.json
	refused "a rank is 4 devices that share layers out, which pd-run cannot" pd-run --synthetic plan.json
	refused "DeepSpeed cannot be told that a rank is 4 devices" pd-plan -t 8@300GB/s --weights=flush --straight -q \
		--format=deepspeed profile.json
	refused "--group-spans" pd-plan -t 2@300GB/s,4@1GB/s --weights=flush profile.json
	refused "do not make up whole groups" pd-plan -t 6@300GB/s --weights=flush profile.json
	refused "layer \"h.0.attn.q\" has 768 features\|layer \"h.0.attn\" has 12 heads, which 5 devices cannot share out" \
		pd-profile --device=a100-80 --dtype=bf16 --tensor=5 gpt.json
	pd-model resnet18 >resnet.json
	refused "has no pair of linear layers" pd-profile --device=a100-80 --tensor=2 resnet.json
	refused "tensor=2 needs --device=NAME" pd-profile --tensor=2 net.json
	refused "tensor: \"2,sequences\": expected" pd-profile --device=a100-80 --tensor=2,sequences net.json
	jq "del(.link)" hand.json >alone.json
	refused "expected at most 1 number" pd-profile --device=a100-80 --tensor=1,2 net.json
	refused "was measured .* with pd-profile --fit" pd-plan -t 4@1GB/s --tensor=1,2 "$PD_SOURCE/test/data/small-profile.json"
	refused "sharded needs --device=NAME" pd-profile --sharded=2 net.json
	refused "pd-run does not share layers or weights out" pd-plan -t 4@1GB/s --memory-model=pd-run --shard=full one.json
	refused "Megatron cannot be told that a rank is 2 devices: expected one that shares no weights out" pd-plan \
		-t 4@1GB/s --weights=flush --format=megatron <"$(pd-profile --device=a100-80 --sharded=2 gpt.json >two.json
		echo two.json)"
	refused "expected --weights=flush" pd-plan -t 4@1GB/s --weights=stash --tensor=1,2 one.json
	refused "layer \"h.0.attn\" has 16 heads, which 3 devices" pd-plan -t 3@1GB/s --tensor=3 one.json
	refused "it has no \"link\"" pd-profile --device=./alone.json --tensor=2 net.json
	jq ".attention = \"fussed\"" hand.json >bad.json
	refused "attention: expected one of \"fused\", \"unfused\"" pd-profile --device=./bad.json net.json
	jq ".group.tensor = 0" profile.json >bad.json
	refused "group.tensor: expected" pd-plan -t 4@1GB/s bad.json'
test_done
