#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans the networks of the papers, with profiles of our own, beside what the papers measured.  These are
# GNMT-8 and GNMT-16 on the machines of PipeDream's evaluation (SOSP 2019, table 1), and GPT and BERT of 2.2
# billion parameters on one and eight servers of PipeDream-2BW's (ICML 2021, figures 6 and 10).
#     sh test/bench/papers-plans.sh [gnmt] [gpt] [bert]            without a name: all
# PD_BUILD names the build tree.  PROFILES is a folder where profiles are kept, and taken from if they are
# there.  Making them takes some three minutes on a quiet processor, and 8 GB.  BEST=yes also has pd-plan
# find a plan for each of the other rules, which takes minutes each; otherwise they get 2BW's stages.
#
# There is no V100 here, so a profile is made as follows.  pd-profile measures layers on the processor:
# every layer of GNMT of full size with 8 samples, and of a GPT or BERT of full width with one block and one
# sample of 512 tokens, in bf16.  Blocks are alike, so the figures of one stand for all 32.  Sizes are those
# of the microbatch: activations and temporaries grow in proportion, and parameters stay.  Memory is 16 GB.
# Then all times are multiplied by one factor, so that a microbatch takes what it takes in the paper:
#
#     GNMT        the released profiles: 89.4 ms for 32 x 47.5 tokens (GNMT-8), 520.5 ms for 128 x 25
#     GPT, BERT   figure 12 of PipeDream-2BW: 22, 34, 39, 42 and 43.5 sequences a second on 8 devices with
#                 microbatches of 1, 2, 4, 8 and 16, recomputed, which is 4/3 of the time
#
# So the processor decides how layers share that time, not the GPU.  An update moves 20 bytes for a
# parameter at 900 GB/s.  GPT and BERT are planned with an output layer of their own, since layers that
# share a weight would have to be in one stage.  test/README says where figures differ, and why.
set -e
. "$(dirname "$0")/bench-lib.sh"
nvlink=30GB/s fast=3.125GB/s
profiles=${PROFILES:-$work}
mkdir -p "$profiles"
[ $# -gt 0 ] || set -- gnmt gpt bert

# measured NAME BATCH TYPE OPTION-OF-PD-MODEL...: makes $profiles/NAME.profile, unless it is there.
measured() {
	file=$profiles/$1.profile batch=$2 type=$3
	shift 3
	[ -s "$file" ] && return 0
	pd-model "$@" >"$work/model"
	pd-profile --no-link --threads=1 --iterations=2 --batch-size="$batch" --dtype="$type" \
		"$work/model" >"$file.new"
	mv "$file.new" "$file"
}

# repeated MODEL PROFILE: prints the profile of the model, from that of the model with one block.
repeated() {
	jq --slurpfile one "$2" '. as $model | $one[0] as $p |
		($p.layers | map({ (.name): . }) | add) as $cost | $p | .model = $model |
		.name = $model.name | .step_ns = 0 | .layers = ($model.layers | map(
			$cost[.name | sub("\\bh\\.[0-9]+\\."; "h.0.")] + { name, inputs }))' "$1"
}

# on_gpu BATCH NS PROFILE: prints the profile of so many samples, whose forward and backward take so long.
on_gpu() {
	jq --argjson batch "$1" --argjson ns "$2" '($batch / .batch_size) as $by |
		($ns / ([.layers[] | .forward_ns + .backward_ns] | add)) as $faster |
		def times($keys; $factor): reduce $keys[] as $key (.;
			if has($key) then .[$key] = (.[$key] * $factor | round) else . end);
		.batch_size = $batch | .step_ns = 0 |
		.device = { kind: "cuda", name: "a processor, as fast as a V100", memory_bytes: 16e9 } |
		.layers |= map(times(["forward_ns", "backward_ns", "backward_input_ns",
				"backward_weight_ns"]; $faster) |
			times(["activation_bytes", "stash_bytes", "workspace_bytes",
				"forward_workspace_bytes", "backward_workspace_bytes"]; $by) |
			.update_ns = (.parameter_bytes / 4 * 20 / 900 | round) |
			.update_apart_ns = .update_ns)' "$3"
}

gnmt() {
	mkdir -p "$work/gnmt"
	measured gnmt-8 8 f32 gnmt-8
	measured gnmt-16 8 f32 gnmt-16
	on_gpu 64 188000000 "$profiles/gnmt-8.profile" >"$work/gnmt/gnmt.json"
	on_gpu 64 520500000 "$profiles/gnmt-16.profile" >"$work/gnmt/gnmt_large.json"
	sh "$source/test/bench/published.sh" "$work/gnmt"
	echo
}

# best OPTION...: plans into $work/plan, and prints samples per second, or nothing if there is no plan.
best() {
	pd-plan --topology="$topology" --batch="$batch" "$@" "$work"/b*.json >"$work/plan" \
		2>"$work/why" && jq -r '1e9 * .profile.batch_size / .predicted.period_ns' "$work/plan"
}

# form: describes the plan in $work/plan by pipelines x stages, samples of a microbatch, microbatches and
# recomputing stages.
form() {
	jq -r '"\([.stages[].replicas] | unique | map(tostring) | join("/"))x\(.stages | length)" +
		" b=\(.profile.batch_size) m=\(.microbatches)" +
		" r=\([.stages[] | select(.recompute)] | length)"' "$work/plan"
}

# replayed OPTION...: prints samples per second of 2BW's plan, in $work/2bw, under other rules.
replayed() {
	pd-replay --format=json "$@" "$work/2bw" | jq .samples_per_s
}

# over RATE: prints how many times as fast 2BW's plan is, or nothing without a rate.
over() {
	awk "BEGIN { if (0$1) printf \"%.2f\", 0$fastest / 0$1 }"
}

# transformer FAMILY: prints a table.  Standard input has the paper's lines of "DEVICES BATCH 2BW FLUSH
# GPIPE NONE".
transformer() {
	measured "$1" 1 bf16 "$1-2.2b" --layers=1 --untied
	pd-model "$1-2.2b" --untied >"$work/whole"
	repeated "$work/whole" "$profiles/$1.profile" >"$work/repeated"
	rm -f "$work"/b*.json
	for point in 1:22 2:34 4:39 8:42 16:43.5; do
		on_gpu "${point%:*}" "$(awk "BEGIN { print int(6e9 * ${point%:*} / ${point#*:}) }")" \
			"$work/repeated" >"$work/b${point%:*}.json"
	done
	row='%-9s %7s %5s  %-11s %6s %6s  %6s %6s %6s  %s\n'
	printf "$row" "" "" "" "" "" samples/s 2BW over it ""
	printf "$row" model devices batch "" ours paper best same paper plan
	while read -r devices batch paper; do
		topology=8@$nvlink
		[ "$devices" = 8 ] || topology=$topology,$((devices / 8))@$fast
		fastest=
		for way in "2bw --weights=2bw" "flush --weights=flush" "gpipe --schedule=gpipe" \
			"inter-layer --schedule=none"; do
			name=${way%% *} theirs=${paper%% *} paper=${paper#* }
			rate=
			: >"$work/why"
			case $name${BEST:-no} in 2bw*|*yes)
				rate=$(best ${way#* } </dev/null) || rate= ;;
			esac
			same=
			if [ "$name" = 2bw ]; then
				fastest=$rate first=$theirs
				cp "$work/plan" "$work/2bw"
			elif [ -n "$fastest" ]; then
				same=$(replayed --weights=flush ${way#* })
			fi
			printf "$row" "$1-2.2b" "$devices" "$batch" "$name" \
				"$(awk "BEGIN { if (0$rate) printf \"%.1f\", 0$rate }")" "$theirs" \
				"$(over "$rate")" "$(over "$same")" \
				"$(awk "BEGIN { printf \"%.2f\", $first / $theirs }")" \
				"$([ -z "$rate" ] && tail -n 1 "$work/why" || form)"
		done
		printf "$row" "$1-2.2b" "$devices" "$batch" "data-par." "$(best --weights=flush </dev/null \
			--stages="$(jq '.layers | length' "$work/whole")x$devices")" "" "" "" "" \
			"$(sed -n 's/^pd-plan: --stages: //p' "$work/why")"
	done
	echo
}

for part; do
	case $part in
	gnmt)	gnmt ;;
	gpt)	transformer gpt <<-'PAPER'
			8 64 43 26 18.5 7
			8 256 44 38 18.5 7
			64 512 164 114 81 27
			64 2048 169 147 81 27
		PAPER
		;;
	bert)	transformer bert <<-'PAPER'
			8 64 46 24 22 7
			8 256 47 38 22 7
			64 512 160 111 120 30
			64 2048 172 148 120 31
		PAPER
		;;
	*)	echo "$0: $part: expected gnmt, gpt or bert" >&2; exit 2 ;;
	esac
done
cat <<'EOF'
A plan is pipelines x stages, samples of a microbatch (b), microbatches in an update (m), and how many
stages recompute (r).  "2BW over it": "best", each with the plan that pd-plan finds for it, and "same", 2BW's
plan replayed under the other rule, whatever memory that takes.  The paper's figures are read off drawings, good to about 5 %.
EOF
