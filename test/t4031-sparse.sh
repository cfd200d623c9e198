#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With sparse sums of gradients the weights are, bit for bit, those of Algorithm 1 in one process
# (test/conform/serial_sparse.c), for data parallelism and pipelines.  Memory is as predicted, schedules
# pass the checker, and what is not made for sparse sums is refused.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_plans 2 "" "2" "3" "4" "2 1" "1 2" "2 2"
pd-plan --topology=4@10Gbit/s --stages=5,5,5,5 residual |
	jq '.topology.levels[0].count = 8 | .stages |= [to_entries[] | .value.replicas = 2 |
		.value.ranks = [.key % 2, .key % 2 + 2] | .value]' >interleaved

# sparse PLAN SCHEDULE WEIGHTS MICROBATCHES SPARSITY CHUNK WARMUP BYTES: writes plan.json, that plan with
# buckets above so many bytes; 0 bytes give one bucket.
sparse() {
	jq --arg schedule "$2" --arg weights "$3" --argjson m "$4" --argjson bytes "$8" \
		--argjson sparse "{\"sparsity\": $5, \"chunk\": $6, \"warmup\": $7}" '
		.schedule = $schedule | .weights = $weights | .microbatches = $m |
		.sparse = $sparse | if $bytes > 0 then .bucket_bytes = $bytes else . end |
		del(.stages[].predicted)' "$1" >plan.json
}
# equals N OPTION...: checks plan.json, trains it, and compares with the serial program.
equals() {
	n=$1
	shift
	pd-schedule --check --minibatches="$n" plan.json
	trained "$n" plan.json $sgd "$@"
}
# row KIND NAME PLAN SCHEDULE WEIGHTS MICROBATCHES SPARSITY CHUNK WARMUP BYTES N: tests one such plan.
row() {
	test_row "$1" "$2" "sparse $3 $4 $5 $6 $7 $8 $9 ${10}; equals ${11}"
}
row dp "two replicas, 85 %" 2 1f1b stash 1 0.85 100 0 0 14
row dp "three, half of the chunks, the last of them short" 3 1f1b stash 1 0.5 777 0 0 14
row dp "four, in buckets" 4 1f1b stash 1 0.85 64 0 1200 13
row dp "four, in a warm-up longer than an epoch, in buckets" 4 1f1b stash 1 0.9 100 20 1200 25
row dp "two, more in a chunk than there are" 2 1f1b stash 1 0.85 32000 0 0 8
row stash "two replicas before one" 2-1 1f1b stash 1 0.85 50 0 0 13
row stash "one before two, with a warm-up" 1-2 1f1b stash 1 0.85 100 5 0 13
row stash "two before two, several microbatches, in buckets" 2-2 1f1b stash 4 0.7 50 3 1200 13
row stash "vertical sync" 2-1 1f1b vertical-sync 1 0.7 50 0 0 13
row flush "flush" 2-1 1f1b flush 4 0.8 50 2 0 6
row flush "gpipe, in buckets" 2-2 gpipe flush 4 0.8 50 0 1200 6
row flush "zb-h1: the gradients of weights in parts" 2-2 zb-h1 flush 4 0.8 50 2 1200 6
row flush "interleaved: two stages on each of four ranks" interleaved interleaved flush 4 0.7 50 2 1200 5
row 2bw "2bw" 2-1 1f1b 2bw 4 0.8 50 2 0 6
row 2bw "2bw, two before two" 2-2 1f1b 2bw 4 0.8 50 0 1200 6
row latest "latest, whose gradients are late" 2-1 1f1b latest 1 0.8 50 0 0 9

test_ok "without momentum, gradients that stay are kept as they are" '
	sparse 3 1f1b stash 1 0.8 100 0 0
	sgd="--lr=0.002 --momentum=0 --residual=1"
	equals 14'
test_ok "gradients that stay are lost" '
	sparse 2-1 1f1b stash 1 0.8 100 0 0
	sgd="$sgd --residual=0"
	equals 13'
for reducer in ring recursive-doubling; do
	test_row reducer "by $reducer, which two replicas add as they are" '
		sparse 2 1f1b stash 1 0.85 100 6 0
		jq ".reducer = \"$reducer\"" plan.json >named.json
		mv named.json plan.json
		equals 14'
done
# narrow KIND NAME DTYPE REDUCER PLAN BYTES: tests a plan whose gradients travel in 16 bits.
narrow() {
	test_row "$1" "$2" "
		sparse $5 1f1b stash 1 0.7 100 6 $6
		jq '.gradient_dtype = \"$3\" | .reducer = \"$4\"' plan.json >named.json
		mv named.json plan.json
		equals 14"
}
narrow 16-bits "in bf16, three replicas" bf16 dense 3 0
narrow 16-bits "in f16, two before one, in buckets" f16 dense 2-1 1200
narrow 16-bits "in bf16 round a ring, in buckets" bf16 ring 2 1200
narrow 16-bits "in f16 by recursive doubling" f16 recursive-doubling 2 0
test_ok "a stage without parameters has replicas" '
	layers=$(jq ".layers | length" residual)
	pd-plan --topology=4@10Gbit/s --stages="$((layers - 1))x2,1x2" residual >tail
	sparse tail 1f1b stash 1 0.8 100 0 0
	equals 8
	resumed plan.json 9 4 -- $sgd --synthetic --checkpoint-every=4 --timeout=60'
