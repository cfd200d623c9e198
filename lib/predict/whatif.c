/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/whatif.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/sort.h"
#include "plan/sparse.h"
#include "topology/contract.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define SLOWEST 1e-6
#define FASTEST 1e6

bool pd_what_if_any(const struct pd_what_if *what)
{
	return what->topology || what->schedule || what->weights || what->microbatches > 0 ||
	       what->bucket_bytes > 0 || what->sparsity >= 0 || what->reducer ||
	       what->gradient_dtype || what->processors > 0 || what->device_speed > 0 || what->faster ||
	       what->pairs > 0;
}

bool pd_what_if_table(const struct pd_what_if *what)
{
	size_t length = what->schedule ? strlen(what->schedule) : 0;

	return length > 4 && strcmp(what->schedule + length - 4, ".csv") == 0;
}

/* Sets a number of `names` to that of the word, where there is one. */
static int apply_name(const char *option, const char *const *names, const char *word, int *number,
		      struct pd_error *err)
{
	int found = word ? pd_names_find(names, word, err) : *number;

	if (found < 0)
		return pd_error_prefix(err, "%s", option);
	*number = found;
	return 0;
}

/* Leaves -1, a time that was not measured. */
static void speed_up(int64_t *time_ns, double factor)
{
	double ns = (double)*time_ns / factor;

	if (*time_ns > 0)
		*time_ns = ns < (double)PD_MAX_TIME_NS ? llround(ns) : PD_MAX_TIME_NS;
}

static void speed_up_layers(struct pd_profile *profile, int first, int count, double factor)
{
	for (int l = first; l < first + count; l++) {
		struct pd_profile_layer *layer = &profile->layers[l];

		speed_up(&layer->forward_ns, factor);
		speed_up(&layer->backward_ns, factor);
		speed_up(&layer->backward_input_ns, factor);
		speed_up(&layer->backward_weight_ns, factor);
		speed_up(&layer->update_ns, factor);
		speed_up(&layer->update_apart_ns, factor);
	}
	for (int k = 0; k < profile->other_count; k++)
		speed_up_layers(profile->others[k], first, count, factor);
}

/* Applies one "LAYER:FACTOR" or "STAGE:FACTOR". */
static int apply_faster(struct pd_plan *plan, char *entry, struct pd_error *err)
{
	char *colon = strrchr(entry, ':');
	char meant[PD_MEANT_TEXT];
	struct pd_error why;
	double factor;
	int64_t stage;
	int layer;

	if (!colon || colon == entry)
		return pd_error_input(err, "--faster: expected LAYER:FACTOR or STAGE:FACTOR, found "
				      "\"%.60s\"", entry);
	if (pd_parse_real(colon + 1, SLOWEST, FASTEST, &factor, &why) < 0)
		return pd_error_input(err, "--faster: %s: %s", entry, why.text);
	*colon = '\0';
	layer = pd_profile_find(plan->profile, entry);
	if (layer >= 0) {
		speed_up_layers(plan->profile, layer, 1, factor);
		return 0;
	}
	if (pd_parse_count(entry, 0, plan->stage_count - 1, &stage, &why) < 0)
		return pd_error_input(err, "--faster: expected the name of a layer or the number of "
				      "a stage from 0 to %d, found \"%.60s\"%s", plan->stage_count - 1,
				      entry, pd_profile_say(plan->profile, entry, meant));
	speed_up_layers(plan->profile, plan->stages[stage].first_layer,
			plan->stages[stage].layer_count, factor);
	return 0;
}

static int apply_all_faster(struct pd_plan *plan, const char *list, struct pd_error *err)
{
	char *copy = pd_strdup(list), *rest = copy, *entry;
	int result = 0;

	while (result == 0 && (entry = strsep(&rest, ",")))
		result = apply_faster(plan, entry, err);
	free(copy);
	return result;
}

static int apply_schedule(const struct pd_what_if *what, struct pd_plan *plan,
			  struct pd_error *err)
{
	int schedule = (int)plan->schedule, weights = (int)plan->weights;

