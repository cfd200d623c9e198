/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in words and columns. */
#include "planner/planner.h"

#include "base/mem.h"
#include "base/opt.h"
#include "planner/predict.h"

#include <stdlib.h>
#include <string.h>

/* "0-2,4" for ranks, runs joined; cut short with "..." */
static const char *show_ranks(const struct pd_stage *stage, char *buf, size_t room)
{
	size_t used = 0;

	buf[0] = '\0';
	for (int i = 0, end; i < stage->replicas; i = end + 1) {
		char run[32];

		for (end = i; end + 1 < stage->replicas &&
		     stage->ranks[end + 1] == stage->ranks[end] + 1;)
			end++;
		snprintf(run, sizeof(run), end > i ? "%s%d-%d" : "%s%d", i ? "," : "",
			 stage->ranks[i], stage->ranks[end]);
		if (used + strlen(run) + 4 > room) {
			strcpy(buf + used, "...");
			break;
		}
		strcpy(buf + used, run);
		used += strlen(run);
	}
	return buf;
}

static void stage_line(const struct pd_plan *plan, int s, FILE *out)
{
	const struct pd_stage *stage = &plan->stages[s];
	const struct pd_profile_layer *layers = plan->profile->layers;
	char ranks[24], span[128], forward[32], backward[32], reduce[32], memory[32], busy[32];

	snprintf(span, sizeof(span), "%.20s%s%.20s", layers[stage->first_layer].name,
		 stage->layer_count > 1 ? " to " : "",
		 stage->layer_count > 1
		 ? layers[stage->first_layer + stage->layer_count - 1].name : "");
	fprintf(out, "%5d  %6d  %8d  %-20s  %6d  %10s  %10s  %10s  %10s  %10s  %s\n", s,
		stage->layer_count, stage->replicas,
		show_ranks(stage, ranks, sizeof(ranks)), stage->warmup,
		pd_show_time(stage->forward_ns, forward),
		pd_show_time(stage->backward_ns, backward),
		pd_show_time(stage->allreduce_ns, reduce),
		pd_show_time(pd_predict_busy_ns(plan, s), busy),
		pd_show_bytes(stage->memory_bytes, memory), span);
}

/* The stage or link that is busy longest, and how much of the period that is. */
static void limit_line(const struct pd_plan *plan, FILE *out)
{
	int64_t *in = pd_calloc((size_t)plan->stage_count, sizeof(*in));
	int64_t *traffic = pd_calloc((size_t)plan->stage_count, sizeof(*traffic));
	int64_t most = -1, period = plan->predicted.period_ns;
	char time[32];
	bool link = false;
	int at = 0;

	pd_predict_traffic(plan, in, traffic);
	for (int s = 0; s < plan->stage_count; s++) {
		int64_t busy = pd_predict_busy_ns(plan, s);
		int64_t wire = pd_predict_link_ns(plan, s, in[s] + traffic[s]);

		if (busy > most || wire > most) {
			at = s;
			link = wire > busy;
			most = link ? wire : busy;
		}
	}
	fprintf(out, "limit: %s stage %d, busy for %s per minibatch (%.0f%% of the period)%s\n",
		link ? "the links of" : "the processors of", at, pd_show_time(most, time),
		period > 0 ? 100 * (double)most / (double)period : 0.0,
		most < period ? "; the rest is waiting for transfers and neighbours" :
		most > period ? "; the formula of the chosen cost counts less" : "");
	free(in);
	free(traffic);
}

void pd_plan_explain(const struct pd_plan *plan, FILE *out)
{
	const struct pd_prediction *predicted = &plan->predicted;
	char a[32], b[32];

	fprintf(out, "%5s  %6s  %8s  %-20s  %6s  %10s  %10s  %10s  %10s  %10s  %s\n", "stage",
		"layers", "replicas", "ranks", "warmup", "forward", "backward", "all-reduce",
		"per batch", "memory", "which");
	for (int s = 0; s < plan->stage_count; s++)
		stage_line(plan, s, out);
	fprintf(out, "period: %s per minibatch of %lld samples, %.1f samples/s, on %d of %lld "
		"devices, at most %s on one\n", pd_show_time(predicted->period_ns, a),
		(long long)plan->profile->batch_size, predicted->samples_per_s, plan->rank_count,
		(long long)plan->topology.devices, pd_show_bytes(predicted->memory_bytes, b));
	limit_line(plan, out);
	fprintf(out, "bound: no plan takes less than %s: at most %.1f%% could be gained\n",
		pd_show_time(predicted->lower_bound_ns, a), 100 * predicted->gap);
	fprintf(out, "data parallelism on all devices: %s per minibatch, %s on each; this plan is "
		"%.2f times as fast\n", pd_show_time(predicted->data_parallel_period_ns, a),
		pd_show_bytes(predicted->data_parallel_memory_bytes, b),
		predicted->speedup_over_data_parallel);
}
