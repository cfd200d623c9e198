#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A checkpoint knows what it was trained with.  A run that goes on from it, begins with it or evaluates it
# refuses another network, and says what else is not as it was, in a line for each.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

idx_data data
residual_plans 4 plan- "1" "1 1"
# changed NAME FILTER: writes plan-NAME, plan-1 with its model changed by a filter of jq.
changed() {
	jq "$2" plan-1 >"plan-$1"
}
layer='(.profile.model.layers[] | select(.name == "'
changed gelu "$layer"'relu2")).kind = "gelu"'
changed dropout "$layer"'drop1")).p = 0.2'
changed eps "$layer"'bn1")).eps = 0.1'
changed other-input '(.profile | .model, . | .layers[] | select(.name == "skip")).inputs = ["bn1"]'
changed smoothing "$layer"'loss")).label_smoothing = 0.1'
changed said "$layer"'drop2")).p = 0.5'

pd-run --threads=1 --data=data --checkpoint=kept --minibatches=20 --no-evaluate plan-1 >out

# resumed LINES OPTION...: goes on from step 20; checks that standard error is the line that says so and LINES,
# which may be none.
resumed() {
	lines=$1
	shift
	rm -rf ck
	cp -r kept ck
	pd-run --threads=1 --checkpoint=ck --resume --minibatches=22 --no-evaluate "$@" >out 2>err
	cat err
	{ echo "pd-run: ck: goes on from step 20"; [ -z "$lines" ] || echo "$lines" | sed "s/^/pd-run: ck: /"; } |
		diff - err
}
# refused WORDS OPTION...
refused() {
	words=$1
	shift
	rm -rf ck
	cp -r kept ck
	status 2 pd-run --threads=1 "$@" >out 2>err
	cat err
	one_line err
	grep -q -e "$words" err
	[ ! -s out ]
}

test_ok "the same: nothing is said; nor where a default is written out" '
	resumed "" --data=data plan-1
	resumed "" --data=data --lr=0.01 --momentum=0.9 --lr-schedule=constant plan-said'
test_ok "the same data elsewhere are the same" '
	cp -r data elsewhere
	resumed "" --data=elsewhere plan-1'

for with in "gelu:\"relu2\": kind relu in training, gelu in the plan" \
	"dropout:\"drop1\": p 0.3 in training, 0.2 in the plan" \
	"eps:\"bn1\": eps 1e-05 in training, 0.1 in the plan" \
	"other-input:\"skip\": inputs relu1 in training, bn1 in the plan" \
	"smoothing:\"loss\": label_smoothing 0 in training, 0.1 in the plan"; do
	test_ok "another network is refused: ${with%%:*}" '
		refused "^pd-run: ck: trained with another network: ${with#*:}" --checkpoint=ck --resume \
			--minibatches=22 --data=data "plan-${with%%:*}"'
done
test_ok "heads of an attention: refused by --resume, --init and --evaluate" '
	mkdir text
	seq 400 >text/train.txt
	cp text/train.txt text/val.txt
	for heads in 2 4; do
		pd-model gpt --layers=1 --hidden=16 --heads=$heads --sequence=8 --vocabulary=256 >gpt.json
		profile gpt.json 2 >gpt
		plan gpt 1 >plan-gpt-$heads
	done
	pd-run --threads=1 --data=text --checkpoint=heads --minibatches=2 plan-gpt-2 >out
	for how in "--checkpoint=heads --resume --minibatches=4" "--init=heads --minibatches=4" \
		"--checkpoint=heads --evaluate" "--init=heads --evaluate"; do
		refused "trained with another network: .*: heads 2 in training, 4 in the plan" --data=text $how plan-gpt-4
	done'

test_ok "--init and --evaluate: what computes otherwise is refused" '
	for how in "--init=ck --minibatches=1" "--init=ck --evaluate" "--checkpoint=ck --evaluate"; do
		for with in gelu eps other-input; do
			refused "trained with another network" --data=data $how plan-$with
		done
	done'
test_ok "--init: what only training computes is said, and nothing where it is the same" '
	for with in dropout:drop1 smoothing:loss; do
		pd-run --threads=1 --data=data --init=kept --minibatches=1 plan-${with%:*} >out 2>err
		cat err
		one_line err
		grep "^pd-run: kept/step-0*20: trained with another network: .${with#*:}.: " err
	done
	pd-run --threads=1 --data=data --init=kept --minibatches=1 plan-1-1 >out 2>err
	cat err
	[ ! -s err ]'
test_ok "an evaluation does not care for it" '
	pd-run --threads=1 --data=data --checkpoint=kept --evaluate plan-dropout >out 2>err
	[ "$(wc -l <err)" -eq 2 ]'

test_ok "each option that is not as it was, in a line" '
	resumed "trained with --lr=0.01, goes on with --lr=0.02" --data=data --lr=0.02 plan-1
	resumed "trained with --momentum=0.9, goes on with --momentum=0.5
