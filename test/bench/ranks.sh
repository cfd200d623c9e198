#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures how long a run of many ranks takes from its start to its end.  mpirun starts one process for each
# rank on this machine.  They meet, connect, train a chain of small layers, with a layer and 8 minibatches
# for each rank, and end.
#     sh test/bench/ranks.sh [RANKS]...     (8 16 32 64)
# The table has medians of RUNS (3), in seconds: the whole; of it the training, from when all ranks are
# ready; and the rest.  All ranks share this machine's processors.  PD_BUILD names the build tree.  The
# script takes half a minute on two processors that nobody else uses.
set -e
. "$(dirname "$0")/bench-lib.sh"
runs=${RUNS:-3}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# chain LAYERS >FILE: writes a model.
chain() {
	jq -n --argjson n "$1" '{format: "pd-model", version: 1, name: "chain", inputs: [
			{name: "image", dtype: "f32", shape: [1, 28, 28]},
			{name: "label", dtype: "i32", shape: []}],
		layers: ([{name: "l0", kind: "flatten", inputs: ["image"]}] +
			[range(1; $n) | {name: "l\(.)", kind: "linear", inputs: ["l\(. - 1)"],
				out_features: 16}] +
			[{name: "loss", kind: "softmax_cross_entropy", inputs: ["l\($n - 1)", "label"]}])}'
}

# run RANKS: prints the seconds of the whole, of the training and of the rest.
run() {
	begin=$(date +%s%N)
	mpirun --oversubscribe --bind-to none -np "$1" pd-run --threads=1 --synthetic --no-evaluate \
		--minibatches=$((8 * $1)) "$work/plan.json" >"$work/out"
	end=$(date +%s%N)
	tail -n 1 "$work/out" | jq -r --argjson whole $((end - begin)) '
		[$whole, .elapsed_ns, $whole - .elapsed_ns] | map(. / 1e9) | @tsv'
}

[ $# -gt 0 ] || set -- 8 16 32 64
printf '%5s  %8s  %8s  %8s\n' ranks whole training rest
for ranks; do
	chain "$ranks" >"$work/model.json"
	pd-profile --device=cpu --iterations=1 --no-link --threads=1 --batch-size=4 "$work/model.json" \
		>"$work/profile.json"
	ones=$(seq "$((ranks - 1))" | sed 's/.*/1/' | paste -sd,)
	pd-plan --topology="$ranks@1GB/s" --stages="$ones,2" "$work/profile.json" >"$work/plan.json"
	for i in $(seq "$runs"); do
		run "$ranks"
	done >"$work/runs"
	printf '%5d  %8.2f  %8.2f  %8.2f\n' "$ranks" $(for i in 1 2 3; do
		cut -f $i "$work/runs" | median
	done)
done
