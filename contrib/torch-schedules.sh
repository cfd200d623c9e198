#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Has torch.distributed.pipelining read and run the tables that pd-schedule --format=torch writes.
#
#     sh contrib/torch-schedules.sh
#
# PYTHON is a Python that has torch 2.15 or later (python3), PD_BUILD the build tree.  The script says ok or
# not ok, as a test does.  It takes minutes, so `make check` does not run it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
python=${PYTHON:-python3}
judge=$PD_SOURCE/contrib/torch-schedules.py
$python -c 'import torch.distributed.pipelining.schedules as s; s._validate_send_waits' 2>/dev/null ||
	test_skip_all "there is no PyTorch 2.15 for $python"

# tables SCHEDULE RANKS STAGES MICROBATCHES: writes both tables, and adds them to the cases.
tables() {
	name=$1-$2-$3-$4
	chain "$3" | pd-plan -q --topology="$2@10GB/s" --schedule="$1" --weights=flush --microbatches="$4" \
		--stages="$(yes 1 | head -n "$3" | paste -sd, -)" \
		$([ "$1" != interleaved ] || echo "--chunks=$(($3 / $2))") >plan.json
	pd-schedule --format=torch plan.json >"$name.csv"
	pd-schedule --format=torch-comms plan.json >"$name-comms.csv"
	echo "$2 $3 $4 compute_only $name.csv" >>cases
	echo "$2 $3 $4 compute_comms $name-comms.csv" >>cases
}

for schedule in gpipe 1f1b zb-h1 zb-h2; do
	test_ok "$schedule, 2 to 8 ranks, 1 to 32 microbatches: PyTorch takes every table" '
		: >cases
		for ranks in 2 3 4 5 6 7 8; do
			for microbatches in 1 2 3 4 5 7 8 11 16 21 27 32; do
				tables $schedule $ranks $ranks $microbatches
			done
		done
		$python "$judge" load <cases'
done
test_ok "interleaved, 2 to 8 ranks, 2 to 4 stages of each, up to 32 microbatches" '
	: >cases
	for ranks in 2 3 4 5 6 7 8; do
		for chunks in 2 3 4; do
			for rounds in 1 2 3 4; do
				tables interleaved $ranks $((ranks * chunks)) $((ranks * rounds))
			done
		done
	done
	$python "$judge" load <cases'
for schedule in zb-v v-half v-min dualpipe-v; do
	test_ok "$schedule, 2 to 8 ranks, 1 to 33 microbatches" '
		: >cases
		for ranks in 2 3 4 5 6 7 8; do
			for microbatches in 1 2 3 5 8 9 16 17 33; do
				tables $schedule $ranks $((ranks * 2)) $microbatches
			done
		done
		$python "$judge" load <cases'
done
# order SCHEDULE RANKS MICROBATCHES CLASS: writes the table of two stages a rank, and adds it to what is compared.
order() {
	tables "$1" "$2" $(($2 * 2)) "$3"
	echo "$4 $2 $(($2 * 2)) $3 $name.csv" >>orders
}
test_ok "zb-v, dualpipe-v, interleaved, 2 to 6 ranks: the orders of PyTorch itself, pairs too" '
	: >orders
	for ranks in 2 3 4 6; do
		for microbatches in $((ranks * 2)) $((ranks * 2 + 1)) 16 27; do
			order zb-v $ranks $microbatches ZBVZeroBubble
			order dualpipe-v $ranks $microbatches DualPipeV
		done
		for rounds in 1 2 5; do
			order interleaved $ranks $((ranks * rounds)) Interleaved1F1B
		done
	done
	grep -q OVERLAP_F_B dualpipe-v-4-8-16.csv
	$python "$judge" same <orders'
test_ok "another order is said to be, so this judges" '
	echo "DualPipeV 4 8 16 zb-v-4-8-16.csv" | status 1 $python "$judge" same'
