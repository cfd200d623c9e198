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
	refused "check and --format=torch exclude each other" --check 1f1b.json
	refused "compact and --format=torch exclude each other" --compact 1f1b.json'
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

pd-schedule --format=torch 1f1b.json >1f1b.csv
pd-schedule --format=torch-comms 1f1b.json >comms.csv
plan 4 --topology=4@10GB/s --microbatches=3 >four.json
# ZB-V, with stages 0 and 3 on rank 0, and DualPipeV with pairs.
cat >v.csv <<END
0F0,0F1,0F2,3F0,3I0,3W0,0I0,0W0,3F1,3I1,3W1,0I1,0W1,3F2,3I2,3W2,0I2,0W2
1F0,2F0,1F1,2F1,2I0,2W0,1I0,1W0,1F2,2I1,2W1,1I1,1W1,2F2,2I2,2W2,1I2,1W2
END
cat >pairs.csv <<END
0F0,0F1,,0F2,3F0,3B0,(3F1;0B0)OVERLAP_F_B,3B1,(3F2;0B1)OVERLAP_F_B,3B2,,0B2
1F0, 1F1 ,2F0,(1F2;2B0)OVERLAP_F_B,(2F1;1B0)OVERLAP_F_B,2B1,(2F2;1B1)OVERLAP_F_B,2B2,1B2,
END
test_ok "a table is right: ours with and without transfers, V placement, pairs, idle moments, CRLF" '
	for file in 1f1b comms v pairs; do
		pd-schedule --check $file.csv 2>err
		sed "s/$/\r/" $file.csv | pd-schedule --check 2>err.2
		cmp err err.2
		cat err
	done
	pd-schedule --check 1f1b.csv 2>err
	grep -qx "pd-schedule: activations that ranks hold at most: 3 2 1" err
	pd-schedule --check v.csv 2>err
	grep -qx "pd-schedule: activations that ranks hold at most: 4 4" err'
test_ok "pairs stay pairs: in lists, in plans with an order, in tables of both kinds, in what is repeated" '
	tr -d " " <pairs.csv | sed "s/,,/,/g; s/,$//" >plain.csv
	grep -c OVERLAP plain.csv
	pd-schedule --plan=four.json pairs.csv >pairs.jsonl
	[ $(grep -c "\"beside\":true" pairs.jsonl) -eq 5 ]
	pd-schedule --format=torch pairs.jsonl | cmp - plain.csv
	pd-schedule --format=plan --plan=four.json pairs.csv >order.json
	pd-schedule --format=torch order.json | cmp - plain.csv
	pd-schedule --format=torch-comms order.json >pairs-comms.csv
	[ $(grep -o "OVERLAP_F_B" pairs-comms.csv | grep -c .) -eq 5 ]
	pd-schedule --check --plan=four.json pairs-comms.csv
	pd-schedule --format=torch --plan=four.json pairs-comms.csv | cmp - plain.csv
	pd-schedule --minibatches=2 --compact order.json >compact.jsonl
	pd-schedule --check compact.jsonl
	[ $(grep -o "\"beside\":true" compact.jsonl | grep -c .) -ge 5 ]'
test_ok "with the plan: memory, and the time of a minibatch, which is that of the plan itself" '
	for file in 1f1b comms; do
		pd-schedule --check --plan=1f1b.json $file.csv 2>err
		cat err
		grep -q "memory that ranks hold at most: .*MB" err
		sed -n "s/.*a minibatch takes \(.*\), and \(.*\) by the plan.*/\1 \2/p" err >times
		[ "$(cut -d" " -f 1,2 times)" = "$(cut -d" " -f 3,4 times)" ]
	done
	pd-schedule --check --plan=four.json v.csv
	plan 3 --topology=3@10GB/s --microbatches=4 --memory-model=torch >torch.json
	pd-schedule --check --plan=torch.json 1f1b.csv 2>torch.err
	grep "memory that" torch.err >theirs
	! grep "memory that" err | cmp -s - theirs || false'
