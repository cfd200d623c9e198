/* SPDX-License-Identifier: Apache-2.0 */
#include "run/rank/saver.h"

#include "base/finite.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pd_saver_begin(struct pd_saver *saver, int64_t step, int64_t low)
{
	saver->step = step;
	saver->low = low;
	saver->has_state = saver->replica > 0;  /* replica 0 saves it */
	saver->has_newest = saver->complete = false;
}

void pd_saver_release(struct pd_saver *saver)
{
	for (int i = 0; i < saver->version_count; i++)
		free(saver->versions[i].parameters);
	free(saver->versions);
	saver->versions = NULL;
	saver->version_count = 0;
	free(saver->norms);
	saver->norms = NULL;
	for (int kind = 0; kind < PD_ARENAS; kind++) {
		free(saver->arenas[kind]);
		saver->arenas[kind] = NULL;
	}
	saver->step = -1;
}

/* Is this in the arena of states, or, not `state`, in one of parameters? */
static bool belongs(const struct pd_named *named, bool state)
{
	return (named->part != PD_PART_PARAMETER) == state;
}

/* Exports all named tensors of an arena, one after the other. */
static float *export_part(struct pd_saver *saver, bool state, enum pd_form form,
			  const void *arena, struct pd_error *err)
{
	const struct pd_device_ops *device = saver->device->ops;
	const struct pd_named *named;
	int count = device->net.named(saver->net, &named);
	int64_t total = 0;
	float *out;

	for (int i = 0; i < count; i++)
		if (belongs(&named[i], state) && !named[i].copy)
			total += named[i].elements;
	out = pd_calloc((size_t)total, sizeof(*out));
	total = 0;
	for (int i = 0; i < count; i++) {
		if (!belongs(&named[i], state) || named[i].copy)
			continue;
		if (device->net.export(saver->net, i, form, arena, out + total) < 0) {
			pd_error_failed(err, "%s: cannot be read from the device", named[i].name);
			free(out);
			return NULL;
		}
		total += named[i].elements;
	}
	return out;
}

static bool has_version(const struct pd_saver *saver, int64_t number)
{
	for (int i = 0; i < saver->version_count; i++)
		if (saver->versions[i].number == number)
			return true;
	return false;
}

/*
 * Takes a version.  newest: of all versions, and of the checkpoint; then from the master, if there
 * is one.
 */
static int take_version(struct pd_saver *saver, int64_t number, const void *buffer, bool newest,
			struct pd_error *err)
{
	int n = saver->version_count;
	const void *master = newest
		? pd_worker_arena(saver->worker, saver->number, PD_ARENA_master) : NULL;
	struct pd_saved_version taken = { .number = number, .scale.loss_scale = 1 };

	taken.parameters = export_part(saver, false, master ? PD_FULL : PD_WORKING,
				       master ? master : buffer, err);
	if (!taken.parameters)
		return -1;
	if (pd_plan_agrees(saver->job->plan) &&
	    pd_worker_scale_get(saver->worker, saver->number, buffer, &taken.scale, err) < 0) {
		free(taken.parameters);
		return -1;
	}
	saver->versions = pd_regrow(saver->versions, (size_t)n + 1, sizeof(*saver->versions));
	/* an older version, kept for later forwards, may be met after a newer one */
	for (; n > 0 && saver->versions[n - 1].number > number; n--)
		saver->versions[n] = saver->versions[n - 1];
	saver->versions[n] = taken;
	saver->version_count++;
	return 0;
}

/* Takes the stage's arena, if it has one that was not taken before. */
static int take_arena(struct pd_saver *saver, enum pd_arena_kind kind, struct pd_error *err)
{
	const void *arena = pd_worker_arena(saver->worker, saver->number, kind);

	if (!arena || saver->arenas[kind])
		return 0;
	saver->arenas[kind] = export_part(saver, kind == PD_ARENA_state, PD_FULL, arena, err);
	return saver->arenas[kind] ? 0 : -1;
}

/* Takes the norms by which chunks are chosen next. */
static int take_norms(struct pd_saver *saver, struct pd_error *err)
{
	int64_t chunks = pd_worker_norm_count(saver->worker, saver->number);

	if (chunks == 0 || saver->norms || saver->replica > 0)
		return 0;
	saver->norms = pd_calloc((size_t)chunks, sizeof(float));
	return pd_worker_norms_get(saver->worker, saver->number, saver->norms, err);
}

static int take_arenas(struct pd_saver *saver, struct pd_error *err)
{
	for (int kind = 0; kind < PD_ARENAS; kind++)
		if (pd_arena_saved[kind] && (saver->replica == 0 || kind == PD_ARENA_residual) &&
		    take_arena(saver, kind, err) < 0)
			return -1;
	return take_norms(saver, err);
}

