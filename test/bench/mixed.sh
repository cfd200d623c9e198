#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares 16 bits with f32 on this machine, in turn: the time of a training step on one thread, medians of
# RUNS (5) profiles of each, what the layers of each kind take of it, the bytes of activations, and what a
# microbatch takes if MICROBATCHES (4) share an update.
#     sh test/bench/mixed.sh [MODEL BATCH-SIZE]...
# wide-mlp with small batches has next to nothing but weights to read and write.
#
# With EPOCHS=N and DATA (Debian's Fashion-MNIST) two workers also train the first MODEL in each type, and
# the accuracies after each epoch are shown.  The default, fashion-cnn, fits that.  All train with flush,
# which f16 can be trained with.  With 2bw even f32 does not learn this network.
#
# PD_BUILD names the build tree, DEVICE the device (cpu), TYPES what is compared with f32: bf16, f16, and on
# the CPU bf16-native and bf16-wide (PD_CPU_BF16).
set -e
. "$(dirname "$0")/bench-lib.sh"
[ $# -gt 0 ] || set -- fashion-cnn 64
device=${DEVICE:-cpu} first=$1 microbatches=${MICROBATCHES:-4}
[ "$device" != cpu ] || types="bf16-native bf16-wide f16"
types="f32 ${TYPES:-${types:-bf16 f16}}"

# as TYPE COMMAND...: runs the command with the kernels that the type asks for.
as() {
	case $1 in
	*-*) PD_CPU_BF16=${1#*-} ;;
	*) PD_CPU_BF16= ;;
	esac
	export PD_CPU_BF16
	shift
	"$@"
}

step() {
	as "$1" pd-profile --device="$device" --dtype="${1%-*}" --threads=1 --no-link \
		--iterations="${ITERATIONS:-7}" --batch-size="$3" "$(model_file "$2")"
}

while [ $# -ge 2 ]; do
	for run in $(seq "${RUNS:-5}"); do
		for type in $types; do
			step "$type" "$1" "$2" >"$work/$1-$type-$run"
			jq .step_ns "$work/$1-$type-$run" >>"$work/$1-$type"
			jq --argjson m "$microbatches" '[.layers[] | .forward_ns + .backward_ns +
				(.update_ns // 0) / $m] | add' "$work/$1-$type-$run" >>"$work/$1-$type-m"
		done
	done
	for type in $types; do
		echo "$1, $2 samples, $type: $(cat "$work/$1-$type" | median |
			awk '{ printf "%.2f", $1 / 1e6 }') ms a step; layers, $microbatches an update:" \
			"$(cat "$work/$1-$type-m" | median | awk '{ printf "%.2f", $1 / 1e6 }') ms each"
		# The last run gives forward + backward and update, by kind of layer.
		jq -r '(.model.layers | map({key: .name, value: .kind}) | from_entries) as $kind |
			[.layers[] | .kind = $kind[.name]] | group_by(.kind)[] |
			[.[0].kind, (map(.forward_ns) | add / 1e6), (map(.backward_ns) | add / 1e6),
			 (map(.update_ns // 0) | add / 1e6), (map(.activation_bytes) | add)] | @tsv' \
			"$work/$1-$type-$run" |
			awk -F '\t' '{ printf "    %-24s %9.3f + %9.3f ms, update %8.3f ms, %11d bytes\n",
				$1, $2, $3, $4, $5 }'
	done
	shift 2
done

[ -n "$EPOCHS" ] || exit 0
for type in $types; do
	pd-plan --straight --weights=flush --microbatches=2 --topology=2@10GB/s \
		"$work/$first-$type-1" >"$work/plan"
	as "$type" pd-run --device="$device" --threads=1 --lr=0.01 --epochs="$EPOCHS" \
		--data="${DATA:-/usr/share/datasets/fashion-mnist}" "$work/plan" |
		jq -r --arg type "$type" 'select(.event == "evaluation") |
			"\($type), epoch \(.epoch): accuracy \(.accuracy)"'
done
