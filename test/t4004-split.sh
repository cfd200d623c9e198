#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Backward in two parts (zb-h1) gives the bits of backward in one, in the order of the schedule.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json
profile residual.json 4 >residual
profile "$MODELS/lenet5.json" 4 >lenet5

# with SCHEDULE MICROBATCHES: prints the plan on standard input with these, and weights that are flushed.
with() {
	jq --arg schedule "$1" --argjson m "$2" \
		'.schedule = $schedule | .weights = "flush" | .microbatches = $m'
}

# agree MODEL MICROBATCHES N REPLICAS...: checks that both schedules train to the same bits.
agree() {
	model=$1 microbatches=$2 n=$3
	shift 3
	plan "$model" "$@" >plan.json
	rm -rf ck-whole ck-split
	with 1f1b "$microbatches" <plan.json >whole.json
	with zb-h1 "$microbatches" <plan.json >split.json
	train ck-whole whole.json $sgd --synthetic --minibatches="$n" >whole
	train ck-split split.json $sgd --synthetic --minibatches="$n" --trace=trace >split
	"$same" "$(at ck-whole "$n")" "$(at ck-split "$n")"
}

# An epoch of synthetic data has ten minibatches.
for replicas in "1" "1 1" "1 1 1" "1 1 1 1"; do
	for microbatches in 1 4; do
		test_row "$microbatches" "residual, stages $replicas, $microbatches microbatches" '
			agree residual $microbatches $((microbatches > 1 ? 11 : 22)) $replicas'
	done
done
test_ok "residual, stages 1 1, 10 microbatches" 'agree residual 10 3 1 1'
test_ok "residual, stages 2 2, 6 microbatches" 'agree residual 6 4 2 2'
test_ok "residual, stages 2 1, 4 microbatches" 'agree residual 4 11 2 1'
test_ok "lenet5, three stages, 4 microbatches" 'agree lenet5 4 8 1 1 1'
test_ok "the parts take turns as the schedule says, and the whole never" '
	agree residual 4 2 1 1 1
	sed 1d trace | jq -r "select(.op | startswith(\"backward\")) |
		\"\(.stage) \(.op)\"" | sort | uniq -c | awk "{ print \$2, \$3, \$1 }" >found
	for s in 0 1 2; do
		echo "$s backward_input 8"
		echo "$s backward_weight 8"
	done >expected
	diff expected found
	sed 1d trace | jq -s -r "map(select(.stage == 2 and (.op | startswith(\"backward_\")))) |
		sort_by(.start_ns) | .[:8] | map(\"\(.op[9:10])\(.microbatch)\") | join(\" \")" >order
	cat order
	[ "$(cat order)" = "i0 i1 i2 w0 i3 w1 w2 w3" ]'
test_ok "a gradient leaves before the weight part, which waits for nobody" '
	sed 1d trace | jq -s -e "[.[] | select(.stage == 2)] as \$ops |
		(\$ops[] | select(.op == \"backward_weight\" and .microbatch == 0)) as \$w |
		(\$ops[] | select(.op == \"send_gradient\" and .microbatch == 0)) as \$g |
		\$g.start_ns <= \$w.start_ns"'
test_ok "an evaluation beside it" '
	rm -rf ck-split
	idx_data data
	train ck-split split.json $sgd --data=data --minibatches=27 >out
	grep -q "\"evaluation\"" out'
test_ok "a profile says the parts of backward, which are not far from the whole" '
	jq -e "all(.layers[]; .backward_input_ns >= 0 and .backward_weight_ns >= 0)" lenet5
	jq -e "[.layers[] | select(.parameter_bytes > 0) | .backward_weight_ns] | add > 0" lenet5'
test_done
