#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares replays with reality.  Four networks run under several plans, each beside its plan in virtual
# time.  First comes the time per minibatch of every run, measured and replayed, and the median by which
# they differ.  Then come the operations of every run: the median duration of each kind on each stage.
# "bytes off" is how far all ranks' memory is from what the plan said.
#     sh test/bench/residuals.sh [sequences | NAME...]
# sequences runs GPT, BERT, GNMT and AWD-LM, small ones, of one to four stages.  NAME runs only these of the
# runs below.
#
# If others took more than OTHERS (5) percent of the processors during a profile or run, it is made again,
# up to TRIES (4) times.  If a profile after a run differs from that before it by more than DRIFT (5)
# percent, the run is done again, with a profile of its own, up to TRIES times.
#
# PD_BUILD names the build tree, DATA the data set (Debian's Fashion-MNIST; if it is absent, all have
# made-up data).  residuals.svg goes to the folder OUT (.).  ROUNDS (3) is how often everything is profiled,
# planned and run again; figures are medians over the rounds.  The script takes a quarter of an hour on two
# quiet processors.
#
# Then comes where the differences come from, in percent of the time: what the processors' clock was slower
# than for the profile (a chain of operations that needs no memory, timed by the profile and by every rank);
# by how much operations took longer besides, which is caches and memory; and what was between operations,
# which is ours: launches, messages, the host.  "range" is what the profile's rounds let be expected; OVER
# has these spread over so many seconds (pd-profile --over).
#
# "spread" is by how much the slowest round is longer than the fastest, in percent of the median, of what
# was measured and of the profile's steps.  It is the machine's own, and no prediction can be better than
# it.
#
# A profile is made anew in each round, of as many workers side by side as the runs keep busy at once, so
# that it and they meet the same machine.  "others" is the share of the processors, in percent, that went to
# other processes during the run: a trace of a machine that is busy with something else says little.  If
# ranks are more than processors they take turns, in the replay too, so their operations take longer than
# the profile says.
set -e
. "$(dirname "$0")/bench-lib.sh"
data=${DATA:-/usr/share/datasets/fashion-mnist}
processors=$(nproc)

# Each line has NAME MODEL BATCH MINIBATCHES RANKS OPTION-OF-PD-PLAN....  All rounds have the cut of the
# first.
cat >"$work/runs" <<'END'
lenet5:1 lenet5 64 300 1 --straight
lenet5:1-1-stash lenet5 64 300 2 --straight
lenet5:2 lenet5 64 300 2 --stages=13x2
cnn:1 fashion-cnn 64 40 1 --straight
cnn:1-1-stash fashion-cnn 64 80 2 --straight
cnn:1-1-gpipe fashion-cnn 64 80 2 --straight --schedule=gpipe --microbatches=4
cnn:1-1-2bw fashion-cnn 64 80 2 --straight --weights=2bw --microbatches=2
cnn:2-1-stash fashion-cnn 64 60 3 --stages=7x2,8x1
cnn:1-1-1-stash fashion-cnn 64 60 3 --stages=3,4,8
resnet18:1-1-stash resnet18 4 24 2 --straight
resnet18:1-1-flush resnet18 4 24 2 --straight --weights=flush --microbatches=4
vgg11:1-1-vertical-sync vgg11 16 40 2 --straight --weights=vertical-sync
vgg11:2 vgg11 16 40 2 --stages=30x2
vgg11:1-1-1-1-stash vgg11 16 40 4 --stages=9,3,4,14
END
for run in "gpt 8 40" "bert 8 40" "gnmt 16 40" "awd-lm 10 40"; do
	for ranks in 1 2 3 4; do
		echo "${run%% *}:$ranks $run $ranks --straight"
	done
done >"$work/sequences"
# These are the networks of sequences.  Layers that share a weight would have to be in one stage, so none
# do.
pd-model gpt --layers=4 --hidden=128 --heads=4 --sequence=128 --vocabulary=256 --untied >"$work/gpt.json"
pd-model bert --layers=4 --hidden=128 --heads=4 --sequence=96 --vocabulary=1000 --untied >"$work/bert.json"
pd-model gnmt --layers=4 --hidden=128 --sequence=24 --vocabulary=2000 >"$work/gnmt.json"
pd-model awd-lm --hidden=256 --embedding=128 --sequence=35 --vocabulary=2000 --lanes=10 --untied \
	>"$work/awd-lm.json"
