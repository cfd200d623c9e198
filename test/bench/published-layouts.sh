#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares layouts of published training runs with the free search on the same machine, of the same microbatch and batch:
# the search is to predict at least as many samples per second for each of them.
#     sh test/bench/published-layouts.sh [FILE.jsonl ...]
# Files are those of ../shared/published (its README has the keys).  Rows with pipelines count, of dense networks, of
# each layout on a machine one; the first ROWS (30) of these are taken, one of every network and machine before others.
# TENSOR (1,2,4,8) are the degrees that are searched.  A device has as much memory as the layout is predicted to need, if
# that is more.  Devices that share/devices has not are taken for those of LIKE.  Times are processor seconds of a search.
set -e
. "$(dirname "$0")/bench-lib.sh"
[ $# -gt 0 ] || set -- "$source"/../shared/published/*.jsonl
LIKE="gb200:b200 gb300:b200 b300:b200 h100-96-500w:h100-sxm"

# One line a layout: what stands for the row, device, devices, devices a server, both links, options of pd-model, dtype,
# microbatch, batch, the layout as --like takes it, and whether sequences are shared.
jq -rn '
	[inputs | select(.layout.pp > 1 and .layout.cp == 1 and .layout.ep == 1 and .layout.fsdp == 1 and
		(.task // "pretrain") == "pretrain" and (.model.family | test("^(gpt|llama)$")) and (.model.window // 0) == 0)] |
	unique_by([.model, .machine, .layout, .microbatch, .batch, .recompute]) |
	[group_by([.model, .machine.device, .machine.devices])[] | sort_by(.id) | to_entries[]] | sort_by(.key) | .[].value |
	(.layout.pp * .layout.vp) as $stages | select($stages <= .model.layers + 2) |
	[.id, .machine.device, .machine.devices, .machine.per_node, .machine.intra, .machine.inter,
	 "\(.model.family) --layers=\(.model.layers) --hidden=\(.model.hidden) --heads=\(.model.heads) " +
		"--sequence=\(.model.sequence) --vocabulary=\(.model.vocabulary) --feed-forward=\(.model.ffn) " +
		(if .model.family == "llama" then "--kv-heads=\(.model.kv_heads) " else "" end) +
		(if .model.head_dim then "--head-dim=\(.model.head_dim) " else "" end) +
		(if .model.tied == (.model.family == "gpt") then "" elif .model.tied then "--tied" else "--untied" end),
	 (if .precision == "f16" then "f16" else "bf16" end), .microbatch, .batch,
	 "tp=\(.layout.tp) sp=\(if .layout.sp then "yes" else "no" end) pp=\(.layout.pp) vp=\(.layout.vp) dp=\(.layout.dp)" +
		" shard=\(.layout.shard) recompute=\(.recompute)", .layout.sp] | @tsv' "$@" >"$work/all"
all=$(wc -l <"$work/all")
head -n "${ROWS:-30}" "$work/all" >"$work/rows"
echo "$(wc -l <"$work/rows") of $all layouts"

# seconds COMMAND...: runs the command, and prints its processor seconds into $work/time.
seconds() {
	bash -c 'TIMEFORMAT=%U; time "$@"' seconds "$@" 2>"$work/said" || { tail -n 2 "$work/said" | head -n 1 >"$work/why"; return 1; }
	tail -n 1 "$work/said" >"$work/time"
}
printf '%-22s %-10s %6s %10s %10s %7s %7s  %s\n' run device number theirs searched gain s "plan (theirs)"
tab=$(printf '\t')
while IFS=$tab read -r id device devices node intra inter network dtype microbatch batch says sp; do
	for near in $LIKE; do
		[ "$device" != "${near%:*}" ] || device=${near#*:}
	done
	server=1
	while [ $((2 * server)) -le "$node" ] && [ $((2 * server)) -le "$devices" ] && [ $((devices % (2 * server))) -eq 0 ]; do
		server=$((2 * server))
	done
	topology=$server@$intra
	[ "$server" -eq "$devices" ] || topology=$topology,$((devices / server))@$inter
	if ! { pd-model $network >"$work/model.json" && pd-profile --device="$source/share/devices/$device.json" \
		--dtype="$dtype" --batch-size="$microbatch" "$work/model.json" >"$work/profile.json"; } 2>"$work/why"; then
		printf '%-22s %-10s %6s %s: %s\n' "$id" "$device" "$devices" "$says" "$(head -n 1 "$work/why")"
		continue
	fi
	case $says in
	*shard=optimizer*) shard=--shard=optimizer ;;
	*) shard= ;;
	esac
	[ "$sp" = true ] && sp=,sequence || sp=
	set -- -q -t "$topology" --memory-model=megatron --batch="$batch" $shard
	if ! seconds pd-plan -q -t "$topology" --memory-model=megatron --batch="$batch" --memory=100TB \
		--like="$says" "$work/profile.json" >"$work/theirs.json"; then
		printf '%-22s %-10s %6s %s: %s\n' "$id" "$device" "$devices" "$says" "$(cut -c 1-150 "$work/why")"
		continue
	fi
	memory=$(jq "(.profile.group.tensor // 1) as \$t |
		[(.predicted.memory_bytes, .profile.device.memory_bytes) / \$t | ceil] | max" "$work/theirs.json")
	if ! seconds pd-plan "$@" --memory="${memory}B" --tensor="${TENSOR:-1,2,4,8}$sp" --schedule=auto ${OPTIONS-} "$work/profile.json" \
		>"$work/ours.json"; then
		printf '%-22s %-10s %6s %s: %s\n' "$id" "$device" "$devices" "$says" "$(cut -c 1-150 "$work/why")"
		continue
	fi
	jq -rs --arg time "$(cat "$work/time")" '(.[0].predicted.samples_per_s) as $a | .[1] as $plan |
		($plan.predicted.samples_per_s) as $b | ($plan.stages[0].replicas) as $r |
		[$a, $b, 100 * ($b / $a - 1), ($time | tonumber), "\($plan.schedule) tp \($plan.profile.group.tensor // 1) " +
		"dp \($r) on \([$plan.stages[].ranks[]] | unique | length), \($plan.stages | length) stages, from \($plan.predicted.period_from // "replay")"] |
		@tsv' "$work/theirs.json" "$work/ours.json" |
		awk -F '\t' -v id="$id" -v device="$device" -v n="$devices" -v says="$says" '{
			printf "%-22s %-10s %6d %10.2f %10.2f %6.1f%% %7.1f  %s (%s)\n", id, device, n, $1, $2, $3, $4, $5, says }'
done <"$work/rows" | tee "$work/table"
awk '/%/ && $0 !~ /pd-plan:/ { n++; for (i = 1; i <= NF; i++) if ($i ~ /%$/) { g = $i + 0; break }
	if (g >= 0) reached++; else if (g >= -0.5) near++; if (n == 1 || g < least) least = g; sum += $(i + 1); if ($(i + 1) > most) most = $(i + 1) }
	END { printf "%d compared; %d reached, %d within 0.5 %%; the least gain %.1f %%; %.1f s a search, at most %.1f\n", n, reached, near, least, n ? sum / n : 0, most }' "$work/table"
