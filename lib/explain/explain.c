/* SPDX-License-Identifier: Apache-2.0 */
/* Explains a plan in tables. */
#include "explain/explain.h"

#include "base/mem.h"
#include "base/opt.h"
#include "base/sort.h"
#include "explain/usage.h"
#include "planner/sums.h"

#include <stdlib.h>
#include <string.h>

#define MOST_STAGES 48          /* rows of a table */
#define MOST_LINKS 8

/* Says that nobody has measured the times, if that is so. */
static void put_source(const struct pd_profile *profile, const char *before, FILE *out)
{
	if (profile->estimated_from)
		fprintf(out, "%stimes are estimated for %s by its data sheet, and may be off by %g%%", before,
			profile->estimated_from, 100 * profile->estimated_spread);
}

/* Writes the period, and where the profile says how far its times may be off, its range. */
static void put_period(const struct pd_prediction *predicted, FILE *out)
{
	char time[32], low[32], high[32];

	fprintf(out, "%s%s", pd_show_time(predicted->period_ns, time),
		predicted->period_from == PD_PERIOD_ESTIMATE ? " (an estimate)" : "");
	if (predicted->period_high_ns > 0)
		fprintf(out, ", %s to %s,", pd_show_time(predicted->period_low_ns, low),
			pd_show_time(predicted->period_high_ns, high));
}

/* Says what the devices of a rank share. */
static void put_group(const struct pd_degrees *group, FILE *out)
{
	char rate[32];

	if (pd_degrees_devices(group) == 1)
		return;
	fprintf(out, "\na rank is %lld devices", (long long)pd_degrees_devices(group));
	if (group->tensor > 1 && group->sharded > 1)
		fprintf(out, ", %lld times %lld", (long long)group->sharded, (long long)group->tensor);
	if (group->tensor > 1)
		fprintf(out, ", which share layers out%s", group->sequence ? ", and others by rows" : "");
	if (group->sharded > 1)
		fprintf(out, ", which share %ssamples and weights out", group->tensor > 1 ? "between them " : "");
	fprintf(out, ", over %s", pd_show_rate(group->tensor_link.bandwidth_bytes_per_s, rate));
	if (group->tensor > 1 && group->sharded > 1)
		fprintf(out, " and %s",
			pd_show_rate(group->sharded_link.bandwidth_bytes_per_s, rate));
}

static void explain_head(const struct pd_plan *plan, FILE *out)
{
	const struct pd_prediction *predicted = &plan->predicted;
	char bytes[32], places[PD_SHOW_PLACES], *devices = pd_show_devices(&plan->topology);

	fprintf(out, "%s: %s, %s", plan->profile->name ? plan->profile->name : "plan",
		pd_schedule_kind_name[plan->schedule], pd_weight_kind_name[plan->weights]);
	if (plan->microbatches > 1)
		fprintf(out, ", %lld microbatches in a minibatch", (long long)plan->microbatches);
	if (plan->round > 0)
		fprintf(out, ", in rounds of %lld", (long long)plan->round);
	fprintf(out, ", on %s\nperiod: ", pd_show_places(plan, places));
	put_period(predicted, out);
	fprintf(out, " per %s of %lld samples, "
		"%.1f samples/s, at most %s on one device, %.4g MB sent per sample\n", pd_plan_unit(plan),
		(long long)plan->profile->batch_size,
		predicted->samples_per_s, pd_show_device_bytes(plan, predicted->memory_bytes, bytes),
		predicted->sent_bytes_per_sample / 1e6);
	if (devices)
		fprintf(out, "devices: %s; the slowest of a stage decides\n", devices);
	free(devices);
	if (*predicted->order_from)
		fprintf(out, "order: the shortest that was found, of %s\n", predicted->order_from);
	for (int k = 0; k < pd_plan_kinds(plan); k++)
		put_source(pd_profile_of_kind(plan->profile, k), k > 0 ? "; " : "", out);
	put_group(&plan->profile->group, out);
	fputs(plan->profile->estimated_from ? "\n\n" : "\n", out);
}

