# SPDX-License-Identifier: Apache-2.0
# pd-plan: profiles to plans.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# chain LAYERS >FILE: a profile of equal layers of 3 ms and 1 MB parameters.
chain() {
	awk -v n="$1" 'BEGIN {
		printf "{\"format\": \"pd-profile\", \"version\": 1, \"name\": \"chain\", \"batch_size\": 8,"
		printf " \"dtype\": \"f32\", \"device\": {\"kind\": \"cpu\", \"name\": \"none\"}, \"layers\": ["
		for (l = 0; l < n; l++)
			printf "%s{\"name\": \"l%d\", \"inputs\": [%s], \"forward_ns\": 1000000," \
				" \"backward_ns\": 2000000, \"activation_bytes\": 1000," \
				" \"parameter_bytes\": 1000000}", l ? ", " : "", l,
				l ? "\"l" l - 1 "\"" : ""
		print "]}"
	}'
}
chain 12 >chain.json
chain 200 >long.json

test_ok "a plan from a pipe is the plan from a file" '
	pd-plan -t 4@1GB/s chain.json >a.json
	pd-plan --topology=4@1GB/s <chain.json >b.json
	cmp a.json b.json'
test_ok "the same input gives the same bytes" '
	pd-plan -t 3@1GB/s,2@100MB/s+5us chain.json >a.json
	pd-plan -t 3@1GB/s,2@100MB/s+5us chain.json >b.json
	cmp a.json b.json'
test_ok "a plan can be read again" '
	pd-plan -t 4@1GB/s chain.json >a.json
	"$PD_BUILD/test/unit/read-document" plan a.json >again
	cmp a.json again'
test_ok "one device needs no link" '
	pd-plan --gpus=1 chain.json | jq -e ".predicted.period_ns == 36000000 and .predicted.gap == 0"'
test_ok "several do" '
	status 2 pd-plan --gpus=2 chain.json 2>err; one_line err; grep -q -- --topology err'
test_ok "so many devices must be given" '
	status 2 pd-plan chain.json 2>err; one_line err; grep -q -- --gpus err
	status 2 pd-plan --gpus=2 -t 2@1GB/s chain.json 2>err; one_line err'
test_ok "--gpus takes the measured link" '
	jq ".link = {bandwidth_bytes_per_s: 1000000000, latency_ns: 7}" chain.json >linked.json
	pd-plan --gpus=2 linked.json |
		jq -e ".topology.levels == [{count: 2, bandwidth_bytes_per_s: 1000000000, latency_ns: 7}]"'
test_ok "--straight has no replicas" '
	pd-plan --straight -t 4@1GB/s chain.json |
		jq -e "[.stages[].replicas] == [1, 1, 1, 1] and [.stages[].layers | length] == [3, 3, 3, 3]"'
test_ok "no device is used for nothing" '
	pd-plan --straight -t 7@1GB/s -c sosp19 chain.json | jq -e ".stages | length == 6"'
test_ok "--stages is taken as it is" '
	pd-plan --stages=8x2,3,1x1 -t 4@1GB/s chain.json |
		jq -e "[.stages[] | [(.layers | length), .replicas, .warmup]] == [[8, 2, 1], [3, 1, 1], [1, 1, 0]]"'
test_ok "--stages says by how many layers it is wrong" '
	status 2 pd-plan --stages=8,2 -t 4@1GB/s chain.json 2>err; one_line err; grep -q "2 fewer" err
	status 2 pd-plan --stages=8,8 -t 4@1GB/s chain.json 2>err; one_line err; grep -q "4 more" err'
test_ok "--stages is refused where it is not a list" '
	for list in "" x 8x 8x0,4 0,12 8,,4 8,4, 8x1x1,4 -1,13 99999999999999999999; do
		status 2 pd-plan --stages="$list" -t 4@1GB/s chain.json 2>err; one_line err
	done'
