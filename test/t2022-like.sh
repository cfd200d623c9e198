#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Layouts of one's own in the field's words (--like), alone and in tables; tables of plans for papers.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
PD_DEVICES=$PD_SOURCE/share/devices
export PD_DEVICES

pd-model gpt2 --layers=8 --hidden=1024 --heads=16 --sequence=1024 --vocabulary=50304 |
	pd-profile --device=h100-sxm --dtype=bf16 --batch-size=1 >gpt.json
machine="-q -t 8@450GB/s,2@50GB/s"
# like LAYOUT [OPTION...]: plans it into plan.json.
like() {
	layout=$1
	shift
	pd-plan $machine "$@" --like="$layout" gpt.json >plan.json 2>err || { cat err; return 1; }
}
# refused WORDS LAYOUT [OPTION...]: checks that it is a usage error of one line with the words.
refused() {
	words=$1 layout=$2
	shift 2
	status 2 pd-plan $machine "$@" --like="$layout" gpt.json 2>err >out
	cat err
	one_line err && [ ! -s out ] && grep -q -e "$words" err
}
test_ok "each degree is the one that was said" '
	like "tp=2 pp=2 vp=2 dp=4" --batch=64
	jq -e ".profile.group.tensor == 2 and .schedule == \"interleaved\" and .weights == \"flush\" and .microbatches == 64 and
		(.stages | length) == 4 and all(.stages[]; .replicas == 4)" plan.json
	like "tp=4,sp=yes,pp=2" --batch=64
	jq -e ".profile.group | .tensor == 4 and .sequence" plan.json
	jq -e ".schedule == \"1f1b\" and (.stages | map(.replicas) == [2, 2])" plan.json'
test_ok "stages have equally many blocks; where these do not divide, the ends count as one each" '
	blocks() { jq -c "[.stages[].layers | map(select(startswith(\"h.\")) | split(\".\")[1]) | unique | length]" plan.json; }
	like "pp=4 dp=1"
	[ "$(blocks)" = "[2,2,2,2]" ]
	like "pp=3 dp=1"
	[ "$(blocks)" = "[3,3,2]" ]
	like "pp=5 dp=1"
	[ "$(blocks)" = "[1,2,2,2,1]" ]
	like "pp=10 dp=1"
	[ "$(blocks)" = "[0,1,1,1,1,1,1,1,1,0]" ]'
test_ok "replicas that share weights out are a part of dp, of each server or all" '
	like "dp=16 shard=full micro=2" --batch=64
	jq -e ".profile.group.sharded == 16 and .profile.batch_size == 32 and .microbatches == 2 and .stages[0].replicas == 1" plan.json
	like "dp=16 fsdp=8" --batch=64
	jq -e ".profile.group.sharded == 8 and .stages[0].replicas == 2" plan.json
	like "tp=2 pp=2 dp=4 shard=optimizer" --batch=64
	jq -e ".profile.memory.sharded and .profile.group.sharded == 1" plan.json
	like "tp=2 pp=2 dp=4 shard=none" --batch=64
	jq -e ".profile.memory.sharded | not" plan.json'
test_ok "a microbatch that no profile has is estimated, as pd-profile does" '
	like "pp=2 dp=2 micro=4" --batch=64
	pd-model gpt2 --layers=8 --hidden=1024 --heads=16 --sequence=1024 --vocabulary=50304 |
		pd-profile --device=h100-sxm --dtype=bf16 --batch-size=4 >four.json
	jq -c "[.profile.layers[] | [.name, .forward_ns, .stash_bytes]]" plan.json >a
	jq -c "[.layers[] | [.name, .forward_ns, .stash_bytes]]" four.json | cmp - a
	jq -e ".microbatches == 16" plan.json'
