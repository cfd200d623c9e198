# SPDX-License-Identifier: Apache-2.0
# A document that is wrong in one place is refused, whatever is wrong with it, with exit status 2 and one
# line on standard error that names it.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

unit=$PD_BUILD/test/unit
data=$PD_SOURCE/test/data

# refused FILE COMMAND...: checks that it exits with 2 and says one line, and nothing on standard output.
refused() {
	file=$1
	shift
	got=0
	timeout 600 "$@" >out 2>err </dev/null || got=$?
	[ "$got" -eq 2 ] && one_line err && ! [ -s out ] && return
	echo "$file: exit status $got: $(head -c 400 err)"
	return 1
}

# all_refused_as KIND: checks that each document in bad/ is refused, by one process, so that a sanitizer
# sees leaks.
all_refused_as() {
	count=$(ls bad | wc -l)
	status 2 timeout 600 "$unit/read-document" "$1" bad/* >out 2>err || { tail -n 1 err; return 1; }
	[ "$count" -ge "$least" ] && [ "$(grep -c "^read-document: ." err)" -eq "$count" ] &&
		[ "$(wc -l <err)" -eq "$count" ] && ! [ -s out ]
}

# all_refused COMMAND...: checks that the command refuses each document in bad/, as its last argument.
all_refused() {
	bad=0 count=0
	for file in bad/*; do
		count=$((count + 1))
		refused "$file" "$@" "$file" || bad=$((bad + 1))
	done
	echo "$bad of $count"
	[ "$bad" -eq 0 ] && [ "$count" -ge "$least" ]
}

total=0
for kind in model profile topology plan schedule trace; do
	case $kind in
	trace) good=$data/small-trace.jsonl every=11 ;;
	schedule) good=$data/small-schedule.jsonl every=23 ;;
	plan) good=$data/small-plan.json every=37 ;;
	profile) good=$data/small-profile.json every=19 ;;
	model) good=$data/small-model.json every=5 ;;
	topology) good=$data/small-topology.json every=2 ;;
	esac
	least=100
	test_ok "the $kind itself is read" \
		'"$unit/read-document" "$kind" "$good" >out && [ -s out ]'
	test_ok "what is written of it is read and written the same" \
		'"$unit/read-document" "$kind" out >again && cmp out again'
	test_ok "from a pipe too" \
		'cat "$good" | "$unit/read-document" "$kind" >again && cmp out again'
	rm -rf bad
	mkdir bad
	"$unit/malform" "$good" bad "$every"
	total=$((total + $(ls bad | wc -l)))
	test_ok "$(ls bad | wc -l) malformed documents are refused as a $kind" \
		'all_refused_as "$kind"'
	test_ok "so is what is no document ($kind)" '
		refused null "$unit/read-document" "$kind" /dev/null
		refused directory "$unit/read-document" "$kind" .
		refused missing "$unit/read-document" "$kind" no-such-file
		refused stdin "$unit/read-document" "$kind"
		for other in "$data"/small-*; do
			[ "$other" = "$good" ] && continue
			[ "$kind$other" = "trace$data/small-plan.json" ] && continue
			[ "$kind$other" = "schedule$data/small-plan.json" ] && continue
			refused "$other" "$unit/read-document" "$kind" "$other"
		done'
done
test_ok "those were more than 500: $total" '[ "$total" -gt 500 ]'

test_ok "wrong topology strings are refused" '
	for text in @ 4@ @1GB/s 4@12GB 4@12 4@12gb/s 4@12GB/s, ,4@12GB/s 0@1GB/s -1@1GB/s 4@0GB/s \
		4@-1GB/s 4@1GB/s+5 4@1GB/s+ 4@1GB/s+-5us 2.5@1GB/s 4x@1GB/s 4@nanGB/s 4@infGB/s \
		4@1GB/s+5days 4@1GB/s5us 9999999999@1GB/s 1048576@1GB/s,2@1GB/s "4 @1GB/s" "4@ 1GB/s" \
		4@1e99GB/s 4@0x1GB/s 99999999999999999999@1GB/s "$(printf "4@1GB/s\n")x"; do
		refused "$text" "$unit/read-document" topology "$text"
	done'

# Programs that are built refuse such documents as well.
for pair in pd-profile:model pd-plan:profile pd-schedule:schedule pd-run:plan pd-replay:trace; do
	program=${pair%:*} kind=${pair#*:}
	if ! [ -x "$PD_BUILD/bin/$program" ]; then
		test_skip "$program refuses them" "$program is not built"
		continue
	fi
	rm -rf bad
	mkdir bad
	"$unit/malform" "$data"/small-$kind.json* bad 211
	least=50
	test_ok "$program refuses $(ls bad | wc -l) of them" 'all_refused "$program"'
done
test_done
