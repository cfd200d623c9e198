#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Does the main job on a machine with nothing but Debian 12.  It builds, profiles a small convolutional
# network, splits it into two stages, trains it on Fashion-MNIST with two pipelined workers and weight
# stashing, and draws what happened.
set -eu

. "$(dirname "$0")/build-lib.sh"
build_here data

say "pd-profile --batch-size=64 share/models/fashion-cnn.json >profile.json"
pd-profile --batch-size=64 "$source/share/models/fashion-cnn.json" >profile.json
say "pd-plan --gpus=2 --straight --explain profile.json >plan.json"
pd-plan --gpus=2 --straight --explain profile.json >plan.json
say "pd-run --data=/usr/share/datasets/fashion-mnist --epochs=${EPOCHS:-4} --lr=0.02 plan.json"
pd-run --data=/usr/share/datasets/fashion-mnist --epochs="${EPOCHS:-4}" --lr=0.02 \
	--checkpoint=checkpoint --trace=trace.jsonl plan.json
say "pd-replay trace.jsonl"
pd-replay trace.jsonl
say "pd-replay --format=text trace.jsonl"
pd-replay --format=text trace.jsonl
echo
echo "Profile, plan, checkpoints and trace are in $build."
