#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans that say in which order ranks compute: they train with the bits of the serial program, as any schedule that
# says the same, and with the memory that was predicted.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_plans 2 residual- "1 1" "1 1 1" "2 2"
pd-plan --quiet --topology=4@10Gbit/s --stages=5,5,5,5 residual |
	ordered_jq '.stages |= [to_entries[] | .value.ranks = [.key % 2] | .value]' >chunks-loop
ordered_jq '.stages |= [to_entries[] | .value.ranks = [[0, 1, 1, 0][.key]] | .value]' chunks-loop >chunks-v
ordered_jq '.stages |= [to_entries[] | .value.ranks = [[0, 1, 0, 0][.key]] | .value]' chunks-loop >chunks-odd
ordered_jq '.stages |= [to_entries[] | .value.replicas = 2 | .value.ranks = [[0, 2], [1, 3], [1, 3], [0, 2]][.key] |
	.value]' chunks-loop >chunks-v2

# as_order PLAN TABLE: writes the plan with the order of a table that is on standard input.
as_order() {
	pair "$1" interleaved flush "$2" >base.json
	pd-schedule --format=plan --plan=base.json - >plan.json
}

# The same computations are in the same order, whoever says so.
while read -r schedule microbatches plan; do
	test_row "$schedule" "$schedule, $microbatches at a time, $plan: as an order" '
		pair $plan $schedule flush $microbatches >own.json
		pd-schedule --format=plan own.json >plan.json
		for file in own plan; do
			pd-schedule --format=torch $file.json >$file.csv 2>/dev/null ||
				pd-schedule -m 1 $file.json | grep -E "forward|backward" |
				jq -c "[.rank, .op, .stage, .microbatch]" >$file.csv
		done
		cmp own.csv plan.csv
		pd-schedule --check --minibatches=3 plan.json
		trained 3 plan.json $sgd'
done <<END
1f1b 3 residual-1-1-1
1f1b 4 residual-2-2
gpipe 4 residual-1-1
zb-h1 5 residual-1-1-1
zb-h1 8 residual-2-2
interleaved 4 chunks-loop
END

# Two chunks in a V: ZB-V, V-Min, and DualPipeV, whose pairs run one after the other.
cat >zb-v.csv <<END
0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0F4,0I1,0W1,3F3,3I3,3W3,0I2,0W2,3F4,3I4,3W4,0I3,0W3,0I4,0W4
1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,2W2,1F4,1I2,1W2,2F4,2I3,2W3,1I3,2I4,1I4,1W3,2W4,1W4
END
cat >v-min.csv <<END
0F0,0F1,0F2,3F0,3I0,3W0,3F1,0I0,0W0,3I1,3W1,0F3,0I1,0W1,3F2,3I2,3W2,0F4,0I2,0W2,3F3,3I3,3W3,0I3,0W3,3F4,3I4,3W4,0I4,0W4
1F0,2F0,1F1,2F1,2I0,1I0,2W0,1W0,1F2,2I1,1I1,2F2,2W1,1W1,1F3,2I2,1I2,2F3,2W2,1W2,1F4,2I3,1I3,2F4,2W3,1W3,2I4,1I4,2W4,1W4
END
cat >dualpipe-v.csv <<END
0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,(0F4;3B2)OVERLAP_F_B,(3F3;0B1)OVERLAP_F_B,3B3,(3F4;0B2)OVERLAP_F_B,3B4,0I3,0W3,0I4,0W4
1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,(1F4;2B2)OVERLAP_F_B,(2F4;1B2)OVERLAP_F_B,2B3,1B3,2I4,1I4,2W4,1W4
END
for order in zb-v v-min dualpipe-v; do
	test_row "V" "$order: as a table says, over epochs, with the bits of the serial program" '
		as_order chunks-v 5 <$order.csv
		pd-schedule --check --minibatches=3 plan.json
		trained 4 plan.json $sgd
		pd-replay --minibatches=3 plan.json >report'
	test_row "V" "$order: with replicas" '
		as_order chunks-v2 10 <$order.csv
		pd-schedule --check --minibatches=3 plan.json
		trained 2 plan.json $sgd'
done

# A forward stands between the recompute and the backward of the microbatch it is beside, and needs a slot of its own.
cat >same.csv <<END
0F0,0F1,0F2,(0F3;0B0)OVERLAP_F_B,(0F4;0I1)OVERLAP_F_B,0W1,0B2,0I3,0W3,0B4
1F0,(1F1;1B0)OVERLAP_F_B,(1F2;1I1)OVERLAP_F_B,1W1,(1F3;1B2)OVERLAP_F_B,(1F4;1I3)OVERLAP_F_B,1W3,1B4
END
for change in . ".stages[].recompute = true" ".bucket_bytes = 100" ".bucket_bytes = 100 | .stages[].recompute = true"; do
	test_row same "pairs of one stage, with replicas: $change" '
		as_order residual-2-2 10 <same.csv
		ordered_jq "$change" plan.json >changed.json
		pd-schedule --check --minibatches=3 changed.json
		trained 2 changed.json $sgd
		pd-replay --pairs=0.8 --minibatches=2 changed.json >report'
done

test_ok "ranks with one stage and with three" '
	printf "%s\n" 0F0,0F1,2F0,3F0,3B0,2F1,2B0,3F1,3B1,2I1,0I0,2W1,0W0,0B1 1F0,1F1,1B0,1B1 | as_order chunks-odd 2
	pd-schedule --check --minibatches=3 plan.json
	trained 3 plan.json $sgd'

