# SPDX-License-Identifier: Apache-2.0
# pd-replay replays a plan or a trace under other conditions, compares two of them, and knows several stages
# on a rank.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

made_up '[1,1,1,1]' '[3,2,1,0]' >fast.json
made_up '[1,1,1,1]' '[3,2,1,0]' '.profile.layers[].activation_bytes = 700' >plan.json
pd-replay --format=trace plan.json >trace.jsonl
jq '.schedule = "interleaved" | .weights = "flush" | .microbatches = 8
    | .stages[2].ranks = [0] | .stages[3].ranks = [1]' plan.json >chunks.json
pd-replay --format=trace chunks.json >chunks.jsonl
# line NAME: prints the time in that line of the head of a report.
line() {
	sed -n "s/^  $1  *\([0-9.]* [nmu]*s\).*/\1/p"
}

test_ok 'a replay written as a trace is a trace' '
	[ "$(head -n 1 trace.jsonl | jq -r .format)" = pd-trace ]
	pd-replay trace.jsonl >out && grep -q "80 minibatches" out'
test_ok 'a trace of several stages on a rank is read' '
	pd-replay --format=text chunks.jsonl >1 && pd-replay --format=text chunks.json >2 && cmp 1 2'

test_ok 'devices twice as fast take half the time' '
	pd-replay --device-speed=2 fast.json >out
	head -n 5 out
	[ "$(line "what if, replayed" <out)" = "1.5 us" ] && grep -q "2.00 x as fast" out'
test_ok 'a stage, and its layer, half as fast: it holds up the others' '
	pd-replay --faster=2:0.5 fast.json | line "what if, replayed" >stage
	pd-replay --faster=l2:0.5 fast.json | line "what if, replayed" >layer
	[ "$(cat stage)" = "6 us" ] && cmp stage layer'
test_ok 'several of them' '
	[ "$(pd-replay --faster=2:0.5,l1:0.25 fast.json | line "what if, replayed")" = "12 us" ]'
test_ok 'other links' '
	[ "$(pd-replay --topology=4@1000GB/s plan.json | line "what if, replayed")" = "3 us" ]
	pd-replay --topology=4@0.1GB/s --format=trace plan.json | tail -n +2 |
		jq -e -s "map(select(.op == \"send_activation\")) | all(.[]; .end_ns - .start_ns == 7000)"'
test_ok 'all ranks on one processor, or two: the sum of their work' '
	[ "$(pd-replay --processors=1 fast.json | line "what if, replayed")" = "12 us" ]
	[ "$(pd-replay --processors=2 fast.json | line "what if, replayed")" = "6 us" ]
	[ "$(pd-replay --processors=4 fast.json | line "what if, replayed")" = "3 us" ]'
test_ok 'what arrives is copied by a processor of the receiver' '
	[ "$(pd-replay --processors=1 plan.json | line "what if, replayed")" = "16.2 us" ]
	[ "$(pd-replay --processors=64 plan.json | line "what if, replayed")" = "$(
		pd-replay --device-speed=1 plan.json | line "what if, replayed")" ]'
test_ok 'a plan beside a trace has the processors of the trace' '
	sed "1s/}$/, \"processors\": 1, \"threads\": 1}/" trace.jsonl >one.jsonl
	pd-replay one.jsonl | grep "the plan, replayed on 1 processor, takes 16.2 us"
	pd-replay --compare=plan.json one.jsonl | grep "^forward, stage 0 .* 1 us .*"'
test_ok 'durations of shared processors are not shared again' '
	pd-replay --processors=2 trace.jsonl >out
	status 2 pd-replay --processors=2 one.jsonl 2>err
	one_line err && grep -q "^pd-replay: one.jsonl: --processors: its 4 ranks" err'

# pairs P M F I W PARTS: checks the total of DualPipeV against the published formula.
chain 16 >chain.json
pairs() {
	jq ".layers |= .[:2 * $1] | .layers[] |= (.forward_ns = $3 | .backward_ns = $4 + $5 | .backward_input_ns = $4 |
		.backward_weight_ns = $5 | .activation_bytes = 0)" chain.json |
		pd-plan -q --topology="$1@1TB/s" --schedule=dualpipe-v --weights=flush --microbatches="$2" \
			--stages="$(yes 1 | head -n $((2 * $1)) | paste -sd, -)" >pairs.json
	pd-replay --minibatches=1 --pairs="0.$6" --format=trace pairs.json >pairs.jsonl 2>/dev/null
	b=$(($4 + $5)) x=$((($3 + $4 + $5) * $6 / 1000))
	[ "$(tail -n +2 pairs.jsonl | jq -s "map(.end_ns) | max")" -eq $((($1 - 1) * $3 + 2 * $1 * $3 +
		(2 * ($2 - $1) - 1) * x + ($1 - 1) * x + (2 * $1 - 1) * $4 + $5 + 2 * b + $3)) ]
}
test_ok "pairs: DualPipeV takes as long as is published" '
	pairs 2 4 1000 1000 1000 900
	pairs 2 8 1000 1000 1000 800
	pairs 3 8 3000 3000 3000 950
	pairs 5 11 1000 1100 900 900
	pairs 8 32 2000 2000 2000 850
	pairs 4 16 12000 12000 12000 916 # 95.5 forwards where a pair takes 2.75
	pairs 4 16 1000 1000 1000 999'
