/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a plan as a graph for Graphviz: its stages, the tensors between them, and their ranks. */
#include "explain/explain.h"

#include "base/opt.h"
#include "explain/usage.h"
#include "memory/buckets.h"

/* Writes a label's text for double quotes. */
static void put_quoted(const char *text, FILE *out)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		fputc(*text, out);
	}
}

static void put_stage(const struct pd_usage *usage, int s, FILE *out)
{
	const struct pd_plan *plan = usage->plan;
	const struct pd_stage *stage = &plan->stages[s];
	const struct pd_profile_layer *layers = plan->profile->layers;
	char ranks[64], bytes[32], kinds[200], again[PD_RECOMPUTED_TEXT];

	fprintf(out, "  s%d [label=\"stage %d", s, s);
	if (stage->replicas > 1)
		fprintf(out, " x %d", stage->replicas);
	fprintf(out, "\\n");
	put_quoted(layers[stage->first_layer].name, out);
	if (stage->layer_count > 1) {
		fprintf(out, " ... ");
		put_quoted(layers[stage->first_layer + stage->layer_count - 1].name, out);
	}
	fprintf(out, "\\nrank%s %s", stage->replicas > 1 ? "s" : "", pd_show_ranks(stage, ranks, sizeof(ranks)));
	if (*pd_show_kinds(plan, stage, kinds, sizeof(kinds))) {
		fputs(" on ", out);
		put_quoted(kinds, out);
	}
	fprintf(out, "\\nbusy %.0f%%, %s%s\"];\n",
		100 * pd_usage_part(usage, pd_usage_busy_ns(usage, s)),
		pd_show_device_bytes(usage->plan, stage->memory_bytes, bytes), pd_show_recomputed(plan, s, ", ", again));
}

static void put_links(const struct pd_usage *usage, FILE *out)
{
	const struct pd_wiring *wiring = usage->schedule->wiring;
	char bytes[32];

	for (int k = 0; k < wiring->link_count; k++)
		if (wiring->links[k].bytes > 0)
			fprintf(out, "  s%d -> s%d [dir=both, label=\"%s\"];\n",
				wiring->links[k].from,
				wiring->links[k].to, pd_show_bytes(wiring->links[k].bytes, bytes));
	for (int s = 0; s < usage->plan->stage_count; s++)
		if (usage->plan->stages[s].replicas > 1)
			fprintf(out, "  s%d -> s%d [style=dashed, label=\"all-reduce of %s\"];\n",
				s, s, pd_show_bytes(pd_plan_stage_parameters(usage->plan, s), bytes));
}

int pd_plan_dot(const struct pd_plan *plan, FILE *out, struct pd_error *err)
{
	struct pd_usage *usage = pd_usage_new(plan);
	char time[32], places[PD_SHOW_PLACES];

	if (!usage)
		pd_bug("dot: a plan that has no schedule");
	fprintf(out, "digraph plan {\n  rankdir=LR;\n  fontname=\"Helvetica\";\n"
		"  node [shape=box, fontname=\"Helvetica\"];\n"
		"  edge [fontname=\"Helvetica\", fontsize=10];\n  label=\"");
	put_quoted(plan->profile->name ? plan->profile->name : "", out);
	fprintf(out, ": %s, %s, %s, %s per %s\";\n",
		pd_schedule_kind_name[plan->schedule], pd_weight_kind_name[plan->weights],
		pd_show_places(plan, places),
		pd_show_time(plan->predicted.period_ns, time), pd_plan_unit(plan));
	for (int s = 0; s < plan->stage_count; s++)
		put_stage(usage, s, out);
	put_links(usage, out);
	fprintf(out, "}\n");
	pd_usage_free(usage);
	return 0;
}
