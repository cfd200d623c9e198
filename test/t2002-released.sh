# SPDX-License-Identifier: Apache-2.0
# pd-plan --cost computes the formulas that were published, and finds the released program's own answers.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# layer NAME INPUTS NS ACTIVATION PARAMETERS: prints a layer of a profile.
layer() {
	printf '%s{"name": "%s", "inputs": [%s], "forward_ns": %s, "backward_ns": 0,' "$comma" \
		"$1" "$(echo "$2" | sed 's/[^,]\{1,\}/"&"/g')" "$3"
	printf ' "activation_bytes": %s, "parameter_bytes": %s}\n' "$4" "$5"
	comma=,
}
# document LAYERS...: runs LAYERS, a command that prints layers, and makes a profile of them.
document() {
	comma=
	echo '{"format": "pd-profile", "version": 1, "name": "x", "batch_size": 1, "layers": ['
	"$@"
	echo '], "device": {"kind": "cpu"}}'
}
two() {
	layer a '' 600 1000 1000
	layer b a 600 0 3000
}
document two >two.json
# period OPTION...: prints the period of the plan.
period() {
	pd-plan "$@" | jq .predicted.period_ns
}
test_ok "the formulas on two layers, by hand: at 1 GB/s a byte takes a nanosecond" '
	# One stage on two devices takes max(1200, 2 * 4000) / 2 by sosp19, (1200 + 4 / 2 * 4000) / 2 by the
	# others.  Two stages take 600, and the cut 2 * 1000 where cuts count.
	[ "$(period -c sosp19 -t 2@1GB/s --stages=2x2 two.json)" = 4000 ]
	[ "$(period -c released -t 2@1GB/s --stages=2x2 two.json)" = 4600 ]
	[ "$(period -c released-no-traffic -t 2@1GB/s --stages=2x2 two.json)" = 4600 ]
	[ "$(period -c sosp19 -t 2@1GB/s --stages=1,1 two.json)" = 2000 ]
	[ "$(period -c released -t 2@1GB/s --stages=1,1 two.json)" = 2000 ]
	[ "$(period -c released-no-traffic -t 2@1GB/s --stages=1,1 two.json)" = 600 ]'
test_ok "the best of them is found; released uses both devices, sosp19 only what helps" '
	[ "$(period -c released-no-traffic -t 2@1GB/s two.json)" = 600 ]
	[ "$(period -c released -t 2@1GB/s two.json)" = 2000 ]
	pd-plan -c sosp19 -t 2@1GB/s two.json |
		jq -e ".predicted.period_ns == 1200 and (.stages | length) == 1"'
test_ok "data parallelism by the same formula" '
	pd-plan -c released -t 2@1GB/s two.json | jq -e ".predicted.data_parallel.period_ns == 4600"
	pd-plan -c sosp19 -t 2@1GB/s two.json | jq -e ".predicted.data_parallel.period_ns == 4000"'
test_ok "ranks across components are priced with the slowest link" '
	# The stage of three takes (1200 - 600 + 4 * 2/3 * 1000 / B) / 3, where B is 0.5.
	[ "$(period -c released-no-traffic -t 2@1GB/s,2@500MB/s --stages=1x3,1 two.json)" = 1978 ]'
test_ok "more devices than a network has layers: no plan without replicas" '
	status 1 pd-plan -c released -t 3@1GB/s --straight two.json 2>err; one_line err
	grep -q "uses all 3 devices" err
	pd-plan -c sosp19 -t 3@1GB/s --straight two.json | jq -e ".stages | length == 1"'
test_ok "memory is a limit when it is said" '
	status 1 pd-plan -c released -t 2@1GB/s --memory=100 two.json 2>err; one_line err
	grep -q "takes no notice of memory, and its plan needs" err'
test_ok "they price 1f1b with stashing" '
	for cost in sosp19 released released-no-traffic; do
		status 2 pd-plan -c $cost --weights=2bw -t 2@1GB/s two.json 2>err; one_line err
		status 2 pd-plan -c $cost --schedule=gpipe -t 2@1GB/s two.json 2>err; one_line err
		status 2 pd-plan -c $cost --eager -t 2@1GB/s two.json 2>err; one_line err
	done
	status 2 pd-plan -c released-yes -t 2@1GB/s two.json 2>err; one_line err'