static int shown_stages(const struct pd_plan *plan)
{
	return plan->stage_count <= MOST_STAGES ? plan->stage_count : MOST_STAGES;
}

static void explain_rest(const struct pd_plan *plan, FILE *out)
{
	if (plan->stage_count > MOST_STAGES)
		fprintf(out, "  ...  %d more\n", plan->stage_count - MOST_STAGES);
	fputc('\n', out);
}

static void explain_stages(const struct pd_usage *usage, FILE *out)
{
	const struct pd_plan *plan = usage->plan;
	const struct pd_name_style style = { " to ", "...", 44 };
	size_t prefix = pd_layers_prefix(plan->profile);

	fprintf(out, "%5s  %6s  %8s  %-16s  %6s  %9s  %8s  %5s  which%s%.*s\n", "stage", "layers",
		"replicas", "ranks", "warmup", "in flight", "versions", "stale",
		prefix ? ", all behind " : "", (int)prefix, plan->profile->layers[0].name);
	for (int s = 0; s < shown_stages(plan); s++) {
		const struct pd_stage *stage = &plan->stages[s];
		const struct pd_stage_usage *at = &usage->stages[s];
		char *names = pd_show_layers(plan->profile, stage, prefix, &style);
		char ranks[20], kinds[200], recomputed[PD_RECOMPUTED_TEXT];

		pd_show_kinds(plan, stage, kinds, sizeof(kinds));
		fprintf(out, "%5d  %6d  %8d  %-16s  %6d  %9d  %8d  %5lld  %s%s%s%s\n", s,
			stage->layer_count, stage->replicas,
			pd_show_ranks(stage, ranks, sizeof(ranks)), usage->schedule->warmup[s], at->in_flight,
			at->versions, (long long)at->stale, names,
			pd_show_recomputed(plan, s, ", ", recomputed), *kinds ? ", on " : "", kinds);
		free(names);
	}
	explain_rest(plan, out);
}

static const char *show_ns(double ns, char *buf)
{
	return pd_show_time(ns < 9e18 ? (int64_t)(ns + 0.5) : INT64_MAX, buf);
}

static void explain_times(const struct pd_usage *usage, FILE *out)
{
	fprintf(out, "%5s  %10s  %10s  %10s  %10s  %10s  %6s  %s\n", "stage", "forward", "backward",
		"update", "all-reduce", "busy", "of it", usage->plan->microbatches > 1
		? "a replica's time for one microbatch" : "a replica's time for one minibatch");
	for (int s = 0; s < shown_stages(usage->plan); s++) {
		const struct pd_stage_usage *at = &usage->stages[s];
		double busy = pd_usage_busy_ns(usage, s), part = pd_usage_part(usage, busy);
		char a[32], b[32], c[32], d[32], e[32], bar[32] = "";

		for (int i = 0; i < 20 && i < (int)(part * 20 + 0.5); i++)
			strcat(bar, "#");
		fprintf(out, "%5d  %10s  %10s  %10s  %10s  %10s  %5.1f%%  %s%s\n", s,
			show_ns(at->forward_ns, a), show_ns(at->backward_ns, b),
			show_ns(at->update_ns, c), show_ns(at->allreduce_ns, d), show_ns(busy, e),
			100 * part, bar,
			at->allreduce_ns > 0 && !at->serial ? "  beside its all-reduce" : "");
	}
	explain_rest(usage->plan, out);
}

/* Says whose memory it is, if it is another program's. */
static void explain_rule(const struct pd_memory_rule *rule, FILE *out)
{
	if (rule->model != PD_MEMORY_OWN)
		fprintf(out, "memory as in %s%s; the sum has %g %% for what the allocator keeps\n",
			pd_memory_model_name[rule->model],
			rule->sharded ? ", where replicas share out what the optimizer keeps" : "",
			100 * rule->margin);
}

