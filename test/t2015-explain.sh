# SPDX-License-Identifier: Apache-2.0
# pd-plan explains its plan, compares it with others and draws it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

chain 12 >chain.json

test_ok "the period is that of a replay" '
	pd-plan -t 4@1GB/s --stages=6x3,6 chain.json >a.json
	rate=$(printf "%.1f" "$(jq .predicted.samples_per_s a.json)")
	pd-replay a.json | grep "samples per second  *$rate in steady state"'
test_ok "--explain speaks on standard error alone" '
	pd-plan -e -t 4@1GB/s chain.json >a.json 2>err
	jq -e . a.json >/dev/null; grep -q "^limit:" err; grep -q "data parallelism" err'

test_ok "--explain: ranks with several stages, and warm-ups that are used" '
	pd-plan -e --schedule=interleaved -t 2@1GB/s chain.json 2>err >a.json
	grep -q "^limit: the processors of rank . with its 2 stages" err
	pd-plan -e --schedule=none --straight --min-gain=0 --stages=6,6 -t 2@1GB/s chain.json 2>err >a.json
	awk "\$1 == \"stage\" && /warmup/ { t = 1; next } t && NF == 0 { exit } t { print \$5 }" err >warmups
	[ "$(paste -sd " " warmups)" = "0 0" ]'

# Both ways between two stages take four times as long as a stage: one input at a time is too few for the last,
# which has two on their way without admitting one ahead.
chain 2 | jq '.layers |= map(. + {forward_ns: 10000000, backward_ns: 20000000, activation_bytes: 1000,
	parameter_bytes: 1000})' >far.json
test_ok "two inputs are on their way to the last stage where latencies are long" '
	pd-plan -t 2@1TB/s+60ms far.json >a.json
	jq -e "[.stages[].warmup] == [3, 0] and .predicted.period_ns < 46000000" a.json'

test_ok "with 2BW the next forward does not wait for the sum" '
	chain 2 | pd-plan -t 2@1GB/s --weights=2bw --microbatches=2 --stages=2x2 >a.json
	jq -e ".predicted | .period_ns == 3000000 and .lower_bound_ns == 3000000" a.json
	pd-schedule -m 2 a.json | jq -r "select(.rank == 1) | .op" | grep -v load >ops
	[ "$(paste -sd " " ops)" = "forward backward allreduce forward step backward allreduce step" ]'
# Like VGG-16: activations on a slow link, and an update of which the last stage's sums take long.
chain 6 | jq '.layers |= [to_entries[] | .key as $l | .value + if $l < 3
	then {forward_ns: 58000000, backward_ns: 113000000, parameter_bytes: 2300000,
		activation_bytes: (if $l == 2 then 103000000 else 400000000 end)}
	else {forward_ns: 20000000, backward_ns: 33000000, parameter_bytes: (if $l == 3 then 400000000 else 73000000 end),
		activation_bytes: (if $l == 3 then 100000000 else 500000 end)} end]' >crowded.json
test_ok "with 2BW the warm-up of the last stage may be the only one that is deeper" '
	pd-plan -t 4@12GB/s,2@1.25GB/s --weights=2bw --microbatches=24 crowded.json >a.json
	jq -e "[.stages[].replicas] == [6, 2]" a.json
	for warmups in 2,0 3,0 2,1 3,1; do
		jq ".stages[0].warmup = ${warmups%,*} | .stages[1].warmup = ${warmups#*,}" a.json |
			pd-replay -f json >b.json
		jq -s -e ".[0].predicted.period_ns <= .[1].period_ns + 1" a.json b.json
	done'

test_ok "alternatives: all of them, in order, no faster than the plan where they are of its kind" '
	for options in "-t 4@1GB/s" "-t 3@1GB/s,2@100MB/s" "-t 2@10MB/s" "-t 1@1GB/s"; do
		pd-plan $options chain.json >a.json
		jq -c ".predicted.alternatives[]" a.json
		jq -e "[.predicted.alternatives[].name] == [\"data-parallel\", \"straight\",
			\"model-parallel\", \"gpipe\", \"unreplicated\"]" a.json
		jq -e ".predicted | .period_ns as \$p | [.alternatives[] |
			select(.schedule == \"1f1b\" and .fits) | .period_ns >= \$p] | all" a.json
	done'
test_ok "an alternative is what its stages are by hand" '
	pd-plan -t 4@1GB/s chain.json >a.json
	jq -r ".predicted.alternatives[] | [.name, .stages, .schedule, .weights, .microbatches,
		.ranks, .period_ns, .memory_bytes, .sent_bytes_per_sample] | @tsv" a.json >list
	jq -e ".predicted.period_ns == (.predicted.alternatives[] |
		select(.name == \"unreplicated\") | .period_ns)" a.json
	while read -r name stages schedule weights microbatches ranks period memory sent; do
		[ "$name" = unreplicated ] && continue  # This is the plan itself, with its warm-ups.
		pd-plan -t 4@1GB/s --stages=$stages --schedule=$schedule --weights=$weights \
			--microbatches=$microbatches chain.json >b.json
		echo "$name"
		jq -e "[.predicted.period_ns, .predicted.memory_bytes,
			.predicted.sent_bytes_per_sample, ([.stages[].replicas] | add)] ==
			[$period, $memory, $sent, $ranks]" b.json
	done <list
	[ "$(wc -l <list)" -eq 5 ]'
