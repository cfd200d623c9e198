/* SPDX-License-Identifier: Apache-2.0 */
/* What stands above a drawing of a timeline. */
#include "base/mem.h"
#include "base/opt.h"
#include "plan/show.h"
#include "trace/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NAME 48         /* characters: two such names and the rest fit across a page */

char *pd_view_title(const struct pd_view *view)
{
	static const struct pd_name_style style = { .dots = "...", .most = LONGEST_NAME };
	const struct pd_trace *trace = view->timeline->trace;
	const struct pd_plan *plan = trace->plan;
	char *of = pd_show_name(view->name ? view->name : "", &style);
	char *name = pd_show_name(plan->profile->name ? plan->profile->name : "", &style), *title;
	char microbatches[48] = "";

	if (plan->microbatches > 1)
		snprintf(microbatches, sizeof(microbatches), "%" PRId64 " microbatches, ",
			 plan->microbatches);
	title = pd_format("%s%s%s%s%s, %s, %s%d rank%s, %s", of, view->name ? ": " : "", name,
			  view->name ? ", " : ": ", pd_schedule_kind_name[plan->schedule],
			  pd_weight_kind_name[plan->weights], microbatches, view->timeline->rank_count,
			  view->timeline->rank_count == 1 ? "" : "s",
			  strcmp(trace->device, "sim") == 0 ? "simulated" : "measured");
	free(of);
	free(name);
	return title;
}

char *pd_view_figures(const struct pd_view *view)
{
	const struct pd_timeline *timeline = view->timeline;
	const struct pd_plan *plan = timeline->trace->plan;
	struct pd_report *report = pd_report_new(timeline);
	char time[32], *text;

	if (report->has_steady)
		text = pd_format("%s per %s, %.1f samples/s, bubble %.1f %%",
				 pd_show_time((int64_t)(report->steady.period_ns + 0.5), time),
				 pd_plan_unit(plan), (double)plan->profile->batch_size * 1e9 /
				 report->steady.period_ns, pd_report_bubble(report));
	else
		text = pd_format("%s in all, no steady state",
				 pd_show_time(timeline->end_ns - timeline->begin_ns, time));
	pd_report_free(report);
	return text;
}