static void explain_memory(const struct pd_usage *usage, FILE *out)
{
	fprintf(out, "%5s  %10s  %10s  %10s  %10s  %10s  %10s  %10s  %s\n", "stage", "weights",
		"in flight", "gradients", "optimizer", "transfers", "scratch",
		pd_degrees_devices(&usage->plan->profile->group) > 1 ? "a device" : "a rank", "of it for what is ahead");
	for (int s = 0; s < shown_stages(usage->plan); s++) {
		const struct pd_memory *m = &usage->stages[s].memory;
		char a[32], b[32], c[32], d[32], e[32], f[32], g[32], h[32];

		fprintf(out, "%5d  %10s  %10s  %10s  %10s  %10s  %10s  %10s  %s\n", s,
			pd_show_device_bytes(usage->plan, m->weights_bytes, a), pd_show_device_bytes(usage->plan, m->stash_bytes, b),
			pd_show_device_bytes(usage->plan, m->gradient_bytes + m->state_bytes, c),
			pd_show_device_bytes(usage->plan, m->optimizer_bytes, d), pd_show_device_bytes(usage->plan, m->transfer_bytes, e),
			pd_show_device_bytes(usage->plan, m->scratch_bytes, f),
			pd_show_device_bytes(usage->plan, usage->plan->stages[s].memory_bytes, g),
			pd_show_device_bytes(usage->plan, usage->stages[s].ahead_bytes, h));
	}
	explain_rule(&usage->plan->profile->memory, out);
	explain_rest(usage->plan, out);
}

/* one direction of a link */
struct direction {
	int level, component;
	enum pd_way way;
	const struct pd_load *load;
};

static int by_load(const void *a, const void *b)
{
	const struct direction *x = a, *y = b;

	PD_ORDER(y->load->busy_ns, x->load->busy_ns);
	PD_ORDER(y->level, x->level);
	PD_ORDER(x->component, y->component);
	return (int)x->way - (int)y->way;
}

/* Writes "ranks 4-7 to the others, level 1". */
static const char *show_link(const struct pd_usage *usage, int level, int component,
			     enum pd_way way, char *buf, size_t room)
{
	int64_t size = usage->links.size[level];
	char ranks[48];

	if (size == 1)
		snprintf(ranks, sizeof(ranks), "rank %d", component);
	else
		snprintf(ranks, sizeof(ranks), "ranks %lld-%lld", (long long)(component * size),
			 (long long)((component + 1) * size - 1));
	snprintf(buf, room, "%s %s, level %d", way == PD_WAY_OUT ? "out of" : "into", ranks, level);
	return buf;
}

static void explain_links(const struct pd_usage *usage, FILE *out)
{
	const struct pd_links *links = &usage->links;
	struct direction *list;
	size_t room = 0, n = 0;

	for (int k = 0; k < links->topology->levels; k++)
		room += PD_WAYS * (size_t)links->components[k];
	list = pd_calloc(room, sizeof(*list));
	for (int k = 0; k < links->topology->levels; k++)
		for (int i = 0; i < PD_WAYS * links->components[k]; i++) {
			const struct pd_load *load = &links->load[k][i / PD_WAYS][i % PD_WAYS];

			if (load->bytes > 0)
				list[n++] = (struct direction){ k, i / PD_WAYS, i % PD_WAYS, load };
		}
	qsort(list, n, sizeof(*list), by_load);
	if (n > 0)
		fprintf(out, "%-32s  %10s  %10s  %6s\n", "link", "bytes", "busy", "of it");
	for (size_t i = 0; i < n && i < MOST_LINKS; i++) {
		char where[64], bytes[32], time[32];

		fprintf(out, "%-32s  %10s  %10s  %5.1f%%\n",
			show_link(usage, list[i].level, list[i].component, list[i].way, where,
				  sizeof(where)),
			pd_show_bytes((int64_t)(list[i].load->bytes + 0.5), bytes),
			show_ns(list[i].load->busy_ns, time),
			100 * pd_usage_part(usage, list[i].load->busy_ns));
	}
	if (n > MOST_LINKS)
		fprintf(out, "  ...  %zu more that are less busy\n", n - MOST_LINKS);
	if (n > 0)
		fputc('\n', out);
	free(list);
}

