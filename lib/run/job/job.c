/* SPDX-License-Identifier: Apache-2.0 */
#include "run/job/job.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/lock.h"
#include "doors/tensors/initial.h"
#include "doors/tensors/tensors.h"
#include "engine/data/augment.h"
#include "engine/data/loader.h"
#include "model/normalize.h"
#include "plan/sparse.h"
#include "run/job/recipe.h"
#include "schedule/check.h"
#include "schedule/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYNTHETIC_MINIBATCHES 10        /* that differ */
#define MOST_SAMPLES (INT64_C(1) << 40)         /* the most in a minibatch */

int pd_job_data(struct pd_job *job, struct pd_dataset *train_p, struct pd_dataset *test_p,
		struct pd_error *err)
{
	const struct pd_profile *profile = job->plan->profile;
	int64_t microbatches = job->plan->microbatches, size, total, all;

	if (!pd_mul(profile->batch_size, microbatches, &size) || size > MOST_SAMPLES)
		return pd_error_input(err, "%s: microbatches: %" PRId64 " of %" PRId64 " samples are"
				      " more than a minibatch of this version holds, 2^40",
				      pd_plan_name(job->plan), microbatches, profile->batch_size);
	*train_p = *test_p = (struct pd_dataset){ 0 };
	if (job->data) {
		if (pd_dataset_open(job->data, profile->model, job->only_evaluates ? NULL : train_p,
				    job->evaluate ? test_p : NULL, err) < 0)
			return -1;
		job->epoch_minibatches = pd_job_minibatches(job, pd_loader_epoch(train_p,
				profile->batch_size, microbatches));
		job->test_microbatches = job->evaluate
			? pd_loader_tests(test_p, profile->batch_size) : 0;
	} else {
		pd_dataset_synthetic(profile->model, SYNTHETIC_MINIBATCHES * size,
				     (uint64_t)job->seed, train_p);
		job->epoch_minibatches = job->synthetic_epoch > 0 ? job->synthetic_epoch
								  : SYNTHETIC_MINIBATCHES;
		job->test_microbatches = 0;
	}
	if (job->only_evaluates)
		job->epoch_minibatches = 1;
	if (job->epoch_minibatches == 0)
		return pd_error_input(err, "%s: %" PRId64 " samples are fewer than one minibatch of %"
				      PRId64, job->data, train_p->samples, size);
	total = job->minibatches;
	if (job->epochs >= 0 && !pd_mul(job->epochs, job->epoch_minibatches, &total))
		return pd_error_input(err, "--epochs=%" PRId64 ": too many", job->epochs);
	if (!pd_mul(total, microbatches, &all) || all > PD_MOST_MICROBATCHES)
		return pd_error_input(err, "%" PRId64 " minibatches are more than this version counts",
				      total);
	job->total_minibatches = job->until > 0 ? job->until : total;
	job->optimizer.epoch = job->epoch_minibatches;
	job->optimizer.one_phase = job->lists != NULL;
	job->optimizer.total = total;
	return 0;
}

/* Refuses to overwrite checkpoints that exist, whole or damaged. */
static int check_fresh(const struct pd_job *job, struct pd_error *err)
{
	int64_t step;

	if (pd_checkpoint_highest(job->checkpoint, INT64_MAX, &step, err) < 0)
		return -1;
	return step < 0 ? 0 : pd_error_input(err, "%s: holds checkpoints, the newest of step %" PRId64
					     ": --resume goes on from them, or give another "
					     "directory", job->checkpoint, step);
}

const char *pd_job_anew(const struct pd_job *job)
{
	return job->init_new || job->evaluated_step >= 0 ? job->init_new : "";
}

/* Returns a checksum of the data as documents have it, or NULL; free() it. */
static char *data_sum(const struct pd_job *job, const struct pd_dataset *set)
{
	char sum[PD_CHECKSUM_DIGITS + 1];

	if (!job->data || !set->format)
		return NULL;
	return pd_strdup(pd_checksum_text(pd_dataset_checksum(set, job->plan->profile->model),
					  sum));
}

