#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Answers for other systems are those that these systems' own parsers have read (contrib/systems.sh), with what they
# found in them.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/systems-lib.sh"
judged=$PD_SOURCE/test/data/systems.jsonl

# of NAME FILTER: prints what was found in an answer.
of() {
	jq -e -c --arg name "$1" "select(.name == \$name) | $2" "$judged"
}
# all_judged PATTERN: checks that each answer is the one that was judged, and that there is one.
all_judged() {
	for answer in $1; do
		case $answer in *.plan.json) continue ;; esac
		[ "$(cksum <"$answer")" = "$(of "$answer" .sum | tr -d \")" ] || {
			echo "$answer is not what was judged: run contrib/systems.sh --write"
			cat "$answer"
			return 1
		}
	done
	[ "$(ls $1 | grep -c -v plan.json)" -eq "$(jq -r .name "$judged" | grep -c "^${1%%_*}_")" ]
}
test_ok "torchtitan: what it was given is what torchtitan 0.3 read" '
	torchtitan_answers
	all_judged "titan_*"'
test_ok "torchtitan: its stages have the parameters, microbatches and devices of the plan'\''s" '
	for plan in titan_*.plan.json; do
		name=${plan%.plan.json}
		[ "$name" = titan_tensor.py ] || [ "$(stage_parameters "$plan")" = "$(of "$name" .stages)" ]
		jq -e --argjson n "$(of "$name" .microbatches)" ".microbatches / .stages[0].replicas == \$n" "$plan"
	done
	[ "$(of titan_full.py .devices) $(of titan_tensor.py .devices) $(of titan_interleaved.py .devices)" = "8 8 4" ]'
test_ok "Megatron: what it was given is what megatron-core 0.16 built, stage by stage" '
	megatron_answers
	all_judged "megatron_*"
	for plan in megatron_*.plan.json; do
		name=${plan%.plan.json}
		[ "$name" = megatron_tensor.sh ] || [ "$(stage_parameters "$plan")" = "$(of "$name" .stages)" ]
		jq -e --argjson n "$(of "$name" .microbatches)" ".microbatches / .stages[0].replicas == \$n" "$plan"
	done
	[ "$(of megatron_layout.sh .blocks) $(of megatron_tensor.sh .devices)" = "[1,2,2,1] 8" ]
	[ "$(of megatron_rounds.sh .recompute)" = "\"selective core_attn layernorm\"" ]
	grep -q -- "--rdzv-endpoint" megatron_tensor.sh'
test_ok "DeepSpeed: what it was given is what DeepSpeed 0.19 took" '
	deepspeed_answers
	all_judged "deepspeed_*"
	[ "$(of deepspeed_plain.py .modules) $(of deepspeed_plain.py .zero)" = "[2,2,2,3] 0" ]
	[ "$(of deepspeed_zero.py "[.modules, .devices, .batch, .microbatches, .zero, .checkpoint]")" = "[[4,5],4,16,4,1,1]" ]'
test_ok "--for plans what the system can, and --format writes it of the plan" '
	network $llama
	for system in torchtitan megatron deepspeed galvatron; do
		pd-plan --for=$system -t 4@100GB/s,2@1GB/s --schedule=auto --batch=64 profile.json 2>err >plan.json
		jq -e ".weights == \"flush\" and ([.stages[].replicas] | unique | length) == 1" plan.json
		pd-plan --format=$system plan.json >out
		[ -s out ]
	done
	pd-plan -q --for=megatron -t 8@1GB/s --straight --microbatches=16 profile.json >plan.json
	jq -e "[.stages[].warmup] as \$w | [range(\$w | length - 1; -1; -1)] == \$w" plan.json
	pd-plan -q --for=megatron -t 8@1GB/s --straight --microbatches=16 --format=megatron profile.json >one
	pd-plan -q --format=megatron plan.json | cmp - one
	pd-plan -q --for=pd-run -t 4@1GB/s --straight profile.json | jq -e ".weights == \"stash\" and (.profile.memory == null)"'
test_ok "--for refuses what the system has not" '
	# refused WORDS OPTION...
	refused() {
		words=$1
		shift
		status 2 pd-plan -q -t 4@1GB/s --microbatches=8 "$@" profile.json >out 2>err
		cat err
		[ ! -s out ] && one_line err && grep -q -- "$words" err
	}
	refused "schedule=zb-h1: Megatron has no such schedule" --for=megatron --schedule=zb-h1
	refused "schedule=gpipe: DeepSpeed has no such schedule" --for=deepspeed --schedule=gpipe
	refused "format=deepspeed: expected json or --format=megatron with --for=megatron" --for=megatron --format=deepspeed
	refused "format=megatron: pd-run reads the plan itself" --for=pd-run --format=megatron
	refused "pd-run does not share layers" --for=pd-run --tensor=2
	refused "weights of\|expected --weights=flush\|cannot be said to" --for=torchtitan --weights=stash --straight
	pd-plan -q -t 4@1GB/s --straight --weights=flush --microbatches=8 --cut=blocks profile.json |
		jq ".stages[0].warmup += 1" >deeper.json
	status 2 pd-plan --format=megatron deeper.json 2>err >out
	cat err
	grep "1f1b of Megatron has . forwards ahead in stage 0" err'
test_ok "Megatron: arguments of equal stages, and of others, make the same stages again" '
	network $llama
	set -- -q -t 2@100GB/s --schedule=interleaved --weights=flush --microbatches=8 --recompute=none
	while read -r options; do
		pd-plan "$@" $options --format=megatron profile.json >args
		pd-plan "$@" $options profile.json | jq .stages >stages.json
		pd-plan "$@" ${options% --stages*} --stages="megatron:$(cat args)" profile.json | jq .stages | cmp - stages.json
	done <<END
--chunks=3 --stages=megatron:Et(|t)*5L
--stages=megatron:Et|t|tt|ttL
END
	grep -q -- --pipeline-model-parallel-layout args
	status 2 pd-plan "$@" --stages="megatron:--num-layers 6" profile.json 2>err
	grep "expected --pipeline-model-parallel-layout or --pipeline-model-parallel-size" err
	status 2 pd-plan "$@" --stages="megatron:--pipeline-model-parallel-size 4" profile.json 2>err
	grep "4 stages cannot have equally many of 6 blocks" err'
test_ok "torchtitan: a network of another form keeps its names, which a line says" '
	pd-model gpt2 --untied --layers=2 --hidden=16 --heads=2 --sequence=8 --vocabulary=32 | pd-profile --device=a100-80 >gpt.json
	pd-plan -t 2@10GB/s --microbatches=2 --straight --stages=parts:0,2,6 --weights=flush --format=torchtitan gpt.json \
		2>err >out || cat err
	grep "the modules have the network.s own names, such as \"wte\"" err
	! grep "^def planned" out'
test_ok "DeepSpeed and Galvatron are offered no tensor degrees, which they would refuse" '
	for system in deepspeed galvatron; do
		PD_MACHINES=$PD_SOURCE/share/machines PD_DEVICES=$PD_SOURCE/share/devices \
			pd-plan -q --for=$system --on=dgx-a100 --batch=16 --sequence=64 --schedule=1f1b gpt2 >plan.json
		pd-plan --format=$system plan.json >out
		[ -s out ]
	done'
test_done