test_ok "bytes sent: 3 MB among 3 once per 3 minibatches of 8 samples, 1 kB each way per cut" '
	pd-plan -t 4@1GB/s --stages=3x3,9 chain.json |
		jq -e ".predicted.sent_bytes_per_sample == (2 * 2 * 3000000 / 3 + 2000) / 8"
	pd-plan -t 4@1GB/s --stages=3,3,6 --weights=2bw --microbatches=4 chain.json |
		jq -e ".predicted.sent_bytes_per_sample == 4000 / 8"
	pd-plan -t 4@1GB/s --stages=12x4 --microbatches=8 chain.json |
		jq -e ".predicted.sent_bytes_per_sample == 2 * 3 * 12000000 / 8 / 8"'
test_ok "alternatives that do not fit say so; under the formulas there are none" '
	pd-plan -t 4@1GB/s -m 25MB chain.json | jq -e "[.predicted.alternatives[] | .fits ==
		(.memory_bytes <= 25000000)] | all and length == 5"
	pd-plan -t 4@1GB/s -m 25MB chain.json |
		jq -e ".predicted.alternatives[0] | .name == \"data-parallel\" and (.fits | not)"
	pd-plan -t 4@1GB/s -c sosp19 chain.json | jq -e ".predicted.alternatives == null"'
