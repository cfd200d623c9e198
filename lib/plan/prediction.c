/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/prediction.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const pd_alternative_kind_name[PD_ALTERNATIVE_KINDS + 1] = {
#define ALTERNATIVE_KIND(symbol, name, what) name,
#include "plan/alternative_kind.def"
#undef ALTERNATIVE_KIND
	NULL
};

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

/* The key may be absent. */
static int read_from(const struct pd_place *object, enum pd_period_kind *out_p, struct pd_error *err)
{
	int kind;

	if (!json_object_get(object->value, "period_from"))
		return 0;
	if (pd_json_get_choice(object, "period_from", pd_period_kind_name, &kind, err) < 0)
		return -1;
	*out_p = (enum pd_period_kind)(PD_PERIOD_REPLAY + kind);
	return 0;
}

/* Returns its name, or NULL, which json_pack leaves out. */
static const char *from_name(enum pd_period_kind from)
{
	return from == PD_PERIOD_UNSAID ? NULL : pd_period_kind_name[from - PD_PERIOD_REPLAY];
}

static int read_alternative(const struct pd_place *place, struct pd_alternative *out,
			    struct pd_error *err)
{
	static const char *const known[] = {
		"name", "stages", "schedule", "weights", "microbatches", "ranks", "period_ns",
		"memory_bytes", "sent_bytes_per_sample", "fits", "recompute", "period_from",
		"tensor", NULL };
	int kind, schedule, weights;
	const char *stages, *recompute = NULL;

	out->microbatches = 1;
	if (pd_json_keys(place, known, err) < 0 ||
	    pd_json_get_choice(place, "name", pd_alternative_kind_name, &kind, err) < 0 ||
	    pd_json_get_string(place, "stages", &stages, err) < 0 ||
	    pd_json_opt_string(place, "recompute", &recompute, err) < 0 ||
	    pd_json_get_choice(place, "schedule", pd_schedule_kind_name, &schedule, err) < 0 ||
	    pd_json_get_choice(place, "weights", pd_weight_kind_name, &weights, err) < 0 ||
	    pd_json_opt_int(place, "microbatches", 1, PD_MAX_EXTENT, &out->microbatches,
			    err) < 0 ||
	    pd_json_opt_int(place, "ranks", 1, PD_MAX_RANKS, &out->ranks, err) < 0 ||
	    pd_json_opt_int(place, "tensor", 1, PD_MOST_GROUP, &out->tensor, err) < 0 ||
	    pd_json_opt_int(place, "period_ns", 0, INT64_MAX, &out->period_ns, err) < 0 ||
	    read_from(place, &out->period_from, err) < 0 ||
	    pd_json_opt_int(place, "memory_bytes", 0, INT64_MAX, &out->memory_bytes, err) < 0 ||
	    pd_json_opt_real(place, "sent_bytes_per_sample", 0, HUGE_VAL,
			     &out->sent_bytes_per_sample, err) < 0 ||
	    pd_json_opt_bool(place, "fits", &out->fits, err) < 0)
		return -1;
	out->kind = (enum pd_alternative_kind)kind;
	out->schedule = (enum pd_schedule_kind)schedule;
	out->weights = (enum pd_weight_kind)weights;
	out->stages = pd_strdup(stages);
	out->recompute = recompute ? pd_strdup(recompute) : NULL;
	return 0;
}

static int read_alternatives(const struct pd_place *object, struct pd_prediction *out,
			     struct pd_error *err)
{
	struct pd_place list = pd_place_key(object, "alternatives");
	size_t count;

	if (!list.value)
		return 0;
	if (pd_json_array(&list, &count, err) < 0)
		return -1;
	if (count > PD_ALTERNATIVE_KINDS)
		return pd_place_expected(&list, err, "at most %d alternatives",
					 PD_ALTERNATIVE_KINDS);
	out->alternatives = pd_calloc(count, sizeof(*out->alternatives));
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(&list, i);
		struct pd_alternative *one = &out->alternatives[i];

		out->alternative_count = (int)i + 1;
		if (read_alternative(&at, one, err) < 0)
			return -1;
		for (size_t k = 0; k < i; k++)
			if (out->alternatives[k].kind == one->kind)
				return pd_place_error(&at, err, "alternative \"%s\" is there twice",
						      pd_alternative_kind_name[one->kind]);
	}
	return 0;
}

static int read_data_parallel(const struct pd_place *object, struct pd_prediction *out,
			      struct pd_error *err)
{
	static const char *const known[] = { "period_ns", "period_from", "memory_bytes", NULL };
	struct pd_place place = pd_place_key(object, "data_parallel");

	if (!place.value)
		return 0;
	if (pd_json_keys(&place, known, err) < 0 ||
	    read_from(&place, &out->data_parallel_from, err) < 0 ||
	    pd_json_opt_int(&place, "period_ns", 0, INT64_MAX, &out->data_parallel_period_ns,
			    err) < 0)
		return -1;
	return pd_json_opt_int(&place, "memory_bytes", 0, INT64_MAX,
			       &out->data_parallel_memory_bytes, err);
}

