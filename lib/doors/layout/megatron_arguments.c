/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments for Megatron-LM. */
#include "base/mem.h"
#include "base/opt.h"
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

int pd_layout_write_megatron(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;
	struct pd_megatron_stage *stages;
	int result = 0;

	say_padding(layout);
	stages = pd_calloc((size_t)plan->stage_count, sizeof(*stages));
	for (int s = 0; s < plan->stage_count && result == 0; s++)
		result = pd_layout_letters_of(layout, s, &stages[s], err);
	if (result == 0) {
		char *text = pd_megatron_text(stages, plan->stage_count);

		fprintf(layout->out, "--pipeline-model-parallel-size %d " PD_MEGATRON_LAYOUT " \"%s\" "
			"--micro-batch-size %" PRId64 " --global-batch-size %" PRId64 "%s", layout->ranks, text,
			plan->profile->batch_size, plan->profile->batch_size * plan->microbatches,
			layout->recompute ? " --recompute-granularity full --recompute-method uniform "
					    "--recompute-num-layers 1" : "");
		for (int m = 0, n = 0; m < PD_RERUN_MODULES; m++)
			if (layout->again[m])
				fprintf(layout->out, "%s %s", n++ == 0 ? " --recompute-granularity selective "
									 "--recompute-modules" : "", pd_rerun_modules[m].name);
		if (plan->round > 0)
			fprintf(layout->out, " " PD_MEGATRON_ROUND " %" PRId64, plan->round);
		if (plan->profile->group.tensor > 1)
			fprintf(layout->out, " --tensor-model-parallel-size %" PRId64 "%s",
				plan->profile->group.tensor,
				plan->profile->group.sequence ? " --sequence-parallel" : "");
		fprintf(layout->out, "%s\n", plan->profile->memory.sharded ? " --use-distributed-optimizer" : "");
		free(text);
	}
	free(stages);
	return result;
}
