#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ZB-V against 1F1B, interleaved stages and ZB-H1, on two and on four ranks of this machine: what a minibatch takes as
# pd-plan predicts it, as pd-replay replays the plan, and as pd-run does it.
#     sh test/bench/schedules.sh [SCHEDULE...]
# The network is a GPT of bytes (pd-model gpt-bytes with SIZE), with MICROBATCHES (4) of 4 samples to an update and
# weights flush.  Each of ROUNDS (3) rounds profiles anew, with as many workers side by side as there are processors,
# up to the ranks, and trains MINIBATCHES (40) with each schedule.  The table has medians, the error of the plan in
# percent, how many times as long 1F1B takes, planned and measured, and the most memory of a rank.  If others took
# more than OTHERS (5) percent of the processors during a profile or run, it is made again, up to TRIES (4) times.
# PD_BUILD names the build tree.  The script takes some five minutes on two quiet processors.
#
# Four ranks take turns on two processors.  There a schedule without bubbles gains little: a processor whose one rank
# waits computes for the other.
set -e
. "$(dirname "$0")/bench-lib.sh"
[ $# -gt 0 ] || set -- 1f1b interleaved zb-h1 zb-v
microbatches=${MICROBATCHES:-4} minibatches=${MINIBATCHES:-40} processors=$(nproc)
# shellcheck disable=SC2086
pd-model gpt-bytes --dropout=0 ${SIZE:---layers=8 --hidden=128 --heads=4 --sequence=128} >"$work/model.json"

# ms FILE: prints what a minibatch takes, in milliseconds, by the rate in a report.
ms() {
	awk -v samples=$((4 * microbatches)) '/^samples per second/ { print 1e3 * samples / $4; exit }' "$1"
}

# once RANKS SCHEDULE: plans, replays and trains, and adds a line to $work/times.
once() {
	pd-plan --quiet --straight --gpus="$1" --processors="$processors" --schedule="$2" --weights=flush \
		--microbatches="$microbatches" --min-gain=0 "$work/profile" >"$work/plan"
	[ "$(jq '[.stages[].ranks[]] | unique | length' "$work/plan")" -eq "$1" ] ||
		echo "$2: the plan leaves some of $1 ranks idle" >&2
	pd-replay "$work/plan" >"$work/replayed"
	undisturbed "$work/done" pd-run --synthetic=$((4 * microbatches)) --threads=1 --minibatches="$minibatches" \
		--report-every=1000000 --trace="$work/trace" "$work/plan"
	pd-replay "$work/trace" >"$work/measured"
	jq -r --arg ranks "$1" --arg name "$2" --arg others "$others" --arg replayed "$(ms "$work/replayed")" \
		--arg measured "$(ms "$work/measured")" '[$ranks, $name, .microbatches * .predicted.period_ns / 1e6,
		$replayed, $measured, .predicted.memory_bytes / 1e6, $others] | join(" ")' "$work/plan" >>"$work/times"
	tail -n 1 "$work/times" | awk '{ printf "%s ranks, %s: planned %.1f ms, replayed %.1f, measured %.1f, others %d %%\n",
		$1, $2, $3, $4, $5, $7 }' >&2
}

: >"$work/times"
for round in $(seq "${ROUNDS:-3}"); do
	for ranks in 2 4; do
		undisturbed "$work/profile" pd-profile --threads=1 --batch-size=4 --iterations=9 \
			--workers=$((ranks < processors ? ranks : processors)) "$work/model.json" </dev/null
		for schedule in "$@"; do
			once $ranks "$schedule"
		done
	done
done

# column RANKS SCHEDULE N: prints the median of a column over the rounds.
column() {
	awk -v ranks="$1" -v name="$2" -v n="$3" '$1 == ranks && $2 == name { print $n }' "$work/times" | median
}
printf '%5s %-12s %9s %9s %9s %7s %14s %8s %8s\n' ranks schedule planned replayed measured error "1f1b's times" MB others
for ranks in 2 4; do
	for schedule in "$@"; do
		for n in 3 4 5 6 7; do
			column $ranks "$schedule" $n
		done | paste -sd ' ' | awk -v ranks=$ranks -v name="$schedule" -v planned="$(column $ranks 1f1b 3)" \
			-v measured="$(column $ranks 1f1b 5)" '{ printf "%5d %-12s %9.1f %9.1f %9.1f %6.1f%% %6.3f %6.3f  %8.1f %7d%%\n",
			ranks, name, $1, $2, $3, 100 * ($1 / $3 - 1), planned / $1, measured / $3, $4, $5 }'
	done
done
