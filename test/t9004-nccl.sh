#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Several ranks run on GPUs, through NCCL and staged through the host.  Weights are those of the serial
# program, a killed rank ends the run, and the link is measured.  If there are fewer GPUs than ranks, ranks
# share them, and NCCL takes each rank for a machine of its own.  With PD_GPU=yes it is a failure if no GPU
# is found.  PD_TEST_WAYS names some of auto, staged and nccl, to test these alone.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

if ! pd-profile --device=cuda --no-link --iterations=1 --batch-size=4 "$MODELS/lenet5.json" \
	>lenet5 2>why; then
	[ "${PD_GPU-}" = yes ] || grep -q "no GPU can be used" why || PD_GPU=yes
	[ "${PD_GPU-}" = yes ] || test_skip_all "$(cat why)"
	test_ok "a GPU is there and can be used" 'cat why; false'
	test_done
fi

PD_TEST_DEVICE=cuda
export PD_TEST_DEVICE
. "$PD_SOURCE/test/train-lib.sh"

ways=
for way in ${PD_TEST_WAYS:-auto staged nccl}; do
	if [ $way != nccl ] || "$PD_BUILD/test/conform/transfers" --has-nccl; then
		ways="$ways $way"
	else
		test_skip "NCCL" "this program was built without NCCL"
	fi
done

residual_model >residual.json
profile residual.json 4 >residual

# Two and four ranks are pipelined and replicated.  Groups are partial at the end of an epoch.
for replicas in "1 1" "2" "1 1 1 1" "2 2" "1 2 1" "3 1"; do
	plan residual $replicas >plan.json
	rm -rf serial
	"$serial" $sgd --minibatches=25 --output=serial plan.json
	for way in $ways; do
		test_ok "weights of replicas $replicas, --transport=$way" '
			rm -rf ck
			PD_TEST_TRANSPORT=$way train ck plan.json $sgd --synthetic --minibatches=25
			"$same" serial "$(at ck 25)"'
	done
done

# A value that all ranks agree on goes from everybody to everybody else.
for way in $ways; do
	test_ok "clipped gradients over four ranks, --transport=$way" '
		pd-plan --topology=4@10Gbit/s --schedule=1f1b --weights=flush --microbatches=4 \
			--straight residual >plan.json
		rm -rf ck
		PD_TEST_TRANSPORT=$way train ck plan.json --clip-grad-norm=0.5 --synthetic \
			--minibatches=6
		[ -d first ] || mv ck first
		[ ! -d ck ] || "$same" "$(at first 6)" "$(at ck 6)"'
	test_ok "two stages on each rank, --transport=$way" '
		pd-plan --topology=2@10Gbit/s --schedule=interleaved --chunks=2 --microbatches=4 \
			residual >plan.json
		rm -rf ck
		PD_TEST_TRANSPORT=$way train ck plan.json --synthetic --minibatches=6
		[ -d chunks ] || mv ck chunks
		[ ! -d ck ] || "$same" "$(at chunks 6)" "$(at ck 6)"'
	test_ok "a rank that is killed, --transport=$way" '
		plan residual 1 2 1 >plan.json
		pd-run --device=cuda --transport=$way --synthetic --minibatches=1000000 plan.json \
			>out 2>err &
		run=$!
		for try in $(seq 600); do
			! grep -q progress out || break
			sleep 0.1
		done
		grep -q progress out
		set -- $(children $run)
		kill -KILL "$3"
		ended=0
		since=$(date +%s)
		wait "$run" || ended=$?
		cat err
		[ "$ended" -eq 3 ]
		[ $(($(date +%s) - since)) -lt 15 ]
		grep -q "rank 2 (stage [0-9] of 3).*killed by signal 9" err
		for worker in "$@"; do
			! [ -d "/proc/$worker" ] || false
		done'
	test_ok "the link is measured, --transport=$way" '
		pd-profile --device=cuda --transport=$way --iterations=1 --batch-size=4 \
			"$MODELS/lenet5.json" >profile.json
		jq .link profile.json
		[ "$(jq ".link.bandwidth_bytes_per_s > 0 and .link.latency_ns > 0" profile.json)" = true ]
		pd-plan --gpus=2 profile.json >plan.json'
done

test_done
