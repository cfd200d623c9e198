/* SPDX-License-Identifier: Apache-2.0 */
#include "run/job.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/initial.h"
#include "checkpoint/lock.h"
#include "data/loader.h"
#include "plan/sparse.h"
#include "schedule/check.h"
#include "schedule/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYNTHETIC_MINIBATCHES 10        /* that differ */
#define MOST_SAMPLES (INT64_C(1) << 40)         /* the most in a minibatch */
#define MOST_MICROBATCHES (INT64_C(1) << 40)    /* the most in a run */

static json_t *optimizer_json(const struct pd_optimizer *o)
{
	json_t *value = json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:I, s:f, s:f, s:I, s:f, s:f,"
			 " s:I}", "kind", o->kind, "rate", o->rate, "momentum", o->momentum,
			 "beta1", o->beta1, "beta2", o->beta2, "eps", o->eps,
			 "weight_decay", o->weight_decay, "schedule", o->schedule,
			 "step_epochs", (json_int_t)o->step_epochs, "gamma", o->gamma,
			 "power", o->power, "warmup", (json_int_t)o->warmup,
			 "clip_norm", o->clip_norm, "loss_scale", o->loss_scale,
			 "loss_scale_interval", (json_int_t)o->loss_scale_interval);

	json_object_set_new(value, "trust", json_real(o->trust));
	json_object_set_new(value, "spares_vectors", json_boolean(o->spares_vectors));
	json_object_set_new(value, "reschedule", json_integer(o->reschedule));
	json_object_set_new(value, "corrects", json_boolean(o->corrects));
	json_object_set_new(value, "discrepancy", json_real(o->discrepancy));
	json_object_set_new(value, "residual", json_real(o->residual));
	json_object_set_new(value, "has_residual", json_boolean(o->has_residual));
	return value;
}

static int optimizer_parse(json_t *value, struct pd_optimizer *o)
{
	json_int_t step_epochs, warmup, interval;
	int kind, schedule;

	if (json_unpack(value, "{s:i, s:F, s:F, s:F, s:F, s:F, s:F, s:i, s:I, s:F, s:F, s:I, s:F, s:F,"
			" s:I}",
			"kind", &kind, "rate", &o->rate, "momentum", &o->momentum,
			"beta1", &o->beta1, "beta2", &o->beta2, "eps", &o->eps,
			"weight_decay", &o->weight_decay, "schedule", &schedule,
			"step_epochs", &step_epochs, "gamma", &o->gamma, "power", &o->power,
			"warmup", &warmup, "clip_norm", &o->clip_norm,
			"loss_scale", &o->loss_scale, "loss_scale_interval", &interval) < 0)
		return -1;
	o->kind = (enum pd_update_kind)kind;
	o->schedule = (enum pd_lr_schedule)schedule;
	o->step_epochs = step_epochs;
	o->warmup = warmup;
	o->loss_scale_interval = interval;
	o->trust = json_real_value(json_object_get(value, "trust"));
	o->spares_vectors = json_is_true(json_object_get(value, "spares_vectors"));
	o->reschedule = json_integer_value(json_object_get(value, "reschedule"));
	o->corrects = json_is_true(json_object_get(value, "corrects"));
	o->discrepancy = json_real_value(json_object_get(value, "discrepancy"));
	o->residual = json_real_value(json_object_get(value, "residual"));
	o->has_residual = json_is_true(json_object_get(value, "has_residual"));
	return 0;
}

json_t *pd_job_place_json(const struct pd_job *job, int rank, const struct pd_seat *seat)
{
	json_t *value = json_pack("{s:s, s:o}", "event", "place", "seat", pd_seat_json(seat));
	char *text = job->lists ? pd_lists_text(job->lists, rank) : NULL;

	if (text) {
		json_object_set_new(value, "schedule", json_string(text));
		json_object_set_new(value, "schedule_minibatches",
				    json_integer(job->lists->minibatches));
	}
	free(text);
	return value;
}

