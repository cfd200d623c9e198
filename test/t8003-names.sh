#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A public name of lib means one thing: no two headers define the same struct, enum, constant or macro.
# An option that a message of lib names is one that a program has, and a file that a comment names is there.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# Prints "NAME FILE" for each struct, union, enum, enumerator and macro that headers define.  Left out are
# parameters of lists (those that are undefined again), and what a back end defines for itself behind a seam.
names() {
	find "$1" \( -name "*.h" -o -name "*.cuh" \) -exec awk '
		FNR == 1 { listed = 0; comment = 0 }
		{ line = $0; while (match(line, /\/\*[^*]*\*+([^\/*][^*]*\*+)*\//))
			line = substr(line, 1, RSTART - 1) " " substr(line, RSTART + RLENGTH) }
		comment { if (!sub(/^.*\*\//, "", line)) next; comment = 0 }
		line ~ /\/\*/ { sub(/\/\*.*/, "", line); comment = 1 }
		line ~ /^#[ ]*define PD_/ { split(line, word, /[ (\t]+/); print word[word[1] == "#" ? 3 : 2], FILENAME }
		line ~ /^#[ ]*undef PD_/ { split(line, word, /[ \t]+/); print "-" word[word[1] == "#" ? 3 : 2], FILENAME }
		line ~ /(struct|union|enum) pd_[a-z0-9_]+ [{]/ {
			match(line, /(struct|union|enum) pd_[a-z0-9_]+ [{]/)
			split(substr(line, RSTART, RLENGTH), word, " "); print word[2], FILENAME }
		line ~ /^enum/ { listed = 1 }
		listed { rest = line; while (match(rest, /PD_[A-Z0-9_]+/)) {
			name = substr(rest, RSTART, RLENGTH); rest = substr(rest, RSTART + RLENGTH)
			if (rest ~ /^[ ]*(,|=|}|$)/ ) print name, FILENAME
			sub(/^[^,}]*/, "", rest) } }
		line ~ /}/ { listed = 0 }' {} + | sort -u |
		awk 'sub(/^-/, "") { undefined[$1 " " $2] = 1; next }
		     !undefined[$1 " " $2]'
}

test_ok "no two headers define the same name" '
	names "$PD_SOURCE/lib" | grep -vE "lib/run/device/cpu/dnnl2.h|^pd_layout .*lib/run/device/c|^PD_INLINE " |
		awk "files[\$1] { print \$1, files[\$1], \$2 } { files[\$1] = \$2 }" >twice
	! cat twice | grep .
'

mkdir -p made/a made/b
printf "enum pd_side { PD_LEFT, PD_SIDES };\n#define PD_ROOM 3\n" >made/a/one.h
printf "enum pd_side { PD_UP = 1,\n\tPD_SIDES };\n/* struct pd_other { */\nint pd_f(int PD_ROOM);\n" >made/b/two.h
test_ok "such names are found" '
	[ "$(names made | cut -d" " -f1 | sort | uniq -d | paste -sd" ")" = "PD_SIDES pd_side" ]
'

# Prints the options that strings of lib name, each once; writers of lib/doors/layout write those of others.
named() {
	find "$PD_SOURCE/lib" -name "*.c" ! -path "*/layout/megatron_arguments.c" \
		! -path "*/layout/torchtitan.c" ! -path "*/layout/writer.c" -exec sed -n "s/^[^\"]*\"//p" {} + |
		tr " (=:;,./\"" "[\n*]" | sed -n "s/^--\([a-z][a-z0-9-]*\).*/\1/p" | sort -u
}

test_ok "every option that a message, or a script of share, names is one of a program" '
	for program in "$PD_BUILD"/bin/pd-*; do
		case ${program##*/} in *.* | pd-worker) continue ;; esac
		"$program" --help
	done | sed -n "s/^ *\(-., \)*--\([a-z][a-z0-9-]*\).*/\2/p" | sort -u >options
	{ named; grep -oh "pd-[a-z]* --[a-z][a-z-]*" "$PD_SOURCE"/share/torch/*.py | sed "s/.*--//"; } | sort -u >named
	[ "$(wc -l <named)" -gt 50 ]
	comm -13 options named >unknown
	! grep -vxE "completion|local-dir|mpi|with-pmix" unknown
'

# Prints the files that comments of lib, and contrib/HACKING, name, each once; llm.c is a program.
commented() {
	{
		find "$PD_SOURCE/lib" \( -name "*.[ch]" -o -name "*.cu" -o -name "*.cuh" -o -name "*.def" \) \
			-exec sed -n "/^[	 ]*\(\/\*\| \*\)/p" {} +
		cat "$PD_SOURCE/contrib/HACKING"
	} | grep -oE "(^|[ (,])[a-z][a-z0-9_/-]*[.](c|h|cu|cuh|def|sh)([ ,.;:)]|\$)" | tr -d " (,;:)" |
		sed "s/[.]\$//; s/.*\///" | grep -vx "llm.c" | sort -u
}

test_ok "every file that a comment names is there" '
	(cd "$PD_SOURCE" && find lib bin test contrib -type f) | sed "s/.*\///" | sort -u >files
	commented >named
	[ "$(wc -l <named)" -gt 100 ]
	comm -13 files named >unknown
	! grep . unknown
'

# NAME and * stand for what a recipe adds.
test_ok "every path in HACKING is there, from the root or from lib" '
	grep -oE "[a-z_0-9-]+(/[A-Za-z_0-9-]+)+([.](c|h|cu|def|sh|py))" "$PD_SOURCE/contrib/HACKING" |
		grep -v NAME | sort -u >paths
	[ "$(wc -l <paths)" -gt 50 ]
	while read -r path; do
		[ -e "$PD_SOURCE/$path" ] || [ -e "$PD_SOURCE/lib/$path" ] || echo "$path"
	done <paths >missing
	[ ! -s missing ] || { cat missing; false; }
'

test_done
