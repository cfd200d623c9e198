/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments for Megatron-LM. */
#include "base/mem.h"
#include "base/opt.h"
#include "doors/layout/decoder.h"
#include "doors/layout/writer.h"

#include <inttypes.h>
#include <stdlib.h>

/* Megatron makes the vocabulary a multiple of this for each device (--make-vocab-size-divisible-by). */
#define VOCABULARY_UNIT 128

static void say_padding(const struct pd_layout *layout)
{
	const struct pd_model *model = layout->plan->profile->model;
	int64_t tensor = layout->plan->profile->group.tensor, unit = VOCABULARY_UNIT * tensor;

	for (int l = 0; model && tensor > 1 && l < model->layer_count; l++) {
		int64_t words = model->layers[l].num_embeddings;

		if (model->layers[l].kind == PD_LAYER_embedding && words % tensor != 0) {
			pd_say("the vocabulary of %" PRId64 " is no multiple of %" PRId64 " devices: %s pads it to %" PRId64
			       ", with which the plan's times and memory do not reckon", words, tensor, layout->who,
			       (words + unit - 1) / unit * unit);
			return;
		}
	}
}

/* Prints the sizes of a decoder. */
static void print_decoder(const struct pd_layout *layout, const struct pd_decoder *d)
{
	FILE *out = layout->out;

	fprintf(out, " --hidden-size %" PRId64 " --ffn-hidden-size %" PRId64 " --num-attention-heads %" PRId64, d->hidden,
		d->feed_forward, d->heads);
	if (d->kv_heads != d->heads)
		fprintf(out, " --group-query-attention --num-query-groups %" PRId64, d->kv_heads);
	if (d->head_dim * d->heads != d->hidden)
		fprintf(out, " --kv-channels %" PRId64, d->head_dim);
	fprintf(out, " \\\n    --seq-length %" PRId64 " --max-position-embeddings %" PRId64, d->positions,
		d->learned_positions ? d->learned_positions : d->positions);
	if (d->rope) {
		fprintf(out, " --position-embedding-type rope --rotary-base %.0f", d->rope->base);
		if (d->rope->rotary_dim != d->head_dim) {
			fputs(" --rotary-percent ", out);
			pd_layout_print_real(layout, (double)d->rope->rotary_dim / (double)d->head_dim);
		}
		if (d->rope->factor != 1) {
			fputs(" --use-rope-scaling --rope-scaling-factor ", out);
			pd_layout_print_real(layout, d->rope->factor);
		}
	}
	fprintf(out, " \\\n    --normalization %s --norm-epsilon ", d->norm->kind == PD_LAYER_rmsnorm ? "RMSNorm" : "LayerNorm");
	pd_layout_print_real(layout, d->norm->eps);
	fprintf(out, "%s%s%s%s%s --attention-dropout ", d->gated ? " --swiglu" : "", d->bias ? "" : " --disable-bias-linear",
		d->qkv_bias && !d->bias ? " --add-qkv-bias" : "", d->qk_norm ? " --qk-layernorm" : "",
		d->tied ? "" : " --untie-embeddings-and-output-weights");
	pd_layout_print_real(layout, d->attention_dropout);
	fputs(" --hidden-dropout ", out);
	pd_layout_print_real(layout, d->dropout);
	fprintf(out, " \\\n    --mock-data --tokenizer-type NullTokenizer --vocab-size %" PRId64
		" --lr 1e-4 --train-iters 100 \\\n", d->vocabulary);
}

/* Tells whether Megatron has all that a decoder is; its rotary base is a whole number, its scaling is Llama 3.1's. */
static bool has_decoder(const struct pd_decoder *d)
{
	const struct pd_layer *rope = d->rope;

	return (d->bias ? d->qkv_bias : true) &&
	       (!rope || (rope->base == (double)(int64_t)rope->base &&
			  (rope->factor == 1 || (rope->low_freq_factor == 1 && rope->high_freq_factor == 4 &&
						 rope->original_positions == 8192))));
}

