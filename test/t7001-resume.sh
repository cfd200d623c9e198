#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run that was stopped, interrupted or killed and then resumed ends with the bits of one
# that was not.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

sgd="--lr=0.002 --weight-decay=0.001"
residual_model >residual.json
profile residual.json 4 >residual
idx_data data		# An epoch has 27 minibatches.
for replicas in "1" "1 1" "1 1 1" "2 1" "1 2" "1 1 1 1"; do
	plan residual $replicas >"plan$(echo " $replicas" | tr ' ' -)"
done

# resumed PLAN N K...: trains to each K in turn, then to N, and compares with training to N at once.  The
# whole folder is compared, with the older versions.
resumed() {
	with=$1 n=$2
	shift 2
	[ -d "ck-$with" ] || train "ck-$with" "$with" $sgd --data=data --minibatches="$n" >out
	rm -rf ck
	again=
	for k in "$@" "$n"; do
		train ck "$with" $sgd --data=data --minibatches="$k" $again >out
		again=--resume
	done
	diff -r "$(at "ck-$with" "$n")" "$(at ck "$n")"
}

test_ok "resumed inside an epoch, one stage" 'resumed plan-1 40 13'
for k in 1 26 27 "3 4 5 6" "25 26 27 28"; do
	test_row stages "three stages, resumed at $k" "resumed plan-1-1-1 40 $k"
done
for k in 14 26 27 "2 4 27 31"; do
	test_row replicas "two replicas, resumed at $k" "resumed plan-2-1 40 $k"
done
test_row replicas "two replicas behind one, resumed at 8 and 26" 'resumed plan-1-2 40 8 26'

# killed EVERY PLAN N: kills pd-run once it has trained a few minibatches, resumes, and compares.
killed() {
	rm -rf ck out           # The checkpoints of the run before must not count.
	: >out
	pd-run --threads=1 --checkpoint=ck --checkpoint-every="$1" --report-every=1 $sgd \
		--data=data --minibatches=100000 "$2" >out &
	until [ "$(grep -c checkpoint out)" -ge 4 ]; do sleep 0.01; done
	kill -KILL $!
	wait $! || :
	train ck "$2" $sgd --data=data --minibatches="$3" --resume >out
	rm -rf whole
	train whole "$2" $sgd --data=data --minibatches="$3" >out
	diff -r "$(at whole "$3")" "$(at ck "$3")"
}

test_ok "checkpoints every minibatch of three stages, pd-run killed, resumed" '
	killed 1 plan-1-1-1 403'
test_ok "checkpoints every five minibatches of two replicas, pd-run killed, resumed" '
	killed 5 plan-2-1 403'
test_ok "checkpoints at every fifth minibatch, and at the epoch end" '
	rm -rf ck
	train ck plan-1-1-1 --data=data --minibatches=30 --checkpoint-every=5 --keep=100 >out
	jq -r "select(.event == \"checkpoint\") | .step" out | tr "\n" " " >steps
	cat steps
	[ "$(cat steps)" = "5 10 15 20 25 27 30 " ]'
test_ok "checkpoints of replicas where all have updated" '
	rm -rf ck
	train ck plan-2-1 --data=data --minibatches=30 --checkpoint-every=5 --keep=100 >out
	jq -r "select(.event == \"checkpoint\") | .step" out | tr "\n" " " >steps
	cat steps
	[ "$(cat steps)" = "6 10 16 20 26 27 30 " ]'

# interrupted SECONDS SIGNAL PLAN: signals so long after the workers have been started, resumes, and
# compares.
interrupted() {
	rm -rf ck
	env --default-signal=INT pd-run --threads=1 --checkpoint=ck $sgd --data=data \
		--minibatches=100000 "$3" >out &
	until [ -n "$(children $!)" ]; do sleep 0.01; done
	sleep "$1"
	kill -"$2" $!
	case $2 in INT) by=130 ;; TERM) by=143 ;; esac
	status $by wait $!
	tail -n 1 out
	again=--resume
	[ "$(tail -n 1 out | jq -r .outcome)" = stopped ]
	step=$(tail -n 1 out | jq .step)
	if [ "$step" -gt 0 ]; then
		[ -d "$(at ck "$step")" ]
	else
		again=
	fi
	n=$((step / 27 * 27 + 40))
	train ck "$3" $sgd --data=data --minibatches=$n $again >out
	rm -rf whole
	train whole "$3" $sgd --data=data --minibatches=$n >out
	diff -r "$(at whole $n)" "$(at ck $n)"
}

for moment in 0 0.1 0.2 0.3 0.4; do
	test_row interrupted "interrupted after $moment s, resumed" "interrupted $moment INT plan-1-1-1"
