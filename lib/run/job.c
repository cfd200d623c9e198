/* SPDX-License-Identifier: Apache-2.0 */
#include "run/job.h"

#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "schedule/check.h"
#include "schedule/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SYNTHETIC_MINIBATCHES 10

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

	json_object_set_new(value, "reschedule", json_integer(o->reschedule));
	json_object_set_new(value, "corrects", json_boolean(o->corrects));
	json_object_set_new(value, "discrepancy", json_real(o->discrepancy));
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
	o->reschedule = json_integer_value(json_object_get(value, "reschedule"));
	o->corrects = json_is_true(json_object_get(value, "corrects"));
	o->discrepancy = json_real_value(json_object_get(value, "discrepancy"));
	return 0;
}

static void add_list(json_t *value, const struct pd_lists *lists, int rank)
{
	char *text = pd_lists_text(lists, rank);

	json_object_set_new(value, "schedule", json_string(text));
	json_object_set_new(value, "schedule_minibatches", json_integer(lists->minibatches));
	free(text);
}

json_t *pd_job_json(const struct pd_job *job, int rank)
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

	json_object_set_new(value, "tf32", json_boolean(job->tf32));
	json_object_set_new(value, "transport", json_integer(job->transport));
	if (job->lists)
		add_list(value, job->lists, rank);
	return value;
}

/* This rank's list, where the job has one. */
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
	job->tf32 = json_is_true(json_object_get(value, "tf32"));
	job->transport = (enum pd_apart)json_integer_value(json_object_get(value, "transport"));
	if (json_unpack(value, "{s:s, s?s, s?s, s?s, s:I, s:I, s:I, s:I, s:I, s:o, s:b, s:I}",
			"device", &job->device, "data", &job->data, "checkpoint", &job->checkpoint,
			"trace", &job->trace, "epochs", &epochs, "minibatches", &minibatches,
			"checkpoint_every", &every, "seed", &seed, "threads", &threads,
			"optimizer", &optimizer, "evaluate", &evaluate,
			"resume_step", &resume) < 0 ||
	    optimizer_parse(optimizer, &job->optimizer) < 0) {
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
	int64_t total;

	*train_p = *test_p = (struct pd_dataset){ 0 };
	if (job->data) {
		if (pd_dataset_open(job->data, profile->model, train_p, test_p, err) < 0)
			return -1;
		job->epoch_minibatches = pd_loader_epoch(train_p, profile->batch_size);
		job->test_minibatches = job->evaluate && test_p->samples
			? pd_loader_tests(test_p, profile->batch_size) : 0;
	} else {
		pd_dataset_synthetic(profile->model, SYNTHETIC_MINIBATCHES * profile->batch_size,
				     train_p);
		job->epoch_minibatches = SYNTHETIC_MINIBATCHES;
		job->test_minibatches = 0;
	}
	if (job->epoch_minibatches == 0)
		return pd_error_input(err, "%s: %" PRId64 " samples are fewer than one minibatch of %"
				      PRId64, job->data, train_p->samples, profile->batch_size);
	total = job->minibatches;
	if (job->epochs >= 0 && !pd_mul(job->epochs, job->epoch_minibatches, &total))
		return pd_error_input(err, "--epochs=%" PRId64 ": too many", job->epochs);
	if (total > INT64_C(1) << 40)
		return pd_error_input(err, "%" PRId64 " minibatches are more than this version counts",
				      total);
	job->total_minibatches = total;
	job->optimizer.epoch = job->epoch_minibatches;
	job->optimizer.one_phase = job->lists != NULL;
	job->optimizer.total = total;
	return 0;
}

static int check_fresh(const struct pd_job *job, struct pd_error *err)
{
	struct pd_checkpoint *ck;

	if (!job->checkpoint)
		return 0;
	ck = pd_checkpoint_open(job->checkpoint, -1, NULL);
	if (!ck)
		return 0;
	pd_checkpoint_close(ck);
	return pd_error_input(err, "%s: holds checkpoints: --resume goes on from them, or give"
			      " another directory", job->checkpoint);
}

static int check_resume(struct pd_job *job, struct pd_error *err)
{
	const struct pd_profile *profile = job->plan->profile;
	struct pd_checkpoint *ck = pd_checkpoint_open(job->checkpoint, -1, err);
	const char *wanted = pd_update_kind_name[job->optimizer.kind], *kind;
	const struct pd_checkpoint_info *info;
	int status = 0;

	if (!ck)
		return -1;
	info = pd_checkpoint_info(ck);
	kind = json_string_value(json_object_get(info->optimizer, "kind"));
	job->resume_step = info->step;
	/* what the order of the samples and every random number depend on */
	if (info->seed != (uint64_t)job->seed)
		status = pd_error_input(err, "%s: trained with --seed=%" PRIu64 ", found --seed=%" PRId64,
					job->checkpoint, info->seed, job->seed);
	else if (info->batch_size != profile->batch_size)
		status = pd_error_input(err, "%s: trained with minibatches of %" PRId64
					", found a plan for %" PRId64, job->checkpoint,
					info->batch_size, profile->batch_size);
	else if (strcmp(info->name, profile->name) != 0)
		status = pd_error_input(err, "%s: a checkpoint of \"%s\", found a plan for \"%s\"",
					job->checkpoint, info->name, profile->name);
	else if (!kind || strcmp(kind, wanted) != 0)
		/* its moments would mean something else */
		status = pd_error_input(err, "%s: trained with --optimizer=%.60s, found"
					" --optimizer=%s", job->checkpoint, kind ? kind : "(none)",
					wanted);
	pd_checkpoint_close(ck);
	return status;
}

