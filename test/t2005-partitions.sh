#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stages of a plan in the words of Megatron, torchtitan, DeepSpeed and Galvatron, out and in.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# transformer BLOCKS >FILE: writes a profile of an embedding, a dropout, blocks of three layers, a norm, a head and
# a loss.
transformer() {
	jq -n --argjson n "$1" '
		def layer($name; $bytes; $ns): {name: $name, forward_ns: $ns, backward_ns: (2 * $ns),
			activation_bytes: 1000, parameter_bytes: $bytes};
		[layer("embed"; 4000; 1000), layer("drop"; 0; 1000),
		 (range($n) | layer("layers.\(.).norm"; 400; 100000), layer("layers.\(.).mlp"; 4000; 900000),
			layer("layers.\(.).add"; 0; 1000)),
		 layer("norm"; 400; 1000), layer("head"; 4000; 500000), layer("loss"; 0; 1000)]
		| {format: "pd-profile", version: 1, name: "small", batch_size: 4, device: {kind: "cpu"},
		   layers: [foreach .[] as $layer ({}; {before: .now, now: $layer.name};
			$layer + {inputs: (if .before then [.before] else [] end)})]}'
}
transformer 8 >eight.json
flush="-q --topology=4@10GB/s --weights=flush --microbatches=8"

# firsts: prints the first layer of each stage of a plan, and its replicas where it has some.
firsts() {
	jq -r '.stages | map(.layers[0] + if .replicas > 1 then "x\(.replicas)" else "" end) | join(" ")'
}
# stages WORDS FIRSTS: checks which stages pd-plan makes of the words.
stages() {
	pd-plan $flush --stages="$1" eight.json | firsts >out
	cat out
	[ "$(cat out)" = "$2" ]
}

# refused WORDS OPTION...: checks that pd-plan refuses in one line with the WORDS.
refused() {
	words=$1
	shift
	status 2 pd-plan "$@" >out 2>err
	cat err
	[ ! -s out ] && one_line err && grep -q -- "$words" err
}
test_ok "megatron: uneven stages, the embedding and the head alone, and back" '
	stages "megatron:Et*3|t*3|ttL" "embed layers.3.norm layers.6.norm"
	stages "megatron:E|t*4,t*4|L" "embed layers.0.norm norm"
	stages "megatron:E(tt|)*3t*2L" "embed layers.2.norm layers.4.norm layers.6.norm"
	stages "megatron:Et*5|t*3Lx2" "embedx2 layers.5.normx2"
	while read -r ranks layout shortest; do
		pd-plan $flush --stages="megatron:$layout" --format=megatron eight.json >out
		cat out
		grep -Fqx -- "    --pipeline-model-parallel-size $ranks --pipeline-model-parallel-layout \"$shortest\" --micro-batch-size 4 --global-batch-size 32" out
	done <<END
3 Ettt|ttt|ttL Ettt|ttt|ttL
3 E|tttttttt|L E|t*8|L
4 Ett|ttt|tt|tL Ett|ttt|tt|tL
END
	pd-plan $flush --stages="megatron:Ett|tt|tt|ttL" --format=megatron eight.json >out
	grep -Fqx -- "    --pipeline-model-parallel-size 4 --micro-batch-size 4 --global-batch-size 32" out'
test_ok "megatron: virtual stages, recomputation, and replicas" '
	pd-plan -q --topology=2@10GB/s --schedule=interleaved --chunks=4 --microbatches=8 --recompute=all \
		--stages="megatron:E(t|)*7tL" --format=megatron eight.json >out
	cat out
	grep -Fqx -- "    --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4 --micro-batch-size 4 --global-batch-size 32 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1" out
	grep -q "PRETRAIN:?. .$" out && grep -q "^    --num-layers 8 " out
	pd-plan $flush --stages="megatron:Et*4|t*4Lx2" --format=megatron eight.json | grep -q "^    --pipeline-model-parallel-size 2 "'
