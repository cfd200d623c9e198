/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration for DeepSpeed, and a PipelineModule that is cut as the plan is. */
#include "base/json.h"
#include "doors/layout/writer.h"

#include <inttypes.h>

/* Prints the names of all modules, those of blocks as "h.0 to h.11". */
static void print_modules(const struct pd_layout *layout)
{
	const struct pd_blocks *blocks = &layout->blocks;
	int begin = blocks->decoder_first, end = begin + blocks->decoder_count;

	for (int m = 0; m < blocks->count; m++) {
		fprintf(layout->out, "%s\n#   %s", m > 0 ? "," : "", blocks->names[m]);
		if (m == begin && blocks->decoder_count > 1) {
			m = end - 1;
			fprintf(layout->out, " to %s", blocks->names[m]);
		}
	}
	putc('\n', layout->out);
}

/* Prints the configuration, as deepspeed.initialize() takes it. */
static void print_config(const struct pd_layout *layout)
{
	const struct pd_plan *plan = layout->plan;
	const struct pd_profile *profile = plan->profile;
	json_t *json = json_pack("{sI sI sI s{ss s{sf}}}", "train_batch_size",
				 (json_int_t)(profile->batch_size * plan->microbatches), "train_micro_batch_size_per_gpu",
				 (json_int_t)profile->batch_size, "gradient_accumulation_steps",
				 (json_int_t)pd_layout_local(layout), "optimizer", "type", "AdamW", "params", "lr", 1e-4);

	if (profile->dtype != PD_F32)
		pd_json_set(json, profile->dtype == PD_F16 ? "fp16" : "bf16", json_pack("{sb}", "enabled", 1));
	if (profile->memory.sharded)
		pd_json_set(json, "zero_optimization", json_pack("{si}", "stage", 1));
	fputs("CONFIG = json.loads(\"\"\"", layout->out);
	json_dumpf(json, layout->out, JSON_INDENT(4) | JSON_REAL_PRECISION(15));
	fputs("\"\"\")\n", layout->out);
	json_decref(json);
}

int pd_layout_write_deepspeed(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;
	const char *name = plan->profile->name;

	(void)err;
	fprintf(layout->out, "# %.100s for DeepSpeed: ", name ? name : "a network");
	pd_layout_print_degrees(layout);
	fputs("\n#   engine = deepspeed.initialize(model=PlannedModule(layers, loss_fn=...), config=CONFIG)[0]\n"
	      "# where layers are, in this order,", layout->out);
	print_modules(layout);
	fputs("import json\n\nfrom deepspeed.pipe import PipelineModule\n\n", layout->out);
	print_config(layout);
	fprintf(layout->out, "\n\nclass PlannedModule(PipelineModule):\n    def __init__(self, layers, **options):\n"
		"        super().__init__(layers, num_stages=%d, activation_checkpoint_interval=%d, **options)\n\n"
		"    def _partition_layers(self, method=\"parameters\"):\n        self.parts = [", plan->stage_count,
		layout->recompute);
	for (int s = 0; s <= plan->stage_count; s++)
		fprintf(layout->out, "%s%d", s > 0 ? ", " : "", pd_layout_begin_of(layout, s));
	fputs("]\n        assert self.parts[-1] == len(self._layer_specs) and self.num_stages == len(self.parts) - 1\n"
	      "        stage = self._topo.get_coord(self.global_rank).pipe\n"
	      "        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])\n", layout->out);
	return 0;
}
