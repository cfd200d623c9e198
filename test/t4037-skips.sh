#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A pipeline with tensors that skip stages takes no longer than one without, holds what is predicted, and
# trains to the same bits.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# skipping STAGES EDGES [FILTER]: prints a made-up plan whose layers also take what others make.  EDGES is
# an object, from layers to lists of layers.
skipping() {
	made_up "$(jq -nc "[range($1) | 1]")" "$(jq -nc "[range($1) | $1 - 1 - .]")" "${3:-.}" |
		jq "$2 as \$more | .profile.layers |=
			[.[] | .inputs += ((\$more[.name] // []) | map(\"l\\(.)\"))]"
}

# period PLAN: prints the period of a replay.
period() {
	pd-replay --minibatches=96 --format=json "$1" | jq .period_ns
}

# as_fast FILTER: checks that eight stages are as fast with tensors that skip stages as without.  The
# tensors skip all stages between two, as in a U-Net, or four.
as_fast() {
	skipping 8 '{}' "$1" >plain.json
	for edges in '{l7: [0]}' '{l7: [0], l6: [1], l5: [2]}' '{l6: [1], l7: [2]}'; do
		skipping 8 "$edges" "$1" >skips.json
		pd-schedule --check skips.json
		echo "$edges: $(period skips.json), without $(period plain.json)"
		test "$(period skips.json)" = "$(period plain.json)"
	done
}

while read -r schedule weights microbatches; do
	test_row period "$schedule, $weights, $microbatches at a time: as fast as without" '
		as_fast ".schedule = \"$schedule\" | .weights = \"$weights\" |
			.microbatches = $microbatches"'
done <<END
1f1b stash 1
1f1b vertical-sync 1
1f1b 2bw 16
1f1b flush 16
gpipe flush 16
zb-h1 flush 16
nf1b vertical-sync 2
END
# Backwards of a minibatch come back later than the forwards of the next could begin.
test_ok "nf1b, no warm-up, 16 at a time: as fast as without" '
	as_fast ".schedule = \"nf1b\" | .weights = \"vertical-sync\" | .microbatches = 16 |
		.stages[].warmup = 0"'
test_full "two stages on each of four ranks: as fast as without" '
	as_fast ".schedule = \"interleaved\" | .weights = \"flush\" | .microbatches = 16 |
		.topology.levels[0].count = 4 |
		.stages |= [to_entries[] | .value.ranks = [.key % 4] | .value]"'
test_full "updates that all ranks agree on, as fast" '
	as_fast ".weights = \"2bw\" | .microbatches = 16 | .agree = true"'

# The bytes in this plan are those of an earlier version, which had fewer buffers.
test_ok "a plan with too few bytes is to be made anew" '
	skipping 8 "{l7: [0]}" ".profile.layers[].activation_bytes = 1000 |
		.stages[].predicted = {memory_bytes: 16000}" >old.json
	! pd-schedule --check old.json 2>err || false
	cat err
	grep -q "the memory of the rank in the plan, which this version would not predict: plan anew" err
	jq "del(.stages[].predicted)" old.json >none.json
	pd-schedule --check none.json'

# The network has six stages, of which the last takes what the first makes.
cat >skip.json <<END
{"format": "pd-model", "version": 1, "name": "skip",
 "inputs": [{"name": "image", "dtype": "f32", "shape": [1, 28, 28]},
	    {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "flat", "kind": "flatten", "inputs": ["image"]},
  {"name": "fc0", "kind": "linear", "inputs": ["flat"], "out_features": 16},
  {"name": "fc1", "kind": "linear", "inputs": ["fc0"], "out_features": 16},
  {"name": "relu1", "kind": "relu", "inputs": ["fc1"]},
  {"name": "fc2", "kind": "linear", "inputs": ["relu1"], "out_features": 16},
  {"name": "relu2", "kind": "relu", "inputs": ["fc2"]},
  {"name": "fc3", "kind": "linear", "inputs": ["relu2"], "out_features": 16},
  {"name": "relu3", "kind": "relu", "inputs": ["fc3"]},
  {"name": "fc4", "kind": "linear", "inputs": ["relu3"], "out_features": 16},
  {"name": "relu4", "kind": "relu", "inputs": ["fc4"]},
  {"name": "sum", "kind": "add", "inputs": ["relu4", "fc0"]},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["sum", "label"]}
 ]}
END
profile skip.json 2 >skip
plan skip 1 >one.json
plan skip 1 1 1 1 1 1 >six.json

# trains SCHEDULE WEIGHTS MICROBATCHES [RECOMPUTE]: checks that six stages come to the bits of one, in the
# memory predicted.
trains() {
	for stages in one six; do
		jq --arg schedule "$1" --arg weights "$2" --argjson m "$3" --argjson again "${4:-false}" \
			'.schedule = $schedule | .weights = $weights | .microbatches = $m |
			 del(.stages[].predicted) | .stages[].recompute = $again' \
			$stages.json >plan.json
		rm -rf $stages
		as_predicted --checkpoint=$stages --minibatches=10 --no-evaluate --lr=0.01
	done
	"$same" "$(at one 10)" "$(at six 10)"
}

while read -r schedule weights microbatches again; do
	test_row trains "$schedule, $weights${again:+, recomputed}: the bits of one stage" '
		trains $schedule $weights $microbatches $again'
done <<END
1f1b 2bw 8
1f1b flush 8
1f1b flush 8 true
gpipe flush 8
zb-h1 flush 8
END
test_done
