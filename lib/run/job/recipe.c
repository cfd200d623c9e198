/* SPDX-License-Identifier: Apache-2.0 */
#include "run/job/recipe.h"

#include "base/mem.h"
#include "model/same.h"
#include "plan/prediction.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- what it is ---- */

/* Tells one that the optimizer reads, if it has a key of its own. */
static void tell_hyper(json_t *value, const char *key, double otherwise, double is)
{
	if (key && otherwise > 0)
		pd_json_set(value, key, json_real(is));
}

static json_t *real_if(bool given, double value)
{
	return given ? json_real(value) : json_null();
}

/* Adds how the rate changes; the length of the run, too, where that decides it. */
static void describe_rate(const struct pd_optimizer *o, json_t *value)
{
	bool by_length = o->schedule == PD_LR_POLYNOMIAL || o->schedule == PD_LR_COSINE;

	pd_json_set(value, "lr_schedule", json_string(pd_lr_schedule_name[o->schedule]));
	pd_json_set(value, "lr_warmup", json_integer(o->warmup));
	if (o->schedule == PD_LR_STEP) {
		pd_json_set(value, "lr_step", json_integer(o->step_epochs));
		pd_json_set(value, "lr_gamma", json_real(o->gamma));
	}
	if (o->schedule == PD_LR_POLYNOMIAL)
		pd_json_set(value, "lr_power", json_real(o->power));
	if (by_length)
		pd_json_set(value, "minibatches", json_integer(o->total));
}

/* Keys are options of pd-run, with '_' for '-', but for those of option_of(). */
static json_t *describe_optimizer(const struct pd_optimizer *o)
{
	const struct pd_hyper *own = &pd_optimizer_rows[o->kind].defaults;
	json_t *value = json_pack("{s:s, s:f}", "kind", pd_optimizer_kind_name[o->kind], "lr",
				  o->rate);

	if (own->beta1 > 0)
		pd_json_set(value, "betas", json_pack("[f, f]", o->hyper.beta1, o->hyper.beta2));
#define HYPER(member, option, key, ...) tell_hyper(value, key, own->member, o->hyper.member);
#include "engine/device/hyper.def"
#undef HYPER
	pd_json_set(value, "weight_decay", json_real(o->weight_decay));
	pd_json_set(value, "decay", json_string(o->spares_vectors ? "matrices" : "all"));
	describe_rate(o, value);
	pd_json_set(value, "clip_grad_norm", real_if(o->clip_norm > 0, o->clip_norm));
	pd_json_set(value, "loss_scale", o->loss_scale_interval > 0 ? json_string("dynamic") :
		    real_if(o->loss_scale > 0, o->loss_scale));
	if (o->loss_scale_interval > 0)
		pd_json_set(value, "loss_scale_interval", json_integer(o->loss_scale_interval));
	pd_json_set(value, "lr_reschedule", o->reschedule > 0 ? json_integer(o->reschedule)
							      : json_null());
	pd_json_set(value, "discrepancy", real_if(o->corrects, o->discrepancy));
	pd_json_set(value, "residual", real_if(o->has_residual, o->residual));
	return value;
}

static json_t *describe_data(const struct pd_job *job, const struct pd_dataset *train)
{
	if (!job->data)
		return json_pack("{s:s, s:I}", "format", train->format->name, "minibatches",
				 (json_int_t)job->epoch_minibatches);
	return json_pack("{s:s, s:o, s:I, s:s, s:o}", "format", train->format->name, "path",
			 pd_json_shown(job->data), "samples", (json_int_t)train->samples,
			 "checksum", job->data_sum,
			 "augment", job->augment ? json_string(job->augment) : json_null());
}

static json_t *describe_plan(const struct pd_plan *plan)
{
	char *stages = pd_plan_stages_text(plan);
	json_t *value = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:f}", "stages", stages,
				  "schedule", pd_schedule_kind_name[plan->schedule],
				  "weights", pd_weight_kind_name[plan->weights],
				  "dtype", pd_dtype_name[plan->profile->dtype],
				  "batch_size", (json_int_t)plan->profile->batch_size,
				  "microbatches", (json_int_t)plan->microbatches,
				  "gradient_dtype", pd_dtype_name[plan->gradient_dtype],
				  "sparsity", plan->chunk > 0 ? plan->sparsity : 0.0);

	free(stages);
	return value;
}

