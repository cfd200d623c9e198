#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Holds profiles by data sheet, plans and replays against what was measured of Megatron-LM on A100 with 80 GB
# (Korthikanti and others, Reducing Activation Recomputation in Large Transformer Models, arXiv 2205.05198):
# the times of one layer (table 4), of iterations (table 5), and memory (figure 1).
#     sh test/bench/megatron.sh [fit]
# The efficiencies of share/devices/a100-80.json are those that fit table 4 best, in steps of 0.02: "fit" looks for them
# again.  Nothing is fitted to table 5.  PD_BUILD names the build tree.  test/README has what came out.
set -e
. "$(dirname "$0")/bench-lib.sh"
PD_DEVICES=$source/share/devices
export PD_DEVICES

# Megatron's kernels of 2022: scores in memory; dropout is part of the sum behind it; an update that also scales, clips and clears gradients.
jq '.attention = "unfused" | .dropout = "fused" | .update_bytes = 56' "$PD_DEVICES/a100-80.json" >"$work/a100.json"

# network LAYERS HIDDEN HEADS: writes one of the paper's.
network() {
	pd-model gpt2 --layers="$1" --hidden="$2" --heads="$3" --sequence=2048 --positions=2048 --vocabulary=51200
}
# What is computed again before backward: all blocks, or attention's core alone, whose scores then are not kept.
blocks='^h[.]' core='^h[.][0-9]+[.]attn$'
# again LAYERS PLAN: prints the plan, every stage of which recomputes the layers whose names match.
again() {
	jq --arg layers "$1" '.stages |= map(.recompute = [.layers[] | select(test($layers))])' "$2"
}
# deviations: reads lines "found expected ..." and prints the mean and the largest deviation in percent.
deviations() {
	awk '{ d = 100 * ($1 / $2 - 1); if (d < 0) d = -d; sum += d; if (d > most) most = d }
		END { printf "%.2f %.2f\n", sum / NR, most }'
}

network 1 6144 64 >"$work/22b-layer.json"
# layer DEVICE: prints found and measured ms of table 4: forward and backward of five ways.
layer() {
	for split in 8 8,sequence; do
		pd-profile --device="$1" --dtype=bf16 --batch-size=4 --tensor=$split "$work/22b-layer.json" |
			jq -r '[.layers[] | select(.name | startswith("h."))] | [(map(.forward_ns) | add),
				(map(.backward_ns) | add), (.[] | select(.name == "h.0.attn") | .forward_ns)] |
				map(. / 1e6) | @tsv'
	done | awk 'NR == 1 { f = $1; b = $2; c = $3 } NR == 2 {
		print f, 7.7, "forward\n" b, 11.9, "backward\n" f, 7.7, "forward, recomputed\n" b + f, 19.5, "backward, recomputed"
		print f, 7.7, "forward, selective\n" b + c, 13.2, "backward, selective"
		print $1, 7.2, "forward, sequence\n" $2, 11.8, "backward, sequence"
		print $1, 7.2, "forward, both\n" $2 + $3, 13.1, "backward, both" }'
}
if [ "$1" = fit ]; then
	for products in $(seq 0.64 0.02 0.86); do
		for memory in $(seq 0.7 0.02 0.92); do
			jq ".efficiency.products = $products | .efficiency.memory = $memory" "$work/a100.json" >"$work/tried.json"
			echo "$(layer "$work/tried.json" | deviations) $products $memory"
		done
	done | sort -g | sed -n '1s/\([^ ]*\) \([^ ]*\) \([^ ]*\) \(.*\)/products \3, memory \4: mean \1 %, at most \2 %/p'
	exit
fi
layer "$work/a100.json" >"$work/table4"
echo "One layer of 22B on 8 devices, 4 samples, in ms (table 4):"
awk '{ what = $0; sub("[^ ]* [^ ]* ", "", what); printf "  %-22s %6.2f  measured %5.1f  %+5.1f %%\n",
	what, $1, $2, 100 * ($1 / $2 - 1) }' "$work/table4"
deviations <"$work/table4" | sed 's/\(.*\) \(.*\)/  mean \1 %, at most \2 %/'

