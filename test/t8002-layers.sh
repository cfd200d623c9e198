#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A room of lib, a folder or one of those in doors/, engine/ and run/, includes only rooms above it in
# contrib/HACKING's list, and calls no function that is defined below.  Nothing outside run/ includes it, nor
# doors/, but for run/.
# The programs that need no device are linked without one.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# The list ends at an empty line.  Its lines have four spaces, a word, and what the folder is.
awk '/^Folders, lowest first/ { found = 1 }
     found && /^    [a-z]/ { print $1; listed = 1 }
     listed && /^$/ { exit }' "$PD_SOURCE/contrib/HACKING" >order

test_ok "every room of lib is in the list, once, and the other way round" '
	(cd "$PD_SOURCE/lib" && ls -d */ doors/*/ engine/*/ run/*/) | sed "s,/$,," |
		grep -vxE "doors|engine|run" | sort >rooms
	sort order | diff rooms -
'

# includes ROOM: prints the rooms that its files include.
includes() {
	find "$PD_SOURCE/lib/$1" -name "*.[ch]" -exec cat {} + |
		sed -nE "s/^#include \"((doors|engine|run)\/[a-z]*|[a-z]*)\/.*/\1/p" | sort -u
}

while read -r folder; do
	test_ok "lib/$folder includes only what is above it" '
		bad=
		for other in $(includes "$folder"); do
			grep -qx "$other" order || continue
			[ "$(grep -nx "$other" order | cut -d: -f1)" -le \
			  "$(grep -nx "$folder" order | cut -d: -f1)" ] || bad="$bad $other"
		done
		[ -z "$bad" ] || { echo "includes $bad"; false; }
	'
done <order

test_ok "no room outside doors/ and run/ includes doors/: programs pass them" '
	find "$PD_SOURCE/lib" -path "*/doors" -prune -o -path "*/run" -prune -o -name "*.[ch]" -exec \
		grep -l "^#include \"doors/" {} + >bad || true
	[ ! -s bad ] || { cat bad; false; }
'

test_ok "the rooms of run/ are the last" '
	sed -n "/^run\//,\$p" order | grep -v "^run/" >after || true
	[ ! -s after ] || { cat after; false; }
'

# The planner's own folders are in lib/planner/planner.h.
sed -n "s/^ \*     planner\/\([a-z]*\)  .*/\1/p" "$PD_SOURCE/lib/planner/planner.h" >parts
test_ok "every folder of lib/planner is on its page" '
	(cd "$PD_SOURCE/lib/planner" && ls -d */) | tr -d / | sort >folders
	sort parts | diff folders -
'
while read -r part; do
	test_ok "lib/planner/$part includes only what is above it, and what is asked for" '
		sed "/^$part\$/q" parts >above
		bad=$(cat "$PD_SOURCE/lib/planner/$part"/*.[ch] | grep "^#include \"planner/" |
			grep -v "planner/planner.h\"" |
			grep -vE "\"planner/($(paste -s -d"|" above))/" || true)
		[ -z "$bad" ] || { echo "$bad"; false; }
	'
done <parts

# Objects whose source is gone are left from before it was renamed.
for object in $(cd "$PD_BUILD" && find lib -name "*.o"); do
	name=${object##*/} name=${name%.o}
	name=${object%/*}/${name#libpddevice_a-}
	for source in "$PD_SOURCE/$name.c" "$PD_SOURCE/$name.cu" "$PD_BUILD/$name.c"; do
		[ ! -e "$source" ] || echo "$object"
	done
done | sort -u >objects
test_ok "no folder calls what is defined in one below it" '
	[ -s objects ]
	here=$PWD
	(cd "$PD_BUILD" && xargs nm -A -g <"$here/objects") >symbols
	awk "FILENAME == \"order\" { rank[\$1] = 100 * FNR; next }
		FILENAME == \"parts\" { rank[\"planner/\" \$1] = rank[\"planner\"] - 100 + FNR; next }
		\$NF !~ /^pd_/ { next }
		{ split(\$1, at, \"/\"); part = at[2] \"/\" at[3]; mine = rank[part in rank ? part : at[2]] }
		mine == 0 { print \"no room: \" \$1 }
		\$(NF - 1) != \"U\" { rank_of[\$NF] = mine; next }
		{ file[++uses] = \$1; name[uses] = \$NF; user[uses] = mine }
		END { for (i = 1; i <= uses; i++) if (rank_of[name[i]] > user[i]) print file[i], name[i] }" \
		order parts symbols | sort -u >bad
	[ ! -s bad ] || { cat bad; false; }
'

# GPUs are not compiled everywhere, .def files say what macros take, and units open what they test.
test_ok "what a file of lib gives to others, some other file takes" '
	[ -s symbols ]
	(cd "$PD_BUILD" && nm -A -g bin/*.o) >programs
	awk "\$NF ~ /^(onnx__|fold_|shm_)|[.]resolver\$/ { next }
		\$(NF - 1) == \"U\" { taken[\$NF] = 1; next }
		FILENAME == \"symbols\" { given[\$NF] = 1 }
		END { for (name in given) if (!(name in taken)) print name }" symbols programs | LC_ALL=C sort >given
	(cd "$PD_SOURCE" && find test contrib lib/run/device/cuda lib/run/transport/nccl -name "*.[ch]*" &&
		find lib -name "*.def") | (cd "$PD_SOURCE" && xargs cat) | grep -oE "[a-z_][a-z0-9_]*" |
		LC_ALL=C sort -u >words
	LC_ALL=C comm -23 given words >bad
	[ ! -s bad ] || { cat bad; false; }
'

test_ok "no #ifdef outside the back ends" '
	! grep -rnE "^#[[:space:]]*if(def|ndef)? " "$PD_SOURCE/lib" "$PD_SOURCE/bin" \
		--include="*.[ch]" | grep -v "lib/run/device/c" | grep -v "lib/run/transport/[nu]"
'

# A member that cannot be made would be left out of a document or a message, and nobody would miss it.
test_ok "members are set where one that cannot be made is an error" '
	! grep -rnE "json_(object_set_new|array_append_new)(_nocheck)?\(" "$PD_SOURCE/lib" "$PD_SOURCE/bin" \
		--include="*.[ch]" | grep -v "lib/base/json.c"
'

for program in pd-export pd-model pd-plan pd-replay pd-schedule; do
	test_ok "$program needs no device library" '
		! ldd "$PD_BUILD/bin/$program" | grep -E "dnnl|libuc[pst]|cuda|cudnn|nccl"
	'
done

test_done
