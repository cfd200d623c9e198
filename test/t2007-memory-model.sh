# SPDX-License-Identifier: Apache-2.0
# pd-plan --memory-model: the memory of plans that other programs train.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# Four layers of 1000 parameters, which keep 300 bytes, send 200, and need 70 while they run.
layer() {
	printf '%s{"name": "%s", "inputs": ["%s"], "forward_ns": 1000000, "backward_ns": 2000000,' "$comma" "$1" "$2"
	printf ' "activation_bytes": 200, "parameter_bytes": 4000, "stash_bytes": 300, "workspace_bytes": 70}\n'
	comma=,
}
# profile DTYPE: prints the profile.
profile() {
	comma=
	echo '{"format": "pd-profile", "version": 1, "name": "foreign", "batch_size": 1, "dtype": "'"$1"'",
		"device": {"kind": "cpu"}, "inputs": ["x"], "layers": ['
	layer a x
	layer b a
	layer c b
	layer d c
	echo ']}'
}
profile f32 >f32.json
profile bf16 >bf16.json
options="-t 4@1GB/s --weights=flush --microbatches=8 --memory-margin=0 --quiet"
# memory OPTION... PROFILE: prints the memory of each stage.
memory() {
	# shellcheck disable=SC2086
	pd-plan $options "$@" >plan.json && jq -c "[.stages[].predicted.memory_bytes]" plan.json
}
# same FOUND EXPECTED: compares numbers.
same() {
	[ "$1" = "$2" ] || { echo "found $1, expected $2"; return 1; }
}

test_ok "torch: 16 bytes a parameter, what comes in and is kept of microbatches in flight, two buffers each way" '
	memory --memory-model=torch --stages=2,2 f32.json >out
	first=$(jq ".[0]" out)
	memory --memory-model=torch --stages=2,2 --schedule=gpipe f32.json >more
	# gpipe has eight in flight, 1f1b two or three at the first stage
	more=$(($(jq ".[0]" more) - first))
	[ $((more % 600)) = 0 ] && [ $((more / 600)) -ge 5 ] && [ $((more / 600)) -le 6 ]
	fixed=$((first - 2000 * 16 - 2 * 200 - 600 * (8 - more / 600)))
	echo "scratch: $fixed"
	[ "$fixed" -ge 70 ] && [ "$fixed" -le 700 ]'
test_ok "megatron: 18 bytes a parameter in 16 bits, torch 16; 16 and 16 in f32" '
	for dtype in f32 bf16; do
		memory --memory-model=torch --stages=4 $dtype.json | jq ".[0]" >torch
		memory --memory-model=megatron --stages=4 $dtype.json | jq ".[0]" >megatron
		echo $(($(cat megatron) - $(cat torch)))
	done >out
	printf "%s\n" 0 8000 | cmp - out'
test_ok "replicas: buffers of sums in torch; what the optimizer keeps is shared out" '
	one=$(memory --memory-model=torch --stages=4 f32.json | jq ".[0]")
	same "$(memory --memory-model=torch --stages=4x4 f32.json | jq ".[0]")" $((one + 16000))
	same "$(memory --memory-model=torch --stages=4x4 --shard=optimizer f32.json | jq ".[0]")" $((one + 16000 - 24000))
	same "$(memory --memory-model=megatron --stages=4x4 bf16.json | jq ".[0]")" \
		"$(memory --memory-model=megatron --stages=4 bf16.json | jq ".[0]")"'
test_ok "stages of a rank share room for what they keep, of five microbatches here, and for workspaces" '
	memory --memory-model=torch -t 2@1GB/s --schedule=interleaved --straight --chunks=2 f32.json
	same "$(jq ".stages[0].predicted.memory_bytes" plan.json)" $((2000 * 16 + 5 * 300 + 2 * 200 + 1200 + 70))'
test_ok "a margin is on top, 10 percent unless it is given; --explain says whose memory it is" '
	without=$(memory --memory-model=torch --stages=4 f32.json | jq ".[0]")
	pd-plan -t 4@1GB/s --weights=flush --microbatches=8 --memory-model=torch --stages=4 --explain f32.json >plan.json 2>out
	same "$(jq ".stages[0].predicted.memory_bytes" plan.json)" $((without + without / 10))
	grep "memory as in torch; the sum has 10 % for what the allocator keeps" out
	same "$(memory --memory-model=torch --memory-margin=25 --stages=4 f32.json | jq ".[0]")" $((without + without / 4))'
test_ok "plans keep to the limit by that memory, recompute for it, and are checked by it" '
	most=$(memory --memory-model=torch --straight f32.json | jq max)
	pd-plan $options --memory-model=torch --straight -m $((most - 1)) f32.json >plan.json
	jq -e "[.stages[].predicted.memory_bytes] | max <= $((most - 1))" plan.json
	status 1 pd-plan $options --memory-model=torch -m 1000 f32.json
	whole=$(memory --memory-model=torch --stages=2,2 --recompute=none f32.json | jq ".[0]")
	[ "$(memory --memory-model=torch --stages=2,2 --recompute=0 f32.json | jq ".[0]")" -lt "$whole" ]
	pd-schedule --minibatches=2 plan.json | pd-schedule --check
	pd-replay plan.json
	for schedule in 1f1b gpipe interleaved zb-h1; do
		for recompute in none all; do
			for margin in 0 10; do
				pd-plan $options --memory-margin=$margin --memory-model=megatron --straight \
					--schedule=$schedule --recompute=$recompute f32.json >plan.json ||
					{ [ $schedule-$recompute != 1f1b-none ]; continue; }
				pd-schedule --minibatches=2 plan.json | pd-schedule --check
			done
		done
	done'
test_ok "stages that fit because replicas share out the optimizer are not left out" '
	memory --memory-model=megatron --shard=optimizer --stages=4x4 bf16.json
	fits=$(jq "[.stages[].predicted.memory_bytes] | max" plan.json)
	[ "$fits" -lt 48000 ]
	pd-plan $options --memory-model=megatron --shard=optimizer -m "$fits" bf16.json >searched.json
	jq -e ".predicted.period_ns <= $(jq .predicted.period_ns plan.json)" searched.json'
test_ok "the plan carries the rule, which pd-run does not follow" '
	memory --memory-model=megatron --shard=optimizer --stages=2x2,2x2 f32.json
	jq -e ".profile.memory == {model: \"megatron\", sharded: true, margin: 0}" plan.json
	jq .profile plan.json >again.json
	same "$(pd-plan -t 4@1GB/s --weights=flush --microbatches=8 --quiet --stages=2x2,2x2 again.json | jq -c "[.stages[].predicted.memory_bytes]")" \
		"$(jq -c "[.stages[].predicted.memory_bytes]" plan.json)"
	pd-plan -t 4@1GB/s --memory-model=pd-run again.json >plan.json
	jq -e ".profile | has(\"memory\") | not" plan.json
	pd-model mlp | pd-profile --no-link -i 1 >mlp.json
	pd-plan $options --memory-model=torch mlp.json >plan.json
	status 2 pd-run --synthetic plan.json 2>err
	grep "memory: it is that of torch: expected a plan made without --memory-model" err'
test_ok "one stage computes its blocks again: what it keeps is less, and a choice that changes nothing is told" '
	pd-model gpt --layers=6 --hidden=64 --heads=4 --sequence=64 --vocabulary=100 --dropout=0 >gpt.json
	PD_DEVICES=$PD_SOURCE/share/devices pd-profile --device=a100-80 --dtype=bf16 --batch-size=4 gpt.json >gpt-p.json
	for model in torch megatron; do
		for what in none blocks all blocks:0-2 modules:mlp layers:h.*.attn; do
			pd-plan -t 1@1GB/s --memory-model=$model --memory-margin=0 --weights=flush --microbatches=3 \
				--recompute="$what" -q gpt-p.json | jq ".predicted.memory_bytes"
		done | jq -s -c . >bytes
		cat bytes
		# half of the blocks, and one module of each, save less; attention alone keeps little more than its output
		jq -e ".[1] == .[2] and .[1] < .[3] and .[3] < .[0] and .[1] < .[4] and .[4] < .[0]" bytes
	done
	# of six blocks what each begins with, 4 * 64 * 64 numbers, and what one keeps
	pd-plan -t 1@1GB/s --memory-model=torch --memory-margin=0 --weights=flush --recompute=blocks -q gpt-p.json >plan.json
	jq -e "[.profile.layers[] | select(.name | startswith(\"h.\"))] as \$blocks | (\$blocks | map(.stash_bytes) | add) as \$all
		| .stages[0].recompute | length == 6 and map(length) == [range(6) | \$blocks | length / 6]" plan.json
	pd-plan -t 1@1GB/s --memory-model=torch --memory-margin=0 --weights=flush --recompute=none -q gpt-p.json >none.json
	same "$(jq -s "(.[0].predicted.memory_bytes - .[1].predicted.memory_bytes)" none.json plan.json)" \
		"$(jq "[.profile.layers[] | select(.name | startswith(\"h.\")).stash_bytes] | add / 6 * 5 - 5 * 4 * 64 * 64 * 2" plan.json)"
	pd-plan -t 1@1GB/s --weights=flush --recompute=layers:h.0.attn gpt-p.json 2>err >plan.json
	jq -e ".stages[0].recompute == false" plan.json
	grep "recompute=layers:h.0.attn: nothing is computed again, since that would save no memory" err
	status 2 pd-plan -t 1@1GB/s --weights=flush --recompute=blocks:7 gpt-p.json 2>err
	grep "recompute: expected numbers of blocks from 0 to 5" err && one_line err
	status 2 pd-plan -t 1@1GB/s --weights=flush --recompute=modules:mpl gpt-p.json 2>err
	grep "recompute: no layer has a name that .mpl. fits" err && one_line err'
test_ok "what makes no sense is refused" '
	status 2 pd-plan -t 4@1GB/s --weights=stash --memory-model=torch f32.json 2>err
	grep "memory of torch: it keeps one version of the weights: expected --weights=flush" err
	status 2 pd-plan -t 4@1GB/s --shard=optimizer f32.json 2>err
	grep "shard=optimizer: expected only with --memory-model" err
	jq ".memory = {model: \"jax\"}" f32.json >bad.json
	status 2 pd-plan -t 4@1GB/s bad.json 2>err
	grep "memory.model: expected one of" err'
test_done
