/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/prediction.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const pd_alternative_kind_name[PD_ALTERNATIVE_KINDS + 1] = {
#define ALTERNATIVE_KIND(symbol, name, what) name,
#include "plan/alternative_kind.def"
#undef ALTERNATIVE_KIND
	NULL
};

/* From PD_PERIOD_REPLAY on. */
const char *const pd_period_kind_name[PD_PERIOD_KINDS] = {
#define PERIOD_KIND(symbol, name, what) name,
#include "plan/period_kind.def"
#undef PERIOD_KIND
	NULL
};

void pd_prediction_clear(struct pd_prediction *predicted)
{
	for (int i = 0; i < predicted->alternative_count; i++) {
		free(predicted->alternatives[i].stages);
		free(predicted->alternatives[i].recompute);
	}
	free(predicted->alternatives);
	*predicted = (struct pd_prediction){ 0 };
}

char *pd_plan_stages_text(const struct pd_plan *plan)
{
	size_t room = (size_t)plan->stage_count * 24 + 1, used = 0;
	char *text = pd_calloc(room, 1);

	for (int s = 0; s < plan->stage_count; s++)
		used += (size_t)snprintf(text + used, room - used, "%s%dx%d", s ? "," : "",
					 plan->stages[s].layer_count, plan->stages[s].replicas);
	return text;
}

char *pd_plan_recomputed_text(const struct pd_plan *plan)
{
	size_t room = (size_t)plan->stage_count * 12 + 1, used = 0;
	char *text = pd_calloc(room, 1);

	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].recompute)
			used += (size_t)snprintf(text + used, room - used, "%s%d", used ? "," : "",
						 s);
	if (used)
		return text;
	free(text);
	return NULL;
}

static int read_alternatives(const struct pd_place *list, void *member, struct pd_error *err);
static json_t *alternatives_json(const void *member);

/* Reads the range of the period: two times, the shorter first. */
static int read_range(const struct pd_place *range, void *member, struct pd_error *err)
{
	struct pd_place low = pd_place_index(range, 0), high = pd_place_index(range, 1);
	struct pd_prediction *out = member;
	size_t count;

	if (pd_json_array(range, &count, err) < 0)
		return -1;
	if (count != 2)
		return pd_place_expected(range, err, "two times, the shorter first");
	if (pd_json_int(&low, 0, INT64_MAX, &out->period_low_ns, err) < 0)
		return -1;
	return pd_json_int(&high, out->period_low_ns, INT64_MAX, &out->period_high_ns, err);
}

static json_t *range_json(const void *member)
{
	const struct pd_prediction *predicted = member;

	return predicted->period_high_ns > 0 ? json_pack("[I, I]", predicted->period_low_ns, predicted->period_high_ns)
					     : NULL;
}

/* The gap of an estimate is null. */
static int read_gap(const struct pd_place *place, void *member, struct pd_error *err)
{
	struct pd_prediction *out = member;

	return json_is_null(place->value) ? 0 : pd_json_real(place, -HUGE_VAL, 1, &out->gap, err);
}

static json_t *gap_json(const void *member)
{
	const struct pd_prediction *predicted = member;

	return predicted->period_from == PD_PERIOD_ESTIMATE ? json_null()
		: json_real(isfinite(predicted->gap) ? predicted->gap : 0);
}

static int read_order_from(const struct pd_place *place, void *member, struct pd_error *err)
{
	struct pd_prediction *out = member;
	const char *name;

	if (pd_json_string(place, &name, err) < 0)
		return -1;
	snprintf(out->order_from, sizeof(out->order_from), "%s", name);
	return 0;
}

static json_t *order_from_json(const void *member)
{
	const struct pd_prediction *predicted = member;

	return *predicted->order_from ? json_string(predicted->order_from) : NULL;
}

#define ONE(member) PD_MEMBER(struct pd_alternative, member)
#define IN(member) PD_MEMBER(struct pd_prediction, member)
#define FIGURE PD_ROW_INT, .always = true
#define REAL PD_ROW_REAL, .always = true
#define PERIOD_FROM PD_ROW_CHOICE, .names = pd_period_kind_name, .least = PD_PERIOD_REPLAY