test_ok "recomputation in the words of Megatron and torchtitan" '
	count() { jq "[.stages[].recompute // [] | flatten[]] | length" plan.json; }
	# of a block all that is not attention, nor every second of its products
	like "pp=2 dp=1 recompute=full"; full=$(count)
	like "pp=2 dp=1 recompute=selective"
	[ "$(jq -c "[.stages[].recompute | flatten[] | select(endswith(\".attn\"))] | length" plan.json)" -eq 8 ] && [ "$(count)" -eq 8 ]
	like "pp=2 dp=1 recompute=alternate"; [ $(($(count) * 2)) -eq $full ]
	like "pp=2 dp=1 recompute=none"; jq -e "[.stages[].recompute // false] | any | not" plan.json
	like "pp=2 dp=1 recompute=selective_op"
	jq -r ".stages[].recompute | flatten[]" plan.json >again
	! grep "attn$" again || false
	[ "$(count)" -gt 8 ] && [ "$(count)" -lt $full ]
	pd-plan $machine --stages="$(jq -r ".stages | map(\"\(.layers | length)x1\") | join(\",\")" plan.json)" --weights=flush \
		--recompute=selective-op gpt.json | jq -c .stages >a
	jq -c .stages plan.json | cmp - a'
test_ok "schedules by name; in a V a rank has two stages" '
	like "pp=4 dp=1 schedule=zb-v"
	jq -e ".schedule == \"zb-v\" and (.stages | length) == 8" plan.json
	like "pp=4 dp=1 schedule=gpipe"
	jq -e ".schedule == \"gpipe\"" plan.json
	like "pp=2 dp=1 weights=2bw"
	jq -e ".weights == \"2bw\"" plan.json
	like "pp=2 dp=1" --weights=2bw
	jq -e ".weights == \"2bw\"" plan.json'
test_ok "what is not planned, or contradicts itself, is refused" '
	refused "cp=2: plans have no context parallelism: expected cp=1" "tp=2 cp=2"
	refused "ep=8: plans have no expert parallelism: expected ep=1" "ep=8"
	like "tp=2 pp=2 dp=2 cp=1 ep=1"
	refused "tp 8 x pp 2 x dp 2 are 32 devices, and the topology has 16" "tp=8 pp=2 dp=2"
	refused "did you mean \"vp\"" "pp=2 vpp=2"
	refused "expected words such as tp=4, found \"four\"" "four"
	refused "vp=2: schedule \"1f1b\" has one stage on each rank" "pp=2 vp=2 schedule=1f1b"
	refused "vp=2: expected pp=2 or more" "pp=1 vp=2"
	refused "vp=3: schedule \"zb-v\" has 2 on each rank" "pp=2 vp=3 schedule=zb-v"
	refused "a global batch of 60 samples is no multiple of microbatches of 1 on 8 replicas" "dp=8" --batch=60
	refused "fsdp=3: expected a divisor of dp=8" "dp=8 fsdp=3"
	refused "fsdp=2: expected shard=full, found shard=optimizer" "dp=8 fsdp=2 shard=optimizer"
	refused "expected it with --like and --top" "tp=2" --tensor=1,2
	refused "stages" "pp=2" --stages=5,5'
test_ok "one that does not fit is answered with no, and what it needs" '
	status 1 pd-plan $machine --memory=1GB --like="pp=2 dp=1 recompute=none" gpt.json 2>err >out
	grep -q "^pd-plan: --like: this layout needs .* more than the 1 GB of a device" err && [ ! -s out ]'
test_ok "a network without blocks is cut into stages of about the same time" '
	chain 12 >chain.json
	pd-plan -q -t 4@1GB/s --like="pp=4 dp=1" chain.json | jq -e ".stages | map(.layers | length) == [3, 3, 3, 3]"
	status 2 pd-plan -q -t 4@1GB/s --like="pp=2 micro=3" chain.json 2>err
	grep -q "no profile has this batch size" err'

options="$machine --batch=32 --tensor=1,2 --schedule=interleaved --cut=blocks --top=3"
test_ok "in a table it is a row, in its place, that counts nowhere else" '
	pd-plan $options gpt.json >without.jsonl
	pd-plan $options --like="tp=4 pp=2 vp=2 dp=2 recompute=full" gpt.json >with.jsonl
	pd-plan $options --min-gain=0 --like="tp=4 pp=2 vp=2 dp=2" gpt.json >best.jsonl
	jq -se "(map(select(.yours)) | length) == 1 and (map(.samples_per_s) | . == (sort | reverse))" best.jsonl
	jq -e "select(.yours) | .tensor == 4 and .place == null and .pipelines == 2 and .fits and .virtual_stages == 2" with.jsonl
	jq -c "select(.yours | not) | del(.pareto)" with.jsonl >a
	jq -c "del(.pareto)" without.jsonl | cmp - a
	pd-plan $options --format=table --like="tp=4 pp=2 vp=2 dp=2 recompute=full" gpt.json >table
	cat table
	[ "$(grep -c "yours (--like)" table)" -eq 1 ] && grep "yours (--like)" table | grep -q "^-"
	eval "set -- $(jq -r "select(.yours) | .plan[0] | @sh" with.jsonl)"
	pd-plan $machine --batch=32 "$1" gpt.json | jq -e --slurpfile rows with.jsonl \
		".predicted.period_ns as \$ns | any(\$rows[]; .yours and .period_ns == \$ns)"'
test_ok "also where it does not fit" '
	pd-plan $options --memory=3GB --like="tp=1 pp=1 dp=16 recompute=none" gpt.json >large.jsonl
	jq -e "select(.yours) | .fits == false and .memory_bytes > 3000000000" large.jsonl
	pd-plan $options --memory=3GB --like="tp=1 pp=1 dp=16 recompute=none" --format=table gpt.json | grep -q "does not fit"'
test_ok "tables as Markdown and CSV have the rows of JSON Lines" '
	pd-plan $options --format=markdown gpt.json >table.md
	cat table.md
	[ "$(wc -l <table.md)" -eq 5 ] && [ "$(grep -c "^|.*|$" table.md)" -eq 5 ] && sed -n 2p table.md | grep -q "^|[-:|]*|$"
	pd-plan $options --format=csv gpt.json | tr -d "\r" >table.csv
	cut -d , -f 1-2 table.csv | sed 1d >a
	jq -r "[.place, .samples_per_s] | @csv" without.jsonl >b
	[ "$(cut -d , -f 1 a)" = "$(cut -d , -f 1 b)" ] && [ "$(wc -l <a)" -eq 3 ]
	head -n 1 table.csv | grep -q "^place,samples_per_s,.*,bottleneck,.*,plan$"
	jq -se "all(.[]; .bottleneck | test(\"^(computing|link|forwards ahead|shared processors) [0-9]+%\"))" without.jsonl
	grep -q "| tokens/s/device | *MFU |.*| bottleneck" table.md
	for format in csv markdown; do
		status 2 pd-plan $machine --format=$format gpt.json 2>err
		grep -q "expected it with --top" err
	done'

test_ok "pd-replay of several plans has a row for each, with the figures of each" '
	like "tp=2 pp=2 dp=4" --batch=32; mv plan.json a.json
	like "pp=4 vp=2 dp=4" --batch=32; mv plan.json b.json
	like "dp=16 shard=full" --batch=32; mv plan.json c.json
	pd-replay a.json b.json c.json >table
	cat table
	[ "$(wc -l <table)" -eq 4 ]
	for column in microbatch bubble memory step plan; do head -n 1 table | grep -q $column; done
	pd-replay --format=jsonl a.json b.json c.json >rows.jsonl
	[ "$(jq -r .file rows.jsonl | paste -s -d " ")" = "a.json b.json c.json" ]
	for plan in a b c; do
		pd-replay --format=json $plan.json >report.json
		jq -e --slurpfile r report.json --slurpfile p $plan.json "select(.file == \"$plan.json\") |
			.period_ns == (\$r[0].period_ns | round) and .bubble_percent == \$r[0].bubble_percent and
			.memory_bytes * (.tensor * .sharded) >= \$p[0].predicted.memory_bytes and
			.step_ns == .period_ns * .microbatches" rows.jsonl
	done'
test_ok "the same as CSV and Markdown; of one plan, too" '
	pd-replay --format=csv a.json b.json | tr -d "\r" >table.csv
	[ "$(wc -l <table.csv)" -eq 3 ] && head -n 1 table.csv | grep -q "^file,samples_per_s,.*,bubble_percent$"
	pd-replay --format=markdown a.json >table.md
	[ "$(wc -l <table.md)" -eq 3 ]
	pd-replay --format=jsonl a.json | jq -e ".file == \"a.json\""'
test_ok "pictures and comparisons are of one plan" '
	for format in svg json text chrome trace; do
		status 2 pd-replay --format=$format a.json b.json 2>err >out
		one_line err && grep -q "expected one plan" err
	done
	status 2 pd-replay --compare=c.json a.json b.json 2>err
	grep -q "compare: expected one file" err
	status 2 pd-replay a.json none.json 2>err >out
	[ ! -s out ]'
test_done
