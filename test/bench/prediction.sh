#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares what pd-plan predicts with what pd-run measures, on this machine.  Each of three models runs on
# one rank, on two stages cut where pd-plan cuts them, on two stages cut elsewhere, on two replicas, and by
# the plan that pd-plan prefers on two devices.  The table has the period of a minibatch, predicted and
# measured, in medians of ROUNDS (3) rounds.  Below it are the median error, and whether the preferred plan
# is the fastest measured, or within 5 % of it.
#     sh test/bench/prediction.sh [MODEL...]
# If others took more than OTHERS (5) percent of the processors during a profile or run, it is made again,
# up to TRIES (4) times.  PD_BUILD names the build tree, DATA the data set (Debian's Fashion-MNIST; if it is
# absent, all have made-up data).  prediction.svg goes to the folder OUT (.).  The script takes about six
# minutes on two processors.
#
# pd-plan is told how many processors there are, since what arrives at a rank is copied by the processor
# that computes there.  Plans have at most two ranks, as many as processors on a machine of two.  More would
# take turns (residuals.sh has such).  Each round profiles anew, with as many workers side by side as the
# plan keeps busy, since they share caches and memory.  "others" is the share of the processors, in percent,
# that went to other processes during the run; if it is more than a few, the figures say little.
set -e
. "$(dirname "$0")/bench-lib.sh"
data=${DATA:-/usr/share/datasets/fashion-mnist}
processors=$(nproc)

# Each line has MODEL BATCH MINIBATCHES CUT; CUT is the cut elsewhere, in percent of the layers.
cat >"$work/models" <<'END'
lenet5 64 300 40
fashion-cnn 64 60 30
vgg11 16 30 50
END
if [ $# -gt 0 ]; then
	for name in "$@"; do
		grep "^$name " "$work/models"
	done >"$work/chosen"
	mv "$work/chosen" "$work/models"
fi

# once MODEL PLAN MINIBATCHES PROFILE OPTION...: plans and runs, and adds a line to $work/times.
once() {
	model=$1 name=$2 minibatches=$3 profile=$4
	shift 4
	cut=$work/$model-$name.cut
	[ ! -f "$cut" ] || set -- --gpus=2 --stages="$(cat "$cut")"
	pd-plan --processors="$processors" "$@" "$profile" >"$work/plan"
	# All rounds have the plan of the first.
	jq -r '[.stages[] | "\(.layers | length)x\(.replicas)"] | join(",")' "$work/plan" >"$cut"
	set -- --synthetic="$minibatches"
	case $model in
	lenet5|fashion-cnn) [ ! -d "$data" ] || set -- --data="$data" --no-evaluate ;;
	esac
	undisturbed "$work/done" pd-run "$@" --threads=1 --minibatches="$minibatches" \
		--report-every=1000000 --trace="$work/trace" "$work/plan"
	measured=$(pd-replay "$work/trace" | awk '/^samples per second/ { print $4 }')
	jq -r --arg model "$model" --arg name "$name" --argjson rate "$measured" \
		--arg others "$others" '
		(1e3 * .profile.batch_size / $rate) as $measured | (.predicted.period_ns / 1e6) as $p |
		[$model, $name, $p, $measured, 100 * ($p / $measured - 1), $others] | join(" ")' \
		"$work/plan" >>"$work/times"
	tail -n 1 "$work/times" | awk -v round="$round" '{ printf "round %d: %s %s predicted %.2f ms, " \
		"measured %.2f, others %d %%\n", round, $1, $2, $3, $4, $6 }' >&2
}

: >"$work/times"
for round in $(seq "${ROUNDS:-3}"); do
	while read -r model batch minibatches part; do
		for workers in 1 2; do
			undisturbed "$work/$workers.profile" pd-profile --threads=1 --workers=$workers \
				--batch-size="$batch" --iterations=9 "$(model_file "$model")" </dev/null
		done
		layers=$(jq '.layers | length' "$work/1.profile")
		other=$((layers * part / 100))
		once "$model" one-rank "$minibatches" "$work/1.profile" --gpus=2 --stages="$layers"
		once "$model" two-stages "$minibatches" "$work/2.profile" --gpus=2 --straight
		once "$model" cut-elsewhere "$minibatches" "$work/2.profile" --gpus=2 \
			--stages="$other,$((layers - other))"
		once "$model" two-replicas "$minibatches" "$work/2.profile" --gpus=2 \
			--stages="${layers}x2"
		once "$model" preferred "$minibatches" "$work/2.profile" --gpus=2
	done <"$work/models"
done

# column MODEL PLAN N: prints the median of a column over the rounds.
column() {
	awk -v model="$1" -v name="$2" -v n="$3" '$1 == model && $2 == name { print $n }' \
		"$work/times" | median
}
printf '%-12s %-14s %-12s %10s %10s %9s %8s\n' model plan stages "predicted" "measured" error "others %"
: >"$work/errors"
: >"$work/verdicts"
while read -r model batch minibatches part; do
	: >"$work/measured"
	for name in one-rank two-stages cut-elsewhere two-replicas preferred; do
		predicted=$(column "$model" $name 3) measured=$(column "$model" $name 4)
		awk -v p="$predicted" -v m="$measured" 'BEGIN { print 100 * (p / m - 1) }' >"$work/error"
		printf '%-12s %-14s %-12s %10.2f %10.2f %+8.1f%% %8.0f\n' "$model" $name \
			"$(cat "$work/$model-$name.cut")" "$predicted" "$measured" \
			"$(cat "$work/error")" "$(column "$model" $name 6)"
		awk -v what="$model, $name" -v p="$predicted" -v m="$measured" 'BEGIN {
			printf "measured\t%s\t%s\t1\n", what, m / p }' >>"$work/drawn"
		echo "$measured $(cat "$work/$model-$name.cut")" >>"$work/measured"
		[ $name = preferred ] || tr -d - <"$work/error" >>"$work/errors"
	done
	# A plan that is there twice, once as preferred, counts by the mean of both.
	awk -v model="$model" '{ sum[$2] += $1; n[$2]++; last = $2 }
		END {
			best = 1e99
			for (cut in sum)
				if (sum[cut] / n[cut] < best) { best = sum[cut] / n[cut]; fastest = cut }
			over = 100 * (sum[last] / n[last] / best - 1)
			verdict = "the same"
			if (last != fastest)
				verdict = sprintf("%.1f %% slower%s", over, over <= 5 ? "" : ", more than 5 %")
			printf "%s: preferred %s, fastest measured %s: %s\n", model, last, fastest, verdict
		}' "$work/measured" >>"$work/verdicts"
done <"$work/models"
echo
awk -f "$source/test/bench/plot.awk" -v kind=bars -v width=1100 -v other=predicted \
	-v ylabel="measured over predicted" -v title="Time per minibatch, measured and predicted by pd-plan" \
	"$work/drawn" >"$out/prediction.svg"
printf 'median error of %d plans, whatever its sign: %.1f %% (goal: under 10 %%; worst %.1f %%)\n' \
	"$(wc -l <"$work/errors")" "$(median <"$work/errors")" "$(sort -g "$work/errors" | tail -n 1)"
cat "$work/verdicts"
