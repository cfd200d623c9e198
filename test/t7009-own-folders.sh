#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Four hosts (contrib/hosts.sh) have checkpoints on their own disks, by a mount namespace each.  Every host
# has the files that its ranks wrote.  A run goes on from them with the bits of one host's, and says who
# lacks what.  --gather brings them together.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
. "$PD_SOURCE/test/hosts-lib.sh"
need_mpirun
on_hosts --limit=1000 4

residual_model >residual.json
profile residual.json 4 >residual
plan residual 1 2 1 >plan
plan residual 1 >plan.one
pd-run --threads=1 --synthetic --minibatches=20 --checkpoint=here --keep=9 plan >out.here
pd-run --threads=1 --synthetic --minibatches=40 --checkpoint=here --keep=9 --resume plan >out.here

# own ARGUMENT...: runs pd-run on all hosts, each of which has a folder ck of its own, disks/HOST.
own() {
	set -- mpirun --host "$PD_HOSTS" -np 4 unshare --mount sh wrapper pd-run --threads=1 \
		--checkpoint=ck "$@"
	timeout 600 "$@" 2>err
}
cat >wrapper <<-END
	mount --bind disks/\$(hostname) ck
	[ ! -d mounted/\$(hostname) ] || mount --bind mounted/\$(hostname) ck/step-000000000030
	exec "\$@"
END
mkdir ck disks disks/h1 disks/h2 disks/h3 disks/h4

# again: restores the hosts' disks as they were after 20 minibatches.
again() {
	rm -rf disks
	cp -a disks.20 disks
}

# held STEP: prints the files of that step, of all hosts, on one line.
held() {
	(cd disks && echo */step-*"$1"/*.safetensors)
}

# as_here STEP [DIR]: checks that what hosts hold of that step is what one host wrote.
as_here() {
	for file in disks/*/step-*"$1"/*.safetensors; do
		cmp "$file" "${2-here}/${file#disks/*/}" || return 1
	done
}

test_ok "each host has its own stages, in the first replica, and all have the document" '
	own --synthetic --minibatches=20 --keep=2 plan >out
	held 20 >files
	echo "h1/step-000000000020/stage-0.safetensors h2/step-000000000020/stage-1.safetensors" \
		"h4/step-000000000020/stage-2.safetensors" | diff - files
	[ "$(echo disks/*/step-*/checkpoint.json | wc -w)" -eq 8 ]
	as_here 10
	as_here 20
	[ -z "$(find disks -name ".*")" ]
	grep -c "\"event\": *\"checkpoint\"" out >count
	echo 2 | diff - count
	cp -a disks disks.20
'
test_ok "resume: the other replica is brought its stage, and the weights are those of one host" '
	own --synthetic --minibatches=40 --resume plan >out
	grep "^pd-run: ck: brings stage-1.safetensors of step 20 from host h2 to host h3" err
	as_here 30
	as_here 40
	[ -n "$(held 40)" ]
'
test_ok "a checkpoint that one host cannot complete: all still have the one before" '
	again
	# a file system in its place cannot be renamed
	mkdir -p mounted/h4 disks/h4/step-000000000030
	status 3 own --synthetic --minibatches=40 --keep=1 --resume plan
	rmdir mounted/h4
	grep "^pd-run: rank 3 (stage 2 of 3, host h4): ck/.step-000000000030.tmp: cannot rename" err
	[ ! -e disks/h1/step-000000000030 ]
	rmdir disks/h4/step-000000000030
	touch disks/h4/step-000000000030
	status 2 own --synthetic --minibatches=40 --keep=1 --resume plan
	cat err
	grep "^pd-run: host h4: ck/step-000000000030: expected a folder" err
	rm disks/h4/step-000000000030
	own --synthetic --minibatches=40 --keep=1 --resume plan >out
	grep -q "goes on from step 20$" err
	as_here 40
	[ "$(echo disks/*/step-*)" = "$(echo disks/*/step-*40)" ]