test_ok "a table that is not complete: PyTorch refuses it, so this judges" '
	sed "1s/0B0,//" 1f1b-4-4-8.csv >wrong.csv
	echo "4 4 8 compute_only wrong.csv" | status 1 $python "$judge" load'

mkdir right broken shifted
count=${COUNT:-300}
# checked FOLDER STATUS: checks all tables of a folder, and fails at the first whose check has another status
# or, where it is wrong, does not name a rank or the table as a whole.
checked() {
	said=0
	for file in "$1"/*.csv; do
		actual=0
		timeout 20 pd-schedule --check "$file" 2>err || actual=$?
		[ "$actual" -eq "$2" ] && { [ "$2" -eq 0 ] || grep -q "rank [0-9]\|the table has" err; } ||
			{ echo "$file: status $actual: $(cat err)"; said=1; }
	done
	return $said
}
test_ok "$count tables that PyTorch takes are right" '
	$python "$judge" right right $count 1
	checked right 0'
test_ok "and run on gloo with the gradients of one process" '
	ls right/*.csv | head -n 100 | sed "s/^/right /" | $python "$judge" all'
test_ok "of $count tables with shifted transfers, those that are right run on gloo, and so do those said to" '
	$python "$judge" shifted shifted $count 3
	: >cases
	for file in shifted/*.csv; do
		! timeout 20 pd-schedule --check "$file" 2>err || : >err
		[ -s err ] && ! grep -q "PyTorch .*does not wait for ever" err || echo "right $file" >>cases
	done
	[ "$(grep -c . cases)" -gt $((count / 2)) ]
	head -n 100 cases | $python "$judge" all'
test_ok "a table that is not right does not, so this judges" '
	printf "0F0,0F1,0B1,0B0\n1F1,1F0,1B1,1B0\n" >wrong.csv
	echo "wrong wrong.csv" | $python "$judge" all
	echo "right wrong.csv" | status 1 $python "$judge" all'
test_ok "$count tables with one place broken are wrong" '
	$python "$judge" broken broken $count 2
	checked broken 1'
test_ok "tables that need more memory than devices have are wrong, with the plan" '
	for microbatches in 8 12 16 24 32; do
		tables 1f1b 4 4 $microbatches
		# room for what 1f1b keeps, but not for two microbatches more
		jq ".profile.layers[].stash_bytes = 1000000 | .topology.device.memory_bytes =
			3 * 1000000 + 6 * 1002000 + 20000" plan.json >tight.json
		pd-schedule --check --plan=tight.json $name.csv
		tables gpipe 4 4 $microbatches
		status 1 pd-schedule --check --plan=tight.json $name.csv 2>err
		cat err
		grep -q "rank [0-3].* holds .* bytes" err
	done'

while read -r schedule ranks stages microbatches; do
	for kind in compute_only compute_comms; do
		test_ok "$schedule, $ranks processes, $stages stages, $microbatches microbatches, $kind: gradients" '
			tables $schedule $ranks $stages $microbatches
			[ $kind = compute_only ] || name=$name-comms
			timeout 300 $python "$judge" run $stages $microbatches $kind $name.csv'
	done
done <<END
gpipe 2 2 4
1f1b 4 4 8
1f1b 2 2 1
interleaved 2 8 4
zb-v 2 4 4
zb-v 4 8 8
dualpipe-v 2 4 8
dualpipe-v 4 8 9
dualpipe-v 2 4 3
v-half 2 4 5
v-min 2 4 3
zb-h2 2 2 4
interleaved 4 8 8
zb-h1 4 4 8
zb-h1 2 2 3
END
test_ok "without REDUCE_GRAD gradients are of another size, so this judges" '
	sed "s/,[0-9]*[A-Z_]*REDUCE_GRAD//g" 1f1b-4-4-8-comms.csv >wrong.csv
	! timeout 300 $python "$judge" run 4 8 compute_comms wrong.csv 2>err || false
	grep -q "off by" err'
test_done
