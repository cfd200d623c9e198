/* SPDX-License-Identifier: Apache-2.0 */
/* A job, and the files of its checkpoints, as its supervisor and the ranks tell each other. */
#include "run/job/job.h"

#include "base/checksum.h"
#include "base/mem.h"
#include "base/rows.h"
#include "schedule/file.h"

#include <math.h>
#include <stdlib.h>

static json_t *plan_json(const void *member)
{
	return pd_plan_json(*(struct pd_plan *const *)member);
}

static int read_plan(const struct pd_place *place, void *member, struct pd_error *err)
{
	struct pd_place plan = pd_place_root("the plan", place->value);

	*(struct pd_plan **)member = pd_plan_parse_at(&plan, err);
	return *(struct pd_plan **)member ? 0 : -1;
}

#define JOB(type, name) { #name, type, PD_MEMBER(struct pd_job, name) }
#define OPTIMIZER(type, name) { #name, type, PD_MEMBER(struct pd_optimizer, name) }
#define TEXT PD_ROW_WORD
#define FLAG PD_ROW_BOOL, .needed = true
#define NUMBER PD_ROW_INT, .needed = true, .least = INT64_MIN
#define REAL PD_ROW_REAL, .needed = true, .low = -HUGE_VAL
#define CHOICE PD_ROW_INT, .needed = true, .most = INT32_MAX

static const struct pd_key_row optimizer_rows[] = {
	OPTIMIZER(CHOICE, kind), OPTIMIZER(CHOICE, schedule), OPTIMIZER(REAL, rate),
#define HYPER(member, ...) OPTIMIZER(REAL, hyper.member),
#include "engine/device/hyper.def"
#undef HYPER
	OPTIMIZER(REAL, weight_decay), OPTIMIZER(REAL, gamma),
	OPTIMIZER(REAL, power), OPTIMIZER(REAL, clip_norm), OPTIMIZER(REAL, loss_scale),
	OPTIMIZER(REAL, discrepancy), OPTIMIZER(REAL, residual),
	OPTIMIZER(NUMBER, step_epochs), OPTIMIZER(NUMBER, warmup),
	OPTIMIZER(NUMBER, loss_scale_interval), OPTIMIZER(NUMBER, reschedule),
	OPTIMIZER(FLAG, spares_vectors), OPTIMIZER(FLAG, corrects), OPTIMIZER(FLAG, has_residual),
	{ NULL }
};

/* The job, and behind it what a rank's place adds. */
static const struct pd_key_row job_rows[] = {
	JOB(TEXT, device), JOB(TEXT, data), JOB(TEXT, checkpoint), JOB(TEXT, trace), JOB(TEXT, init), JOB(TEXT, init_new),
	JOB(TEXT, augment), JOB(TEXT, data_sum), JOB(TEXT, init_sum), JOB(NUMBER, evaluated_step),
	JOB(TEXT, transport), JOB(NUMBER, epochs), JOB(NUMBER, minibatches),
	JOB(NUMBER, checkpoint_every), JOB(NUMBER, seed), JOB(NUMBER, threads),
	JOB(NUMBER, resume_step), JOB(NUMBER, synthetic_epoch), JOB(NUMBER, until),
	JOB(FLAG, evaluate), JOB(FLAG, only_evaluates),
	JOB(FLAG, own_folders), JOB(FLAG, tf32),
	{ "plan", PD_ROW_BY, .needed = true, PD_MEMBER(struct pd_job, plan), .read = read_plan, .write = plan_json },
	{ "optimizer", PD_ROW_OBJECT, .needed = true, PD_MEMBER(struct pd_job, optimizer), .rows = optimizer_rows },
	{ "event", PD_ROW_BY }, { "seat", PD_ROW_BY }, { "schedule", PD_ROW_BY }, { "schedule_minibatches", PD_ROW_BY },
	{ NULL }
};

json_t *pd_job_place_json(const struct pd_job *job, int rank, const struct pd_seat *seat)
{
	json_t *value = json_pack("{s:s, s:o}", "event", "place", "seat", pd_seat_json(seat));
	char *text = job->lists ? pd_lists_text(job->lists, rank) : NULL;

	if (text) {
		pd_json_set(value, "schedule", json_string(text));
		pd_json_set(value, "schedule_minibatches",
			    json_integer(job->lists->minibatches));
	}
	free(text);
	return value;
}

json_t *pd_job_json(const struct pd_job *job)
{
	json_t *value = pd_rows_json(job_rows, job);

	pd_json_set(value, "event", json_string("job"));
	return value;
}

/* Parses this rank's list, if the job has lists. */
static int parse_list(struct pd_job *job, json_t *value, struct pd_error *err)
{
	const char *text = pd_member_text(value, "schedule");
	json_t *minibatches = json_object_get(value, "schedule_minibatches");

	if (!text)
		return 0;
	job->lists = pd_lists_new("schedule", job->plan, NULL, json_integer_value(minibatches),
				  err);
	return job->lists ? pd_lists_read_text(job->lists, text, err) : -1;
}

struct pd_job *pd_job_parse(json_t *value, struct pd_error *err)
{
	struct pd_place root = pd_place_root("the launcher's job", value);
	struct pd_job *job = pd_zalloc(sizeof(*job));
	int result = pd_rows_read(&root, job_rows, job, err);

	job->json = json_incref(value);
	if (result == 0 && (!job->device || pd_seat_parse(json_object_get(value, "seat"), &job->seat) < 0))
		result = pd_error_failed(err, "the launcher sent a job that cannot be read");
	if (result == 0 && parse_list(job, value, err) == 0)
		return job;
	pd_job_free(job);
	return NULL;
}

json_t *pd_job_file_json(const char *event, int64_t step, const struct pd_checkpoint_file *file)
{
	char text[PD_CHECKSUM_DIGITS + 1];

	return json_pack("{s:s, s:I, s:i, s:i, s:s}", "event", event, "step", (json_int_t)step,
			 "stage", file->stage, "replica", file->replica,
			 "checksum", pd_checksum_text(file->checksum, text));
}

struct pd_checkpoint_file pd_job_file_of(const json_t *message)
{
	struct pd_checkpoint_file file = {
		.stage = (int)pd_member_int(message, "stage"),
		.replica = (int)pd_member_int(message, "replica"),
	};

	pd_checksum_parse(pd_member_text(message, "checksum"), &file.checksum);
	return file;
}

void pd_job_free(struct pd_job *job)
{
	if (!job)
		return;
	pd_lists_free(job->lists);
	pd_plan_free(job->plan);
	json_decref(job->json);
	free(job->init_found);
	free(job);
}
