/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama and what differs little from it: Mistral, Qwen 2 (biases of queries, keys and values) and
 * Qwen 3 (heads of queries and keys are normalised).  causal.c builds them.  Layers have the names of
 * their files on the Hugging Face hub.
 */
#include "network/transformer.h"

#include <stddef.h>

const struct pd_family pd_family_llama = {
	"llama", "Llama, Mistral, Qwen", (const struct pd_preset[]){
		{ "llama-2-7b", "layers=32 hidden=4096 heads=32 kv-heads=32 head-dim=0 feed-forward=11008 "
		  "sequence=4096 window=0 window-from=0 vocabulary=32000 padding=-1 tied=false rope-base=10000 "
		  "rope-factor=1 rope-low=1 rope-high=4 rope-original=0 qk-norm=false bias=none activation=silu eps=1e-5 deviation=0.02 dropout=0 attention-dropout=0" },
		{ "llama-2-13b", "layers=40 hidden=5120 heads=40 kv-heads=40 feed-forward=13824" },
		{ "llama-3-8b", "kv-heads=8 feed-forward=14336 sequence=8192 vocabulary=128256 "
		  "rope-base=500000" },
		{ "llama-3.1-8b", "kv-heads=8 feed-forward=14336 sequence=8192 vocabulary=128256 "
		  "rope-base=500000 rope-factor=8 rope-original=8192" },
		{ "llama-3.1-70b", "layers=80 hidden=8192 heads=64 kv-heads=8 feed-forward=28672 "
		  "sequence=8192 vocabulary=128256 rope-base=500000 rope-factor=8 rope-original=8192" },
		{ "llama-3.2-1b", "layers=16 hidden=2048 kv-heads=8 feed-forward=8192 sequence=8192 "
		  "vocabulary=128256 tied=true rope-base=500000 rope-factor=32 rope-original=8192" },
		{ "tinyllama", "layers=22 hidden=2048 kv-heads=4 feed-forward=5632 sequence=2048" },
		{ "mistral-7b", "kv-heads=8 feed-forward=14336 sequence=8192 vocabulary=32768 "
		  "rope-base=1000000" },
		{ "qwen2.5-7b", "layers=28 hidden=3584 heads=28 kv-heads=4 feed-forward=18944 "
		  "vocabulary=152064 rope-base=1000000 bias=qkv eps=1e-6" },
		{ "qwen3-8b", "layers=36 kv-heads=8 head-dim=128 feed-forward=12288 vocabulary=151936 "
		  "rope-base=1000000 qk-norm=true eps=1e-6" },
		{ NULL } }, pd_causal_build, pd_transformer_follow
};
