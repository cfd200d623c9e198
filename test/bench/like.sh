#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Says every published layout with pd-plan --like, and counts those that can be said; prints why the others cannot.
#     sh test/bench/like.sh [DIRECTORY [SOURCE...]]
# DIRECTORY has files of one JSON object a line: model, machine, layout, microbatch, batch, recompute, schedule of a run
# (default: ../shared/published beside the source tree).  Only models whose blocks are dense are tried.  A device or
# precision that no data sheet has is replaced by a near one, and mpt by gpt: what counts is the layout.  PD_BUILD names the build tree.
set -e
. "$(dirname "$0")/bench-lib.sh"
PD_DEVICES=$source/share/devices
export PD_DEVICES
rows=${1:-$source/../shared/published}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- $(cd "$rows" && ls -- *.jsonl | sed 's/[.]jsonl$//')

# dense_rows SOURCE: prints options of pd-model, pd-profile and pd-plan for each row, in columns.
dense_rows() {
	jq -r 'select(.model.family | IN("gpt", "mpt", "llama")) | .model as $m | .layout as $l | .machine as $k |
		($k.devices / $k.per_node | ceil) as $servers |
		[.id,
		"\(if $m.family == "llama" then "llama" else "gpt2 --dropout=\($m.dropout // 0)" end) --layers=\($m.layers)" +
		" --hidden=\($m.hidden) --heads=\($m.heads) --sequence=\($m.sequence) --vocabulary=\($m.vocabulary)" +
		" --feed-forward=\($m.ffn)" + (if $m.family == "llama" then " --kv-heads=\($m.kv_heads)" else "" end) +
		(if $m.family == "llama" and $m.head_dim then " --head-dim=\($m.head_dim)" else "" end),
		({"h100-96-500w": "h100-sxm", gb200: "b200", gb300: "b200"}[$k.device] // $k.device),
		(if .precision == "f16" then "f16" else "bf16" end),
		"\($k.devices / $servers)@\($k.intra),\($servers)@\($k.inter)",
		(if .stack | test("^meg|^meta") then "megatron" else "torch" end), .batch,
		"tp=\($l.tp) sp=\(if $l.sp then "yes" else "no" end) pp=\($l.pp) vp=\($l.vp) dp=\($l.dp) cp=\($l.cp) ep=\($l.ep)" +
		(if $l.fsdp > 1 and $l.shard == "full" then " fsdp=\($l.fsdp)" else "" end) + " shard=\($l.shard)" +
		" micro=\(.microbatch) schedule=\(.schedule) recompute=\(.recompute)"] | @tsv' "$rows/$1.jsonl"
}
# profile_of MODEL DEVICE DTYPE: prints the file of a profile of one sample, made once.
profile_of() {
	name=$work/$(printf '%s' "$*" | tr -c 'a-z0-9' _).json
	# shellcheck disable=SC2086
	[ -s "$name" ] || pd-model $1 | pd-profile --device="$2" --dtype="$3" --batch-size=1 >"$name" || exit 1
	echo "$name"
}
tab=$(printf '\t')
printf '%-20s %5s %5s %9s %8s\n' source rows said "fit" refused
for of in "$@"; do
	dense_rows "$of" >"$work/rows"
	while IFS=$tab read -r id model device dtype topology memory batch like; do
		profile=$(profile_of "$model" "$device" "$dtype")
		status=0
		pd-plan -q --topology="$topology" --memory-model="$memory" --batch="$batch" --like="$like" \
			"$profile" >"$work/plan" 2>"$work/err" || status=$?
		case $status in
		0) echo "$of fit" ;;
		1) echo "$of large" ;;
		*) echo "$of refused $id: $like: $(cat "$work/err")" ;;
		esac
	done <"$work/rows" >"$work/results"
	awk -v of="$of" '{ n[$2]++ } END { printf "%-20s %5d %5d %9d %8d\n", of, NR, n["fit"] + n["large"], n["fit"],
		n["refused"] }' "$work/results"
	cat "$work/results" >>"$work/all"
done
awk '{ n[$2]++ } END { printf "%-20s %5d %5d %9d %8d\n", "all", NR, n["fit"] + n["large"], n["fit"], n["refused"] }' "$work/all"
sed -n 's/^[^ ]* refused //p' "$work/all"
