/* SPDX-License-Identifier: Apache-2.0 */
/* A job, and the files of its checkpoints, as its supervisor and the ranks tell each other. */
#include "run/job/job.h"

#include "base/checksum.h"
#include "base/json.h"
#include "base/mem.h"
#include "schedule/file.h"

#include <stddef.h>
#include <stdlib.h>

/* A member of a struct, and of the object that tells it under the same name. */
struct member {
	const char *name;
	enum { TEXT, FLAG, NUMBER, REAL, CHOICE } type;
	size_t offset;
};

#define JOB(type, name) { #name, type, offsetof(struct pd_job, name) }
#define OPTIMIZER(type, name) { #name, type, offsetof(struct pd_optimizer, name) }
#define TELL(struct_p, members) tell(struct_p, members, PD_COUNT(members))
#define READ(value, struct_p, members) read_members(value, struct_p, members, PD_COUNT(members))

static const struct member job_members[] = {
	JOB(TEXT, device), JOB(TEXT, data), JOB(TEXT, checkpoint), JOB(TEXT, trace), JOB(TEXT, init), JOB(TEXT, init_new),
	JOB(TEXT, augment), JOB(TEXT, data_sum), JOB(TEXT, init_sum), JOB(NUMBER, evaluated_step),
	JOB(TEXT, transport), JOB(NUMBER, epochs), JOB(NUMBER, minibatches),
	JOB(NUMBER, checkpoint_every), JOB(NUMBER, seed), JOB(NUMBER, threads),
	JOB(NUMBER, resume_step), JOB(NUMBER, synthetic_epoch), JOB(NUMBER, until),
	JOB(FLAG, evaluate), JOB(FLAG, only_evaluates),
	JOB(FLAG, own_folders), JOB(FLAG, tf32),
};
static const struct member optimizer_members[] = {
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
};

static json_t *member_json(const void *at, const struct member *m)
{
	switch (m->type) {
	case TEXT:
		return pd_json_bytes(*(const char *const *)at);
	case FLAG:
		return json_boolean(*(const bool *)at);
	case NUMBER:
		return json_integer(*(const int64_t *)at);
	case REAL:
		return json_real(*(const double *)at);
	case CHOICE:
		return json_integer(*(const int *)at);
	}
	return NULL;
}

/* A text that is NULL is left out. */
static json_t *tell(const void *from, const struct member *members, size_t count)
{
	json_t *object = json_object();

	for (const struct member *m = members; m < members + count; m++)
		if (m->type != TEXT || *(const char *const *)((const char *)from + m->offset))
			pd_json_set(object, m->name, member_json((const char *)from + m->offset, m));
	return object;
}

static int read_members(json_t *object, void *to, const struct member *members, size_t count)
{
	for (const struct member *m = members; m < members + count; m++) {
		json_t *value = json_object_get(object, m->name);
		void *at = (char *)to + m->offset;

		if (!value && m->type != TEXT)
			return -1;
		if (m->type == TEXT)
			*(const char **)at = json_string_value(value);
		else if (m->type == FLAG)
			*(bool *)at = json_is_true(value);
		else if (m->type == NUMBER)
			*(int64_t *)at = json_integer_value(value);
		else if (m->type == REAL)
			*(double *)at = json_real_value(value);
		else
			*(int *)at = (int)json_integer_value(value);
	}
	return 0;
}

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
	json_t *value = TELL(job, job_members);

	pd_json_set(value, "event", json_string("job"));
	pd_json_set(value, "plan", pd_plan_json(job->plan));
	pd_json_set(value, "optimizer", TELL(&job->optimizer, optimizer_members));
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
	struct pd_place plan = pd_place_root("the plan", json_object_get(value, "plan"));
	struct pd_job *job = pd_zalloc(sizeof(*job));

	job->json = json_incref(value);
	if (READ(value, job, job_members) < 0 || !job->device ||
	    READ(json_object_get(value, "optimizer"), &job->optimizer, optimizer_members) < 0 ||
	    pd_seat_parse(json_object_get(value, "seat"), &job->seat) < 0) {
		pd_error_failed(err, "the launcher sent a job that cannot be read");
		pd_job_free(job);
		return NULL;
	}
	job->plan = pd_plan_parse_at(&plan, err);
	if (!job->plan || parse_list(job, value, err) < 0) {
		pd_job_free(job);
		return NULL;
	}
	return job;
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
