#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-model reads the config.json of a Hugging Face folder: all of it is computed, changes nothing, or is
# refused.  The documents are those of the networks that they are named for, as transformers 4 or 5 writes
# them; the numbers of parameters are the published ones.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
command -v jq >/dev/null || test_skip_all "jq is not installed"

# config NAME: makes the folder NAME with the config.json on standard input.
config() {
	mkdir -p "$1"
	cat >"$1/config.json"
}
# llama TYPE CLASS LAYERS HIDDEN HEADS KV_HEADS FEED_FORWARD VOCABULARY MORE: prints a config.json.
llama() {
	cat <<-END
	{"architectures": ["$2"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": [2, 3],
	 "hidden_act": "silu", "hidden_size": $4, "initializer_range": 0.02, "intermediate_size": $7,
	 "model_type": "$1", "num_attention_heads": $5, "num_hidden_layers": $3, "num_key_value_heads": $6,
	 "torch_dtype": "bfloat16", "transformers_version": "4.46.0", "use_cache": true, "vocab_size": $8$9}
	END
}
eps=', "rms_norm_eps": 1e-05' qwen=', "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "use_sliding_window": false'
llama llama LlamaForCausalLM 32 4096 32 32 11008 32000 "$eps, \"pretraining_tp\": 1, \"rope_scaling\": null,
	\"max_position_embeddings\": 4096, \"tie_word_embeddings\": false" | config llama-2-7b
scaled='"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
	"original_max_position_embeddings": 8192, "rope_type": "llama3"'
llama llama LlamaForCausalLM 32 4096 32 8 14336 128256 "$eps, \"rope_theta\": 500000.0,
	\"rope_scaling\": {$scaled}, \"attention_bias\": false, \"mlp_bias\": false, \"max_position_embeddings\": 131072" | config llama-3.1-8b
llama llama LlamaForCausalLM 80 8192 64 8 28672 128256 "$eps,
	\"rope_parameters\": {\"rope_theta\": 500000.0, $scaled}" | config llama-3.1-70b
llama qwen2 Qwen2ForCausalLM 28 3584 28 4 18944 152064 "$qwen, \"sliding_window\": 131072,
	\"max_window_layers\": 28, \"tie_word_embeddings\": false" | config qwen2.5-7b
llama qwen2 Qwen2ForCausalLM 80 8192 64 8 29568 152064 "$qwen, \"max_window_layers\": 70" | config qwen2.5-72b
llama qwen3 Qwen3ForCausalLM 64 5120 64 8 25600 151936 "$qwen, \"head_dim\": 128, \"attention_bias\": false,
	\"max_window_layers\": 64, \"sliding_window\": null, \"tie_word_embeddings\": false" | config qwen3-32b
llama qwen3 Qwen3ForCausalLM 28 1024 16 8 3072 151936 ", \"head_dim\": 128, \"tie_word_embeddings\": true,
	\"rope_parameters\": {\"rope_theta\": 1000000, \"rope_type\": \"default\"}" | config qwen3-0.6b
llama mistral MistralForCausalLM 32 4096 32 8 14336 32768 "$eps, \"rope_theta\": 1000000.0,
	\"head_dim\": 128, \"max_position_embeddings\": 32768, \"sliding_window\": null" | config mistral-7b-v0.3
llama mistral MistralForCausalLM 32 4096 32 8 14336 32000 "$eps, \"rope_theta\": 10000.0,
	\"max_position_embeddings\": 32768, \"sliding_window\": 4096" | config mistral-7b-v0.1
config gpt2-xl <<'END'
{"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
 "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
 "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 1600, "n_head": 25,
 "n_layer": 48, "n_positions": 1024, "output_past": true, "resid_pdrop": 0.1, "summary_activation": null,
 "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
 "summary_use_proj": true, "vocab_size": 50257,
 "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}}
END
config bert-large <<'END'
{"architectures": ["BertForPreTraining"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": false,
 "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 1024, "initializer_range": 0.02,
 "intermediate_size": 4096, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
 "num_attention_heads": 16, "num_hidden_layers": 24, "pad_token_id": 0,
 "position_embedding_type": "absolute", "type_vocab_size": 2, "use_cache": true, "vocab_size": 30522}
END

config vit-h-14 <<'END'
{"architectures": ["ViTForImageClassification"], "attention_probs_dropout_prob": 0.0, "encoder_stride": 16,
 "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 1280, "image_size": 224,
 "initializer_range": 0.02, "intermediate_size": 5120, "label2id": {"no": 0}, "layer_norm_eps": 1e-12,
 "model_type": "vit", "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 32,
 "patch_size": 14, "qkv_bias": true}
END
jq '.id2label = ([range(1000) | {key: "\(.)", value: "class \(.)"}] | from_entries)' vit-h-14/config.json \
	>vit.json && mv vit.json vit-h-14/config.json

# summed WHAT: prints the number of parameters that the last line of the table says.
summed() {
	pd-model --summary "$@" | sed -n '$s/.* layers, \([0-9,]*\) parameters.*/\1/p' | tr -d ,
}
while read -r name count; do
	test_ok "$name has $count parameters, as published, and is called so" '
		[ "$(summed ./$name)" -eq "$count" ]
		pd-model ./$name/config.json --layers=1 | jq -e --arg name $name ".name == \$name"'
done <<'END'
llama-2-7b 6738415616
llama-3.1-8b 8030261248
llama-3.1-70b 70553706496
qwen2.5-7b 7615616512
qwen2.5-72b 72706203648
qwen3-32b 32762123264
qwen3-0.6b 596049920
mistral-7b-v0.1 7241732096
mistral-7b-v0.3 7248023552
gpt2-xl 1557611200
bert-large 336226108
vit-h-14 632045800
END
# ours: leaves out of a document what the outside calls its parameters.
ours() {
	jq "del(.source, .layers[].names)"
}
test_ok "a family has the sizes that a folder says" '
	same() {
		pd-model ./$1 --name=x --sequence=64 | ours | jq "del(.dtype)" >one
		shift
		pd-model "$@" --name=x --sequence=64 | ours >two
		diff one two
	}
	same llama-2-7b llama-2-7b
	same llama-3.1-8b llama-3.1-8b
	same llama-3.1-70b llama-3.1-70b
	same mistral-7b-v0.3 mistral-7b
	same qwen2.5-7b qwen2.5-7b
	same qwen3-32b llama --preset=qwen3-8b --layers=64 --hidden=5120 --heads=64 --kv-heads=8 \
		--feed-forward=25600
	same gpt2-xl gpt2-xl --positions=1024
	same bert-large bert-large --positions=512
	pd-model ./vit-h-14 --eps=1e-6 --name=x | ours >one
	pd-model vit-h-14 --name=x | ours | diff one -'

# attributes WHAT FILTER: prints what a jq filter finds in the layers.
attributes() {
	what=$1
	shift
	pd-model $what | jq -c ".layers | $*"
}
# with NAME FILTER: makes the folder NAME of a small config.json that a jq filter has changed.
with() {
	mkdir -p "$1"
	jq "$2" "$small" >"$1/config.json"
}
small=$PD_SOURCE/test/data/small-config.json
cp -r qwen2.5-7b q2
jq '.num_hidden_layers = 1 | .hidden_size = 64 | .num_attention_heads = 4 | .num_key_value_heads = 2 |
	.intermediate_size = 96 | .vocab_size = 100' qwen2.5-7b/config.json >q2/config.json
test_ok "queries, keys and values have biases in Qwen 2; heads are normalised in Qwen 3" '
	attributes q2 "map(select(.kind == \"linear\" and .bias != false) | .name | split(\".\") | last)" >biases
	[ "$(cat biases)" = "[\"q_proj\",\"k_proj\",\"v_proj\"]" ]
	with q3 .
	attributes q3 "map(select(.name | test(\"[.]0[.].*q_\")) | [.kind, .shape // .out_features // .head_dim])" >norms
	cat biases norms
	[ "$(cat norms)" = "[[\"linear\",64],[\"reshape\",[64,4,16]],[\"rmsnorm\",null],[\"reshape\",[64,64]],[\"rope\",16]]" ]
	attributes q3 "map(select(.name == \"lm_head\").shares)" | grep "^\[\"model.embed_tokens\"\]$"'
with l ".model_type = \"llama\" | .architectures = [\"LlamaForCausalLM\"] | del(.layer_types, .sliding_window,
	.max_window_layers, .use_sliding_window)"
small=l/config.json
test_ok "biases, activations, padding, dropout, deviation and the base of rotary positions" '
	with bias ".attention_bias = true | .mlp_bias = false"
	[ "$(attributes bias "map(select(.kind == \"linear\" and .bias != false)) | length")" = 8 ]
	with bias ".attention_bias = true | .mlp_bias = true"
	[ "$(attributes bias "map(select(.kind == \"linear\" and .bias != false)) | length")" = 14 ]
	with more ".hidden_act = \"gelu_pytorch_tanh\" | .pad_token_id = -1 | .attention_dropout = 0.25 |
		.initializer_range = 0.5 | .rope_parameters.rope_theta = 77"
	attributes more "[.[0].padding_idx, .[0].init.weight] +
		(map(select(.kind == \"gelu\").approximate) | unique) +
		(map(select(.kind == \"attention\").dropout) | unique) +
		(map(select(.kind == \"rope\").base) | unique) ==
		[299, \"normal(0.5)\", \"tanh\", 0.25, 77]" | grep "^true$"'
test_ok "rotary positions are scaled as Llama 3.1 scales them, or all alike, or not" '
	ropes() {
		attributes $1 "[.[] | select(.kind == \"rope\") | del(.name, .kind, .inputs, .head_dim, .base)] |
			unique == [{$2}]" | grep "^true$"
	}
	ropes ./llama-3.1-70b "factor: 8, high_freq_factor: 4, low_freq_factor: 1, original_positions: 8192"
	with scaled ".rope_parameters += {rope_type: \"llama3\", factor: 8, low_freq_factor: 2, high_freq_factor: 6}"
	ropes scaled "factor: 8, high_freq_factor: 6, low_freq_factor: 2, original_positions: 64"
	with scaled ".rope_scaling = {type: \"linear\", factor: 2.5}"
	ropes scaled "factor: 2.5"
	ropes l ""'
test_ok "what is said twice of rotary positions is read as transformers reads it" '
	base() {
		attributes $1 "(map(select(.kind == \"rope\") | [.base, .factor]) | unique) == [[$2, ${3:-null}]]" |
			grep "^true$"
	}
	with twice ".rope_theta = 50 | .rope_parameters.rope_theta = 77"
	base twice 77
	with twice "{rope_theta: 50} + . | .rope_parameters.rope_theta = 77"
	base twice 77
	with twice ".rope_theta = 50 | .rope_parameters = {rope_type: \"default\"}"
	base twice 50
	with twice ".rope_theta = 50 | .rope_scaling = {type: \"linear\", factor: 2}"
	base twice 50 2
	with twice ".rope_theta = 50 | .rope_scaling = {type: \"linear\", factor: 2, rope_theta: 60} |
		.rope_parameters = {rope_type: \"linear\", factor: 3, rope_theta: 70}"
	base twice 60 2
	with twice ".partial_rotary_factor = 0.5 | .rope_parameters.partial_rotary_factor = 1"
	base twice 1000000'
test_ok "version 4 and 5 say the same" '
	with four "del(.rope_parameters, .dtype) | .rope_theta = 1000000.0 | .rope_scaling = null |
		.torch_dtype = \"bfloat16\""
	pd-model l --name=x | ours >one
	pd-model four --name=x | ours >two
	diff one two'
test_ok "every activation is the kind of layer that it names" '
	while read -r given kind; do
		with act ".hidden_act = \"$given\""
		attributes act "map(select(.name | test(\"mlp[.]$kind\")) | .kind) == [\"$kind\", \"$kind\"]" | grep "^true$"
	done <<-END
	relu relu
	gelu gelu
	gelu_new gelu
	swish silu
	tanh tanh
	sigmoid sigmoid
	relu6 relu6
	leaky_relu leaky_relu
	hardswish hardswish
	gelu_10 gelu
	END
	steps() {
		with act ".hidden_act = \"$1\""
		[ "$(attributes act "map(select(.name | test(\"layers.0.mlp[.]\") and
			(test(\"(_proj|[.]mul|[.]add)$\") | not)) | .kind)")" = "$2" ]
	}
	steps relu2 "[\"relu\",\"pow\"]"
	steps gelu_10 "[\"gelu\",\"clamp\"]"
	steps quick_gelu "[\"affine\",\"sigmoid\",\"mul\"]"
	steps mish "[\"softplus\",\"tanh\",\"mul\"]"
	steps laplace "[\"affine\",\"erf\",\"affine\"]"
	steps sqrtsoftplus "[\"softplus\",\"pow\"]"
	steps linear "[]"'
test_ok "keys that are missing are what transformers takes for them" '
	echo "{\"model_type\": \"llama\"}" | config bare
	[ "$(summed bare)" -eq 6738415616 ]
	[ "$(attributes bare "map(select(.kind == \"rmsnorm\").eps) | unique == [1e-6]")" = true ]
	echo "{\"model_type\": \"bert\"}" | config bare
	[ "$(summed bare)" -eq "$(pd-model --list | awk "\$1 == \"bert-base\" { print \$2 }")" ]
	echo "{\"model_type\": \"gpt2\"}" | config bare
	[ "$(summed bare)" -eq 124439808 ]'
test_ok "BERT is normalised behind each sum; what it predicts, its class says" '
	[ "$(attributes ./bert-large "map(select(.kind == \"layernorm\").eps) | length == 50 and unique == [1e-12]")" = true ]
	attributes ./bert-large "map(.kind) | index(\"layernorm\") < index(\"attention\") and .[-1] == \"softmax_cross_entropy\"" |
		grep -q true
	jq ".architectures = [\"BertForMaskedLM\"]" bert-large/config.json | config masked
	[ "$(summed masked)" -eq 335174458 ]
	[ "$(summed masked --head=pretraining)" -eq 336226108 ]'
test_ok "attention has the scales, and queries the biases, that a folder says" '
	scales() { attributes ./no "map(select(.kind == \"attention\").scale)"; }
	jq ".n_layer = 2 | .n_embd = 64 | .n_head = 4 | .scale_attn_weights = false" gpt2-xl/config.json | config no
	[ "$(scales)" = "[1,1]" ] || [ "$(scales)" = "[1.0,1.0]" ]
	jq ".scale_attn_by_inverse_layer_idx = true" no/config.json | config no2
	cp no2/config.json no
	[ "$(scales)" = "[1,0.5]" ] || [ "$(scales)" = "[1.0,0.5]" ]
	jq ".scale_attn_weights = true" no2/config.json | config no
	[ "$(scales)" = "[0.25,0.125]" ]
	jq ".qkv_bias = false | .num_hidden_layers = 1" vit-h-14/config.json | config no
	[ "$(attributes ./no "map(select(.kind == \"linear\" and .bias == false)) | length")" = 3 ]'
test_ok "options change what a folder says" '
	pd-model ./gpt2-xl --layers=2 --hidden=64 --sequence=8 --name=small >small.json
	jq -e ".name == \"small\" and .inputs[0].shape == [8] and
		(.layers | map(select(.kind == \"position_embedding\"))[0].num_embeddings == 1024)" small.json
	pd-model ./gpt2-xl --layers=1 --dropout=0 | jq -e "[.layers[] | .kind == \"dropout\" or .dropout] | any | not"'
test_ok "samples have as many tokens as there were positions, or 8192, and a line says where there are more" '
	tokens() {
		expected=$1
		shift
		pd-model "$@" 2>err >tokens
		cat err
		[ "$(jq ".inputs[0].shape[0]" tokens)" = "$expected" ]
	}
	tokens 4096 ./llama-2-7b
	[ ! -s err ]
	tokens 2048 ./llama-2-7b --sequence=2048
	tokens 512 ./bert-large
	tokens 64 l
	tokens 8192 ./llama-3.1-8b
	grep -q "^pd-model: ./llama-3.1-8b/config.json: samples have 8192 tokens, of at most 131072 (--sequence)$" err
	tokens 8192 ./mistral-7b-v0.3
	one_line err && grep -q "at most 32768" err
	tokens 8192 ./mistral-7b-v0.3 --sequence=8192
	tokens 16384 ./mistral-7b-v0.3 --sequence=16384
	[ ! -s err ]
	jq ".rope_scaling.original_max_position_embeddings = 2048" llama-3.1-8b/config.json | config early
	tokens 2048 early'
test_ok "the type of the numbers is in the document, and is what pd-profile computes in" '
	typed() {
		jq "$1" l/config.json | config typed
		pd-model typed >typed.json
		jq -e ".dtype == $2" typed.json
		PD_DEVICES=$PD_SOURCE/share/devices pd-profile --device=h100-sxm "$4" typed.json 2>err | jq -e ".dtype == \"$3\""
		cat err
	}
	typed "del(.dtype, .torch_dtype)" null f32 --batch-size=1
	one_line err && grep -q "^pd-profile: typed: computed in f32 (--dtype)$" err
	typed ".dtype = \"bfloat16\"" "\"bf16\"" bf16 --tf32
	grep -q "^pd-profile: typed: computed in bf16, as the model says (--dtype), microbatches of 32 samples (--batch-size)$" err
	typed "del(.dtype) | .torch_dtype = \"float16\"" "\"f16\"" f16 --batch-size=2
	one_line err && grep -q "computed in f16" err
	typed ".torch_dtype = \"torch.bfloat16\" | del(.dtype)" "\"bf16\"" f32 --dtype=f32
	one_line err && grep -q "32 samples" err
	typed "del(.dtype) | .torch_dtype = \"float8_e4m3fn\"" null f32 --batch-size=1
	typed ".dtype = \"bfloat16\"" "\"bf16\"" bf16 --batch-size=1
	pd-model - <typed.json | cmp - typed.json
	jq ".dtype = \"i32\"" typed.json >no.json
	status 2 pd-model no.json 2>err
	grep -q "^pd-model: no.json: dtype: expected \"f32\", \"bf16\" or \"f16\", found \"i32\"$" err'
test_ok "pd-profile measures in the type that the model says" '
	jq ".num_hidden_layers = 1 | .dtype = \"bfloat16\"" l/config.json | config typed
	pd-model typed --sequence=4 >typed.json
	pd-profile --no-link --iterations=1 --batch-size=1 typed.json 2>err | jq -e ".dtype == \"bf16\""
	cat err
	grep -q "computed in bf16, as the model says" err'

# refused WORDS ARGUMENT...: checks that pd-model refuses these in one sentence with the WORDS, and writes
# nothing.
refused() {
	words=$1
	shift
	status 2 pd-model "$@" 2>err >out
	cat err
	one_line err && grep -q -e "^pd-model: $words" err && [ ! -s out ]
}
# without FILTER WORDS: checks that what jq makes of the small config.json is refused.
without() {
	with no "$1"
	refused "no/config.json: $2" no
}
test_ok "what is not computed is refused, and the sentence says what was found and what to do" '
	without ".model_type = \"mamba\"" "model_type: no network of type \"mamba\" is known here; pd-model(1) lists .* exports others"
	without ".model_type = \"distillbert\"" "model_type: no network of type .*did you mean \"distilbert\"?"
	jq ".model_type = \"roberta\" | .tie_word_embeddings = false | .architectures = [\"RobertaForMaskedLM\"]" \
		bert-large/config.json | config no
	refused "no/config.json: tie_word_embeddings: expected true, since a second bias" no
	jq ".architectures = [\"BertForSequenceClassification\"] | .num_labels = 1" bert-large/config.json | config no
	refused "no/config.json: num_labels: expected two classes or more.*regression" no
	jq ".architectures = [\"BertForSequenceClassification\"] | .problem_type = \"multi_label_classification\"" \
		bert-large/config.json | config no
	refused "no/config.json: problem_type: expected .single_label_classification" no
	without ".architectures = [\"LlamaModel\"]" "architectures.0.: expected \"LlamaForCausalLM\".*found \"LlamaModel\"$"
	without ".hidden_act = \"xielu\"" "hidden_act: expected one of \"relu\", .*, found \"xielu\"$"
	without ".rope_parameters = {rope_type: \"yarn\", factor: 8, rope_theta: 5e5}" \
		"rope_parameters.rope_type: expected \"default\", .*delete rope_parameters.*found \"yarn\"$"
	without ".rope_scaling = {type: \"linear\"}" "rope_scaling.factor: expected a number from 1 .*, found nothing$"
	without ".rope_scaling = {rope_type: \"llama3\", factor: 2}" "rope_scaling.low_freq_factor: .*found nothing$"
	without ".rope_scaling = {type: \"linear\", factor: 2, attention_factor: 3}" "rope_scaling: unknown key \"attention_f"
	without ".partial_rotary_factor = 0.5" "partial_rotary_factor: expected 1, .*found 0.5$"
	without ".rope_parameters.partial_rotary_factor = 0.5" "rope_parameters.partial_rotary_factor: expected 1, .*found 0.5$"
	without ".quantization_config = {bits: 4}" "quantization_config: expected none, .*take the folder"
	without ".auto_map = {AutoModel: \"x.X\"}" "auto_map: expected none, since code of the folder.s own"
	without ".is_decoder = true" "is_decoder: expected none, .*found true$"
	without ".num_local_experts = 8" "num_local_experts: no such key of llama is known here, .*: delete it if it does not$"
	without ".rms_norm_esp = 1e-3" "rms_norm_esp: .*; did you mean \"rms_norm_eps\"?"
	without ".layer_types = [\"full_attention\", \"linear_attention\"]" "layer_types.1.: expected \"full_attention\", found \"lin"
	without ".num_key_value_heads = 3" "num_key_value_heads: expected a divisor of its 4 heads, found 3$"
	without ".head_dim = null | .num_attention_heads = 5" "num_attention_heads: expected a divisor of its 24 hidden"
	without ".vocab_size = 0" "vocab_size: expected a whole number from 1 "
	without ".pad_token_id = 300" "pad_token_id: expected null or a token below vocab_size, 300, found 300$"
	with no ".head_dim = 15"
	refused "the network: .*has head_dim 15: expected an even divisor" no
	jq ".embd_pdrop = 0.25" gpt2-xl/config.json | config no
	refused "no/config.json: embd_pdrop: expected 0.1, as resid_pdrop has.*found 0.25$" no
	jq ".position_embedding_type = \"relative_key\"" bert-large/config.json | config no
	refused "no/config.json: position_embedding_type: expected \"absolute\"" no
	jq ".patch_size = 15" vit-h-14/config.json | config no
	refused "no/config.json: --patch=15: vit expects a divisor of its images. --size, 224$" no'
test_ok "a sliding window is in the layers that have one, where it does not see all of a sample" '
	windows() { pd-model "$@" | jq -c "[.inputs[0].shape[0]] + [.layers[] | select(.kind == \"attention\") |
		.window // 0]"; }
	jq ".sliding_window = 64 | .num_hidden_layers = 2" mistral-7b-v0.3/config.json | config window
	[ "$(windows window)" = "[8192,64,64]" ]
	[ "$(windows window --sequence=64)" = "[64,0,0]" ]
	[ "$(windows llama --window=4 --window-from=1 --layers=3 --sequence=8)" = "[8,0,4,4]" ]
	jq ".sliding_window = 64 | .use_sliding_window = true | .num_hidden_layers = 3" q2/config.json | config window
	[ "$(windows window)" = "[8192,0,0,0]" ]
	jq ".max_window_layers = 1 | del(.layer_types)" window/config.json | config some
	[ "$(windows some)" = "[8192,0,64,64]" ]
	jq ".layer_types = [\"full_attention\", \"full_attention\", \"sliding_attention\"]" some/config.json | config typed
	[ "$(windows typed)" = "[8192,0,0,64]" ]
	jq ".layer_types = [\"full_attention\", \"sliding_attention\", \"full_attention\"]" typed/config.json | config ends
	[ "$(windows ends)" = "[8192,0,64,0]" ]
	jq ".layer_types[1] = \"chunked_attention\"" typed/config.json | config chunked
	refused "chunked/config.json: layer_types.1.: expected .full_attention. or .sliding_attention.*found .chunked" chunked'
test_ok "keys of generation, of where it comes from and of other heads are passed over" '
	with more ".temperature = 0.5 | .max_sequence_length = 9 | .rope_interleaved = false | ._name_or_path = \"x\" | .id2label = {\"0\": \"no\"} | .anything = null"
	pd-model l --name=x | ours >one
	pd-model more --name=x | ours >two
	diff one two'
test_ok "a document says what the files of the folder call its parameters" '
	pd-model ./gpt2-xl --layers=1 --sequence=8 2>/dev/null >named
	jq -ec ".layers | map({key: .name, value: .names}) | from_entries |
		.[\"wte\"] == {weight: \"transformer.wte.weight\"} and .[\"head\"] == null and
		.[\"h.0.ln_1\"] == {weight: \"transformer.h.0.ln_1.weight\", bias: \"transformer.h.0.ln_1.bias\"} and
		.[\"h.0.attn.v\"] == {weight: {name: \"transformer.h.0.attn.c_attn.weight\", transpose: true, start: 3200},
			bias: {name: \"transformer.h.0.attn.c_attn.bias\", start: 3200}} and
		.[\"h.0.mlp.proj\"].weight == {name: \"transformer.h.0.mlp.c_proj.weight\", transpose: true}" named
	pd-model ./vit-h-14 | jq -ec "[.layers[] | select(.names).names.weight] == [
		{name: \"vit.embeddings.cls_token\", shape: [1, 1, 1280]},
		{name: \"vit.embeddings.position_embeddings\", shape: [1, 257, 1280]}]"
	pd-model ./bert-large | jq -ec "[.layers[].names] | any | not"
	pd-model l | jq -ec "[.layers[].names] | any | not"'
test_ok "it carries the config.json along, every key as it was, unless options make another network of it" '
	pd-model l >carried
	jq -e --slurpfile config l/config.json ".source.config == \$config[0]" carried
	jq -e ".source.format == \"huggingface\" and .source.prefix == \"model.\"" carried
	pd-model l --sequence=8 --attention-dropout=0.5 2>err | jq -e .source.config
	[ ! -s err ]
	pd-model l --layers=1 2>err >other
	jq -e ".source | has(\"config\") | not" other
	grep -q "^pd-model: --layers: the network is not that of l/config.json" err
	pd-model l | pd-model - | cmp - carried'

test_ok "a model document is read, and stays as it is" '
	pd-model gpt --layers=1 --hidden=8 --heads=2 --vocabulary=9 --sequence=4 >gpt.json
	pd-model gpt.json | cmp - gpt.json
	pd-model - <gpt.json | cmp - gpt.json
	pd-model --name=other gpt.json | jq -e ".name == \"other\""
	refused "--layers: gpt.json is a model document, whose network stays as it is" gpt.json --layers=2'
test_ok "other programs say which one reads a config.json" '
	status 2 pd-profile --no-link l/config.json 2>err
	cat err
	one_line err && grep -q "l/config.json: expected a model document, which pd-model writes of a Hugging" err'
test_ok "a folder without config.json, and what is no document" '
	mkdir -p empty
	refused "empty: expected a Hugging Face folder, but it has no config.json$" empty
	refused "expected a family .*found \"missing.json\"" missing.json
	refused "--preset: expected a family beside it, found \"l\"$" l --preset=gpt2
	echo "{}" >what.json
	refused "what.json: expected a model document.*\"model_type\", found" what.json
	echo "{\"model_type\": 3}" >what.json
	refused "what.json: model_type: expected a non-empty string, found 3$" what.json'

test_ok "a name is UTF-8 without control characters, whatever a folder is called" '
	bytes=$(printf "a\377")
	refused "--name: expected text in UTF-8" mlp --name="$bytes"
	refused "--name: expected text in UTF-8" gpt.json --name="$bytes"
	mkdir "$bytes" "two
lines"
	cp l/config.json "$bytes"
	cp l/config.json "two
lines"
	pd-model "$bytes" | jq -e ".name == \"a\uFFFD\""
	pd-model "two
lines" | jq -e ".name == \"llama\""'

test_ok "the table has a line for every input and layer, aligned, and the sum below" '
	pd-model gpt --layers=1 --hidden=8 --heads=2 --vocabulary=1000 --sequence=4 --dropout=0 --name=small \
		--summary >table
	cat table
	grep -q "^wte  *embedding  *4 x 8  *8,000   weight 1000 x 8$" table
	grep -q "^h.0.attn.q  *linear  *4 x 8  *72   weight 8 x 8, bias 8$" table
	grep -q "^head  *linear  *4 x 1000  *those of wte$" table
	grep -q "^labels  *i32  *4$" table
	[ "$(tail -n 1 table)" = \
		"small: 17 layers, 8,920 parameters (16,920 if those that are shared counted again)" ]
	awk "/ layers, / || !NF { next } { match(\$0, /  +/); at = RSTART + RLENGTH } NR == 1 { first = at } at != first { bad = 1 }
		END { exit bad }" table
	! grep -q " \$" table'
test_ok "the table of a preset has the sum that --list has" '
	pd-model --list >list
	for preset in vgg16 awd-lm gnmt-8 bert-336m qwen3-8b; do
		[ "$(summed $preset)" -eq "$(awk -v p=$preset "\$1 == p { print \$2 }" list)" ]
	done'
test_done
