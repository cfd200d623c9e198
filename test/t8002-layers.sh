#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A folder of lib includes only folders above it in contrib/HACKING's list, and the programs
# that need no device are linked without one.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# The list ends at an empty line.  Its lines have four spaces, a word, and what the folder is.
awk '/^Folders, lowest first/ { found = 1 }
     found && /^    [a-z]/ { print $1; listed = 1 }
     listed && /^$/ { exit }' "$PD_SOURCE/contrib/HACKING" >order

test_ok "every folder of lib is in the list, once, and the other way round" '
	(cd "$PD_SOURCE/lib" && ls -d */) | tr -d / | sort >folders
	sort order | diff folders -
'

# includes FOLDER: prints the folders that its files include.
includes() {
	find "$PD_SOURCE/lib/$1" -name "*.[ch]" -exec cat {} + |
		sed -n "s/^#include \"\([a-z]*\)\/.*/\1/p" | sort -u
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

# The planner's own folders are on its page in contrib/HACKING.
sed -n "s/^    planner\/\([a-z]*\)  .*/\1/p" "$PD_SOURCE/contrib/HACKING" >parts
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

test_ok "no #ifdef outside the back ends" '
	! grep -rnE "^#[[:space:]]*if(def|ndef)? " "$PD_SOURCE/lib" "$PD_SOURCE/bin" \
		--include="*.[ch]" | grep -v "lib/device/c" | grep -v "lib/transport/[nu]"
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
