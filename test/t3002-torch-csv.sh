#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Schedules as tables of torch.distributed.pipelining, out and in.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# plan STAGES OPTION...: plans a chain of as many layers, one in each stage, under flush.
plan() {
	stages=$1
	shift
	chain "$stages" | pd-plan -q --weights=flush --stages="$(yes 1 | head -n "$stages" | paste -sd, -)" "$@"
}
plan 3 --topology=3@10GB/s --microbatches=4 >1f1b.json
plan 2 --topology=2@10GB/s --microbatches=2 --schedule=zb-h1 >zb.json
plan 4 --topology=2@10GB/s --microbatches=2 --schedule=interleaved >chunks.json

test_ok "1f1b: a row for each rank, a cell for each computation" '
	pd-schedule --format=torch 1f1b.json >out
	cat >expected <<END
0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3
1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3
2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3
END
	diff expected out'
test_ok "zb-h1: backward in two parts; interleaved: several stages in a row; gpipe" '
	pd-schedule --format=torch zb.json | tail -n 1 >out
	[ "$(cat out)" = 1F0,1I0,1F1,1I1,1W0,1W1 ]
	[ "$(pd-schedule --format=torch chunks.json | head -n 1)" = 0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1 ]
	plan 2 --topology=2@10GB/s --microbatches=2 --schedule=gpipe | pd-schedule --format=torch >out
	[ "$(head -n 1 out)" = 0F0,0F1,0B0,0B1 ]'
test_ok "with transfers: each send is waited for, each stage reduces its gradients once" '
	pd-schedule --format=torch-comms 1f1b.json >out
	[ "$(tail -n 1 out)" = "2RECV_F0,2RECV_F1,2F0,2B0,2SEND_B0,2RECV_F2,2F1,2B1,2SEND_B1,2RECV_F3,2F2,2B2,2SEND_B2,2F3,2B3,2SEND_B3,2REDUCE_GRAD,2WAIT_REDUCE_GRAD,2WAIT_SEND_B0,2WAIT_SEND_B1,2WAIT_SEND_B2,2WAIT_SEND_B3" ]
	for file in 1f1b zb chunks; do
		pd-schedule --format=torch-comms $file.json | tr , "\n" >cells
		[ "$(grep -c "[0-9]SEND_" cells)" -eq "$(grep -c WAIT_SEND_ cells)" ]
		[ "$(grep -c "[0-9]SEND_" cells)" -eq "$(grep -c RECV_ cells)" ]
		[ "$(grep -c "[0-9]REDUCE_GRAD" cells)" -eq "$(jq ".stages | length" $file.json)" ]
		! grep -n "^$" cells || false
	done'
test_ok "equal replicas: a table of one of them, which a line says" '
	chain 4 | pd-plan -q --topology=4@10GB/s --weights=flush --stages=2x2,2x2 --microbatches=4 |
		pd-schedule --format=torch >out 2>err
	printf "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n" | diff - out
	one_line err && grep -q "stands for 2 ranks" err'
test_ok "a stage that recomputes: what is left to do is said" '
	plan 2 --topology=2@10GB/s --microbatches=2 --recompute=0 | pd-schedule --format=torch >out 2>err
	[ "$(head -n 1 out)" = 0F0,0F1,0B0,0B1 ]
	one_line err && grep -q "torch.utils.checkpoint" err'
test_ok "a schedule of one minibatch, edited or not, is a table too" '
	pd-schedule -m 1 1f1b.json >list.jsonl
	pd-schedule --format=torch 1f1b.json >out
	pd-schedule --format=torch list.jsonl | cmp - out'

# refused WORDS OPTION...: checks that a plan is refused in one line, with the WORDS.
refused() {
	words=$1
	shift
	status 2 pd-schedule --format=torch "$@" >out 2>err
	cat err
	[ ! -s out ] && one_line err && grep -q "$words" err
}
test_ok "refused: weights other than flush, unequal replicas, several minibatches" '
	for weights in stash vertical-sync latest 2bw; do
		jq ".weights = \"$weights\"" 1f1b.json | refused "weights: \"$weights\" cannot be said.*expected \"flush\""
	done
	chain 4 | pd-plan -q --topology=4@10GB/s --weights=flush --stages=2x3,2x1 --microbatches=3 |
		refused "stages\[1\].replicas: .*expected 3 replicas as of stage 0, found 1"
	refused "one minibatch.*expected --minibatches=1, found 2" -m 2 1f1b.json
	pd-schedule -m 2 1f1b.json | refused "expected a schedule of one, found 2"
	refused "nothing to do with" --check 1f1b.json
	refused "nothing to do with" --compact 1f1b.json'
test_ok "refused: a tensor that skips a stage, a stage that takes nothing from the one before" '
	jq ".profile.layers[2].inputs += [\"l0\"]" 1f1b.json |
		refused "the output of layer \"l0\" goes from stage 0 to stage 2"
	jq ".profile.layers[2].inputs = [\"l0\"] | .profile.layers[1].inputs = []" 1f1b.json |
		refused "from stage 0 to stage 2"
	jq ".profile.layers[1].inputs = []" 1f1b.json | refused "stages\[1\] takes nothing from stage 0"'
test_ok "refused: parameters that stages share" '
	pd-model gpt --layers=2 --hidden=8 --heads=2 --sequence=4 --vocabulary=8 |
		pd-profile --no-link -i 1 -b 1 >profile
	pd-plan -q --topology=2@10GB/s --weights=flush --microbatches=2 \
		--stages="$(jq -r ".layers | length | \"\(. - 4),4\"" profile)" profile |
		refused "share parameters and are in different stages"'
test_done
