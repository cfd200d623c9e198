/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration of torchtitan 0.3: functions in Python, as its config_registry has them. */
#include "doors/layout/torchtitan.h"

#include "base/json.h"
#include "base/opt.h"
#include "doors/layout/decoder.h"
#include "doors/layout/writer.h"

#include <inttypes.h>
#include <stdlib.h>

const char *pd_torchtitan_name(const struct pd_blocks *blocks, int module, char *text)
{
	int block = module - blocks->decoder_first, last = blocks->decoder_first + blocks->decoder_count;

	if (blocks->decoder_count == 0 || blocks->decoder_first != 1 || blocks->count != last + 2)
		return NULL;
	if (module == 0)
		snprintf(text, PD_TORCHTITAN_NAME, "tok_embeddings");
	else if (module < last)
		snprintf(text, PD_TORCHTITAN_NAME, "layers.%d", block);
	else
		snprintf(text, PD_TORCHTITAN_NAME, module == last ? "norm" : "lm_head");
	return text;
}

/* Says where the names of modules are the network's own. */
static void say_own_names(const struct pd_layout *layout)
{
	char text[PD_TORCHTITAN_NAME];

	if (!pd_torchtitan_name(&layout->blocks, 0, text))
		pd_say("the modules have the network's own names, such as \"%.60s\": torchtitan's models have "
		       "tok_embeddings, layers.N, norm and lm_head, and lose modules that the list does not name",
		       layout->blocks.names[0]);
}

static void print_modules(const struct pd_layout *layout)
{
	fputs("    parallelism.module_fqns_per_model_part = [\n", layout->out);
	for (int s = 0; s < layout->plan->stage_count; s++) {
		json_t *names = json_array();

		for (int m = pd_layout_begin_of(layout, s); m < pd_layout_begin_of(layout, s + 1); m++) {
			char text[PD_TORCHTITAN_NAME];
			const char *name = pd_torchtitan_name(&layout->blocks, m, text);

			pd_json_add(names, json_string(name ? name : layout->blocks.names[m]));
		}
		fputs("        ", layout->out);
		json_dumpf(names, layout->out, 0);
		fputs(",\n", layout->out);
		json_decref(names);
	}
	fputs("    ]\n", layout->out);
}

/* Returns PyTorch's name of the plan's schedule, or NULL: it is in a table (pd-schedule --format=torch). */
static const char *schedule_name(const struct pd_layout *layout)
{
	static const char *const names[PD_SCHEDULE_KINDS] = {
		[PD_SCHEDULE_1F1B] = "1F1B", [PD_SCHEDULE_GPIPE] = "GPipe",
		[PD_SCHEDULE_INTERLEAVED] = "Interleaved1F1B", [PD_SCHEDULE_ZB_V] = "ZBVZeroBubble",
		[PD_SCHEDULE_DUALPIPE_V] = "DualPipeV",
	};
	const struct pd_plan *plan = layout->plan;

	return (plan->round && plan->round != layout->ranks) || !pd_layout_has_usual_leads(layout)
		       ? NULL : names[plan->schedule];
}

static void print_schedule(const struct pd_layout *layout)
{
	const char *name = schedule_name(layout);
	bool there_and_back = pd_schedule_has(layout->plan->schedule, PD_FACT_V);

	fprintf(layout->out, "    parallelism.pipeline_parallel_degree = %d\n", layout->ranks);
	if (layout->ranks == 1)
		return;
	if (!name)
		fputs("    # pd-schedule --format=torch PLAN >schedule.csv\n"
		      "    parallelism.pipeline_parallel_schedule_csv = \"schedule.csv\"\n", layout->out);
	fprintf(layout->out, "    parallelism.pipeline_parallel_schedule = \"%s\"\n",
		name ? name : there_and_back ? "ZBVZeroBubble" : "PipelineScheduleMulti");
	fprintf(layout->out, "    parallelism.pipeline_parallel_microbatch_size = %" PRId64 "\n",
		pd_layout_each(layout));
	print_modules(layout);
}