void pd_usage_put_limit(const struct pd_usage *usage, FILE *out)
{
	const struct pd_limit *limit = &usage->limit;
	double part = 100 * pd_usage_part(usage, limit->ns);
	char time[32], where[64];

	switch (limit->kind) {
	case PD_LIMIT_PROCESSOR:
		fprintf(out, "the processors of stage %d%s, busy for %s", limit->first,
			usage->stages[limit->first].serial &&
			usage->stages[limit->first].allreduce_ns > 0 ? " with its all-reduce" : "",
			show_ns(limit->ns, time));
		break;
	case PD_LIMIT_CHUNKS:
		fprintf(out, "the processors of rank %d with its %d stages, busy for %s", limit->first,
			usage->schedule->chunks, show_ns(limit->ns, time));
		break;
	case PD_LIMIT_TURNS:
		fprintf(out, "the processors that ranks share, the busiest for %s",
			show_ns(limit->ns, time));
		break;
	case PD_LIMIT_LINK:
		fprintf(out, "the link %s, busy for %s", show_link(usage, limit->level,
			limit->component, limit->way, where, sizeof(where)),
			show_ns(limit->ns, time));
		break;
	case PD_LIMIT_WINDOW:
		fprintf(out, "the way from stage %d to stage %d and back, %s for each of the %lld "
			"%ses on it together", limit->first, limit->last,
			show_ns(limit->ns, time), (long long)limit->tokens, pd_plan_unit(usage->plan));
		break;
	}
	if (limit->kind != PD_LIMIT_WINDOW)
		fprintf(out, " per %s", pd_plan_unit(usage->plan));
	fprintf(out, " (%.0f%% of the period)%s", part,
		part < 99.5 ? "; the rest is waiting for transfers and neighbours" :
		part > 100.5 ? "; the formula of the chosen cost counts less" : "");
}

void pd_usage_put_limit_short(const struct pd_usage *usage, FILE *out)
{
	const struct pd_limit *limit = &usage->limit;
	double part = 100 * pd_usage_part(usage, limit->ns);
	char where[64];

	switch (limit->kind) {
	case PD_LIMIT_PROCESSOR:
		fprintf(out, "computing %.0f%% (stage %d)", part, limit->first);
		break;
	case PD_LIMIT_CHUNKS:
		fprintf(out, "computing %.0f%% (rank %d)", part, limit->first);
		break;
	case PD_LIMIT_TURNS:
		fprintf(out, "shared processors %.0f%%", part);
		break;
	case PD_LIMIT_LINK:
		show_link(usage, limit->level, limit->component, limit->way, where, sizeof(where));
		fprintf(out, "link %.0f%% (%s)", part, where);
		break;
	case PD_LIMIT_WINDOW:
		fprintf(out, "forwards ahead %.0f%% (stages %d to %d)", part, limit->first,
			limit->last);
		break;
	}
}

static void explain_schedules(const struct pd_plan *plan, FILE *out)
{
	bool any = false;

	for (int k = 0; k < PD_SCHEDULE_KINDS * PD_WEIGHT_KINDS; k++) {
		int kind = k / PD_WEIGHT_KINDS, weights = k % PD_WEIGHT_KINDS;
		const struct pd_schedule_tried *one = &plan->predicted.schedules[kind][weights];
		char bytes[32], time[32];

		if (one->period_ns == 0)
			continue;
		if (!any)
			fprintf(out, "\n%-12s  %-13s  %10s  %10s\n", "schedule", "weights", "period", "memory");
		any = true;
		fprintf(out, "%-12s  %-13s  %10s  %10s%s\n", pd_schedule_kind_name[kind],
			pd_weight_kind_name[weights], pd_show_time(one->period_ns, time),
			pd_show_device_bytes(plan, one->memory_bytes, bytes),
			kind == (int)plan->schedule && weights == (int)plan->weights ? "  (the plan's)" : "");
	}
}

