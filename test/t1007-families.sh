#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Families of the Hugging Face hub: a config.json without weights has as many parameters as was published, and
# the manual's table of them is that of the rows.  contrib/import-judge.sh compares what they compute.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

while read -r name count config; do
	test_ok "$name has $count parameters, as published" '
		mkdir -p "$name"
		echo "$config" >"$name/config.json"
		found=$(pd-model --summary "./$name" | sed -n "\$s/.* layers, \([0-9,]*\) parameters.*/\1/p" | tr -d ,)
		echo "$found"
		[ "$found" -eq "$count" ]'
done <<'END'
phi-3-mini-4k 3821079552 {"model_type": "phi3", "sliding_window": 2047, "rope_scaling": null, "original_max_position_embeddings": 4096}
phi-2 2779683840 {"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32, "partial_rotary_factor": 0.4}
phi-1.5 1418270720 {"model_type": "phi", "partial_rotary_factor": 0.5}
starcoder2-3b 3030371328 {"model_type": "starcoder2", "max_position_embeddings": 16384, "sliding_window": 4096}
starcoder2-7b 7173923840 {"model_type": "starcoder2", "hidden_size": 4608, "intermediate_size": 18432, "num_hidden_layers": 32, "num_attention_heads": 36, "num_key_value_heads": 4}
stablelm-3b 2795443200 {"model_type": "stablelm"}
pythia-160m 162322944 {"model_type": "gpt_neox", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 50304, "rotary_pct": 0.25, "rotary_emb_base": 10000}
pythia-6.9b 6857302016 {"model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 50432, "use_parallel_residual": true}
gpt-neox-20b 20554567680 {"model_type": "gpt_neox"}
olmo-1b 1176764416 {"model_type": "olmo", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 16, "tie_word_embeddings": true, "clip_qkv": null}
olmo-7b 6888095744 {"model_type": "olmo", "clip_qkv": 8.0}
olmo-2-7b 7298617344 {"model_type": "olmo2", "vocab_size": 100352}
smollm3-3b 3075098624 {"model_type": "smollm3", "no_rope_layer_interval": 4}
ernie-4.5-0.3b 360748032 {"model_type": "ernie4_5"}
glm-4-9b 9400279040 {"model_type": "glm4", "partial_rotary_factor": 0.5}
seed-oss-36b 36151104512 {"model_type": "seed_oss", "hidden_size": 5120, "attention_bias": true}
gemma-2b 2506172416 {"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1}
gemma-3-270m 268098176 {"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512, "rope_local_base_freq": 10000.0, "sliding_window_pattern": 6}
gemma-3-1b 999885952 {"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512, "final_logit_softcapping": null}
command-r 34980831232 {"model_type": "cohere", "num_key_value_heads": 64, "rope_theta": 8000000.0}
aya-23-8b 8028033024 {"model_type": "cohere", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
command-r7b 8028033024 {"model_type": "cohere2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window_pattern": 4}
gpt-j-6b 6050882784 {"model_type": "gptj", "rotary": true}
opt-125m 125239296 {"model_type": "opt", "word_embed_proj_dim": 768, "hidden_size": 768}
opt-1.3b 1315758080 {"model_type": "opt", "hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 24, "num_attention_heads": 32}
falcon-7b 6921720704 {"model_type": "falcon", "multi_query": true, "parallel_attn": true, "alibi": false}
santacoder 1124886528 {"model_type": "gpt_bigcode", "n_embd": 2048, "n_layer": 24, "n_head": 16, "n_inner": 8192, "n_positions": 2048, "vocab_size": 49280, "multi_query": true}
roberta-base 124697433 {"model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
xlm-roberta-base 278295186 {"model_type": "xlm-roberta", "architectures": ["XLMRobertaForMaskedLM"], "vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
distilbert-base-uncased 66985530 {"model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"], "sinusoidal_pos_embds": false, "tie_weights_": true}
albert-base-v2 11221680 {"model_type": "albert", "architectures": ["AlbertForMaskedLM"], "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_groups": 1}
bert-base-uncased-sequence 109483778 {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
gemma-7b 8537680896 {"model_type": "gemma", "hidden_act": "gelu"}
END

# The rows of config_type.def as mdoc has them in a table, one for each type.
rows() {
	tr -d '\n' <"$PD_SOURCE/lib/doors/huggingface/config_type.def" |
		sed 's/CONFIG_TYPE(/\nT /g; s/CONFIG_ARCHITECTURE(/\nA /g' | sed '1d; s/"//g' |
		awk -F '[ ,]+' '
			$1 == "T" { order[n++] = $2; family[$2] = $4 }
			$1 == "A" { sub(/\).*/, "", $3); of[$2] = of[$2] (of[$2] ? ", " : "") $3 }
			END { for (i = 0; i < n; i++) print ".It Cm", order[i], "Ta", of[order[i]], "Ta Cm", family[order[i]] }'
}
test_ok "the table of families in pd-model(1) has the rows that the library has" '
	rows | sed 1d | sort >expected
	sed -n "/^.Sh HUGGING FACE/,/^.El/s/^.It Cm .* Ta .* Ta Cm .*/&/p" "$PD_SOURCE/man/pd-model.1" | sort >found
	diff found expected'
test_done
