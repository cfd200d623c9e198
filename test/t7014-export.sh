#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-export writes what a checkpoint has as the source of the network had it: what came in goes out, byte for
# byte, if nothing was trained.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"
data=$PD_SOURCE/test/data/import
plan_with="--weights=flush --microbatches=1"

# header FILE: prints the header of a safetensors file.
header() {
	tail -c +9 "$1" | head -c "$(od -An -tu4 -N 4 "$1")"
}
# planned MODEL REPLICAS...: makes plan-MODEL of MODEL.json.
planned() {
	planned_model=$1
	shift
	profile $planned_model.json 4 >profile.json
	plan profile.json "$@" >plan-$planned_model
}
# still CHECKPOINT PLAN OPTION...: trains one minibatch that changes no parameter.
still() {
	rm -rf "$1"
	train "$@" --synthetic --lr=0 --momentum=0 --minibatches=1 >log
}
# export OPTION...: exports the checkpoint ck into the folder out.
export_ck() {
	rm -rf out
	pd-export --output=out "$@" ck 2>err
	cat err
}
# as_it_was FOLDER: checks that out is the folder, but for texts of numbers in config.json.
as_it_was() {
	(cd "$1" && ls) | grep -v "^expected.json$\|^test$\|^train$" >expected
	ls out | diff expected -
	for file in "$1"/*.safetensors; do
		cmp "$file" "out/${file##*/}"
	done
	jq -e --slurpfile was "$1/config.json" ". == \$was[0]" out/config.json
}

for network in bert gpt2 qwen2 qwen3 vit; do
	test_ok "$network: what came in goes out, byte for byte" '
		pd-model "$data/$network" >$network.json
		planned $network 1 1
		still ck plan-$network --init="$data/$network"
		export_ck
		one_line err && grep -q "^pd-export: out: step 1, .* tensors of $(
			[ $network = qwen2 ] && echo BF16 || echo F32), .* bytes, with config.json$" err
		as_it_was "$data/$network"'
done
test_ok "llama: in as many files, with an index" '
	pd-model "$data/llama" >llama.json
	planned llama 1 1
	still ck plan-llama --init="$data/llama"
	export_ck --shard-bytes=9000
	grep -q "in several files, with config.json$" err
	ls out >files
	[ "$(grep -c "^model-0000[0-9]-of-0000[0-9].safetensors$" files)" -eq "$(expr $(wc -l <files) - 2)" ]
	jq -e --slurpfile was "$data/llama/model.safetensors.index.json" ".metadata == \$was[0].metadata and
		(.weight_map | keys) == (\$was[0].weight_map | keys)" out/model.safetensors.index.json
	for file in out/model-*; do
		[ "$(stat -c %s $file)" -lt 11000 ]
	done
	still ck2 plan-llama --init=out
	for n in 0 1; do cmp "$(at ck 1)/stage-$n.safetensors" "$(at ck2 1)/stage-$n.safetensors"; done
	rm -rf one && pd-export -q -o one ck 2>err && [ ! -s err ]
	still ck2 plan-llama --init=one/model.safetensors
	cmp "$(at ck 1)/stage-0.safetensors" "$(at ck2 1)/stage-0.safetensors"'

test_ok "an ONNX file's weights, and those of a file beside it: what came out goes in again" '
	for network in torchvision-vit gpt; do
		pd-model "$data/$network/model.onnx" >$network.json
		planned $network 1
		still ck plan-$network --init="$data/$network/model.onnx"
		export_ck
		still ck2 plan-$network --init=out
		cmp "$(at ck 1)/stage-0.safetensors" "$(at ck2 1)/stage-0.safetensors"
	done
	header out/model.safetensors | jq -e "has(\"wte.weight\") and has(\"lm_head.weight\")"'