test_ok "the two of a pair begin and end together; without a figure they follow one another" '
	pairs 4 16 1000 1000 1000 900
	tail -n +2 pairs.jsonl | jq -s -e "map(select(.rank == 3 and (.op == \"forward\" or .op == \"backward\"))) |
		group_by(.start_ns) | map(select(length == 2)) | length == 23 and
		all(.[]; .[0].end_ns == .[1].end_ns and .[0].end_ns - .[0].start_ns == 2700 and .[0].op != .[1].op)"
	pd-replay --minibatches=1 --format=trace pairs.json | tail -n +2 | jq -s -e "map(.end_ns) | max == 99000"
	pd-replay --minibatches=1 --pairs=1 --format=trace pairs.json | tail -n +2 | jq -s -e "map(.end_ns) | max == 102000"'
test_ok "pairs: of the profile, of a list, of a table, of an order; and what no pairs are" '
	jq ".profile.device.pairs = 0.9" pairs.json >own.json
	pd-replay --minibatches=1 --format=trace own.json | tail -n +2 >own.jsonl
	tail -n +2 pairs.jsonl | cmp - own.jsonl
	# A list has no more buffers than it needs: what is computed is the same, not when all of it is sent.
	pd-schedule --minibatches=1 own.json >list.jsonl
	for file in own list; do
		pd-replay --format=trace $([ $file = list ] && echo list.jsonl || echo --minibatches=1 own.json) | tail -n +2 |
			jq -c "select(.op | test(\"ward\")) | [.rank, .op, .stage, .microbatch, .start_ns, .end_ns]" |
			sort >$file.computed
	done
	cmp own.computed list.computed
	pd-schedule --format=torch pairs.json >table.csv
	pd-replay --schedule=table.csv --minibatches=1 --pairs=0.9 --format=trace pairs.json | tail -n +2 |
		jq -s -e "map(.end_ns) | max == 94200"
	pd-schedule --format=plan own.json >order.json
	pd-replay --minibatches=1 --format=trace order.json | tail -n +2 | cmp - own.jsonl
	pd-replay --schedule=zb-v --pairs=0.5 --format=text pairs.json | tail -n +2 >zb-v
	pd-replay --schedule=zb-v --format=text pairs.json | tail -n +2 | cmp - zb-v
	for part in 0 0.49 1.01; do
		status 2 pd-replay --pairs=$part pairs.json 2>err && one_line err
		jq ".profile.device.pairs = $part" pairs.json | status 2 pd-replay 2>err && one_line err
		cat err
	done'
test_ok "pictures show pairs" '
	COLUMNS=220 pd-replay --minibatches=1 --format=text own.json >text
	cat text
	grep -q "& two together" text
	grep -q "7F&0B.*0F&7B" text
	pd-replay --minibatches=1 --format=svg own.json >svg
	grep -q "height=\"9.0\"" svg'
test_ok 'no processors are refused' '
	status 2 pd-replay --processors=0 plan.json 2>err && one_line err'

test_ok 'another schedule is that of a plan that has it' '
	pd-replay --schedule=gpipe --weights=flush --microbatches=8 -f text plan.json >1
	jq ".schedule = \"gpipe\" | .weights = \"flush\" | .microbatches = 8" plan.json |
		pd-replay -f text >2
	cmp 1 2'
test_ok 'as many minibatches as wanted' '
	pd-replay --device-speed=2 --minibatches=7 trace.jsonl | grep -q "; 7 minibatches"'

# The durations are as measured: every forward of stage 1 took 5 us, whatever the profile says.
jq -c 'if .op == "forward" and .stage == 1 then .end_ns = .start_ns + 5000 else . end' \
	trace.jsonl >slow.jsonl