nothing() {
	layer a '' 0 0 0
	layer b a 0 0 0
}
document nothing >nothing.json
test_ok "a network that takes no time has plans too" '
	for cost in sosp19 released released-no-traffic; do
		for t in 1@1GB/s 2@1GB/s 2@1GB/s,2@1GB/s; do
			[ "$(period -c $cost -t $t nothing.json)" = 0 ]
		done
	done'

# branches: prints two branches, whose layers alternate.  The best cut is between the branches.
branches() {
	layer a '' 100 10 0
	for n in 1 2 3 4; do
		layer l$n "$([ $n = 1 ] && echo a || echo l$((n - 1)))" 100 10 0
		layer r$n "$([ $n = 1 ] && echo a || echo r$((n - 1)))" 100 1000 0
	done
	layer end l4,r4 100 0 0
}
document branches >branches.json
test_ok "stages that are no runs of layers" '
	pd-plan -c released --straight -t 2@1GB/s branches.json >plan.json
	jq -e ".predicted.period_ns == 500" plan.json
	jq -e "[.stages[].layers] == [[\"a\", \"l1\", \"l2\", \"l3\", \"l4\"],
		[\"r1\", \"r2\", \"r3\", \"r4\", \"end\"]]" plan.json
	"$PD_BUILD/test/unit/read-document" plan plan.json >again
	cmp plan.json again
	pd-replay plan.json >/dev/null
	pd-schedule plan.json | pd-schedule --check -'

# wide BLOCKS BRANCHES LENGTH: prints blocks of so many branches of LENGTH layers.
wide() {
	layer a '' 1000 100000 0
	from=a n=0
	while [ $n -lt "$1" ]; do
		b=0 ends=
		while [ $b -lt "$2" ]; do
			i=0 at=$from
			while [ $i -lt "$3" ]; do
				layer n$n-$b-$i $at $((1000 + 37 * i + 11 * b)) $((1000 * (b + 1))) 1000
				at=n$n-$b-$i
				i=$((i + 1))
			done
			ends=$ends${ends:+,}$at
			b=$((b + 1))
		done
		layer join$n "$ends" 1000 5000 0
		from=join$n n=$((n + 1))
	done
}
document wide 10 4 8 >wide.json
test_ok "10 blocks with 4 branches of 8 layers, 65,000 states: a plan near the bound, at once" '
	pd-plan -c released-no-traffic -t 8@1GB/s wide.json >plan.json
	jq -e ".predicted.gap >= 0 and .predicted.gap < 0.02" plan.json
	pd-plan -c released-no-traffic -t 8@1GB/s wide.json | cmp - plan.json
	pd-plan -c released -t 4@12GB/s,4@1GB/s wide.json >plan.json
	"$PD_BUILD/test/unit/read-document" plan plan.json >/dev/null'

# Periods are those of the released program.  On networks with branches it charges cuts for tensors that
# nobody needs (pd-plan(1)), so a period may be up to 1 % below its own.
profiles=$SHARED/profiles
if [ -d "$profiles" ]; then
	tr -d '\r' <"$profiles/released.csv" | sed '1d; s/,"\([^"]*\),\([^"]*\)",/,\1+\2,/' >rows
	rows=0
	while IFS=, read -r model topology straight traffic period parallel rest; do
		rows=$((rows + 1))
		case $traffic in
		ignored) cost=released-no-traffic ;;
		*) cost=released ;;
		esac
		least=1 option=
		# On networks with branches a cut can be cheaper.
		[ $cost = released ] && [ "$model" != vgg16 ] && least=0.99
		[ "$straight" = yes ] && option=--straight
		test_ok "$model on $topology, $cost $option: $period s" '
			pd-plan -c $cost $option -t "$(echo $topology | tr + ,)" \
				"$profiles/$model.json" >plan.json
			jq -c .predicted plan.json
			jq -e "(.predicted.period_ns - $period * 1e9) as \$more |
				\$more <= 0.5001 and
				\$more >= -0.5001 - $period * 1e9 * (1 - $least)" plan.json
			jq -e "(.predicted.data_parallel.period_ns - $parallel * 1e9) | fabs <= 0.5001" \
				plan.json'
	done <rows
	test_ok "those were all rows" '[ $rows -eq "$(wc -l <rows)" ] && [ $rows -ge 30 ]'
else
	test_skip "the released program's answers" "not here"
fi
test_done
