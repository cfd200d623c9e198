#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The emulated GPU notices what a real one would not forgive, or would forgive only most of the time.  It
# notices each mistake of test/emulated/mistakes.cu, but not its correct counterpart.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

nvcc=$(sed -n 's/^NVCC = //p' "$PD_BUILD/Makefile")
toolkit=${nvcc%/bin/nvcc}
[ -e "$toolkit/emulated/runtime.cc" ] || test_skip_all "this build has no emulated GPU"

"$nvcc" -c "$PD_SOURCE/test/emulated/mistakes.cu" -o mistakes.o >log 2>&1 &&
	"${CXX:-g++}" mistakes.o -L"$toolkit/lib64" -lcublasLt -lcudart_static -o mistakes >>log 2>&1 ||
	{ cat log; test_ok "the mistakes compile" false; test_done; }

# noticed NAME [WORDS]: checks that a call is refused, the result is wrong, or the program ends with these
# words.
noticed() {
	./mistakes "$1" right
	if ./mistakes "$1" 2>err; then
		echo "$1: nothing was noticed"
		return 1
	fi
	grep -v "no such mistake" err || true
	grep -q "^emulated: .*${2-}" err || [ -z "${2-}" ]
}

test_ok "a barrier of the block that is missing" 'noticed block-barrier'
test_ok "a barrier of the warp that is missing" 'noticed warp-barrier'
test_ok "a barrier to which not all threads come" 'noticed divergence "the others have ended"'
test_ok "grids that are empty or too high; too much shared memory" '
	noticed grid-of-none
	noticed grid-too-high
	noticed shared-memory
'
test_ok "a vector that is not aligned" 'noticed alignment'
test_ok "an address in the middle of an argument that no GPU reaches" '
	noticed host-memory "not in the GPU.s memory, nor pinned"
'
test_ok "a copy of the wrong kind" 'noticed copy-kind'
test_ok "a stream that does not wait for another" 'noticed stream-order'
test_ok "pinned memory that is used again too early" 'noticed pinned-reuse'
test_ok "what must not be done while work is captured" '
	noticed capture-allocate
	noticed capture-wait
	noticed capture-kernel
'
test_ok "products with bad pointers, steps, arithmetic, or results over their matrices" '
	noticed product-matrix "a matrix of a product: .* is no multiple of 64"
	noticed product-workspace "a product.s workspace: .* is no multiple of 256"
	noticed product-overlap "lies where another"
	noticed product-step
	noticed product-arithmetic
'
pd-profile --device=cuda --no-link --iterations=1 --batch-size=4 "$MODELS/lenet5.json" >profile.json &&
	pd-plan --topology=2@10GB/s --straight profile.json >plan.json
# run: prints the loss at the end of a training of two ranks that share the GPU.
run() {
	timeout 120 pd-run --device=cuda --synthetic --minibatches=6 plan.json 2>err |
		sed -n "s/.*\"done\".*\"loss\": //p"
}
test_ok "layers that compute the same are timed once, and have the same algorithms" '
	pd-model gpt --layers=3 --hidden=64 --heads=4 --sequence=16 --vocabulary=128 --dropout=0 |
		pd-profile --device=cuda --no-link --iterations=1 --batch-size=2 >gpt.json
	jq -r ".layers[] | select(.algorithms) | \"\(.name | split(\".\")[2:] | join(\".\")) \(.algorithms)\"" \
		gpt.json | sort | uniq -c >found
	cat found
	[ "$(wc -l <found)" = 7 ]
	awk "{ print \$3 }" found | grep -q .
	for layer in attn.q attn.k attn.v attn.proj mlp.fc mlp.proj; do
		grep -q " 3 $layer " found
	done
	[ "$(awk "\$2 ~ /^attn/ { print \$3 }" found | uniq | wc -l)" = 1 ]'
test_ok "a library that refuses a convolution with its bias in one call is told of once, and not needed" '
	pd-profile --device=cpu --no-link --iterations=1 --batch-size=2 "$MODELS/fashion-cnn.json" |
		pd-plan --gpus=1 >relus.json
	# older: trains by the older calls of cuDNN, whatever is faster at the moment, and prints the loss.
	older() {
		PD_CUDA_ENGINES=no timeout 120 pd-run --device=cuda --synthetic --no-evaluate --minibatches=2 \
			relus.json 2>err | sed -n "s/.*\"done\".*\"loss\": //p"
	}
	older >fused
	! grep "refuses a convolution" err || false
	PD_EMULATED_NO_FUSION=1 older >apart
	cat err
	[ "$(grep -c "layer .*: cuDNN refuses a convolution with its bias and a relu .* in one call" err)" = 1 ]
	[ -s fused ] && cmp fused apart'
test_ok "AdamW decays matrices alone by one kernel, or by more where there are many tensors" '
	for model in "mlp --hidden=16 --layers=5" "mlp --hidden=4 --layers=140"; do
		pd-model $model | pd-profile --device=cpu --no-link --iterations=1 --batch-size=4 |
			pd-plan --gpus=1 >one.json
		for device in cpu cuda; do
			timeout 200 pd-run --device=$device --synthetic --minibatches=8 --optimizer=adamw --lr=1e-2 \
				--weight-decay=5 --decay=matrices one.json 2>err | grep "\"loss\"" |
				sed "s/.*\"loss\": \([0-9.e-]*\).*/\1/" >losses.$device
		done
		paste losses.cpu losses.cuda
		[ -s losses.cpu ] && paste losses.cpu losses.cuda |
			awk "{ d = \$1 - \$2; if (d < -1e-4 || d > 1e-4) wrong = 1 } END { exit wrong || NR == 0 }"
	done'
test_ok "graphs that cannot be captured or updated are told of, and not needed" '
	run >graphs
	[ -s graphs ]
	cat err
	! grep "launched by itself" err || false
	PD_EMULATED_NO_UPDATE=1 run >single
	cat err
	grep -q "cannot be put into a graph that is there .*result 2.*launched by itself" err
	PD_EMULATED_NO_CAPTURE=1 run >launched
	cat err
	grep -q "cannot be captured in graphs .*launched by itself" err
	cmp graphs single
	cmp graphs launched
'
test_done
