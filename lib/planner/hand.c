/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans without a search: by hand, and by a published formula.
 */
#include "planner/answers.h"

#include "base/mem.h"
#include "base/opt.h"
#include "planner/formula/published.h"
#include "planner/search/candidate.h"
#include "planner/search/recompute.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Parses "8x1" or "8", in place. */
static int parse_stage(char *text, int at, int64_t *layers_p, int64_t *replicas_p,
		       struct pd_error *err)
{
	char *times = strchr(text, 'x');

	*replicas_p = 1;
	if (times)
		*times++ = '\0';
	if (pd_parse_count(text, 1, INT32_MAX, layers_p, err) < 0)
		return pd_error_prefix(err, "--stages: layers of stage %d", at);
	if (times && pd_parse_count(times, 1, PD_MAX_RANKS, replicas_p, err) < 0)
		return pd_error_prefix(err, "--stages: replicas of stage %d", at);
	return 0;
}

static int parse_list(struct pd_partition *partition, char *text, struct pd_error *err)
{
	char *next;

	for (int s = 0; text; s++, text = next) {
		int64_t layers, replicas;

		next = strchr(text, ',');
		if (next)
			*next++ = '\0';
		if (parse_stage(text, s, &layers, &replicas, err) < 0)
			return -1;
		partition->layers[s] = (int)layers;
		partition->replicas[s] = (int)replicas;
		partition->stage_count = s + 1;
	}
	return 0;
}

static int check(const struct pd_partition *partition, const struct pd_costs *costs,
		 enum pd_weight_kind weights, int64_t devices, struct pd_error *err)
{
	const struct pd_profile *profile = costs->profile;
	int64_t layers = 0, ranks = 0;

	for (int s = 0; s < partition->stage_count; s++) {
		layers += partition->layers[s];
		ranks += partition->replicas[s];
	}
	if (layers != profile->layer_count)
		return pd_error_input(err, "--stages: the stages have %" PRId64 " layers, %" PRId64
				      " %s than the %d of profile \"%.60s\"", layers,
				      layers > profile->layer_count
				      ? layers - profile->layer_count
				      : profile->layer_count - layers,
				      layers > profile->layer_count ? "more" : "fewer",
				      profile->layer_count, profile->name);
	if (ranks > devices)
		return pd_error_input(err, "--stages: the stages take %" PRId64 " ranks, but the "
				      "topology has %" PRId64 " devices", ranks, devices);
	layers = 0;
	for (int s = 0; s + 1 < partition->stage_count && !pd_weights_copy_shared(weights); s++) {
		layers += partition->layers[s];
		if (costs->first[pd_costs_unit(costs, (int)layers)] != layers)
			return pd_error_input(err, "--stages: a cut before layer \"%.60s\" would "
					      "separate layers that share parameters: expected "
					      "--weights=2bw or flush",
					      profile->layers[layers].name);
	}
	return 0;
}

struct pd_partition *pd_fixed_partition(const struct pd_costs *costs, const char *list,
					enum pd_weight_kind weights, int64_t devices,
					struct pd_error *err)
{
	/* as many stages as it can name */
	struct pd_partition *partition = pd_partition_new((int)strlen(list) + 1);
	char *text = pd_strdup(list);
	int status;

	status = parse_list(partition, text, err);
	free(text);
	if (status == 0 && check(partition, costs, weights, devices, err) == 0)
		return partition;
	pd_partition_free(partition);
	return NULL;
}

/* Plans with the only partition; frees it. */
static struct pd_plan *take_only(const struct pd_task *task, struct pd_partition *partition,
				 const char *what, int64_t *time_ns_p, struct pd_error *err)
{
	struct pd_plan *plan = pd_candidate_plan(task, partition, err);
	int status = -1;

	pd_partition_free(partition);
	if (!plan)
		return NULL;
	if (pd_candidate_weigh(plan, err)) {
		if (!pd_candidate_keeps(plan, task->limit_bytes) &&
		    !(pd_recompute_free(task->request) &&
		      pd_recompute_fit(plan, task->request, task->limit_bytes)))
			status = pd_none_hand(task, plan, what, err);
		else
			status = pd_task_period(task, plan, time_ns_p, &plan->predicted.period_from, err);
	}
	if (status == 0)
		return plan;
	pd_candidate_drop(plan);
	return NULL;
}

struct pd_plan *pd_formula_plan(struct pd_task *task, int64_t *time_ns_p, struct pd_error *err)
{
	struct pd_partition *partition = pd_published_partition(task->profile, task->request, err);

	if (!partition)
		return NULL;
	pd_costs_release(&task->costs);
	pd_costs_init(&task->costs, task->profile, false);
	return take_only(task, partition,
			 "--cost: it takes no notice of memory, and its plan needs", time_ns_p,
			 err);
}

struct pd_partition *pd_hand_partition(const struct pd_task *task, struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;
	struct pd_partition *partition =
		pd_fixed_partition(&task->costs, request->stages, request->weights,
				   pd_task_stages(task, task->topology->devices), err);
	int status = 0;

	if (!partition)
		return NULL;
	if (request->chunks && partition->stage_count % request->chunks != 0)
		status = pd_error_input(err, "--stages: expected a multiple of the %d chunks of each"
					" rank, found %d stages", request->chunks,
					partition->stage_count);
	for (int s = 0; status == 0 && s < partition->stage_count; s++)
		if (partition->replicas[s] > 1 && request->straight)
			status = pd_error_input(err, "--stages: stage %d has %d replicas, but --straight allows one", s,
						partition->replicas[s]);
	if (status == 0)
		return partition;
	pd_partition_free(partition);
	return NULL;
}

struct pd_plan *pd_hand_plan(const struct pd_task *task, int64_t *time_ns_p, struct pd_error *err)
{
	struct pd_partition *partition = pd_hand_partition(task, err);
	const char *need = task->request->stages_need;

	if (!need)
		need = "--stages: this plan needs";
	return partition ? take_only(task, partition, need, time_ns_p, err) : NULL;
}