/* Prints what torchtitan calls data and tensor parallelism. */
static void print_parallelism(const struct pd_layout *layout)
{
	const struct pd_profile *profile = layout->plan->profile;
	int64_t replicas = layout->plan->stages[0].replicas, full = profile->group.sharded;
	bool optimizer = full <= 1 && profile->memory.sharded && replicas > 1;

	fprintf(layout->out, "    parallelism.data_parallel_replicate_degree = %" PRId64 "\n", optimizer ? 1 : replicas);
	fprintf(layout->out, "    parallelism.data_parallel_shard_degree = %" PRId64 "\n",
		optimizer ? replicas : full > 1 ? full : 1);
	if (optimizer || full > 1)
		fprintf(layout->out, "    parallelism.fsdp_reshard_after_forward = \"%s\"\n", full > 1 ? "always" : "never");
	fprintf(layout->out, "    parallelism.tensor_parallel_degree = %" PRId64 "\n",
		profile->group.tensor > 1 ? profile->group.tensor : 1);
	if (profile->group.tensor > 1)
		fprintf(layout->out, "    parallelism.enable_sequence_parallel = %s\n",
			profile->group.sequence ? "True" : "False");
}

static void print_training(const struct pd_layout *layout, const struct pd_decoder *decoder)
{
	const struct pd_profile *profile = layout->plan->profile;
	int64_t local = layout->ranks > 1 ? pd_layout_local(layout) : 1;

	if (decoder)
		fprintf(layout->out, "    training.seq_len = %" PRId64 "\n", decoder->positions);
	fprintf(layout->out, "    training.local_batch_size = %" PRId64 "\n", pd_layout_each(layout) * local);
	fprintf(layout->out, "    training.global_batch_size = %" PRId64 "\n",
		profile->batch_size * layout->plan->microbatches);
	fprintf(layout->out, "    training.mixed_precision_param = \"%s\"\n",
		profile->dtype == PD_F32 ? "float32" : "bfloat16");
	if (layout->ranks > 1)
		fputs("    training.disable_cuda_graphs = True\n", layout->out);
	fprintf(layout->out, "    config.activation_checkpoint = %s\n", layout->recompute ? "FullAC.Config()" : "None");
}

/* Tells whether a decoder is a Llama as torchtitan has it. */
static bool is_llama(const struct pd_decoder *d)
{
	return d->gated && d->norm->kind == PD_LAYER_rmsnorm && d->rope && d->rope->rotary_dim == d->head_dim &&
	       d->head_dim * d->heads == d->hidden && !d->bias && !d->qkv_bias && !d->qk_norm && d->dropout == 0 &&
	       d->attention_dropout == 0;
}

static void print_rope(const struct pd_layout *layout, const struct pd_decoder *d)
{
	const struct pd_layer *rope = d->rope;

	fprintf(layout->out, "                rope=ComplexRoPE.Config(\n                    dim=%" PRId64 ", max_seq_len=%" PRId64
		", theta=", d->head_dim, d->positions);
	pd_layout_print_real(layout, rope->base);
	if (rope->factor != 1) {
		fputs(",\n                    scaling=\"llama\", scaling_factor=", layout->out);
		pd_layout_print_real(layout, rope->factor);
		fputs(", low_freq_factor=", layout->out);
		pd_layout_print_real(layout, rope->low_freq_factor);
		fputs(",\n                    high_freq_factor=", layout->out);
		pd_layout_print_real(layout, rope->high_freq_factor);
		fprintf(layout->out, ", original_max_position_embeddings=%" PRId64, rope->original_positions);
	}
	fputs(",\n                ),\n", layout->out);
}

