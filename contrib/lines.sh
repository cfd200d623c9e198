#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the lines of each room of lib and of bin, largest first, and what has changed since a commit.
#
#     sh contrib/lines.sh [COMMIT]
#
# A change that adds more than 500 lines to lib says in its message what it makes unnecessary.
set -eu
cd "$(dirname "$0")/.."
[ -e .git ] || { echo "lines by room: only in a checkout of git"; exit 0; }

# lines [COMMIT]: prints ROOM LINES of the working tree or of a commit.
lines() {
	if [ $# -gt 0 ]; then
		git grep -c '' "$1" -- bin lib | sed "s,^[^:]*:,,"
	else
		git grep -c '' -- bin lib
	fi | awk -F: '
		$1 ~ /\.(c|h|cu|cuh|def)$/ {
			n = split($1, at, "/")
			room = at[1] == "bin" ? "bin" : at[2]
			if (n > 3 && (room == "doors" || room == "engine" || room == "run"))
				room = room "/" at[3]
			sum[room] += $2
		}
		END { for (room in sum) print room, sum[room] }'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lines >"$work/now"
[ $# -eq 0 ] || lines "$1" >"$work/before"
[ $# -gt 0 ] || : >"$work/before"
awk -v against="${1-}" '
	function row(lines, more, room) {
		return sprintf("%7d", lines) (against == "" ? "" : sprintf("  %+6d", more)) "  " room
	}
	FILENAME ~ /before$/ { before[$1] = $2; was += $2; next }
	{ now[$1] = $2; is += $2 }
	END {
		for (room in before) now[room] += 0
		for (room in now)
			print row(now[room], now[room] - before[room], room) | "sort -rn"
		close("sort -rn")
		print row(is, is - was, "in all")
	}' "$work/before" "$work/now"
