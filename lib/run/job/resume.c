/* SPDX-License-Identifier: Apache-2.0 */
/* Lets a job go on from a checkpoint. */
#include "run/job/job.h"

#include "base/mem.h"
#include "model/normalize.h"
#include "run/job/recipe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void pd_job_pass_over(void *context, int64_t step, const struct pd_error *why)
{
	struct pd_job *job = context;

	job->passed_over = pd_grow(job->passed_over, &job->passed_capacity, job->passed_count + 1,
				   sizeof(*job->passed_over));
	job->passed_over[job->passed_count++] = step;
	pd_say("%s: passes over the checkpoint of step %" PRId64 ": %.400s", job->checkpoint, step,
	       why->text);
}

void pd_job_release_held(struct pd_job *job)
{
	pd_checkpoint_close(job->held);
	job->held = NULL;
}

/* Opens the checkpoint of resume_step, or the newest, and verifies all of it. */
static struct pd_checkpoint *open_resumed(struct pd_job *job, struct pd_error *err)
{
	struct pd_checkpoint *ck;
	int64_t highest;

	if (job->resume_step < 0)
		return pd_checkpoint_newest(job->checkpoint, pd_job_pass_over, job, err);
	if (pd_checkpoint_highest(job->checkpoint, INT64_MAX, &highest, err) < 0)
		return NULL;
	if (highest >= 0 && !pd_checkpoint_exists(job->checkpoint, job->resume_step)) {
		pd_error_input(err, "--resume=%" PRId64 ": %s has no checkpoint of that step; the newest is"
			       " of step %" PRId64, job->resume_step, job->checkpoint, highest);
		return NULL;
	}
	ck = pd_checkpoint_open(job->checkpoint, job->resume_step, err);
	if (!ck || pd_checkpoint_verify(ck, err) < 0) {
		pd_checkpoint_close(ck);
		pd_error_prefix(err, "--resume=%" PRId64, job->resume_step);
		return NULL;
	}
	return ck;
}

/* Data are normalised as they were in training; what was read of them before is read so again. */
static int check_same_model(struct pd_job *job, const struct pd_checkpoint_info *info,
			    struct pd_error *err)
{
	const char *name = job->plan->profile->name;
	const char *note = NULL;

	if (strcmp(info->name, name) != 0)
		return pd_error_input(err, "%s: a checkpoint of \"%s\", found a plan for \"%s\"",
				      job->checkpoint, info->name, name);
	if (job->data && info->model &&
	    pd_model_normalize_as(job->plan->profile->model, job->checkpoint, info->model, &note, err) < 0)
		return -1;
	if (note && !job->quiet)
		pd_say("%s: %s", job->checkpoint, note);
	return note && !job->only_evaluates ? pd_job_read_data(job, err) : 0;
}

static int check_same_run(struct pd_job *job, const struct pd_checkpoint_info *info,
			  struct pd_error *err)
{
	const char *wanted = pd_optimizer_kind_name[job->optimizer.kind];
	const char *kind = pd_member_text(info->optimizer, "kind");
	const struct pd_profile *profile = job->plan->profile;

	if (check_same_model(job, info, err) < 0 ||
	    pd_recipe_check_network(job, info, job->checkpoint, PD_RECIPE_RESUMES, err) < 0)
		return -1;
	/* the order of samples and all random numbers depend on it */
	if (info->seed != (uint64_t)job->seed)
		return pd_error_input(err, "%s: trained with --seed=%" PRIu64 ", found --seed=%" PRId64,
				      job->checkpoint, info->seed, job->seed);
	if (info->batch_size != pd_job_microbatches(job, profile->batch_size))
		return pd_error_input(err, "%s: trained with minibatches of %" PRId64 " samples"
				      ", found a plan for %" PRId64 " (%" PRId64 " x %" PRId64 ")",
				      job->checkpoint, info->batch_size,
				      pd_job_microbatches(job, profile->batch_size),
				      job->plan->microbatches, profile->batch_size);
	if (info->step > PD_MOST_MICROBATCHES / job->plan->microbatches)
		return pd_error_input(err, "%s: step %" PRId64 ": more minibatches than this version"
				      " counts", job->checkpoint, info->step);
	if (!kind || strcmp(kind, wanted) != 0)
		/* the optimizer's moments would have another meaning */
		return pd_error_input(err, "%s: trained with --optimizer=%.60s, found"
				      " --optimizer=%s", job->checkpoint, kind ? kind : "(none)",
				      wanted);
	return 0;
}

/* Refuses a plan in which other layers learn: moments and older versions of theirs are missing, or too much. */
static int check_frozen(const struct pd_job *job, const struct pd_checkpoint_info *info, struct pd_error *err)
{
	const struct pd_model *model = job->plan->profile->model;

	for (int i = 0; i < info->stage_count; i++)
		for (int k = 0; k < info->stages[i].layer_count; k++) {
			const struct pd_checkpoint_stage *stage = &info->stages[i];
			int l = pd_model_find(model, stage->layers[k]);
			bool was = stage->frozen && stage->frozen[k];

			if (l >= 0 && model->layers[l].frozen != was)
				return pd_error_input(err, "%s: trained with layer \"%.60s\" %s, found a plan in which "
						      "it %s: expected the same, or --init to begin anew with "
						      "the checkpoint's parameters", job->checkpoint, stage->layers[k],
						      was ? "frozen" : "learning", was ? "learns" : "is frozen");
		}
	return 0;
}