test_ok "a run that is stopped and resumed, evaluates, and recomputes" '
	as_order chunks-v 5 <zb-v.csv
	trained 3 plan.json $sgd
	mv ck whole
	train ck plan.json $sgd --synthetic --minibatches=1 >out
	train ck plan.json $sgd --synthetic --minibatches=3 --resume >out
	"$same" "$(at whole 3)" "$(at ck 3)"
	ordered_jq ".stages[].recompute = true" plan.json >again.json
	trained 2 again.json $sgd
	idx_data data
	train ck2 plan.json $sgd --data=data --epochs=1 >out
	tail -n 1 out >last
	same_memory last
	grep "\"evaluation\"" out'

# An order that is searched for takes no longer than zb-h1 and 1f1b in the same memory, or fits where they do not.
chain 12 >profile.json
while read -r microbatches memory; do
	test_row searched "searched: $microbatches microbatches, $memory bytes" '
		for schedule in zb-auto zb-h1 1f1b; do
			pd-plan --quiet --straight --topology=4@1GB/s --min-gain=0 --memory=${memory}B \
				--microbatches=$microbatches --weights=flush --schedule=$schedule profile.json \
				>$schedule.json || : >$schedule.json
		done
		pd-schedule --check --minibatches=3 zb-auto.json
		jq -s -e ".[0].predicted as \$found | (\$found.memory_bytes <= $memory) and
			all(.[1:][]; .predicted.period_ns >= \$found.period_ns)" zb-auto.json zb-h1.json 1f1b.json'
done <<END
8 1000000000
8 40000000
3 30000000
1 1000000000
8 22000000
END
# With replicas, too: as fast as the others with as many devices, in the same memory.
while read -r layers topology microbatches memory; do
	test_row replicated "searched, with replicas: $layers layers on $topology, $microbatches microbatches, $memory bytes" '
		chain $layers >few.json
		for schedule in zb-auto zb-h1 1f1b zb-v; do
			pd-plan --quiet --topology=$topology --min-gain=0 --memory=${memory}B --microbatches=$microbatches \
				--weights=flush --schedule=$schedule few.json >$schedule.json || : >$schedule.json
		done
		pd-schedule --minibatches=3 zb-auto.json >schedule.jsonl
		pd-schedule --check schedule.jsonl
		jq -c "[.schedule, [.stages[].replicas], .predicted.period_ns]" zb-auto.json zb-h1.json 1f1b.json zb-v.json
		jq -s -e ".[0].predicted as \$found | .[0].schedule == \"ordered\" and .[0].stages[0].replicas > 1 and
			(\$found.memory_bytes <= $memory) and all(.[1:][]; .predicted.period_ns >= \$found.period_ns)" \
			zb-auto.json zb-h1.json 1f1b.json zb-v.json'
done <<END
2 4@10GB/s 8 1000000000
3 6@10GB/s 12 12000000
4 4@100GB/s,2@10GB/s 8 1000000000
END
for options in "" "--chunks=2" "--memory=1000kB"; do
	test_row searched-run "searched: trained as predicted, with the bits of the serial program: $options" '
		pd-plan --explain --topology=2@10Gbit/s --schedule=zb-auto --microbatches=5 $options residual \
			2>explained >plan.json
		jq -e ".schedule == \"ordered\" and .predicted.order_from" plan.json
		trained 3 plan.json $sgd
		as_planned
		grep "^order: the shortest that was found" explained
		grep -E "^ordered  *flush  .*the plan" explained'
done
test_row searched-run "searched: two replicas of two stages on each of two ranks" '
	pd-plan --quiet --topology=4@10Gbit/s --schedule=zb-auto --microbatches=8 --chunks=2 --stages=5x2,5x2,5x2,5x2 \
		residual >plan.json
	jq -e "[.stages[].ranks] == [[0, 1], [2, 3], [2, 3], [0, 1]]" plan.json
	trained 3 plan.json $sgd
	as_planned
	status 2 pd-plan --topology=8@10Gbit/s --schedule=zb-auto --chunks=2 --stages=5x2,5x1,5x2,5x1 residual 2>err
	grep "expected as many replicas of every stage" err'
test_ok "any schedule: a search of orders is one, and what each would take is said" '
	pd-plan --quiet --explain --straight --topology=4@1GB/s --memory=22000000B --microbatches=8 --weights=flush \
		--schedule=auto profile.json 2>explained >plan.json
	cat explained
	jq -e ".schedule == \"ordered\"" plan.json
	grep -E "^zb-h1  *flush  .*[0-9] .B$" explained
	grep -E "^ordered  *flush  .*the plan" explained'

# Each is refused, with a sentence that names the place.
as_order chunks-v 5 <zb-v.csv
while IFS=';' read -r name change message; do
	test_row refused "$name" '
		ordered_jq "$change" plan.json >wrong.json
		status 2 pd-replay wrong.json 2>err
		cat err
		grep -F "$message" err'
done <<'END'
no order;del(.order);order: schedule "ordered" is that of this key, which is missing
one text;.order |= .[:1];order: expected a text for each of the 2 ranks of a pipeline, found 1
another schedule;.schedule = "interleaved";order: schedule "interleaved" has an order of its own
a microbatch more;.microbatches = 6;order: position 0: 0F5 is missing; expected it of microbatches 0 to 5
a stage of another rank;.order[0] |= "1F0," + .;order[0]: stage 1 is at position 1, not here: found "1F0,
one forward twice;.order[0] |= "0F0," + .;order: position 0: 0F0: stage 0 has F of microbatch 0 a second time
what waits for itself;.order[1] |= "2F0,1F0" + .[7:];position 1 with 2F0 for 1F0
other weights;.weights = "stash";schedule "ordered" does not go with weights "stash", but with flush
END

test_done
