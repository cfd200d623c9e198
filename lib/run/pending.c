/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pending checkpoints: each stage exports its part when it passes the step.  Once all stages have,
 * they are told to write, one checkpoint after the other.
 */
#include "run/internal.h"

#include "base/checksum.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/lock.h"
#include "plan/sparse.h"

#include <stdlib.h>

/* A checkpoint that some stages have exported, but not all have written. */
struct pending {
	int64_t step;                   /* -1: unused */
	int exported, saved;
	int unpublished;                /* keepers that have yet to publish it */
	bool writing;
	json_t **versions;              /* one per stage */
	uint64_t **checksums;           /* per stage and replica that has saved */
	json_t *scales;                 /* from the first stage, equal at all; or NULL */
	struct pd_checkpoint_info info; /* once all stages have saved */
};

static struct pending *pending_of(struct supervisor *s, int64_t step)
{
	for (size_t i = 0; i < s->pending_count; i++)
		if (s->pending[i].step == step)
			return &s->pending[i];
	return NULL;
}

static struct pending *new_pending(struct supervisor *s, int64_t step)
{
	struct pending *p = pending_of(s, -1);

	if (!p) {
		s->pending = pd_grow(s->pending, &s->pending_capacity, s->pending_count + 1,
				     sizeof(*s->pending));
		p = &s->pending[s->pending_count++];
		p->versions = pd_calloc((size_t)s->job->plan->stage_count, sizeof(json_t *));
		p->checksums = pd_calloc((size_t)s->job->plan->stage_count, sizeof(*p->checksums));
		for (int i = 0; i < s->job->plan->stage_count; i++)
			p->checksums[i] = pd_calloc((size_t)s->job->plan->stages[i].replicas,
						    sizeof(uint64_t));
	}
	p->step = step;
	return p;
}

/* Returns how many of a stage's replicas save something. */
static int savers_of(const struct supervisor *s, int stage)
{
	return pd_plan_is_sparse(s->job->plan, stage) ? s->job->plan->stages[stage].replicas : 1;
}

static int all_savers(const struct supervisor *s)
{
	int count = 0;

	for (int i = 0; i < s->job->plan->stage_count; i++)
		count += savers_of(s, i);
	return count;
}

/*
 * Begins to write the checkpoint of the lowest step: makes its folder, and tells its stages to
 * write.
 */
static int write_next(struct supervisor *s, struct pd_error *err)
{
	struct pending *next = NULL;

	for (size_t i = 0; i < s->pending_count; i++) {
		struct pending *p = &s->pending[i];

		if (p->writing)
			return 0;
		if (p->step >= 0 && (!next || p->step < next->step))
			next = p;
	}
	if (!next || next->exported < all_savers(s))
		return 0;
	if (pd_checkpoint_lock_keep(s->job->lock, err) < 0 ||
	    pd_checkpoint_begin(s->job->checkpoint, next->step, err) < 0)
		return -1;
	next->writing = true;
	for (int r = 0; r < s->count; r++) {
		int replica, stage = supervisor_stage_of(s, r, &replica);

		if (replica < savers_of(s, stage))
			supervisor_tell(s, r, json_pack("{s:s, s:I}", "event", "write",
					     "step", (json_int_t)next->step));
	}
	return 0;
}

static void fill_stage(const struct supervisor *s, int stage, const json_t *versions,
		       const uint64_t *checksums, struct pd_checkpoint_stage *out)
{
	const struct pd_stage *from = &s->job->plan->stages[stage];

	out->layer_count = from->layer_count;
	out->layers = pd_calloc((size_t)from->layer_count, sizeof(*out->layers));
	for (int l = 0; l < from->layer_count; l++)
		out->layers[l] = pd_strdup(s->job->plan->profile->layers[from->first_layer + l].name);
	out->warmup = from->warmup;
	out->replicas = from->replicas;
	out->checksum = checksums[0];
	out->residual_count = savers_of(s, stage) - 1;
	out->residuals = pd_calloc((size_t)out->residual_count, sizeof(*out->residuals));
	for (int i = 0; i < out->residual_count; i++)
		out->residuals[i] = checksums[i + 1];
	out->version_count = (int)json_array_size(versions);
	out->versions = pd_calloc((size_t)out->version_count, sizeof(*out->versions));
	for (int i = 0; i < out->version_count; i++)
		out->versions[i] = json_integer_value(json_array_get(versions, (size_t)i));
}

static json_t *describe_optimizer(const struct pd_optimizer *o)
{
	json_t *value = json_pack("{s:s, s:f}", "kind", pd_update_kind_name[o->kind], "lr", o->rate);

	if (pd_optimizer_has_velocity(o->kind)) {
		json_object_set_new(value, "momentum", json_real(o->momentum));
	} else {
		json_object_set_new(value, "betas", json_pack("[f, f]", o->beta1, o->beta2));
		json_object_set_new(value, "eps", json_real(o->eps));
	}
	json_object_set_new(value, "weight_decay", json_real(o->weight_decay));
	if (o->kind == PD_LARS)
		json_object_set_new(value, "trust", json_real(o->trust));
	if (o->spares_vectors)
		json_object_set_new(value, "decay", json_string("matrices"));
	return value;
}