static int take_versions(struct pd_saver *saver, struct pd_error *err)
{
	const struct pd_weights *weights = pd_worker_weights(saver->worker, saver->number);
	int64_t newest;

	pd_weights_newest(weights, &newest);
	for (int i = 0; i < weights->count; i++) {
		const struct pd_version *v = &weights->versions[i];

		/* low may be negative near the beginning, a free buffer's number always is */
		if (saver->replica == 0 && v->number >= 0 && v->number >= saver->low && v->number <= saver->step &&
		    !has_version(saver, v->number) &&
		    pd_worker_checkpoint_holds(saver->worker, saver->number, saver->step,
					       v->number) &&
		    take_version(saver, v->number, v->buffer,
				 v->number == newest && newest == saver->step, err) < 0)
			return -1;
	}
	if (newest != saver->step)
		return 0;
	saver->has_newest = true;
	return take_arenas(saver, err);
}

int pd_saver_take(struct pd_saver *saver, bool state, struct pd_error *err)
{
	if (state && !saver->has_state && take_arena(saver, PD_ARENA_state, err) < 0)
		return -1;
	saver->has_state |= state;
	if (take_versions(saver, err) < 0)
		return -1;
	saver->complete = saver->has_state && saver->has_newest;
	return 0;
}

/*
 * Returns a tensor's name: "conv1.weight" for the newest version, "conv1.weight@12" for an older
 * one, "conv1.weight.velocity" for an optimizer's arena.
 */
static char *saved_name(const struct pd_named *named, enum pd_arena_kind kind, int64_t version)
{
	if (version >= 0)
		return pd_format("%s@%" PRId64, named->name, version);
	return pd_arena_saved[kind] ? pd_format("%s.%s", named->name, pd_arena_name[kind])
				    : pd_strdup(named->name);
}

struct list {
	struct pd_tensor *tensors;
	const float **data;
	size_t count;
};

static void add_part(const struct pd_saver *saver, struct list *list, const float *data,
		     enum pd_arena_kind kind, int64_t version)
{
	const struct pd_named *named;
	int count = saver->device->ops->net.named(saver->net, &named);
	bool state = kind == PD_ARENA_state;

	for (int i = 0; i < count && data; i++) {
		struct pd_tensor *t = &list->tensors[list->count];

		if (!belongs(&named[i], state) || named[i].copy)
			continue;
		t->name = saved_name(&named[i], kind, version);
		t->dims = named[i].dims;
		memcpy(t->size, named[i].size, sizeof(named[i].size));
		t->elements = named[i].elements;
		list->data[list->count++] = data;
		data += named[i].elements;
	}
}

/*
 * Returns the name of the norms of a stage's chunks: they are for chunks of that size, in a stage that
 * begins with that layer.
 */
static char *norms_name(const struct pd_saver *saver)
{
	const struct pd_plan *plan = saver->job->plan;

	return pd_format(PD_CHUNK_NORMS "%" PRId64 "/%s", plan->chunk,
			 plan->profile->layers[plan->stages[saver->stage].first_layer].name);
}

static void add_norms(const struct pd_saver *saver, struct list *list)
{
	struct pd_tensor *t = &list->tensors[list->count];

	if (!saver->norms)
		return;
	t->name = norms_name(saver);
	t->dims = 1;
	t->size[0] = t->elements = pd_worker_norm_count(saver->worker, saver->number);
	list->data[list->count++] = saver->norms;
}

/* Lists all that was taken. */
static struct list list_of(const struct pd_saver *saver)
{
	const struct pd_named *named;
	size_t room = (size_t)saver->device->ops->net.named(saver->net, &named) *
		      ((size_t)saver->version_count + PD_ARENAS) + 1;
	struct list list = { pd_calloc(room, sizeof(*list.tensors)),
			     pd_calloc(room, sizeof(*list.data)), 0 };

	for (int i = 0; i < saver->version_count; i++)
		add_part(saver, &list, saver->versions[i].parameters,
			 PD_ARENA_weights, i == saver->version_count - 1
			 ? -1 : pd_job_minibatches(saver->job, saver->versions[i].number));
	for (int kind = 0; kind < PD_ARENAS; kind++)
		if (pd_arena_saved[kind])
			add_part(saver, &list, saver->arenas[kind], kind, -1);
	add_part(saver, &list, saver->arenas[PD_ARENA_state], PD_ARENA_state, -1);
	add_norms(saver, &list);
	return list;
}

static void list_release(struct list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->tensors[i].name);
	free(list->tensors);
	free(list->data);
}

