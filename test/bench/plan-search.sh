#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures how good the plans are that the search finds.  Two builds plan 100 random networks (FIRST to
# LAST) on five machines, and their plans are compared by their periods, which are those of replays.  All
# devices may be used, however little one brings, and updates have as many microbatches in both.
#     OTHER=build-of-another-search sh test/bench/plan-search.sh
# PD_BUILD names the build tree, OTHER the one it is compared with.  For a search with ten times the work
# multiply in the other tree ESTIMATED, REPLAYED, LEAST_WORK, MOST_WORK, LOOKED, PATIENCE and FRUITLESS
# (lib/planner/search/simulated.c), DOUBTFUL (contest.c), and PD_CONTEST_CHANGED (contest.h) by
# ten.  The goal is that no plan of PD_BUILD is more than 1 % slower.
#
# A line for each network goes to plan-search.csv in OUT (.): its kind, machine, weights, both periods in ns
# and both processor times in s.  Then come how many are slower and faster by more than 1 %, the worst, and
# the sums of processor time.
set -e
. "$(dirname "$0")/bench-lib.sh"
out=$(cd "$out" && pwd)
other=$(cd "${OTHER:?names a build tree}" && pwd)
cd "$work"

# network SEED KIND >FILE: writes a profile of 8 to 80 layers: a chain, or one with skips from anywhere,
# residual blocks, modules of branches, or a way back up that meets the way down.
network() {
	awk -v seed="$1" -v kind="$2" 'function below(n) { return int(rand() * n) }
	function spread(low, high) { return low * exp(rand() * log(high / low)) }
	function join(l) { return inputs (inputs == "" ? "" : ", ") "\"l" l "\"" }
	function branches(p) {          # Branches have two layers each, from a join to the next.
		p = (l - 1) % (2 * width + 1)
		if (p == 0)
			from = l - 1
		if (p < 2 * width && l < n - 1) {
			inputs = ""
			inputs = join(p % 2 ? l - 1 : from)
			return
		}
		for (i = from + 2; i < l - 1; i += 2)
			inputs = join(i)
	}
	BEGIN {
		srand(seed)
		rand()
		n = int(spread(8, 80)); bytes = spread(2e5, 1e7); parameters = spread(1e6, 4e7)
		width = 2 + below(4)
		printf "{\"format\": \"pd-profile\", \"version\": 1, \"name\": \"made up\"," \
			" \"batch_size\": 8, \"dtype\": \"f32\"," \
			" \"device\": {\"kind\": \"cpu\", \"name\": \"none\"}, \"layers\": ["
		for (l = 0; l < n; l++) {
			inputs = l ? "\"l" l - 1 "\"" : ""
			if (kind == "skips" && l > 2 && rand() < 0.2)
				inputs = join(below(l - 1))
			if (kind == "blocks" && l > 4 && l % 4 == 0)
				inputs = join(l - 4)
			if (kind == "branches" && l > 0)
				branches()
			if (kind == "back-up" && l > n / 2 && l % 3 == 0 && n - 1 - l < l - 1)
				inputs = join(n - 1 - l)
			printf "%s{\"name\": \"l%d\", \"inputs\": [%s], \"forward_ns\": %d," \
				" \"backward_ns\": %d, \"activation_bytes\": %d," \
				" \"parameter_bytes\": %d}", l ? ", " : "", l, inputs,
				100000 + below(1900000), 200000 + below(3800000),
				1 + bytes * (0.2 + 1.6 * rand()),
				4 * int(parameters * (0.1 + 1.8 * rand() * rand()) / 4)
		}
		print "]}"
	}'
}

# planned PROGRAM ARGUMENT...: prints the period in ns, and seconds of processor time.
planned() {
	( "$@" >plan.json; times >times )
	jq .predicted.period_ns plan.json
	sed -n '2s/[ms]/ /gp' times | awk '{ print $1 * 60 + $2 + $3 * 60 + $4 }'
}

echo "network,kind,machine,weights,ns,seconds,other ns,other seconds" >plan-search.csv
for n in $(seq "${FIRST:-1}" "${LAST:-100}"); do
	set -- 8@1GB/s 4@10GB/s,4@1GB/s 16@3GB/s+20us 2@8GB/s,2@2GB/s,3@500MB/s 20@500MB/s
	shift $(((n - 1) / 5 % 5))
	machine=$1
	set -- chain skips blocks branches back-up
	shift $(((n - 1) % 5))
	kind=$1
	set -- stash 2bw flush stash
	shift $(((n - 1) / 25 % 4))
	weights=$1
	set -- --min-gain=0 -t "$machine" --weights="$weights"
	[ "$weights" = stash ] || set -- "$@" --microbatches=24
	network "$n" "$kind" >network.json
	ours=$(planned pd-plan "$@" network.json | paste -sd ,)
	theirs=$(planned "$other/bin/pd-plan" "$@" network.json | paste -sd ,)
	echo "$n,$kind,\"$machine\",$weights,$ours,$theirs" | tee -a plan-search.csv
done
cp plan-search.csv "$out"
awk -F , 'NR > 1 { ratio = $(NF - 3) / $(NF - 1); ours += $(NF - 2); theirs += $NF
		slower += ratio > 1.01; faster += ratio < 0.99; if (ratio > worst) worst = ratio }
	END { printf "of %d networks %d are slower by more than 1 %%, at most by %.1f %%, and %d faster; " \
		"%.1f s against %.1f s\n", NR - 1, slower, 100 * (worst - 1), faster, ours, theirs }' plan-search.csv