/* Returns whether every stage has the replicas that the checkpoint was trained with. */
static bool same_replicas(const struct pd_plan *plan, const struct pd_checkpoint *ck)
{
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];

		for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
			const struct pd_checkpoint_stage *held =
				pd_checkpoint_stage_of(ck, plan->profile->layers[l].name);

			if (!held || held->replicas != stage->replicas)
				return false;
		}
	}
	return true;
}

/*
 * Warns about a resume inside an update of a stage with replicas.  There the run before made its
 * last update of fewer minibatches, as an uninterrupted run would not have.
 */
static int note_cut(const struct pd_job *job, const struct pd_checkpoint *ck, struct pd_error *err)
{
	struct pd_schedule *schedule = pd_schedule_new(job->plan, err);
	int64_t into, unit;

	if (!schedule)
		return -1;
	unit = pd_schedule_unit(schedule);
	into = pd_job_microbatches(job, job->resume_step % job->epoch_minibatches);
	if (into % unit != 0 && same_replicas(job->plan, ck))
		pd_say("%s: step %" PRId64 " is inside an update of a stage with replicas, and the run"
		       " before made it of fewer minibatches: weights will not be those of a run"
		       " without a stop; those of a stop at a multiple of %" PRId64 " are",
		       job->checkpoint, job->resume_step, unit);
	pd_schedule_free(schedule);
	return 0;
}

void pd_job_say_trained(const struct pd_job *job)
{
	if (!job->quiet && pd_job_trained(job))
		pd_say("nothing is left to train: by --minibatches or --epochs training ends at step"
		       " %" PRId64 "%s", job->total_minibatches,
		       job->test_microbatches > 0 ? "; evaluating" : "");
}

int pd_job_go_on(struct pd_job *job, const struct pd_checkpoint *ck, struct pd_error *err)
{
	const struct pd_checkpoint_info *info = pd_checkpoint_info(ck);
	int status = check_same_run(job, info, err) < 0 || check_frozen(job, info, err) < 0 ? -1 : 0;

	job->resume_step = info->step;
	if (status == 0 && !job->quiet)
		pd_say("%s: goes on from step %" PRId64 "%s", job->checkpoint, info->step,
		       info->checksums ? "" : ", whose checkpoint is of an earlier version and has no"
		       " checksums: neither damaged numbers in it nor other data would be noticed");
	if (status == 0) {
		pd_recipe_tell(job, info);
		pd_job_say_trained(job);
	}
	return status < 0 ? -1 : note_cut(job, ck, err);
}

int pd_job_resume(struct pd_job *job, struct pd_error *err)
{
	struct pd_checkpoint *ck = open_resumed(job, err);
	int status = ck ? pd_job_go_on(job, ck, err) : -1;

	pd_checkpoint_close(ck);
	return status;
}

int pd_job_find_evaluated(struct pd_job *job, struct pd_error *err)
{
	struct pd_checkpoint *ck = open_resumed(job, err);
	int status = !ck || check_same_model(job, pd_checkpoint_info(ck), err) < 0 ? -1
		: pd_recipe_check_network(job, pd_checkpoint_info(ck), job->checkpoint,
					  PD_RECIPE_EVALUATES, err);

	if (!ck && job->several) {
		const struct pd_error why = *err;

		pd_error_input(err, "%.380s; what hosts have in folders of their own --gather=DIR brings together", why.text);
	}
	if (status == 0) {
		job->evaluated_step = pd_checkpoint_info(ck)->step;
		job->init = job->init_found = pd_checkpoint_folder(job->checkpoint, job->evaluated_step);
		job->held = ck;
	} else {
		pd_checkpoint_close(ck);
	}
	job->checkpoint = NULL;         /* nothing is written there */
	job->resume_step = -1;
	return status;
}

int pd_job_check_begun(struct pd_job *job, struct pd_error *err)
{
	const struct pd_checkpoint_info *info = pd_checkpoint_info(job->held);
	const char *note = NULL;

	if (pd_recipe_check_network(job, info, job->init, job->only_evaluates ? PD_RECIPE_EVALUATES
				    : PD_RECIPE_BEGINS, err) < 0)
		return -1;
	if (!job->data || !info->model)
		return 0;
	if (pd_model_normalize_as(job->plan->profile->model, job->init, info->model, &note,
				  err) < 0)
		return -1;
	if (note && !job->quiet)
		pd_say("%s: %s", job->init, note);
	return 0;
}

void pd_job_say_evaluated(const struct pd_job *job, const struct pd_dataset *test)
{
	if (!job->quiet)
		pd_say("evaluates %s on the test set of %s (%s), %" PRId64 " sample%s", job->init, job->data,
		       test->format->name, test->samples, test->samples == 1 ? "" : "s");
}
