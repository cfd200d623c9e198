#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-run shows a bar on a terminal while it trains, and says next to nothing with --quiet.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

profile "$MODELS/mlp.json" 4 >mlp
plan mlp 1 1 >plan.json

test_ok "--quiet: one line, the last, and nothing on standard error" '
	train ck plan.json --synthetic --minibatches=25 --quiet >out 2>err
	one_line out
	[ ! -s err ]
	jq -e ".event == \"done\" and .outcome == \"done\" and .step == 25" out'
test_ok "it still says what goes wrong" '
	status 2 pd-run -q --synthetic none.json >out 2>err
	one_line err
	grep -q "none.json: cannot open" err'
test_ok "without it, no terminal: reports, and nothing on standard error" '
	rm -rf ck
	train ck plan.json --synthetic --minibatches=25 >out 2>err
	cat err
	wc -l out
	[ "$(wc -l <out)" -gt 3 ]
	[ ! -s err ]'
# said_once: checks that standard error says in one line which loss was no number, and in others, if there are
# any, which weights of a checkpoint are none.
said_once() {
	cat err
	[ "$(grep -c ": the loss of minibatch [0-9]* is not a finite number" err)" -eq 1 ]
	! grep -v -e ": the loss of minibatch" -e "^pd-run: the checkpoint of step .* has a number that is not finite" err ||
		false
}
test_ok "a loss that is no number: it trains on, and says once where that began" '
	rm -rf ck
	train ck plan.json --synthetic --lr=1000000 --minibatches=25 >out 2>err
	said_once
	step=$(sed -n "s/^pd-run: layer loss: the loss of minibatch \([0-9]*\) is not a finite number: .*/\1/p" err)
	[ "$step" -gt 1 ] && [ "$step" -le 25 ]
	rm -rf ck
	train ck plan.json --synthetic --lr=1000000 --minibatches=$((step - 1)) >out 2>err
	[ ! -s err ]
	tail -n 1 out | jq -e ".loss != null"
	rm -rf ck
	train ck plan.json --synthetic --minibatches=$step --lr=1000000 >out 2>err
	said_once'

before=
# on_terminal COLUMNS OPTION...: writes to ./screen what a terminal would get, with returns as line ends.
on_terminal() {
	terminal_columns=$1
	shift
	script -qefc "stty cols $terminal_columns; exec $before pd-run --threads=1 --synthetic $* plan.json >out" \
		/dev/null </dev/null | tr "\r" "\n" >screen
}
if command -v script >/dev/null && command -v stty >/dev/null; then
	test_ok "a terminal: workers that start, then minibatches, epochs and the loss" '
		on_terminal 120 --epochs=3 --no-evaluate
		cat screen
		grep -q "^starting \[\.*\]   0% 2 workers, 0 ready" screen
		grep -q "^training \[\.*\]   0% 0/30, epoch 1/3, connecting" screen
		grep -q "^training \[#*\] 100% 30/30, epoch 3/3, loss [0-9.]*" screen
		[ "$(tail -n 1 out | jq .step)" -eq 30 ]'
	test_full "how fast it goes, and how long it will take" '
		# A rate is known after a second, but a loaded machine takes its time to start.
		for limit in 3 10 40; do
			before="timeout --foreground -s INT $limit"
			on_terminal 120 --minibatches=10000000 --no-evaluate
			! grep -q "samples/s" screen || break
		done
		grep "/10000000, epoch [0-9]*/1000000, loss [0-9.]*, [0-9.]* samples/s, [0-9:]* left" screen'
	test_ok "no line is longer than the terminal" '
		on_terminal 50 --epochs=3
		sed "s/.\[K.*//" screen | awk "length > 49 { print; bad = 1 } END { exit bad }"
		grep -q "^training" screen'
	test_ok "--quiet has no bar" '
		on_terminal 80 --epochs=1 --quiet
		! grep -q "training\|starting" screen || false'
else
	test_skip "bars" "script or stty is not installed"
fi


# run FILTER: runs a plan whose profile was changed; its last report is in `out`.
run() {
	jq "$1" plan.json >changed.json
	rm -rf ck
	train ck changed.json --synthetic=40 --minibatches=40 --quiet >out
	jq -c . out
}
test_ok "a period within what the profile lets be expected is as predicted, and so is each operation" '
	run ".profile.rounds = {count: 20, step_spread: [0, 1000]} | .profile.layers[].forward_ns = 20000
		| .profile.layers[].backward_ns = 40000 | .profile.layers[].update_ns = 10000"
	jq -e ".period == \"as predicted\" and .predicted_period_range_ns[0] <= .period_ns and
		.period_ns <= .predicted_period_range_ns[1] and (.operations | length == 6 and all(.inside)) and
		([.operations[] | [.stage, .operation]] | unique | length == 6) and
		all(.operations[]; .measured_ns > 0 and .range_ns[0] <= .measured_ns)" out'
test_ok "one without it is not, and the operations that took longer are named" '
	run ".profile.rounds = {count: 20, step_spread: [0.9, 1.1]} | .profile.layers[].forward_ns = 1000
		| .profile.layers[].backward_ns = 36000000000 | .profile.layers[].update_ns = 1"
	jq -e "(.period | test(\"^not as predicted: [0-9.]+ [mun]?s, not [0-9.]+ .* to \")) and
		all(.operations[] | select(.operation != \"step\");
			.inside == false and .range_ns[0] < .predicted_ns and .predicted_ns < .range_ns[1])" out
	jq -r .period out | grep -q "backward of stage 0"
	! jq -r .period out | grep -q "forward of" || false'
test_ok "each rank says how slow its processor was beside that of the profile" '
	run ".profile.rounds = {count: 20, step_spread: [0.9, 1.1]} | .profile.layers[].forward_ns = 1000
		| .profile.layers[].backward_ns = 36000000000 | .profile.device.clock_ns = 1"
	jq -e "(.clock | length == 2 and all(. > 10)) and
		(.period | test(\"; the clock of rank [01].s processor was [0-9.]+ times as slow as for the profile\"))" out
	run ".profile.rounds = {count: 20, step_spread: [0.9, 1.1]}"
	jq -e "has(\"clock\") | not" out'
test_ok "a profile that says nothing of it has no such report" '
	run "del(.profile.rounds)"
	jq -e "(has(\"period\") or has(\"operations\") or has(\"period_ns\")) | not" out'
test_ok "the replay beside the trace expects the same" '
	rm -rf ck
	jq ".profile.rounds = {count: 20, step_spread: [0.5, 2]}" plan.json >changed.json
	train ck changed.json --synthetic=40 --minibatches=40 --quiet --trace=trace.jsonl >out
	pd-replay --format=json trace.jsonl >report
	jq -es ".[0].predicted_period_range_ns == .[1].replayed_period_range_ns" out report'
test_done
