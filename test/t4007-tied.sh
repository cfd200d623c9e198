#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Layers share parameters, in one stage or several.  With 2bw and flush their gradients are summed before
# each update, and no partition changes a bit.  With other weights such layers must be in one stage.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

sgd="--lr=0.01 --momentum=0.9 --weight-decay=0.001"
cp "$PD_SOURCE/test/data/tied-model.json" tied.json
profile tied.json 2 >tied

# cut LAYERSxREPLICAS...: prints a plan of these stages of $cut_from, which pd-plan would not cut so.
cut_from=tied
cut() {
	pd-plan --topology="$(echo "$@" | tr ' ' '\n' | awk -Fx '{ n += $2 } END { print n }')"@10Gbit/s \
		--stages="$(jq ".layers | length" $cut_from)" $cut_from | jq --arg cuts "$*" 'del(.stages[].predicted) |
		[.profile.layers[].name] as $names | .stages = (reduce ($cuts / " ")[] as $cut
			({list: [], layer: 0, rank: 0}; ($cut / "x" | map(tonumber)) as [$n, $r] |
			.list += [{layers: $names[.layer:.layer + $n], replicas: $r,
				ranks: [range(.rank; .rank + $r)]}] |
			.layer += $n | .rank += $r) | .list)'
}
cut 14x1 >1
cut 4x1 10x1 >1-1
cut 4x1 3x1 7x1 >1-1-1
cut 4x1 3x1 3x1 4x1 >1-1-1-1
cut 6x2 8x1 >2-1
cut 6x1 8x2 >1-2
cut 6x2 8x2 >2-2
cut 6x3 8x1 >3-1
cut 4x1 3x1 3x1 4x1 | jq '.stages |= [to_entries[] | .value.ranks = [.key % 2] | .value] |
	.schedule = "interleaved" | .weights = "flush" | .microbatches = 4' >chunks

while read -r schedule weights microbatches plans; do
	for plan in $plans; do
		test_row "$schedule $weights" "$schedule, $weights, $microbatches at a time, $plan" '
			pair $plan $schedule $weights $microbatches >plan.json
			trained 11 plan.json $sgd
			pd-schedule --check plan.json
			pd-replay plan.json >report'
	done
done <<END
1f1b 2bw 2 1-1 1-1-1
1f1b 2bw 3 1-1-1-1
1f1b 2bw 4 1 1-1-1-1 2-1 1-2 2-2
1f1b 2bw 6 3-1
1f1b flush 1 1-1-1
1f1b flush 4 1 1-1 1-1-1-1 2-1 1-2 2-2
1f1b flush 6 3-1
gpipe flush 4 1-1-1 2-1
none flush 4 1-1-1
zb-h1 flush 4 1-1-1-1
interleaved flush 4 chunks
END
test_ok "clipped, with a loss scale that adapts, by adam" '
	pair 1-1-1 1f1b 2bw 3 >plan.json
	trained 11 plan.json --lr=0.001 --optimizer=adam --clip-grad-norm=2 --loss-scale=dynamic \
		--loss-scale-init=1e38 --loss-scale-interval=2
	tail -n 1 out | jq -e ".skipped > 0"'

# bits PLAN...: checks that all plans end with the same bits.
bits() {
	for plan in "$@"; do
		rm -rf "ck-$plan"
		train "ck-$plan" "$plan" $sgd --minibatches=11 --synthetic --no-evaluate >out
		"$same" "$(at "ck-$1" 11)" "$(at "ck-$plan" 11)"
	done
}
while read -r weights microbatches; do
	test_ok "$weights, $microbatches at a time: no partition changes a bit" '
		for plan in 1 1-1 1-1-1 1-1-1-1; do
			pair $plan 1f1b $weights $microbatches >cut-$plan
		done
		bits cut-1 cut-1-1 cut-1-1-1 cut-1-1-1-1'
done <<END
flush 4
2bw 4
END
test_ok "copies in four stages end with the bits of one place in one stage" '
	pair 1 1f1b stash 1 >cut-one
	pair 1-1-1-1 1f1b flush 1 >cut-four
	bits cut-one cut-four'
test_ok "gradients that are not summed give other weights" '
	pair 1-1-1 1f1b flush 4 >plan.json
	trained 11 plan.json $sgd
	"$serial" $sgd --minibatches=11 --mutate=untied --output=serial plan.json
	status 1 "$same" serial "$(at ck 11)"'