test_ok "a checkpoint of another plan, and of another step, is what a training begins with" '
	planned gpt2 1 1
	rm -rf ck
	train ck plan-gpt2 --data="$data/gpt2" --init="$data/gpt2" --minibatches=3 --checkpoint-every=1 --keep=3 >log
	export_ck
	cp out/model.safetensors three
	rm -rf out && pd-export -q -o out "$(at ck 2)"
	! cmp -s out/model.safetensors three || false
	pd-run --threads=1 --evaluate --data="$data/gpt2" --checkpoint=ck plan-gpt2 2>/dev/null | head -n 1 | jq .loss >loss
	planned gpt2 1
	still one plan-gpt2 --init=ck
	rm -rf out && pd-export -q -o out one && cmp out/model.safetensors three
	pd-run --threads=1 --evaluate --data="$data/gpt2" --init=ck plan-gpt2 2>err | head -n 1 >evaluated
	jq .loss evaluated | diff loss -
	jq -e ".parameters == \"$(at ck 3)\"" evaluated
	still one plan-gpt2 --init="$(at ck 2)/"
	rm -rf out && pd-export -q -o out one && ! cmp -s out/model.safetensors three || false
	status 2 pd-run --synthetic --minibatches=1 --init=ck plan-vit 2>err
	one_line err && grep -q "\"classifier.bias\".*\|\"vit.embeddings" err'
test_ok "moments and older versions stay where they are" '
	planned gpt2 1 1
	rm -rf ck
	train ck plan-gpt2 --data="$data/gpt2" --init="$data/gpt2" --optimizer=adam --lr=0.001 --minibatches=2 >log
	header "$(at ck 2)/stage-0.safetensors" | jq -e "[keys[] | test(\"second$\")] | any"
	export_ck
	header out/model.safetensors | jq -e "[keys[] | test(\"^(transformer|__metadata__)\")] | all"'