'
test_ok "a host that has lost its disk is brought all it needs, where another has that" '
	again
	rm -r disks/h3/*
	own --synthetic --minibatches=40 --resume plan >out
	as_here 40
'
test_ok "a stage that nobody has: the host is named, and the run goes on from the step before" '
	again
	rm disks/h4/step-*20/stage-2.safetensors
	own --synthetic --minibatches=40 --resume plan >out
	grep -q "passes over the checkpoint of step 20: ck: step 20: host h4 lacks stage-2" err
	grep -q "goes on from step 10$" err
	as_here 40
	again
	rm disks/h4/step-*20/stage-2.safetensors
	status 2 own --synthetic --minibatches=40 --resume=20 plan
	grep -q "^pd-run: ck: step 20: host h4 lacks stage-2.safetensors" err
'
test_ok "so is a stage that is damaged, or of another run" '
	again
	pd-run --threads=1 --lr=0.02 --synthetic --minibatches=20 --checkpoint=other plan
	rm -r disks/h4/step-*20
	cp -a other/step-*20 disks/h4
	status 2 own --synthetic --minibatches=40 --resume=20 plan
	grep -q "^pd-run: ck: step 20: host h4 lacks stage-2.safetensors" err
	again
	printf x | dd of=disks/h2/step-000000000020/stage-1.safetensors bs=1 seek=4000 conv=notrunc
	own --synthetic --minibatches=40 --resume plan >out
	grep -q "passes over the checkpoint of step 20: ck: step 20: host h2 lacks stage-1" err
	as_here 40
'
test_ok "a host whose folder has another run is not given this one, nor loses its own" '
	for other in 7:--seed=2 20:--lr=0.03; do
		again
		rm -r disks/h3/*
		pd-run --threads=1 ${other#*:} --synthetic --minibatches=${other%:*} --checkpoint=disks/h3 plan >out.other
		cp -a disks/h3 h3.was
		status 2 own --synthetic --minibatches=40 --resume plan
		cat err
		grep "^pd-run: ck on host h3 has a checkpoint of step [27]0* of another run than ck on host h1" err
		diff -r -x .lock h3.was disks/h3
		rm -rf h3.was
	done
'
test_ok "data, and parameters to begin with, that are others on one host are refused" '
	idx_data given
	for host in h1 h2 h3 h4; do
		rm -r disks/$host
		mkdir disks/$host
		cp -r given disks/$host/data
		cp here/step-*20/stage-0.safetensors disks/$host/begin.safetensors
	done
	begin() {
		timeout 600 mpirun --host "$PD_HOSTS" -np 4 unshare --mount sh wrapper pd-run --threads=1 "$@" 2>err
	}
	begin --data=ck/data --minibatches=2 plan >out
	tail -c +3000 given/train-images-idx3-ubyte >rest
	{ head -c 2900 given/train-images-idx3-ubyte; head -c 99 /dev/zero; cat rest; } \
		>disks/h3/data/train-images-idx3-ubyte
	status 2 begin --data=ck/data --minibatches=2 plan
	cat err
	grep "^pd-run: host h3: ck/data: is not what the first process read under that name" err
	pd-run --threads=1 --synthetic --minibatches=1 --momentum=0 --checkpoint=begin.one plan.one >out
	pd-run --threads=1 --synthetic --minibatches=1 --momentum=0 --seed=3 --checkpoint=begin.two plan.one >out
	for host in h1 h2 h3 h4; do
		cp begin.one/step-*1/stage-0.safetensors disks/$host/begin.safetensors
	done
	begin --synthetic --init=ck/begin.safetensors --minibatches=2 plan >out
	cp begin.two/step-*1/stage-0.safetensors disks/h4/begin.safetensors
	status 2 begin --synthetic --init=ck/begin.safetensors --minibatches=2 plan
	cat err
	grep "^pd-run: host h4: ck/begin.safetensors: is not what the first process read under that name" err
	rm -r disks/*/*
'
test_ok "another plan is brought what it needs" '
	again
	plan residual 2 1 1 >plan.211
	pd-run --threads=1 --synthetic --minibatches=30 --checkpoint=here.211 plan >out.here
	cp -a here here.211.ck
	rm -r here.211.ck/step-*30 here.211.ck/step-*40
	pd-run --threads=1 --synthetic --minibatches=30 --checkpoint=here.211.ck --resume plan.211 >out.here
	own --synthetic --minibatches=30 --resume plan.211 >out
	as_here 30 here.211.ck
'
test_ok "--gather brings a checkpoint together, whole" '
	again
	own --gather=all plan >out
	jq -e ".event == \"checkpoint\" and .step == 20 and .directory == \"all\"" out
	[ "$(ls -A all)" = step-000000000020 ]
	same_weights all here
	pd-run --threads=1 --synthetic --minibatches=30 --checkpoint=all --resume plan >out
	status 2 own --gather=all plan
	said "--gather: all has a checkpoint of step 20 already"
	own --gather=all --resume=10 plan >out
	same_weights all here
