/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what a user asks for. */
#include "planner/planner.h"

#include "base/mem.h"
#include "base/opt.h"
#include "plan/sparse.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static const char *const recompute_kind_names[] = {
#define RECOMPUTE_KIND(symbol, name, what) name,
#include "planner/search/recompute_kind.def"
#undef RECOMPUTE_KIND
	NULL
};

/* Returns the number of a name, or -1; sets a list of all. */
static int find_name(const char *const *names, const char *text, char known[128])
{
	int found = -1;

	known[0] = '\0';
	for (int i = 0; names[i]; i++) {
		if (strcmp(text, names[i]) == 0)
			found = i;
		strcat(strcat(known, i ? ", " : ""), names[i]);
	}
	return found;
}

static int choice(const char *option, const char *name, const char *const *names, int *out_p,
		  struct pd_error *err)
{
	char known[128];

	*out_p = find_name(names, name, known);
	return *out_p >= 0 ? 0 : pd_error_input(err, "--%s: expected one of %s, auto, found \"%.60s\"",
						option, known, name);
}

/* Returns a schedule's usual weights. */
static enum pd_weight_kind usual_weights(enum pd_schedule_kind schedule)
{
	switch (schedule) {
	case PD_SCHEDULE_1F1B:
		return PD_WEIGHTS_STASH;
	case PD_SCHEDULE_NF1B:
		return PD_WEIGHTS_VERTICAL_SYNC;
	default:
		return PD_WEIGHTS_FLUSH;
	}
}

int pd_planner_policy(const char *schedule, const char *weights,
		      struct pd_plan_request *request, struct pd_error *err)
{
	int kind = PD_SCHEDULE_1F1B;

	request->any_schedule = schedule && strcmp(schedule, "auto") == 0;
	request->any_weights = weights && strcmp(weights, "auto") == 0;
	if (request->any_schedule)
		schedule = NULL;
	if (request->any_weights)
		weights = NULL;
	if (schedule && choice("schedule", schedule, pd_schedule_kind_name, &kind, err) < 0)
		return -1;
	request->schedule = (enum pd_schedule_kind)kind;
	kind = (int)usual_weights(request->schedule);
	if (weights && choice("weights", weights, pd_weight_kind_name, &kind, err) < 0)
		return -1;
	request->weights = (enum pd_weight_kind)kind;
	if (request->any_schedule && !weights && !request->any_weights)
		request->any_weights = true;
	if (request->chunks && request->schedule != PD_SCHEDULE_INTERLEAVED &&
	    !request->any_schedule)
		return pd_error_input(err, "--chunks: only schedule \"interleaved\" has chunks, found "
				      "\"%s\"", pd_schedule_kind_name[request->schedule]);
	if (request->schedule == PD_SCHEDULE_INTERLEAVED && !request->chunks)
		request->chunks = PD_PLANNER_CHUNKS;
	if (request->startup != PD_STARTUP_FRUGAL && request->schedule != PD_SCHEDULE_1F1B)
		return pd_error_input(err, "--eager: only schedule \"1f1b\" has a start-up of its own, "
				      "found \"%s\"", pd_schedule_kind_name[request->schedule]);
	if (request->agree && !request->any_weights && request->weights != PD_WEIGHTS_2BW &&
	    request->weights != PD_WEIGHTS_FLUSH)
		return pd_error_input(err, "--agree: expected weights \"2bw\" or \"flush\", with which "
				      "all stages can wait for each other before an update, found "
				      "\"%s\"", pd_weight_kind_name[request->weights]);
	if (request->cost != PD_COST_SIMULATED &&
	    (request->recompute == PD_RECOMPUTE_ALL || request->recomputed))
		return pd_error_input(err, "--recompute: --cost=%s prices no recomputation",
				      pd_cost_kind_name[request->cost]);
	if (request->cost != PD_COST_SIMULATED &&
	    (!pd_planner_plain(request) || request->startup != PD_STARTUP_FRUGAL ||
	     request->any_schedule || request->any_weights))
		return pd_error_input(err, "--cost: \"%s\" prices schedule 1f1b with weights stash and"
				      " an update per minibatch of each replica, no other",
				      pd_cost_kind_name[request->cost]);
	return 0;
}

int pd_planner_all_reduce(const char *text, struct pd_plan_request *request, struct pd_error *err)
{
	char known[128];
	int kind;

	if (!text)
		return 0;
	request->any_reducer = strcmp(text, "auto") == 0;
	if (request->any_reducer)
		return 0;
	kind = find_name(pd_reducer_kind_name, text, known);
	if (kind < 0)
		return pd_error_input(err, "--all-reduce: expected one of auto, %s, found "
				      "\"%.60s\"", known, text);
	request->reducer = (enum pd_reducer_kind)kind;
	return pd_reducer_check(request->reducer, request->gradient_dtype, err);
}

