/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/trace.h"

#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>

#define ANY_BYTES_PER_S 1000000000000

static struct pd_profile *make_profile(struct pd_kineto_run *run, struct pd_error *err)
{
	json_t *document = json_pack("{ss si ss si ss s{ss ss} sI so}", "format", "pd-profile", "version", 1, "name",
				     "torch.profiler", "batch_size", 1, "dtype", pd_dtype_name[run->dtype], "device",
				     "kind", run->gpu ? "cuda" : "cpu", "name", "torch.profiler", "step_ns",
				     run->step_ns, "layers", run->layers);
	struct pd_place root = pd_place_root(run->file, document);
	struct pd_profile *profile = pd_profile_parse_at(&root, err);

	json_decref(document);
	return profile;
}

static struct pd_plan *make_plan(struct pd_kineto_run *run, struct pd_error *err)
{
	struct pd_profile *profile = make_profile(run, err);
	int *ones = pd_calloc((size_t)run->stage_count, sizeof(*ones));
	struct pd_topology each, topology;      /* of a device for each stage; of the ranks */
	struct pd_plan *plan = NULL;

	for (int s = 0; s < run->stage_count; s++)
		ones[s] = 1;
	if (profile && pd_topology_flat(run->stage_count, ANY_BYTES_PER_S, 0, &each, err) == 0 &&
	    pd_topology_flat(run->rank_count, ANY_BYTES_PER_S, 0, &topology, err) == 0)
		plan = pd_plan_new(profile, &each, run->stage_count, run->layer_counts, ones, err);
	else
		pd_profile_free(profile);
	free(ones);
	if (!plan)
		return NULL;
	plan->topology = topology;
	plan->schedule = run->stage_count > run->rank_count ? PD_SCHEDULE_INTERLEAVED : PD_SCHEDULE_1F1B;
	plan->weights = PD_WEIGHTS_FLUSH;
	plan->microbatches = run->microbatches;
	plan->rank_count = run->rank_count;
	for (int s = 0; s < run->stage_count; s++)
		plan->stages[s].ranks[0] = run->rank_of[s];
	return plan;
}

struct pd_trace *pd_kineto_trace(struct pd_kineto_run *run, struct pd_error *err)
{
	struct pd_plan *plan = make_plan(run, err);
	int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
	struct pd_trace *trace;

	if (!plan)
		return NULL;
	trace = pd_trace_new(plan, run->gpu ? "cuda" : "cpu", 0);
	for (size_t i = 0; i < run->record_count; i++) {
		first_ns = run->records[i].start_ns < first_ns ? run->records[i].start_ns : first_ns;
		last_ns = run->records[i].end_ns > last_ns ? run->records[i].end_ns : last_ns;
	}
	if (run->record_count > 0 && last_ns - first_ns > PD_MAX_TIME_NS) {
		pd_trace_free(trace);
		pd_error_input(err, "%s: from first to last it takes more than a hundred days: expected times of one clock",
			       run->file);
		return NULL;
	}
	for (size_t i = 0; i < run->record_count; i++) {
		run->records[i].start_ns -= first_ns;
		run->records[i].end_ns -= first_ns;
		pd_trace_add(trace, &run->records[i]);
	}
	pd_trace_sort(trace);
	return trace;
}
