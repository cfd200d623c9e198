# SPDX-License-Identifier: Apache-2.0
# Sourced by studies that measure: finds the build, makes $work, says how quiet the machine was.
source=$(cd "$(dirname "$0")/../.." && pwd)
PATH=${PD_BUILD:-$source}/bin:$PATH
LC_ALL=C
export PATH LC_ALL
out=${OUT:-.}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# model_file NAME: of those that are installed, and of the studies' own.
model_file() {
	for file in "$work/$1.json" "$source/share/models/$1.json" "$source/test/bench/$1.json"; do
		[ ! -f "$file" ] || echo "$file"
	done
}

# median: of the numbers on standard input, one on a line.
median() {
	sort -g | awk 'NF { v[++n] = $1 } END { if (n) print (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2 }'
}

# means FILE: of its lines "NAME seed x y", the mean and half of the range of y, for every NAME and x in
# their order.  Says where a name has fewer seeds than the first: a loss that is no number has no line.
means() {
	awk -F '\t' '{
		if (!(($1, $3) in n)) {
			key[++keys] = $1 SUBSEP $3
			low[$1, $3] = high[$1, $3] = $4
		}
		n[$1, $3]++
		sum[$1, $3] += $4
		if ($4 < low[$1, $3]) low[$1, $3] = $4
		if ($4 > high[$1, $3]) high[$1, $3] = $4
	}
	END {
		for (i = 1; i <= keys; i++) {
			split(key[i], k, SUBSEP)
			if (n[key[i]] < n[key[1]])
				print k[1] ": " n[key[i]] " of " n[key[1]] " seeds have a number at " k[2] \
					>"/dev/stderr"
			printf "%s\t%d\t%.4f\t%.4f\n", k[1], k[2], sum[key[i]] / n[key[i]],
				(high[key[i]] - low[key[i]]) / 2
		}
	}' "$1"
}

# Seconds of processor time: all that the machine has spent, and what our children have.
spent() {
	times >"$work/.times"
	awk '/^cpu / { print ($2 + $3 + $4 + $7 + $8 + $9) / 100 }' /proc/stat
	sed -n '2s/[ms]/ /gp' "$work/.times" | awk '{ print $1 * 60 + $2 + $3 * 60 + $4 }'
	cut -d ' ' -f 1 /proc/uptime
}

# quietly COMMAND...: runs it, and leaves in $others which share of the processors, in percent,
# others took meanwhile.
quietly() {
	spent >"$work/before"
	"$@"
	spent >"$work/after"
	others=$(paste "$work/before" "$work/after" | awk -v n="$(nproc)" '{ d[NR] = $2 - $1 }
		END { share = 100 * (d[1] - d[2]) / (d[3] * n); printf "%.0f\n", (share > 0 ? share : 0) }')
}

# undisturbed FILE COMMAND...: quietly, with its output in FILE, and once more where others took
# more than OTHERS (5) percent meanwhile, up to TRIES (4) times.
undisturbed() {
	made=$1
	shift
	for try in $(seq "${TRIES:-4}"); do
		quietly "$@" >"$made"
		[ "$others" -gt "${OTHERS:-5}" ] || return 0
	done
	echo "others took $others % of the processors during the last of ${TRIES:-4} times: $*" >&2
}

# drift PROFILE AGAIN: by how many percent a step takes longer in the second.  A prediction is for the
# machine that was profiled, and machines of which others have a part become faster or slower in minutes.
drift() {
	jq -n --slurpfile a "$1" --slurpfile b "$2" '100 * ($b[0].step_ns / $a[0].step_ns - 1) | round'
}

# ---- on the first of the hosts of contrib/hosts.sh, whose processors are this machine's ----

# With its session attached, what a host has spent counts as our children's.
OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1
OMPI_MCA_orte_leave_session_attached=1
export OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_rmaps_base_oversubscribe \
	OMPI_MCA_orte_leave_session_attached

# sent: bytes that the interfaces of all hosts have sent.
sent() {
	for host in $(echo "$PD_HOSTS" | tr , ' '); do
		ip -n "$PD_NETNS$host" -j -s link show eth0 | jq '.[0].stats64.tx.bytes'
	done | awk '{ n += $1 } END { printf "%.0f\n", n }'
}

# on_wire RANKS COMMAND...: quietly, a rank of it on each of the first hosts, its output in $work/out;
# leaves in $bytes what all hosts sent meanwhile.  Hosts have this machine's processors in turn, one each,
# as pd-plan --processors deals them out.  A rank that is alone on its host may use all processors; the
# kernel then leaves two ranks on one of them for seconds, wherever anything else runs on the other.
on_wire() {
	ranks=$1
	shift
	bytes=$(sent)
	quietly timeout 280 mpirun --host "$PD_HOSTS" -np "$ranks" sh -c \
		'exec taskset -c $((OMPI_COMM_WORLD_RANK % $0)) "$@"' "$(nproc)" "$@" >"$work/out"
	bytes=$(($(sent) - bytes))
}

# train MINIBATCHES PLAN: on_wire, with a trace in $work/trace.
train() {
	on_wire "$(jq '[.stages[].replicas] | add' "$2")" pd-run --force --threads=1 --synthetic="$1" \
		--minibatches="$1" --report-every=1000000 --trace="$work/trace" "$2"
}

# A Python that has PyTorch, or not.
python=${PYTHON:-/usr/bin/python3}
has_torch() {
	"$python" -c 'import torch' 2>/dev/null
}

# train_ddp RANKS MODEL BATCH STEPS: by PyTorch's DistributedDataParallel over gloo, on_wire; leaves
# in $seconds what a step took.
train_ddp() {
	ranks=$1
	shift
	on_wire "$ranks" env MASTER_ADDR=10.99.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0 \
		"$python" "$source/test/bench/hosts-ddp.py" "$@"
	seconds=$(cat "$work/out")
}
