#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Damaged checkpoints in a directory are noticed and named.  One run at a time writes there, and one that
# cannot write there says so before it trains.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json
profile residual.json 4 >residual
plan residual 1 1 >plan

# run OPTION...: trains two stages on made-up data.
run() {
	pd-run --device="${PD_TEST_DEVICE:-cpu}" --threads=1 --synthetic "$@" plan
}
run --checkpoint=good --keep=9 --minibatches=8 --checkpoint-every=4 >out

# fresh: puts the checkpoints of steps 4 and 8, whole, into ck.
fresh() {
	rm -rf ck
	cp -r good ck
}

# flip FILE BYTE: flips one bit of that byte.
flip() {
	was=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
	printf "$(printf '\\%03o' $((was ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>dd.err
}

# refused STATUS WORDS OPTION...: checks that pd-run refuses these in one sentence with the WORDS, and
# trains nothing.
refused() {
	refused_status=$1 words=$2
	shift 2
	status "$refused_status" run "$@" >out 2>err
	cat err
	one_line err
	grep -q "$words" err
	[ ! -s out ]
}

# header FILE: prints the number of bytes in front of the data.
header() {
	echo $((8 + $(od -An -tu4 -N 4 "$1")))
}

for stage in 0 1; do
	test_ok "a flipped bit anywhere in the data of stage $stage is noticed" '
		fresh
		file=$(at ck 8)/stage-'$stage'.safetensors
		from=$(header "$file") size=$(stat -c %s "$file")
		for n in $(seq 1 12); do
			where=$((from + (size - from) * n / 13))
			flip "$file" $where
			refused 2 "^pd-run: --resume=8: $file: tensor .* is damaged" \
				--checkpoint=ck --resume=8 --minibatches=12
			flip "$file" $where
		done
		run --checkpoint=ck --resume=8 --minibatches=12 >out'
done

test_ok "what --resume goes on from, and what it passes over and why" '
	fresh
	run --checkpoint=ck --resume --minibatches=12 >out 2>err
	cat err
	one_line err
	grep -q "^pd-run: ck: goes on from step 8$" err
	fresh
	flip "$(at ck 8)/stage-1.safetensors" $(($(header "$(at ck 8)/stage-1.safetensors") + 40))
	run --checkpoint=ck --resume --minibatches=12 >out 2>err
	cat err
	[ "$(wc -l <err)" -eq 2 ]
	grep -q "passes over the checkpoint of step 8: .*stage-1.safetensors: tensor .*damaged" err
	grep -q "goes on from step 4$" err
	[ "$(tail -n 1 out | jq .step)" -eq 12 ]
	run --checkpoint=whole --minibatches=12 >out
	diff -r "$(at whole 12)" "$(at ck 12)"'
test_ok "a damaged one takes no place of those that are kept" '
	fresh
	truncate -s -1 "$(at ck 8)/stage-0.safetensors"
	run --checkpoint=ck --resume --minibatches=9 --no-evaluate >out
	ls ck | tr "\n" " " >list
	cat list
	grep -q "0004 .*0008 .*0009" list
	run --checkpoint=ck --resume --minibatches=10 >out
	[ "$(ls ck | tr "\n" " ")" = "step-000000000009 step-000000000010 " ]'
test_ok "--quiet does not say where it goes on, but what it passes over" '
	fresh
	run --checkpoint=ck --resume --quiet --minibatches=9 >out 2>err
	[ ! -s err ]
	fresh
	truncate -s -1 "$(at ck 8)/stage-0.safetensors"
	run --checkpoint=ck --resume --quiet --minibatches=9 >out 2>err
	one_line err
	grep -q "passes over the checkpoint of step 8" err'
test_ok "--resume=STEP takes that one" '
	fresh
	run --checkpoint=ck --resume=4 --minibatches=12 >out 2>err
	grep -q "goes on from step 4$" err
	diff -r "$(at whole 12)" "$(at ck 12)"'
