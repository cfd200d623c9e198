#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares training with PyTorch in float64, on small networks of sequences: GPT, BERT, Llama, GNMT, AWD-LM
# and S2VT, over one, two and four stages, under stash, 2bw and flush.  After 50 minibatches of the same
# data both must have the same weights, if PyTorch follows the same rule for weight versions.  They must
# differ if that rule is broken on purpose.
#
#     sh contrib/pytorch-judge.sh [NETWORK...]
#
# PYTHON is a Python that has torch (python3), PD_BUILD the build tree, RATE the learning rate (0.02),
# WEIGHTS some of the three rules.  SINGLE=yes has the script say how far PyTorch's own float32 is off.
# TABLE names a file to which a line is added for each case.  The script says ok or not ok, as a test does.
# It takes minutes, so `make check` does not run it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
python=${PYTHON:-python3}
judge=$PD_SOURCE/contrib/pytorch-judge.py
$python -c 'import sys, torch; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
	test_skip_all "there is no PyTorch for $python"

steps=50 batch=2 rate=${RATE:-0.02} single=${SINGLE:+single}
# size NETWORK MICROBATCHES: prints options of pd-model.  There is no dropout, since PyTorch would take
# other masks.
size() {
	case $1 in
	gpt) echo --layers=2 --hidden=16 --heads=2 --sequence=8 --vocabulary=20 --dropout=0 ;;
	bert) echo --layers=2 --hidden=16 --heads=2 --sequence=8 --vocabulary=20 --dropout=0 ;;
	llama) echo --layers=2 --hidden=16 --heads=4 --kv-heads=2 --feed-forward=24 --sequence=8 --window=5 \
		--vocabulary=20 ;;
	gnmt) echo --layers=3 --hidden=12 --sequence=7 --vocabulary=20 --dropout=0 ;;
	awd-lm) echo --layers=3 --hidden=14 --embedding=12 --sequence=7 --vocabulary=20 --dropout=0 \
		--lanes=$((batch * $2)) ;;
	s2vt) echo --hidden=12 --embedding=8 --features=10 --sequence=8 --vocabulary=20 ;;
	esac
}

# prepare NETWORK MICROBATCHES OPTION...: makes model.json, its profile, data, and parameters to begin with.
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

# judged REPLICAS OPTION...: trains from the parameters that prepare() made, and has PyTorch judge the
# weights.
judged() {
	plan_with="--weights=$weights --microbatches=$group"
	plan profile.json $1 >plan.json
	shift
	rm -rf ck
	train ck plan.json --lr="$rate" --momentum=0.9 --data=data --init=init.safetensors \
		--minibatches=$steps --no-evaluate >out
	against "$@"
}

# against OPTION...: prints the verdict of PyTorch, and returns its status.
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
		# Under stash two stages cannot share a weight, so networks with a shared one are made
		# without it.
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
