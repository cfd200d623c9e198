#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With any limit on the address space a program does its work, or says in one sentence what it had no memory
# for.  It does not abort or hang, and no library speaks for it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

pd-profile --device=cpu --iterations=1 --no-link --threads=1 --batch-size=4 "$MODELS/lenet5.json" >profile
pd-plan --topology=2@10Gbit/s --straight profile >plan
pd-run --device=cpu --threads=1 --synthetic --minibatches=5 --trace=trace plan >out
pd-schedule plan >schedule
# A sanitizer needs many times this memory for itself.
(ulimit -v 2000000 && pd-plan -t 2@10Gbit/s profile >out 2>err) ||
	test_skip_all "these programs need an address space without a limit"
ulimit -c 0

# limited FROM STEP TO COMMAND...: runs the command under each of these limits in KiB, and checks how it
# ends.
limited() {
	first=$1 step=$2 last=$3
	shift 3
	none=0
	for limit in $(seq "$first" "$step" "$last"); do
		rm -rf ck
		got=0
		(ulimit -v "$limit"; exec timeout 100 "$@" >out 2>err </dev/null) || got=$?
		echo "$limit KiB: status $got"
		cat err
		case $got in
		0)	[ ! -s err ] || one_line err ;;
		3)	one_line err
			grep -q "^${1##*/}: .*" err
			! grep out.of.memory err || none=1 ;;
		# The program could not be loaded, which some loaders end with a crash.
		127)	one_line err ;;
		139)	got=0
			(ulimit -v "$limit"; exec "$1" --version >out 2>err) || got=$?
			[ "$got" -eq 139 ] ;;
		*)	return 1 ;;
		esac
	done
	[ "$none" -eq 1 ]
}

test_ok "pd-plan" 'limited 2500 250 6000 pd-plan --topology=8@10Gbit/s profile'
test_ok "pd-plan, a drawing" 'limited 2500 250 6000 pd-plan --format=svg --topology=8@10Gbit/s profile'
test_ok "pd-schedule" 'limited 2500 100 5000 pd-schedule --minibatches=20000 plan'
test_ok "pd-schedule, which checks" 'limited 2500 100 5000 pd-schedule --check schedule'
test_ok "pd-replay of a plan" 'limited 3000 3000 45000 pd-replay --minibatches=20000 plan'
test_ok "pd-replay of a trace" 'limited 2500 250 6000 pd-replay trace'
test_ok "pd-profile" '
	limited 36000 17000 240000 pd-profile --device=cpu --threads=1 --no-link --iterations=1 \
		--batch-size=4 "$MODELS/lenet5.json"'
test_ok "pd-profile, the link and what an operation costs" '
	limited 40000 41000 260000 pd-profile --device=cpu --threads=1 --iterations=1 --batch-size=4 \
		"$MODELS/lenet5.json"'
test_ok "pd-run, of whose workers one speaks" '
	limited 36000 11000 240000 pd-run --device=cpu --threads=1 --synthetic --minibatches=5 \
		--checkpoint=ck plan'

test_done
