#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Replays GradientFlow's tables 1 and 2 (arXiv 1902.06855) in virtual time: images per second of AlexNet and
# ResNet-50 on 128 GPUs (16 servers of 8, "P") and 512 (64 of 8, "V") with 56 Gbit/s between servers, by
# each of its steps, beside what the paper measured.
#     sh test/bench/gradientflow.sh [ROW...]
# ROW is one of alexnet:P, alexnet:V, resnet50:P, resnet50:V; all are replayed by default.  LATENCY (5us) is
# that of every link.  THETAS are the bucket sizes tried for lazy all-reduce; their curve is printed below
# the table and drawn.  PD_BUILD names the build tree, and gradientflow.svg and theta.svg go to the folder
# OUT (.).  The script takes about two minutes of processor time and 2 GB of memory.  WIDE=yes also replays
# 161 sums of ResNet-50 among 512, each in a ring of its own, which takes minutes more, and 20 GB.
#
# The input is the models of pd-model(1), one GPU's images per second from the paper, the part of that time
# that each layer takes from data sheets (roofline.jq), and PCIe at 12 GB/s.  The GPUs of a server share
# PCIe as they share the network.  The rest is a replay of one update.  Without overlap all of backward
# comes before the first gradient.
#
#     MPI      recursive doubling has a sum for each tensor, f32, no overlap
#     NCCL     a ring has a sum for each tensor
#     +16      forward, backward and gradients are in f16
#     +overlap a layer's sum begins when its backward is done
#     +lazy    gradients travel in buckets, of the best size of THETAS
#     +sparse  15 % of the chunks of 32,000 travel
#
# A - stands for a step that was not replayed.
set -e
. "$(dirname "$0")/bench-lib.sh"
latency=${LATENCY:-5us}
thetas=${THETAS:-1 1MB 4MB 16MB 64MB 256MB}

# profile MODEL BATCH IMAGES_PER_S DTYPE FLOPS BANDWIDTH: prints a profile of the model on such a GPU.
profile() {
	pd-model "$1" | jq -f "$source/test/bench/roofline.jq" --argjson batch "$2" --arg dtype "$4" \
		--argjson step_ns "$(awk -v n="$2" -v rate="$3" 'BEGIN { printf "%d", n / rate * 1e9 }')" \
		--argjson flops "$5" --argjson bandwidth "$6"
}

# without_overlap: moves all of backward into the last layer.
without_overlap() {
	jq '(.layers | map(.backward_ns) | add) as $all | .layers[].backward_ns = 0
		| .layers[-1].backward_ns = $all'
}

# bytes SIZE: prints the size as a number.
bytes() {
	echo "$1" | sed 's/MB/000000/'
}

# thousands PROFILE FILTER: prints thousands of images per second of an update, by the plan that FILTER
# changes, or - if this version does not know such plans.
thousands() {
	layers=$(jq '.layers | length' "$1")
	pd-plan -t "8@12GB/s+$latency,$servers@7GB/s+$latency" --stages="${layers}x$ranks" "$1" |
		jq "$2" >"$work/plan"
	if pd-replay --format=json -m "$ranks" "$work/plan" >"$work/report" 2>"$work/err"; then
		jq --argjson n "$((ranks * batch))" '$n * 1e6 / .elapsed_ns' "$work/report"
	else
		grep -q "unknown key\|expected one of" "$work/err" || cat "$work/err" >&2
		echo -
	fi
}