test_ok "GPipe cuts 1 2 3 4 5 6 into 1 2 3, 4, 5, 6 ms or 1 2 3, 4 5, 6: the least variance" '
	chain 6 | jq ".layers |= [range(6) as \$l | .[\$l] |
		.forward_ns = 500000 * (\$l + 1) | .backward_ns = 500000 * (\$l + 1)]" >six.json
	pd-plan -t 4@1GB/s six.json | jq -e "[.predicted.alternatives[] |
		select(.name == \"gpipe\").stages] == [\"3x1,1x1,1x1,1x1\"]"
	pd-plan -t 3@1GB/s six.json | jq -e "[.predicted.alternatives[] |
		select(.name == \"gpipe\").stages] == [\"3x1,2x1,1x1\"]"'

test_ok "--explain: times, versions, staleness, memory, links" '
	pd-plan -e -t 4@1GB/s --stages=3,3,3,3 chain.json 2>err >a.json
	cat err
	# Each stage has 3 layers of 3 ms and takes 9 ms; the first is 4 minibatches ahead.
	grep -q "^ *0  *3  *1  *0  *3  *4  *4  *3  l0 to l2$" err
	grep -q "^ *3  *3  *1  *3  *0  *1  *1  *0  l9 to l11$" err
	grep -q "^ *0  *3 ms  *6 ms  *0 ns  *0 ns  *9 ms  *100.0%" err
	grep -q "^limit: .*100% of the period" err
	grep -q "^out of rank 1, level 0  *2 kB" err
	grep -q "^gpipe .* 3x1,3x1,3x1,3x1$" err
	pd-plan -e -t 4@1GB/s --stages=3,3,3,3 --weights=2bw chain.json 2>err >a.json
	grep -q "^ *0  *3  *1  *0  *3  *4  *2  *1  l0 to l2$" err
	pd-plan -e -t 2@1GB/s,2@10MB/s --stages=12x4 chain.json 2>err >a.json
	cat err
	grep -q "^out of ranks 0-1, level 1 " err'
test_ok "--explain: the limit is a processor, a link or the way of a minibatch" '
	pd-plan -e -t 4@1GB/s --stages=9,1,1,1 chain.json 2>err >a.json
	cat err; grep -q "^limit: the processors of stage 0, busy for 27 ms" err
	pd-plan -e -t 2@1MB/s --stages=12x2 chain.json 2>err >a.json
	cat err; grep -q "^limit: the processors of stage 0 with its all-reduce" err
	jq ".layers[5].activation_bytes = 50000000" chain.json >wide.json
	pd-plan -e -t 2@1GB/s --stages=6,6 wide.json 2>err >a.json
	cat err; grep -Eq "^limit: (the link out of rank 0, level 0, busy for 50|the way from stage 0 to stage 1 and back, 68 ms for each of the 2)" err'

test_ok "ranks that share processors: the period is what pd-replay says of the same" '
	# The 12 layers of 3 ms take 36 ms on one processor, and 18 ms on each of two.
	for n in 1 2 3 4; do
		pd-plan -t 4@1GB/s --stages=3,3,3,3 --processors=$n chain.json >a.json
		pd-replay a.json | grep "^time per minibatch" >a
		pd-plan -t 4@1GB/s --stages=3,3,3,3 chain.json | pd-replay --processors=$n |
			sed -n "s/^ *what if, replayed *\\([0-9.]* ms\\).*/\\1/p" >b
		cat a b
		grep "^time per minibatch *$(cat b) " a
		jq -e ".topology.processors == $n and .predicted.gap >= 0" a.json
	done
	pd-plan -e -t 4@1GB/s --stages=3,3,3,3 --processors=2 chain.json 2>err |
		jq -e ".predicted.period_ns / 18e6 | . >= 1 and . < 1.01"
	cat err; grep -q "^limit: the processors that ranks share, the busiest for 18 ms" err'
test_row search "no more ranks than processors where more are not faster" '
	chain 6 | pd-plan -t 4@1GB/s --processors=1 |
		jq -e "[.stages[].replicas] == [1] and .predicted.period_ns == 18000000"
	pd-plan -t 4@1GB/s --processors=2 chain.json >a.json
	jq -e "[.stages[].replicas] | add == 2" a.json
	"$PD_BUILD/test/unit/read-document" plan a.json >again; cmp a.json again
	jq ".topology | .processors = 2" a.json >machine.json
	pd-plan -t machine.json chain.json | cmp - a.json'
test_ok "--agree: the plan says so, and has the memory of it" '
	for o in --weights=2bw --weights=flush --schedule=gpipe --weights=auto; do
		pd-plan -t 4@1GB/s --stages=6x2,6 $o chain.json >a.json
		pd-plan -t 4@1GB/s --stages=6x2,6 $o --agree chain.json >b.json
		jq -e ".agree == true and (.weights == \"2bw\" or .weights == \"flush\")" b.json
		jq -e "has(\"agree\") | not" a.json
		pd-schedule b.json | pd-schedule --check -
		[ $o = --weights=auto ] || jq -s -e \
			".[0].predicted.memory_bytes < .[1].predicted.memory_bytes" a.json b.json
	done
	jq ".dtype = \"f16\"" chain.json >f16.json
	pd-plan -t 4@1GB/s --weights=2bw f16.json | jq -e .agree
	for o in --weights=stash --weights=vertical-sync --cost=sosp19 --schedule=1f1b; do
		status 2 pd-plan -t 4@1GB/s --agree $o chain.json 2>err; cat err; one_line err
		grep -q "^pd-plan: --agree: expected weights" err
	done'
test_ok "processors that cannot be are refused" '
	for n in 0 -1 x 1.5 1048577; do
		status 2 pd-plan -t 4@1GB/s --processors=$n chain.json 2>err >out; one_line err
		[ ! -s out ]
	done
	pd-plan -t 4@1GB/s chain.json | jq ".topology | .processors = -1" >machine.json
	status 2 pd-plan -t machine.json chain.json 2>err; one_line err
	grep -q "^pd-plan: machine.json: processors: expected .* found -1" err'

pd-plan -f svg -t 3@1GB/s,2@100MB/s chain.json >a.svg
if command -v xmllint >/dev/null; then
	test_ok "the drawing is well-formed" "xmllint --noout a.svg"
elif command -v python3 >/dev/null; then
	test_ok "the drawing is well-formed" \
		"python3 -c \"import xml.dom.minidom as m; m.parse(\\\"a.svg\\\")\""
else
	test_skip "the drawing is well-formed" "no XML reader here"
fi
test_ok "it has every device and every link, and is the same each time" '
	[ "$(grep -c "<title>rank [0-5], stage" a.svg)" -eq 6 ]
	[ "$(grep -c "<title>out .*, in .* per minibatch" a.svg)" -eq 8 ]
	grep -q "1 GB/s each" a.svg; grep -q "100 MB/s each" a.svg
	! grep -i "nan\|inf" a.svg || false
	pd-plan --format=svg -t 3@1GB/s,2@100MB/s chain.json | cmp - a.svg
	pd-plan --format=svg -t 3@1GB/s,2@1GB/s --stages=12x2 chain.json >b.svg
	[ "$(grep -c ": not used<" b.svg)" -eq 4 ]'
test_ok "names are quoted in drawings" '
	jq ".layers[3].name = \"<\\\"&\" | .layers[4].inputs = [.layers[3].name]" chain.json >odd.json
	pd-plan -f svg -t 2@1GB/s --stages=3,9 odd.json >odd.svg
	grep -q ">&lt;.&amp; " odd.svg
	pd-plan -f dot -t 2@1GB/s --stages=3,9 odd.json | grep -Fq "<\\\"& "'
test_ok "long names are cut, but not inside a character" '
	name=$(printf "\316\261\316\262%.0s" 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20)
	jq --arg name "$name" ".layers[3].name = \$name | .layers[4].inputs = [\$name]" chain.json >odd.json
	pd-plan -f svg -t 2@1GB/s --stages=3,9 odd.json >odd.svg
	grep -q ">$(echo "$name" | cut -b 1-20).*$(printf "\342\200\246").*$(echo "$name" | cut -b 61-80) .* l11<" odd.svg
	iconv -f UTF-8 -t UTF-8 <odd.svg >/dev/null'
test_ok "what all names begin with is said once" '
	jq ".layers[] |= (.name |= \"encoder.block.\" + . | .inputs[] |= \"encoder.block.\" + .)" \
		chain.json >named.json
	pd-plan -e -f svg -t 2@1GB/s --stages=3,9 named.json >named.svg 2>err
	[ "$(grep -c "encoder" named.svg)" -eq 1 ]
	grep -q ">l3 .* l11<" named.svg
	grep -q "which, all behind encoder\.block\.$" err
	grep -q " l3 to l11$" err'
test_ok "ranks, and every stage of a rank" '
	pd-plan -f svg -t 3@1GB/s --schedule=interleaved --chunks=2 chain.json >chunks.svg
	for r in 0 1 2; do
		grep -q "<title>rank $r, stages $r, $((r + 3))<" chunks.svg
		grep -q "font-weight=\"bold\">rank $r<.*>2 stages<" chunks.svg
	done
	grep -q ">3: l" chunks.svg
	grep -q ">[0-9.]* kB back to the first<" chunks.svg
	grep -q "font-weight=\"bold\">stage 0 .* 2<.*>ranks 0-1<" b.svg'
test_ok "its legend has what is drawn, and nothing else" '
	for what in forward backward idle "device that is not used"; do grep -q ">$what<" b.svg; done
	! grep -E ">(device that|60 to 90 %|above 90 %)" chunks.svg || false'
# Too many replicas for a replay: one by one, the steps of their sum would take four times the period.
test_ok "where a plan is an estimate, no stage is busier than the period" '
	for topology in 600@125MB/s+30us 2@1GB/s,300@125MB/s+30us; do
		pd-plan -e -t $topology --stages=12x600 chain.json 2>err >a.json
		jq -e ".predicted.period_from == \"estimate\"" a.json
		sed -n "s/^limit: .* busy .*(\([0-9]*\)% of the period).*/\1/p" err >part
		[ "$(cat part)" -gt 0 ]; [ "$(cat part)" -le 101 ]
	done'
test_ok "that data parallelism does not fit is said with its time" '
	pd-plan -e -t 4@1GB/s --memory=20MB chain.json 2>err >out
	jq -e ".predicted.alternatives[] | select(.name == \"data-parallel\") | .fits == false" out
	jq -e ".predicted | .data_parallel.memory_bytes == .alternatives[0].memory_bytes" out
	grep -q "^data parallelism .* on each, which does not fit; this plan" err
	pd-plan -f svg -t 4@1GB/s --memory=20MB chain.json | grep -q "data parallelism, which does not fit,"
	pd-plan -e -t 4@1GB/s chain.json 2>&1 >out | grep -q "^data parallelism .* on each; this plan"'
test_ok "the graph for dot: stages, what passes, all-reduces" '
	pd-plan -f dot -t 4@1GB/s --stages=3x3,9 chain.json >a.dot
	grep -q "^digraph plan {" a.dot; [ "$(tail -n 1 a.dot)" = "}" ]
	grep -q "s0 .label=\"stage 0 x 3.nl0 \.\.\. l2.nranks 0-2" a.dot
	grep -q "s0 -> s1 .dir=both, label=\"1 kB\"" a.dot
	grep -q "s0 -> s0 .style=dashed, label=\"all-reduce of 3 MB\"" a.dot'
test_ok "a format that is none is refused" '
	status 2 pd-plan --format=png -t 2@1GB/s chain.json 2>err >out; one_line err; [ ! -s out ]'

test_done