	if (apply_name("--schedule", pd_schedule_kind_name, pd_what_if_table(what) ? NULL : what->schedule,
		       &schedule, err) < 0 ||
	    apply_name("--weights", pd_weight_kind_name, what->weights, &weights, err) < 0)
		return -1;
	plan->schedule = (enum pd_schedule_kind)schedule;
	if (!pd_schedule_has(plan->schedule, PD_FACT_LEADS))
		plan->startup = PD_STARTUP_FRUGAL;
	if (!pd_schedule_has(plan->schedule, PD_FACT_ROUNDS))
		plan->round = 0;
	plan->weights = (enum pd_weight_kind)weights;
	if (what->microbatches)
		plan->microbatches = what->microbatches;
	return 0;
}

/* Changes how replicas sum gradients. */
static int apply_sums(const struct pd_what_if *what, struct pd_plan *plan, struct pd_error *err)
{
	int reducer = (int)plan->reducer;
	int dtype = pd_names_index(pd_dtype_of_nets, pd_dtype_name[plan->gradient_dtype]);

	if (apply_name("--all-reduce", pd_reducer_kind_name, what->reducer, &reducer, err) < 0 ||
	    apply_name("--gradient-dtype", pd_dtype_of_nets, what->gradient_dtype, &dtype, err) < 0)
		return -1;
	plan->reducer = (enum pd_reducer_kind)reducer;
	if (what->bucket_bytes)
		plan->bucket_bytes = what->bucket_bytes;
	plan->gradient_dtype = pd_dtype_find(pd_dtype_of_nets[dtype]);
	if (pd_reducer_check(plan->reducer, plan->gradient_dtype, err) < 0)
		return -1;
	if (what->sparsity < 0)
		return 0;
	plan->sparsity = what->sparsity;
	plan->chunk = what->chunk > 0 ? what->chunk : plan->chunk > 0 ? plan->chunk : PD_CHUNK_USUAL;
	return pd_plan_check_sparse(plan, "--", err);
}

/* Gives a topology that says no kinds of devices those of another with as many. */
static int take_kinds(const struct pd_topology *from, struct pd_topology *to, struct pd_error *err)
{
	if (to->kinds > 0 || to->devices != from->devices)
		return pd_error_input(err, "--topology: the plan has devices of %d kinds: expected as many in its "
				      "\"devices\", or %" PRId64 " devices whose kinds are not said", from->kinds,
				      from->devices);
	to->kinds = from->kinds;
	memcpy(to->kind, from->kind, sizeof(to->kind));
	to->device_runs = from->device_runs;
	memcpy(to->device_run, from->device_run, sizeof(to->device_run));
	return 0;
}

static int apply_topology(const char *name, struct pd_plan *plan, struct pd_error *err)
{
	struct pd_topology topology;

	if (pd_topology_read(name, &topology, err) < 0)
		return -1;
	if (pd_topology_contract(&topology, pd_degrees_devices(&plan->profile->group), true, &topology, err) < 0)
		return pd_error_prefix(err, "--topology");
	if (topology.kinds != plan->topology.kinds && pd_plan_kinds(plan) > 1 &&
	    take_kinds(&plan->topology, &topology, err) < 0)
		return -1;
	for (int k = 0; k < plan->topology.kinds && pd_plan_kinds(plan) > 1; k++)
		if (strcmp(topology.kind[k].name, plan->topology.kind[k].name) != 0)
			return pd_error_input(err, "--topology: expected devices of the plan's kinds, in that order; "
					      "found \"%.90s\" and not \"%.90s\"", topology.kind[k].name,
					      plan->topology.kind[k].name);
	if (pd_plan_kinds(plan) == 1 && pd_topology_mixed(&topology))
		return pd_error_input(err, "--topology: it has devices of %d kinds, and the plan a profile of one",
				      topology.kinds);
	if (topology.devices < plan->rank_count)
		return pd_error_input(err, "--topology: expected at least the %d devices that the "
				      "plan uses, found %" PRId64, plan->rank_count, topology.devices);
	if (!topology.processors)
		topology.processors = plan->topology.processors;
	plan->topology = topology;
	return 0;
}