test_ok "another type: in the files and in config.json" '
	still ck plan-gpt2 --init="$data/gpt2"
	for type in bf16:BF16:bfloat16:2 f16:F16:float16:2 f64:F64:float64:8 f32:F32:float32:4; do
		bytes=${type##*:} type=${type%:*} torch=${type##*:} type=${type%:*}
		export_ck --dtype=${type%:*}
		header out/model.safetensors | jq -e "del(.__metadata__) | [.[].dtype] | unique == [\"${type#*:}\"]"
		jq -e ".dtype == \"$torch\"" out/config.json
		rm -rf out2 && still two plan-gpt2 --init=out && pd-export -q -o out2 two
		[ "$(stat -c %s out2/model.safetensors)" -gt $((7000 * 4)) ]
	done
	cmp out/model.safetensors "$data/gpt2/model.safetensors"
	jq "del(.source.config.dtype) | .source.config.torch_dtype = \"bfloat16\"" gpt2.json >old.json
	rm -rf out && pd-export -q -o out --model=old.json ck
	jq -e ".torch_dtype == \"bfloat16\" and (has(\"dtype\") | not)" out/config.json
	header out/model.safetensors | jq -e ".[\"transformer.wpe.weight\"].dtype == \"BF16\""'
test_ok "a number that is too large for the type is an error, and leaves nothing" '
	export_ck --dtype=f64
	file=out/model.safetensors
	from=$(header $file | jq ".[\"transformer.wpe.weight\"].data_offsets[0]")
	printf "\0\0\0\0\200\204\056\101" |     # 1e6
		dd of=$file bs=1 seek=$((8 + $(od -An -tu4 -N 4 $file) + from)) conv=notrunc 2>log
	still two plan-gpt2 --init=out
	rm -rf small
	status 2 pd-export --dtype=f16 -o small two 2>err
	one_line err && grep -q "\"transformer.wpe.weight\" has a number that is too large for F16: expected another" err
	[ ! -e small ] && [ ! -e .small.tmp ]
	pd-export -q --dtype=bf16 -o small two'

residual_model >residual.json
test_ok "a network of nobody else: names and shapes as in PyTorch, with running statistics" '
	planned residual 1 1
	still ck plan-residual
	export_ck
	grep -q "F32, [0-9]* bytes$" err
	[ "$(ls out)" = model.safetensors ]
	header out/model.safetensors | jq -ec ".__metadata__ == {format: \"pt\"} and .[\"bn1.running_var\"].shape == [4] and
		.[\"conv1.weight\"].shape == [4, 1, 3, 3] and .[\"fc3.weight\"].shape == [10, 16] and length == 20"
	still two plan-residual --init=out --seed=2
	rm -rf again && pd-export -q -o again two
	header out/model.safetensors >was && header again/model.safetensors | cmp - was'
cat >tied.json <<'END'
{"format": "pd-model", "version": 1, "name": "tied",
 "inputs": [{"name": "image", "dtype": "f32", "shape": [1, 2, 2]},
            {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "flat", "kind": "flatten", "inputs": ["image"]},
  {"name": "a", "kind": "linear", "inputs": ["flat"], "out_features": 4},
  {"name": "b", "kind": "linear", "inputs": ["a"], "out_features": 4, "shares": "a"},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["b", "label"]}
 ]}
END
test_ok "parameters that layers share have both names, but where the source has one" '
	planned tied 1
	still ck plan-tied
	export_ck
	header out/model.safetensors | jq -ec "keys == [\"__metadata__\", \"a.bias\", \"a.weight\", \"b.bias\", \"b.weight\"]"
	jq ".source = {format: \"onnx\"} | .layers[2].names = {weight: \"c\"}" tied.json >named.json
	rm -rf out && pd-export -q -o out --model=named.json ck
	header out/model.safetensors | jq -ec "keys == [\"__metadata__\", \"a.bias\", \"a.weight\", \"b.bias\", \"c\"]"
	jq ".source = {format: \"onnx\"}" tied.json >once.json
	rm -rf out && pd-export -q -o out -m once.json ck
	header out/model.safetensors | jq -ec "keys == [\"__metadata__\", \"a.bias\", \"a.weight\"]"'
test_ok "names out of a model, a profile or a plan; a checkpoint that has none" '
	planned gpt2 1
	still ck plan-gpt2 --init="$data/gpt2"
	jq "del(.model, .recipe, .checksum) | .version = 1 | del(.stages[].header_checksum)" "$(at ck 1)/checkpoint.json" >document
	mv document "$(at ck 1)/checkpoint.json"
	rm -rf out
	status 2 pd-export -o out ck 2>err
	one_line err && grep -q "expected the model, found none, since an older version wrote it: --model says it" err
	for file in gpt2.json profile.json plan-gpt2; do
		rm -rf out && pd-export -q -o out --model=$file ck
		cmp out/model.safetensors "$data/gpt2/model.safetensors"
	done
	rm -rf out
	status 2 pd-export -o out --model=vit.json ck 2>err
	one_line err && grep -q "expected \"vit.embeddings" err
	[ ! -e out ]'

# refused WORDS ARGUMENT...: checks that pd-export refuses these in one sentence with the WORDS.
refused() {
	words=$1
	shift
	status 2 pd-export "$@" 2>err >stdout
	cat err
	one_line err && grep -q "^pd-export: $words" err && [ ! -s stdout ]
}
test_ok "what cannot be exported, and where" '
	still ck plan-gpt2 --init="$data/gpt2"
	rm -rf out
	refused "expected a checkpoint"
	refused "expected --output=FOLDER" ck
	refused "no complete checkpoint found: nothing: cannot read" -o out nothing
	refused "$data/gpt2: no complete checkpoint" -o out "$data/gpt2"
	mkdir full && touch full/x
	refused "full: expected a new or an empty folder" -o full ck
	refused "plan-gpt2: expected a new folder, found a file" -o plan-gpt2 ck
	refused "none/out: cannot be made: No such file" -o none/out ck
	refused "--model: plan-none: " -o out --model=plan-none ck
	cp -r ck damaged
	printf x | dd of="$(at damaged 1)/stage-0.safetensors" bs=1 seek=9000 conv=notrunc 2>log
	refused ".*damaged" -o out "$(at damaged 1)"
	[ ! -e out ]
	mkdir empty .fresh.tmp && touch .fresh.tmp/x
	pd-export -q -o empty/ ck && cmp empty/model.safetensors "$data/gpt2/model.safetensors"
	pd-export -q -o fresh ck && [ ! -e .fresh.tmp ] && [ "$(ls fresh | wc -l)" = 2 ]'
mkdir disk
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=40k tmpfs disk 2>log; then
	test_ok "a full disk is an error, and leaves nothing" '
		pd-export -q -o disk/small --dtype=bf16 ck
		status 3 pd-export -o disk/out ck 2>err
		cat err
		one_line err && grep -q "cannot write: No space left" err
		[ "$(ls -A disk)" = small ]'
	umount disk
else
	test_skip "a full disk" "no file system can be mounted"
fi

test_done
