# SPDX-License-Identifier: Apache-2.0
"""Tiny networks of the families that pd-model reads from Hugging Face folders, with the settings that their
configs have: for import-judge.py.  A family counts as read when each of its rows here passes."""
import torch
import transformers as t

from import_networks import ENCODER, HIDDEN, LENGTH, TOKENS, images, masked_texts, of_masked, of_pixels, of_tokens, texts

SIZE = {"hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": TOKENS,
        "max_position_embeddings": LENGTH, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = SIZE | {"num_key_value_heads": 2, "intermediate_size": 24, "pad_token_id": None}
PADDED = GROUPED | {"pad_token_id": 3}
WIDE = GROUPED | {"head_dim": 8}
SMALL_GPT = {"n_embd": HIDDEN, "n_layer": 2, "n_head": 2, "n_positions": LENGTH, "vocab_size": TOKENS,
             "bos_token_id": 1, "eos_token_id": 1}


def rope(theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta} | more}


def causal():
    """name -> (class, config)."""
    return {
        "arcee": (t.ArceeForCausalLM, t.ArceeConfig(**PADDED)),
        "arcee_biases": (t.ArceeForCausalLM, t.ArceeConfig(
            **WIDE, attention_bias=True, mlp_bias=True, hidden_act="mish", tie_word_embeddings=True)),
        "cohere": (t.CohereForCausalLM, t.CohereConfig(**PADDED)),
        "cohere_normalised": (t.CohereForCausalLM, t.CohereConfig(
            **GROUPED, use_qk_norm=True, attention_bias=True, logit_scale=0.5, tie_word_embeddings=False)),
        "cohere2": (t.Cohere2ForCausalLM, t.Cohere2Config(
            **PADDED | {"num_hidden_layers": 4}, sliding_window=3)),
        "ernie4_5": (t.Ernie4_5ForCausalLM, t.Ernie4_5Config(**PADDED | {"head_dim": 8})),
        "ernie4_5_biases": (t.Ernie4_5ForCausalLM, t.Ernie4_5Config(
            **GROUPED, head_dim=4, use_bias=True, tie_word_embeddings=False, **rope(100.0))),
        "falcon": (t.FalconForCausalLM, t.FalconConfig(**SIZE)),
        "falcon_new": (t.FalconForCausalLM, t.FalconConfig(
            **SIZE, new_decoder_architecture=True, num_kv_heads=2, bias=True, ffn_hidden_size=24,
            tie_word_embeddings=False)),
        "falcon_one_norm": (t.FalconForCausalLM, t.FalconConfig(
            **SIZE, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1)),
        "falcon_sequential": (t.FalconForCausalLM, t.FalconConfig(
            **SIZE, parallel_attn=False, multi_query=False, activation="gelu_new")),
        "gemma": (t.GemmaForCausalLM, t.GemmaConfig(**PADDED | {"head_dim": 8})),
        "gemma_biases": (t.GemmaForCausalLM, t.GemmaConfig(
            **WIDE, attention_bias=True, hidden_act="gelu", tie_word_embeddings=False)),
        "gemma3": (t.Gemma3ForCausalLM, t.Gemma3TextConfig(
            **PADDED | {"head_dim": 8, "num_hidden_layers": 3}, sliding_window=3, query_pre_attn_scalar=5,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
                             "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}})),
        "gemma3_capped": (t.Gemma3ForCausalLM, t.Gemma3TextConfig(
            **WIDE, sliding_window=2, attention_bias=True, final_logit_softcapping=2.0,
            tie_word_embeddings=False)),
        "glm": (t.GlmForCausalLM, t.GlmConfig(**PADDED | {"head_dim": 8})),
        "glm4": (t.Glm4ForCausalLM, t.Glm4Config(**PADDED | {"head_dim": 8})),
        "glm4_whole": (t.Glm4ForCausalLM, t.Glm4Config(
            **WIDE, attention_bias=False, tie_word_embeddings=True, **rope(partial_rotary_factor=1.0))),
        "gpt_bigcode": (t.GPTBigCodeForCausalLM, t.GPTBigCodeConfig(
            **SMALL_GPT, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
        "gpt_bigcode_heads": (t.GPTBigCodeForCausalLM, t.GPTBigCodeConfig(
            **SMALL_GPT, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, multi_query=False, n_inner=24,
            activation_function="relu", tie_word_embeddings=False)),
        "gpt_neox": (t.GPTNeoXForCausalLM, t.GPTNeoXConfig(
            **SIZE | {"num_attention_heads": 2, "intermediate_size": 24})),
        "gpt_neox_sequential": (t.GPTNeoXForCausalLM, t.GPTNeoXConfig(
            **SIZE, intermediate_size=24, use_parallel_residual=False, attention_bias=False,
            tie_word_embeddings=True, hidden_act="gelu_new", **rope(50.0, partial_rotary_factor=1.0))),
        "gptj": (t.GPTJForCausalLM, t.GPTJConfig(**SMALL_GPT, rotary_dim=4)),
        "gptj_inner": (t.GPTJForCausalLM, t.GPTJConfig(
            **SMALL_GPT, rotary_dim=8, n_inner=24, activation_function="silu")),
        "gpt2_unscaled": (t.GPT2LMHeadModel, t.GPT2Config(
            **SMALL_GPT, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, scale_attn_weights=False)),
        "gpt2_inverse": (t.GPT2LMHeadModel, t.GPT2Config(
            **SMALL_GPT, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            scale_attn_by_inverse_layer_idx=True)),
        "granite": (t.GraniteForCausalLM, t.GraniteConfig(
            **PADDED, embedding_multiplier=3.0, logits_scaling=2.5, residual_multiplier=0.4,
            attention_multiplier=0.3)),
        "granite_biases": (t.GraniteForCausalLM, t.GraniteConfig(
            **GROUPED, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
        "dynamic": (t.LlamaForCausalLM, t.LlamaConfig(**GROUPED, rope_parameters={
            "rope_type": "dynamic", "factor": 4.0, "rope_theta": 100.0})),
        "helium": (t.HeliumForCausalLM, t.HeliumConfig(**PADDED | {"head_dim": 4})),
        "helium_biases": (t.HeliumForCausalLM, t.HeliumConfig(
            **GROUPED, head_dim=4, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
        "olmo": (t.OlmoForCausalLM, t.OlmoConfig(**PADDED)),
        "olmo_clipped": (t.OlmoForCausalLM, t.OlmoConfig(
            **GROUPED, clip_qkv=0.5, attention_bias=True, tie_word_embeddings=True)),
        "olmo2": (t.Olmo2ForCausalLM, t.Olmo2Config(**PADDED)),
        "olmo2_biases": (t.Olmo2ForCausalLM, t.Olmo2Config(
            **GROUPED, attention_bias=True, tie_word_embeddings=True)),
        "opt": (t.OPTForCausalLM, t.OPTConfig(**SIZE, ffn_dim=24, dropout=0.0, pad_token_id=1)),
        "opt_behind": (t.OPTForCausalLM, t.OPTConfig(
            **SIZE, ffn_dim=24, dropout=0.0, pad_token_id=None, do_layer_norm_before=False,
            enable_bias=False, activation_function="gelu", tie_word_embeddings=False)),
        "opt_plain": (t.OPTForCausalLM, t.OPTConfig(
            **SIZE, ffn_dim=24, dropout=0.0, layer_norm_elementwise_affine=False)),
        "phi": (t.PhiForCausalLM, t.PhiConfig(**PADDED)),
        "phi_normalised": (t.PhiForCausalLM, t.PhiConfig(
            **GROUPED, qk_layernorm=True, hidden_act="quick_gelu", **rope(partial_rotary_factor=1.0))),
        "phi3": (t.Phi3ForCausalLM, t.Phi3Config(**PADDED)),
        "phi3_window": (t.Phi3ForCausalLM, t.Phi3Config(
            **GROUPED, sliding_window=3, tie_word_embeddings=True, **rope(partial_rotary_factor=0.5))),
        "seed_oss": (t.SeedOssForCausalLM, t.SeedOssConfig(
            **PADDED | {"head_dim": 8}, attention_dropout=0.0, residual_dropout=0.0)),
        "seed_oss_biases": (t.SeedOssForCausalLM, t.SeedOssConfig(
            **WIDE, attention_dropout=0.0, residual_dropout=0.0, attention_out_bias=True, mlp_bias=True,
            attention_bias=False)),
        "smollm3": (t.SmolLM3ForCausalLM, t.SmolLM3Config(**PADDED | {"num_hidden_layers": 4})),
        "smollm3_window": (t.SmolLM3ForCausalLM, t.SmolLM3Config(
            **GROUPED, no_rope_layers=[0, 1], use_sliding_window=True, sliding_window=3, attention_bias=True,
            mlp_bias=True, tie_word_embeddings=False)),
        "stablelm": (t.StableLmForCausalLM, t.StableLmConfig(**PADDED | {"num_attention_heads": 2})),
        "stablelm_parallel": (t.StableLmForCausalLM, t.StableLmConfig(
            **GROUPED, use_parallel_residual=True, use_qkv_bias=True, tie_word_embeddings=True,
            **rope(partial_rotary_factor=0.5))),
        "starcoder2": (t.Starcoder2ForCausalLM, t.Starcoder2Config(**PADDED)),
        "starcoder2_window": (t.Starcoder2ForCausalLM, t.Starcoder2Config(
            **GROUPED, use_bias=False, sliding_window=3, tie_word_embeddings=False, hidden_act="relu2")),
    }


TEXTS = {"num_hidden_layers": 2, "vocab_size": TOKENS, "max_position_embeddings": LENGTH, "type_vocab_size": 2,
         "pad_token_id": 0, "num_labels": 3} | ENCODER
NUMBERED = TEXTS | {"max_position_embeddings": LENGTH + 2, "pad_token_id": 1}
DISTIL = {"dim": HIDDEN, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "vocab_size": TOKENS, "dropout": 0.0,
          "max_position_embeddings": LENGTH, "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "num_labels": 3}
ALBERT = TEXTS | {"embedding_size": 8, "classifier_dropout_prob": 0.0}


def encoders():
    """name -> (class, config)."""
    return {
        "albert": (t.AlbertForMaskedLM, t.AlbertConfig(**ALBERT)),
        "albert_wide": (t.AlbertForMaskedLM, t.AlbertConfig(
            **ALBERT | {"embedding_size": HIDDEN}, hidden_act="relu")),
        "albert_tokens": (t.AlbertForTokenClassification, t.AlbertConfig(**ALBERT)),
        "bert_sequence": (t.BertForSequenceClassification, t.BertConfig(**TEXTS)),
        "bert_tokens": (t.BertForTokenClassification, t.BertConfig(**TEXTS, hidden_act="gelu_new")),
        "camembert": (t.CamembertForMaskedLM, t.CamembertConfig(**NUMBERED)),
        "camembert_sequence": (t.CamembertForSequenceClassification, t.CamembertConfig(**NUMBERED)),
        "camembert_tokens": (t.CamembertForTokenClassification, t.CamembertConfig(**NUMBERED)),
        "distilbert": (t.DistilBertForMaskedLM, t.DistilBertConfig(**DISTIL)),
        "distilbert_relu": (t.DistilBertForMaskedLM, t.DistilBertConfig(
            **DISTIL, activation="relu", tie_word_embeddings=False)),
        "distilbert_sequence": (t.DistilBertForSequenceClassification, t.DistilBertConfig(**DISTIL)),
        "distilbert_tokens": (t.DistilBertForTokenClassification, t.DistilBertConfig(**DISTIL)),
        "electra": (t.ElectraForMaskedLM, t.ElectraConfig(**TEXTS, embedding_size=8)),
        "electra_wide": (t.ElectraForMaskedLM, t.ElectraConfig(
            **TEXTS, embedding_size=HIDDEN, hidden_act="relu", tie_word_embeddings=False)),
        "electra_sequence": (t.ElectraForSequenceClassification, t.ElectraConfig(**TEXTS, embedding_size=8)),
        "electra_tokens": (t.ElectraForTokenClassification, t.ElectraConfig(**TEXTS, embedding_size=8)),
        "roberta": (t.RobertaForMaskedLM, t.RobertaConfig(**NUMBERED, hidden_act="relu")),
        "roberta_sequence": (t.RobertaForSequenceClassification, t.RobertaConfig(**NUMBERED)),
        "roberta_tokens": (t.RobertaForTokenClassification, t.RobertaConfig(**NUMBERED)),
        "xlm_roberta": (t.XLMRobertaForMaskedLM, t.XLMRobertaConfig(**NUMBERED)),
        "xlm_roberta_sequence": (t.XLMRobertaForSequenceClassification, t.XLMRobertaConfig(**NUMBERED)),
        "xlm_roberta_tokens": (t.XLMRobertaForTokenClassification, t.XLMRobertaConfig(**NUMBERED)),
    }


def of_untyped(module, given):
    seen = (torch.arange(given["tokens"].shape[1]) < given["length"][:, None]).long()
    return [(module(input_ids=given["tokens"].long(), attention_mask=seen).logits, given["labels"])]


def labelled(name, typed):
    """Draws masked tokens, classes of samples, or classes of the tokens before the padding."""
    def draw(count):
        made = masked_texts(count)
        if not typed:
            del made["types"]
        if name.endswith("_sequence"):
            made["labels"] = torch.randint(3, (count,), dtype=torch.int32)
        elif name.endswith("_tokens"):
            seen = torch.arange(LENGTH) < 4
            made["labels"] = torch.where(seen, torch.randint(3, (count, LENGTH)), -100).int()
        return made
    return draw


def encoder(name, cls, config):
    typed = "distilbert" not in name
    return cls, config, labelled(name, typed), of_masked if typed else of_untyped


def families():
    """name -> (class, config, draw, logits)."""
    plain = t.ViTConfig(num_hidden_layers=2, image_size=8, patch_size=4, num_labels=6, qkv_bias=False, **ENCODER)
    return {"vit_plain": (t.ViTForImageClassification, plain, images(8, 6, labels="label"), of_pixels)} | {
        name: (cls, config, texts(), of_tokens) for name, (cls, config) in causal().items()} | {
        name: encoder(name, cls, config) for name, (cls, config) in encoders().items()}
