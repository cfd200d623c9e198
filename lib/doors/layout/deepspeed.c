/* SPDX-License-Identifier: Apache-2.0 */
/* A PipelineModule for DeepSpeed that is cut as the plan is. */
#include "doors/layout/writer.h"

#include <inttypes.h>

/* Prints the names of all modules, those of blocks as "h.0 to h.11". */
static void print_modules(const struct pd_layout *layout)
{
	const struct pd_blocks *blocks = &layout->blocks;
	int begin = blocks->decoder_first, end = begin + blocks->decoder_count;

	for (int m = 0; m < blocks->count; m++) {
		fprintf(layout->out, "%s\n    #   %s", m > 0 ? "," : "", blocks->names[m]);
		if (m == begin && blocks->decoder_count > 1) {
			m = end - 1;
			fprintf(layout->out, " to %s", blocks->names[m]);
		}
	}
	putc('\n', layout->out);
}

int pd_layout_write_deepspeed(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;

	(void)err;
	fprintf(layout->out, "from deepspeed.pipe import PipelineModule\n\n\nclass PlannedModule(PipelineModule):\n"
		"    # micro_batch_per_gpu %" PRId64 ", gradient_accumulation_steps %" PRId64
		"%s; the %d layers are",
		plan->profile->batch_size, plan->microbatches / plan->stages[0].replicas,
		layout->recompute ? ", activation_checkpoint_interval 1" : "", layout->blocks.count);
	print_modules(layout);
	fputs("    def _partition_layers(self, method=\"parameters\"):\n        self.parts = [", layout->out);
	for (int s = 0; s <= plan->stage_count; s++)
		fprintf(layout->out, "%s%d", s > 0 ? ", " : "", pd_layout_begin_of(layout, s));
	fputs("]\n        assert self.parts[-1] == len(self._layer_specs) and self.num_stages == len(self.parts) - 1\n"
	      "        stage = self._topo.get_coord(self.global_rank).pipe\n"
	      "        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])\n", layout->out);
	return 0;
}
