#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares training on one GPU, ours and PyTorch's, in turn on the same GPU: samples per second, ours over
# the best of PyTorch's, and the share of the matrix rate that this GPU showed in a large product of the
# same type.  Ours is measured twice: a step on data that lie on the GPU (pd-profile's step_ns), as
# PyTorch's is timed, and a whole run of pd-run with its loader.  PyTorch's is measured eager, compiled and,
# in bf16, with all of the net in that type (pure); the first two use autocast.  In 16 bits it has channels
# last.  This is not a test: it prints what it measured.
#     sh test/bench/gpu-vs-torch.sh [MODEL BATCH-SIZE]...
# MODEL is one of share/models, or gpt: pd-model's gpt2 with a vocabulary of 50,304 and without dropout.
# Samples of gpt have 1,024 tokens each, and tokens per second are on standard error.  PD_BUILD names the
# build tree, PYTHON a Python that has PyTorch.  STEPS is the number of steps (30), TYPES are some of f32,
# tf32, bf16 and f16 (bf16 tf32); f32 is without TF32 on either side.  HOW are PyTorch's ways (eager compiled
# pure).  Each figure is on standard error as soon as it is known, PyTorch's eager one first, so a run that is
# cut short has said that.
source=$(cd "$(dirname "$0")/../.." && pwd)
build=${PD_BUILD:-$source}
python=${PYTHON:-python3}
# pytorch ARGUMENT...: runs Python with the libraries that it came with, not those of contrib/run-here.sh.
pytorch() {
	LD_LIBRARY_PATH=${PD_LIBRARY_PATH_BEFORE-${LD_LIBRARY_PATH-}} "$python" "$@"
}
steps=${STEPS:-30}
types=${TYPES:-bf16 tf32}
how=${HOW:-eager compiled pure}

work=$(mktemp -d) || exit 3
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- vgg16 64 vgg16 128 vgg16 256 resnet50 64 resnet50 128 resnet50 256 gpt 8 gpt 32

"$build/bin/pd-model" gpt2 --vocabulary=50304 --dropout=0 >"$work/gpt.json" || exit 3

# tell MODEL BATCH-SIZE TYPE WHOSE SAMPLES-PER-SECOND: prints a figure on standard error.
tell() {
	of_tokens=
	[ "$1" != gpt ] || of_tokens=$(awk "BEGIN { printf \", %.0f tokens/s\", $5 * 1024 }")
	echo "$1 $2 $3: $4: $5 samples/s$of_tokens" >&2
}

# theirs MODEL BATCH-SIZE TYPE WHAT...: has one process of PyTorch measure these, and keeps the figures.
theirs() {
	torch_model=$1 torch_batch=$2 torch_type=$3
	shift 3
	pytorch "$source/test/bench/gpu-vs-torch.py" "$model" "$torch_batch" "$steps" "$torch_type" "$@" |
		while read -r what value; do
			echo "$what $value" >>"$work/figures"
			case $what in
			rate | work) ;;
			*) tell "$torch_model" "$torch_batch" "$torch_type" "PyTorch, $what" "$value" ;;
			esac
		done
	for what in "$@"; do
		grep -q "^$what " "$work/figures" ||
			{ echo "$0: $python: no figure for $what; has it a PyTorch that sees a GPU?" >&2; return 1; }
	done
}

# figure WHAT: prints what PyTorch said of it, or 0.
figure() {
	awk -v what="$1" '$1 == what { found = $2 } END { print found + 0 ? found : 0 }' "$work/figures"
}

# one MODEL BATCH-SIZE TYPE: measures, and prints a line of the table.
one() {
	model=$source/share/models/$1.json
	[ "$1" != gpt ] || model=$work/gpt.json
	case $3 in
	tf32) dtype=f32 flags=--tf32 ;;
	*) dtype=$3 flags= ;;
	esac
	: >"$work/figures"
	# The loss of f16 is scaled, which not every kind of weights goes with.
	weights=
	[ "$3" = f16 ] && weights=--weights=flush
	theirs "$1" "$2" "$3" eager rate work || exit 3
	"$build/bin/pd-profile" --device=cuda --dtype="$dtype" $flags --no-link \
		--iterations="$steps" --batch-size="$2" "$model" >"$work/profile.json" || exit 3
	step=$(sed -n 's/.*"step_ns": \([0-9]*\).*/\1/p' "$work/profile.json" | head -n 1)
	ours=$(awk "BEGIN { printf \"%.1f\", $2 * 1e9 / $step }")
	tell "$1" "$2" "$3" "a step of ours" "$ours"
	"$build/bin/pd-plan" --gpus=1 $weights "$work/profile.json" >"$work/plan.json" &&
		"$build/bin/pd-run" --device=cuda $flags --synthetic --no-evaluate \
			--minibatches="$((steps + 20))" "$work/plan.json" >"$work/report" || exit 3
	run=$(tail -n 1 "$work/report" | sed 's/.*"samples_per_s": \([0-9.]*\).*/\1/')
	tell "$1" "$2" "$3" "pd-run" "$run"
	for way in $how; do
		case $way,$3 in
		eager,*) ;;
		pure,bf16 | compiled,*) theirs "$1" "$2" "$3" "$way" ;;
		esac
	done
	eager=$(figure eager) compiled=$(figure compiled) pure=$(figure pure)
	rate=$(figure rate) work_flop=$(figure work)
	printf '%-10s %5s %5s %10s %10.1f %10s %10s %10s %6s %8s %6s\n' "$1" "$2" "$3" "$ours" \
		"$run" "$eager" "$compiled" "$pure" \
		"$(awk "BEGIN { b = $eager; if ($compiled > b) b = $compiled
			if ($pure > b) b = $pure; printf \"%.2f\", $ours / b }")" \
		"$(awk "BEGIN { printf \"%.0f\", $rate / 1e12 }")" \
		"$(awk "BEGIN { printf \"%.0f%%\", 100 * $ours * $work_flop / $rate }")"
}

printf '%-10s %5s %5s %10s %10s %10s %10s %10s %6s %8s %6s\n' model batch type step pd-run eager \
	compiled pure ratio TFLOP/s share
while [ $# -ge 2 ]; do
	for type in $types; do
		one "$1" "$2" "$type"
	done
	shift 2
done
