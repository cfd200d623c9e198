#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains small networks and ends the training at random moments, again and again: kills pd-run,
# kills a worker, or signals the whole process group as timeout(1), a closed terminal and batch
# systems do.  What is left is resumed.  Ends with status 1 at the first thing that is wrong:
#
#   - the run does not end in SECONDS, or not with the status and the words that the manual has;
#   - a process, shared memory or a temporary file is left;
#   - a training that is done at last has other bits than one that nobody disturbed.
#
#     sh contrib/soak.sh [COUNT [SEED]]   (default: 1000 disturbances, seed 1)
#
# PD_BUILD names the build tree, KINDS what is done (default: all of them), SECONDS_MOST how long an
# end may take (default 30), FIRST the round to begin with.  COUNT=1000 takes about half an hour.
here=$(cd "$(dirname "$0")/.." && pwd)
count=${1:-1000} seed=${2:-1}
: "${KINDS:=kill worker term twice hup int}" "${SECONDS_MOST:=30}" "${FIRST:=1}"
PD_SOURCE=$here
export PD_SOURCE
. "$here/test/test-lib.sh"
. "$here/test/train-lib.sh"
minibatches=400

# wrong WORDS: says so and keeps everything for who wants to look.
wrong() {
	echo "round $round of seed $seed ($kind, $name): $*"
	echo "again: FIRST=$life_round KINDS='$KINDS' sh contrib/soak.sh $count $seed; see $PWD"
	for file in out err; do
		[ ! -s $file ] || { echo "$file:"; tail -n 5 $file | sed 's/^/    /'; }
	done
	trap - EXIT
	exit 1
}

# random N SALT: a number below N, the same for the same seed and round.
random() {
	awk -v n="$1" -v a="$seed" -v b="$round" -v c="$2" 'BEGIN {
		srand(((a * 7919 + b) * 10473 + c * 1299709) % 2147483647)
		rand()
		print int(rand() * n)
	}'
}

residual_model >residual.json
profile residual.json 4 >residual
# NAME REPLICAS [OPTION of pd-plan]...: plans, with the options that they are trained with.
made() {
	made_name=$1 made_replicas=$2 made_options=$3
	plan_with="$4"
	plan residual $made_replicas >"plan-$made_name" || exit 99
	plan_with=
	echo "$made_options" >"options-$made_name"
	names="$names $made_name"
}
names=
made straight "1 1 1" "--lr=0.002"
made replicas "2 1" "--lr=0.002 --weight-decay=0.001"
made middle "1 2 1" "--lr=0.002"
made adam "1 1" "--optimizer=adam --lr=0.001"
made sync "1 1 1" "--lr=0.002" "--weights=vertical-sync"
made double "1 1" "--lr=0.002 --clip-grad-norm=1" "--weights=2bw --microbatches=2"

# begin COMMAND OPTION...: pd-run, in the place of this subshell.
begin() {
	exec env --default-signal=INT,TERM,HUP "$@" --device="${PD_TEST_DEVICE:-cpu}" --threads=1 \
		--synthetic --minibatches=$minibatches $(cat "options-$name") "plan-$name"
}

# What shared memory there is, other people's too.
memory() {
	ls /dev/shm 2>/dev/null | grep '^ucx_'
	awk 'NR > 1 { print "sysv", $2 }' /proc/sysvipc/shm
}

# of_nobody: of the names on standard input, those that no living process uses.
of_nobody() {
	while read -r what number; do
		if [ "$what" = sysv ]; then
			[ "$(awk -v id="$number" 'NR > 1 && $2 == id { print $7 }' \
				/proc/sysvipc/shm)" != 0 ] || echo "$what $number"
		else
			cat /proc/[0-9]*/maps 2>/dev/null | grep -qF "$what" || echo "$what"
		fi
	done
}

# clean: the workers are gone and so is what they had; they are given a moment for it.
clean() {
	for try in $(seq 50); do
		left=$(memory | grep -vxF -f before | of_nobody)
		for process in $workers $run; do
			case $(cat "/proc/$process/comm" 2>/dev/null) in
			pd-*) left="$left $process" ;;
			esac
		done
		[ -n "$left" ] || break
		sleep 0.1
	done
	[ -z "$left" ] || wrong "left: $left"
	left=$(ls -A | grep -vx "before\|ck\|err\|out\|names\|residual.*\|plan-.*\|options-.*\|took-.*\|whole-.*")
	[ -z "$left" ] || wrong "files left: $left"
}