static void explain_reducers(const struct pd_plan *plan, FILE *out)
{
	fprintf(out, "\n%-18s  %15s  %10s\n", "all-reduce", "buckets above", "period");
	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		const struct pd_reducer_tried *one = &plan->predicted.reducers[kind];
		char bytes[32], time[32];

		if (one->period_ns > 0)
			fprintf(out, "%-18s  %15s  %10s%s%s\n", pd_reducer_kind_name[kind],
				one->bucket_bytes > 0 ? pd_show_bytes(one->bucket_bytes, bytes)
						      : "one of a stage",
				one->period_ns < PD_COST_MAX
				? pd_show_time(one->period_ns, time) : "-",
				one->fits ? "" : "  does not fit",
				kind == (int)plan->reducer ? "  (the plan's)" : "");
	}
}

static void explain_buckets(const struct pd_plan *plan, FILE *out)
{
	struct pd_plan copy = *plan;
	int64_t list[PD_SUMS_THRESHOLDS + 1], period_ns;
	int count = pd_sums_thresholds(&copy, list);
	bool listed = false;
	struct pd_error err;

	for (int i = 0; i < count; i++)
		listed |= list[i] == plan->bucket_bytes;
	if (!listed)
		list[count++] = plan->bucket_bytes;
	fprintf(out, "\n%-15s  %12s  %10s\n", "buckets above", "all-reduces", "period");
	for (int i = 0; i < count; i++) {
		char bytes[32], time[32];

		if (pd_sums_period(&copy, list[i], &period_ns, &err) < 0)
			continue;
		copy.bucket_bytes = list[i];
		fprintf(out, "%-15s  %12lld  %10s%s\n",
			list[i] > 0 ? pd_show_bytes(list[i], bytes) : "one of a stage",
			(long long)pd_sums_of(&copy),
			period_ns > 0 ? pd_show_time(period_ns, time) : "-",
			list[i] == plan->bucket_bytes ? "  (the plan's)" : "");
	}
}

static void explain_alternatives(const struct pd_plan *plan, FILE *out)
{
	const struct pd_prediction *predicted = &plan->predicted;

	if (predicted->alternative_count == 0)
		return;
	fprintf(out, "\n%-15s  %10s  %6s  %10s  %12s  %5s  %s\n", "compared with", "period",
		"times", "memory", "MB / sample", "ranks", "stages");
	for (int i = 0; i < predicted->alternative_count; i++) {
		const struct pd_alternative *one = &predicted->alternatives[i];
		char time[32], bytes[32];

		fprintf(out, "%-15s  %10s  %6.2f  %10s  %12.4g  %5lld  %.32s%s%s%.32s%s\n",
			pd_alternative_kind_name[one->kind], pd_show_time(one->period_ns, time),
			predicted->period_ns > 0
			? (double)one->period_ns / (double)predicted->period_ns : 0,
			one->tensor > 0 ? pd_show_bytes((one->memory_bytes - 1) / one->tensor + 1, bytes)
					: pd_show_device_bytes(plan, one->memory_bytes, bytes), one->sent_bytes_per_sample / 1e6,
			(long long)one->ranks, one->stages, strlen(one->stages) > 32 ? "..." : "",
			one->recompute ? "; recomputed: " : "",
			one->recompute ? one->recompute : "",
			one->fits ? "" : "; does not fit");
		if (one->tensor > 0)
			fprintf(out, "%-15s  ranks of %lld devices\n", "", (long long)one->tensor);
	}
}

/* Compares with data parallelism for the same number of samples in an update. */
static void explain_data_parallel(const struct pd_plan *plan, FILE *out)
{
	const struct pd_prediction *predicted = &plan->predicted;
	long long ranks = pd_data_parallel_ranks(plan), all = plan->topology.devices;
	char time[32], bytes[32];

	if (pd_plan_is_data_parallel(plan)) {
		fputs("this plan is data parallelism on all devices\n", out);
		return;
	}
	if (predicted->data_parallel_period_ns == 0)
		return;
	if (ranks < all)
		fprintf(out, "data parallelism on %lld of %lld devices, one for each microbatch", ranks, all);
	else
		fputs("data parallelism on all devices", out);
	fprintf(out, ": %s per %s, %s on each%s; this plan is %.2f times as fast\n",
		pd_show_time(predicted->data_parallel_period_ns, time), pd_plan_unit(plan),
		pd_show_device_bytes(plan, predicted->data_parallel_memory_bytes, bytes),
		pd_data_parallel_fits(plan) ? "" : ", which does not fit", predicted->speedup_over_data_parallel);
}