int pd_job_read_data(struct pd_job *job, struct pd_error *err)
{
	struct pd_dataset train, test;
	const char *before = pd_mem_for("the data set");
	int status = pd_job_data(job, &train, &test, err);

	pd_mem_for(before);
	if (status == 0 && job->only_evaluates)
		pd_job_say_evaluated(job, &test);
	if (status == 0) {
		free(job->data_sum);
		job->data_sum = data_sum(job, job->only_evaluates ? &test : &train);
	}
	if (status == 0 && !job->only_evaluates) {
		json_decref(job->recipe);
		job->recipe = pd_recipe_make(job, &train);
	}
	pd_dataset_release(&train);
	pd_dataset_release(&test);
	return status;
}

int pd_job_check_sum(const char *name, uint64_t found, const char *sum, struct pd_error *err)
{
	char text[PD_CHECKSUM_DIGITS + 1];

	pd_checksum_text(found, text);
	return !sum || strcmp(text, sum) == 0 ? 0
		: pd_error_input(err, "%s: is not what the first process read under that name: "
				 "expected the same on all hosts, checksum %s, found %s", name, sum,
				 text);
}

/* What only a file says, such as a table that a network was read in with, is not made up. */
static int check_given(const struct pd_job *job, const struct pd_initial *initial,
		       struct pd_error *err)
{
	const struct pd_model *model = job->plan->profile->model;

	for (int l = 0; l < model->layer_count; l++) {
		const struct pd_layer *layer = &model->layers[l];

		for (int p = 0; p < layer->parameter_count && layer->shares < 0; p++) {
			char *name = pd_format("%s.%s", layer->name, layer->parameters[p].name);
			bool lacks = layer->parameters[p].begins == PD_BEGINS_GIVEN &&
				     (!initial || !pd_initial_has(initial, name));

			free(name);
			if (lacks)
				return pd_error_input(err, "model \"%.80s\" does not say how \"%.80s.%s\" begins: %s",
						      model->name, layer->name, layer->parameters[p].name, initial
						      ? "--init-new does not name it" : "expected --init, with what the "
						      "model was made of");
		}
	}
	return 0;
}

static int check_init(struct pd_job *job, bool resume, struct pd_error *err)
{
	char heads[PD_INITIAL_TEXT], sum[PD_CHECKSUM_DIGITS + 1];
	struct pd_initial *initial;
	uint64_t found;
	int status;

	if (!job->init)
		return !job->data || resume ? 0 : check_given(job, NULL, err);
	if (!job->init_found)
		job->init_found = pd_tensors_find_held(job->init, &job->held, err);
	job->init = job->init_found;
	initial = job->init ? pd_initial_open(job->init, job->plan->profile->model, pd_job_anew(job), err) : NULL;
	if (!initial || pd_initial_checksum(initial, &found, err) < 0 ||
	    (job->held && job->evaluated_step < 0 && pd_job_check_begun(job, err) < 0)) {
		pd_initial_close(initial);
		return job->evaluated_step < 0 ? pd_error_prefix(err, "--init") : -1;
	}
	job->init_sum = pd_strdup(pd_checksum_text(found, sum));
	if (pd_initial_other_heads(initial, heads) > 0)
		pd_say("%s: passes over %s, of heads that model \"%s\" does not have", job->init, heads,
		       job->plan->profile->model->name);
	status = check_given(job, initial, err);
	pd_initial_close(initial);
	return status;
}

char *pd_job_what(const struct pd_job *job)
{
	return pd_format("%s (%s)", job->file, job->plan->profile->name);
}

/*
 * Locks the directory of checkpoints for this run.  It is made, except for a resume, where it must
 * exist.
 */
static int claim_checkpoints(struct pd_job *job, bool resume, struct pd_error *err)
{
	char *what, host[64] = "";

	if (!job->checkpoint)
		return 0;
	gethostname(host, sizeof(host) - 1);
	job->run = job->several ? pd_format("%s-%ld-%" PRId64, host, (long)getpid(), pd_now_ns())
				: pd_strdup("");
	if (!resume || access(job->checkpoint, F_OK) == 0) {
		what = pd_job_what(job);
		job->lock = pd_checkpoint_lock(job->checkpoint, what, job->run, 0, err);
		free(what);
		if (!job->lock)
			return -1;
	}
	job->asks_ranks = resume && job->lock && job->several;
	if (job->asks_ranks)
		return 0;
	return resume ? pd_job_resume(job, err) : check_fresh(job, err);
}