/* What the checker allows and no worker does. */
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

/* PipeMare answers for weights that backward sees newer than forward did. */
static int check_late(const struct pd_job *job, struct pd_error *err)
{
	const char *option = job->optimizer.corrects ? "--discrepancy" :
			     job->optimizer.reschedule > 0 ? "--lr-reschedule" : NULL;

	if (!option || job->plan->weights == PD_WEIGHTS_LATEST)
		return 0;
	return pd_error_input(err, "%s: only with weights \"latest\" are gradients late, found a plan "
			      "with weights \"%s\"", option, pd_weight_kind_name[job->plan->weights]);
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
 * What needs all gradients makes all ranks agree on each update.  So does f16: without a scale
 * small gradients vanish in it, and with one large ones overflow, which all must know of.
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

/* What would be found out only when it is to be written. */
static int check_outputs(const struct pd_job *job, struct pd_error *err)
{
	struct stat st;

	if (job->checkpoint && stat(job->checkpoint, &st) == 0 && !S_ISDIR(st.st_mode))
		return pd_error_input(err, "--checkpoint: %s: expected a directory, found a file",
				      job->checkpoint);
	if (job->trace && stat(job->trace, &st) == 0 && S_ISDIR(st.st_mode))
		return pd_error_input(err, "--trace: %s: expected a file, found a directory",
				      job->trace);
	return 0;
}

int pd_job_check(struct pd_job *job, bool resume, struct pd_error *err)
{
	const struct pd_profile *profile = job->plan->profile;
	struct pd_dataset train, test;
	int status;

	if (!profile->model)
		return pd_error_input(err, "the plan's profile has no model: it can be replayed, not"
				      " run");
	if (check_outputs(job, err) < 0 || set_agree(job, err) < 0 || check_late(job, err) < 0 ||
	    check_order(job, err) < 0)
		return -1;
	status = pd_job_data(job, &train, &test, err);
	pd_dataset_release(&train);
	pd_dataset_release(&test);
	if (status < 0)
		return -1;
	return resume ? check_resume(job, err) : check_fresh(job, err);
}

void pd_job_begin(const struct pd_job *job, struct pd_position *position)
{
	*position = (struct pd_position){ .number = -1,
					  .next = job->resume_step < 0 ? 0 : job->resume_step };
}

/* The end of the epoch that minibatch b belongs to, or of the run. */
static int64_t epoch_end(const struct pd_job *job, int64_t b)
{
	int64_t end = (b / job->epoch_minibatches + 1) * job->epoch_minibatches;

	return !job->lists && end < job->total_minibatches ? end : job->total_minibatches;
}

int64_t pd_job_into(const struct pd_job *job, const struct pd_schedule *schedule, int64_t step)
{
	int64_t into = step % job->epoch_minibatches;

	return schedule->admitted > 0 && into % pd_schedule_unit(schedule) == 0 ? into : 0;
}

bool pd_job_next(const struct pd_job *job, const struct pd_schedule *schedule,
		 struct pd_position *position, struct pd_phase *phase_p)
{
	if (position->evaluate_next) {
		*phase_p = (struct pd_phase){ .evaluate = true, .last = job->test_minibatches };
		position->evaluate_next = false;
	} else {
		if (position->next >= job->total_minibatches)
			return false;
		*phase_p = (struct pd_phase){ .first = position->next,
					      .last = epoch_end(job, position->next),
					      .into = pd_job_into(job, schedule,
								  position->next) };
		position->next = phase_p->last;
		position->evaluate_next = job->test_minibatches > 0;
	}
	phase_p->base = position->base;
	position->base = pd_schedule_next_base(schedule, phase_p);
	position->number++;
	return true;
}

int64_t pd_job_next_checkpoint(const struct pd_job *job, const struct pd_schedule *schedule,
			       const struct pd_phase *phase, int64_t step)
{
	int64_t epoch = phase->first / job->epoch_minibatches * job->epoch_minibatches;
	int64_t unit = pd_schedule_unit(schedule), every = job->checkpoint_every, at;

	if (!job->checkpoint || step >= phase->last)
		return -1;
	if (every == 0 || unit > phase->last - phase->first)
		return phase->last;
	/* counted from the epoch's beginning, and only where every stage has just updated: at
	 * the next multiple of the unit from where the pipeline was empty */
	at = epoch + ((step - epoch) / every + 1) * every;
	at = phase->first + (at - phase->first + unit - 1) / unit * unit;
	return at < phase->last ? at : phase->last;
}