int pd_planner_sparse(struct pd_plan_request *request, struct pd_error *err)
{
	if (request->sparsity < 0 && (request->chunk > 0 || request->sparsity_warmup > 0))
		return pd_error_input(err, "--%s: expected it with --sparsity",
				      request->chunk > 0 ? "chunk" : "sparsity-warmup");
	if (request->sparsity >= 0 && request->chunk == 0)
		request->chunk = PD_CHUNK_USUAL;
	if (request->sparsity < 0)
		request->sparsity = 0;
	return 0;
}

int pd_planner_bucket(const char *text, struct pd_plan_request *request, struct pd_error *err)
{
	struct pd_error wrong;

	if (!text)
		return 0;
	if (strcmp(text, "auto") == 0) {
		request->any_bucket = true;
		return 0;
	}
	if (pd_parse_bytes(text, &request->bucket_bytes, &wrong) == 0 && request->bucket_bytes > 0)
		return 0;
	return pd_error_input(err, "--bucket: expected \"auto\" or a number of bytes such as 25MB, "
			      "found \"%.60s\"", text);
}

bool pd_planner_agrees(const struct pd_plan_request *request, const struct pd_profile *profile,
		       enum pd_weight_kind weights)
{
	return (request->agree || profile->dtype == PD_F16) &&
	       (weights == PD_WEIGHTS_2BW || weights == PD_WEIGHTS_FLUSH);
}

bool pd_planner_plain(const struct pd_plan_request *request)
{
	return request->schedule == PD_SCHEDULE_1F1B && request->weights == PD_WEIGHTS_STASH &&
	       request->microbatches <= 1;
}

int64_t pd_planner_microbatches(const struct pd_plan *plan)
{
	int64_t unit = 1;

	if (plan->weights != PD_WEIGHTS_FLUSH && plan->weights != PD_WEIGHTS_2BW &&
	    plan->schedule != PD_SCHEDULE_NF1B)
		return 1;
	for (int s = 0; s < plan->stage_count; s++) {
		int64_t r = plan->stages[s].replicas;

		unit *= r / pd_gcd(unit, r);
		if (unit > PD_MAX_EXTENT)       /* too many: the schedule reports what it needs */
			return plan->rank_count;
	}
	return (plan->rank_count + unit - 1) / unit * unit;
}

int pd_planner_topology(const struct pd_profile *profile, int64_t gpus, const char *topology,
			struct pd_topology *out_p, struct pd_error *err)
{
	int64_t bandwidth = profile->link_bandwidth_bytes_per_s;

	if (topology && gpus)
		return pd_error_input(err, "--gpus and --topology both say how many devices there "
				      "are: give one of them");
	if (topology)
		return pd_topology_read(topology, out_p, err);
	if (!gpus)
		return pd_error_input(err, "nothing says how many devices there are: give --gpus=N "
				      "or --topology");
	if (gpus > 1 && !bandwidth)
		return pd_error_input(err, "profile \"%.60s\" has no measured link: give "
				      "--topology, such as --topology=%" PRId64 "@10Gbit/s",
				      profile->name, gpus);
	/* A single device sends nothing, so any bandwidth will do. */
	if (pd_topology_flat(gpus, bandwidth ? bandwidth : 1, profile->link_latency_ns, out_p, err) < 0)
		return -1;
	out_p->level[0].shared_memory = profile->in_step.sum_bytes_per_s > 0;
	return 0;
}

int pd_planner_recompute(const char *text, struct pd_plan_request *request, struct pd_error *err)
{
	char known[128];
	int kind = find_name(recompute_kind_names, text, known);
	bool numbers = isdigit((unsigned char)*text);

	if (kind >= 0) {
		request->recompute = (enum pd_recompute_kind)kind;
		return 0;
	}
	for (const char *c = text; *c; c++)
		numbers = numbers && (isdigit((unsigned char)*c) ||
				      (*c == ',' && isdigit((unsigned char)c[1])));
	if (!numbers)
		return pd_error_input(err, "--recompute: expected one of %s, or numbers of "
				      "stages such as 0,2, found \"%.60s\"", known, text);
	if (!request->stages)
		return pd_error_input(err, "--recompute: numbers of stages, such as \"%.60s\", go with "
				      "--stages", text);
	request->recomputed = text;
	return 0;
}
