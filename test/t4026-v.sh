#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Schedules with two stages on each rank, there and back again.  The weights are, bit for bit, those of
# test/conform/serial.c; the memory is what is predicted.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json
profile residual.json 2 >residual
cp "$PD_SOURCE/test/data/tied-model.json" tied.json
profile tied.json 2 >tied

# v PROFILE RANKS REPLICAS LAYERS...: prints a plan whose stages s and 2 RANKS - 1 - s are on the same ranks.
v() {
	profile=$1
	ranks=$2
	replicas=$3
	shift 3
	pd-plan --topology=$#@10Gbit/s --weights=flush --microbatches=4 --stages="$(echo "$@" | tr " " ,)" $profile |
		ordered_jq --argjson p "$ranks" --argjson r "$replicas" '.stages |= [to_entries[] |
			(if .key < $p then .key else 2 * $p - 1 - .key end) as $q |
			.value.replicas = $r | .value.ranks = [range($q * $r; ($q + 1) * $r)] | .value]'
}
# Eight stages whose slots are as large as each other: those of a rank share theirs.
{
	echo '{"format": "pd-model", "version": 1, "name": "even", "inputs": [
	 {"name": "image", "dtype": "f32", "shape": [1, 28, 28]}, {"name": "label", "dtype": "i32", "shape": []}],
	 "layers": [{"name": "mean", "kind": "adaptive_avgpool2d", "inputs": ["image"], "output_size": 4},
	  {"name": "flat", "kind": "flatten", "inputs": ["mean"]},
	  {"name": "fc1", "kind": "linear", "inputs": ["flat"], "out_features": 16},'
	for n in 2 3 4 5 6 7 8; do
		echo "{\"name\": \"fc$n\", \"kind\": \"linear\", \"inputs\": [\"fc$((n - 1))\"], \"out_features\": 16},"
	done
	echo '{"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["fc8", "label"]}]}'
} >even.json
profile even.json 2 >even
# The same as blocks, which layouts of Megatron-LM are made of: an embedding, eight blocks, a head.
sed 's/"fc1"/"embedding"/g; s/"fc\([2-8]\)"/"h.\1.fc"/g; s/"name": "loss".*/"name": "h.9.fc", "kind": "linear", \
	"inputs": ["h.8.fc"], "out_features": 16}, {"name": "head", "kind": "linear", "inputs": ["h.9.fc"], \
	"out_features": 10}, {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["head", "label"]}]}/' \
	even.json >blocks.json
profile blocks.json 2 >blocks
v even 4 1 3 1 1 1 1 1 1 2 >even-4
v residual 1 1 9 11 >1
v residual 2 1 5 5 5 5 >2
v residual 3 1 3 4 3 3 4 3 >3
v residual 4 1 3 2 3 2 3 2 3 2 >4
v residual 2 1 1 8 2 9 >uneven
v residual 2 2 5 5 5 5 >2x2

