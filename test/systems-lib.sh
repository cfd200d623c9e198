# SPDX-License-Identifier: Apache-2.0
# Answers for other systems, of plans by hand, which the systems' own parsers have judged (contrib/systems.sh).
# Sourced behind test-lib.sh.
PD_DEVICES=$PD_SOURCE/share/devices
export PD_DEVICES

# network OPTION...: writes the profile of a small network on a data sheet's device to profile.json.
network() {
	pd-model "$@" | pd-profile --device=a100-80 --dtype=bf16 --batch-size=2 ${degrees-} - >profile.json
}
# answer SYSTEM NAME OPTION...: writes NAME.plan.json, and the answer for the system to NAME.
answer() {
	system=$1 name=$2
	shift 2
	pd-plan -q --weights=flush --microbatches=8 --recompute=none "$@" profile.json >"$name.plan.json"
	pd-plan -q --weights=flush --microbatches=8 --recompute=none --format="$system" "$@" profile.json >"$name"
}
llama="llama --layers=6 --hidden=64 --heads=4 --kv-heads=2 --sequence=64 --vocabulary=512"

# torchtitan_answers: writes those for torchtitan.
torchtitan_answers() {
	network $llama
	answer torchtitan titan_1f1b.py -t 4@100GB/s --stages=megatron:'Ett|tt|t|tL'
	answer torchtitan titan_gpipe.py -t 8@100GB/s --schedule=gpipe --recompute=all --stages=megatron:'Etttt|ttLx4'
	answer torchtitan titan_interleaved.py -t 2@100GB/s,2@10GB/s --schedule=interleaved \
		--stages=megatron:'Et|t|tt|ttLx2'
	answer torchtitan titan_v.py -t 2@100GB/s --schedule=zb-v --stages=megatron:'Et|tt|tt|tL'
	answer torchtitan titan_split.py -t 3@100GB/s --schedule=zb-h1 --stages=megatron:'Et|ttt|ttL'
	answer torchtitan titan_one.py -t 2@100GB/s --stages=megatron:'Et*6Lx2'
	network $llama --tied --layers=2 --rope-base=500000 --rope-factor=8 --rope-original=32
	answer torchtitan titan_tied.py -t 1@100GB/s --stages=megatron:EttL
	degrees=--tensor=2,sequence
	network $llama
	answer torchtitan titan_tensor.py -t 8@100GB/s --shard=optimizer --stages=megatron:'Ettt|tttLx2'
	degrees=--sharded=2
	network $llama
	answer torchtitan titan_full.py -t 8@100GB/s --stages=megatron:'Ettt|tttLx2'
	degrees=
}
# megatron_answers: writes those for Megatron.
megatron_answers() {
	network $llama
	answer megatron megatron_even.sh -t 2@100GB/s --recompute=all --stages=megatron:'Ettt|tttL'
	answer megatron megatron_layout.sh -t 8@100GB/s --stages=megatron:'Et|tt|tt|tLx2'
	answer megatron megatron_virtual.sh -t 2@100GB/s --schedule=interleaved --chunks=3 --stages=megatron:'Et(|t)*5L'
	answer megatron megatron_rounds.sh -t 2@100GB/s --schedule=interleaved --round=4 --recompute=attention,rmsnorm \
		--stages=megatron:'Et|tt|t|ttL'
	network gpt2 --untied --layers=4 --hidden=64 --heads=4 --sequence=32 --vocabulary=512
	answer megatron megatron_gpt.sh -t 1@100GB/s --stages=megatron:'Et*4L'
	degrees=--tensor=2,sequence
	network $llama
	answer megatron megatron_tensor.sh -t 4@300GB/s,2@10GB/s --shard=optimizer --stages=megatron:'Ettt|tttLx2'
	degrees=
}
# deepspeed_answers: writes those for DeepSpeed.
deepspeed_answers() {
	network $llama
	answer deepspeed deepspeed_plain.py -t 4@100GB/s --stages=megatron:'Et|tt|tt|tL'
	answer deepspeed deepspeed_zero.py -t 4@100GB/s --memory-model=torch --shard=optimizer --recompute=all \
		--stages=megatron:'Ettt|tttLx2'
}
# stage_parameters PLAN: prints how many parameters each stage has.
stage_parameters() {
	jq -c '(.profile.layers | map({key: .name, value: (.parameter_bytes / 4)}) | from_entries) as $of
		| [.stages[].layers | map($of[.]) | add]' "$1"
}
