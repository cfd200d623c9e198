#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares pd-topo with the truth, on four hosts of one rank (contrib/hosts.sh, so root runs it) whose links
# are shaped.  With an uplink they are in two racks, and there are two levels.
#     sh test/bench/topo.sh [RATE[/UPLINK]]...
# The table has for each level the megabytes per second that the shaper lets through, headers included, what
# pd-topo found, and that in percent; or why it found no machine, or other levels.  The last line says how
# many machines had the right levels, and every link within a tenth.  Packets need the processors that all
# hosts share, so fast links look slower if others take these.
#
# TRIES (1) is how often each is measured at most, until one is right.  PD_BUILD names the build tree.  The
# ten machines take three minutes.
. "$(dirname "$0")/bench-lib.sh"
tries=${TRIES:-1}

# rates RATE/UPLINK: prints the bytes per second of each level, as JSON.
rates() {
	echo "$1" | tr / '\n' | sed 's/gbit/e9/; s/mbit/e6/; s/kbit/e3/; s:$: / 8:' | paste -sd, | sed 's/.*/[&]/'
}

# measure RATE/UPLINK: measures into $work/machine, and fails if there is none.
measure() {
	case $1 in
	*/*) set -- --rate="${1%/*}" --racks=2 --uplink="${1#*/}" ;;
	*) set -- --rate="$1" ;;
	esac
	sh "$source/contrib/hosts.sh" --limit=300 "$@" 4 mpirun --host h1,h2,h3,h4 -np 4 pd-topo -q \
		>"$work/machine" 2>"$work/why"
}

# line RATE/UPLINK: prints a line of the table, and fails if the machine is not as it is shaped.
line() {
	jq -er --arg shape "$1" --argjson shaped "$(jq -n "$(rates "$1")")" '
		[.levels[].bandwidth_bytes_per_s] as $found |
		(if ($shaped | length) == 1 then [4] else [2, 2] end) as $counts |
		if [.levels[].count] != $counts then
			"\($shape)\tother levels: \([.levels[].count] | join(" x ")) ranks, " +
				($found | map("\(. / 1e6 * 100 | round / 100) MB/s") | join(", "))
		else
			[$shape] + ([$shaped, $found] | transpose |
				map(.[0] / 1e6, (.[1] / 1e6 * 100 | round / 100), (.[1] / .[0] * 100 | round))) |
			@tsv
		end' "$work/machine"
	jq -e --argjson shaped "$(jq -n "$(rates "$1")")" '
		[$shaped, [.levels[].bandwidth_bytes_per_s]] | transpose |
		all(.[0] != null and .[1] != null and .[1] > 0.9 * .[0] and .[1] < 1.1 * .[0])' \
		"$work/machine" >/dev/null
}

# try RATE/UPLINK: measures and prints a line, and fails if the machine is not as it is shaped.
try() {
	try_status=0
	measure "$1" || try_status=$?
	if [ "$try_status" -eq 77 ]; then
		cat "$work/why" >&2
		exit 77
	elif [ "$try_status" -ne 0 ]; then
		printf '%s\t%s\n' "$1" "$(grep -v "^ *$" "$work/why" | head -n 1)"
		return 1
	fi
	line "$1"
}

[ $# -gt 0 ] || set -- 10mbit 100mbit 1gbit 2gbit 10gbit \
	50mbit/10mbit 200mbit/50mbit 500mbit/100mbit 1gbit/500mbit 10gbit/1gbit
printf 'shape\ttrue\tfound\t%%\ttrue\tfound\t%%\n'
right=0
for shape; do
	for i in $(seq "$tries"); do
		if try "$shape"; then
			right=$((right + 1))
			break
		fi
	done
done
echo "$right of $# as they are shaped"
