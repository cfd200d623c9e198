/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a report for people: the main figures first, tables below. */
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "memory/buckets.h"
#include "plan/show.h"
#include "trace/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_SHOWN 64

static double percent(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

static const char *show_ns(double ns, char *buf)
{
	return pd_show_time((int64_t)(ns + 0.5), buf);
}

/* Prints how many minibatches were trained, and their microbatches. */
static void print_length(const struct pd_plan *plan, int64_t microbatches, FILE *out)
{
	int64_t cut = plan->microbatches;

	if (microbatches % cut)         /* the list of operations is incomplete */
		fprintf(out, "%" PRId64 " microbatches", microbatches);
	else
		fprintf(out, "%" PRId64 " minibatches", microbatches / cut);
	fprintf(out, " of ");
	if (cut > 1 && microbatches % cut == 0)
		fprintf(out, "%" PRId64 " x ", cut);
	fprintf(out, "%" PRId64 " samples", plan->profile->batch_size);
}

/* Writes between which periods a run's is expected. */
static void print_range(const struct pd_report *replay, FILE *out)
{
	double period = replay->steady.period_ns;
	char low[32], high[32];

	fprintf(out, "%s to %s", show_ns(period * replay->range.low, low), show_ns(period * replay->range.high, high));
}

static void print_head(const struct pd_report *report, FILE *out)
{
	const struct pd_trace *trace = report->timeline->trace;
	const struct pd_plan *plan = trace->plan;
	int64_t whole = report->timeline->end_ns - report->timeline->begin_ns;
	const char *unit = pd_plan_unit(plan);
	char a[32], b[32], label[32], *devices = pd_show_devices(&plan->topology);

	fprintf(out, "%s: %d stage%s on %d rank%s, %s, %s; ", plan->profile->name,
		plan->stage_count, plan->stage_count == 1 ? "" : "s", plan->rank_count,
		plan->rank_count == 1 ? "" : "s", pd_schedule_kind_name[plan->schedule],
		pd_weight_kind_name[plan->weights]);
	print_length(plan, report->microbatches, out);
	fprintf(out, ", %s\n", strcmp(trace->device, "sim") == 0 ? "simulated" : "measured");
	if (devices)
		fprintf(out, "devices: %s\n", devices);
	free(devices);
	putc('\n', out);
	snprintf(label, sizeof(label), "time per %s", unit);
	if (report->estimated)
		fprintf(out, "%-20s %s (an estimate: two whole updates take too long to be replayed)\n", label,
			show_ns(report->steady.period_ns, a));
	else if (report->has_steady)
		fprintf(out, "%-20s %s in steady state (%ses %" PRId64 " to %" PRId64 ", %s)\n",
			label, show_ns(report->steady.period_ns, a), unit, report->steady.first,
			report->steady.last,
			report->steady.cycle ? "periodic" : "not periodic: their mean");
	if (report->has_steady && report->range.high > 0) {
		fprintf(out, "%-20s ", "");
		print_range(report, out);
		fputs(" in eight runs of ten, by how the profile's times varied\n", out);
	}
	if (report->microbatches)
		fprintf(out, "%-20s %s over all of %s\n", report->has_steady ? "" : label,
			show_ns((double)whole / (double)report->microbatches, a),
			pd_show_time(whole, b));
	if (report->has_steady)
		fprintf(out, "samples per second   %.1f in steady state\n",
			(double)plan->profile->batch_size * 1e9 / report->steady.period_ns);
	if (report->end_ns > report->begin_ns)
		fprintf(out, "bubble               %.1f %% of the time of all ranks%s\n",
			pd_report_bubble(report),
			report->has_steady && !report->estimated ? " in steady state" : "");
}

static void sum_ranks(const struct pd_report *report, const int *ranks, int count,
		      struct pd_rank_report *sum)
{
	*sum = (struct pd_rank_report){ 0 };
	for (int i = 0; i < count; i++) {
		const struct pd_rank_report *one = &report->ranks[ranks[i]];

		sum->busy_ns += one->busy_ns;
		sum->transfer_ns += one->transfer_ns;
		sum->overlapped_ns += one->overlapped_ns;
		sum->slowed_ns += one->slowed_ns;
		for (int w = 0; w < PD_WAITS; w++)
			sum->wait_ns[w] += one->wait_ns[w];
	}
}

static void print_shares(const char *name, const struct pd_rank_report *one, FILE *out)
{
	double window = (double)one->busy_ns;

	for (int w = 0; w < PD_WAITS; w++)
		window += (double)one->wait_ns[w];
	fprintf(out, "%-12s %6.1f %6.1f", name, percent((double)one->busy_ns, window),
		window > 0 ? 100 - percent((double)one->busy_ns, window) : 0);
	fprintf(out, " %11.1f %9.1f %11.1f %7.1f %6.1f",
		percent((double)one->wait_ns[PD_WAIT_ACTIVATION], window),
		percent((double)one->wait_ns[PD_WAIT_GRADIENT], window),
		percent((double)one->wait_ns[PD_WAIT_ALLREDUCE], window),
		percent((double)one->wait_ns[PD_WAIT_LAUNCH], window),
		percent((double)(one->wait_ns[PD_WAIT_OTHER] + one->wait_ns[PD_WAIT_LOAD]),
			window));
	if (one->transfer_ns > 0)
		fprintf(out, " %10.1f\n",
			percent((double)one->overlapped_ns, (double)one->transfer_ns));
	else
		fprintf(out, " %10s\n", "-");
}

/* Prints percentages of the window; the last column is of the time of transfers. */
static void print_use(const struct pd_report *report, FILE *out)
{
	const struct pd_plan *plan = report->timeline->trace->plan;
	struct pd_rank_report sum;
	char name[64], stages[32];
	int shown = 0;

	fputs("\n                             idle, waiting for                               transfers\n"
	      "%              busy   idle  activation  gradient  all-reduce  launch  other overlapped\n",
	      out);
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];

		if (report->timeline->chunks[s] > 0)
			continue;       /* another stage has shown its ranks */
		pd_timeline_stages(report->timeline, stage->ranks[0], ",", stages, sizeof(stages));
		snprintf(name, sizeof(name), "stage %s", stages);
		sum_ranks(report, stage->ranks, stage->replicas, &sum);
		print_shares(name, &sum, out);
		for (int i = 0; i < stage->replicas && stage->replicas > 1; i++) {
			if (shown++ >= RANKS_SHOWN)
				continue;
			snprintf(name, sizeof(name), "  rank %d", stage->ranks[i]);
			print_shares(name, &report->ranks[stage->ranks[i]], out);
		}
	}
	if (shown > RANKS_SHOWN)
		fprintf(out, "(%d more ranks)\n", shown - RANKS_SHOWN);
}

