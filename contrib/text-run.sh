#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains a language model on a machine with nothing but Debian 12.  It builds, then trains a small GPT with
# two pipelined workers, on English prose or on a text of one's own:
#
#     sh contrib/text-run.sh [FILE.txt]
#
# It says how many bits the model needs for a byte of text that it was not trained on, and draws the
# pipeline.  SIZE has options of pd-model, MINIBATCHES says how long it trains (600), LR is the learning
# rate (0.0007), and RUN names the folder for its files.
set -eu

. "$(dirname "$0")/build-lib.sh"
run=${RUN:-$build}
text=${1:-}
case $text in
'' | /*) ;;
*) text=$PWD/$text ;;
esac
[ -x "$build/bin/pd-run" ] || build_here test
cd "$run"
if [ -z "$text" ]; then
	sh "$source/contrib/text-data.sh" text-data prose
	text=text-data/prose
fi

size=${SIZE:---layers=4 --hidden=128 --heads=4 --sequence=128} minibatches=${MINIBATCHES:-600}
lr=${LR:-0.0007} report_every=$(((minibatches + 9) / 10))
say "pd-model gpt-bytes --dropout=0 $size | pd-profile --batch-size=16 >profile.json"
# shellcheck disable=SC2086
pd-model gpt-bytes --dropout=0 $size | pd-profile --batch-size=16 >profile.json
say "pd-plan --gpus=2 --straight --explain profile.json >plan.json"
pd-plan --gpus=2 --straight --explain profile.json >plan.json
say "pd-run --data=$text --minibatches=$minibatches --optimizer=adamw --lr=$lr --lr-warmup=50 \
--lr-schedule=cosine --report-every=$report_every --trace=trace.jsonl plan.json >report.jsonl"
pd-run --data="$text" --minibatches="$minibatches" --optimizer=adamw --lr="$lr" --lr-warmup=50 \
	--lr-schedule=cosine --report-every="$report_every" --trace=trace.jsonl plan.json \
	>report.jsonl
# A loss is in nats per token, and a token is a byte here.
jq -r 'def bits: .loss / 0.6931471805599453 * 1000 | round / 1000;
	if .event == "progress" then "minibatch \(.step): \(bits) bits per byte"
	elif .event == "evaluation" then "what it has not seen: \(bits) bits per byte"
	else empty end' report.jsonl
say "pd-replay trace.jsonl"
pd-replay trace.jsonl
say "pd-replay --format=text --minibatches=12 trace.jsonl"
pd-replay --format=text --minibatches=12 trace.jsonl
pd-replay --format=svg --minibatches=12 trace.jsonl >pipeline.svg
echo
echo "Profile, plan, reports, trace and pipeline.svg are in $run."
