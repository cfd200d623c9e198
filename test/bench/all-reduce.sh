#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares sums of gradients in shared memory with PyTorch's gloo over loopback, in turns.
#     sh test/bench/all-reduce.sh [MIB...]
# MIB (1 4 16 64 256) are the sizes, RANKS ("2 4") the numbers of ranks, ROUNDS (9) the sums of each size,
# TURNS (3) the runs of both programs.  Figures are medians over the turns.  PD_BUILD names the build tree,
# where `make test/bench/all-reduce` was done.  PYTHON (python3) has PyTorch; without it only our sums are
# measured.  all-reduce.svg goes to the folder OUT (.).  The script takes about three minutes on two
# processors.
#
# "times" is gloo's time over that of the best of ours.  "of memory" is the share of what the memory allows.
# A rank that added its n-th of all members' arrays and wrote it to all of them would read the array once
# and write it once.  Copying one rank's array moves as much.  So the share is the time to copy the array,
# measured while all ranks copy, over that of the best of ours.
set -e
. "$(dirname "$0")/bench-lib.sh"
[ $# -gt 0 ] || set -- 1 4 16 64 256
rounds=${ROUNDS:-9}

: >"$work/times"
for ranks in ${RANKS:-2 4}; do
	for turn in $(seq "${TURNS:-3}"); do
		quietly "${PD_BUILD:-$source}/test/bench/all-reduce" "$ranks" "$rounds" "$@" >"$work/ours"
		echo "$ranks ranks, turn $turn: others took $others % of the processors" >&2
		if "${PYTHON:-python3}" -c 'import torch' 2>/dev/null; then
			"${PYTHON:-python3}" "$source/test/bench/all-reduce.py" "$ranks" "$rounds" "$@"
		fi >"$work/gloo"
		sed "s/^/$ranks /" "$work/ours" "$work/gloo" >>"$work/times"
	done
done

# of RANKS NAME MIB: prints the median, or -.
of() {
	found=$(awk -v ranks="$1" -v name="$2" -v mib="$3" \
		'$1 == ranks && $2 == name && $3 == mib { print $4 }' "$work/times" | median)
	echo "${found:--}"
}
names=$(awk '$2 != "copy" && !seen[$2]++ { print $2 }' "$work/times")
printf '%5s %6s' ranks MiB
printf ' %18s' $names
printf ' %8s %10s\n' times "of memory"
for ranks in ${RANKS:-2 4}; do
	for mib; do
		printf '%5s %6s' "$ranks" "$mib"
		best=
		for name in $names; do
			ms=$(of "$ranks" "$name" "$mib")
			printf ' %15s ms' "$ms"
			[ "$ms" = - ] || echo "$name $ranks $mib $ms" | awk -v OFS='\t' \
				'{ print $1, $3 " MiB, " $2, $3 * 1.048576 / $4 }' >>"$work/drawn"
			[ "$name" = gloo ] || best="$best $ms"
		done
		echo "$best" | tr ' ' '\n' | sort -g | awk -v gloo="$(of "$ranks" gloo "$mib")" -v mib="$mib" \
			-v copy="$(of "$ranks" copy 0)" 'NF && !best { best = $1 } END {
				printf " %8s %9.0f%%\n", gloo == "-" ? "-" : sprintf("%.1f", gloo / best),
					100 * mib * 1.048576 / copy / best }'
	done
	echo "      $ranks ranks copy $(of "$ranks" copy 0) GB/s each"
done
awk -f "$source/test/bench/plot.awk" -v kind=bars -v width=1100 -v ylabel="GB/s summed" \
	-v title="All-reduce in shared memory: size, ranks" "$work/drawn" >"$out/all-reduce.svg"