/* Makes messages about the plan say that it was changed. */
static void rename_plan(const struct pd_what_if *what, struct pd_plan *plan)
{
	char *with = NULL, *document = plan->document;
	size_t bytes;
	FILE *out = pd_what_if_any(what) ? open_memstream(&with, &bytes) : NULL;

	if (!out)
		return;
	pd_what_if_print(what, out);
	fclose(out);
	plan->document = pd_format("%s with %s", pd_plan_name(plan), with);
	free(document);
	free(with);
}

int pd_what_if_apply(const struct pd_what_if *what, struct pd_plan *plan, struct pd_error *err)
{
	if (apply_schedule(what, plan, err) < 0 || apply_sums(what, plan, err) < 0 ||
	    (what->topology && apply_topology(what->topology, plan, err) < 0))
		return -1;
	if (what->device_speed > 0)
		speed_up_layers(plan->profile, 0, plan->profile->layer_count, what->device_speed);
	if (what->pairs > 0)
		pd_profile_set_pairs(plan->profile, what->pairs);
	if (what->faster && apply_all_faster(plan, what->faster, err) < 0)
		return -1;
	rename_plan(what, plan);
	pd_prediction_clear(&plan->predicted);
	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];

		stage->forward_ns = stage->backward_ns = 0;
		stage->allreduce_ns = stage->memory_bytes = 0;
	}
	return 0;
}

/* Prints a part of a list, behind a comma where it is not the first. */
__attribute__((format(printf, 3, 4)))
static void print_part(FILE *out, bool *first, const char *fmt, ...)
{
	va_list ap;

	fputs(*first ? "" : ", ", out);
	*first = false;
	va_start(ap, fmt);
	vfprintf(out, fmt, ap);
	va_end(ap);
}

void pd_what_if_print(const struct pd_what_if *what, FILE *out)
{
	bool first = true;

	if (what->topology)
		print_part(out, &first, "topology %s", what->topology);
	if (what->device_speed > 0)
		print_part(out, &first, "devices %g x as fast", what->device_speed);
	if (what->faster)
		print_part(out, &first, "faster %s", what->faster);
	if (what->schedule)
		print_part(out, &first, "schedule %s", what->schedule);
	if (what->weights)
		print_part(out, &first, "weights %s", what->weights);
	if (what->microbatches)
		print_part(out, &first, "%" PRId64 " microbatches", what->microbatches);
	if (what->reducer)
		print_part(out, &first, "all-reduce %s", what->reducer);
	if (what->gradient_dtype)
		print_part(out, &first, "gradients of %s", what->gradient_dtype);
	if (what->bucket_bytes)
		print_part(out, &first, "buckets above %" PRId64 " bytes", what->bucket_bytes);
	if (what->sparsity >= 0)
		print_part(out, &first, "sparsity %g", what->sparsity);
	if (what->pairs > 0)
		print_part(out, &first, "pairs take %g of their time", what->pairs);
	if (what->processors)
		print_part(out, &first, "%" PRId64 " processor%s", what->processors,
			   what->processors == 1 ? "" : "s");
}

/* The measured times of one kind of operation in one stage. */
struct times {
	size_t count;
	int64_t *ns;
};

/* Returns -1 if there are none. */
static int64_t median(struct times *times)
{
	if (times->count == 0)
		return -1;
	qsort(times->ns, times->count, sizeof(*times->ns), pd_by_value);
	return (times->ns[(times->count - 1) / 2] + times->ns[times->count / 2]) / 2;
}

/* Gives the layers of a stage times that add up to total, in the same proportions as before. */
static void share_out(struct pd_profile *profile, const struct pd_stage *stage, size_t field,
		      int64_t total)
{
	double sum = 0, before = 0;
	int64_t given = 0;

	if (total < 0)
		return;
	for (int l = 0; l < stage->layer_count; l++) {
		char *layer = (char *)&profile->layers[stage->first_layer + l];

		if (*(int64_t *)(layer + field) > 0)
			sum += (double)*(int64_t *)(layer + field);
	}
	for (int l = 0; l < stage->layer_count; l++) {
		char *layer = (char *)&profile->layers[stage->first_layer + l];
		int64_t *ns = (int64_t *)(layer + field);
		bool last = l + 1 == stage->layer_count;
		int64_t upto;

		before += *ns > 0 ? (double)*ns : 0;
		upto = last || sum <= 0 ? total : llround((double)total * (before / sum));
		*ns = upto - given;
		given = upto;
	}
}

