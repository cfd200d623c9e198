#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Numbers that are not finite are named where they come from, go through every layer, and are noticed in
# losses and checkpoints.  With --on-divergence=stop a run ends with a checkpoint of the last good step.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

cat >model.json <<'END'
{"format": "pd-model", "version": 1, "name": "small",
 "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 8, 8]}, {"name": "y", "dtype": "i32", "shape": []}],
 "layers": [{"name": "c", "kind": "conv2d", "inputs": ["x"], "out_channels": 4, "kernel": 3, "padding": 1},
	    {"name": "b", "kind": "batchnorm2d", "inputs": ["c"]},
	    {"name": "r", "kind": "relu", "inputs": ["b"]},
	    {"name": "p", "kind": "maxpool2d", "inputs": ["r"], "kernel": 2},
	    {"name": "f", "kind": "flatten", "inputs": ["p"]},
	    {"name": "fc", "kind": "linear", "inputs": ["f"], "out_features": 3},
	    {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["fc", "y"]}]}
END
profile model.json 4 >profile.json
plan profile.json 1 >one
plan profile.json 1 1 >two
for data in whole bad; do
	mkdir -p $data/train $data/test
	{ npy "<f4" "(40, 1, 8, 8)"; numbers 2560 7 | floats; } >$data/train/x.npy
	{ npy "|u1" "(40,)"; idx_bytes 40 0 2; } >$data/train/y.npy
	{ npy "<f4" "(5, 1, 8, 8)"; numbers 320 8 | floats; } >$data/test/x.npy
	{ npy "|u1" "(5,)"; idx_bytes 5 0 2; } >$data/test/y.npy
done
# not_finite FILE BYTES-FROM-THE-END: puts a NaN there.
not_finite() {
	printf '\0\0\300\177' | dd of="$1" bs=1 seek=$(($(wc -c <"$1") - $2)) conv=notrunc 2>/dev/null
}
# Sample 5 is in the seventh minibatch of the first epoch.
not_finite bad/train/x.npy $(((40 - 5) * 256 - 64))

# ended STATUS PLAN OPTION...: trains on bad data into ./ck, and leaves ./out and ./err.
ended() {
	expected=$1
	shift
	rm -rf ck
	status "$expected" train ck "$@" --data=bad >out 2>err
	cat err
	grep -q "bad/train/x.npy: sample 5 has a number that is not finite in f32" err
	grep -q "layer loss: the loss of minibatch 7 is not a finite number" err
	if grep -e "--lr" err; then false; fi
}
for plan in one two; do
	test_ok "a NaN in the data, stages: $plan: named, and what comes of it is no number" '
		ended 0 '$plan'
		grep "the checkpoint of step 10: \".*\" has a number that is not finite" err
		jq -s -e "map(select(.event == \"evaluation\")) | length == 1 and .[0].loss == null and
			.[0].accuracy == 0" out'
	for every in "" --checkpoint-every=2 --checkpoint-every=4; do
		test_ok "stops with the last good step, stages: $plan $every" '
			ended 3 '$plan' '$every' --epochs=2 --on-divergence=stop
			tail -n 1 err | grep "diverged in minibatch 7: stopped; ck has the checkpoint of step 6"
			rm -rf good
			train good '$plan' --data=bad --minibatches=6 >out
			for file in "$(at good 6)"/*.safetensors; do
				cmp "$file" "$(at ck 6)/${file##*/}"
			done
			train ck '$plan' --data=whole --resume --minibatches=10 >out'
	done
done
test_ok "without checkpoints nothing is kept; in the first minibatch nothing was good" '
	status 3 pd-run --threads=1 --on-divergence=stop --data=bad one >out 2>err
	tail -n 1 err | grep "minibatch 7: stopped; without --checkpoint"
	status 3 train none one --on-divergence=stop --synthetic --lr=1e6 --momentum=0 --minibatches=30 \
		--weight-decay=1e3 >out 2>err
	cat err
	grep "training has diverged; a lower --lr" err
	tail -n 1 err | grep "stopped; none has the checkpoint of step"'