/* Prints how much of the time in which stages are busy is computing that is slower beside transfers. */
static void print_slowed(const struct pd_report *report, FILE *out)
{
	const struct pd_plan *plan = report->timeline->trace->plan;
	double window = (double)(report->end_ns - report->begin_ns);
	bool any = false;

	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];
		struct pd_rank_report sum;

		sum_ranks(report, stage->ranks, stage->replicas, &sum);
		if (report->timeline->chunks[s] > 0 || sum.slowed_ns == 0)
			continue;
		fprintf(out, "%s stage %d %.1f %%", any ? "," : "of busy, slower beside transfers:", s,
			percent((double)sum.slowed_ns, window * stage->replicas));
		any = true;
	}
	if (any)
		putc('\n', out);
}

static void print_moved(const char *name, int64_t count, int64_t bytes, double each_ns, FILE *out)
{
	char a[32], b[32], c[32], d[32];
	double rate = (double)bytes / (double)count * 1e9 / each_ns;

	if (count == 0)
		return;
	fprintf(out, "%-32s %12s %12s %12s", name, pd_show_bytes(bytes / count, a),
		pd_show_bytes(bytes, b), show_ns(each_ns, c));
	fprintf(out, " %12s\n", each_ns >= 1
		? pd_show_rate((int64_t)fmin(rate, (double)PD_MAX_BYTES), d) : "-");
}