test_ok 'a trace is replayed with its own durations' '
	pd-replay --topology=4@1000GB/s slow.jsonl >out
	head -n 6 out
	[ "$(line "what if, replayed" <out)" = "7 us" ]
	grep -q "^  measured " out
	pd-replay --device-speed=1 --format=trace slow.jsonl | tail -n +2 |
		jq -e -s "map(select(.op == \"forward\" and .stage == 1))
			| length > 0 and all(.[]; .end_ns - .start_ns == 5000)"'

# Backwards take 4 us where the profile has 2.  So their parts take twice the 0.5 and 1.5 us of the profile.
jq -c 'if .format then .plan.profile.layers[] |= . + {backward_input_ns: 500, backward_weight_ns: 1500}
       elif .op == "backward" then .end_ns = .start_ns + 4000 else . end' trace.jsonl >parts.jsonl
test_ok 'another schedule splits a backward as measured' '
	pd-replay --schedule=zb-h1 --weights=flush --microbatches=8 -f trace parts.jsonl >zb.jsonl
	tail -n +2 zb.jsonl | jq -r "select(.op | test(\"backward_\"))
		| \"\(.op) \(.end_ns - .start_ns)\"" | sort -u >parts
	printf "backward_input 1000\nbackward_weight 3000\n" | cmp - parts'

test_ok 'what does not go together is refused' '
	status 2 pd-replay --schedule=gpipe plan.json 2>err
	one_line err
	grep -q "\"gpipe\" does not go with weights \"stash\"" err'
for wrong in --schedule=x --weights=x --faster=l1 --faster=nothing:2 --faster=4:2 --faster=l1:0 \
	--faster= --device-speed=0 --topology=2@1GB/s '--compare=trace.jsonl --format=trace'; do
	test_ok "refused: $wrong" 'status 2 pd-replay $wrong plan.json 2>err && one_line err'
done

test_ok 'a trace and its plan are the same' '
	pd-replay --compare=plan.json trace.jsonl >out
	cat out
	grep -q "^every rank computes in the same order" out
	! grep -q "only in" out || false
	[ "$(grep -c "^forward, stage . .* +0.0%$" out)" -eq 4 ]'
test_ok 'so are two of several stages on a rank' 'pd-replay --compare=chunks.json chunks.jsonl'
test_ok 'another order is not: status 1, and where it begins' '
	status 1 pd-replay --schedule=gpipe --weights=flush --microbatches=8 -m 80 \
		--compare=trace.jsonl plan.json >out
	cat out
	grep -q "^  rank 3: operation 1 is 3F1 forward, there 3B0 backward$" out'
# Two forwards of rank 0 change places, and nothing else does.
jq -c 'if .rank == 0 and .op == "forward" and (.microbatch == 1 or .microbatch == 2)
       then .microbatch = 3 - .microbatch else . end' trace.jsonl >swapped.jsonl
test_ok 'two operations swapped' '
	status 1 pd-replay --compare=trace.jsonl swapped.jsonl >out
	cat out
	grep -q "^1 rank computes in another order" out
	grep -q "^  rank 0: operation 1 is 0F2 forward, there 0F1 forward$" out'
test_ok 'an operation missing' '
	jq -c "select(.rank != 2 or .op != \"backward\" or .microbatch != 7)" trace.jsonl >less.jsonl
	status 1 pd-replay --compare=trace.jsonl less.jsonl >out
	grep -q "^only in the second: 1$" out && grep -q "^  rank 2: 2B7 backward$" out'
test_ok 'microbatches that only one has do not make them differ' '
	pd-replay --compare=trace.jsonl -m 20 trace.jsonl >out
	grep -q "^only in the second: 1500, 1500 of them of microbatches" out'
test_ok 'residuals' '
	pd-replay --compare=plan.json slow.jsonl >out
	grep -q "^forward, stage 1  *80  *5 us  *1 us  *+4 us  *+4 us  *+4 us  *+400.0%$" out
	grep -q "^forward, stage 2  *80  *1 us  *1 us  *0 ns  *0 ns  *0 ns  *+0.0%$" out'

# The training has two phases; the second begins when the first has drained.
test_ok 'a run with a pause between epochs compares with its plan' '
	pd-replay -m 10 -f trace plan.json >half.jsonl
	{ head -n 1 half.jsonl | jq -c ".epoch_minibatches = 10"; tail -n +2 half.jsonl
		tail -n +2 half.jsonl |
		jq -c ".microbatch += 10 | .start_ns += 900000 | .end_ns += 900000"; } >two.jsonl
	pd-replay --compare=plan.json two.jsonl >out
	grep -q "^500 operations in both" out
	! grep -q "only in" out || false'