test_ok "a NaN in the parameters to begin with" '
	train begin one --synthetic --minibatches=1 --lr=0 --momentum=0 >out
	cp "$(at begin 1)/stage-0.safetensors" init.safetensors
	not_finite init.safetensors 4
	train again two --synthetic --minibatches=2 --init=init.safetensors >out 2>err
	cat err
	grep "^pd-run: --init: init.safetensors: \".*\" has a number that is not finite" err
	status 3 train third two --synthetic --minibatches=2 --init=init.safetensors \
		--on-divergence=stop >out 2>err
	tail -n 1 err | grep "no step before was good"'

test_ok "a number of --init that is finite in f32, and infinite in f16" '
	PD_TEST_DTYPE=f16 profile model.json 4 >half.json
	plan_with=--weights=flush plan half.json 1 >half
	cp "$(at begin 1)/stage-0.safetensors" init.safetensors
	printf "\000\120\303\107" | dd of=init.safetensors bs=1 seek=$(($(wc -c <init.safetensors) - 36)) conv=notrunc
	train whole-number one --synthetic --minibatches=1 --init=init.safetensors >out 2>err
	cat err
	[ ! -s err ]
	train narrow half --synthetic --minibatches=1 --init=init.safetensors >out 2>err
	cat err
	grep "^pd-run: --init: init.safetensors: \".*\" has a number that is not finite in f16$" err
	if grep -e "a lower --lr" err; then false; fi'
test_ok "updates that are all left out are said; with --on-divergence=stop they are an error" '
	train skipped half --synthetic --minibatches=30 --loss-scale=1e30 >out 2>err
	cat err
	[ "$(grep -c "nothing was learned in 10 minibatches: all updates were left out" err)" -eq 1 ]
	jq -s -e ".[-1].skipped == 30" out
	status 3 train skipped-stop half --synthetic --minibatches=30 --loss-scale=1e30 --on-divergence=stop >out 2>err
	cat err
	tail -n 1 err | grep "^pd-run: --on-divergence=stop: nothing was learned: stopped$"
	! grep "\"event\": \"done\"" out || false
	train fine half --synthetic --minibatches=30 >out 2>err
	! grep nothing err || false'
test_ok "labels of which none counts are said; with --on-divergence=stop they are an error" '
	jq "(.layers[] | select(.kind == \"softmax_cross_entropy\")).ignore_index = 1" model.json >ignoring.json
	profile ignoring.json 4 >ignoring
	plan ignoring 1 1 >plan-ignoring
	cp -r whole ignored
	{ npy "|u1" "(40,)"; idx_bytes 40 1 1; } >ignored/train/y.npy
	for epochs in 1 2; do
		pd-run --threads=1 --data=ignored --no-evaluate --epochs=$epochs plan-ignoring >out 2>err
		cat err
		one_line err
		grep "^pd-run: nothing was learned in 10 minibatches: no label of the training set counts in layer loss" err
	done
	status 3 pd-run --threads=1 --data=ignored --epochs=2 --on-divergence=stop plan-ignoring >out 2>err
	tail -n 1 err | grep "nothing was learned: stopped"
	pd-run --threads=1 --data=whole --epochs=2 plan-ignoring >out 2>err
	[ ! -s err ]'
test_ok "a run that a signal ends says what can be gone on with" '
	for how in "--checkpoint=signalled|stopped; signalled has the checkpoint of step [1-9][0-9]*, and the same command with --resume" \
		"|stopped; without --checkpoint=DIR nothing is kept"; do
		: >out
		env --default-signal=INT pd-run --threads=1 --synthetic --report-every=1 ${how%%|*} \
			--minibatches=100000000 one >out 2>err &
		run=$!
		until [ -s out ]; do kill -0 $run; sleep 0.01; done
		kill -INT $run
		status 130 wait $run
		cat err
		one_line err
		grep "^pd-run: ${how#*|}" err
	done'
test_done