static void print_llama(const struct pd_layout *layout, const struct pd_decoder *d)
{
	FILE *out = layout->out;

	fputs("\n\ndef planned():\n    # its optimizer, data and tokenizer: set your own\n"
	      "    config = config_registry.llama3_8b()\n", out);
	fprintf(out, "    dim, vocabulary = %" PRId64 ", %" PRId64 "\n", d->hidden, d->vocabulary);
	fputs("    norm = RMSNorm.Config(normalized_shape=dim, eps=", out);
	pd_layout_print_real(layout, d->norm->eps);
	fputs(", param_init=llama3._NORM_INIT)\n", out);
	fputs("    config.model_spec = dataclasses.replace(\n        config.model_spec,\n        flavor=\"planned\",\n"
	      "        model=llama3.Llama3Model.Config(\n            dim=dim,\n            vocab_size=vocabulary,\n", out);
	if (d->tied)
		fputs("            enable_weight_tying=True,\n", out);
	fprintf(out, "            tok_embeddings=Embedding.Config(\n                num_embeddings=vocabulary, embedding_dim=dim, "
		"param_init=llama3._EMBEDDING_%sINIT\n            ),\n", d->tied ? "SKIP_" : "");
	fputs("            norm=norm,\n            lm_head=Linear.Config(\n                in_features=dim, "
	      "out_features=vocabulary, param_init=llama3._output_linear_init(dim)\n            ),\n"
	      "            layers=llama3._build_llama3_layers(\n", out);
	fprintf(out, "                n_layers=%d, dim=dim, n_heads=%" PRId64 ", n_kv_heads=%" PRId64 ",\n"
		"                hidden_dim=%" PRId64 ", attn_backend=\"flex\",\n", layout->blocks.decoder_count, d->heads,
		d->kv_heads, d->feed_forward);
	print_rope(layout, d);
	fputs("            ),\n        ),\n    )\n    for layer in config.model_spec.model.layers:\n"
	      "        layer.attention_norm, layer.ffn_norm = norm, norm\n"
	      "    config.loss.loss_fn.global_vocab_size = vocabulary\n    return set_plan(config)\n", out);
}

static void print_head(const struct pd_layout *layout, bool llama)
{
	const char *name = layout->plan->profile->name;

	fprintf(layout->out, "# %.100s for torchtitan 0.3: ", name ? name : "a network");
	pd_layout_print_degrees(layout);
	if (layout->recompute)
		fputs(", full activation checkpointing", layout->out);
	fputs("\n# On every host, in the folder of this file, which is called planned.py:\n#   ", layout->out);
	pd_layout_print_torchrun(layout);
	fprintf(layout->out, "-m torchtitan.train --module planned --config planned\n%s%s",
		llama ? "import dataclasses\n\n"
		      : "# It needs planned() beside it, which returns set_plan() of your network's configuration.\n",
		layout->recompute ? "from torchtitan.distributed.activation_checkpoint import FullAC\n" : "");
	if (llama)
		fputs("from torchtitan.models import llama3\n"
		      "from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm\n"
		      "from torchtitan.models.llama3 import config_registry\n", layout->out);
}

int pd_layout_write_torchtitan(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;
	int64_t full = plan->profile->group.sharded;
	struct pd_decoder decoder;
	bool known = pd_decoder_find(plan->profile, &layout->blocks, &decoder), llama = known && is_llama(&decoder);

	if (plan->profile->dtype == PD_F16)
		return pd_error_input(err, "%s: profile: dtype: torchtitan trains in f32 and bf16, found f16",
				      pd_plan_name(plan));
	if (full > 1 && plan->profile->batch_size % full != 0)
		return pd_error_input(err, "%s: profile: batch_size: %" PRId64 " devices that share the weights out train "
				      "samples of their own: expected a multiple of %" PRId64 ", found %" PRId64,
				      pd_plan_name(plan), full, full, plan->profile->batch_size);
	say_own_names(layout);
	print_head(layout, llama);
	fputs("\n\ndef set_plan(config):\n    training, parallelism = config.training, config.parallelism\n", layout->out);
	print_training(layout, known ? &decoder : NULL);
	print_parallelism(layout);
	print_schedule(layout);
	fputs("    return config\n", layout->out);
	if (llama)
		print_llama(layout, &decoder);
	return 0;
}
