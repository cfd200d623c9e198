#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-run --evaluate says how good a checkpoint or a file of parameters is, by any plan, and trains and
# writes nothing.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

idx_data data
residual_plans 4 plan- "1" "1 1" "2 1" "1 1 1"
pd-run --threads=1 --data=data --checkpoint=ck --epochs=2 --lr=0.002 --optimizer=adam plan-1-1 >trained
grep '"event": "evaluation"' trained >evaluations

# figures: prints what a report of an evaluation, on standard input, says of what the network can do.
figures() {
	jq -c '[.step, .loss, .accuracy, .samples]'
}


cp -r ck as-it-was
for with in 1 1-1 2-1 1-1-1; do
	test_ok "the newest checkpoint, by plan $with: what training said of it, and nothing is written" '
		pd-run --threads=1 --data=data --checkpoint=ck --evaluate --trace=trace plan-'$with' >out 2>err
		cat out err
		[ "$(wc -l <out)" -eq 2 ]
		[ "$(head -n 1 out | figures)" = "$(tail -n 1 evaluations | figures)" ]
		head -n 1 out | jq -e ".event == \"evaluation\" and .parameters == \"$(at ck 54)\" and .data == \"data\" and
			(has(\"epoch\") | not)"
		tail -n 1 out >last
		same_memory last
		jq -e ".outcome == \"done\" and .step == 54 and .samples_per_s > 0 and (has(\"loss\") | not)" last
		[ "$(sed -n 1p err)" = "pd-run: evaluates $(at ck 54) on the test set of data (IDX), 10 samples" ]
		sed -n 2p err | grep -q "^pd-run: loss [0-9.]*, accuracy [0-9.]* %\$"
		[ "$(wc -l <err)" -eq 2 ]
		grep -q "\"op\": *\"forward\"" trace
		! grep -q "\"op\": *\"backward" trace || false
		diff -r as-it-was ck
		[ ! -e ck/.lock ]'
done
test_ok "another checkpoint, by its step, while another run has the folder" '
	echo held >ck/.lock
	pd-run --threads=1 --data=data --checkpoint=ck --evaluate --resume=27 plan-2-1 >out
	[ "$(head -n 1 out | figures)" = "$(head -n 1 evaluations | figures)" ]
	[ "$(cat ck/.lock)" = held ]'
test_ok "quietly: one line" '
	pd-run --threads=1 --data=data --checkpoint=ck --evaluate -q plan-1 >out 2>err
	[ "$(wc -l <out)" -eq 1 ] && [ ! -s err ]'
test_ok "parameters from a file" '
	pd-run --threads=1 --data=data --checkpoint=plain --epochs=1 --momentum=0 plan-1 >one
	file=$(ls plain/step-*/stage-0.safetensors)
	pd-run --threads=1 --data=data --init=$file --evaluate plan-1-1 >out
	cat out
	[ "$(jq -c "select(.event == \"evaluation\") | [.loss, .accuracy]" one)" = \
	  "$(head -n 1 out | jq -c "[.loss, .accuracy]")" ]
	head -n 1 out | jq -e ".parameters == \"$file\" and .step == 0"'
test_ok "fewer training samples than a minibatch, another batch, seed and optimizer do not matter" '
	profile residual.json 100 >large
	plan large 1 >large-plan
	mkdir few
	cp data/* few
	for part in images labels; do
		for file in few/train-$part-*; do
			size=$([ $part = images ] && echo 7856 || echo 18)
			head -c $size $file | { head -c 7; printf "\012"; tail -c +2; } >shorter
			mv shorter $file
		done
	done
	pd-run --threads=1 --data=data --checkpoint=ck --evaluate large-plan >out
	[ "$(head -n 1 out | jq -c "[.step, .accuracy, .samples]")" = \
	  "$(tail -n 1 evaluations | jq -c "[.step, .accuracy, .samples]")" ]
	pd-run --threads=1 --data=few --checkpoint=ck --evaluate large-plan >out'
test_ok "16 bits, by a plan that could not train them so" '
	PD_TEST_DTYPE=f16 profile residual.json 4 >half
	plan_with=--weights=stash plan half 1 1 >half-plan
	status 2 pd-run --threads=1 --data=data half-plan
	pd-run --threads=1 --data=data --checkpoint=ck --evaluate half-plan >out
	jq -n -e --slurpfile a out --slurpfile b evaluations "\$a[0].loss - \$b[1].loss | fabs < 0.02"'
test_ok "text: perplexity is e to the power of the mean loss" '
	mkdir text
	seq 400 >text/train.txt
	seq 300 400 >text/val.txt
	pd-model gpt --layers=1 --hidden=8 --heads=1 --sequence=8 --vocabulary=256 >gpt.json
	profile gpt.json 2 >gpt
	plan_with=--weights=2bw plan gpt 1 1 >gpt-plan
	pd-run --threads=1 --data=text --checkpoint=ck-gpt --minibatches=3 gpt-plan >out
	pd-run --threads=1 --data=text --checkpoint=ck-gpt --evaluate gpt-plan >again 2>err
	cat again err
	[ "$(grep evaluation out | head -n 1 | figures)" = "$(head -n 1 again | figures)" ]
	head -n 1 again | jq -e ".perplexity / (.loss | exp) - 1 | fabs < 1e-6"
	grep -q "^pd-run: evaluates ck-gpt/step-0*3 on the test set of text (" err
	grep -q "^pd-run: loss [0-9.]*, accuracy [0-9.]* %, perplexity [0-9.]*\$" err'
test_ok "without a training set, but where images are normalised by it" '
	mkdir alone
	cp text/val.txt alone
	pd-run --threads=1 --data=alone --checkpoint=ck-gpt --evaluate gpt-plan >only
	[ "$(head -n 1 again | figures)" = "$(head -n 1 only | figures)" ]
	mkdir pixels
	cp data/t10k* pixels
	status 2 pd-run --threads=1 --data=pixels --checkpoint=ck --evaluate plan-1 2>err
	cat err
	one_line err && grep -q "by those trained on, without --normalize: pixels/train-images-idx3-ubyte: cannot" err
	for from in pixels data; do
		pd-run --threads=1 --data=$from --checkpoint=ck --evaluate --normalize=0.5,0.5 plan-1-1 >$from.out
	done
	[ "$(head -n 1 pixels.out | figures)" = "$(head -n 1 data.out | figures)" ]
	mkdir -p arrays/test
	{ npy "|u1" "(10, 28, 28)"; tail -c +17 data/t10k-images-idx3-ubyte; } >arrays/test/image.npy
	{ npy "|u1" "(10,)"; tail -c +9 data/t10k-labels-idx1-ubyte; } >arrays/test/label.npy
	pd-run --threads=1 --data=arrays --checkpoint=ck --evaluate --normalize=0.5,0.5 plan-2-1 >arrays.out
	[ "$(head -n 1 arrays.out | figures)" = "$(head -n 1 data.out | figures)" ]
	rm alone/val.txt
	cp text/train.txt alone
	status 2 pd-run --threads=1 --data=alone --checkpoint=ck-gpt --evaluate gpt-plan 2>err
	one_line err && grep -q "alone: expected val.txt for the evaluation, found none" err'
test_ok "a loss that is no number is said to be none" '
	mkdir -p nan/train nan/test
	{ npy "<f4" "(2, 1, 28, 28)"; printf "\000\000\300\177"; head -c 6268 /dev/zero; } >nan/train/image.npy
	{ npy "|u1" "(2,)"; printf "\001\002"; } >nan/train/label.npy
	cp nan/train/* nan/test
	pd-run --threads=1 --data=nan --checkpoint=ck --evaluate plan-1 >out 2>err
	cat out err
	head -n 1 out | jq -e ".loss == null"
	grep -q "nan/test/image.npy: sample 0 has a number that is not finite" err
	grep -q "^pd-run: loss [-nainf]*: not a finite number\$\|, accuracy [0-9.]* %: not a finite number\$" err'

# refused WORDS OPTION...: checks that these are refused in one sentence with the WORDS.
refused() {
	words=$1
	shift
	status 2 pd-run --evaluate "$@" plan-1 2>err >out
	cat err
	one_line err
	grep -q -e "$words" err
	[ ! -s out ]
}
test_ok "options of training are refused, not ignored" '
	for option in --epochs=1 --minibatches=1 --no-evaluate --seed=1 --lr=0.01 --momentum=0.9 --optimizer=sgd \
		--lr-schedule=constant --loss-scale=dynamic --checkpoint-every=1 --keep=2 --report-every=1 \
		--on-divergence=continue; do
		refused "^pd-run: ${option%=*} does nothing with --evaluate" --data=data --checkpoint=ck $option
	done
	refused "^pd-run: --synthetic and --evaluate exclude each other: made-up data have no test set" --synthetic --checkpoint=ck'
test_ok "so is what does not say what to evaluate, or on what" '
	refused "evaluate needs --init=PATH or --checkpoint=DIR" --data=data
	refused "either --init=FILE or --checkpoint=DIR, found both" --data=data --checkpoint=ck --init=ck
	refused "no data: give --data=DIR or --data=FILE" --checkpoint=ck
	refused "no complete checkpoint found" --data=data --checkpoint=none
	refused "has no checkpoint of that step" --data=data --checkpoint=ck --resume=5
	refused "a checkpoint of .gpt.*, found a plan for .residual" --data=data --checkpoint=ck-gpt
	pd-schedule --minibatches=2 plan-1 >schedule
	status 2 pd-run --evaluate --data=data --checkpoint=ck schedule 2>err
	one_line err
	grep -q "expected a plan" err'
test_done