test_ok "with equal replicas: the table of one is done by all, which sum their gradients" '
	chain 4 | pd-plan -q --topology=4@10GB/s --weights=flush --stages=2x2,2x2 --microbatches=4 >replicas.json
	pd-schedule --format=torch replicas.json >replicas.csv
	for format in torch torch-comms; do
		pd-schedule --format=$format replicas.json | pd-schedule --check --plan=replicas.json 2>err
		cat err
		sed -n "s/.*a minibatch takes \(.*\), and \(.*\) by the plan.*/\1 \2/p" err >times
		[ "$(cut -d" " -f 1,2 times)" = "$(cut -d" " -f 3,4 times)" ]
	done
	pd-schedule --plan=replicas.json replicas.csv >list.jsonl
	[ "$(grep -c "op\":\"allreduce" list.jsonl)" -eq 4 ]
	pd-schedule --check list.jsonl
	pd-schedule --format=torch list.jsonl | cmp - replicas.csv'
test_ok "it becomes a schedule, of several minibatches too, which is right and can be replayed" '
	pd-schedule --plan=1f1b.json 1f1b.csv >list.jsonl
	pd-schedule --check list.jsonl
	pd-schedule --format=torch list.jsonl | cmp - 1f1b.csv
	for file in v pairs; do
		pd-schedule --plan=four.json --minibatches=3 $file.csv >list.jsonl
		pd-schedule --check list.jsonl
		pd-replay list.jsonl >out
		pd-schedule --plan=four.json --minibatches=3 --compact $file.csv | pd-schedule --check
	done'
test_ok "a replay: our own table takes as long as the plan, a V schedule has no bubble" '
	for file in 1f1b comms; do
		pd-replay --schedule=$file.csv --format=json 1f1b.json >out
		pd-replay --format=json 1f1b.json >plain
		jq -s -e ".[0].period_ns == .[1].period_ns" out plain
	done
	pd-replay --schedule=v.csv four.json >out
	grep -q "^what if: schedule v.csv" out
	pd-replay --schedule=v.csv --compare=four.json --format=text four.json >out || [ $? -eq 1 ]'

# wrong ROW WORDS: reads a table, and checks that it is refused in one line, which names the row and has the
# WORDS.
wrong() {
	status 1 pd-schedule --check >out 2>err
	cat err
	[ ! -s out ] && one_line err && grep -q "^pd-schedule: standard input:$1[,:].*$2" err
}
test_ok "wrong: what is missing, twice, or in disorder" '
	sed 2s/,1F2// 1f1b.csv | wrong 2 "cell 6: rank 1, backward of microbatch 2 at stage 1: its forward does not"
	sed 2s/,1B2// 1f1b.csv | wrong 2 "rank 1, .* not that of microbatch 2"
	sed 2s/1B2/1B2,1B2/ 1f1b.csv | wrong 2 "cell 8: rank 1, .*a second time"
	sed "2s/1F3,1B2,1B3/1B3,1F3,1B2/" 1f1b.csv | wrong 2 "cell 6: rank 1, .*its forward does not stand before"
	sed 2s/1F3/1F4/ 1f1b.csv | wrong 2 "cell 6: rank 1, .*expected a microbatch from 0 to 3"
	sed 2s/1F3/2F3/ 1f1b.csv | wrong 3 "cell 1: rank 2, 2F0: rank 1 has stage 2, too"
	sed 1s/0W0,// v.csv | wrong 1 "rank 0, .* not that of microbatch 0"
	sed 1s/3I0,3W0/3W0,3I0/ v.csv | wrong 1 "cell 5: rank 0, .*its backward_input does not stand before"
	sed "2s/.*//" 1f1b.csv | wrong 2 "rank 1 has no action"
	sed "1s/$/,0REDUCE_GRAD/" 1f1b.csv | wrong 1 "compute_only"
	status 1 pd-schedule --check <<END 2>err
0F0,0B0
2F0,2B0
END
	grep -q "no rank has stage 1" err'
test_ok "wrong: what is beside something that is no backward" '
	jq -c "if .op == \"backward\" and .stage == 3 then .beside = true else . end" pairs.jsonl |
		wrong "[0-9]*" "expected this of a forward alone"
	jq -c "if .op == \"forward\" and .stage == 0 and .microbatch == 0 then .beside = true else . end" pairs.jsonl |
		wrong "[0-9]*" "is beside what comes next; expected a backward"'