if [ "$1" = sequences ]; then
	mv "$work/sequences" "$work/runs"
elif [ $# -gt 0 ]; then
	for name in "$@"; do
		grep -h "^$name " "$work/runs" "$work/sequences"
	done >"$work/chosen"
	mv "$work/chosen" "$work/runs"
fi

# profile FILE OPTION...: profiles the run's model, with as many workers as it keeps busy.
profile() {
	made=$1
	shift
	undisturbed "$made" pd-profile --threads=1 --workers="$workers" --batch-size="$batch" \
		${OVER:+--over=$OVER} "$@" "$(model_file "$model")"
}

# once NAME MODEL BATCH MINIBATCHES RANKS OPTION...: runs, and writes a line to $work/time, and to $work/op
# one for each kind of operation and stage.  It leaves in $drift how much longer a step took afterwards, in
# percent.  A profile is made once a round.
once() {
	name=$1 model=$2 batch=$3 minibatches=$4 ranks=$5
	shift 5
	workers=$((ranks < processors ? ranks : processors))
	profile=$work/$model-$workers.profile
	[ -f "$profile" ] || profile "$profile"
	[ ! -f "$work/$name.cut" ] || set -- "$@" --stages="$(cat "$work/$name.cut")"
	pd-plan --gpus="$ranks" "$@" "$profile" >"$work/plan"
	jq -r '[.stages[] | "\(.layers | length)x\(.replicas)"] | join(",")' "$work/plan" \
		>"$work/$name.cut"
	pd-schedule --minibatches="$minibatches" "$work/plan" >"$work/schedule"
	set -- --synthetic
	case $model in lenet5|fashion-cnn) [ ! -d "$data" ] || set -- --data="$data" ;; esac
	undisturbed "$work/done" pd-run "$@" --threads=1 --trace="$work/trace" "$work/schedule"
	ran=$others
	profile "$work/again" --no-link
	drift=$(drift "$profile" "$work/again")
	off=$(jq -r 'select(.event == "done") | [.memory_bytes, .predicted_memory_bytes] | transpose |
		map(.[0] - .[1] | fabs) | add' "$work/done")
	pd-replay "$work/trace" >"$work/report"
	# of the measured durations, replayed, over the measured time
	durations=$(pd-replay --device-speed=1 "$work/trace" |
		awk '/^  replayed with the measured durations/ && match($0, /[-+][0-9.]+ %/) {
			print 1 + substr($0, RSTART, RLENGTH - 2) / 100 }')
	clock=$(jq -r 'select(.event == "done") | (.clock // [1]) | add / length' "$work/done")
	range=$(jq -r 'select(.event == "done") | if .predicted_period_range_ns then
		(if .period == "as predicted" then "inside" else "outside" end) as $where
		| .predicted_period_range_ns | map(. / 1e4 | round / 100) | "\($where),\(.[0])-\(.[1])"
		else "-" end' "$work/done")
	awk -v name="$name" -v others="$ran" -v batch="$batch" -v off="$off" -v clock="$clock" \
		-v durations="$durations" -v range="$range" '
		/^samples per second/ { ms = 1e3 * batch / $4 }
		/^the plan, replayed/ { sub(/.*: /, ""); over = $1 / 100 }
		END { print name, ms, ms / (1 + over), 100 / (1 + over) - 100, others, 1 + over, off, step,
			100 * (clock - 1), 100 * ((1 + over) * durations / clock - 1), 100 * (1 / durations - 1), range }' \
		step="$(jq .step_ns "$profile")" "$work/report" >"$work/time"
	pd-replay --compare="$work/plan" "$work/trace" | awk -v name="$name" '
		function ms(number, unit) {
			return number * (unit == "s" ? 1e3 : unit == "us" ? 1e-3 : unit == "ns" ? 1e-6 : 1)
		}
		/^(forward|backward|backward_input|backward_weight|step), stage/ {
			measured = ms($5, $6)
			replayed = ms($7, $8)
			print name, $1 $3, replayed, measured, \
				(measured > 0 ? 100 * (replayed / measured - 1) : 0)
		}' >"$work/op"
}

: >"$work/times"
: >"$work/ops"
for round in $(seq "${ROUNDS:-3}"); do
	rm -f "$work"/*.profile
	while read -r run; do
		for try in $(seq "${TRIES:-4}"); do
			once $run </dev/null
			[ "${drift#-}" -gt "${DRIFT:-5}" ] || break
			echo "${run%% *}: a step takes $drift % longer than before" >&2
			rm "$profile"
		done
		cat "$work/time" >>"$work/times"
		cat "$work/op" >>"$work/ops"
		echo "round $round: $(tail -n 1 "$work/times" | awk '{ printf "%s measured %.1f ms, " \
			"replayed %.1f, others %d %%", $1, $2, $3, $5 }')" >&2
	done <"$work/runs"
done

# column FILE KEY N [KEY2]: prints the median of a column over the rounds.
column() {
	awk -v key="$2" -v n="$3" -v key2="$4" '$1 == key && (key2 == "" || $2 == key2) { print $n }' \
		"$work/$1" | median
}
# spread NAME N: prints how far the rounds' values of a column of the times lie apart, in percent of their
# median.
spread() {
	awk -v key="$1" -v n="$2" '$1 == key { print $n }' "$work/times" | sort -g | awk '{ v[NR] = $1 }
		END { middle = (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2
			printf "%.1f\n", (middle > 0 ? 100 * (v[NR] - v[1]) / middle : 0) }'
}
printf '%-26s %10s %10s %9s %8s %8s %8s %9s  %s\n' "ms per minibatch" measured replayed difference \
	"spread %" "profile" "others %" "bytes off" "layers by stage"
while read -r name rest; do
	printf '%-26s %10.2f %10.2f %+8.1f%% %8.1f %8.1f %8.0f %9d  %s\n' "$name" \
		"$(column times "$name" 2)" "$(column times "$name" 3)" "$(column times "$name" 4)" \
		"$(spread "$name" 2)" "$(spread "$name" 8)" "$(column times "$name" 5)" \
		"$(column times "$name" 7)" "$(cat "$work/$name.cut")"
	spread "$name" 2 >>"$work/spreads"
	printf 'measured\t%s\t%s\t1\n' "$name" "$(column times "$name" 6)" >>"$work/drawn"
	column times "$name" 4 | tr -d - >>"$work/differences"
done <"$work/runs"
printf 'median of the differences, whatever their sign: %.1f %% of measured (worst %.1f %%)\n' \
	"$(median <"$work/differences")" "$(sort -g "$work/differences" | tail -n 1)"
printf "the machine's own spread over %d rounds: median %.1f %% (worst %.1f %%)\n\n" "${ROUNDS:-3}" \
	"$(median <"$work/spreads")" "$(sort -g "$work/spreads" | tail -n 1)"

printf '%-26s %10s %10s %10s %10s  %s\n' "longer than replayed, %" "in all" clock caches between \
	"range, ms (last round)"
while read -r name rest; do
	printf '%-26s %+10.1f %+10.1f %+10.1f %+10.1f  %s\n' "$name" \
		"$(column times "$name" 6 | awk '{ print 100 * ($1 - 1) }')" "$(column times "$name" 9)" \
		"$(column times "$name" 10)" "$(column times "$name" 11)" \
		"$(awk -v key="$name" '$1 == key { range = $12 } END { sub(/,/, " ", range); print range }' "$work/times")"
done <"$work/runs"
printf 'runs inside their range: %d of %d\n\n' "$(grep -c ' inside,' "$work/times" || true)" "$(wc -l <"$work/times")"
printf '%-26s %-20s %10s %10s %9s\n' "ms, medians" "operation, stage" measured replayed difference
awk -f "$source/test/bench/plot.awk" -v kind=bars -v width=1100 -v other=replayed \
	-v ylabel="measured over replayed" -v title="Time per minibatch, measured and replayed" \
	"$work/drawn" >"$out/residuals.svg"
awk '!(($1, $2) in seen) { seen[$1, $2]; print $1, $2 }' "$work/ops" | while read -r name op; do
	printf '%-26s %-20s %10.3f %10.3f %+8.1f%%\n' "$name" "$(echo "$op" | tr , ' ')" \
		"$(column ops "$name" 4 "$op")" "$(column ops "$name" 3 "$op")" \
		"$(column ops "$name" 5 "$op")"
done