trained with --weight-decay=0, goes on with --weight-decay=0.1
trained with --decay=all, goes on with --decay=matrices
trained with --lr-schedule=constant, goes on with --lr-schedule=step
trained with --lr-warmup=0, goes on with --lr-warmup=5
trained without --augment, goes on with --augment=flip" --data=data --momentum=0.5 --weight-decay=0.1 --decay=matrices \
		--lr-schedule=step --lr-warmup=5 --augment=flip plan-1
	rm -rf once && cp -r ck once
	pd-run --threads=1 --data=data --checkpoint=once --resume --minibatches=23 --no-evaluate plan-1 >out 2>err
	grep "^pd-run: once: trained with --lr-schedule=step, goes on with --lr-schedule=constant$" err
	grep "^pd-run: once: trained with --augment=flip, goes on without --augment$" err'
test_ok "betas, of which one differs; a number that decimals do not have is the same" '
	pd-run --threads=1 --synthetic --checkpoint=adam --minibatches=2 --optimizer=adam --lr=0.0333333333333333333 \
		plan-1 >out
	pd-run --threads=1 --synthetic --checkpoint=adam --minibatches=3 --resume --optimizer=adam \
		--lr=0.0333333333333333333 --beta2=0.99 plan-1 >out 2>err
	cat err
	[ "$(wc -l <err)" -eq 2 ]
	grep "^pd-run: adam: trained with --beta2=0.999, goes on with --beta2=0.99$" err'
test_ok "the length of the run, where the rate depends on it" '
	pd-run --threads=1 --synthetic --checkpoint=cosine --minibatches=2 --lr-schedule=cosine plan-1 >out
	pd-run --threads=1 --synthetic --checkpoint=cosine --minibatches=4 --lr-schedule=cosine --resume plan-1 >out 2>err
	grep "trained with --minibatches=2, goes on with --minibatches=4$" err'

test_ok "other data, of the same size or another, and made-up data" '
	cp -r data changed
	{ head -c 400 data/train-images-idx3-ubyte; head -c 784 /dev/zero | tr "\0" "\7"
		tail -c +1185 data/train-images-idx3-ubyte; } >changed/train-images-idx3-ubyte
	[ "$(wc -c <data/train-images-idx3-ubyte)" -eq "$(wc -c <changed/train-images-idx3-ubyte)" ]
	for how in --data=changed --synthetic --synthetic=7; do
		rm -rf ck
		cp -r kept ck
		pd-run --threads=1 --checkpoint=ck --resume --minibatches=22 --no-evaluate $how plan-1 >out 2>err
		cat err
		grep -q "^pd-run: ck: trained on data (IDX, [0-9]* samples, checksum [0-9a-f]*), goes on with \(changed (IDX, [0-9]* samples\|made-up data, \)" err
	done
	pd-run --threads=1 --checkpoint=made --minibatches=2 --synthetic plan-1 >out
	pd-run --threads=1 --checkpoint=made --minibatches=4 --synthetic=7 --resume plan-1 >out 2>err
	grep -q "trained on made-up data, 10 minibatches an epoch, goes on with made-up data, 7 minibatches an epoch" err'
test_ok "another plan, which a run may go on with" '
	resumed "trained by a plan with stages 20x1, goes on by one with 10x1,10x1" --data=data plan-1-1
	plan_with=--weights=latest plan residual 1 1 >plan-latest
	rm -rf ck
	cp -r kept ck
	pd-run --threads=1 --checkpoint=ck --resume --minibatches=22 --no-evaluate --data=data plan-latest >out 2>err
	cat err
	grep -q "trained by a plan with weights stash, goes on by one with latest" err'

test_ok "quietly nothing is said, and what is refused is refused" '
	rm -rf ck
	cp -r kept ck
	pd-run -q --threads=1 --checkpoint=ck --resume --minibatches=22 --lr=0.02 --data=data plan-1 >out 2>err
	[ ! -s err ]
	refused "another network" -q --checkpoint=ck --resume --minibatches=22 --data=data plan-gelu'

test_ok "--init of a checkpoint normalises data as it did" '
	pd-run --threads=1 --data=data --normalize=0.3,0.4 --checkpoint=scaled --minibatches=2 plan-1 >out
	pd-run --threads=1 --data=data --checkpoint=scaled --evaluate plan-1 >whole 2>err
	pd-run --threads=1 --data=data --init=scaled --evaluate plan-1 >out 2>err
	cat err
	grep -q "scaled/step-0*2: normalises its data as in training" err
	[ "$(head -n 1 whole | jq -c "[.loss, .accuracy]")" = "$(head -n 1 out | jq -c "[.loss, .accuracy]")" ]
	status 2 pd-run --threads=1 --data=data --init=scaled --normalize=0.5,0.5 --minibatches=1 plan-1 2>err
	grep -q "^pd-run: --init: scaled/step-0*2: was trained with .* normalised with other numbers" err'
test_done