test_ok "or fails: a step that is not there, no step" '
	fresh
	refused 2 "^pd-run: --resume=5: ck has no checkpoint of that step; the newest is of step 8$" --checkpoint=ck --resume=5
	refused 2 "^pd-run: --resume: expected newest or a whole number from 0, " --checkpoint=ck --resume=last
	refused 2 "^pd-run: --resume: expected newest or a whole number from 0, " --checkpoint=ck --resume=-1
	refused 2 "no complete checkpoint found" --checkpoint=nowhere --resume
	[ ! -e nowhere ]'
test_ok "-r takes no argument, --resume=newest is the same" '
	fresh
	run -rc ck --minibatches=8 >out 2>err
	grep -q "goes on from step 8$" err
	run --checkpoint=ck --resume=newest --minibatches=8 >out 2>err
	grep -q "goes on from step 8$" err'
test_ok "none is whole: why the newest is not, and nothing is replaced" '
	fresh
	for step in 4 8; do
		truncate -s -1 "$(at ck $step)/stage-0.safetensors"
	done
	cp -r ck before
	refused 2 "no complete checkpoint found: .*00000008/stage-0.safetensors" --checkpoint=ck --resume
	refused 2 "holds checkpoints, the newest of step 8" --checkpoint=ck --minibatches=12
	diff -r before ck'
test_ok "a pipe where a file should be is not waited for" '
	for file in checkpoint.json stage-1.safetensors; do
		fresh
		rm "$(at ck 8)/$file"
		mkfifo "$(at ck 8)/$file"
		timeout 200 pd-run --synthetic --checkpoint=ck --resume --minibatches=8 plan \
			>out 2>err </dev/null
		grep -q "passes over the checkpoint of step 8: .*$file: expected a file" err
	done'
test_ok "nor one in a data set" '
	mkdir data
	mkfifo data/train-images-idx3-ubyte data/train-labels-idx1-ubyte
	status 2 timeout 200 pd-run --data=data plan >out 2>err </dev/null
	cat err
	grep -q "train-images-idx3-ubyte: expected a file" err'
test_ok "a plan from a pipe" '
	mkfifo pipe
	cat plan >pipe &
	pd-run --threads=1 --synthetic --minibatches=4 pipe >out
	[ "$(tail -n 1 out | jq .step)" -eq 4 ]
	pd-run --threads=1 --synthetic --minibatches=4 <plan >out'

# old: makes a checkpoint as it was written before there were checksums, without what came with them.
old() {
	fresh
	rm -r "$(at ck 4)"
	jq ".version = 1 | del(.checksum, .model, .recipe) | del(.stages[].header_checksum)" \
		"$(at ck 8)/checkpoint.json" >document
	mv document "$(at ck 8)/checkpoint.json"
}
test_ok "a checkpoint without checksums, of an earlier version: taken, and said" '
	old
	run --checkpoint=ck --resume --minibatches=12 >out 2>err
	cat err
	one_line err
	grep -q "step 8, whose checkpoint is of an earlier version and has no checksums" err
	diff -r "$(at whole 12)" "$(at ck 12)"'

# begin DIRECTORY: starts a long run there, as $long.
begin() {
	pd-run --threads=1 --synthetic --checkpoint="$1" --checkpoint-every=1 --minibatches=1000000 \
		plan >long.out 2>long.err &
	long=$!
	while kill -0 $long && ! grep -q checkpoint long.out; do sleep 0.02; done
}
test_ok "two runs, one directory: the second is told who has it" '
	rm -rf ck
	begin ck
	set -- $(children $long)
	for n in 1 2 3; do
		refused 3 "^pd-run: ck: another run writes its checkpoints there: process $long on $(
			)$(uname -n), since 20.*Z, with plan (residual)" \
			--checkpoint=ck --resume --minibatches=5
	done
	kill -KILL $long
	wait $long || :
	run --checkpoint=ck --resume --minibatches=5 >out 2>err || { cat err; false; }
	[ -z "$(ls -A ck | grep -v ^step-)" ]'