/* Refuses lists that the checker accepts but no worker executes. */
static int check_executable(const struct pd_lists *lists, const struct pd_schedule *schedule,
			    struct pd_error *err)
{
	for (int r = 0; r < lists->rank_count; r++)
		for (size_t n = 0; n < lists->ranks[r].count; n++) {
			const struct pd_op *op = &lists->ranks[r].ops[n];
			int64_t line = lists->ranks[r].notes ? lists->ranks[r].notes[n].line : 0;

			if (op->kind == PD_OP_backward_input && !schedule->splits)
				return pd_error_input(err, "%s:%" PRId64 ": rank %d: a backward in two "
						      "parts: schedule \"%s\" keeps no room for it; "
						      "expected a plan of schedule \"zb-h1\"",
						      lists->name, line, r, pd_schedule_kind_name[
						      lists->plan->schedule]);
		}
	return 0;
}

/* Refuses PipeMare's options unless backward reads newer weights than forward did. */
static int check_late(const struct pd_job *job, struct pd_error *err)
{
	const char *option = job->optimizer.corrects ? "--discrepancy" :
			     job->optimizer.reschedule > 0 ? "--lr-reschedule" : NULL;

	if (!option || pd_weights_have(job->plan->weights, PD_WEIGHTS_REREADS))
		return 0;
	return pd_error_input(err, "%s: only with weights \"latest\" are gradients late, found a plan "
			      "with weights \"%s\"", option, pd_weight_kind_name[job->plan->weights]);
}

/* Refuses what sparse sums are not made for. */
static int check_sparse(const struct pd_job *job, struct pd_error *err)
{
	const struct pd_optimizer *o = &job->optimizer;

	if (job->plan->chunk == 0 && o->has_residual)
		return pd_error_input(err, "--residual: the plan's sums of gradients are not sparse, so "
				      "nothing is left of them");
	if (job->plan->chunk == 0)
		return 0;
	if (!pd_optimizer_is(o->kind, PD_OPTIMIZER_SPARSE))
		return pd_error_input(err, "--optimizer=%s: expected sgd: the plan's sums are sparse, and"
				      " what stays is corrected for momentum alone",
				      pd_optimizer_kind_name[o->kind]);
	if (o->corrects)
		return pd_error_input(err, "--discrepancy: the plan's sums are sparse: weights move in "
				      "leaps, of which the correction knows nothing");
	if (o->hyper.momentum == 0 && !o->has_residual)
		return pd_error_input(err, "--momentum=0: the plan's sums are sparse, and gradients that "
				      "stay are kept times the momentum: expected more, or "
				      "--residual=X");
	return pd_plan_check_sparse(job->plan, o->clip_norm > 0 ? "--clip-grad-norm: "
				    : o->loss_scale > 0 ? "--loss-scale: " : "", err);
}

static int check_order(const struct pd_job *job, struct pd_error *err)
{
	struct pd_schedule *schedule = pd_schedule_new(job->plan, err);
	int status = -1;

	if (schedule && (!job->lists || (pd_check(job->lists, err) == 0 &&
					 check_executable(job->lists, schedule, err) == 0)))
		status = 0;
	pd_schedule_free(schedule);
	return status;
}

/*
 * Makes all ranks agree on each update where an option needs all gradients, or in f16: without a
 * loss scale small gradients vanish, and with one large gradients overflow, which all ranks must
 * know.
 */
static int set_agree(struct pd_job *job, struct pd_error *err)
{
	bool f16 = job->plan->profile->dtype == PD_F16;
	const char *option = job->optimizer.clip_norm > 0 ? "--clip-grad-norm"
			   : job->optimizer.loss_scale > 0 ? "--loss-scale"
			   : f16 ? "dtype f16, whose loss is scaled" : NULL;
	struct pd_plan *plan = job->plan;

	if (!option)
		return 0;
	if (!pd_weights_have(plan->weights, PD_WEIGHTS_GROUPS))
		return pd_error_input(err, "%s: a plan with weights \"%s\" updates after every "
				      "minibatch, and all stages would wait for each other in each; "
				      "expected one with \"2bw\" or \"flush\"", option,
				      pd_weight_kind_name[plan->weights]);
	if (job->lists && !pd_plan_agrees(plan))
		return pd_error_input(err, "%s: the schedule does not have its ranks agree on updates; "
				      "expected one of a plan with \"agree\": true", option);
	plan->agree = true;
	if (f16 && job->optimizer.loss_scale == 0) {
		job->optimizer.loss_scale = PD_FIRST_LOSS_SCALE;
		job->optimizer.loss_scale_interval = PD_LOSS_SCALE_INTERVAL;
	}
	return 0;
}

