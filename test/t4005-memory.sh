#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bytes that the plan and the schedule predict for a rank are those that it allocates.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# paired SCHEDULE WEIGHTS MICROBATCHES: runs plan.json with these, for two minibatches.
paired() {
	jq ".schedule = \"$1\" | .weights = \"$2\" | .microbatches = $3" base.json >plan.json
	as_predicted --minibatches=2
}

for model in mlp lenet5 fashion-cnn; do
	profile "$MODELS/$model.json" 3 >"$model"
	test_row recomputed "$model, recomputed" "
		again $model 1 1 1
		again $model 2 1 1"
	for replicas in "2 1" "1" "1 1" "1 3" "3 2 1" "1 1 1 1"; do
		test_row "$model" "$model, replicas $replicas" '
			plan $model $replicas >plan.json
			as_predicted --minibatches=2
			as_planned'
	done
done
residual_model >residual.json
profile residual.json 3 >residual
for replicas in "1" "3 2 1" "1 1" "1 1 1" "2 1" "1 2" "1 1 1 1 1 1 1"; do
	test_row "residual ${#replicas}" "normalisation, branches, a tensor that skips stages, replicas $replicas" '
		plan residual $replicas >plan.json
		as_predicted --minibatches=2
		as_planned'
done
# A run may need less at once than it has room for.  A replay with these times needs all of it.
test_ok 'what a picture shows of a run never exceeds what was predicted' '
	plan residual 1 1 1 >plan.json
	as_predicted --minibatches=6 --trace=trace.jsonl
	for file in trace.jsonl plan.json; do
		pd-replay --format=chrome $file >chrome.json
		jq -ce "[.traceEvents[] | select(.name == \"memory\")] | group_by(.pid)
			| map(map(.args.bytes) | max)" chrome.json >peaks
		jq -ne --slurpfile last last --slurpfile peaks peaks \
			"\$last[0].predicted_memory_bytes as \$room | \$peaks[0] |
			length == 3 and all(range(3) as \$r | .[\$r] <= \$room[\$r] and
					    .[\$r] > \$room[\$r] / 2; .)"
	done'

# Every schedule runs with every policy that goes with it.
while read -r microbatches replicas; do
	test_ok "schedules and weights, $microbatches at a time, replicas $replicas" '
		plan residual $replicas >base.json
		for pair in "1f1b stash" "1f1b vertical-sync" "1f1b 2bw" "1f1b flush" \
			    "1f1b latest" "gpipe flush" "none flush" "none stash"; do
			echo "$pair"
			paired $pair $microbatches
		done
		for weights in stash vertical-sync latest; do
			paired 1f1b $weights 1
		done'
done <<END
4 2 1
8 1 1
4 1 1 1
8 2 2
END
plan residual 1 1 >base.json
jq '.schedule = "zb-h1" | .weights = "flush" | .microbatches = 4' base.json >plan.json
if pd-run --synthetic --minibatches=4 plan.json 2>&1 | grep -q "does not execute"; then
	test_skip "zb-h1" "not executed by this version"
else
	test_ok "zb-h1" '
		for replicas in "1 1" "1 1 1" "2 1" "2 2"; do
			plan residual $replicas >base.json
			paired zb-h1 flush 4
			paired zb-h1 flush 8
		done'
fi
test_ok "an eager start-up" '
	plan residual 1 1 1 1 | jq ".startup = \"eager\"" >base.json
	for weights in stash vertical-sync latest; do
		paired 1f1b $weights 1
		paired 1f1b $weights 3
	done
	paired 1f1b 2bw 4
	paired 1f1b flush 6'
test_ok "nf1b" '
	for replicas in "1 1" "1 1 1"; do
		plan residual $replicas >base.json
		for weights in stash vertical-sync latest; do
			paired nf1b $weights 2
		done
	done'
test_ok "interleaved: two and three stages on each of two ranks, and replicated" '
	for chunks in "0 1 0 1" "0 1 0 1 0 1"; do
		plan residual $(echo "$chunks" | sed "s/[0-9]/1/g") |
			jq --arg ranks "$chunks" "(\$ranks / \" \" | map([tonumber])) as \$r |
				.stages |= [to_entries[] | .value + {ranks: \$r[.key]}]" >base.json
		paired interleaved flush 4
		paired interleaved flush 8
		jq ".round = 3" base.json >longer.json && mv longer.json base.json
		paired interleaved flush 8
	done
	plan residual 2 2 2 2 | jq "(.stages[0, 2].ranks) = [0, 1] |
		(.stages[1, 3].ranks) = [2, 3]" >base.json
	paired interleaved flush 4'
test_ok "adam has two moments, and two are predicted" '
	plan residual 2 1 >plan.json
	as_predicted --minibatches=2
	with=$(jq ".memory_bytes[0]" last)
	as_predicted --minibatches=2 --optimizer=adam
	[ "$(jq ".memory_bytes[0]" last)" -gt "$with" ]'
test_ok "without momentum there is no velocity, and none is predicted" '
	plan residual 1 1 >plan.json
	as_predicted --minibatches=1
	with=$(jq ".memory_bytes[0]" last)
	as_predicted --minibatches=1 --momentum=0
	[ "$with" -gt "$(jq ".memory_bytes[0]" last)" ]'
test_ok "a stage without parameters" '
	n=$(jq ".layers | length" residual)
	pd-plan --topology=2@10Gbit/s --stages=$((n - 1))x1,1x1 residual >plan.json
	as_predicted --minibatches=2
	as_planned'

# The comparison can fail, and says so.
test_ok "a profile that is wrong is told" '
	jq "(.layers[] | select(.name == \"conv2\")).backward_workspace_bytes += 1000000" \
		residual >wrong
	plan wrong 1 1 >plan.json
	status 1 as_predicted --minibatches=2
	jq -e ".memory | test(\"^not as predicted: rank 0 has [0-9]+ bytes fewer than predicted$\")" last'
test_ok "a profile that does not say enough is not held against it" '
	jq "del(.layers[].backward_workspace_bytes, .layers[].forward_workspace_bytes)" \
		residual >plain
	plan plain 1 1 >plan.json
	status 1 as_predicted --minibatches=2
	jq -e ".memory | startswith(\"not compared\")" last
	jq -e "[.memory_bytes, .predicted_memory_bytes] | transpose |
		all(.[]; .[0] / .[1] > 0.8 and .[0] / .[1] < 1.25)" last'
test_ok "a schedule made of such a plan fits its memory" '
	for replicas in "1 1" "2 1" "1 1 1 1"; do
		plan residual $replicas >plan.json
		pd-schedule plan.json | pd-schedule --check
	done'

test_done