json_t *pd_job_json(const struct pd_job *job)
{
	json_t *value = json_pack("{s:s, s:o, s:s, s:s*, s:s*, s:s*, s:I, s:I, s:I, s:I, s:I,"
			 " s:o, s:b, s:I}",
			 "event", "job", "plan", pd_plan_json(job->plan), "device", job->device,
			 "data", job->data, "checkpoint", job->checkpoint, "trace", job->trace,
			 "epochs", (json_int_t)job->epochs,
			 "minibatches", (json_int_t)job->minibatches,
			 "checkpoint_every", (json_int_t)job->checkpoint_every,
			 "seed", (json_int_t)job->seed, "threads", (json_int_t)job->threads,
			 "optimizer", optimizer_json(&job->optimizer),
			 "evaluate", (int)job->evaluate,
			 "resume_step", (json_int_t)job->resume_step);

	if (job->init)
		json_object_set_new(value, "init", json_string(job->init));
	json_object_set_new(value, "synthetic_epoch", json_integer(job->synthetic_epoch));
	json_object_set_new(value, "apart", json_boolean(job->apart));
	json_object_set_new(value, "tf32", json_boolean(job->tf32));
	if (job->transport)
		json_object_set_new(value, "transport", json_string(job->transport));
	return value;
}

/* Parses this rank's list, if the job has lists. */
static int parse_list(struct pd_job *job, json_t *value, struct pd_error *err)
{
	const char *text = json_string_value(json_object_get(value, "schedule"));
	json_t *minibatches = json_object_get(value, "schedule_minibatches");

	if (!text)
		return 0;
	job->lists = pd_lists_new("schedule", job->plan, NULL, json_integer_value(minibatches),
				  err);
	return job->lists ? pd_lists_read_text(job->lists, text, err) : -1;
}

struct pd_job *pd_job_parse(json_t *value, struct pd_error *err)
{
	struct pd_place root = pd_place_root("job", value), plan = pd_place_key(&root, "plan");
	struct pd_job *job = pd_zalloc(sizeof(*job));
	json_int_t epochs, minibatches, every, seed, threads, resume;
	json_t *optimizer;
	int evaluate;

	job->json = json_incref(value);
	job->init = json_string_value(json_object_get(value, "init"));
	job->synthetic_epoch = json_integer_value(json_object_get(value, "synthetic_epoch"));
	job->apart = json_is_true(json_object_get(value, "apart"));
	job->tf32 = json_is_true(json_object_get(value, "tf32"));
	job->transport = json_string_value(json_object_get(value, "transport"));
	if (json_unpack(value, "{s:s, s?s, s?s, s?s, s:I, s:I, s:I, s:I, s:I, s:o, s:b, s:I}",
			"device", &job->device, "data", &job->data, "checkpoint", &job->checkpoint,
			"trace", &job->trace, "epochs", &epochs, "minibatches", &minibatches,
			"checkpoint_every", &every, "seed", &seed, "threads", &threads,
			"optimizer", &optimizer, "evaluate", &evaluate,
			"resume_step", &resume) < 0 ||
	    optimizer_parse(optimizer, &job->optimizer) < 0 ||
	    pd_seat_parse(json_object_get(value, "seat"), &job->seat) < 0) {
		pd_error_failed(err, "the launcher sent a job that cannot be read");
		pd_job_free(job);
		return NULL;
	}
	job->epochs = epochs;
	job->minibatches = minibatches;
	job->checkpoint_every = every;
	job->seed = seed;
	job->threads = threads;
	job->evaluate = evaluate;
	job->resume_step = resume;
	job->plan = pd_plan_parse_at(&plan, err);
	if (!job->plan || parse_list(job, value, err) < 0) {
		pd_job_free(job);
		return NULL;
	}
	return job;
}

void pd_job_free(struct pd_job *job)
{
	if (!job)
		return;
	pd_lists_free(job->lists);
	pd_plan_free(job->plan);
	json_decref(job->json);
	free(job);
}

int pd_job_data(struct pd_job *job, struct pd_dataset *train_p, struct pd_dataset *test_p,
		struct pd_error *err)
{
	const struct pd_profile *profile = job->plan->profile;
	int64_t microbatches = job->plan->microbatches, size, total, all;

