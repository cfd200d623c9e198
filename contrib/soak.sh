#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains small networks and disturbs the training at random moments, again and again.  A disturbance kills
# pd-run or a worker, or signals the whole process group, as timeout(1), a closed terminal and batch systems
# do.  The training is then resumed.  The script ends with status 1 at the first error:
#
#   - The run does not end in time, or not with the status and the words that the manual has.
#   - A process, shared memory or a temporary file is left.
#   - A training that has ended has other bits than one that nobody disturbed.
#
#     sh contrib/soak.sh [COUNT [SEED]]   (default: 1000 disturbances, seed 1)
#
# PD_BUILD names the build tree, KINDS the disturbances (all: kill worker term twice hup int), SECONDS_MOST
# the seconds that an end may take (30), FIRST the round to begin with (1).  1000 disturbances take about
# half an hour.
here=$(cd "$(dirname "$0")/.." && pwd)
count=${1:-1000} seed=${2:-1}
: "${KINDS:=kill worker term twice hup int}" "${SECONDS_MOST:=30}" "${FIRST:=1}"
PD_SOURCE=$here
export PD_SOURCE
. "$here/test/test-lib.sh"
. "$here/test/train-lib.sh"
minibatches=400

# wrong WORDS: reports an error, and exits without removing the files, for whoever wants to look.
wrong() {
	echo "round $round of seed $seed ($kind, $name): $*"
	echo "again: FIRST=$life_round KINDS='$KINDS' sh contrib/soak.sh $count $seed; see $PWD"
	for file in out err; do
		[ ! -s $file ] || { echo "$file:"; tail -n 5 $file | sed 's/^/    /'; }
	done
	trap - EXIT
	exit 1
}

# random N SALT: prints a number below N, which is the same for the same seed, round and salt.
random() {
	awk -v n="$1" -v a="$seed" -v b="$round" -v c="$2" 'BEGIN {
		srand(((a * 7919 + b) * 10473 + c * 1299709) % 2147483647)
		rand()
		print int(rand() * n)
	}'
}

residual_model >residual.json
profile residual.json 4 >residual
# made NAME REPLICAS OPTIONS [PLAN-OPTIONS]: makes plan-NAME with these options of pd-plan, and notes the
# options of pd-run that it is trained with.
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

# begin COMMAND OPTION...: replaces this subshell by the command, which runs pd-run with the plan of $name.
begin() {
	exec env --default-signal=INT,TERM,HUP "$@" --device="${PD_TEST_DEVICE:-cpu}" --threads=1 \
		--synthetic --minibatches=$minibatches $(cat "options-$name") "plan-$name"
}

# memory: lists the shared memory of the machine, including that of other programs.
memory() {
	ls /dev/shm 2>/dev/null | grep '^ucx_'
	awk 'NR > 1 { print "sysv", $2 }' /proc/sysvipc/shm
}

# of_nobody: prints those of the names on standard input that no living process uses.
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

# clean: checks that the workers are gone, with all that they had, and gives them a moment for it.
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

# newest: prints the step of the newest checkpoint, or 0.
newest() {
	ls ck 2>/dev/null | sed -n 's/^step-0*//p' | sort -n | tail -n 1 | grep . || echo 0
}

# running PROCESS: succeeds if the process has not ended; a zombie has ended.
running() {
	case $(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) in
	Z | '') false ;;
	esac
}

# disturb: disturbs the run at a random moment, within the time that an undisturbed training takes.
disturb() {
	sleep "$(random "$(cat "took-$name")" 3 | awk '{ print 0.8 * $1 / 1000 }')"
	workers=$(children "$run")
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

# judge: checks how the run ended.
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
		# Before pd-run handles signals, it ends like any other program.
		[ -n "$last" ] || return 0
		[ "$outcome" = stopped ] || wrong "not stopped in order: $last"
		stopped=$(echo "$last" | jq .step)
		[ "$stopped" -eq "$(newest)" ] || wrong "stopped at $stopped, checkpoint $(newest)"
		;;
	esac
}

# one: disturbs a training once; if $fresh, a new training.
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
	# pd-run leads a process group of its own, as if a shell at a terminal had started it.
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