/* Scales the parts of a backward that was measured as a whole, if the profile has them. */
static void scale_parts(struct pd_profile *profile, const struct pd_stage *stage, int64_t whole)
{
	double sum = 0;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		sum += (double)profile->layers[l].backward_ns;
	if (sum <= 0 || whole <= 0)
		return;
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		speed_up(&profile->layers[l].backward_input_ns, sum / (double)whole);
		speed_up(&profile->layers[l].backward_weight_ns, sum / (double)whole);
	}
}

static void set_stage(struct pd_profile *profile, const struct pd_stage *stage,
		      struct times times[PD_OP_KINDS])
{
	int64_t whole = median(&times[PD_OP_backward]);
	int64_t input = median(&times[PD_OP_backward_input]);
	int64_t weight = median(&times[PD_OP_backward_weight]);

	share_out(profile, stage, offsetof(struct pd_profile_layer, forward_ns),
		  median(&times[PD_OP_forward]));
	share_out(profile, stage, offsetof(struct pd_profile_layer, update_ns),
		  median(&times[PD_OP_step]));
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		profile->layers[l].update_apart_ns = -1;        /* not measured */
	if (whole < 0 && input >= 0 && weight >= 0) {
		whole = input + weight;
		share_out(profile, stage, offsetof(struct pd_profile_layer, backward_input_ns),
			  input);
		share_out(profile, stage, offsetof(struct pd_profile_layer, backward_weight_ns),
			  weight);
	} else {
		scale_parts(profile, stage, whole);
	}
	share_out(profile, stage, offsetof(struct pd_profile_layer, backward_ns), whole);
}

static void measure(const struct pd_trace *trace, struct pd_plan *plan)
{
	const struct pd_topology *topology = &plan->topology;
	/* by kind of device, stage and kind of operation */
	size_t cells = (size_t)pd_plan_kinds(plan) * (size_t)plan->stage_count * PD_OP_KINDS, used = 0;
	struct times *times = pd_calloc(cells, sizeof(*times));
	int64_t *all = pd_calloc(trace->count, sizeof(*all));
	/* per rank: a backward in parts, as far as it has come */
	int64_t *parts = pd_calloc((size_t)plan->rank_count, sizeof(*parts));

	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < trace->count; i++) {
			const struct pd_record *record = &trace->records[i];
			int device = pd_topology_kind_of(topology, record->op.rank);
			struct times *here = &times[((size_t)device * (size_t)plan->stage_count +
						     (size_t)record->op.stage) * PD_OP_KINDS +
						    record->op.kind];
			int64_t *part = &parts[record->op.rank];
			int64_t ns = record->end_ns - record->start_ns;

			if (record->op.evaluate || record->op.kind == PD_OP_allreduce)
				continue;
			if (record->op.bucket > 0) {
				*part = ns += record->op.bucket > 1 ? *part : 0;
				if (record->op.more)
					continue;
			}
			if (pass == 1)
				here->ns[here->count] = ns;
			here->count++;
		}
		for (size_t c = 0; c < cells && pass == 0; c++) {
			times[c].ns = all + used;
			used += times[c].count;
			times[c].count = 0;
		}
	}
	for (int k = 0; k < pd_plan_kinds(plan); k++)
		for (int s = 0; s < plan->stage_count; s++)
			set_stage(k > 0 ? plan->profile->others[k - 1] : plan->profile, &plan->stages[s],
				  &times[((size_t)k * (size_t)plan->stage_count + (size_t)s) * PD_OP_KINDS]);
	free(times);
	free(parts);
	free(all);
}

struct pd_plan *pd_plan_measured(const struct pd_trace *trace, struct pd_error *err)
{
	json_t *json = pd_plan_json(trace->plan);
	struct pd_place place = pd_place_root(pd_plan_name(trace->plan), json);
	struct pd_plan *plan = pd_plan_parse_at(&place, err);

	json_decref(json);
	if (!plan)
		return NULL;
	measure(trace, plan);
	/* how far the profile's times may be off says nothing of these */
	plan->profile->rounds = (struct pd_rounds){ 0 };
	plan->profile->estimated_spread = 0;
	return plan;
}