json_t *pd_recipe_make(const struct pd_job *job, const struct pd_dataset *train)
{
	json_t *recipe = json_object();

	pd_json_set(recipe, "optimizer", describe_optimizer(&job->optimizer));
	pd_json_set(recipe, "data", describe_data(job, train));
	pd_json_set(recipe, "plan", describe_plan(job->plan));
	pd_json_set(recipe, "tf32", json_boolean(job->tf32));
	return recipe;
}

/* ---- what differs ---- */

/* Returns the option that a key stands for; free() it. */
static char *option_of(const char *key, size_t n)
{
	char *option;

	if (strcmp(key, "eps") == 0)
		return pd_strdup("epsilon");
	if (strcmp(key, "betas") == 0)
		return pd_strdup(n == 0 ? "beta1" : "beta2");
	option = pd_strdup(key);
	for (char *c = option; *c; c++)
		*c = *c == '_' ? '-' : *c;
	return option;
}

/* Returns a value as a user writes it; free() it. */
static char *value_text(const json_t *value)
{
	if (json_is_real(value))
		return pd_format("%.15g", json_real_value(value));
	if (json_is_integer(value))
		return pd_format("%" PRId64, (int64_t)json_integer_value(value));
	return pd_strdup(json_is_string(value) ? json_string_value(value) :
			 json_is_true(value) ? "true" : "none");
}

/* Returns " with --lr=0.1", " with --tf32" or "out --augment"; free() it. */
static char *setting_text(const char *option, const json_t *value)
{
	char *text, *setting;

	if (json_is_null(value) || json_is_false(value))
		return pd_format("without --%.60s", option);
	if (json_is_true(value))
		return pd_format("with --%.60s", option);
	text = value_text(value);
	setting = pd_format("with --%.60s=%.120s", option, text);
	free(text);
	return setting;
}

static bool same_value(const json_t *was, const json_t *is)
{
	if (json_is_number(was) && json_is_number(is))
		return json_number_value(was) == json_number_value(is);
	return json_equal(was, is);
}

/* Compares a setting, unless one of both does not have it. */
static void tell_setting(const struct pd_job *job, const char *key, size_t n, const json_t *was,
			 const json_t *is)
{
	char *option, *before, *now;

	if (!was || !is || same_value(was, is))
		return;
	option = option_of(key, n);
	before = setting_text(option, was);
	now = setting_text(option, is);
	pd_say("%s: trained %s, goes on %s", job->checkpoint, before, now);
	free(option);
	free(before);
	free(now);
}

static void tell_optimizer(const struct pd_job *job, json_t *was, const json_t *is)
{
	const char *key;
	json_t *value;

	json_object_foreach(was, key, value) {
		const json_t *now = json_object_get(is, key);

		for (size_t i = 0; json_is_array(value) && json_is_array(now) && i < 2; i++)
			tell_setting(job, key, i, json_array_get(value, i), json_array_get(now, i));
		if (!json_is_array(value) && strcmp(key, "kind") != 0)
			tell_setting(job, key, 0, value, now);
	}
}

/* Returns "data (IDX, 6000 samples, checksum 0123456789abcdef)"; free() it. */
static char *data_text(const json_t *data)
{
	const char *path = pd_member_text(data, "path"), *sum = pd_member_text(data, "checksum");
	const char *format = pd_member_text(data, "format");

	if (!path)
		return pd_format("made-up data, %" PRId64 " minibatches an epoch",
				 pd_member_int(data, "minibatches"));
	return pd_format("%.150s (%.40s, %" PRId64 " samples, checksum %.16s)", path,
			 format ? format : "", pd_member_int(data, "samples"), sum ? sum : "none");
}

static bool same_member(const json_t *a, const json_t *b, const char *key)
{
	const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);

	return x == y || (x && y && same_value(x, y));
}

