#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/gpu-first.sh has stand-ins for what it runs here.  One call comes after the other, each with the
# archive that the one before left, until all has been run.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

first=$PD_SOURCE/contrib/gpu-first.sh

# stand_in FILE: makes a program that says that it ran, and does what a file of its name in ./do says.
stand_in() {
	mkdir -p "$(dirname "tree/$1")"
	cat >"tree/$1" <<-EOF
		#!/bin/sh
		echo "$1 \$*" >>"$PWD/ran"
		echo "ok 1 - $1"
		[ ! -e "$PWD/do/$(basename "$1")" ] || . "$PWD/do/$(basename "$1")"
	EOF
	chmod +x "tree/$1"
}

mkdir do
for file in bin/pd-worker bin/pd-profile bin/pd-plan test/unit/cuda-arith test/conform/kernels test/conform/stream \
	test/conform/layers test/conform/iteration test/conform/partition test/conform/devices \
	test/conform/transfers \
	test/bench/gpu-vs-torch.sh $(cd "$PD_SOURCE" && ls test/t9*.sh test/t4*.sh); do
	stand_in "$file"
done
stand_in bin/pd-run
echo 'echo "{\"memory\": \"as predicted\"}"' >do/pd-run
echo 'echo "\"step_ns\": 5"' >do/pd-profile
mkdir -p tree/share/models
PD_TREE=$PWD/tree
unset FROM OUT BUDGET NETWORKS BATCH PERCENT PD_GPU

# call ARGUMENTS: calls the script in a folder of its own, with nothing but the archive of the call before.
call() {
	rm -rf machine
	mkdir machine
	[ ! -e gpu-first.tar.gz ] || cp gpu-first.tar.gz machine/
	: >ran
	ended=0
	(cd machine && PD_SOURCE=$PD_TREE PD_BUILD=$PD_TREE sh "$first" "$@") >said 2>&1 || ended=$?
	cat said
	cp machine/gpu-first.tar.gz .
	rm -rf gpu-first
	tar xzf gpu-first.tar.gz
	[ "$(ls machine | wc -l)" -eq 1 ]
}

test_ok "no step may take longer than a call has" '
	PD_SOURCE=$PD_TREE PD_BUILD=$PD_TREE sh "$first" --list >list
	cat list
	[ "$(wc -l <list)" -gt 25 ]
	grep -q "^torch-gpt-8-bf16 " list
	awk "\$2 > 500 { bad = 1 } END { exit bad }" list
	! [ -s ran ] || false
'

# This call has 30 seconds for steps, of which one takes 6, so the next is cut short.
test_ok "one step fails, one does not end with the call: both are told" '
	echo "exit 1" >do/layers
	echo "[ \"\${PD_TEST_WAYS-}\" != staged ] || sleep 6" >do/t9004-nccl.sh
	echo "exec sleep 1000" >do/partition
	BUDGET=45 PERCENT=14 call
	[ $ended -eq 1 ]
	grep -q "^layers .*BAD, status 1" said
	grep -q "^staged .*good" said
	grep -q "^partition .*\(cut after\|not run\)" said
	grep -q "^gpu .*not run: no time left" said
	[ -e gpu-first/nccl.good ] && [ -e gpu-first/layers.bad ]
	! [ -e gpu-first/partition.good ] && ! [ -e gpu-first/partition.bad ]
	grep -q "test/conform/layers" gpu-first/layers.log
	grep -q step_ns gpu-first/resnet50-bf16.json
'

test_ok "the next call takes up what was not run, and then what failed" '
	rm do/layers do/t9004-nccl.sh do/partition
	call
	[ $ended -eq 0 ]
	grep -q " good, 0 failed, 0 not run" said
	! grep -q "conform/stream$\|PD_TEST_WAYS\|conform/transfers" ran || false
	grep -q "conform/partition" ran
	tail -n 1 ran | grep -q conform/layers
	[ -e gpu-first/layers.good ] && ! [ -e gpu-first/layers.bad ]
'

test_ok "all is done: only the machine is looked at" '
	call
	[ $ended -eq 0 ]
	! grep -q "conform/\|t4\|t9" ran || false
	grep -q pd-profile ran
'

test_ok "steps that are named are run again, and no others" '
	call nccl layers
	[ $ended -eq 0 ]
	[ "$(wc -l <ran)" -eq 2 ]
	grep -q "conform/layers" ran && grep -q "t9004" ran
'

test_ok "where NCCL fails it is tried with more care" '
	echo "[ \"\${PD_CUDA_GRAPHS-}\" = no ] || exit 1" >do/t9004-nccl.sh
	call nccl nccl-careful
	[ $ended -eq 1 ]
	[ -e gpu-first/nccl.bad ] && [ -e gpu-first/nccl-careful.good ]
'

test_ok "a call that is told to end leaves its archive" '
	rm gpu-first.tar.gz
	rm -f do/t9004-nccl.sh
	echo "exec sleep 1000" >do/layers
	rm -rf machine && mkdir machine
	(cd machine && PD_SOURCE=$PD_TREE PD_BUILD=$PD_TREE exec sh "$first") >said 2>&1 &
	run=$!
	for try in $(seq 600); do
		! grep -q "^stream .*good" said || break
		sleep 0.1
	done
	sleep 0.5
	kill -TERM $run
	ended=0
	wait $run || ended=$?
	cat said
	[ $ended -eq 143 ]
	rm -rf gpu-first
	tar xzf machine/gpu-first.tar.gz
	[ -e gpu-first/stream.good ] && ! [ -e gpu-first/layers.good ]
	grep -q "layers .*told to end" gpu-first/summary
'

test_ok "an archive that is none is said to be" '
	mkdir -p machine && echo nonsense >machine/gpu-first.tar.gz
	(cd machine && PD_SOURCE=$PD_TREE PD_BUILD=$PD_TREE status 2 sh "$first" 2>err)
	grep -q "gpu-first.tar.gz: cannot be read" machine/err
'

test_done
