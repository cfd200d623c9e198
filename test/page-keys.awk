# SPDX-License-Identifier: Apache-2.0
# Compares the keys in a manual page with the rows of its document: awk -v prefixes=... -f page-keys.awk KEYS PAGE
# KEYS is what test/unit/document-keys prints.  prefixes="SECTION=PREFIX ..." says which sections have lists of keys,
# with '_' for blanks, and of which object: "Keys= Layers=layers."; "PREFIX,PREFIX" is that of one list and the next.
# A key is an item of a list, or in the text of the item of its object, as ".Cm forward ,".  It is required where its
# text says so, without a condition; -v required=no: that page does not say it.  Prints what differs.
BEGIN {
	count = split(prefixes, list, " ")
	for (i = 1; i <= count; i++) {
		section = substr(list[i], 1, index(list[i], "=") - 1)
		gsub("_", " ", section)
		prefix[section] = substr(list[i], index(list[i], "=") + 1)
	}
	section = ""
}
NR == FNR {
	row[$1] = $2
	parent = $1
	sub(/\.?[^.]*$/, "", parent)
	members[parent] = 1
	next
}
/^\.S[sh] / { section = substr($0, 5); lists = depth = 0; item = ""; next }
!(section in prefix) { next }
/^\.Bl/ {
	if (depth == 0) {
		split(prefix[section], each, ",")
		outer[1] = each[++lists]
	} else {
		outer[depth + 1] = item "."
	}
	depth++
	next
}
/^\.El/ { depth--; item = ""; next }
!depth { next }
/^\.It Cm/ || /^\.Cm/ {
	keys = 0
	for (i = /^\.It/ ? 3 : 2; i <= NF; i++)
		if ($i ~ /^[a-z]/)
			key[++keys] = (/^\.It/ ? outer[depth] : item ".") $i
	if (/^\.It/)
		item = key[1]
	for (i = 1; i <= keys; i++)
		if (/^\.It/)
			items[key[i]] = 1
		else
			inline[key[i]] = 1
	next
}
/(^|[^a-z])required/ && !/required(, unless| there| for)/ {
	for (i = 1; i <= keys; i++)
		says[key[i]] = 1
	if (!(item in members))
		says[item] = 1
}
END {
	for (path in row)
		if (!(path in items) && !(path in inline))
			print "not in the page: " path
		else if (required != "no" && (row[path] == "required") != (path in says))
			print path ": " row[path] ", the page says otherwise"
	for (path in items) {
		parent = path
		sub(/\.?[^.]*$/, "", parent)
		if (parent in members && !(path in row))
			print "in the page alone: " path
	}
}