static void print_links(const struct pd_report *report, FILE *out)
{
	const struct pd_plan *plan = report->timeline->trace->plan;
	char name[64];

	fprintf(out, "\n%-32s %12s %12s %12s %12s\n", "moved", "each", "in all", "time each",
		"rate");
	for (int i = 0; i < report->link_count; i++) {
		const struct pd_link_report *link = &report->links[i];

		snprintf(name, sizeof(name), "activations, stage %d to %d", link->from, link->to);
		print_moved(name, link->activations, link->activation_bytes, link->activation_ns,
			    out);
		snprintf(name, sizeof(name), "gradients, stage %d to %d", link->to, link->from);
		print_moved(name, link->gradients, link->gradient_bytes, link->gradient_ns, out);
	}
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage_report *stage = &report->stages[s];

		if (plan->stages[s].replicas < 2)
			continue;
		snprintf(name, sizeof(name), "all-reduce, stage %d of %d ranks", s,
			 plan->stages[s].replicas);
		print_moved(name, stage->allreduces, stage->allreduce_bytes, stage->allreduce_ns,
			    out);
		if (stage->norms == 0)
			continue;
		snprintf(name, sizeof(name), "norms, stage %d", s);
		print_moved(name, stage->norms, stage->norm_bytes, stage->norms_ns, out);
	}
}

static void print_time(double ns, FILE *out)
{
	char a[32];

	fprintf(out, " %10s", ns > 0 ? show_ns(ns, a) : "-");
}

static void print_pair(double predicted, double measured, FILE *out)
{
	print_time(predicted, out);
	print_time(measured, out);
	if (predicted > 0 && measured > 0)
		fprintf(out, " %+7.1f%%", 100 * (measured / predicted - 1));
	else
		fprintf(out, " %8s", "-");
}

static bool recomputes(const struct pd_plan *plan)
{
	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].recompute)
			return true;
	return false;
}

/* Prints means of one microbatch on one replica. */
static void print_stages(const struct pd_report *report, FILE *out)
{
	const struct pd_plan *plan = report->timeline->trace->plan;
	bool again = recomputes(plan);

	fprintf(out, "\n%-8s %10s%s %10s %10s %10s  layers\n", "", "forward",
		again ? "  recompute" : "", "backward", "update", "all-reduce");
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage_report *means = &report->stages[s];
		const struct pd_stage *stage = &plan->stages[s];
		const struct pd_profile_layer *first = &plan->profile->layers[stage->first_layer];
		char kinds[200];

		fprintf(out, "stage %-2d", s);
		print_time(means->forward_ns, out);
		if (again)
			print_time(means->recompute_ns, out);
		print_time(means->backward_ns, out);
		print_time(means->step_ns, out);
		print_time(means->allreduce_ns, out);
		fprintf(out, "  %s", first->name);
		if (stage->layer_count > 1)
			fprintf(out, " to %s", first[stage->layer_count - 1].name);
		if (*pd_show_kinds(plan, stage, kinds, sizeof(kinds)))
			fprintf(out, ", on %s", kinds);
		putc('\n', out);
	}
}

/* Prints these means beside those of the plan's profile. */
static void print_differences(const struct pd_report *report, const struct pd_report *predicted,
			      FILE *out)
{
	fprintf(out, "\n%-8s %-30s%s\n%-8s %10s %10s %8s %10s %10s\n", "", "    forward, mean",
		"    backward, mean", "", "predicted", "measured", "", "predicted", "measured");
	for (int s = 0; s < report->timeline->trace->plan->stage_count; s++) {
		const struct pd_stage_report *here = &report->stages[s];
		const struct pd_stage_report *there = &predicted->stages[s];

		fprintf(out, "stage %-2d", s);
		print_pair(there->forward_ns, here->forward_ns, out);
		print_pair(there->backward_ns, here->backward_ns, out);
		putc('\n', out);
	}
}