/* Checks outputs now that would else fail only when they are written. */
static int check_outputs(struct pd_job *job, struct pd_error *err)
{
	struct stat st;

	if (job->checkpoint && stat(job->checkpoint, &st) == 0 && !S_ISDIR(st.st_mode))
		return pd_error_input(err, "--checkpoint: %s: expected a directory, found a file",
				      job->checkpoint);
	if (pd_file_check(job->trace, err) < 0 ||
	    pd_file_open_special(&job->trace_file, job->trace, err) < 0)
		return pd_error_prefix(err, "--trace");
	return 0;
}

/* The state of lanes that replicas have is together only where the pipeline is empty. */
static int check_lanes(const struct pd_job *job, struct pd_error *err)
{
	for (int s = 0; s < job->plan->stage_count && job->checkpoint_every > 0; s++)
		if (pd_plan_deals_lanes(job->plan, s))
			return pd_error_input(err, "--checkpoint-every: stage %d has lanes and %d "
					      "replicas, whose state is together at the end of an "
					      "epoch: expected no checkpoints inside of one", s,
					      job->plan->stages[s].replicas);
	return 0;
}

/* Checks that what the options ask of updates goes with the plan. */
static int check_training(struct pd_job *job, struct pd_error *err)
{
	return set_agree(job, err) < 0 || check_late(job, err) < 0 || check_lanes(job, err) < 0 ||
	       check_sparse(job, err) < 0 ? -1 : 0;
}

/* Checks what is asked of the data; the model then says itself how they are normalised. */
static int set_data_options(struct pd_job *job, struct pd_error *err)
{
	struct pd_model *model = job->plan->profile->model;
	struct pd_augment augment;

	if (job->normalize && pd_model_normalize(model, job->normalize, err) < 0)
		return -1;
	return job->augment ? pd_augment_parse(job->augment, model, &augment, err) : 0;
}

int pd_job_check(struct pd_job *job, bool resume, struct pd_error *err)
{
	const struct pd_profile *profile = job->plan->profile;

	if (!profile->model)
		return pd_error_input(err, "%s: profile: has no model: it can be replayed, not run",
				      pd_plan_name(job->plan));
	if (pd_degrees_devices(&profile->group) > 1)
		return pd_error_input(err, "%s: profile: group: a rank is %" PRId64 " devices that share layers out, which "
				      "pd-run cannot: expected a plan made without --tensor and --shard",
				      pd_plan_name(job->plan), pd_degrees_devices(&profile->group));
	if (job->plan->profile->memory.model != PD_MEMORY_OWN)
		return pd_error_input(err, "%s: profile: memory: it is that of %s: expected a plan made without "
				      "--memory-model", pd_plan_name(job->plan),
				      pd_memory_model_name[job->plan->profile->memory.model]);
	if (pd_model_losses(profile->model, 0, profile->model->layer_count) == 0)
		return pd_error_input(err, "%s: model \"%s\" has no loss, so there is nothing to make small"
				      " by training: expected a layer of kind softmax_cross_entropy or mse",
				      pd_plan_name(job->plan), profile->model->name);
	if (pd_model_check_batch(profile->model, profile->batch_size, err) < 0)
		return pd_error_prefix(err, "%s", pd_plan_name(job->plan));
	if (check_outputs(job, err) < 0 || set_data_options(job, err) < 0 ||
	    (!job->only_evaluates && check_training(job, err) < 0) ||
	    check_order(job, err) < 0 ||
	    (job->only_evaluates && job->checkpoint && pd_job_find_evaluated(job, err) < 0) ||
	    check_init(job, resume, err) < 0)
		return -1;
	if (pd_job_read_data(job, err) < 0)
		return -1;
	if (!resume && !job->only_evaluates)
		pd_job_say_trained(job);
	return claim_checkpoints(job, resume, err);
}
