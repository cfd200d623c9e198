#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What it is worth to know that devices are of several kinds: a GPT on two servers of eight, by data sheets.
# The plan is compared with the stages that pd-plan takes if all devices are like the slower ones, replayed on the
# machine as it is, and with data parallelism.  Metis (USENIX ATC 2024) measured 1.05 to 8.43 times for plans that
# know their devices over plans that do not, on machines of three kinds: the gains here are to be of that order.
#     sh test/bench/kinds.sh
set -e
. "$(dirname "$0")/bench-lib.sh"
cd "$work"
topology=${TOPOLOGY:-8@150GB/s,2@3GB/s}

pd-model gpt --layers=24 --hidden=1024 --heads=16 --sequence=1024 --vocabulary=50304 >model.json
for device in v100-16 a100-80 h100-sxm; do
	pd-profile --device="$source/share/devices/$device.json" --batch-size=4 --dtype=f16 model.json >$device.json
done
printf '%-10s %-10s %14s %16s %16s\n' slower faster "ms, by kind" "as if alike" "data-parallel"
for pair in v100-16,a100-80 v100-16,h100-sxm a100-80,h100-sxm; do
	a=${pair%,*} b=${pair#*,}
	set -- -q -t "$topology" --weights=flush --microbatches=32
	pd-plan "$@" --devices="${a}x8,${b}x8" $a.json $b.json >plan.json
	stages=$(pd-plan "$@" $a.json | jq -r '[.stages[] | "\(.layers | length)x\(.replicas)"] | join(",")')
	pd-plan "$@" --devices="${a}x8,${b}x8" --stages="$stages" $a.json $b.json >alike.json
	jq -rs --arg a $a --arg b $b '.[0].predicted as $x | .[1].predicted.period_ns as $y |
		[$a, $b, $x.period_ns / 1e6, $y / $x.period_ns, $x.data_parallel.period_ns / $x.period_ns] | @tsv' \
		plan.json alike.json |
		awk -F '\t' '{ printf "%-10s %-10s %14.2f %16.2f %16.2f\n", $1, $2, $3, $4, $5 }'
done
