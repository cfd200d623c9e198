#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Workers run on a GPU, alone and several sharing it.  With PD_GPU=yes it is a failure if no GPU is found.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

if ! pd-profile --device=cuda --no-link --iterations=1 --batch-size=4 "$MODELS/lenet5.json" \
	>profile.json 2>why; then
	[ "${PD_GPU-}" = yes ] || grep -q "no GPU can be used" why || PD_GPU=yes
	[ "${PD_GPU-}" = yes ] || test_skip_all "$(cat why)"
	test_ok "a GPU is there and can be used" 'cat why; false'
	test_done
fi

test_ok "pd-profile measures on the GPU" '
	grep -q "\"kind\": \"cuda\"" profile.json
	pd-plan --gpus=1 profile.json >plan.json
'

test_ok "workers beside one another are for processors" '
	status 2 pd-profile --device=cuda --workers=2 "$MODELS/lenet5.json" 2>err
	cat err
	one_line err
'

test_ok "--device=auto takes the GPU" '
	pd-profile --no-link --iterations=1 --batch-size=4 "$MODELS/lenet5.json" >auto.json
	grep -q "\"kind\": \"cuda\"" auto.json
'

test_ok "a worker trains on it, in the memory that was predicted" '
	pd-run --device=cuda --synthetic --minibatches=20 plan.json >report
	tail -n 1 report
	tail -n 1 report | grep -q "\"memory\": \"as predicted\""
'

test_ok "VGG-16 trains on it" '
	pd-profile --device=cuda --no-link --iterations=3 --batch-size=32 "$MODELS/vgg16.json" >vgg.json
	pd-plan --gpus=1 vgg.json >vgg-plan.json
	pd-run --device=cuda --synthetic --minibatches=10 vgg-plan.json >report
	tail -n 1 report
'

test_ok "what was measured to be fastest computes the same, every time, with graphs and without" '
	grep -q "\"algorithms\"" plan.json
	for i in 1 2 3; do
		[ $i -lt 3 ] || export PD_CUDA_GRAPHS=no
		pd-run --device=cuda --synthetic --minibatches=20 plan.json >report$i
		tail -n 1 report$i | sed "s/.*\"loss\": \([-+.e0-9]*\).*/\1/" >loss$i
	done
	cat loss1
	[ -s loss1 ] && cmp loss1 loss2 && cmp loss1 loss3
'

for dtype in bf16 f16; do
	test_ok "a worker trains in $dtype, in the memory that was predicted" '
		pd-profile --device=cuda --dtype=$dtype --no-link --iterations=3 --batch-size=16 \
			"$MODELS/resnet18.json" | pd-plan --gpus=1 --weights=flush >$dtype.json
		pd-run --device=cuda --synthetic --minibatches=10 $dtype.json >report
		tail -n 1 report
		tail -n 1 report | grep -q "\"memory\": \"as predicted\""
	'
done

# The tests of the CPU device that train run on the GPU, with the serial program on it as well.
for test in t4001-weights t4005-memory; do
	if ! command -v jq >/dev/null; then
		test_skip "$test on the GPU" "jq is not installed"
		continue
	fi
	test_ok "$test on the GPU, ranks sharing it" '
		PD_TEST_DEVICE=cuda sh "$PD_SOURCE/test/$test.sh"
	'
done

data=${PD_FASHION_MNIST:-/usr/share/datasets/fashion-mnist}
if [ -d "$data" ]; then
	for dtype in f32 bf16 f16; do
		test_ok "Fashion-MNIST in $dtype: over 88 % after two epochs" '
			pd-profile --device=cuda --dtype=$dtype --no-link --iterations=3 \
				--batch-size=64 "$MODELS/fashion-cnn.json" |
				pd-plan --gpus=1 --weights=flush >fashion.json
			pd-run --device=cuda --data="$data" --epochs=2 fashion.json >report
			grep "\"accuracy\"" report | tail -n 1
			grep "\"accuracy\"" report | tail -n 1 |
				sed "s/.*\"accuracy\": \([0-9.]*\).*/\1/" |
				awk "{ exit !(\$1 > 0.88) }"
		'
	done
else
	test_skip "training on Fashion-MNIST" "no data in $data"
fi

test_done
