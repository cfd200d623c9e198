# SPDX-License-Identifier: Apache-2.0
# Studies that measure source this file.  It finds the build, makes $work, and says how quiet the machine
# was.
source=$(cd "$(dirname "$0")/../.." && pwd)
PATH=${PD_BUILD:-$source}/bin:$PATH
LC_ALL=C
export PATH LC_ALL
out=${OUT:-.}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# model_file NAME: prints the file of a model in $work, of an installed one, or of one of the studies.
model_file() {
	for file in "$work/$1.json" "$source/share/models/$1.json" "$source/test/bench/$1.json"; do
		[ ! -f "$file" ] || echo "$file"
	done
}

# median: prints the median of the numbers on standard input, one on a line.
median() {
	sort -g | awk 'NF { v[++n] = $1 } END { if (n) print (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2 }'
}

# means FILE: reads lines "NAME seed x y", and prints the mean and half of the range of y, for every NAME
# and x in their order.  It says where a name has fewer seeds than the first: a loss that is no number has
# no line.
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

# spent: prints the seconds of processor time that the machine has spent, and our children, and the uptime.
spent() {
	times >"$work/.times"
	awk '/^cpu / { print ($2 + $3 + $4 + $7 + $8 + $9) / 100 }' /proc/stat
	sed -n '2s/[ms]/ /gp' "$work/.times" | awk '{ print $1 * 60 + $2 + $3 * 60 + $4 }'
	cut -d ' ' -f 1 /proc/uptime
}

# quietly COMMAND...: runs the command, and leaves in $others which share of the processors, in percent,
# other programs took meanwhile.
quietly() {
	spent >"$work/before"
	"$@"
	spent >"$work/after"
	others=$(paste "$work/before" "$work/after" | awk -v n="$(nproc)" '{ d[NR] = $2 - $1 }
		END { share = 100 * (d[1] - d[2]) / (d[3] * n); printf "%.0f\n", (share > 0 ? share : 0) }')
}

# undisturbed FILE COMMAND...: runs the command quietly, with its output in FILE.  It tries again where
# other programs took more than OTHERS (5) percent meanwhile, up to TRIES (4) times.
undisturbed() {
	made=$1
	shift
	for try in $(seq "${TRIES:-4}"); do
		quietly "$@" >"$made"
		[ "$others" -gt "${OTHERS:-5}" ] || return 0
	done
	echo "others took $others % of the processors during the last of ${TRIES:-4} times: $*" >&2
}

# drift PROFILE AGAIN: prints by how many percent a step takes longer in the second.  A prediction is for
# the machine that was profiled, and machines that are shared with others become faster or slower in
# minutes.
drift() {
	jq -n --slurpfile a "$1" --slurpfile b "$2" '100 * ($b[0].step_ns / $a[0].step_ns - 1) | round'
}

# ---- The rest runs on the first of the hosts of contrib/hosts.sh, on this machine's processors. ----

# With mpirun's session attached, the processor time of a host counts as our children's.
OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1
OMPI_MCA_orte_leave_session_attached=1
export OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_rmaps_base_oversubscribe \
	OMPI_MCA_orte_leave_session_attached

# sent: prints the bytes that the interfaces of all hosts have sent.
sent() {
	for host in $(echo "$PD_HOSTS" | tr , ' '); do
		ip -n "$PD_NETNS$host" -j -s link show eth0 | jq '.[0].stats64.tx.bytes'
	done | awk '{ n += $1 } END { printf "%.0f\n", n }'
}

# on_wire RANKS COMMAND...: runs the command quietly, a rank of it on each of the first hosts, with its
# output in $work/out.  It leaves in $bytes what all hosts sent meanwhile.  Each host has one of this
# machine's processors, in turn, as pd-plan --processors deals them out.  A rank that is alone on its host
# could otherwise use all processors; the kernel then leaves two ranks on one of them for seconds, wherever
# anything else runs on the other.
on_wire() {
	ranks=$1
	shift
	bytes=$(sent)
	quietly timeout 280 mpirun --host "$PD_HOSTS" -np "$ranks" sh -c \
		'exec taskset -c $((OMPI_COMM_WORLD_RANK % $0)) "$@"' "$(nproc)" "$@" >"$work/out"
	bytes=$(($(sent) - bytes))
}

# train MINIBATCHES PLAN: trains by on_wire, with a trace in $work/trace.
train() {
	on_wire "$(jq '[.stages[].replicas] | add' "$2")" pd-run --force --threads=1 --synthetic="$1" \
		--minibatches="$1" --report-every=1000000 --trace="$work/trace" "$2"
}

# has_torch: succeeds if $python has PyTorch.
python=${PYTHON:-/usr/bin/python3}
has_torch() {
	"$python" -c 'import torch' 2>/dev/null
}

# train_ddp RANKS MODEL BATCH STEPS: trains by on_wire with PyTorch's DistributedDataParallel over gloo, and
# leaves in $seconds what a step took.
train_ddp() {
	ranks=$1
	shift
	on_wire "$ranks" env MASTER_ADDR=10.99.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0 \
		"$python" "$source/test/bench/hosts-ddp.py" "$@"
	seconds=$(cat "$work/out")
}