/* Returns how many checkpoints to keep, such that damaged ones do not displace whole ones. */
static int kept(const struct supervisor *s, int64_t step)
{
	int count = s->how->keep;

	for (size_t i = 0; i < s->job->passed_count; i++)
		if (s->job->passed_over[i] < step)
			count += pd_checkpoint_exists(s->job->checkpoint, s->job->passed_over[i]);
	return count;
}

static void fill_info(const struct supervisor *s, struct pending *p)
{
	const struct pd_job *job = s->job;
	struct pd_checkpoint_info *info = &p->info;

	*info = (struct pd_checkpoint_info){
		.step = p->step, .epoch = p->step / job->epoch_minibatches,
		.minibatch = p->step % job->epoch_minibatches, .seed = (uint64_t)job->seed,
		.batch_size = pd_job_microbatches(job, job->plan->profile->batch_size),
		.name = pd_strdup(job->plan->profile->name),
		.dtype = pd_strdup("f32"),      /* of the master, in a net of 16 bits */
		.optimizer = describe_optimizer(&job->optimizer),
		.stage_count = job->plan->stage_count,
	};
	if (p->scales)
		json_object_set_new(info->optimizer, "scales", p->scales);
	p->scales = NULL;
	info->stages = pd_calloc((size_t)info->stage_count, sizeof(*info->stages));
	for (int i = 0; i < info->stage_count; i++) {
		fill_stage(s, i, p->versions[i], p->checksums[i], &info->stages[i]);
		info->stages[i].elsewhere = s->ranks[job->plan->stages[i].ranks[0]].keeper != 0;
		json_decref(p->versions[i]);
		p->versions[i] = NULL;
	}
}

/* Completes it here, once all other folders have it; then older ones may go there. */
static int finish_checkpoint(struct supervisor *s, struct pending *p, struct pd_error *err)
{
	const struct pd_job *job = s->job;
	int keep = kept(s, p->step), status;

	status = pd_checkpoint_finish(job->checkpoint, &p->info, keep, err);
	pd_checkpoint_info_release(&p->info);
	if (status == 0) {
		s->last_checkpoint = p->step;
		pd_run_report_checkpoint(&s->report, job->checkpoint, p->step);
	}
	for (int r = 0; r < s->count && status == 0; r++)
		if (supervisor_keeps(s, r))
			supervisor_tell(s, r, json_pack("{s:s, s:I, s:i}", "event", "prune", "step",
							(json_int_t)p->step, "keep", keep));
	p->step = -1;
	p->exported = p->saved = 0;
	p->writing = false;
	return status < 0 ? -1 : write_next(s, err);
}

/* All stages are written: every other folder gets the document and its name. */
static int publish(struct supervisor *s, struct pending *p, struct pd_error *err)
{
	size_t bytes;
	char *document;

	fill_info(s, p);
	p->unpublished = s->keepers;
	if (s->keepers == 0)
		return finish_checkpoint(s, p, err);
	document = pd_checkpoint_info_text(&p->info, &bytes);
	for (int r = 0; r < s->count; r++)
		if (supervisor_keeps(s, r))
			supervisor_tell(s, r, supervisor_publish_message(p->step, document));
	free(document);
	return 0;
}

int supervisor_published(struct supervisor *s, const json_t *message, struct pd_error *err)
{
	struct pending *p = pending_of(s, json_integer_value(json_object_get(message, "step")));

	return p && --p->unpublished == 0 ? finish_checkpoint(s, p, err) : 0;
}

int supervisor_exported(struct supervisor *s, const json_t *message, struct pd_error *err)
{
	int64_t step = json_integer_value(json_object_get(message, "step"));
	struct pending *p = pending_of(s, step);

	if (!p)
		p = new_pending(s, step);
	p->exported++;
	if (!p->scales)
		p->scales = json_incref(json_object_get(message, "scales"));
	if (json_integer_value(json_object_get(message, "replica")) == 0)
		p->versions[json_integer_value(json_object_get(message, "stage"))] =
			json_incref(json_object_get(message, "versions"));
	return write_next(s, err);
}

int supervisor_saved(struct supervisor *s, const json_t *message, struct pd_error *err)
{
	struct pending *p = pending_of(s, json_integer_value(json_object_get(message, "step")));
	json_int_t stage = json_integer_value(json_object_get(message, "stage"));
	json_int_t replica = json_integer_value(json_object_get(message, "replica"));

	if (p)
		pd_checksum_parse(json_string_value(json_object_get(message, "checksum")),
				  &p->checksums[stage][replica]);
	if (p && ++p->saved == all_savers(s))
		return publish(s, p, err);
	return 0;
}

bool supervisor_writes(const struct supervisor *s)
{
	for (size_t i = 0; i < s->pending_count; i++)
		if (s->pending[i].step >= 0)
			return true;
	return false;
}

void supervisor_forget_pending(struct supervisor *s)
{
	for (size_t i = 0; i < s->pending_count; i++) {
		struct pending *p = &s->pending[i];

		if (p->writing)
			pd_checkpoint_abandon(s->job->checkpoint, p->step);
		for (int k = 0; k < s->job->plan->stage_count; k++)
			json_decref(p->versions[k]), free(p->checksums[k]);
		json_decref(p->scales);
		pd_checkpoint_info_release(&p->info);
		free(p->versions);
		free(p->checksums);
	}
	free(s->pending);
}