/* Tells whether each stage has as many blocks: Megatron then cuts so by itself. */
static bool is_even(const struct pd_megatron_stage *stages, int count)
{
	for (int s = 0; s < count; s++)
		if (stages[s].decoders != stages[0].decoders)
			return false;
	return true;
}

static void print_pipeline(const struct pd_layout *layout, const struct pd_megatron_stage *stages)
{
	const struct pd_plan *plan = layout->plan;
	int each = pd_layout_virtual(layout);

	fprintf(layout->out, "    " PD_MEGATRON_RANKS " %d", layout->ranks);
	if (!is_even(stages, plan->stage_count)) {
		char *text = pd_megatron_text(stages, plan->stage_count);

		fprintf(layout->out, " " PD_MEGATRON_LAYOUT " \"%s\"", text);
		free(text);
	} else if (each > 1) {
		fprintf(layout->out, " " PD_MEGATRON_VIRTUAL " %d", each);
	}
	if (plan->round > 0)
		fprintf(layout->out, " " PD_MEGATRON_ROUND " %" PRId64, plan->round);
	fprintf(layout->out, " --micro-batch-size %" PRId64 " --global-batch-size %" PRId64, plan->profile->batch_size,
		plan->profile->batch_size * plan->microbatches);
}

static void print_recomputation(const struct pd_layout *layout)
{
	int count = 0;

	if (layout->recompute)
		fputs(" --recompute-granularity full --recompute-method uniform --recompute-num-layers 1", layout->out);
	for (int m = 0; m < PD_RERUN_MODULES; m++)
		if (layout->again[m])
			fprintf(layout->out, "%s %s", count++ == 0 ? " --recompute-granularity selective --recompute-modules" : "",
				pd_rerun_modules[m].name);
}

static void print_rest(const struct pd_layout *layout)
{
	const struct pd_profile *profile = layout->plan->profile;

	if (profile->group.tensor > 1)
		fprintf(layout->out, " --tensor-model-parallel-size %" PRId64 "%s", profile->group.tensor,
			profile->group.sequence ? " --sequence-parallel" : "");
	if (profile->memory.sharded)
		fputs(" --use-distributed-optimizer", layout->out);
	if (profile->dtype != PD_F32)
		fputs(profile->dtype == PD_F16 ? " --fp16" : " --bf16", layout->out);
	fputc('\n', layout->out);
}

static void print_command(const struct pd_layout *layout, const struct pd_megatron_stage *stages)
{
	const char *name = layout->plan->profile->name;
	struct pd_decoder decoder;
	bool known = pd_decoder_find(layout->plan->profile, &layout->blocks, &decoder) && has_decoder(&decoder);

	fprintf(layout->out, "# %.100s for Megatron-LM: ", name ? name : "a network");
	pd_layout_print_degrees(layout);
	fprintf(layout->out, "\n# On every host, in Megatron-LM's folder; %s\n",
		known ? "--mock-data and what follows it are for a first try: set your own."
		      : "PRETRAIN is the script that builds this network, with arguments of its own.");
	pd_layout_print_torchrun(layout);
	fprintf(layout->out, "%s \\\n    --num-layers %d", known ? "pretrain_gpt.py" : "${PRETRAIN:?}",
		layout->blocks.decoder_count);
	if (known)
		print_decoder(layout, &decoder);
	else
		fputs(" \\\n", layout->out);
	print_pipeline(layout, stages);
	print_recomputation(layout);
	print_rest(layout);
}

int pd_layout_write_megatron(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;
	struct pd_megatron_stage *stages = pd_calloc((size_t)plan->stage_count, sizeof(*stages));
	int result = 0;

	say_padding(layout);
	for (int s = 0; s < plan->stage_count && result == 0; s++)
		result = pd_layout_letters_of(layout, s, &stages[s], err);
	if (result == 0)
		print_command(layout, stages);
	free(stages);
	return result;
}
