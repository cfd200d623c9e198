/* SPDX-License-Identifier: Apache-2.0 */
/* A strategy for Hetu-Galvatron, in JSON. */
#include "base/json.h"
#include "base/mem.h"
#include "doors/layout/writer.h"

#include <inttypes.h>
#include <stdlib.h>

/* Returns "1,1,1" for so many layers. */
static json_t *repeated(int value, int count)
{
	char *text = pd_strdup("");
	json_t *json;

	for (int i = 0; i < count; i++) {
		char *longer = pd_format("%s%s%d", text, i > 0 ? "," : "", value);

		free(text);
		text = longer;
	}
	json = json_string(text);
	free(text);
	return json;
}

static int check_ends(const struct pd_layout *layout, const struct pd_megatron_stage *stage, int s,
		      struct pd_error *err)
{
	return stage->decoders > 0 ? 0
		: pd_error_input(err, "%s: stage %d has no block: %s has the embedding with the first block and the head "
				 "with the last", pd_plan_name(layout->plan), s, layout->who);
}

/* Sets how many blocks each stage has, as "16,16", and which recompute, as "1,1,0". */
static int galvatron_lists(const struct pd_layout *layout, char **division_p, char **checkpoint_p,
			   struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;
	size_t size[2];
	FILE *out[2] = { pd_mem_stream(division_p, &size[0]), pd_mem_stream(checkpoint_p, &size[1]) };
	int result = 0, block = 0;

	for (int s = 0; s < plan->stage_count && result == 0; s++) {
		struct pd_megatron_stage stage;

		result = pd_layout_letters_of(layout, s, &stage, err);
		if (result == 0)
			result = check_ends(layout, &stage, s, err);
		for (int t = 0; result == 0 && t < stage.decoders; t++)
			fprintf(out[1], "%s%d", block++ > 0 ? "," : "", plan->stages[s].recompute);
		if (result == 0)
			fprintf(out[0], "%s%d", s > 0 ? "," : "", stage.decoders);
	}
	for (int i = 0; i < 2; i++)
		pd_mem_stream_close(out[i]);
	return result;
}

int pd_layout_write_galvatron(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;
	int blocks = layout->blocks.decoder_count, result;
	char *division = NULL, *checkpoint = NULL;
	json_t *json;

	result = galvatron_lists(layout, &division, &checkpoint, err);
	if (result == 0) {
		json = json_pack("{si so so so so ss sI sI ss ss ss si si si}", "pp_deg", plan->stage_count,
				 "tp_sizes_enc", repeated(1, blocks), "tp_consecutive_flags", repeated(1, blocks),
				 "dp_types_enc", repeated(0, blocks), "use_sp", repeated(0, blocks),
				 "checkpoint", checkpoint, "global_bsz",
				 (json_int_t)(plan->profile->batch_size * plan->microbatches), "chunks",
				 (json_int_t)(plan->microbatches / plan->stages[0].replicas), "pp_division", division,
				 "pipeline_type", plan->schedule == PD_SCHEDULE_GPIPE ? "gpipe" : "pipedream_flush",
				 "default_dp_type", plan->profile->memory.sharded ? "zero2" : "ddp", "vtp", 1, "vsp", 0, "embed_sdp", 0);
		result = pd_json_write(json, layout->out, err);
		json_decref(json);
	}
	free(division);
	free(checkpoint);
	return result;
}