test_ok 'and its plan with it, and with a schedule' '
	pd-replay --compare=two.jsonl plan.json >out
	grep -q "^500 operations in both" out
	! grep -q "only in" out || false
	pd-schedule --minibatches=7 plan.json >seven.list
	pd-replay --compare=seven.list plan.json >out
	! grep -q "only in" out || false'
test_ok 'the steady state is that of an epoch, without the pause' '
	for trace in half two; do
		pd-replay -f json $trace.jsonl | jq "{period_ns, periodic, samples_per_s}" >$trace.period
	done
	diff half.period two.period
	jq -e ".period_ns > 0" two.period
	sed 1s/,.epoch_minibatches.:10// two.jsonl | pd-replay -f json |
		jq -e --slurpfile right two.period ".period_ns > 2 * \$right[0].period_ns"'

test_ok 'a trace and its plan are drawn to one scale' '
	pd-replay --compare=plan.json --format=svg trace.jsonl >both.svg
	xmllint --noout both.svg
	[ "$(grep -c "font-size=\"13\"" both.svg)" = 4 ]
	grep -q ">trace.jsonl: " both.svg
	grep -q ">plan.json, replayed: " both.svg
	COLUMNS=100 pd-replay --compare=plan.json --format=text trace.jsonl >both.txt
	[ "$(grep -c "one column is" both.txt)" = 4 ]
	[ "$(sed -n "s/^start-up.*one column/one column/p" both.txt | sort -u | wc -l)" = 1 ]'