char *pd_saver_not_finite(const struct pd_saver *saver)
{
	struct list list = list_of(saver);
	char *name = NULL;

	for (size_t i = 0; i < list.count && !name; i++)
		if (!pd_all_finite(list.data[i], (size_t)list.tensors[i].elements))
			name = pd_strdup(list.tensors[i].name);
	list_release(&list);
	return name;
}

int pd_saver_write(struct pd_saver *saver, struct pd_checkpoint_file *file_p, struct pd_error *err)
{
	struct list list = list_of(saver);
	int status;

	*file_p = (struct pd_checkpoint_file){ .stage = saver->stage, .replica = saver->replica };
	status = pd_checkpoint_write(saver->job->checkpoint, pd_job_minibatches(saver->job, saver->step),
				     file_p, list.tensors, list.data, list.count, err);
	list_release(&list);
	pd_saver_release(saver);
	return status;
}

/*
 * Reads what sparse sums have left of a parameter's gradients; of a run with more replicas, all that
 * those had that this one takes over, so that nothing is lost.
 */
static int read_residual(const struct pd_checkpoint *ck, const struct pd_saver *saver,
			 const char *name, int64_t elements, float *host, struct pd_error *err)
{
	int replicas = saver->job->plan->stages[saver->stage].replicas;
	int had = pd_checkpoint_replicas_with(ck, name), status = 0;
	float *more = pd_calloc((size_t)elements, sizeof(*more));

	for (int r = saver->replica; r < had && status == 0; r += replicas) {
		status = pd_checkpoint_read_replica(ck, name, r, elements, more, err);
		for (int64_t i = 0; i < elements && status == 0; i++)
			host[i] = r == saver->replica ? more[i] : host[i] + more[i];
	}
	free(more);
	return status;
}

/* Restores the norms of a stage's chunks, if the checkpoint has those; else all are 0. */
static int restore_norms(const struct pd_checkpoint *ck, const struct pd_saver *saver,
			 struct pd_error *err)
{
	int64_t chunks = pd_worker_norm_count(saver->worker, saver->number);
	char *name = norms_name(saver);
	float *norms;
	int status = 0;

	if (chunks > 0 && pd_checkpoint_elements(ck, name) == chunks) {
		norms = pd_calloc((size_t)chunks, sizeof(*norms));
		status = pd_checkpoint_read(ck, name, -1, chunks, norms, err);
		if (status == 0)
			status = pd_worker_norms_put(saver->worker, saver->number, norms, err);
		free(norms);
	}
	free(name);
	return status;
}

static int import_part(const struct pd_checkpoint *ck, const struct pd_saver *saver,
		       enum pd_arena_kind kind, int64_t version, enum pd_form form, void *arena,
		       struct pd_error *err)
{
	const struct pd_device_ops *device = saver->device->ops;
	const struct pd_named *named;
	int count = device->net.named(saver->net, &named);

	for (int i = 0; i < count; i++) {
		char *name;
		float *host;
		int status;

		if (!belongs(&named[i], kind == PD_ARENA_state))
			continue;
		name = saved_name(&named[i], kind, -1);
		/* a checkpoint of SGD without momentum, or without correction: it starts from rest */
		if (pd_arena_saved[kind] &&
		    (pd_optimizer_rows[saver->job->optimizer.kind].defaults.momentum > 0 || kind == PD_ARENA_delta) &&
		    !pd_checkpoint_has(ck, name)) {
			free(name);
			continue;
		}
		host = pd_calloc((size_t)named[i].elements, sizeof(*host));
		status = kind == PD_ARENA_residual
			? read_residual(ck, saver, name, named[i].elements, host, err)
			: pd_checkpoint_read(ck, name, version, named[i].elements, host, err);
		if (status == 0 && device->net.import(saver->net, i, form, arena, host) < 0)
			status = pd_error_failed(err, "%s: cannot be written to the device", name);
		free(host);
		free(name);
		if (status < 0)
			return -1;
	}
	return 0;
}

/* Returns a version of a checkpoint in microbatches. */
static int64_t held_version(const struct pd_plan *plan, const struct pd_checkpoint_stage *held,
			    int i)
{
	return held->versions[i] * plan->microbatches;
}

/*
 * Returns whether the versions are those that the stage would have kept: an update apart, except
 * those that nobody reads, and not too many.  into: earlier microbatches of the epoch.
 */
static bool spaced(const struct pd_schedule *schedule, int s,
		   const struct pd_checkpoint_stage *held, int64_t into)
{
	const struct pd_plan *plan = schedule->plan;
	int64_t group = schedule->group[s], last = held_version(plan, held, held->version_count - 1);
	int64_t floor = held_version(plan, held, 0) - last + into;

	if (held->version_count > pd_schedule_versions(schedule, s))
		return false;
	for (int i = 1; i < held->version_count; i++)
		for (int64_t v = held_version(plan, held, i - 1) + group;
		     v != held_version(plan, held, i); v += group)
			if (v > held_version(plan, held, i) ||
			    pd_schedule_reads(schedule, s, into, floor, v - last + into))
				return false;
	return true;
}

