#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PyTorch as judge of networks of sequences: GPT, BERT, Llama, GNMT, AWD-LM and S2VT of small sizes,
# over one, two and four stages, under stash, 2bw and flush, end with the weights that float64 has
# after 50 minibatches of the same data, by the same rule for versions; and they do not if that rule
# is broken on purpose.
#
#     sh contrib/pytorch-judge.sh [NETWORK...]    PYTHON: one that has torch; PD_BUILD: the build tree
#
# RATE is the learning rate (0.02), WEIGHTS some of the three rules, SINGLE=yes has it say how far
# PyTorch's own float32 is off, TABLE names a file to which a line for each case is added.
# As a test it says ok or not ok; it takes minutes, so it is not one of `make check`.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
python=${PYTHON:-python3}
judge=$PD_SOURCE/contrib/pytorch-judge.py
$python -c 'import sys, torch; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
	test_skip_all "there is no PyTorch for $python"

steps=50 batch=2 rate=${RATE:-0.02} single=${SINGLE:+single}
# size NETWORK: what pd-model takes; without dropout, whose masks are other ones
size() {
	case $1 in
	gpt) echo --layers=2 --hidden=16 --heads=2 --sequence=8 --vocabulary=20 --dropout=0 ;;
	bert) echo --layers=2 --hidden=16 --heads=2 --sequence=8 --vocabulary=20 --dropout=0 ;;
	llama) echo --layers=2 --hidden=16 --heads=4 --kv-heads=2 --feed-forward=24 --sequence=8 \
		--vocabulary=20 ;;
	gnmt) echo --layers=3 --hidden=12 --sequence=7 --vocabulary=20 --dropout=0 ;;
	awd-lm) echo --layers=3 --hidden=14 --embedding=12 --sequence=7 --vocabulary=20 --dropout=0 \
		--lanes=$((batch * $2)) ;;
	s2vt) echo --hidden=12 --embedding=8 --features=10 --sequence=8 --vocabulary=20 ;;
	esac
}

# prepare NETWORK MICROBATCHES OPTION...: NETWORK.json, its profile, data, and parameters to begin with
prepare() {
	network=$1 group=$2
	shift 2
	rm -rf data first
	pd-model "$network" $(size "$network" "$group") "$@" >model.json
	profile model.json $batch >profile.json
	pd-plan --topology=1@10Gbit/s profile.json >one.json
	pd-run --device="${PD_TEST_DEVICE:-cpu}" --threads=1 --synthetic --minibatches=1 \
		--checkpoint=first one.json >out
	$python "$judge" make model.json $((steps * batch * group)) data init.safetensors \
		"$(at first 1)"
}

# judged REPLICAS OPTION...: trained from those parameters on, and then by PyTorch
judged() {
	plan_with="--weights=$weights --microbatches=$group"
	plan profile.json $1 >plan.json
	shift
	rm -rf ck
	train ck plan.json --lr="$rate" --momentum=0.9 --data=data --init=init.safetensors \
		--minibatches=$steps --no-evaluate >out
	against "$@"
}

# against OPTION...: what PyTorch says
against() {
	said=0
	$python "$judge" judge plan.json data init.safetensors "$(at ck $steps)" rate="$rate" "$@" >said ||
		said=$?
	echo "$network, $weights, stages of $replicas${*:+, $*}: $(cat said)" | tee -a "${TABLE:-/dev/null}"
	return $said
}

for network in ${*:-gpt bert llama gnmt awd-lm s2vt}; do
	for weights in ${WEIGHTS:-stash 2bw flush}; do
		group=1 tied=
		[ $weights = stash ] || group=4
		# under stash a weight that two stages have is refused
		case $network,$weights in
		gpt,stash | bert,stash | awd-lm,stash) tied=--untied ;;
		esac
		test_ok "$network, $weights: made" 'prepare $network $group $tied'
		for replicas in 1 "1 1" "1 1 1 1"; do
			test_ok "$network, $weights, stages of $replicas: 50 minibatches" 'judged "$replicas" $single'
		done
		test_ok "$network, $weights: an older version in the stages before the last is noticed" '
			status 4 against late=1'
	done
done
test_done
