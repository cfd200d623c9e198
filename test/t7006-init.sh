#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training can begin with parameters out of a file.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json
profile residual.json 4 >residual
for replicas in "1" "1 1 1" "2 1"; do
	plan residual $replicas >"plan$(echo " $replicas" | tr ' ' -)"
done

# still CHECKPOINT PLAN OPTION...: trains one minibatch that changes no parameter.
still() {
	rm -rf "$1"
	train "$@" --synthetic --lr=0 --momentum=0 --minibatches=1 >out
}
# stage CHECKPOINT [STEP]: prints the file of a plan of one stage.
stage() {
	echo "$(at "$1" "${2:-1}")/stage-0.safetensors"
}

still one plan-1
cp "$(stage one)" first.safetensors
still other plan-1 --seed=2
cp "$(stage other)" second.safetensors

# parameters FILE: prints a line for each, its name and a checksum of its bytes.
parameters() {
	dump "$1" | grep -v "running\|@"
}
dump() {
	dump_length=$(od -An -tu4 -N 4 "$1")
	tail -c +9 "$1" | head -c "$dump_length" | jq -r 'to_entries[]
		| select(.key != "__metadata__") | "\(.key) \(.value.data_offsets[0]) \(
			.value.data_offsets[1] - .value.data_offsets[0])"' | sort |
	while read -r name from count; do
		echo "$name $(tail -c +$((9 + dump_length + from)) "$1" | head -c "$count" | cksum)"
	done
}

for with in plan-1 plan-1-1-1 plan-2-1; do
	test_ok "the parameters of the file, whatever the seed: $with" '
		still ck '$with' --seed=2 --init=first.safetensors
		parameters first.safetensors >expected
		for file in "$(at ck 1)"/stage-*.safetensors; do
			parameters "$file"
		done | sort >found
		diff expected found
		parameters second.safetensors >seed
		! cmp -s seed found || false'
done
test_ok "those of the seed: the same bits as without" '
	rm -rf ck
	train ck plan-1-1-1 --synthetic --minibatches=7 >out
	# Running statistics that one minibatch has changed are put back to where they begin.
	cp first.safetensors fresh.safetensors
	length=$(od -An -tu4 -N 4 fresh.safetensors)
	tail -c +9 fresh.safetensors | head -c "$length" | jq -r "to_entries[]
		| select(.key | test(\"running\")) | \"\(.key) \(.value.data_offsets[0]) \(
			.value.shape[0])\"" >list
	while read -r name from count; do
		case $name in
		*mean) bytes="\0\0\0\0" ;;
		*) bytes="\0\0\200\077" ;;
		esac
		for n in $(seq "$count"); do printf "$bytes"; done |
			dd of=fresh.safetensors bs=1 seek=$((8 + length + from)) conv=notrunc 2>dd.err
	done <list
	train ck-init plan-1-1-1 --synthetic --minibatches=7 --init=fresh.safetensors >out
	diff -r "$(at ck 7)" "$(at ck-init 7)"'

# file NAME DTYPE SHAPE BYTES [NAME ...]: prints a safetensors file.  BYTES are as printf has them, and
# repeated.
file() {
	header= at=0
	: >data
	while [ $# -gt 0 ]; do
		elements=$(echo "$3" | jq 'reduce .[] as $n (1; . * $n)')
		for n in $(seq "$elements"); do printf "$4"; done >>data
		end=$(stat -c %s data)
		header="$header${header:+,}\"$1\":{\"dtype\":\"$2\",\"shape\":$3,\"data_offsets\":[$at,$end]}"
		at=$end
		shift 4
	done
	header="{$header}"
	while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
	printf "\\$(printf %o $((${#header} % 256)))\\$(printf %o $((${#header} / 256)))\0\0\0\0\0\0"
	printf %s "$header"
	cat data
}

cat >small.json <<'END'
{"format": "pd-model", "version": 1, "name": "small",
 "inputs": [{"name": "image", "dtype": "f32", "shape": [1, 2, 2]},
            {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "bn", "kind": "batchnorm2d", "inputs": ["image"]},
  {"name": "flat", "kind": "flatten", "inputs": ["bn"]},
  {"name": "fc1", "kind": "linear", "inputs": ["flat"], "out_features": 4},
  {"name": "fc2", "kind": "linear", "inputs": ["fc1"], "out_features": 4, "shares": "fc1"},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["fc2", "label"]}
 ]}
END
profile small.json 4 >small
plan small 1 >plan-small

# with FILE WORDS: checks that the file is refused in one sentence with the WORDS.
with() {
	status 2 pd-run --synthetic --minibatches=1 --init="$1" plan-small >out 2>err
	cat err
	one_line err
	grep -q "^pd-run: --init: $1: .*$2" err
	[ ! -s out ]
}
# values CHECKPOINT NAME: prints the distinct numbers of a tensor.
values() {
	values_file=$(stage "$1")
	values_length=$(od -An -tu4 -N 4 "$values_file")
	set -- $(tail -c +9 "$values_file" | head -c "$values_length" |
		jq -r --arg name "$2" '.[$name].data_offsets | "\(.[0]) \(.[1] - .[0])"')
	tail -c +$((9 + values_length + $1)) "$values_file" | head -c "$2" | od -An -v -w4 -tf4 |
		tr -d ' ' | sort -u
}

bn="bn.weight F32 [1] \0\0\200\077 bn.bias F32 [1] \0\0\0\0
	bn.running_mean F32 [1] \0\0\172\104 bn.running_var F32 [1] \0\0\200\077"