# newest: the step of the newest checkpoint, or 0.
newest() {
	ls ck 2>/dev/null | sed -n 's/^step-0*//p' | sort -n | tail -n 1 | grep . || echo 0
}

# running PROCESS: it has not ended, whether or not somebody knows.
running() {
	case $(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) in
	Z | '') false ;;
	esac
}

# disturb: at a moment of its own, by the time that an undisturbed training takes.
disturb() {
	sleep "$(random "$(cat "took-$name")" 3 | awk '{ print 0.8 * $1 / 1000 }')"
	workers=$(cat "/proc/$run/task/$run/children" 2>/dev/null)
	case $kind in
	kill) kill -KILL "$run" ;;
	worker)
		set -- $workers
		[ $# -gt 0 ] || return
		shift "$(random $# 4)"
		kill -KILL "$1"
		;;
	term) kill -TERM -- "-$run" ;;
	twice) kill -TERM -- "-$run" && kill -TERM -- "-$run" ;;
	hup) kill -HUP -- "-$run" ;;
	int) kill -INT -- "-$run" ;;
	esac 2>/dev/null
}

# judge: how the run ended.
judge() {
	last=$(tail -n 1 out)
	outcome=$(echo "$last" | jq -r '.outcome // empty' 2>/dev/null)
	case $kind in
	kill) expected=137 ;;
	worker) expected=3 ;;
	hup) expected=129 ;;
	int) expected=130 ;;
	*) expected=143 ;;
	esac
	if [ "$ended" -eq 0 ]; then
		[ "$outcome" = done ] || wrong "status 0, but $last"
		return
	fi
	[ "$ended" -eq $expected ] || wrong "status $ended, expected $expected"
	case $kind in
	kill) ;;
	worker)
		[ "$(grep -vc 'goes on from step' err)" -eq 1 ] || wrong "not one sentence"
		grep -q 'rank [0-9]* (stage .*killed by signal 9' err || wrong "not who was killed"
		;;
	*)
		# before it listens it ends like any other program
		[ -n "$last" ] || return 0
		[ "$outcome" = stopped ] || wrong "not stopped in order: $last"
		stopped=$(echo "$last" | jq .step)
		[ "$stopped" -eq "$(newest)" ] || wrong "stopped at $stopped, checkpoint $(newest)"
		;;
	esac
}

# one: a disturbance.  $fresh: of a new training.
one() {
	if $fresh; then
		rm -rf ck
		life_round=$round
		set -- $names
		shift "$(random $# 1)"
		name=$1
		fresh=false
		if [ ! -d "whole-$name" ]; then
			since=$(date +%s%N)
			(begin pd-run --checkpoint="whole-$name" --checkpoint-every=5) >out 2>err ||
				wrong "the undisturbed training failed"
			echo $((($(date +%s%N) - since) / 1000000)) >"took-$name"
		fi
	fi
	set -- $KINDS
	shift "$(random $# 2)"
	kind=$1
	step=$(newest)
	[ "$step" -eq 0 ] && again= || again=--resume
	memory >before
	echo none >>before
	# pd-run leads a process group of its own, as a shell at a terminal has it
	(begin setsid pd-run --checkpoint=ck --checkpoint-every=$((1 + $(random 9 5))) $again) \
		>out 2>err &
	run=$!
	disturb
	since=$(date +%s)
	while running "$run"; do
		[ $(($(date +%s) - since)) -le "$SECONDS_MOST" ] || {
			kill -KILL "$run"
			wrong "it had not ended after $SECONDS_MOST s"
		}
		sleep 0.02
	done
	ended=0
	{ wait "$run" || ended=$?; } 2>/dev/null
	judge
	clean
	tally="$tally $kind"
	[ "$ended" -eq 0 ] || return 0
	diff -r "$(at "whole-$name" $minibatches)" "$(at ck $minibatches)" >err ||
		wrong "the bits differ"
	left=$(ls -A ck | grep -v '^step-')
	[ -z "$left" ] || wrong "left in ck: $left"
	trained=$((trained + 1))
	fresh=true
}

round=$FIRST fresh=true trained=0 tally= workers=
last_round=$((FIRST + count - 1))
while [ "$round" -le "$last_round" ]; do
	one
	[ $((round % 25)) -ne 0 ] || echo "$round: $trained trainings done, all bits equal"
	round=$((round + 1))
done
echo "$tally" | tr ' ' '\n' | sed '/^$/d' | sort | uniq -c | awk '
	{ printf "%s%d %s", n++ ? ", " : "", $1, $2 }
	END { print "" }'
echo "$count disturbances, $trained trainings done, all bits equal, nothing left"
