#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares what pd-replay and pd-plan predict for PyTorch with what PyTorch does, the time of a step and the memory
# of each rank: networks that pd_profile.py profiled, planned for two ranks with --memory-model=torch, and trained by
# pd_run.py over torch.distributed.pipelining, over gloo, or NCCL where there are GPUs:
#     PYTHON=PYTHON sh test/bench/torch-plans.sh [NETWORK...]
# PYTHON has torch and torchvision (python3), PD_BUILD is the build tree.  ROUNDS (3) is how often each network
# is profiled, planned and run; figures are medians over the rounds.  Each rank has one thread.
set -e
. "$(dirname "$0")/bench-lib.sh"
torch=$source/contrib/torch python=${PYTHON:-python3} rounds=${ROUNDS:-3}
PYTHONPATH=$torch:$source/share/torch
export PYTHONPATH
cd "$work"

# round NAME BLOCKS SCHEDULE: prints a step's time in milliseconds, replayed and measured, and the same of the
# memory of both ranks, in megabytes.
round() {
	"$python" "$source/share/torch/pd_profile.py" --threads=1 --rounds=9 --blocks="$2" --link \
		"$torch/networks.py:train_$1" >profile.json
	pd-plan --quiet --gpus=2 --straight --schedule="$3" --weights=flush --microbatches=8 --cut=modules \
		--memory-model=torch --memory-margin=0 profile.json >plan.json
	"$python" -m torch.distributed.run --nproc-per-node=2 "$source/share/torch/pd_run.py" plan.json \
		"$torch/networks.py:train_$1" --steps=20 --optimizer=adamw 2>log >result.json || { cat log >&2; exit 1; }
	{
		pd-replay --format=json plan.json | jq ".period_ns * 8 / 1e6"
		jq ".step_ns / 1e6" result.json
		for rank in 0 1; do
			jq ".stages[$rank].predicted.memory_bytes / 1e6" plan.json
			jq ".peak_bytes[$rank] / 1e6" result.json
		done
	} | tr '\n' ' '
	echo
}
# row NAME BLOCKS SCHEDULE: prints a row of the table.
row() {
	: >rounds
	for _ in $(seq "$rounds"); do
		round "$@" >>rounds
	done
	for column in 1 2 3 4 5 6; do
		cut -d " " -f $column rounds | median
	done | tr '\n' ' ' | awk -v name="$1" -v schedule="$3" '{
		printf "%-9s %-6s", name, schedule
		for (i = 1; i < NF; i += 2)
			printf " %9.2f %9.2f %+6.1f%%", $i, $(i + 1), 100 * ($i / $(i + 1) - 1)
		print ""
	}'
}
[ $# -gt 0 ] || set -- lenet vgg11 resnet18 gpt unet
printf '%-16s %27s %27s %27s\n' "" "a step, ms" "rank 0, MB" "rank 1, MB"
printf '%-9s %-6s' network ''
printf ' %9s %9s %7s' predicted measured "" predicted measured "" predicted measured ""
echo
for schedule in 1f1b gpipe; do
	for network; do
		case $network in
		resnet18) blocks='layer\d\.\d' ;;
		gpt) blocks='h\.\d' ;;
		unet) blocks='net|deeper' ;;
		*) blocks='' ;;
		esac
		row "$network" "$blocks" $schedule
	done
done