while read -r schedule microbatches plans; do
	for plan in $plans; do
		test_row "$schedule" "$schedule, $microbatches at a time, $plan" '
			pair $plan ${schedule%+*} ${schedule#*+} $microbatches >plan.json
			pd-schedule --minibatches=2 plan.json >schedule.jsonl
			pd-schedule --check schedule.jsonl
			trained 11 plan.json $sgd'
	done
done <<END
zb-v+flush 1 1 2 3
zb-v+flush 2 1 2 4 2x2
zb-v+flush 3 2
zb-v+flush 4 1 2 4 uneven 2x2
zb-v+flush 5 3
zb-v+flush 8 4
v-half+flush 3 2 3
v-half+flush 8 4 2x2 even-4
v-half+flush 45 4
v-half+2bw 4 1 2 uneven
v-half+2bw 8 3 4 2x2
v-min+flush 2 2 3
v-min+flush 8 4 2x2
v-min+2bw 4 1 2
v-min+2bw 8 3 4 2x2 even-4
dualpipe-v+flush 4 1 2 2x2
dualpipe-v+flush 5 3
dualpipe-v+flush 8 4
END
while read -r model schedule layers; do
	test_row "planned $schedule" "$schedule, as planned with replicas: $layers" '
		pd-plan --topology=2@10Gbit/s,4@1Gbit/s --schedule=$schedule --weights=flush --microbatches=4 \
			--stages=$layers $model >plan.json
		jq -e "all(.stages[]; .replicas == 2)" plan.json
		pd-schedule --check --minibatches=2 plan.json
		trained 11 plan.json $sgd'
done <<END
residual zb-v 5x2,5x2,5x2,5x2
residual interleaved 5x2,5x2,5x2,5x2
residual v-half 5x2,5x2,5x2,5x2
residual zb-v 3x2,2x2,3x2,2x2,3x2,2x2,3x2,2x2
residual interleaved 3x2,2x2,3x2,2x2,3x2,2x2,3x2,2x2
residual v-half 3x2,2x2,3x2,2x2,3x2,2x2,3x2,2x2
residual v-min 3x2,2x2,3x2,2x2,3x2,2x2,3x2,2x2
residual dualpipe-v 3x2,2x2,3x2,2x2,3x2,2x2,3x2,2x2
blocks interleaved megatron:Et|t|t|t|t|t|t|tLx2
blocks zb-v megatron:Et|t|t|t|t|t|t|tLx2
blocks v-half megatron:Et|tt|t|ttttLx2
END
zb-v 5x2,5x2,5x2,5x2
interleaved 5x2,5x2,5x2,5x2
zb-v 3x2,2x2,3x2,2x2,3x2,2x2,3x2,2x2
END

# Eight ranks, with a stage each or two.
v residual 8 1 2 1 1 1 2 1 1 1 1 1 1 2 1 1 1 2 >8
ordered_jq '.stages |= [to_entries[] | .value.ranks = [.key % 8] | .value]' 8 >8-loop
ordered_jq '.round = 10' 8-loop >8-rounds
pd-plan --quiet --topology=8@10Gbit/s --weights=flush --stages=2,3,2,3,2,3,2,3 residual >8-line
while read -r schedule microbatches plan; do
	test_row eight "eight ranks: $schedule, $microbatches at a time, $plan" '
		if [ $plan = found ]; then
			pd-plan --quiet --topology=8@10Gbit/s --schedule=zb-auto --microbatches=$microbatches --chunks=2 \
				--stages=2,1,1,1,2,1,1,1,1,1,1,2,1,1,1,2 residual >plan.json
		else
			pair $plan ${schedule%+*} ${schedule#*+} $microbatches >plan.json
		fi
		pd-schedule --check plan.json
		trained 2 plan.json $sgd'
done <<END
zb-v+flush 9 8
v-half+flush 9 8
v-half+2bw 12 8
v-min+flush 5 8
v-min+2bw 12 8
dualpipe-v+flush 16 8
interleaved+flush 11 8-rounds
zb-h2+flush 9 8-line
zb-auto+flush 8 found
END

# again PLAN WHICH: prints the plan, in which these stages (all, or a list) recompute.
again() {
	jq --arg which "$2" '.stages |= [to_entries[] | .value.recompute = ($which == "all" or
		(.key as $s | $which | split(",") | index("\($s)") != null)) | .value]' "$1"
}
v tied 1 1 4 10 >tied-1
v tied 2 1 4 3 3 4 >tied-2
v tied 2 2 4 3 3 4 >tied-2x2
while read -r schedule microbatches plan which; do
	test_row "$schedule" "$schedule, $microbatches at a time, $plan, stages $which recompute" '
		pair $plan ${schedule%+*} ${schedule#*+} $microbatches >once.json
		again once.json $which >plan.json
		pd-schedule --check plan.json
		trained 11 plan.json $sgd'
done <<END
zb-v+flush 4 2 all
zb-v+flush 4 2x2 0,2
zb-v+flush 8 3 all
zb-v+flush 2 4 1,7
zb-v+flush 8 4 all
v-half+flush 8 3 all
v-half+2bw 8 3 all
v-min+2bw 8 2x2 1,2
dualpipe-v+flush 8 3 all
END
while read -r schedule microbatches plan options; do
	test_row "$schedule" "$schedule, $microbatches at a time, $plan, $options" '
		pair $plan ${schedule%+*} ${schedule#*+} $microbatches >plan.json
		trained 11 plan.json $sgd $options'
done <<END
zb-v+flush 4 2 --clip-grad-norm=0.5
zb-v+flush 4 2x2 --clip-grad-norm=0.5 --loss-scale=dynamic --loss-scale-init=1e38 --loss-scale-interval=2
zb-v+flush 4 tied-1
zb-v+flush 4 tied-2 --clip-grad-norm=2
zb-v+flush 4 tied-2x2
v-half+2bw 8 3 --clip-grad-norm=0.5
v-min+2bw 8 2x2 --clip-grad-norm=0.5 --loss-scale=dynamic --loss-scale-init=1e38 --loss-scale-interval=2
v-half+2bw 8 tied-2
v-min+2bw 8 tied-2x2 --clip-grad-norm=2
END
test_ok "2bw: replicas sum beside what they compute, even where all agree" '
	jq -n "{format: \"pd-profile\", version: 1, name: \"even\", batch_size: 1, dtype: \"f32\",
		device: {kind: \"cpu\", name: \"none\"}, layers: [range(8) | {name: \"l\\(.)\",
			inputs: (if . > 0 then [\"l\\(. - 1)\"] else [] end), forward_ns: 1000000, backward_ns: 2000000,
			activation_bytes: 1000, parameter_bytes: 1250000, update_ns: 10000}]}" >profile.json
	v profile.json 2 2 2 2 2 2 >base.json
	for schedule in v-half v-min; do
		for agree in false true; do
			pair base.json $schedule 2bw 8 | jq ".agree = $agree" >plan.json
			pd-schedule --minibatches=4 plan.json >schedule.jsonl
			pd-schedule --check schedule.jsonl
			pd-replay --format=json plan.json >report.json
			jq -c "[.period_ns, .period_ns < 1.03 * 6005000]" report.json
			jq -e ".period_ns < 1.03 * 6005000" report.json
		done
	done'
test_ok "2bw and agreement: whatever warm-ups a plan has, and three replicas" '
	v profile.json 3 3 1 2 1 1 2 1 >base.json
	pair base.json v-half 2bw 9 | jq ".agree = true | .topology.levels[0].count = 9" >usual.json
	jq ".stages[].warmup = 0" usual.json >plan.json
	for plan in usual plan; do
		pd-schedule --minibatches=4 $plan.json >schedule.jsonl
		pd-schedule --check schedule.jsonl
	done'
test_ok "buckets: the gradients of weights in parts" '
	pair 2x2 zb-v flush 4 >one.json
	for bytes in 1 1200; do
		jq --argjson bytes $bytes ".bucket_bytes = \$bytes" one.json >plan.json
		pd-schedule --check --minibatches=5 plan.json
		trained 5 plan.json $sgd
	done'
idx_data data
while read -r schedule microbatches plan n stops; do
	test_row "$schedule" "$schedule, $microbatches at a time, $plan: resumed at $stops" '
		pair $plan ${schedule%+*} ${schedule#*+} $microbatches >plan.json
		resumed plan.json $n $stops -- $sgd --data=data'
done <<END
zb-v+flush 2 2 33 3 28
zb-v+flush 4 2x2 16 1 5
v-half+2bw 4 2 16 3 14
v-min+2bw 8 2x2 9 2 8
END
test_ok "evaluations have the same figures with any number of ranks" '
	for plan in 1 2 3 4 uneven; do
		pair $plan zb-v flush 4 >plan.json
		rm -rf ck
		train ck plan.json $sgd --data=data --minibatches=8 >out
		tail -n 1 out | jq -c "[.loss, .evaluation.loss, .evaluation.accuracy]"
	done >figures
	pair 4 v-min flush 4 >plan.json
	rm -rf ck
	train ck plan.json $sgd --data=data --minibatches=8 >out
	tail -n 1 out | jq -c "[.loss, .evaluation.loss, .evaluation.accuracy]" >>figures
	cat figures
	[ "$(sort -u figures | wc -l)" -eq 1 ]'

test_done