done
for moment in 0.22 0.36; do
	test_row terminated "terminated after $moment s with replicas, resumed" "interrupted $moment TERM plan-2-1"
done

# one_minibatch: writes data of which an epoch has one minibatch, for replica 0.  So replica 1 is at the end
# of the epoch at once, and waits for the running statistics.
one_minibatch() {
	mkdir one
	for half in train t10k; do
		{ printf '\0\0\010\003\0\0\0\004\0\0\0\034\0\0\0\034'; idx_bytes 3136 1 127; } \
			>one/$half-images-idx3-ubyte
		{ printf '\0\0\010\001\0\0\0\004'; idx_bytes 4 1 9; } >one/$half-labels-idx1-ubyte
	done
}

# terminated_apart SECONDS: terminates pd-run while replica 0 stands still, so long after the first report.
terminated_apart() {
	: >out
	env --default-signal=INT pd-run --threads=1 $sgd --data=one --no-evaluate --timeout=60 \
		--report-every=1 --minibatches=100000 plan-2-1 >out &
	until [ -s out ]; do sleep 0.01; done
	sleep "$1"
	first=$(children $! | head -n 1)
	kill -STOP "$first"
	sleep 0.05
	kill -TERM $!
	sleep 0.05
	kill -CONT "$first"
	status 143 wait $!
	[ "$(tail -n 1 out | jq -r .outcome)" = stopped ]
}

one_minibatch
for moment in 0.01 0.03 0.05 0.07 0.09 0.11 0.13 0.15; do
	test_row apart "terminated $moment s after the first minibatch, one replica at the end of its epoch" "
		terminated_apart $moment"
done

# switched FROM K TO N: trains to K under one plan and on to N under another, and compares.
switched() {
	rm -rf ck
	train ck "$1" $sgd --data=data --minibatches="$2" >out
	train ck "$3" $sgd --data=data --minibatches="$4" --resume >out
	"$serial" $sgd --data=data --minibatches="$4" --switch="$2" --to="$3" --output=serial "$1"
	"$same" serial "$(at ck "$4")"
}

test_row switched "from one stage to three inside an epoch" 'switched plan-1 13 plan-1-1-1 40'
test_row switched "from three stages to one" 'switched plan-1-1-1 13 plan-1 40'
test_row switched "from three stages to four" 'switched plan-1-1-1 27 plan-1-1-1-1 40'
test_row switched "from four stages to three inside an epoch" 'switched plan-1-1-1-1 7 plan-1-1-1 40'
test_ok "from two replicas to three stages" 'switched plan-2-1 14 plan-1-1-1 40'
test_row switched "from three stages to two replicas at an odd minibatch" 'switched plan-1-1-1 13 plan-2-1 40'
test_ok "where the last stage stays, it goes on with its versions" '
	pd-plan --topology=3@10Gbit/s --stages=5x1,6x1,9x1 residual >from
	pd-plan --topology=3@10Gbit/s --stages=8x1,3x1,9x1 residual >to
	switched from 13 to 40'
test_ok "checkpoints under another plan than before, resumed once more" '
	rm -rf ck
	train ck plan-1-1-1 $sgd --data=data --minibatches=13 >out
	train ck plan-2-1 $sgd --data=data --minibatches=26 --checkpoint-every=4 --resume --keep=9 >out
	rm -r "$(at ck 26)"
	train ck plan-2-1 $sgd --data=data --minibatches=40 --resume >out
	"$serial" $sgd --data=data --minibatches=40 --switch=13 --to=plan-2-1 --output=serial \
		plan-1-1-1
	"$same" serial "$(at ck 40)"'
test_ok "the comparison can fail: the switch at another minibatch" '
	"$serial" $sgd --data=data --minibatches=40 --switch=14 --to=plan-2-1 --output=serial \
		plan-1-1-1
	status 1 "$same" serial "$(at ck 40)"'

# With Adam both moments and the count of updates go on.
adam="--optimizer=adam --lr=0.003 --lr-schedule=step --lr-step=1 --lr-warmup=20"
for with in plan-1-1-1 plan-2-1; do
	test_row adam "adam, $with, resumed at 14 and 26" "
		sgd=\$adam
		rm -rf ck-$with
		resumed $with 40 14 26
		rm -rf ck-$with"
done
test_row adam "adam, from three stages to two replicas at an odd minibatch" '
	sgd=$adam
	switched plan-1-1-1 13 plan-2-1 40'
