#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The main job on a machine with nothing but Debian 12: builds, then profiles a small
# convolutional network, splits it into two stages, trains it on Fashion-MNIST with two
# pipelined workers and weight stashing, and draws what happened.
set -eu

source=$(cd "$(dirname "$0")/.." && pwd)
build=${PD_BUILD:-$source/build}
sh "$source/contrib/packages.sh" build data >/dev/null
[ -x "$source/configure" ] || (cd "$source" && autoreconf -fi >/dev/null 2>&1)
mkdir -p "$build"
cd "$build"
[ -f Makefile ] || "$source/configure" --with-cuda=no >configure.out
make -j"$(nproc)" >make.out
PATH=$build/bin:$PATH

say() { printf '\n\033[1m$ %s\033[0m\n' "$*" >&2; }

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