/* The key may be absent. */
static int read_range(const struct pd_place *object, struct pd_prediction *out, struct pd_error *err)
{
	struct pd_place range = pd_place_key(object, "period_range_ns"), low, high;
	size_t count;

	if (!range.value)
		return 0;
	if (pd_json_array(&range, &count, err) < 0)
		return -1;
	if (count != 2)
		return pd_place_expected(&range, err, "two times, the shorter first");
	low = pd_place_index(&range, 0);
	high = pd_place_index(&range, 1);
	if (pd_json_int(&low, 0, INT64_MAX, &out->period_low_ns, err) < 0)
		return -1;
	return pd_json_int(&high, out->period_low_ns, INT64_MAX, &out->period_high_ns, err);
}

/* The key may be absent. */
static int read_order_from(const struct pd_place *object, struct pd_prediction *out, struct pd_error *err)
{
	struct pd_place place = pd_place_key(object, "order_from");
	const char *name;

	if (!place.value)
		return 0;
	if (pd_json_string(&place, &name, err) < 0)
		return -1;
	snprintf(out->order_from, sizeof(out->order_from), "%s", name);
	return 0;
}

int pd_prediction_read(const struct pd_place *place, struct pd_prediction *out,
		       struct pd_error *err)
{
	static const char *const known[] = {
		"period_ns", "samples_per_s", "memory_bytes", "sent_bytes_per_sample",
		"lower_bound_ns", "gap", "data_parallel", "speedup_over_data_parallel",
		"alternatives", "period_from", "ended_early", "period_range_ns", "order_from",
		NULL };

	if (!place->value)
		return 0;
	if (pd_json_keys(place, known, err) < 0 ||
	    pd_json_opt_bool(place, "ended_early", &out->ended_early, err) < 0 ||
	    pd_json_opt_int(place, "period_ns", 0, INT64_MAX, &out->period_ns, err) < 0 ||
	    read_from(place, &out->period_from, err) < 0 || read_range(place, out, err) < 0 ||
	    read_order_from(place, out, err) < 0 ||
	    pd_json_opt_real(place, "samples_per_s", 0, HUGE_VAL, &out->samples_per_s, err) < 0 ||
	    pd_json_opt_int(place, "memory_bytes", 0, INT64_MAX, &out->memory_bytes, err) < 0 ||
	    pd_json_opt_real(place, "sent_bytes_per_sample", 0, HUGE_VAL,
			     &out->sent_bytes_per_sample, err) < 0 ||
	    pd_json_opt_int(place, "lower_bound_ns", 0, INT64_MAX, &out->lower_bound_ns,
			    err) < 0 ||
	    (!json_is_null(json_object_get(place->value, "gap")) &&
	     pd_json_opt_real(place, "gap", -HUGE_VAL, 1, &out->gap, err) < 0) ||
	    pd_json_opt_real(place, "speedup_over_data_parallel", 0, HUGE_VAL,
			     &out->speedup_over_data_parallel, err) < 0 ||
	    read_data_parallel(place, out, err) < 0)
		return -1;
	return read_alternatives(place, out, err);
}

/* Replaces infinity, which JSON does not have. */
static double number(double value)
{
	return isfinite(value) ? value : 0;
}

static json_t *alternative_json(const struct pd_alternative *one)
{
	json_t *tensor = one->tensor > 0 ? json_integer(one->tensor) : NULL;

	return json_pack("{ss ss ss* ss ss sI sI so* sI ss* sI sf sb}", "name",
			 pd_alternative_kind_name[one->kind], "stages", one->stages, "recompute",
			 one->recompute, "schedule",
			 pd_schedule_kind_name[one->schedule], "weights",
			 pd_weight_kind_name[one->weights], "microbatches", one->microbatches,
			 "ranks", one->ranks, "tensor", tensor, "period_ns", one->period_ns,
			 "period_from", from_name(one->period_from), "memory_bytes",
			 one->memory_bytes, "sent_bytes_per_sample",
			 number(one->sent_bytes_per_sample), "fits", one->fits);
}

json_t *pd_prediction_json(const struct pd_prediction *predicted)
{
	json_t *list, *json;

	json = json_pack("{sI ss* sf sI sf sI so s{sI ss* sI} sf}",
			 "period_ns", predicted->period_ns,
			 "period_from", from_name(predicted->period_from),
			 "samples_per_s", number(predicted->samples_per_s),
			 "memory_bytes", predicted->memory_bytes,
			 "sent_bytes_per_sample", number(predicted->sent_bytes_per_sample),
			 "lower_bound_ns", predicted->lower_bound_ns, "gap",
			 predicted->period_from == PD_PERIOD_ESTIMATE
			 ? json_null() : json_real(number(predicted->gap)),
			 "data_parallel", "period_ns", predicted->data_parallel_period_ns,
			 "period_from", from_name(predicted->data_parallel_from),
			 "memory_bytes", predicted->data_parallel_memory_bytes,
			 "speedup_over_data_parallel",
			 number(predicted->speedup_over_data_parallel));
	if (*predicted->order_from)
		pd_json_set(json, "order_from", json_string(predicted->order_from));
	if (predicted->ended_early)
		pd_json_set(json, "ended_early", json_true());
	if (predicted->period_high_ns > 0)
		pd_json_set(json, "period_range_ns", json_pack("[I, I]", predicted->period_low_ns,
							       predicted->period_high_ns));
	if (predicted->alternative_count == 0)
		return json;
	list = json_array();
	for (int i = 0; i < predicted->alternative_count; i++)
		pd_json_add(list, alternative_json(&predicted->alternatives[i]));
	pd_json_set(json, "alternatives", list);
	return json;
}