test_ok "a rate that depends on the length of the run, resumed under the same length" '
	sgd="--optimizer=adamw --lr=0.003 --weight-decay=0.1 --lr-schedule=cosine --lr-warmup=9"
	rm -rf ck ck-whole
	train ck plan-1-1-1 $sgd --data=data --minibatches=40 --checkpoint-every=5 --keep=99 >out
	mkdir ck-whole
	for step in 20 25 27 32 37 40; do
		mv "$(at ck $step)" ck-whole
	done
	cp -r ck ck-again
	train ck plan-1-1-1 $sgd --data=data --minibatches=40 --resume >out
	diff -r "$(at ck-whole 40)" "$(at ck 40)"
	train ck-again plan-1-1-1 $sgd --data=data --minibatches=40 --resume --lr-warmup=16 >out
	status 1 "$same" "$(at ck-whole 40)" "$(at ck-again 40)"'

test_ok "where nothing is left to train, what the checkpoint has is evaluated, under any plan" '
	rm -rf ck
	pd-run --threads=1 --checkpoint=ck --data=data --minibatches=40 plan-1-1-1 >out
	grep "\"event\": \"evaluation\"" out | tail -n 1 >evaluation
	cp -r ck as-it-was
	for with in "plan-1-1-1 --minibatches=40" "plan-2-1 --minibatches=40" "plan-1 --epochs=1"; do
		pd-run --threads=1 --checkpoint=ck --resume --data=data $with >again 2>err
		cat again err
		grep "\"event\": \"evaluation\"" again | diff evaluation -
		[ "$(wc -l <again)" -eq 2 ]
		jq -s -e ".[0].accuracy == .[1].evaluation.accuracy and (.[1] | has(\"loss\") | not)" again
		grep -q "^pd-run: nothing is left to train: by --minibatches or --epochs training ends at step" err
		diff -r as-it-was ck
	done
	pd-run --threads=1 --checkpoint=ck --resume --no-evaluate --data=data plan-1 >again
	[ "$(wc -l <again)" -eq 1 ]'

test_ok "a run of no minibatches evaluates what --init gives" '
	rm -rf ck
	pd-run --threads=1 --checkpoint=ck --data=data --epochs=1 --momentum=0 plan-1 >out
	pd-run --threads=1 --data=data --minibatches=0 --init=$(ls ck/step-*/stage-0.*) plan-1 >again 2>err
	cat out again err
	[ "$(jq -c "select(.event == \"evaluation\") | [.loss, .accuracy]" out)" = \
	  "$(jq -c "select(.event == \"evaluation\") | [.loss, .accuracy]" again)" ]
	grep -q "^pd-run: nothing is left to train: .* ends at step 0; evaluating$" err'

# refused WORDS OPTION...: checks that pd-run refuses these with status 2 in one sentence with the WORDS,
# and starts nothing.
refused() {
	words=$1
	shift
	status 2 pd-run --synthetic "$@" 2>err >out
	cat err
	one_line err
	grep -q "$words" err
	[ ! -s out ]
}

test_ok "another seed is refused" '
	train ck-seed plan-1 --synthetic --minibatches=3 >out
	refused "seed" --checkpoint=ck-seed --resume --seed=2 --minibatches=5 plan-1'
test_ok "another batch size is refused" '
	jq ".profile.batch_size = 8" plan-1 >plan-8
	refused "minibatches of 4" --checkpoint=ck-seed --resume --minibatches=5 plan-8'
test_ok "another model is refused, also where its minibatches are others" '
	profile "$MODELS/mlp.json" 8 >mlp
	plan mlp 1 >plan-mlp
	refused "a checkpoint of .residual., found a plan for .mlp." --checkpoint=ck-seed --resume --minibatches=5 plan-mlp'
test_ok "another optimizer is refused" '
	refused "optimizer=sgd" --checkpoint=ck-seed --resume --minibatches=5 --optimizer=adam plan-1
	train ck-adam plan-1 --synthetic --minibatches=3 --optimizer=adam >out
	refused "optimizer=adam, found --optimizer=adamw" --checkpoint=ck-adam --resume \
		--minibatches=5 --optimizer=adamw plan-1
	refused "optimizer=adam" --checkpoint=ck-adam --resume --minibatches=5 plan-1'
test_ok "a checkpoint of adam that lacks a moment is refused" '
	sed "s/\.second/.secone/g" "$(at ck-adam 3)"/stage-0.safetensors >changed
	mv changed "$(at ck-adam 3)"/stage-0.safetensors
	status 2 pd-run --synthetic --checkpoint=ck-adam --resume --minibatches=5 --optimizer=adam \
		plan-1 2>err >out
	cat err
	one_line err
	grep -q "no complete checkpoint found: .*stage-0.safetensors: tensor .*secone. is damaged" err'
test_ok "a directory that holds checkpoints is refused without --resume" '
	refused "holds checkpoints" --checkpoint=ck-seed --minibatches=5 plan-1'
test_ok "a directory without any is refused with --resume" '
	mkdir ck-empty
	refused "no complete checkpoint" --checkpoint=ck-empty --resume --minibatches=5 plan-1'

test_done