weight="fc1.weight F32 [4,4] \0\0\200\077"
bias="fc1.bias F32 [4] \0\0\0\100"
test_ok "a file made by hand: parameters and running statistics" '
	file $bn $weight $bias >w
	still ck plan-small --init=w
	[ "$(values ck fc1.weight) $(values ck fc1.bias)" = "1 2" ]
	values ck bn.running_mean | awk "{ exit !(\$1 > 800 && \$1 < 1000) }"'	# It was 1000.
test_ok "numbers of 16 bits" '
	file $bn fc1.weight F16 "[4,4]" "\0\076" fc1.bias BF16 "[4]" "\300\077" >w
	still ck plan-small --init=w
	[ "$(values ck fc1.weight) $(values ck fc1.bias)" = "1.5 1.5" ]'
test_ok "in training of 16 bits: the master has all of them" '
	PD_TEST_DTYPE=bf16 profile small.json 4 >small-16
	plan small-16 1 >plan-16
	file $bn $weight fc1.bias F32 "[4]" "\001\0\200\077" >w
	still ck plan-16 --init=w
	[ "$(values ck fc1.bias)" = 1.0000001 ]'
test_ok "numbers of 64 bits" '
	file $bn fc1.weight F64 "[4,4]" "\0\0\0\0\0\0\370\077" $bias >w
	still ck plan-small --init=w
	[ "$(values ck fc1.weight)" = 1.5 ]'
test_ok "buffers that nothing uses are overlooked" '
	file $bn bn.num_batches_tracked I64 "[]" "\01\0\0\0\0\0\0\0" $weight $bias h.0.attn.bias U8 "[1,1,2,2]" "\01" \
		h.0.attn.masked_bias F32 "[]" "\0\0\0\0" a.rotary_emb.inv_freq F32 "[2]" "\0\0\0\0" \
		e.position_ids I64 "[1]" "\0\0\0\0\0\0\0\0" >w
	still ck plan-small --init=w
	[ "$(values ck fc1.weight)" = 1 ]'
test_ok "shared parameters, under both names or the other" '
	file $bn $weight $bias fc2.weight F32 "[4,4]" "\0\0\200\077" >w
	still ck plan-small --init=w
	[ "$(values ck fc1.weight)" = 1 ]
	file $bn fc2.weight F32 "[4,4]" "\0\0\100\100" fc2.bias F32 "[4]" "\0\0\0\0" >w
	still ck plan-small --init=w
	[ "$(values ck fc1.weight)" = 3 ]
	file $bn $weight $bias fc2.weight F32 "[4,4]" "\0\0\0\100" >w
	with w "\"fc1.weight\" and \"fc2.weight\" differ"'
test_ok "what is missing" '
	file $bn $weight >w
	with w "expected \"fc1.bias\" of model \"small\", found nothing of that name"
	file $weight $bias >w
	with w "expected \"bn.weight\", \"bn.bias\", \"bn.running_mean\" and 1 more of model \"small\", found nothing of these names$"
	file $bn $weight module.fc9.bias F32 "[4]" "\0\0\0\0" fc_1.bias F32 "[4]" "\0\0\0\0" >w
	with w "expected \"fc1.bias\" of model \"small\", found nothing of that name, but \"fc_1.bias\" and 1 more$"
	file $bn $weight module.fc1.bias F32 "[4]" "\0\0\0\0" >w
	with w "expected \"fc1.bias\" .*, found nothing of that name, but \"module.fc1.bias\"$"'
test_ok "what is too much" '
	file $bn $weight $bias fc3.weight F32 "[1]" "\0\0\0\0" >w
	with w "\"fc3.weight\": model \"small\" has no such parameter"
	file $bn $weight $bias a F32 "[1]" "\0\0\0\0" b F32 "[1]" "\0\0\0\0" c F32 "[]" "\0\0\0\0" \
		d F32 "[1]" "\0\0\0\0" >w
	with w "\"a\", \"b\", \"c\" and 1 more: model \"small\" has no such parameters"'
test_ok "other shapes and types" '
	file $bn $bias fc1.weight F32 "[16]" "\0\0\0\0" >w
	with w "\"fc1.weight\": expected shape \[4, 4\], found \[16\]"
	file $bn $bias fc1.weight I64 "[4,4]" "\0\0\0\0\0\0\0\0" >w
	with w "\"fc1.weight\": expected type F32, F16, BF16 or F64, found I64"'
test_ok "no such file, half a file, a pipe, another kind of file" '
	with nothing "cannot open"
	file $bn $weight $bias | head -c -1 >w
	with w ""
	mkfifo pipe
	with pipe "expected a file"
	with plan-small "expected a safetensors file, found a JSON document"
	echo "neither of them" >neither
	with neither "expected a safetensors file, found one whose first 8 bytes announce"'
test_ok "not with --resume" '
	status 2 pd-run --synthetic --checkpoint=ck --resume --init=w plan-small >out 2>err
	one_line err
	grep -q -- "--init and --resume exclude each other" err'

if python3 -c 'import numpy, safetensors.numpy' 2>/dev/null; then
	test_ok "what another program reads out of a checkpoint and writes" '
		cat >double.py <<-END
		import sys
		from safetensors.numpy import load_file, save_file
		tensors = load_file(sys.argv[1])
		save_file({name: 2 * value for name, value in tensors.items()}, sys.argv[2])
		END
		file $bn $weight $bias >w
		still ck plan-small --init=w
		python3 double.py "$(stage ck)" twice.safetensors
		still ck plan-small --init=twice.safetensors
		[ "$(values ck fc1.weight) $(values ck fc1.bias)" = "2 4" ]'
else
	test_skip "what another program reads and writes" "no Python with numpy and safetensors"
fi

test_done
