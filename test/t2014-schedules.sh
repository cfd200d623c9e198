# SPDX-License-Identifier: Apache-2.0
# pd-plan plans with every schedule, with every kind of weights, and recomputes what it is told to or has to.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

chain 12 >chain.json
chain 200 >long.json

# plans PROFILE FILTER OPTION...: plans a profile for four devices, and checks that the plan can be read and
# replayed and that FILTER is true of it.
plans() {
	profile=$1 filter=$2
	shift 2
	pd-plan -t 4@1GB/s "$@" "$profile" >a.json
	"$PD_BUILD/test/unit/read-document" plan a.json >again
	cmp a.json again
	pd-replay a.json >out
	jq -c "[.schedule, .weights, .microbatches, .stages[].ranks, .stages[].recompute, .predicted]" a.json
	jq -e "$filter" a.json
}
# planned FILTER OPTION...: does so with the chain, whose period cannot be shorter than 9 ms.
planned() {
	plans chain.json "$@"
	jq -e ".predicted.period_ns >= 9000000 and .predicted.gap >= 0" a.json
}

# refused WORDS OPTION...: checks that pd-plan refuses these in one sentence with the WORDS.
refused() {
	words=$1
	shift
	status 2 pd-plan -t 4@1GB/s "$@" chain.json 2>err >out
	cat err
	one_line err
	[ ! -s out ]
	grep -q -- "$words" err
}

while read -r options expected; do
	test_ok "$options is $expected" '
		planned "[.schedule, .weights, .microbatches] == [$expected]" \
			--stages=3,3,3,3 $(echo "$options" | tr + " ")'
done <<'END'
--schedule=1f1b "1f1b","stash",1
--weights=vertical-sync "1f1b","vertical-sync",1
--weights=2bw "1f1b","2bw",4
--weights=flush "1f1b","flush",4
--weights=latest "1f1b","latest",1
--microbatches=3 "1f1b","stash",3
--schedule=gpipe "gpipe","flush",4
--schedule=gpipe+--microbatches=8 "gpipe","flush",8
--schedule=none "none","flush",4
--schedule=none+--weights=stash "none","stash",1
--schedule=nf1b "nf1b","vertical-sync",4
--schedule=nf1b+--weights=latest+--microbatches=2 "nf1b","latest",2
--schedule=interleaved "interleaved","flush",2
END
test_ok "microbatches are what all replicas can share" '
	pd-plan -t 6@1GB/s --stages=6x3,6x2 --weights=flush chain.json | jq -e ".microbatches == 6"
	pd-plan -t 4@1GB/s --stages=6x3,6 --weights=flush chain.json | jq -e ".microbatches == 6"
	planned ".microbatches == 4" --stages=6x2,6x2 --weights=2bw'
test_ok "a plan that is searched for" '
	planned ".weights == \"2bw\"" --weights=2bw
	planned "[.stages[].replicas] | max == 1" --schedule=nf1b
	planned "[.stages[].ranks] == [[0], [1], [2], [3], [3], [2], [1], [0]]" --schedule=zb-v
	planned ".schedule == \"v-half\" and .weights == \"2bw\"" --schedule=v-half --weights=2bw --microbatches=8
	planned "[.stages[].ranks] == [[0], [1], [2], [3], [0], [1], [2], [3]]" --schedule=interleaved --straight
	jq ".topology.levels[0].count = 8 | .stages[].ranks |= map(if . == 3 then 7 else . end)" \
		a.json >gap.json
	status 2 pd-replay gap.json 2>err; one_line err
	grep -q "gap.json: stages: expected each rank from 0 to 7 in one of them, rank 3 is in none" err'
test_ok "chunks: every rank has as many, cut or not cut by hand" '
	planned "[.stages[].ranks[0]] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3] and .microbatches == 8" \
		--schedule=interleaved --chunks=3 --microbatches=8
	planned "[.stages[].ranks[0]] == [0, 1, 0, 1, 0, 1]" \
		--schedule=interleaved --chunks=3 --stages=2,2,2,2,2,2'
test_ok "draining costs a bubble of (p - 1) / M: gpipe, 4 stages of 9 ms, 4 and 12 microbatches" '
	for m in 4 12; do
		pd-plan -t 4@1TB/s --stages=3,3,3,3 --schedule=gpipe --microbatches=$m chain.json |
			jq -e "(.predicted.period_ns / (9000000 * (1 + 3 / $m)) - 1) | fabs < 0.001"
	done'
test_row search "2bw with few microbatches: no more of them ahead than an update has" '
	planned ".microbatches == 2 and ([.stages[].warmup] == [2, 2, 1, 0])" \
		--stages=3,3,3,3 --weights=2bw --microbatches=2
	for m in 1 2 4; do
		pd-plan -t 4@12GB/s,4@1.25GB/s --weights=2bw --microbatches=$m chain.json >few.json
		pd-schedule --minibatches=4 few.json | pd-schedule --check
	done'
