# SPDX-License-Identifier: Apache-2.0
# pd-plan takes several profiles of one model, and the batch of an update.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# blocks BATCH >FILE: writes eight equal layers that take 300 us for a microbatch and 300 us for each sample
# of it, and pass 10 kB for each sample.
blocks() {
	awk -v b="$1" 'BEGIN {
		printf "{\"format\": \"pd-profile\", \"version\": 1, \"name\": \"blocks\", \"batch_size\": %d,", b
		printf " \"dtype\": \"f32\", \"device\": {\"kind\": \"cpu\", \"name\": \"none\"}, \"layers\": ["
		for (l = 0; l < 8; l++)
			printf "%s{\"name\": \"l%d\", \"inputs\": [%s], \"forward_ns\": %d," \
				" \"backward_ns\": %d, \"activation_bytes\": %d," \
				" \"parameter_bytes\": 4000000}", l ? ", " : "", l,
				l ? "\"l" l - 1 "\"" : "", 100000 + 100000 * b,
				200000 + 200000 * b, 10000 * b
		print "]}"
	}'
}
for b in 1 2 4 8 16; do
	blocks $b >b$b.json
done
all="b1.json b2.json b4.json b8.json b16.json"

for pair in 64:8 16:2 256:16; do
	test_row search "a batch of ${pair%:*} samples allows microbatches of ${pair#*:}" '
		pd-plan --weights=2bw --batch=${pair%:*} -t 8@1GB/s $all >a.json
		jq -c "[.profile.batch_size, .microbatches]" a.json
		jq -e ".profile.batch_size == ${pair#*:}" a.json
		jq -e ".profile.batch_size * .microbatches <= ${pair%:*}" a.json
		"$PD_BUILD/test/unit/read-document" plan a.json >again
		cmp a.json again
		pd-replay a.json >out'
done
test_row search "no profile by itself has a better plan" '
	pd-plan --weights=2bw --batch=64 -t 8@1GB/s $all >a.json
	best=$(jq .predicted.samples_per_s a.json)
	for profile in $all; do
		pd-plan --weights=2bw --batch=64 -t 8@1GB/s $profile |
			jq -e ".predicted.samples_per_s <= $best and
				.profile.batch_size * .microbatches <= 64"
	done'
test_ok "no pipelines of equal depth and width are faster" '
	pd-plan --weights=2bw --batch=256 -t 8@1GB/s b8.json >a.json
	best=$(jq .predicted.samples_per_s a.json)
	for stages in 8x8 4x4,4x4 2x2,2x2,2x2,2x2 1,1,1,1,1,1,1,1; do
		pd-plan --weights=2bw --microbatches=32 --stages=$stages -t 8@1GB/s b8.json |
			jq -e ".predicted.samples_per_s <= $best"
	done'
test_ok "memory: a microbatch that does not fit is left out; none that fits is no plan" '
	pd-plan --weights=2bw --batch=256 -t 8@1GB/s b16.json >a.json
	bytes=$(($(jq .predicted.memory_bytes a.json) - 200000))
	pd-plan --weights=2bw --batch=256 -t 8@1GB/s -m $bytes $all >b.json
	jq -e ".predicted.memory_bytes <= $bytes" b.json
	status 1 pd-plan --weights=2bw --batch=256 -t 8@1GB/s -m 1MB $all 2>err >out
	one_line err; [ ! -s out ]; grep -q "no plan fits" err
	options="--schedule=interleaved --weights=flush --batch=64 -t 3@1GB/s b4.json"
	pd-plan $options >a.json
	status 1 pd-plan $options -m 1B 2>err >out; cat err
	one_line err; [ ! -s out ]; grep -q "no plan fits" err'
test_full "flush and stashing take a batch too; the same input gives the same bytes" '
	for weights in flush stash; do
		pd-plan --weights=$weights --batch=64 -t 2@1GB/s,2@100MB/s b4.json b8.json >a.json
		pd-plan --weights=$weights --batch=64 -t 2@1GB/s,2@100MB/s b4.json b8.json | cmp - a.json
		jq -e ".profile.batch_size * .microbatches <= 64" a.json
	done
	pd-plan --straight --batch=64 -t 4@1GB/s b4.json b8.json |
		jq -e "[.stages[].replicas] | max == 1"'
test_ok "--explain begins with the profiles" '
	pd-plan -e --weights=2bw --batch=64 -t 8@1GB/s $all 2>err >a.json
	cat err
	grep -c "^ *[0-9]*  *[0-9]*  *[0-9.]*/s  *[0-9.]*/s  [0-9]* x [0-9]*" err | grep -q "^[45]$"
	[ "$(grep -c "(taken)$" err)" -eq 1 ]; grep -q "^ *8 .*(taken)" err'
test_ok "without a batch each has its usual microbatches" '
	pd-plan -t 4@1GB/s b4.json b16.json | jq -e ".profile.batch_size == 16 and .microbatches == 1"'

# refused WORDS ARGUMENT...: checks that pd-plan refuses these in one sentence with the WORDS.
refused() {
	words=$1
	shift
	status 2 pd-plan -t 4@1GB/s "$@" 2>err >out
	cat err
	one_line err
	[ ! -s out ]
	grep -q -- "$words" err
}
test_ok "profiles that are not of one model are refused, by file and place" '
	jq ".layers[3].parameter_bytes = 8" b4.json >other.json
	refused "^pd-plan: other.json: layers.3.: layer \"l3\" .* b1.json: expected profiles of one" \
		b1.json b2.json other.json
	jq ".layers[3].inputs = [\"l1\"]" b4.json >other.json
	refused "^pd-plan: other.json: layers.3." b1.json other.json
	jq ".layers[7].name = \"x\"" b4.json >other.json
	refused "^pd-plan: other.json: layers.7.: layer \"x\" .*\"l7\"" b1.json other.json
	jq "del(.layers[7])" b4.json >other.json
	refused "^pd-plan: other.json: layers: found 7, and 8 in b1.json" b1.json other.json
	jq ".dtype = \"bf16\"" b4.json >other.json
	refused "^pd-plan: other.json: dtype: " b1.json other.json
	refused "^pd-plan: b4.json: batch_size: found 4, as in b4.json" b4.json b4.json
	refused "expected at least the 4 samples" --batch=3 b4.json b8.json
	refused "exclude each other" --batch=64 --microbatches=4 b4.json
	refused "prices no update" --batch=64 --cost=sosp19 b4.json
	refused "" --batch=0 b4.json'
test_done