	if (!pd_mul(profile->batch_size, microbatches, &size) || size > MOST_SAMPLES)
		return pd_error_input(err, "plan: microbatches: %" PRId64 " of %" PRId64 " samples are"
				      " more than a minibatch of this version holds, 2^40",
				      microbatches, profile->batch_size);
	*train_p = *test_p = (struct pd_dataset){ 0 };
	if (job->data) {
		if (pd_dataset_open(job->data, profile->model, train_p,
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
	if (job->epoch_minibatches == 0)
		return pd_error_input(err, "%s: %" PRId64 " samples are fewer than one minibatch of %"
				      PRId64, job->data, train_p->samples, size);
	total = job->minibatches;
	if (job->epochs >= 0 && !pd_mul(job->epochs, job->epoch_minibatches, &total))
		return pd_error_input(err, "--epochs=%" PRId64 ": too many", job->epochs);
	if (!pd_mul(total, microbatches, &all) || all > MOST_MICROBATCHES)
		return pd_error_input(err, "%" PRId64 " minibatches are more than this version counts",
				      total);
	job->total_minibatches = total;
	job->optimizer.epoch = job->epoch_minibatches;
	job->optimizer.one_phase = job->lists != NULL;
	job->optimizer.total = total;
	return 0;
}

/* Refuses to overwrite checkpoints that exist, whole or damaged. */
static int check_fresh(const struct pd_job *job, struct pd_error *err)
{
	int64_t step = pd_checkpoint_highest(job->checkpoint, INT64_MAX);

	return step < 0 ? 0 : pd_error_input(err, "%s: holds checkpoints, the newest of step %" PRId64
					     ": --resume goes on from them, or give another "
					     "directory", job->checkpoint, step);
}

void pd_job_pass_over(void *context, int64_t step, const struct pd_error *why)
{
	struct pd_job *job = context;

	job->passed_over = pd_grow(job->passed_over, &job->passed_capacity, job->passed_count + 1,
				   sizeof(*job->passed_over));
	job->passed_over[job->passed_count++] = step;
	pd_say("%s: passes over the checkpoint of step %" PRId64 ": %.400s", job->checkpoint, step,
	       why->text);
}

/* Opens the checkpoint of resume_step, or the newest, and verifies all of it. */
static struct pd_checkpoint *open_resumed(struct pd_job *job, struct pd_error *err)
{
	struct pd_checkpoint *ck;

	if (job->resume_step < 0)
		return pd_checkpoint_newest(job->checkpoint, pd_job_pass_over, job, err);
	ck = pd_checkpoint_open(job->checkpoint, job->resume_step, err);
	if (!ck || pd_checkpoint_verify(ck, err) < 0) {
		pd_checkpoint_close(ck);
		pd_error_prefix(err, "--resume=%" PRId64, job->resume_step);
		return NULL;
	}
	return ck;
}

static int check_same_run(const struct pd_job *job, const struct pd_checkpoint_info *info,
			  struct pd_error *err)
{
	const char *wanted = pd_update_kind_name[job->optimizer.kind];
	const char *kind = json_string_value(json_object_get(info->optimizer, "kind"));
	const struct pd_profile *profile = job->plan->profile;

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
	if (info->step > MOST_MICROBATCHES / job->plan->microbatches)
		return pd_error_input(err, "%s: step %" PRId64 ": more minibatches than this version"
				      " counts", job->checkpoint, info->step);
	if (strcmp(info->name, profile->name) != 0)
		return pd_error_input(err, "%s: a checkpoint of \"%s\", found a plan for \"%s\"",
				      job->checkpoint, info->name, profile->name);
	if (!kind || strcmp(kind, wanted) != 0)
		/* the optimizer's moments would have another meaning */
		return pd_error_input(err, "%s: trained with --optimizer=%.60s, found"
				      " --optimizer=%s", job->checkpoint, kind ? kind : "(none)",
				      wanted);
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

int pd_job_go_on(struct pd_job *job, const struct pd_checkpoint *ck, struct pd_error *err)
{
	const struct pd_checkpoint_info *info = pd_checkpoint_info(ck);
	int status = check_same_run(job, info, err);

	job->resume_step = info->step;
	if (status == 0 && !job->quiet)
		pd_say("%s: goes on from step %" PRId64 "%s", job->checkpoint, info->step,
		       info->checksums ? "" : ", whose checkpoint is of an earlier version and has no"
		       " checksums: damaged numbers in it would not be noticed");
	return status < 0 ? -1 : note_cut(job, ck, err);
}

int pd_job_resume(struct pd_job *job, struct pd_error *err)
{
	struct pd_checkpoint *ck = open_resumed(job, err);
	int status = ck ? pd_job_go_on(job, ck, err) : -1;

	pd_checkpoint_close(ck);
	return status;
}

static int check_init(const struct pd_job *job, struct pd_error *err)
{
	struct pd_initial *initial;

	if (!job->init)
		return 0;
	initial = pd_initial_open(job->init, job->plan->profile->model, err);
	pd_initial_close(initial);
	return initial ? 0 : pd_error_prefix(err, "--init");
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
	job->awaits = resume && job->lock && job->several;
	if (job->awaits)
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

	if (!option || job->plan->weights == PD_WEIGHTS_LATEST)
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
	if (o->kind != PD_SGD)
		return pd_error_input(err, "--optimizer=%s: expected sgd: the plan's sums are sparse, and"
				      " what stays is corrected for momentum alone",
				      pd_update_kind_name[o->kind]);
	if (o->corrects)
		return pd_error_input(err, "--discrepancy: the plan's sums are sparse: weights move in "
				      "leaps, of which the correction knows nothing");
	if (o->momentum == 0 && !o->has_residual)
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
	if (plan->weights != PD_WEIGHTS_2BW && plan->weights != PD_WEIGHTS_FLUSH)
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

int pd_job_check(struct pd_job *job, bool resume, struct pd_error *err)
{
	const struct pd_profile *profile = job->plan->profile;
	struct pd_dataset train, test;
	const char *before;
	int status;

	if (!profile->model)
		return pd_error_input(err, "the plan's profile has no model: it can be replayed, not"
				      " run");
	if (pd_model_losses(profile->model, 0, profile->model->layer_count) == 0)
		return pd_error_input(err, "model \"%s\" has no loss, so there is nothing to make small"
				      " by training: expected a layer of kind"
				      " softmax_cross_entropy", profile->model->name);
	if (check_outputs(job, err) < 0 || set_agree(job, err) < 0 || check_late(job, err) < 0 ||
	    check_lanes(job, err) < 0 || check_sparse(job, err) < 0 ||
	    check_order(job, err) < 0 || check_init(job, err) < 0)
		return -1;
	before = pd_mem_for("the data set");
	status = pd_job_data(job, &train, &test, err);
	pd_mem_for(before);
	pd_dataset_release(&train);
	pd_dataset_release(&test);
	if (status < 0)
		return -1;
	return claim_checkpoints(job, resume, err);
}

void pd_job_begin(const struct pd_job *job, struct pd_position *position)
{
	*position = (struct pd_position){ .number = -1, .next = pd_job_first(job) };
}

static int64_t epoch_microbatches(const struct pd_job *job)
{
	return pd_job_microbatches(job, job->epoch_minibatches);
}

/* Returns the end of microbatch b's epoch, or of the run. */
static int64_t epoch_end(const struct pd_job *job, int64_t b)
{
	int64_t end = (b / epoch_microbatches(job) + 1) * epoch_microbatches(job);
	int64_t total = pd_job_microbatches(job, job->total_minibatches);

	return !job->lists && end < total ? end : total;
}

int64_t pd_job_into(const struct pd_job *job, const struct pd_schedule *schedule, int64_t at)
{
	int64_t into = at % epoch_microbatches(job);

	return schedule->admitted > 0 && into % pd_schedule_unit(schedule) == 0 ? into : 0;
}

bool pd_job_next(const struct pd_job *job, const struct pd_schedule *schedule,
		 struct pd_position *position, struct pd_phase *phase_p)
{
	if (position->evaluate_next) {
		*phase_p = (struct pd_phase){ .evaluate = true, .last = job->test_microbatches };
		position->evaluate_next = false;
	} else {
		if (position->next >= pd_job_microbatches(job, job->total_minibatches))
			return false;
		*phase_p = (struct pd_phase){ .first = position->next,
					      .last = epoch_end(job, position->next),
					      .into = pd_job_into(job, schedule,
								  position->next) };
		position->next = phase_p->last;
		position->evaluate_next = job->test_microbatches > 0;
	}
	phase_p->base = position->base;
	position->base = pd_schedule_next_base(schedule, phase_p);
	position->number++;
	return true;
}

int64_t pd_job_next_checkpoint(const struct pd_job *job, const struct pd_schedule *schedule,
			       const struct pd_phase *phase, int64_t after)
{
	int64_t epoch = phase->first / epoch_microbatches(job) * epoch_microbatches(job);
	int64_t unit = pd_schedule_unit(schedule), at;
	int64_t every = pd_job_microbatches(job, job->checkpoint_every);

	if (!job->checkpoint || after >= phase->last)
		return -1;
	if (every == 0 || unit > phase->last - phase->first)
		return phase->last;
	/*
	 * Checkpoints count from the epoch's beginning, but lie only where every stage has just
	 * updated: at the next multiple of the unit from where the pipeline was empty.
	 */
	at = epoch + ((after - epoch) / every + 1) * every;
	at = phase->first + (at - phase->first + unit - 1) / unit * unit;
	return at < phase->last ? at : phase->last;
}