test_ok 'events of both are processes side by side' '
	pd-replay --compare=plan.json --format=chrome trace.jsonl >both.json
	jq -e "[.traceEvents[] | select(.name == \"process_name\")] | group_by(.pid)
		| all(.[]; length == 1) and length == 2 * ($(jq "[.stages[].replicas] | add" plan.json))
		and (.[0][0].args.name | endswith(\"; trace.jsonl\"))
		and (.[1][0].args.name | endswith(\"; plan.json, replayed\"))" both.json
	jq -e "[.traceEvents[] | select(.ph == \"s\" or .ph == \"f\")] | group_by(.id)
		| all(.[]; length == 2)" both.json'

# In the trace 700 ns go each way around 3 us of computation, and stage 1 alone takes 4 us more.
test_ok 'where the time went adds up' '
	pd-replay --compare=slow.jsonl --topology=4@0.2GB/s plan.json >out
	cat out
	[ "$(sed -n "/^where/,/^waiting/p" out | grep -c "rank\|second")" -ge 10 ]
	sed -n "/^where/,/^waiting/p" out | sed -n "s/.*\(first\|second\) //p" |
		awk "{ bubble = \$3 + \$4 + \$5 + \$6 + \$7; d = bubble - \$2; if (d < 0) d = -d
		       if (d > 0.31 || \$1 + \$2 < 99.9 || \$1 + \$2 > 100.1) exit 1 }
		     END { if (NR != 10) exit 1 }"'
test_ok 'a slow stage is who the others wait for, slow links are transfers' '
	pd-replay --faster=1:0.1 --compare=plan.json fast.json >out || [ $? = 1 ]
	awk "/^first.*rank 2 .stage 2. for activations of rank 1 / { if (\$2 > 60) a = 1 }
	     /^first.*rank 0 .stage 0. for gradients of rank 1 / { if (\$2 > 60) g = 1 }
	     END { exit !(a && g) }" out
	pd-replay --topology=4@0.01GB/s --compare=plan.json plan.json >out
	awk "/^all ranks  *first/ { if (\$8 > 40) t = 1 } END { exit !t }" out'

test_ok 'a rank with several stages has one row, its operations say which' '
	COLUMNS=150 pd-replay -f text -m 8 chunks.json >out
	cat out
	[ "$(grep -c "^0,2:0 \|^1,3:1 " out)" -eq 4 ]
	[ "$(grep -c "^[0-9,]*:" out)" -eq 4 ]
	grep -q "^0,2:0 0F0-*0F1-*\.*2F0-*2F1-*0F2-*\.*2B0=*0F3-*2B1=*" out
	for columns in 40 80 160; do
		COLUMNS=$columns pd-replay -f text chunks.json | awk -v most=$columns \
			"/^[0-9,]+:[0-9]+ / { rows++; if (length > most) exit 1 } END { exit rows != 4 }"
	done'
test_ok 'and operations of two columns are named after their stage, be there no room for more' '
	for columns in 40 60 80 160; do
		COLUMNS=$columns pd-replay -f text chunks.json >out
		cat out
		grep -q "^[0-9,]*:[0-9].*[0-3]F" out
		! sed -n "s/^[0-9,]*:[0-9]* //p" out | grep -E "(^|[^0-9])[FB][-=]" || exit 1
	done'
test_ok 'in the drawing they have shades, and the report one line' '
	pd-replay -f svg -m 1 chunks.json >svg
	[ "$(grep -c ">stages 0, 2, rank 0<" svg)" -eq 1 ]
	[ "$(sed -n "s/.*fill=\"\(#......\)\".*[02]F[0-9]* forward.*/\1/p" svg | sort -u | wc -l)" -eq 2 ]
	pd-replay chunks.json >out && [ "$(grep -c "^stage 0,2  *[0-9.]*  *[0-9.]*  *[0-9.]*  *[0-9]" out)" -eq 1 ]'
# Each backward is in two parts, with that of the weights last.
jq -c 'if .op == "backward" then
	(.op = "backward_input" | .end_ns -= 1000), (.op = "backward_weight" | .start_ns += 1000)
       else . end' trace.jsonl >split.jsonl
test_ok 'the two parts of a backward are drawn' '
	COLUMNS=120 pd-replay -f text -m 6 split.jsonl >out
	cat out
	grep -q "I= backward, inputs, W: backward, weights" out
	grep -q "^3:3 .*F0-*I0=*W0:*F1-*I1=*W1:*" out
	pd-replay -f svg -m 6 split.jsonl | grep -c "<title>3W[0-9]* backward_weight" | grep -qx 6
	pd-replay split.jsonl >report && grep -q "^time per minibatch  *4.05 us" report'

# Stage 0 on rank 0 sends different things to both stages of rank 1.
jq '.profile.layers[0] |= (.name = "a" | .activation_bytes = 300)
    | .profile.layers |= [.[0], (.[0] | .name = "b" | .inputs = ["a"] | .activation_bytes = 200),
			  (.[1] | .inputs = ["a"]), .[2], (.[3] | .inputs = ["l2", "b"])]
    | .stages[0].layers = ["a", "b"]' chunks.json >skip.json
test_ok 'of two links between two ranks each transfer finds its own' '
	pd-replay -f trace skip.json >skip.jsonl
	pd-replay skip.json | grep "^activations\|^gradients" >1
	pd-replay skip.jsonl | grep "^activations\|^gradients" >2
	cat 1
	cmp 1 2
	[ "$(wc -l <1)" -eq 8 ]
	grep -q "^activations, stage 0 to 1  *300 B" 1 && grep -q "^activations, stage 0 to 3  *200 B" 1'

# Schedules are written, and changed by hand.
jq '.schedule = "1f1b" | .weights = "flush" | .microbatches = 8' plan.json >flush.json
jq '.schedule = "gpipe"' flush.json >gpipe.json
jq '.schedule = "zb-h1"' flush.json >zb.json
for name in plan chunks flush gpipe zb; do
	test_ok "the schedule of $name.json runs as the plan does" '
		pd-schedule --minibatches=4 $name.json >$name.list
		pd-replay --format=trace $name.list >1
		pd-replay --format=trace --minibatches=4 $name.json >2
		cmp 1 2'
done
test_ok 'from standard input' 'pd-replay <flush.list >1 && pd-replay flush.list >2 && cmp 1 2'
# Rank 0 does the forward of microbatch 4 before the backward of microbatch 0.
jq -c -s 'map(select(.rank == 0 and .op == "forward" and .microbatch == 4)) as $moved | .[]
	| if .rank == 0 and .op == "forward" and .microbatch == 4 then empty
	  elif .rank == 0 and .op == "backward" and .microbatch == 0 then $moved[0], .
	  else . end' flush.list >moved.list
test_ok 'a list that was changed is followed' '
	pd-schedule --check moved.list
	status 1 pd-replay --compare=flush.list moved.list >out
	grep -q "^1 rank computes in another order" out
	grep -q "^  rank 0: operation 4 is 0F4 forward, there 0B0 backward$" out'
test_ok 'with more in flight than the plan would have' '
	jq -c "if .format then .plan.schedule = \"1f1b\" else . end" gpipe.list >more.list
	pd-replay --compare=gpipe.list more.list'
test_ok 'a list that is wrong is refused' '
	jq -c "select(.rank != 1 or .op != \"forward\" or .microbatch != 3)" flush.list >wrong.list
	status 1 pd-replay wrong.list 2>err && one_line err && grep -q "^pd-replay: wrong.list:" err'
test_ok 'what if, of a list' '
	pd-replay --device-speed=2 flush.list | grep -q "x as fast$"
	for option in --schedule=gpipe --minibatches=3 --microbatches=2 --weights=stash; do
		status 2 pd-replay $option flush.list 2>err
		one_line err
	done'
test_done