void pd_plan_explain(const struct pd_plan *plan, FILE *out)
{
	const struct pd_prediction *predicted = &plan->predicted;
	struct pd_usage *usage = pd_usage_new(plan);
	char time[32];

	if (!usage)             /* a plan of the planner has a schedule */
		pd_bug("explain: a plan that has no schedule");
	explain_head(plan, out);
	explain_stages(usage, out);
	explain_times(usage, out);
	explain_memory(usage, out);
	explain_links(usage, out);
	fputs("limit: ", out);
	pd_usage_put_limit(usage, out);
	fputc('\n', out);
	fprintf(out, "bound: no plan takes less than %s: ",
		pd_show_time(predicted->lower_bound_ns, time));
	if (predicted->period_from == PD_PERIOD_ESTIMATE)
		fprintf(out, "the period is an estimate, so what could be gained is not known\n");
	else
		fprintf(out, "at most %.1f%% could be gained\n", 100 * predicted->gap);
	if (predicted->ended_early)
		fputs("search: it ended early, its effort being spent (--effort), with the best so far\n", out);
	explain_data_parallel(plan, out);
	if (usage->report)
		pd_report_print_sums(usage->report, NULL, out);
	explain_schedules(plan, out);
	if (predicted->reducers[PD_REDUCER_dense].period_ns > 0 && pd_sums_of(plan) > 0)
		explain_reducers(plan, out);
	if ((plan->bucket_bytes > 0 || predicted->any_bucket) && pd_sums_of(plan) > 0)
		explain_buckets(plan, out);
	explain_alternatives(plan, out);
	pd_usage_free(usage);
}

void pd_groups_explain(const struct pd_group_request *groups, FILE *out)
{
	fprintf(out, "%6s  %7s  %5s  %14s\n", "tensor", "sharded", "ranks", "samples");
	for (int i = 0; i < groups->count; i++) {
		const struct pd_group_choice *one = &groups->choices[i];

		fprintf(out, "%6lld  %7lld", (long long)one->group.tensor, (long long)one->group.sharded);
		if (one->samples_per_s > 0)
			fprintf(out, "  %5d  %12.1f/s%s%s\n", one->ranks, one->samples_per_s,
				one->shards_optimizer ? ", optimizer shared out" : "",
				one->chosen ? "  (taken)" : "");
		else
			fprintf(out, "  none: %s\n", one->why);
	}
	fputc('\n', out);
}

void pd_batch_explain(const struct pd_batch_choice *choices, int count, FILE *out)
{
	fprintf(out, "%10s  %12s  %14s  %14s  %s\n", "microbatch", "microbatches",
		"search", "grid", "width x depth");
	for (int i = 0; i < count; i++) {
		const struct pd_batch_choice *one = &choices[i];
		char search[32] = "none fits", grid[32] = "none fits", shape[48] = "";

		if (one->search_samples_per_s > 0)
			snprintf(search, sizeof(search), "%.1f/s", one->search_samples_per_s);
		if (one->grid_samples_per_s > 0) {
			snprintf(grid, sizeof(grid), "%.1f/s", one->grid_samples_per_s);
			snprintf(shape, sizeof(shape), "%d x %d%s", one->width, one->depth,
				 one->recomputed ? ", recomputed" : "");
		}
		fprintf(out, "%10lld  %12lld  %14s  %14s  %s%s\n", (long long)one->batch_size,
			(long long)one->microbatches, search, grid, shape,
			one->chosen ? "  (taken)" : "");
	}
	fputc('\n', out);
}
