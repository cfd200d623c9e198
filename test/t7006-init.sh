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
# repeated; or @FILE, which has all of them.
file() {
	header= at=0
	: >data
	while [ $# -gt 0 ]; do
		elements=$(echo "$3" | jq 'reduce .[] as $n (1; . * $n)')
		case $4 in
		@*) cat "${4#@}" ;;
		*) for n in $(seq "$elements"); do printf "$4"; done ;;
		esac >>data
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
	elements "$@" | tr ' ' '\n' | sort -u
}
# elements CHECKPOINT NAME: prints its numbers.
elements() {
	values_file=$(stage "$1")
	values_length=$(od -An -tu4 -N 4 "$values_file")
	set -- $(tail -c +9 "$values_file" | head -c "$values_length" |
		jq -r --arg name "$2" '.[$name].data_offsets | "\(.[0]) \(.[1] - .[0])"')
	tail -c +$((9 + values_length + $1)) "$values_file" | head -c "$2" | od -An -v -w4 -tf4 |
		tr -d ' ' | paste -s -d ' ' -
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
	with w "expected \"bn.weight\", \"bn.bias\", \"bn.running_mean\" and 1 more of model \"small\", found nothing of these names (--init-new has layers begin anew)$"
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

# Queries and keys lie side by side in "attn.w", and are transposed; a normalisation has its old name.
cat >named.json <<'END'
{"format": "pd-model", "version": 1, "name": "named",
 "source": {"format": "huggingface", "prefix": "base."},
 "inputs": [{"name": "x", "dtype": "f32", "shape": [2]}, {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "q", "kind": "linear", "inputs": ["x"], "out_features": 2, "bias": false,
   "names": {"weight": {"name": "base.attn.w", "transpose": true, "start": 0}}},
  {"name": "k", "kind": "linear", "inputs": ["x"], "out_features": 2,
   "names": {"weight": {"name": "base.attn.w", "transpose": true, "start": 2},
             "bias": {"name": "base.k", "shape": [1, 2]}}},
  {"name": "add", "kind": "add", "inputs": ["q", "k"]},
  {"name": "ln", "kind": "layernorm", "inputs": ["add"], "names": {"weight": "base.ln.weight", "bias": "base.ln.bias"}},
  {"name": "head", "kind": "linear", "inputs": ["ln"], "out_features": 2, "bias": false, "shares": "q"},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["head", "label"]}
 ]}
END
profile named.json 4 >named
plan named 1 >plan-named
printf '\0\0\200\077\0\0\0\100\0\0\100\100\0\0\200\100\0\0\240\100\0\0\300\100\0\0\340\100\0\0\0\101' >eight
w='base.attn.w F32 [2,4] @eight'
k='base.k F32 [1,2] \0\0\100\100'
ln='base.ln.weight F32 [2] \0\0\200\077 base.ln.bias F32 [2] \0\0\0\0'
# named FILE WORDS: as with, for this model.
named() {
	status 2 pd-run --synthetic --minibatches=1 --init="$1" plan-named >out 2>err
	cat err
	one_line err
	grep -q "^pd-run: --init: $1.*$2" err
}
test_ok "names of the outside: transposed, side by side, in another shape" '
	file $w $k $ln >w
	still ck plan-named --init=w
	[ "$(elements ck q.weight)" = "1 5 2 6" ]
	[ "$(elements ck k.weight)" = "3 7 4 8" ]
	[ "$(elements ck k.bias)" = "3 3" ]'
test_ok "without what names begin with; old names of a normalisation; names of ours" '
	file attn.w F32 "[2,4]" @eight k F32 "[1,2]" "\0\0\100\100" base.ln.gamma F32 "[2]" "\0\0\0\100" \
		ln.beta F32 "[2]" "\0\0\200\077" >w
	still ck plan-named --init=w
	[ "$(elements ck k.weight) $(elements ck ln.weight) $(elements ck ln.bias)" = "3 7 4 8 2 2 1 1" ]
	still two plan-named --init="$(stage ck)"
	cmp "$(stage ck)" "$(stage two)"
	file q.weight F32 "[2,2]" "\0\0\200\077" k.weight F32 "[2,2]" "\0\0\0\100" $k $ln >w
	still ck plan-named --init=w
	[ "$(elements ck k.weight) $(elements ck q.weight)" = "2 2 2 2 1 1 1 1" ]'
