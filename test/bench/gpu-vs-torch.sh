#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training on one GPU, ours and PyTorch's (eager and compiled), in turn on the same GPU, f32
# with TF32 allowed: samples per second, and ours over the better of PyTorch's.  Ours twice: a
# step on data that lie on the GPU (pd-profile's step_ns), as PyTorch's is timed, and a whole
# run of pd-run with its loader.  Not a test: it says what it measured.
#     sh test/bench/gpu-vs-torch.sh [MODEL BATCH-SIZE]...
# PD_BUILD names the build tree, PYTHON a Python that has PyTorch, STEPS how many (30).
source=$(cd "$(dirname "$0")/../.." && pwd)
build=${PD_BUILD:-$source}
python=${PYTHON:-python3}
steps=${STEPS:-30}

"$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
	{ echo "$0: $python has no PyTorch that sees a GPU" >&2; exit 3; }
work=$(mktemp -d) || exit 3
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- vgg16 64 vgg16 128 vgg16 256 resnet50 64 resnet50 128 resnet50 256

printf '%-10s %5s %10s %10s %10s %10s %6s\n' model batch step pd-run eager compiled ratio
while [ $# -ge 2 ]; do
	model=$source/share/models/$1.json
	"$build/bin/pd-profile" --device=cuda --tf32 --no-link --iterations="$steps" \
		--batch-size="$2" "$model" >"$work/profile.json" || exit 3
	step=$(sed -n 's/.*"step_ns": \([0-9]*\).*/\1/p' "$work/profile.json" | head -n 1)
	ours=$(awk "BEGIN { printf \"%.1f\", $2 * 1e9 / $step }")
	"$build/bin/pd-plan" --gpus=1 "$work/profile.json" >"$work/plan.json" &&
		"$build/bin/pd-run" --device=cuda --tf32 --synthetic --no-evaluate \
			--minibatches="$((steps + 20))" "$work/plan.json" >"$work/report" || exit 3
	run=$(tail -n 1 "$work/report" | sed 's/.*"samples_per_s": \([0-9.]*\).*/\1/')
	eager=$("$python" "$source/test/bench/gpu-vs-torch.py" "$model" "$2" "$steps" eager) || exit 3
	compiled=$("$python" "$source/test/bench/gpu-vs-torch.py" "$model" "$2" "$steps" compiled) ||
		compiled=0
	printf '%-10s %5s %10s %10.1f %10s %10s %6s\n' "$1" "$2" "$ours" "$run" "$eager" \
		"$compiled" "$(awk "BEGIN { b = $eager > $compiled ? $eager : $compiled
			printf \"%.2f\", $ours / b }")"
	shift 2
done