test_ok "wrong: a deadlock, with the ranks that wait for each other" '
	# Rank 0 wants the first gradient before its third forward, rank 1 has that forward first.
	printf "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n" |
		wrong 1 "cell 3: rank 0, .*deadlock: it waits for 1B0 of rank 1, which is at 1F2 and waits for 0F2 of rank 0"
	sed "1s/0F2,3F0,3I0,3W0,0I0/0F2,0I0,3F0,3I0,3W0/" v.csv |
		wrong "[12]" "deadlock: it waits for"
	# A pair begins when both its halves can.
	sed "1s/0F2,3F0,3B0,(3F1;0B0)OVERLAP_F_B/0F2,(3F0;0B0)OVERLAP_F_B,3B0,3F1/" pairs.csv | wrong 1 "deadlock"
	# Both send first.
	sed "1s/0RECV_B0,0B0,0WAIT_SEND_F0,0F3,0SEND_F3/0F3,0SEND_F3,0RECV_B0,0B0,0WAIT_SEND_F0/" comms.csv |
		wrong "[12]" "deadlock: it waits for .*SEND"'
test_ok "wrong: a deadlock says whose transfers have to block for it" '
	# Both ranks send first: NCCL does transfers of two ranks in their order, gloo both directions.
	sed "1s/0RECV_B0,0B0,0WAIT_SEND_F0,0F3,0SEND_F3/0F3,0SEND_F3,0RECV_B0,0B0,0WAIT_SEND_F0/" comms.csv >both.csv
	wrong "[12]" "deadlock: .*, as NCCL.s are; with gloo PyTorch does not" <both.csv
	# Rank 1 receives the second activation, before which rank 0 wants the first back from rank 2.
	cat >ring.csv <<END
0F0,0SEND_F0,3RECV_F0,0F1,0SEND_F1,3RECV_F1,3F0,3B0,3SEND_B0,3F1,3B1,3SEND_B1,3REDUCE_GRAD,3WAIT_REDUCE_GRAD,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,3WAIT_SEND_B0,3WAIT_SEND_B1
1RECV_F0,1RECV_F1,1F0,1SEND_F0,1F1,1SEND_F1,1RECV_B0,1B0,1SEND_B0,1RECV_B1,1B1,1SEND_B1,1WAIT_SEND_F0,1WAIT_SEND_F1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_SEND_B0,1WAIT_SEND_B1
2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,2RECV_B0,2B0,2SEND_B0,2RECV_B1,2B1,2SEND_B1,2WAIT_SEND_F0,2WAIT_SEND_F1,2REDUCE_GRAD,2WAIT_REDUCE_GRAD,2WAIT_SEND_B0,2WAIT_SEND_B1
END
	wrong "[1-4]" "deadlock: .*; this is so if every transfer blocks both its ranks" <ring.csv
	# A gradient that nobody sends is one for everybody.
	sed "s/,1SEND_F2//; s/,1WAIT_SEND_F2//" comms.csv >nobody.csv
	status 1 pd-schedule --check nobody.csv 2>err
	! grep "this is so" err || false'
test_ok "wrong: the last stage out of the order of microbatches, read and written" '
	printf "0F0,0F1,0B1,0B0\n1F1,1F0,1B1,1B0\n" |
		wrong 2 "cell 2: rank 1, 1F0: the last stage has done the forward of microbatch 1 before"
	printf "0F1,0F0,0I1,0I0,0W1,0W0\n1F1,1F0,1I1,1W1,1I0,1W0\n" | wrong 2 "cell 2: rank 1, 1F0"
	# Another stage may, and so may backwards.
	printf "0F1,0F0,0B1,0B0\n1F0,1F1,1B1,1B0\n" | pd-schedule --check
	plan 2 --topology=2@10GB/s --microbatches=2 --schedule=gpipe | pd-schedule -m 1 |
		jq -c "if .op == \"forward\" or .op == \"load\" or (.op // \"\" | test(\"activation\"))
		       then .microbatch = 1 - .microbatch else . end" >turned.jsonl
	status 2 pd-schedule --format=torch turned.jsonl >out 2>err
	cat err
	[ ! -s out ] && grep -q "stage 1, the last, does the forward of microbatch 1 before that of 0" err'