test_ok "less is kept: 2bw and flush against stashing" '
	for weights in stash 2bw flush; do
		pd-plan -t 4@1GB/s --stages=3,3,3,3 --weights=$weights chain.json |
			jq .stages[0].predicted.memory_bytes
	done >bytes
	sort -nr bytes | cmp - bytes
	[ "$(sort -u bytes | wc -l)" -eq 3 ]'
test_row search "auto: the fastest of those that fit, no slower than any of them by name" '
	for limit in 100MB 12MB; do
		pd-plan -t 4@1GB/s -m $limit --schedule=auto chain.json >auto.json
		pd-replay auto.json >out
		for weights in stash vertical-sync 2bw flush; do
			pd-plan -t 4@1GB/s -m $limit --weights=$weights chain.json >one.json || continue
			jq -s -e ".[0].predicted.period_ns <= .[1].predicted.period_ns and
				.[0].predicted.lower_bound_ns <= .[1].predicted.lower_bound_ns" auto.json one.json
		done
		jq -e ".weights != \"latest\" and .schedule != \"none\"" auto.json
	done
	pd-plan -t 4@1GB/s -m 12MB --weights=auto chain.json | jq -e ".schedule == \"1f1b\""
	pd-plan -t 4@1GB/s --schedule=auto --weights=flush chain.json | jq -e ".weights == \"flush\""
	pd-plan -t 4@1GB/s --schedule=gpipe --weights=auto chain.json |
		jq -e "[.schedule, .weights] == [\"gpipe\", \"flush\"]"
	status 1 pd-plan -t 4@1GB/s -m 1MB --schedule=auto chain.json 2>err; one_line err
	refused "prices schedule 1f1b with weights stash" --schedule=auto --cost=sosp19'
test_ok "an eager start-up is asked for, planned, and takes memory" '
	planned "has(\"startup\") | not" --stages=3,3,3,3
	planned ".startup == \"eager\"" --stages=3,3,3,3 --eager
	planned ".startup == \"eager\" and .weights == \"2bw\"" --stages=3,3,3,3 --weights=2bw --eager
	pd-plan -t 4@1GB/s --stages=3,3,3,3 chain.json >frugal.json
	pd-plan -t 4@1GB/s --stages=3,3,3,3 --eager chain.json | jq -e --slurpfile frugal frugal.json "
		[.stages[].predicted.memory_bytes] as [\$a, \$b, \$c, \$d]
		| [\$frugal[0].stages[].predicted.memory_bytes] as [\$e, \$f, \$g, \$h]
		| \$a == \$e and \$b > \$f and \$c > \$g and \$d == \$h"
	refused "only schedule \"1f1b\" has a start-up" --schedule=gpipe --eager'
test_full "recomputation is asked for, planned, takes time and saves memory" '
	planned "all(.stages[]; .recompute | not)" --stages=3,3,3,3
	planned "[.stages[].recompute] == [true, true, true, false]" --stages=3,3,3,3 --recompute
	planned "all(.stages[]; .recompute)" --stages=3,3,3,3 --schedule=gpipe --recompute
	planned "any(.stages[]; .recompute)" --straight --recompute --weights=2bw
	planned "any(.stages[]; .recompute)" --straight --recompute --schedule=auto
	pd-plan -t 4@1GB/s --stages=3,3,3,3 chain.json >once.json
	pd-plan -t 4@1GB/s --stages=3,3,3,3 --recompute chain.json | jq -e --slurpfile once once.json "
		\$once[0] as \$o | .predicted.period_ns >= \$o.predicted.period_ns and
		(.stages[0].predicted.memory_bytes < \$o.stages[0].predicted.memory_bytes) and
		(.stages[3].predicted.memory_bytes == \$o.stages[3].predicted.memory_bytes)"
	pd-plan -t 4@1GB/s --stages=3,3,3,3 --recompute --explain chain.json 2>&1 >out | grep -q recomputed
	refused "--cost=sosp19 prices no recomputation" --recompute --cost=sosp19'