test_ok "--stages cannot use more devices than there are" '
	status 2 pd-plan --stages=8x4,4 -t 4@1GB/s chain.json 2>err; one_line err; grep -q "5 ranks" err'
test_ok "no plan fits: what is closest, by how much, where" '
	status 1 pd-plan -m 1MB -t 4@1GB/s chain.json 2>err >out; one_line err; [ ! -s out ]
	grep -q "closest needs .* on stage .* more than the 1 MB" err
	status 1 pd-plan -m 1MB --stages=12 -t 4@1GB/s chain.json 2>err; one_line err'
test_ok "a plan keeps to the limit" '
	pd-plan -t 4@1GB/s -m 25MB chain.json | jq -e ".predicted.memory_bytes <= 25000000 and
		([.stages[].predicted.memory_bytes] | max) == .predicted.memory_bytes"'
test_ok "what this version cannot plan is refused by name" '
	status 2 pd-plan --schedule=gpipe -t 2@1GB/s chain.json 2>err; one_line err
	grep -q "not yet planned by this version; known: 1f1b" err
	status 2 pd-plan --weights=2bw -t 2@1GB/s chain.json 2>err; grep -q "known: stash" err
	status 2 pd-plan --microbatches=4 -t 2@1GB/s chain.json 2>err; grep -q "known: 1" err
	status 2 pd-plan --cost=other -t 2@1GB/s chain.json 2>err; one_line err'
test_ok "200 stages in a row" '
	pd-plan --straight -c sosp19 -t 200@10GB/s long.json | jq -e ".stages | length == 200"
	pd-plan --stages="$(yes 1 | head -200 | paste -s -d, -)" -t 200@10GB/s long.json |
		jq -e ".predicted.period_ns >= 3000000"'
test_ok "the period is that of a replay" '
	pd-plan -t 4@1GB/s --stages=6x3,6 chain.json >a.json
	rate=$(printf "%.1f" "$(jq .predicted.samples_per_s a.json)")
	pd-replay a.json | grep "samples per second  *$rate in steady state"'
test_ok "--explain speaks on standard error alone" '
	pd-plan -e -t 4@1GB/s chain.json >a.json 2>err
	jq -e . a.json >/dev/null; grep -q "^limit:" err; grep -q "data parallelism" err'

profiles=$SHARED/profiles
if [ -d "$profiles" ]; then
	for model in vgg16 resnet50 gnmt; do
		for topology in 4@1GB/s 16@1.25GB/s 4@12GB/s,4@1.25GB/s; do
			test_ok "$model on $topology: a valid plan, not above its bound or data parallelism" '
				pd-plan -m 1TB -t "$topology" "$profiles/$model.json" >a.json
				"$PD_BUILD/test/unit/read-document" plan a.json >again
				jq -e ".predicted | .gap >= 0 and .speedup_over_data_parallel >= 1" a.json'
		done
	done
	test_ok "VGG-16 on 16 devices of 25 Gbit/s: 15-1, as published" '
		pd-plan -m 1TB -t 16@3.125GB/s -c sosp19 "$profiles/vgg16.json" |
			jq -e "[.stages[].replicas] == [15, 1]"'
	test_ok "sosp19: no plan by hand of two stages is faster than the one found" '
		pd-plan -m 1TB -t 4@1GB/s -c sosp19 "$profiles/vgg16.json" >a.json
		best=$(jq .predicted.period_ns a.json)
		for layers in 5 10 17 18 24 25 31 39; do
			for replicas in 1 2 3; do
				hand=$(pd-plan -m 1TB -t 4@1GB/s -c sosp19 "$profiles/vgg16.json" \
					--stages="${layers}x$replicas,$((40 - layers))x$((4 - replicas))" |
					jq .predicted.period_ns)
				[ "$hand" -ge "$best" ]
			done
		done'
else
	test_skip "published profiles" "not here"
fi
test_done
