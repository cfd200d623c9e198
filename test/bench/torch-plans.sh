#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares what pd-replay predicts for PyTorch with what PyTorch does: networks that pd_profile.py profiled,
# planned for two ranks, and trained by pd_run.py over torch.distributed.pipelining and gloo:
#     PYTHON=PYTHON sh test/bench/torch-plans.sh
# PYTHON has torch and torchvision (python3), PD_BUILD is the build tree.  ROUNDS (3) is how often each network
# is profiled, planned and run; figures are medians over the rounds.  Each rank has one thread.
set -e
. "$(dirname "$0")/bench-lib.sh"
torch=$source/contrib/torch python=${PYTHON:-python3} rounds=${ROUNDS:-3}
PYTHONPATH=$torch
export PYTHONPATH
cd "$work"

# round NAME BLOCKS SCHEDULE: prints a step's time in milliseconds, replayed and measured.
round() {
	"$python" "$torch/pd_profile.py" --threads=1 --rounds=9 --blocks="$2" --link \
		"$torch/networks.py:train_$1" >profile.json
	pd-plan --quiet --gpus=2 --straight --schedule="$3" --weights=flush --microbatches=8 profile.json >plan.json
	"$python" -m torch.distributed.run --nproc-per-node=2 "$torch/pd_run.py" plan.json \
		"$torch/networks.py:train_$1" --steps=20 2>log >result.json || { cat log >&2; exit 1; }
	echo "$(pd-replay --format=json plan.json | jq .period_ns) $(jq .step_ns result.json)" |
		awk '{ printf "%.2f %.2f\n", $1 * 8 / 1e6, $2 / 1e6 }'
}
# row NAME BLOCKS SCHEDULE: prints a row of the table.
row() {
	: >rounds
	for _ in $(seq "$rounds"); do
		round "$@" >>rounds
	done
	echo "$1 $3 $(cut -d " " -f 1 rounds | median) $(cut -d " " -f 2 rounds | median)" |
		awk '{ printf "%-10s %-8s %10.2f %10.2f %+8.1f%%\n", $1, $2, $3, $4, 100 * ($3 / $4 - 1) }'
}
printf '%-10s %-8s %10s %10s %9s\n' network schedule replayed measured difference
for schedule in 1f1b gpipe; do
	row resnet18 'layer\d\.\d' $schedule
	row gpt 'h\.\d' $schedule
	row unet 'net|deeper' $schedule
done
