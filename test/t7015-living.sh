#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Who reads a folder of checkpoints in which a run trains gets the newest one whole, however often the run
# replaces it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

idx_data data
residual_plans 4 plan- "1" "1 1"

# living COMMAND: does it ten times while a run replaces its one checkpoint after every minibatch.
living() {
	rm -rf ck
	: >busy
	pd-run --threads=1 --data=data --minibatches=100000000 --no-evaluate --report-every=1000000 \
		--checkpoint=ck --checkpoint-every=1 --keep=1 --lr=0 --momentum=0 plan-1 >busy 2>busy.err &
	run=$!
	until grep -q checkpoint busy; do kill -0 $run; sleep 0.01; done
	verdict=0
	for i in 1 2 3 4 5 6 7 8 9 10; do
		rm -rf out out.folder
		eval "$1" || { verdict=1; break; }
	done
	kill -0 $run || verdict=1
	kill -KILL $run
	wait $run || :
	cat busy.err err
	return $verdict
}

test_ok "--evaluate --checkpoint" '
	living "pd-run --threads=1 --data=data --evaluate --checkpoint=ck plan-1-1 >out 2>err && [ \$(wc -l <err) -eq 2 ]"'
test_ok "--evaluate --init" '
	living "pd-run --threads=1 --data=data --evaluate --init=ck plan-1-1 >out 2>err"'
test_ok "--init" '
	living "pd-run --threads=1 --synthetic --minibatches=1 --init=ck plan-1-1 >out 2>err"'
test_ok "pd-export" '
	living "pd-export -o out.folder ck >out 2>err && [ \$(wc -l <err) -eq 1 ]"'

test_ok "what is read is removed when the next checkpoint is written, and no reader changes the folder" '
	pd-run --threads=1 --data=data --minibatches=2 --no-evaluate --checkpoint=few --checkpoint-every=1 --keep=1 \
		plan-1 >out
	[ "$(ls -A few)" = step-000000000002 ]
	chmod a-w few few/*
	pd-run --threads=1 --data=data --evaluate --checkpoint=few plan-1 >out
	chmod u+w few few/*
	[ "$(ls -A few)" = step-000000000002 ]'
test_done