/*
 * Returns the stage of the checkpoint that has all layers of a stage in the versions that the stage
 * needs, or NULL.
 */
static const struct pd_checkpoint_stage *fitting(const struct pd_checkpoint *ck,
						 const struct pd_schedule *schedule, int s,
						 int64_t into)
{
	const struct pd_plan *plan = schedule->plan;
	const struct pd_stage *stage = &plan->stages[s];
	const struct pd_checkpoint_stage *first = NULL;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		const struct pd_checkpoint_stage *held =
			pd_checkpoint_stage_of(ck, plan->profile->layers[l].name);

		if (!held || held->warmup != stage->warmup || held->replicas != stage->replicas)
			return NULL;
		if (!first)
			first = held;
		if (held->version_count != first->version_count ||
		    memcmp(held->versions, first->versions,
			   (size_t)held->version_count * sizeof(*held->versions)) != 0)
			return NULL;
	}
	return first && spaced(schedule, s, first, into) ? first : NULL;
}

/*
 * Restores the loss scale of a version from the checkpoint, if it has one; a constant scale is this
 * run's.
 */
static int restore_scale(const struct pd_checkpoint *ck, const struct pd_saver *saver,
			 int64_t version, void *buffer, struct pd_error *err)
{
	const struct pd_optimizer *o = &saver->job->optimizer;
	struct pd_scale scale = { .loss_scale = o->loss_scale > 0 ? o->loss_scale : 1 };
	const json_t *list = json_object_get(pd_checkpoint_info(ck)->optimizer, "scales");
	json_t *one;
	size_t n;

	if (!pd_plan_agrees(saver->job->plan))
		return 0;
	json_array_foreach(list, n, one) {
		json_int_t number, good, skipped;
		double value;

		if (json_unpack(one, "{s:I, s:F, s:I, s:I}", "version", &number, "loss_scale",
				&value, "good", &good, "skipped", &skipped) < 0 ||
		    !(value > 0) || good < 0 || skipped < 0)
			return pd_error_input(err, "%s: optimizer.scales[%zu]: expected version, "
					      "loss_scale, good and skipped", saver->job->checkpoint,
					      n);
		if (number != version)
			continue;
		scale.good = good;
		scale.skipped = skipped;
		if (o->loss_scale_interval > 0)
			scale.loss_scale = value;
	}
	return pd_worker_scale_put(saver->worker, saver->number, buffer, &scale, err);
}

int pd_saver_restore(const struct pd_checkpoint *ck, const struct pd_schedule *schedule,
		     const struct pd_saver *saver, int64_t *floor_p, struct pd_error *err)
{
	int64_t done = pd_checkpoint_info(ck)->step, step = pd_job_microbatches(saver->job, done);
	const struct pd_checkpoint_stage *held = fitting(ck, schedule, saver->stage, pd_job_into_epoch(
			saver->job, schedule, step));
	struct pd_weights *weights = pd_worker_weights(saver->worker, saver->number);
	void *master = pd_worker_arena(saver->worker, saver->number, PD_ARENA_master);

	pd_weights_renumber(weights, step);
	*floor_p = step;
	if (import_part(ck, saver, PD_ARENA_weights, -1, PD_WORKING,
			pd_weights_newest(weights, NULL), err) < 0 ||
	    (master && import_part(ck, saver, PD_ARENA_master, -1, PD_FULL, master, err) < 0) ||
	    restore_scale(ck, saver, done, pd_weights_newest(weights, NULL), err) < 0)
		return -1;
	for (int kind = 0; kind < PD_ARENAS; kind++) {
		void *arena = pd_arena_saved[kind] || kind == PD_ARENA_state
			? pd_worker_arena(saver->worker, saver->number, kind) : NULL;

		if (arena && import_part(ck, saver, kind, -1, PD_FULL, arena, err) < 0)
			return -1;
	}
	if (restore_norms(ck, saver, err) < 0)
		return -1;
	for (int i = 0; held && i < held->version_count - 1; i++) {
		int64_t number = held_version(saver->job->plan, held, i);
		void *buffer = pd_weights_restore(weights, number);

		if (i == 0)
			*floor_p = number;
		if (import_part(ck, saver, PD_ARENA_weights, held->versions[i], PD_WORKING, buffer,
				err) < 0 ||
		    restore_scale(ck, saver, held->versions[i], buffer, err) < 0)
			return -1;
	}
	return 0;
}