test_ok "megatron: rounds, there and back" '
	set -- -q --topology=2@10GB/s --straight --schedule=interleaved --microbatches=8
	pd-plan "$@" --round=4 --format=megatron eight.json >args
	grep -q " --microbatch-group-size-per-virtual-pipeline-stage 4 " args
	pd-plan "$@" --round=4 --cut=blocks eight.json | jq "del(.predicted)" >plan.json
	jq -e ".round == 4" plan.json
	pd-plan "$@" --stages="megatron:$(cat args)" eight.json | jq "del(.predicted)" | cmp - plan.json
	pd-plan "$@" --stages="megatron:--pipeline-model-parallel-layout=Et*4|t*2|t|tL" eight.json | jq -e ".round == null"
	refused "microbatches: Megatron needs a multiple of 3, the round, with schedule .*, found 8" "$@" --round=3 \
		--format=megatron eight.json
	refused "round: found 3, and --stages says 4" "$@" --round=3 --stages="megatron:$(cat args)" eight.json
	refused "expected --pipeline-model-parallel-layout" "$@" --stages="megatron:--num-layers 4" eight.json'
test_ok "megatron: attention, or normalisation, computed again in every block" '
	PD_DEVICES=$PD_SOURCE/share/devices
	export PD_DEVICES
	pd-model gpt2 --layers=4 --hidden=64 --heads=4 --sequence=64 --vocabulary=500 |
		pd-profile --device=a100-80 --dtype=bf16 --batch-size=4 - >gpt.json
	set -- -q --topology=2@10GB/s --weights=flush --microbatches=8 --stages="megatron:Et*2|t*2L"
	while read -r kinds modules; do
		pd-plan "$@" --recompute="$kinds" --format=megatron gpt.json >out
		cat out
		grep -q -- " --global-batch-size 32 --recompute-granularity selective --recompute-modules $modules --bf16\$" out
	done <<END
attention core_attn
layernorm layernorm
layernorm,attention core_attn layernorm
END
	pd-plan "$@" --recompute=attention gpt.json >plan.json
	jq -e "[.stages[].recompute] == [[[\"h.0.attn\"], [\"h.1.attn\"]], [[\"h.2.attn\"], [\"h.3.attn\"]]]" plan.json
	# what overwrites an output that is computed again is computed again, too
	jq ".layers |= map(if .name | test(\"gelu\") then .stash_bytes = 0 else . end)" gpt.json >place.json
	pd-plan "$@" --recompute=linear place.json | jq -e ".stages[0].recompute | flatten | index(\"h.1.mlp.gelu\")"
	refused "Megatron computes attention or normalisation of all blocks again, .* and not layer \"h.0.mlp.gelu\"" \
		"$@" --recompute=gelu --format=megatron gpt.json
	jq ".stages[0].recompute = [\"h.1.attn\"]" plan.json | pd-replay >out'
test_ok "torchtitan: modules of each stage, as it calls them, and back" '
	pd-plan $flush --stages="megatron:Et*3|t*5L" --format=torchtitan eight.json >fqns.py
	cat >expected <<END
    parallelism.module_fqns_per_model_part = [
        ["tok_embeddings", "layers.0", "layers.1", "layers.2"],
        ["layers.3", "layers.4", "layers.5", "layers.6", "layers.7", "norm", "lm_head"],
    ]