# planned SPLIT MICROBATCHES: leaves the plan.
planned() {
	kind=1f1b
	[ "$chunks" = 1 ] || kind="interleaved --chunks=$chunks"
	stages=$((ranks * chunks))
	each=$((layers / stages))
	list="Et*$each|(t*$each|)*$((stages - 2))t*${each}L"
	[ $stages -gt 1 ] || list=Et*${each}L
	network "$layers" "$hidden" "$heads" >"$work/model.json"
	pd-profile --device="$work/a100.json" --dtype=bf16 --batch-size="$samples" --tensor="$1" "$work/model.json" >"$work/profile.json"
	# shellcheck disable=SC2086
	pd-plan -t "8@300GB/s+12us,$ranks@200GB/s+20us" --schedule=$kind --weights=flush --microbatches="$2" \
		--stages="megatron:$list" --memory=1000TB --memory-margin=0 --recompute=none -q \
		--memory-model=megatron "$work/profile.json" >"$work/plan.json"
}
# iteration SPLIT LAYERS: prints the seconds of one, by replay, and by the form that no plan is needed for.
iteration() {
	planned "$1" "$microbatches"
	again "$2" "$work/plan.json" >"$work/again.json"
	period=$(pd-replay --format=json "$work/again.json" | jq .period_ns)
	jq -r --argjson m "$microbatches" --argjson p "$ranks" --argjson v "$chunks" --argjson n $((layers / ranks)) \
		--arg again "$2" --argjson period "$period" '.profile.layers |
		def sum(which; key): map(select(.name | which) | key // 0) | add;
		def block: test("^h.1[.]"); def head: test("^(ln_f|head|loss)$"); def both: block and test($again);
		((sum(both; .forward_ns) + sum(block; .forward_ns) + sum(block; .backward_ns)) * $n) as $rank |
		(sum(head; .forward_ns) + sum(head; .backward_ns)) as $last |
		[$m * $period, $m * ($rank + $last) + ($p - 1) / $v * $rank + $n * sum(block; .update_ns)] |
		map(. / 1e9) | @tsv' "$work/plan.json"
}
echo
echo "Seconds of an iteration (table 5), replayed, and in closed form:"
while read -r name layers hidden heads ranks chunks microbatches samples full both; do
	while read -r split how measured; do
		layers_again=$blocks
		[ $how = full ] || layers_again=$core
		iteration $split "$layers_again" | awk -v measured=$measured -v name=$name -v how=$how '{
			printf "  %-5s %-10s %6.2f  %+5.1f %%  %6.2f  %+5.1f %%  measured %5.2f\n", name, how, $1,
				100 * ($1 / measured - 1), $2, 100 * ($2 / measured - 1), measured
			print $1, measured >>"'"$work"'/replayed"
			print $2, measured >>"'"$work"'/formula" }'
	done <<-ROWS
	8 full $full
	8,sequence selective $both
	ROWS
done <<'END'
22B 48 6144 64 1 1 1 4 1.42 1.10
175B 96 12288 96 8 3 64 1 18.13 13.75
530B 105 20480 128 35 3 280 1 49.05 37.83
1T 128 25600 160 64 1 512 1 94.42 71.49
END
for how in replayed formula; do
	deviations <"$work/$how" | sed "s/\(.*\) \(.*\)/  $how: mean \1 %, at most \2 %/"
done
echo "  (calculon, an analytical model, does 3.65 and 8.87 %)"

# Memory of the blocks of the first rank: 18 bytes a parameter, and what is kept of the microbatches in flight.
echo
echo "GiB of a device for the blocks, states, activations, and these selective with sequence (figure 1):"
while read -r name layers hidden heads ranks chunks samples states plain both; do
	for split in 8 8,sequence; do
		planned $split $((4 * ranks))
		# forwards of the first rank that are ahead of their backwards, at most
		flight=$(pd-schedule "$work/plan.json" 2>/dev/null | jq -s '[.[] | select(.rank == 0 and (.op == "forward" or
			.op == "backward"))] | reduce .[] as $o ([0, 0]; .[0] += (if $o.op == "forward" then 1 else -1 end) |
			.[1] = ([.[0], .[1]] | max)) | .[1]')
		jq -r --argjson flight "$flight" --argjson each $each --argjson chunks "$chunks" --arg split $split \
			--arg core "$core" '[.profile.layers[] | select(.name | startswith("h.1.")) |
			if $split != "8" and (.name | test($core)) then .stash_bytes = .activation_bytes else . end] |
			[(map(.parameter_bytes // 0) | add) / 4 * 18 * $each * $chunks,
			(map(.stash_bytes) | add) * $flight * $each] | map(. / 8 / 1073741824) | @tsv' "$work/plan.json"
	done | awk -v name="$name" -v states="$states" -v plain="$plain" -v both="$both" 'NR == 1 { s = $1; a = $2 }
		NR == 2 { printf "  %-5s %6.2f (%s) %7.2f (%s) %6.2f (%s)\n", name, s, states, a, plain, $2, both
			print s, states; print a, plain; print $2, both }' | tee "$work/row" | grep "^  "
	grep -v "^  " "$work/row" >>"$work/memory"
done <<'END'
22B 48 6144 64 1 1 4 45.56 59.25 9.56
175B 96 12288 96 8 3 1 45.56 66.84 12.35
530B 105 20480 128 35 3 1 31.64 114.02 23.08
1T 128 25600 160 64 1 1 32.96 131.25 26.56
END
deviations <"$work/memory" | sed 's/\(.*\) \(.*\)/  mean \1 %, at most \2 %/'