static void print_sums_head(const struct pd_plan *plan, bool compared, FILE *out)
{
	fprintf(out, "\nall-reduce of a replica's update, %s, %s", pd_reducer_kind_name[plan->reducer],
		pd_dtype_name[plan->gradient_dtype]);
	if (plan->chunk > 0)
		fprintf(out, ", sparsity %g", plan->sparsity);
	fprintf(out, "\n%-8s %8s %12s %10s %10s%s\n", "", "buckets", "sent", "messages", "exposed",
		compared ? "   replayed" : "");
}

void pd_report_print_sums(const struct pd_report *report, const struct pd_report *predicted,
			  FILE *out)
{
	const struct pd_plan *plan = report->timeline->trace->plan;
	bool head = false;
	char a[32], b[32];

	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage_report *here = &report->stages[s];

		if (plan->stages[s].replicas < 2)
			continue;
		if (!head)
			print_sums_head(plan, predicted != NULL, out);
		head = true;
		fprintf(out, "stage %-2d %8d %12s %10.0f %10s", s, pd_plan_bucket_count(plan, s),
			here->messages > 0 ? pd_show_bytes(llround(here->sent_bytes), a) : "-",
			here->messages, show_ns(here->exposed_ns, b));
		if (predicted)
			fprintf(out, " %10s", show_ns(predicted->stages[s].exposed_ns, b));
		if (here->norms > 0)
			fprintf(out, "\n  norms  %8s %12s %10.0f", "", pd_show_bytes(
				llround(here->norm_sent_bytes), a), here->norm_messages);
		putc('\n', out);
	}
}

/* Says whether the measured period lies where the profile lets it be expected. */
static void print_verdict(const struct pd_report *report, const struct pd_report *predicted, FILE *out)
{
	if (predicted->range.high <= 0)
		return;
	fputs(pd_report_inside(report, predicted) ? "inside " : "outside ", out);
	print_range(predicted, out);
	fputs(", where eight runs of ten are expected by how the profile's times varied\n", out);
}

static void print_prediction(const struct pd_report *report, const struct pd_report *predicted,
			     FILE *out)
{
	const struct pd_trace *trace = report->timeline->trace;
	const struct pd_plan *plan = trace->plan;
	double here = report->steady.period_ns;
	char a[32];

	if (!report->has_steady)
		return;
	if (predicted && predicted->has_steady) {
		fputs("\nthe plan, replayed", out);
		if (trace->processors > 0)
			fprintf(out, " on %" PRId64 " processor%s", trace->processors,
				trace->processors == 1 ? "" : "s");
		fprintf(out, ", takes %s per %s; measured: %+.1f %%\n",
			show_ns(predicted->steady.period_ns, a), pd_plan_unit(plan),
			100 * (here / predicted->steady.period_ns - 1));
		print_verdict(report, predicted, out);
	}
	if (plan->predicted.period_ns > 0)
		fprintf(out, "%sthe planner predicted %s per %s; here: %+.1f %%\n",
			predicted && predicted->has_steady ? "" : "\n",
			pd_show_time(plan->predicted.period_ns, a), pd_plan_unit(plan),
			100 * (here / (double)plan->predicted.period_ns - 1));
}

void pd_report_print(const struct pd_report *report, const struct pd_report *predicted, FILE *out)
{
	print_head(report, out);
	print_use(report, out);
	print_slowed(report, out);
	print_stages(report, out);
	if (predicted)
		print_differences(report, predicted, out);
	print_links(report, out);
	pd_report_print_sums(report, predicted, out);
	print_prediction(report, predicted, out);
}