/* The same data elsewhere are the same. */
static void tell_data(const struct pd_job *job, const json_t *was, const json_t *is)
{
	char *before = data_text(was), *now = data_text(is);

	if (!same_member(was, is, "format") || !same_member(was, is, "samples") ||
	    !same_member(was, is, "checksum") || !same_member(was, is, "minibatches"))
		pd_say("%s: trained on %s, goes on with %s", job->checkpoint, before, now);
	tell_setting(job, "augment", 0, json_object_get(was, "augment"),
		     json_object_get(is, "augment"));
	free(before);
	free(now);
}

static void tell_plan(const struct pd_job *job, json_t *was, const json_t *is)
{
	const char *key;
	json_t *value;

	json_object_foreach(was, key, value) {
		const json_t *now = json_object_get(is, key);
		char *before, *text;

		if (!now || same_value(value, now))
			continue;
		before = value_text(value);
		text = value_text(now);
		pd_say("%s: trained by a plan with %.40s %.120s, goes on by one with %.120s",
		       job->checkpoint, key, before, text);
		free(before);
		free(text);
	}
}

void pd_recipe_tell(const struct pd_job *job, const struct pd_checkpoint_info *info)
{
	const json_t *recipe = info->recipe;

	if (job->quiet || !job->recipe)
		return;
	if (!recipe && info->checksums)
		pd_say("%s: its checkpoint is of an earlier version, and does not say %son which "
		       "data and by which plan it was trained: not compared", job->checkpoint,
		       info->model ? "" : "of which network it is, ");
	tell_optimizer(job, info->optimizer, json_object_get(job->recipe, "optimizer"));
	if (!recipe)
		return;
	tell_data(job, json_object_get(recipe, "data"), json_object_get(job->recipe, "data"));
	tell_plan(job, json_object_get(recipe, "plan"), json_object_get(job->recipe, "plan"));
	tell_setting(job, "tf32", 0, json_object_get(recipe, "tf32"),
		     json_object_get(job->recipe, "tf32"));
}

/* ---- the network ---- */

struct network_check {
	const struct pd_job *job;
	const char *where;
	enum pd_recipe_use use;
	struct pd_error *err;
	int refused, told;
	char first[300];                /* of those that are told */
};

static bool is_refused(const struct network_check *check, enum pd_difference how)
{
	switch (check->use) {
	case PD_RECIPE_RESUMES:
		return true;
	case PD_RECIPE_EVALUATES:
		return how != PD_DIFFERS_TRAINING;
	case PD_RECIPE_BEGINS:
		return how == PD_DIFFERS_FUNCTION && !check->job->init_new;
	}
	return true;
}

static void network_differs(void *context, enum pd_difference how, const char *name,
			    const char *key, const char *was, const char *is)
{
	struct network_check *check = context;
	bool refused = is_refused(check, how);
	char text[sizeof(check->first)];

	if (!refused && check->use == PD_RECIPE_EVALUATES)
		return;
	snprintf(text, sizeof(text), "\"%.60s\": %.30s %.80s in training, %.80s in the plan", name,
		 key, was, is);
	if (!refused && check->told++ == 0)
		memcpy(check->first, text, sizeof(text));
	if (refused && check->refused++ == 0)
		pd_error_input(check->err, "%s: trained with another network: %s%s", check->where,
			       text, check->use == PD_RECIPE_BEGINS
			       ? "; pd-export writes parameters for another network"
			       : "; expected a plan for the same");
}

int pd_recipe_check_network(const struct pd_job *job, const struct pd_checkpoint_info *info,
			    const char *where, enum pd_recipe_use use, struct pd_error *err)
{
	struct network_check check = { .job = job, .where = where, .use = use, .err = err };
	char *name = pd_format("%s: model", where);
	struct pd_model *was = info->model ? pd_model_parse(name, info->model, err) : NULL;

	free(name);
	if (!info->model && !job->quiet && use != PD_RECIPE_RESUMES)
		pd_say("%s: is of an earlier version, and does not say of which network: not "
		       "compared", where);
	if (!was)
		return info->model ? -1 : 0;
	pd_model_compare(was, job->plan->profile->model, network_differs, &check);
	pd_model_free(was);
	if (check.refused > 0)
		return -1;
	if (check.told > 0 && !job->quiet)
		pd_say("%s: trained with another network: %s%s", where, check.first,
		       check.told > 1 ? "; it differs elsewhere, too" : "");
	return 0;
}