# A rule that is broken in one of these ways gives other weights.
for mutation in correction set twice; do
	test_row wrong "not with the $mutation wrong" '
		sparse 3 1f1b stash 1 0.8 100 0 0
		equals 14
		"$serial" $sgd --minibatches=14 --mutate=$mutation --output=other plan.json
		if "$same" other "$(at ck 14)"; then false; fi'
done
test_full "nothing stays: the bits of dense sums, as which it can go on" '
	for m in "3 1f1b stash 1" "2-2 1f1b 2bw 4"; do
		sparse $m 0 100 0 0
		rm -rf ck-dense ck-all
		jq "del(.sparse)" plan.json >dense.json
		train ck-all plan.json $sgd --minibatches=12 --synthetic --no-evaluate >out
		train ck-all dense.json $sgd --minibatches=13 --synthetic --no-evaluate --resume >out
		train ck-dense dense.json $sgd --minibatches=12 --synthetic --no-evaluate >out
		train ck-dense dense.json $sgd --minibatches=13 --synthetic --no-evaluate --resume >out
		diff -r "$(at ck-dense 13)" "$(at ck-all 13)"
	done
	sparse 2-2 1f1b 2bw 4 0.5 100 0 0
	rm -rf ck-all
	train ck-all plan.json $sgd --minibatches=12 --synthetic --no-evaluate >out
	train ck-all dense.json $sgd --minibatches=13 --synthetic --no-evaluate --resume >out
	if diff -r "$(at ck-dense 13)" "$(at ck-all 13)" >out; then false; fi'
test_ok "resumed in the middle of an epoch, and of the warm-up: the bits of one run, of every replica" '
	sparse 2-1 1f1b stash 1 0.8 100 8 1200
	resumed plan.json 13 4 10 -- $sgd --synthetic
	[ -f "$(at ck 13)/stage-0-replica-1.safetensors" ]
	sparse 2-2 1f1b 2bw 4 0.8 50 0 0
	resumed plan.json 9 2 5 -- $sgd --synthetic
	sparse 4 1f1b stash 1 0.8 100 0 0
	resumed plan.json 13 4 -- $sgd --synthetic --checkpoint-every=3'
pd-model mlp --layers=2 --hidden=40 >mlp.json
profile mlp.json 2 >mlp
for n in 2 4; do
	plan mlp $n >mlp-$n
done
# goes_on FROM TO: trains an update in which all chunks travel, with what stayed in many before.  It is the
# same, except for rounding, with as many replicas as before and with others.
goes_on() {
	sparse mlp-$1 1f1b flush 4 0.9 100 0 0
	rm -rf ck ck-same ck-others
	train ck plan.json $sgd --minibatches=20 --synthetic --no-evaluate >out
	cp -r ck ck-same
	cp -r ck ck-others
	sparse mlp-$1 1f1b flush 4 0 100 0 0
	train ck-same plan.json $sgd --minibatches=21 --synthetic --no-evaluate --resume >out
	sparse mlp-$2 1f1b flush 4 0 100 0 0
	train ck-others plan.json $sgd --minibatches=21 --synthetic --no-evaluate --resume >out
	"$same" "$(at ck-same 21)/stage-0.safetensors" "$(at ck-others 21)/stage-0.safetensors" 1e-4
}

# moved WARMUP SPARSITY: prints which parameters the first update changes.  The last layer has 64 and one of
# 850 chunks of 64 numbers; no kernel pads such parameters.
pd-model mlp --layers=2 --hidden=64 --classes=64 >wide.json
profile wide.json 4 >wide
plan wide 2 >wide-2
moved() {
	sparse wide-2 1f1b flush 2 $2 64 $1 0
	for rate in 0 0.5; do
		rm -rf ck
		train ck plan.json --lr=$rate --momentum=0 --residual=1 --minibatches=1 --synthetic --no-evaluate >out
		file=$(at ck 1)/stage-0.safetensors
		tail -c +9 "$file" | head -c $(od -An -tu8 -N8 "$file") | jq -r ".__metadata__ | to_entries[] |
			select(.key | test(\"^xxh64:fc\")) | .key + \" \" + .value" >sums-$rate
	done
	diff sums-0 sums-0.5 | sed -n "s/^> xxh64:\\([a-z0-9.]*\\) .*/\\1/p" | sort | tr "\n" " "
}
test_ok "the first chunks are those of the last layer, and the first update of a warm-up has all" '
	[ "$(moved 0 0.92365)" = "fc2.bias fc2.weight " ]
	[ "$(moved 0 0.92483)" = "fc2.weight " ]
	[ "$(moved 4 0.92365)" = "fc1.bias fc1.weight fc2.bias fc2.weight " ]'
test_ok "resumed with fewer replicas: each takes over what several kept" 'goes_on 4 2'
test_ok "resumed with more replicas: what was kept is there once" 'goes_on 2 4'
test_done