END
	grep -A 3 module_fqns fqns.py | diff expected -
	grep -qx "    training.local_batch_size = 32" fqns.py
	grep -qx "    parallelism.pipeline_parallel_microbatch_size = 4" fqns.py
	grep -qx "    parallelism.pipeline_parallel_degree = 2" fqns.py
	stages fqns:fqns.py "embed layers.3.norm"
	echo "[[\"embed\",\"layers.0\"],[\"layers.1\",\"layers.2\",\"layers.3\",\"layers.4\",\"layers.5\",\"layers.6\",\"layers.7\",\"norm\",\"head\"]]" >list.json
	stages fqns:list.json "embed layers.1.norm"
	pd-model llama --layers=2 --hidden=8 --heads=2 --sequence=4 --vocabulary=8 |
		jq ".layers |= map(if .name | test(\"embed\") then .names = {weight: \"tok_embeddings.weight\"}
			elif .name | test(\"input_layernorm\") then
				.names = {weight: (.name | sub(\"model.layers\"; \"blocks\") + \".weight\")}
			else . end)" | pd-profile --no-link -i 1 -b 1 >named.json
	pd-plan $flush --stages="megatron:Et|tL" --format=torchtitan named.json >out
	grep -Fqx "        [\"tok_embeddings\", \"layers.0\"]," out
	grep -Fqx "        [\"layers.1\", \"norm\", \"lm_head\"]," out
	pd-plan $flush --stages=fqns:out named.json | firsts | grep -qx "model.embed_tokens model.layers.1.input_layernorm"'
test_ok "deepspeed: a subclass with the parts, in modules, and back" '
	pd-plan $flush --stages="megatron:Et*3|t*5L" --format=deepspeed eight.json >out.py
	grep -qx "        self.parts = \[0, 4, 11\]" out.py
	grep -q "\"gradient_accumulation_steps\": 8" out.py && grep -q "\"train_batch_size\": 32" out.py
	! command -v python3 || python3 -m py_compile out.py
	grep -q "num_stages=2, activation_checkpoint_interval=0" out.py
	stages parts:0,4,11 "embed layers.3.norm"
	stages parts:0,1,9,11x1 "embed layers.0.norm norm"'
test_ok "galvatron: blocks of each stage, and which recompute" '
	pd-plan $flush --stages="megatron:Et*3|t*5L" --recompute=1 --format=galvatron eight.json >out
	jq -e ".pp_deg == 2 and .pp_division == \"3,5\" and .checkpoint == \"0,0,0,1,1,1,1,1\" and .chunks == 8
		and .global_bsz == 32 and .pipeline_type == \"pipedream_flush\" and (.tp_sizes_enc | length) == 15" out
	pd-plan $flush --schedule=gpipe --stages="megatron:Et*3|t*5L" --format=galvatron eight.json |
		jq -e ".pipeline_type == \"gpipe\""'
test_ok "a search cuts where the system can, and --cut has it do so for a plan" '
	for format in torchtitan megatron deepspeed galvatron; do
		pd-plan -q --topology=4@10GB/s --straight --microbatches=8 --format=$format eight.json >out
	done
	pd-plan -q --topology=4@10GB/s --straight --cut=blocks $flush eight.json | firsts >out
	grep -Eqx "embed( (layers\.[0-9]\.norm|norm))+" out
	pd-plan -q --topology=4@10GB/s --straight --cut=modules $flush eight.json | firsts >out
	grep -Eqx "embed( (layers\.[0-9]\.norm|norm|head))+" out
	pd-plan -q --topology=4@10GB/s --straight --schedule=interleaved --microbatches=8 --format=megatron eight.json >out'
test_ok "200 layouts by hand become stages, and the same layout again" '
	awk "BEGIN { srand(7); for (i = 0; i < 200; i++) {
		text = \"E\"; if (rand() < 0.3) text = text \"|\"
		for (t = 0; t < 8; t++) text = text \"t\" (t < 7 && rand() < 0.4 ? \"|\" : \"\")
		print text (rand() < 0.3 ? \"|\" : \"\") \"L\" } }" | sort -u >layouts
	[ "$(wc -l <layouts)" -gt 100 ]
	[ -n "${PD_TEST_QUICK-}" ] && head -n 20 layouts >some || cp layouts some
	while read -r layout; do
		pd-plan -q --topology=16@10GB/s --weights=flush --microbatches=1 --stages="megatron:$layout" \
			eight.json >plan.json
		[ "$(jq ".stages | length" plan.json)" -eq "$(echo "$layout" | tr "|" "\n" | wc -l)" ]
		pd-plan -q --topology=16@10GB/s --weights=flush --microbatches=1 --stages="megatron:$layout" \
			--format=megatron eight.json | grep -- --pipeline >short
		pd-plan -q --topology=16@10GB/s --weights=flush --microbatches=1 --stages="megatron:$(cat short)" \
			eight.json | cmp - plan.json
	done <some'

test_ok "refused: what a system cannot say" '
	halves="--stages=megatron:Et*4|t*4L"
	for format in torchtitan megatron deepspeed galvatron; do
		refused "weights: \"stash\" cannot be said.*flush" $flush --weights=stash $halves --format=$format eight.json
		refused "stages\[1\].replicas: .*expected 1 replicas" $flush --stages=14x1,15x2 --microbatches=8 \
			--format=$format eight.json
		refused "stage 1 begins with layer \"layers.3.mlp\", within a module" $flush --stages=12,17 \
			--format=$format eight.json
	done
	for format in megatron deepspeed galvatron; do
		refused "schedule: .* has no \"zb-h1\"" $flush --schedule=zb-h1 $halves --format=$format eight.json
	done
	refused "microbatches: Megatron needs a multiple of 2, the ranks of a path" -q --topology=2@10GB/s --schedule=interleaved \
		--microbatches=3 --format=megatron eight.json
	refused "schedule: DeepSpeed has no \"gpipe\"" $flush --schedule=gpipe $halves --format=deepspeed eight.json
	for format in torchtitan megatron deepspeed; do
		refused "recompute: .*in all stages or in none" $flush --recompute=1 $halves --format=$format eight.json
	done
	jq ".layers[].stash_bytes = 1000" eight.json >keeps.json
	refused "stages\[0\].recompute: Megatron computes attention or normalisation of all blocks again" $flush \
		--recompute="layers:*.mlp" $halves --format=megatron keeps.json
	for format in torchtitan deepspeed galvatron; do
		refused "stages\[0\].recompute: .* cannot recompute [0-9]* of [0-9]* layers" $flush \
			--recompute="layers:*.mlp" $halves --format=$format keeps.json
	done
	refused "stage 1 begins with \"head\", and Megatron keeps" $flush --stages=27,2 --format=megatron eight.json
	refused "stage 0 has no block" $flush --stages=2,27 --format=galvatron eight.json
	jq ".layers[20].inputs += [\"layers.1.add\"]" eight.json >skip.json
	for format in torchtitan deepspeed; do
		refused "the output of layer \"layers.1.add\" goes from stage 0 to stage 2" $flush \
			--stages=8,6,15 --format=$format skip.json
	done
	chain 6 | refused "no layer has a number in its name" $flush --straight --format=megatron
	jq ".layers |= map((.name, .inputs[]) |= sub(\"layers.(?<n>[0-2])\"; \"early.\(.n)\"))" eight.json >two.json
	for format in megatron galvatron; do
		refused "one list of blocks, and there is \"early.0\" beside \"layers.3\"" $flush --format=$format two.json
	done'
test_ok "torchtitan: as many microbatches as stages, where PyTorch asks for them, and equal rounds" '
	refused "microbatches: torchtitan needs at least as many as stages, 4, with schedule \"1f1b\", found 3" -q \
		--topology=4@10GB/s --straight --weights=flush --microbatches=3 --format=torchtitan eight.json
	refused "as many as stages, 2, with schedule \"1f1b\", found 1 of each replica" $flush --microbatches=2 \
		--stages=14x2,15x2 --format=torchtitan eight.json
	refused "as many as stages, 4, with schedule \"dualpipe-v\", found 3" -q --topology=2@10GB/s \
		--schedule=dualpipe-v --microbatches=3 --format=torchtitan eight.json
	refused "goes in 2 rounds with schedule \"interleaved\", 4 ranks and 11 microbatches" -q --topology=4@10GB/s \
		--schedule=interleaved --straight --microbatches=11 --format=torchtitan eight.json
	for schedule in 1f1b gpipe interleaved zb-v dualpipe-v; do
		for ranks in 2 4; do
			pd-plan -q --topology=$ranks@10GB/s --straight --schedule=$schedule --format=torchtitan eight.json >out
		done
	done
	pd-plan -q --topology=4@10GB/s --straight --weights=flush --schedule=gpipe --microbatches=3 --format=torchtitan \
		eight.json | grep "pp 4 .* 3 microbatches"'
test_ok "fqns: torchtitan'\''s own names of modules, whatever the network calls them" '
	echo "[[\"tok_embeddings\",\"layers.0\",\"layers.1\"],[\"layers.2\",\"layers.3\",\"layers.4\",\"layers.5\"],
		[\"layers.6\",\"layers.7\",\"norm\",\"lm_head\"]]" >fq.json
	stages fqns:fq.json "embed layers.2.norm layers.6.norm"
	sed "s/lm_head/output/" fq.json >old.json
	stages fqns:old.json "embed layers.2.norm layers.6.norm"
	jq "(.layers[].name, .layers[].inputs[]) |= sub(\"^layers\"; \"h\")" eight.json >h.json
	pd-plan $flush --stages=fqns:fq.json h.json | firsts | grep -qx "embed h.2.norm h.6.norm"
	sed "s/layers.3/layers.9/" fq.json >wrong.json
	refused "expected \"layers.3\" next, found \"layers.9\"" $flush --stages=fqns:wrong.json eight.json'
test_ok "memory is that of the system, which a line says, unless another is asked for" '
	for format in torchtitan:torch megatron:megatron deepspeed:torch galvatron:megatron; do
		pd-plan --topology=2@10GB/s --format=${format%:*} eight.json 2>err >out
		grep "memory is that of ${format#*:}, for" err
	done
	pd-plan --topology=2@10GB/s --memory-model=pd-run --format=megatron eight.json 2>err >out
	! grep "memory is that" err || false'
test_ok "where some stages do not fit without recomputation, all recompute, as the system can" '
	jq ".layers[].stash_bytes = 20000" eight.json >keeps.json
	set -- --topology=4@10GB/s --straight --microbatches=8 --memory-model=pd-run --memory=400kB
	pd-plan -q "$@" --weights=flush --cut=blocks keeps.json |
		jq -e "[.stages[].recompute != false] == [true, true, false, false]"
	for format in torchtitan megatron deepspeed; do
		pd-plan "$@" --format=$format keeps.json 2>err >out
		grep "recomputes in all or in none: all do" err
		grep "full activation checkpointing\|recompute-granularity full\|activation_checkpoint_interval=1" out
	done'
test_ok "refused: heads and sequences that devices cannot share out evenly; a vocabulary is padded" '
	# uneven WORDS TENSOR MODEL_OPTION...: plans groups of devices for Megatron
	uneven() {
		words=$1 tensor=$2
		shift 2
		pd-model gpt --layers=2 --hidden=24 "$@" >model.json
		PD_DEVICES=$PD_SOURCE/share/devices pd-profile --device=a100-80 --batch-size=1 model.json >estimated.json
		refused "$words" -q --topology=4@100GB/s --tensor=$tensor --microbatches=4 --format=megatron estimated.json
	}
	uneven "has 3 heads, which 4 devices cannot share out" 4 --heads=3 --sequence=8 --vocabulary=64
	uneven "cannot share 10 positions of the sequence out among 4" 4,sequence --heads=4 --sequence=10 --vocabulary=64
	pd-model gpt --layers=2 --hidden=24 --heads=4 --sequence=8 --vocabulary=63 >model.json
	PD_DEVICES=$PD_SOURCE/share/devices pd-profile --device=a100-80 --batch-size=1 model.json |
		pd-plan -q --topology=4@100GB/s --tensor=4 --microbatches=4 --format=megatron 2>err
	grep "vocabulary of 63 is no multiple of 4 devices: Megatron pads it to 512" err'
test_ok "refused: stages in words that do not fit" '
	refused "the layout has 7 decoder layers (t), profile \"small\" has 8" $flush --stages="megatron:Et*7L" eight.json
	refused "stage 1 has no layer" $flush --stages="megatron:Et*4||t*4L" eight.json
	refused "expected a whole number" $flush --stages="megatron:Et*8Lx" eight.json
	refused "found \"yL\"" $flush --stages="megatron:Et*8yL" eight.json
	refused "m, layers that predict" $flush --stages="megatron:Et*8mL" eight.json
	refused "expected L, the loss" $flush --stages="megatron:Et*8" eight.json
	refused "has no \*N behind it" $flush --stages="megatron:E(tt)t*6L" eight.json
	refused "parts have 9 modules, profile \"small\" has 11" $flush --stages=parts:0,4,9 eight.json
	refused "ascending from 0 to 11, found \"12\"" $flush --stages=parts:0,4,12 eight.json
	refused "stage 1 has no layer" $flush --stages=parts:0,4,4,11 eight.json
	echo "[[\"embed\", \"layers.1\"]]" >list.json
	refused "list.json: \[0\]\[1\]: expected \"layers.0\" next, found \"layers.1\"" $flush --stages=fqns:list.json eight.json
	echo "[[\"embed\"]]" >list.json
	refused "expected \"layers.0\" next, found the end" $flush --stages=fqns:list.json eight.json
	echo "nothing" >list.json
	refused "expected an array" $flush --stages=fqns:list.json eight.json
	refused "megatron:LAYOUT, parts" $flush --stages=nothing:1 eight.json
	refused "cut and --stages exclude each other: --stages says" $flush --stages=29 --cut=blocks eight.json'
test_done
