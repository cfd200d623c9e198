/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/kinds.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/processors.h"
#include "base/sort.h"
#include "run/measure/companions.h"
#include "run/measure/ranks.h"

#include <stdlib.h>
#include <string.h>

/* ---- in a rank's process ---- */

static int take_options(const json_t *message, struct pd_measure_options *options, struct pd_error *err)
{
	struct pd_seat seat;

	if (pd_seat_parse(json_object_get(message, "seat"), &seat) < 0)
		return pd_error_failed(err, "the launcher sent a seat that cannot be read");
	*options = (struct pd_measure_options){
		.batch_size = pd_member_int(message, "batch_size"), .ordinal = seat.device,
		.dtype = (enum pd_dtype)pd_member_int(message, "dtype"),
		.threads = (int)pd_member_int(message, "threads"), .workers = 1,
		.tf32 = pd_member_true(message, "tf32"), .iterations = pd_member_int(message, "iterations"),
		.over_s = pd_member_int(message, "over_s"),
	};
	options->device = pd_device_find(pd_member_text(message, "device"), err);
	if (!options->device)
		return -1;
	if (options->threads > pd_processors())
		return pd_error_input(err, "--threads=%d: a rank on host %s has %d processors", options->threads,
				      seat.host, pd_processors());
	if (options->threads == 0)
		options->threads = pd_processors();
	sched_getaffinity(0, sizeof(options->all), &options->all);
	return 0;
}

static int run(struct pd_rank_process *process, const json_t *message, struct pd_error *err)
{
	struct pd_place place = pd_place_root("the model", json_object_get(message, "model"));
	struct pd_model *model = pd_model_parse_at(&place, err);
	struct pd_measure_options options;
	struct pd_profile *profile;
	int status;

	if (!model || take_options(message, &options, err) < 0)
		return -1;
	pd_measure_pin(0, options.threads);
	pd_mem_for("a layer that is timed");
	profile = pd_measure_layers(model, &options, err);
	pd_model_free(model);
	if (!profile)
		return -1;
	profile->workers = 1;
	status = pd_channel_send(&process->channel, json_pack("{s:s, s:o}", "event", "profiled", "profile",
							      pd_profile_json(profile)), err);
	pd_profile_free(profile);
	return status;
}

const struct pd_rank_task pd_kinds_task = { .event = "profile", .run = run };

/* ---- in the first process ---- */

static struct pd_profile *take_profile(struct pd_launcher *launcher, int r, struct pd_error *err)
{
	json_t *message = pd_ranks_hear(launcher, r, "profiled", err);
	struct pd_profile *profile = NULL;

	if (message) {
		char *name = pd_format("rank %d on host %s", r, launcher->ops->seat(launcher, r)->host);
		struct pd_place place = pd_place_root(name, json_object_get(message, "profile"));

		profile = pd_profile_parse_at(&place, err);
		free(name);
	}
	json_decref(message);
	return profile;
}

static int64_t step_of(const struct pd_profile *profile)
{
	int64_t sum = 0;

	for (int l = 0; l < profile->layer_count; l++)
		sum += pd_profile_step_ns(&profile->layers[l]);
	return profile->step_ns > 0 ? profile->step_ns : sum;
}

static int by_step(const void *a, const void *b)
{
	struct pd_profile *const *x = a, *const *y = b;

	PD_ORDER(step_of(*x), step_of(*y));
	return 0;
}

/* Takes those of the first rank's kind out of the profiles of all, and keeps the one in the middle. */
static void take_kind(struct pd_profile **all, int ranks, int first, struct pd_kind_profile *out)
{
	struct pd_profile **own = pd_calloc((size_t)ranks, sizeof(*own));
	int n = 0;

	for (int r = first; r < ranks; r++)
		if (all[r] && (r == first || strcmp(all[r]->device_name, own[0]->device_name) == 0)) {
			own[n++] = all[r];
			all[r] = NULL;
		}
	qsort(own, (size_t)n, sizeof(struct pd_profile *), by_step);
	*out = (struct pd_kind_profile){ own[n / 2], n, step_of(own[0]), step_of(own[n - 1]) };
	for (int i = 0; i < n; i++)
		if (i != n / 2)
			pd_profile_free(own[i]);
	free(own);
}

int pd_kinds_measure(const struct pd_launcher_ops *ops, int ranks, const struct pd_model *model, const char *device,
		     const struct pd_measure_options *options, struct pd_kind_profile **list_p, int *count_p,
		     struct pd_error *err)
{
	json_t *request = json_pack("{s:s, s:s, s:O, s:I, s:i, s:i, s:b, s:I, s:I}", "event", "profile", "device",
				    device, "model", model->json, "batch_size", (json_int_t)options->batch_size,
				    "dtype", (int)options->dtype, "threads", options->threads, "tf32",
				    options->tf32, "iterations", (json_int_t)options->iterations, "over_s",
				    (json_int_t)options->over_s);
	struct pd_launcher *launcher = pd_ranks_begin(ops, ranks, request, err);
	struct pd_profile **all = pd_calloc((size_t)ranks, sizeof(*all));
	int status = launcher ? 0 : -1;

	for (int r = 0; r < ranks && status == 0; r++) {
		all[r] = take_profile(launcher, r, err);
		status = all[r] ? 0 : -1;
	}
	if (launcher)
		pd_ranks_end(launcher, ranks);
	*list_p = pd_calloc((size_t)ranks, sizeof(**list_p));
	*count_p = 0;
	for (int r = 0; r < ranks && status == 0; r++)
		if (all[r])
			take_kind(all, ranks, r, &(*list_p)[(*count_p)++]);
	for (int r = 0; r < ranks; r++)
		pd_profile_free(all[r]);
	free(all);
	return status;
}

void pd_kinds_free(struct pd_kind_profile *list, int count)
{
	for (int k = 0; k < count; k++)
		pd_profile_free(list[k].profile);
	free(list);
}