test_ok "a shared weight that the source has once may be there under the other name, too" '
	printf "\0\0\200\077\0\0\240\100\0\0\0\100\0\0\300\100" >q
	file $w $k $ln head.weight F32 "[2,2]" @q >w
	still ck plan-named --init=w
	[ "$(elements ck q.weight)" = "1 5 2 6" ]
	file $w $k $ln head.weight F32 "[2,2]" "\0\0\0\0" >w
	named w "\"base.attn.w\" and \"head.weight\" differ"'
test_ok "what is missing or too much, or has another shape, by names of the outside" '
	file $k >w
	named w ": expected \"base.attn.w\", \"base.ln.weight\", \"base.ln.bias\" of model \"named\", found nothing of these names (--init-new has layers begin anew)$"
	file $k $ln attn.ww F32 "[1]" "\0\0\0\0" >w
	named w ": expected \"base.attn.w\" of model \"named\", found nothing of that name, but \"attn.ww\"$"
	file $w $k $ln base.pooler.dense.bias F32 "[1]" "\0\0\0\0" >w
	named w ": \"base.pooler.dense.bias\": model \"named\" has no such parameter"
	file base.attn.w F32 "[4,2]" @eight $k $ln >w
	named w "\"base.attn.w\": expected shape .2, 4., found .4, 2."
	file $w base.k F32 "[2]" "\0\0\0\0" $ln >w
	named w "\"base.k\": expected shape .1, 2., found .2."'

# sharded MAP: makes a folder of the files a and b, and an index with that weight_map.
sharded() {
	rm -rf folder
	mkdir folder
	cp a b folder/
	echo "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {$1}}" >folder/model.safetensors.index.json
}
map='"base.attn.w": "a", "base.k": "b", "base.ln.weight": "b", "base.ln.bias": "b"'
test_ok "a folder, an index with shards, a folder that has both" '
	file $w >a
	file $k $ln >b
	sharded "$map"
	for path in folder folder/ folder/model.safetensors.index.json; do
		still ck plan-named --init=$path
		[ "$(elements ck k.weight)" = "3 7 4 8" ]
	done
	file base.attn.w F32 "[2,4]" "\0\0\0\0" $k $ln >folder/model.safetensors
	still ck plan-named --init=folder
	[ "$(values ck k.weight)" = 0 ]'
test_ok "an index that is not that of its files" '
	sharded "$map, \"c\": \"b\""
	named folder "index.json: weight_map.c: b has no such tensor"
	sharded "\"base.attn.w\": \"a\", \"base.k\": \"b\", \"base.ln.weight\": \"b\""
	named folder "/b: \"base.ln.bias\": expected it in no file, as its index says"
	sharded "$map, \"c\": \"../a\""
	named folder "weight_map.c: expected the name of a file beside the index, found \"../a\""
	sharded "$map"
	rm folder/b
	named folder "/b: cannot open"
	sharded "$map"
	echo "{\"weight_map\": [1]}" >folder/model.safetensors.index.json
	named folder "weight_map: expected an object with the file of each tensor, found an array"
	echo "{}" >folder/model.safetensors.index.json
	named folder "expected a safetensors file, found a JSON document; an index of several files has a \"weight_map\""'
test_ok "folders of something else" '
	mkdir -p empty pickled
	named empty "expected a folder with model.safetensors or model.safetensors.index.json, or with checkpoints"
	touch pickled/pytorch_model.bin
	named pickled "expected model.safetensors, found pytorch_model.bin; in Python, save_pretrained"
	cp -r "$(at ck 1)" moved
	named moved "expected the name that the checkpoint.s folder was given, step- and twelve digits"
	touch no.onnx
	named no.onnx ""'
test_ok "heads that a network from a Hugging Face folder does not have are passed over, and named" '
	cp -r "$PD_SOURCE/test/data/import/bert" bert
	pd-model ./bert >bert.json
	profile bert.json 4 >bert-profile
	plan bert-profile 1 >plan-bert
	header_bytes=$(od -An -tu4 -N 4 bert/model.safetensors)
	tail -c +9 bert/model.safetensors | head -c "$header_bytes" |
		jq -r "del(.__metadata__) | to_entries | sort_by(.value.data_offsets[0])[] |
			\"\(.key) \(.value.dtype) \(.value.shape | tojson) \(.value.data_offsets[0]) \(
				.value.data_offsets[1] - .value.data_offsets[0])\"" >list
	set --
	while read -r name type shape from bytes; do
		tail -c +$((9 + header_bytes + from)) bert/model.safetensors | head -c "$bytes" >"bytes-$name"
		set -- "$@" "$name" "$type" "$shape" "@bytes-$name"
	done <list
	file "$@" bert.pooler.dense.weight F32 "[1]" "\0\0\0\0" cls.seq_relationship.bias F32 "[2]" "\0\0\0\0" >more
	mv more bert/model.safetensors
	still ck plan-bert --init=bert 2>err
	cat err
	grep -q "bert: passes over \"bert.pooler.dense.weight\", \"cls.seq_relationship.bias\", of heads that model \"bert\" does not" err'

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