test_ok "two runs begun at once: one trains" '
	for n in 1 2 3; do
		rm -rf ck
		run --checkpoint=ck --minibatches=3 >first 2>first.err &
		status=0
		run --checkpoint=ck --minibatches=3 >second 2>second.err || status=$?
		other=0
		wait $! || other=$?
		echo $status $other
		cat first.err second.err
		# One may have ended before the other began.
		case $status$other in
		03 | 30) grep -q "another run" first.err second.err ;;
		02 | 20) grep -q "holds checkpoints" first.err second.err ;;
		*) false ;;
		esac
	done'

test_ok "a directory of checkpoints that cannot be made, before anything is trained" '
	refused 2 "no/such/place: cannot create: No such file" --checkpoint=no/such/place
	: >plain
	refused 2 "plain: expected a directory, found a file" --checkpoint=plain'
if [ "$(id -u)" -ne 0 ]; then
	test_ok "a directory that cannot be written to, before anything is trained" '
		mkdir closed
		chmod 555 closed
		refused 2 "closed: .*Permission denied" --checkpoint=closed
		chmod 755 closed'
elif mkdir small && mount -t tmpfs -o ro,size=1m none small 2>/dev/null; then
	trap 'cd /; umount "$test_directory/small"; rm -rf "$test_directory"' EXIT
	test_ok "a directory that cannot be written to, before anything is trained" '
		refused 2 "small: .*Read-only file system" --checkpoint=small
		refused 2 "small/ck: cannot create: Read-only file system" --checkpoint=small/ck'
else
	test_skip "a directory that cannot be written to" "root, and no file system can be mounted"
fi
test_ok "what is called as a checkpoint and is none is in the way, and is noticed before anything is trained" '
	mkdir way
	: >way/step-000000000012
	refused 2 "way/step-000000000012: expected a folder" --checkpoint=way --minibatches=12
	fresh
	: >ck/step-000000000012
	refused 2 "ck/step-000000000012: expected a folder" --checkpoint=ck --resume --minibatches=12
	rm ck/step-000000000012
	run --checkpoint=ck --resume --minibatches=12 >out'
test_ok "a limit on files is an error, as a full disk is" '
	# shared memory is under the limit, too
	pd-model mlp --layers=2 --hidden=3500 >large.json
	profile large.json 1 >large
	plan large 1 >one
	rm -rf ck
	status 3 prlimit --fsize=20000000 pd-run --threads=1 --synthetic --minibatches=1 --checkpoint=ck one \
		>out 2>err
	cat err
	one_line err
	grep -q "stage-0.safetensors: cannot write: File too large" err
	status 3 prlimit --fsize=512 pd-plan -t 2@1GB/s residual >out 2>err
	cat err
	grep -q "^pd-plan: cannot write the document: File too large" err'
if nm "$PD_BUILD/bin/pd-run" 2>/dev/null | grep -q __asan_init; then
	test_skip "a folder that cannot be read" "sanitizers must come before anything that is preloaded"
elif ! cc -shared -fPIC -o readdir.so "$PD_SOURCE/test/double/readdir.c" -ldl; then
	test_skip "a folder that cannot be read" "the compiler does not make what is in the way"
else
	# unreadable DIRECTORY COMMAND...: runs the command, which cannot read the directory to its end.
	unreadable() {
		unreadable=$1
		shift
		PD_UNREADABLE=$unreadable LD_PRELOAD=$PWD/readdir.so "$@"
	}
	test_ok "a folder that cannot be read is not an empty one" '
		fresh
		cp -r ck before-ck
		unreadable ck refused 2 "ck: cannot read: Input/output error" --checkpoint=ck
		unreadable ck refused 2 "ck: cannot read: Input/output error" --checkpoint=ck --resume
		diff -r before-ck ck
		pd-model gpt --layers=1 --hidden=8 --heads=2 --sequence=4 --vocabulary=256 >gpt.json
		profile gpt.json 2 >gpt
		plan gpt 1 >gpt-plan
		mkdir text
		head -c 2000 "$PD_SOURCE/README" >text/train.txt
		status 2 unreadable text pd-run --data=text --no-evaluate gpt-plan 2>err
		cat err
		grep -q "text: cannot read: Input/output error" err'
fi
test_ok "a run that ends before its first checkpoint leaves no directory" '
	run --checkpoint=empty --minibatches=0 >out
	[ ! -e empty ]'

test_done
