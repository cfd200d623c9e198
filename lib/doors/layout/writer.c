/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/layout/writer.h"

#include "base/minmax.h"

#include <inttypes.h>
#include <stdlib.h>

int pd_layout_virtual(const struct pd_layout *layout)
{
	return layout->plan->stage_count / layout->ranks;
}

/* Prints "pp 4 x tp 2 x dp 2", and how many virtual stages a rank has. */
static void print_sizes(const struct pd_layout *layout)
{
	const struct pd_degrees *group = &layout->plan->profile->group;

	fprintf(layout->out, "pp %d", layout->ranks);
	if (group->tensor > 1)
		fprintf(layout->out, " x tp %" PRId64, group->tensor);
	fprintf(layout->out, " x dp %" PRId64, layout->plan->stages[0].replicas *
		(group->sharded > 1 ? group->sharded : 1));
	if (pd_layout_virtual(layout) > 1)
		fprintf(layout->out, ", %d virtual stages a rank", pd_layout_virtual(layout));
}

void pd_layout_print_degrees(const struct pd_layout *layout)
{
	int64_t local = pd_layout_local(layout), samples = layout->plan->profile->batch_size;

	print_sizes(layout);
	fprintf(layout->out, ", %s, %" PRId64 " microbatch%s of %" PRId64 " sample%s",
		pd_schedule_kind_name[layout->plan->schedule], local, local > 1 ? "es" : "", samples,
		samples > 1 ? "s" : "");
}

void pd_layout_print_torchrun(const struct pd_layout *layout)
{
	const struct pd_plan *plan = layout->plan;
	int64_t each = pd_degrees_devices(&plan->profile->group), all = plan->rank_count * each;
	int64_t host = pd_min(all, plan->topology.level[0].count * each);

	while (all % host != 0)
		host--;
	fprintf(layout->out, "torchrun --nnodes=%" PRId64 " --nproc-per-node=%" PRId64 " ", all / host, host);
	if (all > host)
		fputs("--rdzv-backend=c10d --rdzv-endpoint=${HEAD:?HOST:PORT of the first host} ", layout->out);
}

int64_t pd_layout_local(const struct pd_layout *layout)
{
	return layout->plan->microbatches / layout->plan->stages[0].replicas;
}

int64_t pd_layout_each(const struct pd_layout *layout)
{
	int64_t full = layout->plan->profile->group.sharded;

	return layout->plan->profile->batch_size / (full > 1 ? full : 1);
}

bool pd_layout_has_usual_leads(const struct pd_layout *layout)
{
	const struct pd_plan *plan = layout->plan;
	int64_t most = pd_layout_local(layout) - 1;

	if (!pd_schedule_has(plan->schedule, PD_FACT_LEADS))
		return true;
	for (int s = 0; s < plan->stage_count; s++)
		if (pd_min(plan->stages[s].warmup, most) != pd_min(pd_plan_warmup(plan, s), most))
			return false;
	return plan->startup != PD_STARTUP_EAGER;
}

void pd_layout_print_real(const struct pd_layout *layout, double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.15g", value);
	if (strtod(text, NULL) != value)
		snprintf(text, sizeof(text), "%.17g", value);
	fputs(text, layout->out);
}