jq ".layers[].stash_bytes = 4000000" chain.json >deep.json
# deep FILTER OPTION...: does so with a network that keeps much.
deep() {
	plans deep.json "$@"
}
test_row search "recomputation is chosen for want of memory, where that is faster" '
	deep "all(.stages[]; .recompute | not)" -s -m 200MB
	deep "any(.stages[]; .recompute) and any(.stages[]; .recompute | not)" -s -m 40MB
	cp a.json auto.json
	deep "all(.stages[]; .recompute | not)" -s -m 40MB --recompute=none
	jq -s -e "map(.predicted) | .[0].period_ns < .[1].period_ns and .[0].memory_bytes <= 40000000
		and .[0].lower_bound_ns == .[1].lower_bound_ns and .[0].lower_bound_ns <= .[0].period_ns
		" auto.json a.json
	deep "all(.stages[]; .recompute | not)" -s -m 40MB --weights=latest
	for options in "--weights=2bw" "--schedule=auto" "--batch=32 --weights=2bw" "--schedule=gpipe"; do
		deep "any(.stages[]; .recompute) and .predicted.memory_bytes <= 30000000" \
			-s -m 30MB $options
	done'
test_row search "auto: the bound is that of all schedules, also of those that do not fit" '
	set -- -t 4@1GB/s -s --recompute=none --weights=flush --microbatches=4
	for schedule in 1f1b zb-h1 gpipe interleaved; do
		pd-plan "$@" --schedule=$schedule deep.json | jq .predicted.lower_bound_ns
	done >bounds
	cat bounds
	status 1 pd-plan "$@" -m 60MB --schedule=zb-h1 deep.json 2>err
	pd-plan "$@" -m 60MB --schedule=auto deep.json | jq -e ".schedule == \"ordered\" and
		.predicted.lower_bound_ns == $(sort -n bounds | head -1)"'
test_row search "pairs that devices run together: dualpipe-v, zb-auto and auto count them, and no plan is below its bound" '
	chain 8 >pairs.json
	for schedule in dualpipe-v zb-v zb-auto auto; do
		for pairs in 0.95 0.85 0.6; do
			pd-plan -q --straight -t 4@100GB/s --weights=flush --microbatches=16 --schedule=$schedule \
				--pairs=$pairs pairs.json >$schedule-$pairs
			jq -e ".profile.device.pairs == $pairs and .predicted.lower_bound_ns <= .predicted.period_ns" \
				$schedule-$pairs
		done
	done
	jq -s -e "map(.predicted.period_ns) | .[0] > .[1] and .[1] >= .[2] and .[2] == .[3]" dualpipe-v-0.95 zb-v-0.95 \
		zb-auto-0.95 auto-0.95
	jq -s -e "map(.predicted.period_ns) | .[0] < .[1] and .[0] >= .[2] and .[2] == .[3]" dualpipe-v-0.85 zb-v-0.85 \
		zb-auto-0.85 auto-0.85
	jq -e ".predicted.order_from == \"DualPipeV\" and any(.order[]; test(\"OVERLAP_F_B\"))" auto-0.6
	status 2 pd-plan --pairs=0.4 pairs.json 2>err && one_line err'
test_ok "by hand: stages that would not fit recompute, or those that are named" '
	deep "[.stages[].recompute] == [true, true, false, false]" --stages=3,3,3,3 -m 40MB
	deep "[.stages[].recompute] == [false, true, false, true]" --stages=3,3,3,3 --recompute=1,3
	status 1 pd-plan -t 4@1GB/s --stages=3,3,3,3 -m 40MB --recompute=none deep.json 2>err
	one_line err && grep -q "than the 40 MB of a device; --recompute=auto would fit" err
	status 1 pd-plan -t 4@1GB/s --stages=3,3,3,3 -m 20MB --recompute=none deep.json 2>err
	one_line err && ! grep -q "would fit" err || false
	status 1 pd-plan -t 4@1GB/s -m 30MB -s --schedule=gpipe --recompute=none deep.json 2>err
	one_line err && grep -q "; --recompute=auto would fit" err
	refused "recompute=0,2 needs --stages" --recompute=0,2
	refused "kinds of layers such as attention,gelu, modules:PATTERN or layers:PATTERN, found \"some\"" --recompute=some
	refused "the profile has no model, and so no kinds of layers" --recompute=relu
	refused "with weights \"latest\" recomputing changes what is trained" --recompute=selective --weights=latest
	refused "prices no recomputation" --recompute=selective --cost=sosp19
	refused "found \"0,\"" --stages=6,6 --recompute=0,
	refused "a stage: expected a whole number from 0 to 1, found" --stages=6,6 --recompute=2'
