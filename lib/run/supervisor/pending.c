/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pending checkpoints: each rank exports its part when it passes the step.  Once all have, they are
 * told to write, one checkpoint after the other.
 */
#include "run/supervisor/internal.h"

#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/lock.h"
#include "plan/sparse.h"

#include <inttypes.h>
#include <stdlib.h>

/* A checkpoint that some ranks have exported, but not all have written. */
struct pending {
	int64_t step;                   /* -1: unused */
	int exported, saved;
	int unpublished;                /* keepers that have yet to publish it */
	bool writing;
	struct pd_checkpoint_info info; /* whole once all files are saved */
};

static struct pending *pending_of(struct supervisor *s, int64_t step)
{
	for (size_t i = 0; i < s->pending_count; i++)
		if (s->pending[i].step == step)
			return &s->pending[i];
	return NULL;
}

static void fill_stage(const struct pd_plan *plan, int stage, struct pd_checkpoint_stage *out)
{
	const struct pd_stage *from = &plan->stages[stage];

	out->layer_count = from->layer_count;
	out->layers = pd_calloc((size_t)from->layer_count, sizeof(*out->layers));
	out->frozen = pd_calloc((size_t)from->layer_count, sizeof(*out->frozen));
	for (int l = 0; l < from->layer_count; l++) {
		out->layers[l] = pd_strdup(plan->profile->layers[from->first_layer + l].name);
		out->frozen[l] = plan->profile->model->layers[from->first_layer + l].frozen;
	}
	out->warmup = from->warmup;
	out->replicas = from->replicas;
}

static void add_file(const struct supervisor *s, int stage, int replica,
		     struct pd_checkpoint_info *info)
{
	int rank = s->job->plan->stages[stage].ranks[replica];

	info->files = pd_regrow(info->files, (size_t)info->file_count + 1, sizeof(*info->files));
	info->files[info->file_count++] = (struct pd_checkpoint_file){
		.stage = stage, .replica = replica, .in_other_folder = s->ranks[rank].keeper != 0,
	};
}

/* Describes a checkpoint as far as it is known before ranks have exported and saved it. */
static void fill_info(const struct supervisor *s, int64_t step, struct pd_checkpoint_info *info)
{
	const struct pd_job *job = s->job;
	const struct pd_plan *plan = job->plan;

	*info = (struct pd_checkpoint_info){
		.step = step, .epoch = step / job->epoch_minibatches,
		.minibatch = step % job->epoch_minibatches, .seed = (uint64_t)job->seed,
		.batch_size = pd_job_microbatches(job, plan->profile->batch_size),
		.name = pd_strdup(plan->profile->name),
		.dtype = pd_strdup("f32"),      /* of the master, in a net of 16 bits */
		.optimizer = json_copy(json_object_get(job->recipe, "optimizer")),
		.model = json_incref(plan->profile->model->json),
		.recipe = json_copy(job->recipe),
		.stage_count = plan->stage_count,
	};
	json_object_del(info->recipe, "optimizer");
	info->stages = pd_calloc((size_t)info->stage_count, sizeof(*info->stages));
	for (int i = 0; i < plan->stage_count; i++) {
		fill_stage(plan, i, &info->stages[i]);
		add_file(s, i, 0, info);
	}
	for (int i = 0; i < plan->stage_count; i++)
		for (int n = 1; n < plan->stages[i].replicas && pd_plan_is_sparse(plan, i); n++)
			add_file(s, i, n, info);
}

static struct pending *new_pending(struct supervisor *s, int64_t step)
{
	struct pending *p = pending_of(s, -1);

	if (!p) {
		s->pending = pd_grow(s->pending, &s->pending_capacity, s->pending_count + 1,
				     sizeof(*s->pending));
		p = &s->pending[s->pending_count++];
	}
	fill_info(s, step, &p->info);
	p->step = step;
	return p;
}

/*
 * Begins to write the checkpoint of the lowest step: makes its folder, and tells its ranks to write.
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
	if (!next || next->exported < next->info.file_count)
		return 0;
	if (pd_checkpoint_lock_keep(s->job->lock, err) < 0 ||
	    pd_checkpoint_begin(s->job->checkpoint, next->step, err) < 0)
		return -1;
	next->writing = true;
	for (int r = 0; r < s->count; r++) {
		int replica, stage = supervisor_stage_of(s, r, &replica);

		if (pd_checkpoint_file_number(&next->info, stage, replica) >= 0)
			supervisor_tell(s, r, json_pack("{s:s, s:I}", "event", "write",
					     "step", (json_int_t)next->step));
	}
	return 0;
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

/* All files are written: every other folder gets the document and its name. */
static int publish(struct supervisor *s, struct pending *p, struct pd_error *err)
{
	size_t bytes;
	char *document;

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
	struct pending *p = pending_of(s, pd_member_int(message, "step"));

	return p && !supervisor_gives_up(s) && --p->unpublished == 0 ? finish_checkpoint(s, p, err) : 0;
}

static void fill_versions(const json_t *versions, struct pd_checkpoint_stage *out)
{
	out->version_count = (int)json_array_size(versions);
	out->versions = pd_calloc((size_t)out->version_count, sizeof(*out->versions));
	for (int i = 0; i < out->version_count; i++)
		out->versions[i] = json_integer_value(json_array_get(versions, (size_t)i));
}

/* Says so, of the first one. */
static void note_bad(struct supervisor *s, int64_t step, const char *name)
{
	if (s->bad_step >= 0 || supervisor_gives_up(s))
		return;
	s->bad_step = step;
	pd_progress_bar_hide(&s->report.bar);
	pd_say("the checkpoint of step %" PRId64 ": \"%s\" has a number that is not finite", step, name);
}

int supervisor_exported(struct supervisor *s, const json_t *message, struct pd_error *err)
{
	int64_t step = pd_member_int(message, "step");
	json_t *scales = json_object_get(message, "scales");
	const char *not_finite = pd_member_text(message, "not_finite");
	struct pending *p = pending_of(s, step);

	if (not_finite)
		note_bad(s, step, not_finite);
	if (supervisor_gives_up(s))
		return 0;

	if (!p)
		p = new_pending(s, step);
	p->exported++;
	if (scales)                     /* which are equal at all stages */
		json_object_set(p->info.optimizer, "scales", scales);
	if (pd_member_int(message, "replica") == 0)
		fill_versions(json_object_get(message, "versions"),
			      &p->info.stages[pd_member_int(message, "stage")]);
	return write_next(s, err);
}

int supervisor_saved(struct supervisor *s, const json_t *message, struct pd_error *err)
{
	struct pending *p = pending_of(s, pd_member_int(message, "step"));
	struct pd_checkpoint_file file = pd_job_file_of(message);
	int number = p ? pd_checkpoint_file_number(&p->info, file.stage, file.replica) : -1;

	if (number < 0 || supervisor_gives_up(s))
		return 0;
	p->info.files[number].checksum = file.checksum;
	return ++p->saved == p->info.file_count ? publish(s, p, err) : 0;
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
		pd_checkpoint_info_release(&p->info);
	}
	free(s->pending);
}