test_ok "a checkpoint has them once, under the name of their owner" '
	pair 1-1-1 1f1b flush 4 >plan.json
	trained 11 plan.json $sgd
	for file in "$(at ck 11)"/*.safetensors; do
		strings -n 10 $file | head -n 1 | grep -o "\"[a-z0-9]*\.[a-z]*\"" || true
	done | sort >names
	[ "$(grep -c "fc1.weight\"" names)" -eq 1 ]
	[ "$(grep -c "fc4.weight\"" names)" -eq 1 ]
	! grep -q "fc2\|fc3\|mid" names || false'

idx_data data		# An epoch has 13 minibatches.
while read -r weights plan; do
	test_row "resumed $weights" "$weights, $plan: resumed" '
		pair $plan 1f1b $weights 4 >plan.json
		rm -rf ck ck-whole
		train ck-whole plan.json $sgd --minibatches=16 --data=data --no-evaluate >out
		again=
		for k in 2 6 13 16; do
			train ck plan.json $sgd --minibatches=$k --data=data --no-evaluate $again >out
			again=--resume
		done
		diff -r "$(at ck-whole 16)" "$(at ck 16)"'
done <<END
2bw 1-1-1-1
2bw 2-1
flush 1-1-1
END
test_ok "resumed in one stage" '
	pair 1-1-1 1f1b flush 4 >plan.json
	pair 1 1f1b flush 4 >one.json
	rm -rf ck ck-whole
	train ck-whole plan.json $sgd --minibatches=16 --data=data --no-evaluate >out
	train ck plan.json $sgd --minibatches=6 --data=data --no-evaluate >out
	train ck one.json $sgd --minibatches=16 --data=data --no-evaluate --resume >out
	"$same" "$(at ck-whole 16)" "$(at ck 16)"'

for weights in stash vertical-sync latest; do
	test_ok "$weights: one stage, or refused" '
		pair 1-1-1 1f1b $weights 1 >plan.json
		status 2 pd-schedule plan.json 2>err
		one_line err
		grep "share parameters: expected both in one stage, or weights \"2bw\" or \"flush\"" err
		pair 1 1f1b $weights 1 | pd-schedule --check'
done
# by_hand WEIGHTS MICROBATCHES LIST DEVICES: has pd-plan cut between layers that share, where it is told to.
by_hand() {
	pd-plan --weights="$1" --microbatches="$2" --stages="$3" --topology="$4@10Gbit/s" tied
}
while read -r weights list devices; do
	test_row "planned $weights" "pd-plan --stages=$list --weights=$weights: planned, trained" '
		by_hand $weights 4 $list $devices >plan.json
		trained 11 plan.json $sgd
		jq -e ".predicted | .lower_bound_ns > 0 and .lower_bound_ns <= .period_ns" plan.json
		pd-replay plan.json >report'
done <<END
flush 4,10 2
2bw 4,10 2
flush 4,3,3,4 4
2bw 6x2,8 3
END
test_ok "pd-plan --stages --chunks: planned, trained" '
	pd-plan --schedule=interleaved --weights=flush --microbatches=4 --stages=4,3,3,4 \
		--topology=2@10Gbit/s tied >plan.json
	trained 11 plan.json $sgd'
test_ok "pd-plan --stages --weights=auto: those with which it can be" '
	by_hand auto 4 4,10 2 >plan.json
	jq -e ".weights == \"2bw\" or .weights == \"flush\"" plan.json'
test_ok "pd-plan --stages: refused with other weights, which says which can" '
	status 2 by_hand stash 1 4,10 2 2>err
	cat err
	one_line err
	grep -q "would separate layers that share parameters: expected --weights=2bw or flush" err'
# The output layer takes 3 ms, as all others do, and shares the weight of the first.
jq '.layers |= map(.forward_ns = 1000000 | .backward_ns = 2000000)' tied >even
test_ok "pd-plan separates them where the weights have copies: faster, and trained with the same bits" '
	pd-plan --quiet --topology=4@10Gbit/s --straight even >together 2>err
	one_line err
	grep -q "\"fc1\" and \"fc2\" share parameters and stay in one stage: with --weights=2bw" err
	for weights in 2bw flush; do
		pd-plan --quiet --topology=4@10Gbit/s --straight --weights=$weights --microbatches=8 even \
			>plan.json 2>err
		[ ! -s err ]
		jq -e --slurpfile together together "(.stages | length) == 4 and .predicted as \$p |
			\$p.period_ns < 0.75 * \$together[0].predicted.period_ns and
			\$p.lower_bound_ns <= \$p.period_ns and \$p.lower_bound_ns > 0" plan.json
		pd-replay plan.json | grep "the planner predicted .*; here: [-+]0.0 %"
		trained 11 plan.json $sgd
	done
	pd-plan --topology=4@10Gbit/s --straight --weights=auto --microbatches=8 even >plan.json
	jq -e ".weights == \"2bw\" and (.stages | length) == 4" plan.json'

# The chain is so long that a layer's number alone does not fit into a byte.
jq '.layers = .layers[:3] + [range(260) | {name: "r\(.)", kind: "relu",
		inputs: [if . == 0 then "a1" else "r\(. - 1)" end]}] + .layers[3:]
	| .layers |= map(if .name == "fc1" then .inputs = ["r259"] else . end)' tied.json >long.json
profile long.json 2 >long
test_ok "far apart in a long network" '
	cut_from=long cut 267x1 7x1 >long-1-1
	jq -e ".stages[0].layers | index(\"fc2\") and (index(\"fc3\") | not)" long-1-1
	pair long-1-1 1f1b 2bw 2 >plan.json
	trained 11 plan.json $sgd'

test_ok "what copies exchange is on links, and in the bytes that a sample sends" '
	for group in 1 4; do
		pd-plan -t 2@1GB/s --weights=flush --microbatches=$group --stages=4,10 --explain tied \
			>plan.json 2>err
		# fc1 is in the first stage, fc2 and fc3 in the second; a1 goes there, and its gradient back
		jq -e --argjson group $group "(.profile.layers | map({key: .name, value: .}) | from_entries) as \$l |
			\$l.fc1.parameter_bytes as \$copy | \$l.fc1.activation_bytes as \$passed |
			.predicted.sent_bytes_per_sample == (3 * \$copy / \$group + 2 * \$passed) / 2" plan.json
	done
	pd-plan -t 2@1GB/s --weights=flush --microbatches=1 --stages=4,10 --explain tied 2>err >plan.json
	grep -q "^out of rank 1, level 0  *$(jq -r ".profile.layers[3] |
		(2 * .parameter_bytes + .activation_bytes) / 1000 * 100 + 0.5 | floor / 100" plan.json) kB " err
'
test_done