# row NAME SERVERS BATCH F32 F16 FLOPS BANDWIDTH PAPER...: prints what is replayed, and the paper's figures
# below.
row() {
	name=$1 model=${1%:*} servers=$2 ranks=$(($2 * 8)) batch=$3 f32=$4 f16=$5 flops=$6 bandwidth=$7
	shift 7
	wide=$model$ranks
	half='.gradient_dtype = "f16"'
	profile "$model" "$batch" "$f32" f32 "$flops" "$bandwidth" >"$work/f32"
	profile "$model" "$batch" "$f16" f16 "$flops" "$bandwidth" >"$work/f16"
	without_overlap <"$work/f32" >"$work/f32-after"
	without_overlap <"$work/f16" >"$work/f16-after"
	: >"$work/ours"
	thousands "$work/f32-after" '.reducer = "recursive-doubling" | .bucket_bytes = 1' >>"$work/ours"
	if [ "$wide" = resnet50512 ] && [ "${WIDE:-}" != yes ]; then
		printf '%s\n' - - - >>"$work/ours"
	else
		thousands "$work/f32-after" '.reducer = "ring" | .bucket_bytes = 1' >>"$work/ours"
		thousands "$work/f16-after" ".reducer = \"ring\" | .bucket_bytes = 1 | $half" >>"$work/ours"
		thousands "$work/f16" ".reducer = \"ring\" | .bucket_bytes = 1 | $half" >>"$work/ours"
	fi
	: >"$work/thetas"
	for theta in $thetas; do
		[ "$theta,$wide" != 1,resnet50512 ] || [ "${WIDE:-}" = yes ] || continue
		lazy=$(thousands "$work/f16" ".reducer = \"ring\" | .bucket_bytes = $(bytes "$theta") | $half")
		[ "$lazy" = - ] || echo "$lazy $(bytes "$theta")" >>"$work/thetas"
	done
	sort -g "$work/thetas" | tail -n 1 >"$work/best"
	read -r best theta <"$work/best" || best=- theta=4000000
	echo "$best" >>"$work/ours"
	thousands "$work/f16" ".reducer = \"ring\" | .bucket_bytes = $theta | $half
		| .sparse = {sparsity: 0.85, chunk: 32000}" >>"$work/ours"
	awk -v name="$name" '{ printf "%s\t%g\t%g\n", name, $2 / 1e6, $1 }' "$work/thetas" >>"$work/curves"
	printf '%-12s %-7s' "$name" replayed
	print_gains <"$work/ours"
	printf ' theta %s MB\n%-12s %-7s' "$(awk -v t="$theta" 'BEGIN { print t / 1e6 }')" "" paper
	printf '%s\n' "$@" | print_gains
	echo
	for step in MPI NCCL +16 +overlap +lazy +sparse; do
		printf '%s\t%s\t%s\t%s\n' "$step" "$name" "$(sed -n 1p "$work/ours" | tr -d -)" "$1"
		sed -i 1d "$work/ours"
		shift
	done | awk -F '\t' '$3 > 0' >>"$work/bars"
}

# print_gains: prints numbers, each with how many times the first it is.
print_gains() {
	awk 'NR == 1 { first = $1 } { printf " %16s", $1 == "-" ? "-" : sprintf("%.1fK (%.1f)", $1, $1 / first) }'
}

: >"$work/bars"
: >"$work/curves"
printf '%-12s %-7s' "images/s" ""
printf ' %16s' MPI NCCL +16 +overlap +lazy +sparse
echo
while read -r name rest; do
	case " $* " in "  "|*" $name "*) row "$name" $rest ;; esac
done <<'END'
alexnet:P 16 128 1670 1900 9.5e12 732e9 22.3 75.7 110.3 119.5 172.8 245.4
alexnet:V 64 128 2900 3700 15.7e12 900e9 56.2 240.0 326.7 349.1 780.3 1514.3
resnet50:P 16 64 172 223 9.5e12 732e9 13.9 15.5 17.8 26.9 29.6 29.6
resnet50:V 64 128 301 621 15.7e12 900e9 30.2 56.8 71.8 80.0 269.5 273.2
END
awk -F '\t' '$1 != name { name = $1; printf "\n%-12s theta, MB", name }
	{ printf "   %s: %.1fK", $2 < 1e-5 ? "a layer" : $2, $3 } END { print "" }' "$work/curves"
awk -f "$source/test/bench/plot.awk" -v kind=bars -v width=1100 -v other=paper \
	-v ylabel="thousand images per second" -v title="GradientFlow's steps in virtual time" \
	"$work/bars" >"$out/gradientflow.svg"
[ ! -s "$work/curves" ] || awk -f "$source/test/bench/plot.awk" -v kind=lines -v xlabel="theta, MB" -v zero=1 \
	-v ylabel="thousand images per second" -v title="Lazy all-reduce: the size of buckets" \
	"$work/curves" >"$out/theta.svg"