'
test_ok "--evaluate on several hosts reads what was brought together, and says so where it was not" '
	again
	idx_data data
	status 2 own --evaluate --data=data --resume=20 plan
	said "ck/step-000000000020/stage-1.safetensors: cannot open: No such file or directory; what hosts have in folders of their own --gather=DIR brings together"
	timeout 600 mpirun --host "$PD_HOSTS" -np 4 pd-run --threads=1 --evaluate --data=data --checkpoint=all \
		--resume=20 plan >out
	pd-run --threads=1 --evaluate --data=data --checkpoint=here --resume=20 plan >out.here
	for out in out out.here; do
		jq -c "select(.event == \"evaluation\") | [.step, .loss, .accuracy, .samples]" $out >$out.figures
	done
	[ -s out.figures ] && diff out.here.figures out.figures
'
test_ok "what is damaged is not gathered, and nothing half-written is left" '
	again
	printf x | dd of=disks/h4/step-000000000020/stage-2.safetensors bs=1 seek=4000 conv=notrunc
	status 2 own --gather=part --resume=20 plan
	grep -q "^pd-run: ck: step 20: host h4 lacks stage-2.safetensors, or it is damaged" err
	[ ! -e part ]
'
test_ok "a run from the beginning is refused where any host has checkpoints" '
	again
	rm -r disks/h1/* disks/h2/*
	status 2 own --synthetic plan
	said "ck on host h3 holds checkpoints, the newest of step 20"
'
test_ok "a host whose folder another run has is refused" '
	again
	rm -r disks/*/*
	pd-run --threads=1 --synthetic --minibatches=100000000 --report-every=1 --checkpoint=disks/h3 \
		plan >busy 2>&1 &
	other=$!
	until grep -qs progress busy; do kill -0 $other; sleep 0.1; done
	status 3 own --synthetic plan || { kill $other; false; }
	kill $other
	wait $other || :
	said "rank 2 (stage 1 of 3, host h3): ck: another run writes its checkpoints there"
'
test_ok "sparse sums: each replica has a file of its own, which goes with it to another host" '
	rm -rf disks/*/* all
	jq ".sparse = {sparsity: 0.8, chunk: 50, warmup: 0} | del(.stages[].predicted)" plan >sparse
	pd-run --threads=1 --synthetic --minibatches=20 --checkpoint=here.sparse --keep=9 sparse >out
	pd-run --threads=1 --synthetic --minibatches=40 --checkpoint=here.sparse --keep=9 --resume \
		sparse >out
	own --synthetic --minibatches=20 sparse >out
	held 20 | sed "s/step-0*//g" >files
	echo "h1/20/stage-0.safetensors h2/20/stage-1.safetensors" \
		"h3/20/stage-1-replica-1.safetensors h4/20/stage-2.safetensors" | diff - files
	as_here 20 here.sparse
	mv disks/h2 disks/h
	mv disks/h3 disks/h2
	mv disks/h disks/h3
	own --synthetic --minibatches=40 --resume sparse >out
	grep "brings stage-1.safetensors of step 20 from host h3 to host h2" err
	grep "brings stage-1-replica-1.safetensors of step 20 from host h2 to host h3" err
	as_here 40 here.sparse
	own --gather=all sparse >out
	[ "$(ls all/step-*40 | wc -l)" -eq 5 ]
	same_weights all here.sparse
	rm disks/h3/step-*40/stage-1-replica-1.safetensors
	status 2 own --synthetic --minibatches=50 --resume=40 sparse
	grep -q "ck: step 40: host h3 lacks stage-1-replica-1.safetensors" err
'
# left: prints the processes on the other hosts.
left() {
	for host in h2 h3 h4; do
		ip netns pids "$PD_NETNS$host"
	done
}
test_ok "hosts that are killed while checkpoints are written go on with the bits of one host" '
	rm -rf disks/*/*
	for host in h2 h4; do
		resume=$([ $host = h2 ] || echo --resume)
		rm -f out
		own --synthetic --minibatches=1000000 --checkpoint-every=1 $resume plan >out &
		run=$!
		until grep -qs "\"checkpoint\"" out; do kill -0 $run; sleep 0.05; done
		kill -9 $(ip netns pids "$PD_NETNS$host") || :
		kill -9 $(tree $run) || :
		until [ -z "$(left)" ]; do sleep 0.1; done
		wait $run || :
	done
	last=$(ls -d disks/h1/step-* | tail -n 1)
	step=$(expr "${last##*step-}" + 0)
	own --synthetic --minibatches=$((step + 10)) --resume plan >out
	pd-run --threads=1 --synthetic --minibatches=$((step + 10)) --checkpoint=here.killed plan >out
	as_here "$(printf "%012d" $((step + 10)))" here.killed
'
test_done