test_ok "wrong: what PyTorch says nothing of, or what its version refuses" '
	sed "s/,1REDUCE_GRAD,1WAIT_REDUCE_GRAD//" comms.csv | wrong 2 "no REDUCE_GRAD of stage 1"
	sed "s/,1REDUCE_GRAD//" comms.csv | wrong 2 "1WAIT_REDUCE_GRAD: its REDUCE_GRAD"
	sed "s/,1WAIT_SEND_F0//" comms.csv | wrong 2 "1SEND_F0: no WAIT_SEND_F"
	sed "s/,1SEND_F2//" comms.csv | wrong 2 "1WAIT_SEND_F2: its send does not"
	sed "s/,1SEND_F2//; s/,1WAIT_SEND_F2//" comms.csv |
		wrong 3 "rank 2, recv_activation of microbatch 2 .*waits for 1SEND_F2 of rank 1, which does not do it"
	sed "s/,2RECV_F2//" comms.csv | wrong 3 "recv_activation from stage 1 does not stand before it"
	sed "2s/$/,/" comms.csv | wrong 2 "empty"'
test_ok "wrong: more memory than the devices have, with the plan" '
	jq ".profile.layers[].stash_bytes = 1000000 | .topology.device.memory_bytes = 7100000" 1f1b.json >tight.json
	pd-schedule --check --plan=tight.json 1f1b.csv
	pd-replay --schedule=1f1b.csv tight.json >out
	plan 3 --topology=3@10GB/s --microbatches=4 --schedule=gpipe | pd-schedule --format=torch >gpipe.csv
	pd-schedule --check gpipe.csv
	status 1 pd-schedule --check --plan=tight.json gpipe.csv 2>err
	grep -q "^pd-schedule: gpipe.csv:1, cell 4: rank 0, .*holds .* bytes" err
	status 1 pd-replay --schedule=gpipe.csv tight.json 2>err'

test_ok "a file as a spreadsheet or Python writes it: quoted cells, CR, blanks in pairs" '
	pd-schedule --check pairs.csv 2>expected
	sed "s/ *\([^,]*[^, ]\) */\"\1\"/g" pairs.csv | pd-schedule --check 2>err && cmp err expected
	tr "\n" "\r" <pairs.csv | pd-schedule --check 2>err && cmp err expected
	sed "s/(\([^;]*\);\([^)]*\))/( \1 ; \2 )/g; s/^/  /" pairs.csv | pd-schedule --check 2>err && cmp err expected'

# unusable WORDS OPTION... : checks that what is read is refused with status 2 in one line with the WORDS.
unusable() {
	words=$1
	shift
	status 2 pd-schedule "$@" >out 2>err
	cat err
	[ ! -s out ] && one_line err && grep -q "$words" err
}
test_ok "unusable: a header, a comment, a NUL, an open quotation mark" '
	sed "1i rank,0,1,2" 1f1b.csv | unusable "input:1: \"rank\" begins a header" --check
	sed "1i # 1f1b" 1f1b.csv | unusable "input:1: this is a comment" --check
	sed "2i # 1f1b" 1f1b.csv | unusable "input:2: this is a comment" --check
	printf "0F0,0\0B0\n" | unusable "input:1, cell 2: found a NUL" --check
	printf "0F0,\"0B0\n" | unusable "input:1, cell 2: the quotation mark" --check
	printf "\357\273\2770F0,0B0\n" | unusable "byte order mark" --check'
test_ok "unusable: what is no cell, and a plan of other stages" '
	for cell in 1X2 F0 1F 1F0x 1REDUCE_GRAD0 "(0F0" "(0F0;0SEND_F0)OVERLAP_F_B" "(0F0;0B0)PAIR" 99999999999F0; do
		echo "0F0,$cell" | unusable "standard input:1, cell 2: expected" --check
	done
	unusable "the table has 3 stages, the plan four.json has 4" --check --plan=four.json 1f1b.csv
	jq ".microbatches = 8" 1f1b.json >eight.json
	chain 2 | pd-plan -q --topology=3@10GB/s --weights=flush --stages=1x1,1x2 --microbatches=2 >unequal.json
	printf "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n" >four.csv
	unusable "stages\[1\].replicas: .*expected 1 replicas" --check --plan=unequal.json four.csv
	unusable "the table has 4 microbatches, the plan eight.json has 8" --check --plan=eight.json 1f1b.csv
	unusable "expected --check, or the --plan" 1f1b.csv
	unusable "for tables" --plan=1f1b.json 1f1b.json
	status 2 pd-run --synthetic 1f1b.csv 2>err && grep -q "pd-schedule --plan=plan.json" err
	status 2 pd-replay 1f1b.csv 2>err && grep -q "pd-replay --schedule=table.csv" err
	status 2 pd-replay --schedule=1f1b.csv --weights=stash 1f1b.json 2>err && grep -q "none of --weights" err'
test_done