# Layers that keep as much take 1 to 5 times as long.
jq ".layers |= [to_entries[] | .value.forward_ns *= (1 + .key * 3 % 5) | .value]" deep.json >uneven.json
# selected OPTION...: plans that network with --recompute=selective, and checks that those layers of a stage
# are computed again that take the least time.
selected() {
	pd-plan -t 4@1GB/s --recompute=selective "$@" uneven.json >some.json
	jq -c "[.predicted.period_ns, .predicted.memory_bytes], [.stages[].recompute]" some.json
	jq -e "([.profile.layers[] | {key: .name, value: .forward_ns}] | from_entries) as \$ns
		| all(.stages[] | select(.recompute | type == \"array\"); (.recompute | flatten) as \$again
			| ([.layers[] | select(IN(\$again[])) | \$ns[.]] | max) <=
			  ([.layers[] | select(IN(\$again[]) | not) | \$ns[.]] | min))" some.json
	"$PD_BUILD/test/unit/read-document" plan some.json | cmp - some.json
	pd-replay some.json >out
}
test_row search "selective: the cheapest layers, and no more than are needed" '
	for options in "-m 60MB" "-m 40MB" "-m 40MB --weights=2bw" "-m 40MB --schedule=gpipe" "-m 60MB --schedule=auto"; do
		selected -s $options
		jq -e "any(.stages[].recompute; type == \"array\") and
			all(.stages[]; .predicted.memory_bytes <= (\"$options\" | .[3:5] | tonumber) * 1000000)" some.json
		pd-plan -t 4@1GB/s -s $options uneven.json | jq -s -e "map(.predicted.period_ns) | .[1] <= .[0]" - some.json
	done
	selected --stages=3,3,3,3 -m 40MB
	pd-plan -t 4@1GB/s --stages=3,3,3,3 -m 40MB uneven.json | jq -s -e "map([.stages[].recompute])
		== [[true, true, false, false], [[[\"l0\"], [\"l2\"]], [\"l4\", \"l5\"], false, false]]" - some.json
	selected -s -m 200MB
	jq -e "all(.stages[]; .recompute == false)" some.json
	selected -s -m 40MB --explain 2>err
	grep "[0-9] of [0-9]* layers recomputed" err'
test_ok "what it is compared with recomputes, too" '
	deep "[.predicted.alternatives[] | select(.name == \"straight\") | .recompute, .fits]
		== [\"0,1\", true]" -s -m 40MB --explain 2>err
	grep -q "^straight .*; recomputed: 0,1$" err
	pd-plan -t 4@1GB/s -s -m 40MB -f dot deep.json | grep -q "recomputed"
	deep "all(.predicted.alternatives[]; has(\"recompute\") | not)" -s -m 200MB'
test_ok "a limit under which stashing does not fit, but two versions do" '
	status 1 pd-plan -t 4@1GB/s --stages=3,3,3,3 -m 16MB chain.json 2>err
	pd-plan -t 4@1GB/s -m 16MB --straight --weights=2bw chain.json |
		jq -e "[.stages[].layers | length] == [3, 3, 3, 3]"
	status 1 pd-plan -t 4@1GB/s -m 5MB --schedule=interleaved chain.json 2>err; one_line err'
test_ok "names and combinations that cannot be are refused in one sentence" '
	refused "one of 1f1b, gpipe, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min, dualpipe-v, nf1b, none" --schedule=other
	refused "one of stash, vertical-sync, 2bw, flush, latest" --weights=other
	refused "\"gpipe\" does not go with weights \"2bw\", but with flush" \
		--schedule=gpipe --weights=2bw
	refused "3 replicas of stages.0., found 4" --stages=6x3,6 --weights=flush --microbatches=4
	refused "\"nf1b\" is for unreplicated stages" --stages=6x2,6 --schedule=nf1b
	refused "multiple of the 2 chunks" --schedule=interleaved --stages=4,4,4
	refused "as many replicas of every stage where ranks have several, found 2 of stage 0 and 1 of stage 1" \
		--schedule=interleaved --stages=6x2,6
	refused "can be cut into 12 stages" --schedule=interleaved --chunks=13
	refused "round: expected at least 4, the ranks of a path, found 3" --schedule=interleaved --round=3 \
		--stages=2,2,2,2,1,1,1,1
	pd-plan -t 4@1GB/s --schedule=interleaved --round=3 chain.json | jq -e "[.stages[].ranks[0]] | max < 3"
	refused "round: schedule \"zb-v\" has no rounds" --schedule=zb-v --round=4
	refused "\"1f1b\" has one stage on each rank" --chunks=2
	refused "\"zb-v\" has 2 on each rank" --schedule=zb-v --chunks=3
	refused "prices schedule 1f1b" --cost=sosp19 --weights=2bw
	status 2 pd-plan --cost=other -t 2@1GB/s chain.json 2>err; one_line err'
test_row search "200 stages in a row" '
	pd-plan --straight -c sosp19 -t 200@10GB/s long.json | jq -e ".stages | length == 200"
	pd-plan --stages="$(yes 1 | head -200 | paste -s -d, -)" -t 200@10GB/s long.json |
		jq -e ".predicted.period_ns >= 3000000"'
test_done