static const struct pd_key_row alternative_rows[] = {
	{ "name", PD_ROW_CHOICE, .needed = true, ONE(kind), .names = pd_alternative_kind_name },
	{ "stages", PD_ROW_TEXT, .needed = true, ONE(stages) },
	{ "recompute", PD_ROW_TEXT, ONE(recompute) },
	{ "schedule", PD_ROW_CHOICE, .needed = true, ONE(schedule), .names = pd_schedule_kind_name },
	{ "weights", PD_ROW_CHOICE, .needed = true, ONE(weights), .names = pd_weight_kind_name },
	{ "microbatches", FIGURE, ONE(microbatches), .least = 1, .most = PD_MAX_EXTENT, .otherwise = 1 },
	{ "ranks", FIGURE, ONE(ranks), .least = 1, .most = PD_MAX_RANKS },
	{ "tensor", PD_ROW_INT, ONE(tensor), .least = 1, .most = PD_MOST_GROUP },
	{ "period_ns", FIGURE, ONE(period_ns) },
	{ "period_from", PERIOD_FROM, ONE(period_from) },
	{ "memory_bytes", FIGURE, ONE(memory_bytes) },
	{ "sent_bytes_per_sample", REAL, ONE(sent_bytes_per_sample) },
	{ "fits", PD_ROW_BOOL, .always = true, ONE(fits) },
	{ NULL }
};

static const struct pd_key_row data_parallel_rows[] = {
	{ "period_ns", FIGURE, IN(data_parallel_period_ns) },
	{ "period_from", PERIOD_FROM, IN(data_parallel_from) },
	{ "memory_bytes", FIGURE, IN(data_parallel_memory_bytes) },
	{ NULL }
};

const struct pd_key_row pd_prediction_rows[] = {
	{ "period_ns", FIGURE, IN(period_ns) },
	{ "period_from", PERIOD_FROM, IN(period_from) },
	{ "samples_per_s", REAL, IN(samples_per_s) },
	{ "global_batch", PD_ROW_INT, IN(step.global_batch), .least = 1, .most = INT64_MAX },
	{ "step_ns", PD_ROW_INT, IN(step.ns), .least = 1, .most = INT64_MAX },
	{ "tokens_per_s", PD_ROW_REAL, IN(step.tokens_per_s) },
	{ "device_flops_per_s", PD_ROW_REAL, IN(step.device_flops_per_s) },
	{ "mfu", PD_ROW_REAL, IN(step.mfu) },
	{ "more_devices", PD_ROW_INT, IN(more.devices), .least = 1, .most = PD_MAX_EXTENT },
	{ "more_devices_samples_per_s", PD_ROW_REAL, IN(more.samples_per_s) },
	{ "memory_bytes", FIGURE, IN(memory_bytes) },
	{ "sent_bytes_per_sample", REAL, IN(sent_bytes_per_sample) },
	{ "lower_bound_ns", FIGURE, IN(lower_bound_ns) },
	{ "gap", PD_ROW_BY, .read = read_gap, .write = gap_json },
	{ "data_parallel", PD_ROW_OBJECT, .always = true, .rows = data_parallel_rows },
	{ "speedup_over_data_parallel", REAL, IN(speedup_over_data_parallel) },
	{ "order_from", PD_ROW_BY, .read = read_order_from, .write = order_from_json },
	{ "ended_early", PD_ROW_BOOL, IN(ended_early) },
	{ "period_range_ns", PD_ROW_BY, .read = read_range, .write = range_json },
	{ "alternatives", PD_ROW_BY, .rows = alternative_rows, .read = read_alternatives,
	  .write = alternatives_json },
	{ NULL }
};

static int read_alternatives(const struct pd_place *list, void *member, struct pd_error *err)
{
	struct pd_prediction *out = member;
	size_t count;

	if (pd_json_array(list, &count, err) < 0)
		return -1;
	if (count > PD_ALTERNATIVE_KINDS)
		return pd_place_expected(list, err, "at most %d alternatives",
					 PD_ALTERNATIVE_KINDS);
	out->alternatives = pd_calloc(count, sizeof(*out->alternatives));
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(list, i);
		struct pd_alternative *one = &out->alternatives[i];

		out->alternative_count = (int)i + 1;
		if (pd_rows_read(&at, alternative_rows, one, err) < 0)
			return -1;
		for (size_t k = 0; k < i; k++)
			if (out->alternatives[k].kind == one->kind)
				return pd_place_error(&at, err, "alternative \"%s\" is there twice",
						      pd_alternative_kind_name[one->kind]);
	}
	return 0;
}

static json_t *alternatives_json(const void *member)
{
	const struct pd_prediction *predicted = member;
	json_t *list = predicted->alternative_count > 0 ? json_array() : NULL;

	for (int i = 0; i < predicted->alternative_count; i++)
		pd_json_add(list, pd_rows_json(alternative_rows, &predicted->alternatives[i]));
	return list;
}