# The file has the weight of another head, in another shape, and a part that the network has not.
test_ok "a new head begins as the seed says, what is left of an old one is passed over" '
	jq ".layers |= map(if .name == \"fc2\" then {name: \"fc2\", kind: \"linear\", inputs: [\"fc1\"], out_features: 3}
		else . end)" small.json >headed.json
	profile headed.json 4 >headed
	plan headed 1 >plan-headed
	still ck plan-headed
	values ck fc2.weight >seeded
	file $bn $weight $bias fc2.weight F32 "[5,4]" "\0\0\200\077" fc2.bias F32 "[5]" "\0\0\0\100" \
		cls.old.bias F32 "[1]" "\0\0\0\100" >w
	for name in --init-new=fc2,cls "--init-new=fc[2-9],cls.*" --init-new=fc2.weight,fc2.bias,cls.old.bias; do
		still ck plan-headed --init=w "$name"
		[ "$(values ck fc1.weight) $(values ck fc1.bias)" = "1 2" ]
		values ck fc2.weight | cmp - seeded
	done'
# renewed FILE OPTION WORDS: checks that it is refused so.
renewed() {
	status 2 pd-run --synthetic --minibatches=1 --init="$1" $2 plan-headed >out 2>err
	cat err
	one_line err
	grep -q "^pd-run: .*$3" err
}
test_ok "what is to begin anew is somewhere, and is said where it has to be" '
	renewed w "" "\"fc2.weight\": expected shape \[3, 4\], found \[5, 4\] (--init-new=fc2 has the layer begin anew)"
	renewed w --init-new=fc2 "\"cls.old.bias\": model .* no such parameter (--init-new passes over what it names)"
	renewed w --init-new=fc2,fc3,cls "nothing of model \"small\" is called \"fc3\", nor of w"
	file $bn $weight $bias >w
	renewed w "" "found nothing of these names (--init-new has layers begin anew)"
	still ck plan-headed --init=w --init-new=fc2
	status 2 pd-run --synthetic --minibatches=1 --init-new=fc2 plan-headed 2>err
	grep -q "init-new needs --init=PATH" err'
cat >table.json <<-'END'
	{"format": "pd-model", "version": 1, "name": "table", "source": {"format": "onnx"},
	 "inputs": [{"name": "x", "dtype": "f32", "shape": [3]}],
	 "layers": [
	  {"name": "t", "kind": "parameter", "inputs": ["x"], "shape": [3], "frozen": true,
	   "init": {"weight": [0.5, -2, 3]}, "names": {"weight": null}},
	  {"name": "s", "kind": "mul", "inputs": ["x", "t"]},
	  {"name": "l", "kind": "linear", "inputs": ["s"], "out_features": 2},
	  {"name": "loss", "kind": "mse", "inputs": ["l"]}
	 ]}
	END
test_ok "numbers of the model, which no file has to have and none that is exported has" '
	profile table.json 4 >table
	plan table 1 >plan-table
	still ck plan-table
	pd-export -o out-of-it ck
	dump out-of-it/model.safetensors | cut -d " " -f 1 >names
	[ "$(cat names)" = "$(printf "l.bias\nl.weight")" ]
	still again plan-table --seed=2 --init=out-of-it
	dump "$(stage ck)" | grep "^t.weight " >expected
	dump "$(stage again)" | grep "^t.weight " | diff expected -
	[ "$(printf "\000\000\000\077\000\000\000\300\000\000\100\100" | cksum)" = "$(cut -d " " -f 2- expected)" ]'
test_ok "what only a file says is asked for" '
	jq ".layers[0].init.weight = \"given\" | .layers[0].names.weight = \"table\"" table.json >given.json
	profile given.json 4 >given
	plan given 1 >plan-given
	status 2 pd-run --data=. plan-given 2>err
	cat err
	grep -q "does not say how \"t.weight\" begins: expected --init" err
	status 2 pd-run --data=. --init=out-of-it plan-given 2>err
	cat err
	grep -q "expected \"table\"" err'
test_done
