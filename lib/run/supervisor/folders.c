/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders of checkpoints on several hosts.  All hosts may see the first one's; or some have folders of
 * their own, with the files that their ranks wrote.  The first host's documents say which checkpoints
 * there are.  A file that a host needs and does not have is brought from one that has it.
 *
 * A rank that finds the run's name in the lock of its folder sees another's; one that finds none
 * takes the lock, and keeps the folder for its host.  A checkpoint is published in two steps: all
 * keepers give their unfinished folder the document and its name; then the supervisor does, in the
 * first host's, and all remove older ones.  So a step that the first host has is everywhere, and
 * what is resumed is looked for there alone; that the document has the same checksum tells files
 * of another run apart.  A file is a stage's, or what a further replica keeps of sparse sums
 * (pd_checkpoint_info.files).  A replica without its files, a new host, another plan and --gather
 * all have the supervisor pass files on, over the channels' streams.
 */
#include "run/supervisor/internal.h"

#include "base/checksum.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/lock.h"
#include "plan/sparse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct asked { struct supervisor *s; int rank; };

static int heard(void *context, int verdict, const json_t *message, struct pd_error *err)
{
	struct supervisor *s = ((struct asked *)context)->s;
	int r = ((struct asked *)context)->rank;

	s->launcher->ops->look(s->launcher);
	supervisor_read_signals(s);
	if (verdict < 0)
		return supervisor_on_gone(s, r, err);
	if (s->stop_asked)
		return pd_error_failed(err, "interrupted before training began");
	if (verdict == 0)
		return supervisor_is_silent(s, r) ? supervisor_rank_silent(s, r, err) : 0;
	supervisor_heard(s, r);
	return pd_message_is(message, "error") ? supervisor_on_error(s, r, message, err) : 0;
}

/* Waits for the rank's answer of that kind; a new reference. */
static json_t *hear(struct supervisor *s, int r, const char *event, struct pd_error *err)
{
	supervisor_heard(s, r);
	return pd_channel_hear(supervisor_channel(s, r), event, 1000, heard, &(struct asked){ s, r }, err);
}

static const char *host_of(const struct supervisor *s, int r)
{
	return s->launcher->ops->seat(s->launcher, r)->host;
}

/* Asks every rank who keeps the folder that it sees. */
static int find_keepers(struct supervisor *s, struct pd_error *err)
{
	struct pd_job *job = s->job;
	char *what = pd_job_what(job);
	int status = 0;

	for (int r = 0; r < s->count; r++)
		supervisor_tell(s, r, json_pack("{s:s, s:o, s:s, s:o}", "event", "folder", "directory",
						pd_json_bytes(job->checkpoint), "run", job->run,
						"what", pd_json_bytes(what)));
	free(what);
	for (int r = 0; r < s->count && status == 0; r++) {
		json_t *answer = hear(s, r, "folder", err);
		int64_t highest = pd_member_int(answer, "highest");

		if (!answer)
			return -1;
		s->ranks[r].keeper = (int)pd_member_int(answer, "keeper");
		s->keepers += supervisor_keeps(s, r);
		if (highest >= 0 && !job->asks_ranks && supervisor_keeps(s, r))
			status = pd_error_input(err, "%s on host %s holds checkpoints, the newest of step"
						" %" PRId64 ": --resume goes on from them, or give "
						"another directory", job->checkpoint, host_of(s, r),
						highest);
		json_decref(answer);
	}
	return status;
}

/* ---- who holds what ---- */

/* The parts of a checkpoint that the folder of rank r has. */
struct holding {
	bool document;
	bool other;             /* another document of that step */
	int64_t strange;        /* a step of another run; -1: none */
	bool *files;            /* by their numbers */
};

static void forget(struct holding *holdings, int count)
{
	for (int r = 0; r < count; r++)
		free(holdings[r].files);
	free(holdings);
}

static struct holding *survey(struct supervisor *s, const struct pd_checkpoint *ck,
			      struct pd_error *err)
{
	const struct pd_checkpoint_info *info = pd_checkpoint_info(ck);
	struct holding *holdings = pd_calloc((size_t)s->count, sizeof(*holdings));
	char sum[PD_CHECKSUM_DIGITS + 1], run[PD_CHECKSUM_DIGITS + 1];

	pd_checksum_text(info->document_checksum, sum);
	pd_checksum_text(pd_checkpoint_run(info), run);
	for (int r = 0; r < s->count; r++) {
		holdings[r].files = pd_calloc((size_t)info->file_count, sizeof(bool));
		if (supervisor_keeps(s, r))
			supervisor_tell(s, r, json_pack("{s:s, s:I, s:s, s:s}", "event", "look",
							"step", (json_int_t)info->step, "checksum",
							sum, "run", run));
		holdings[r].strange = -1;
	}
	holdings[0].document = true;
	for (int i = 0; i < info->file_count; i++)
		holdings[0].files[i] = pd_checkpoint_holds(ck, i);
	for (int r = 1; r < s->count; r++) {
		json_t *answer, *one;
		size_t n;

		if (!supervisor_keeps(s, r))
			continue;
		answer = hear(s, r, "holds", err);
		if (!answer) {
			forget(holdings, s->count);
			return NULL;
		}
		holdings[r].document = pd_member_true(answer, "document");
		holdings[r].other = pd_member_true(answer, "other");
		holdings[r].strange = pd_member_int(answer, "strange");
		json_array_foreach(json_object_get(answer, "files"), n, one)
			holdings[r].files[json_integer_value(one)] = true;
		json_decref(answer);
	}
	return holdings;
}

/* Returns who has a file, -1: nobody. */
static int holder(const struct supervisor *s, const struct holding *holdings, int number)
{
	for (int r = 0; r < s->count; r++)
		if (holdings[r].files[number])
			return r;
	return -1;
}

/*
 * Tells whether a replica of a stage of this run's plan needs a file: all need those that have their
 * layers; of what replicas keep of their own, each takes over that of every so many (run/rank/saver.c).
 */
static bool needs(const struct supervisor *s, int stage, int replica, const struct pd_checkpoint *ck,
		  const struct pd_checkpoint_file *file)
{
	const struct pd_plan *plan = s->job->plan;
	const struct pd_stage *mine = &plan->stages[stage];

	if (file->replica > 0 && (!pd_plan_is_sparse(plan, stage) ||
				  file->replica % mine->replicas != replica))
		return false;
	for (int l = 0; l < mine->layer_count; l++)
		if (pd_checkpoint_stage_number(ck, plan->profile->layers[mine->first_layer + l].name) ==
		    file->stage)
			return true;
	return false;
}

/* Returns the first rank of this run's plan that needs a file. */
static int first_user(const struct supervisor *s, const struct pd_checkpoint *ck,
		      const struct pd_checkpoint_file *file)
{
	const struct pd_plan *plan = s->job->plan;

	for (int k = 0; k < plan->stage_count; k++)
		for (int n = 0; n < plan->stages[k].replicas; n++)
			if (needs(s, k, n, ck, file))
				return plan->stages[k].ranks[n];
	return 0;
}

static int check_whole(const struct supervisor *s, const struct pd_checkpoint *ck,
		       const struct holding *holdings, struct pd_error *err)
{
	const struct pd_checkpoint_info *info = pd_checkpoint_info(ck);

	for (int i = 0; i < info->file_count; i++)
		if (holder(s, holdings, i) < 0) {
			char *name = pd_checkpoint_file_name(&info->files[i]);

			pd_error_input(err, "%s: step %" PRId64 ": host %s lacks %s, or it is damaged, and"
				       " no other host has it", s->job->checkpoint, info->step,
				       host_of(s, first_user(s, ck, &info->files[i])), name);
			free(name);
			return -1;
		}
	return 0;
}

/* Opens the checkpoint of the job's step, or the newest, of which every file is somewhere. */
static struct pd_checkpoint *choose(struct supervisor *s, struct holding **holdings_p,
				    struct pd_error *err)
{
	struct pd_job *job = s->job;
	int64_t step = job->resume_step;
	struct pd_error why;

	pd_error_input(err, "%s on host %s: no complete checkpoint found", job->checkpoint,
		       host_of(s, 0));
	for (int64_t below = INT64_MAX;; below = step) {
		struct pd_checkpoint *ck;

		if (job->resume_step < 0 &&
		    pd_checkpoint_highest(job->checkpoint, below, &step, err) < 0)
			return NULL;
		if (step < 0)
			return NULL;
		ck = pd_checkpoint_open_part(job->checkpoint, step, &why);
		*holdings_p = ck ? survey(s, ck, err) : NULL;
		if (ck && !*holdings_p) {
			pd_checkpoint_close(ck);
			return NULL;
		}
		if (ck && check_whole(s, ck, *holdings_p, &why) == 0)
			return ck;
		if (*holdings_p)
			forget(*holdings_p, s->count);
		pd_checkpoint_close(ck);
		if (job->resume_step >= 0) {
			*err = why;
			return NULL;
		}
		pd_job_pass_over(job, step, &why);
	}
}

/* ---- bringing files ---- */

static void pass_on(void *stream, const char *bytes, size_t count)
{
	fwrite(bytes, 1, count, stream);        /* whoever checks the file finds a failure */
}

/* Writes a file, from whoever has it, to a stream. */
static int fetch(struct supervisor *s, int from, int64_t step, const struct pd_checkpoint_file *file,
		 FILE *to, struct pd_error *err)
{
	json_t *answer;

	if (from == 0)
		return pd_checkpoint_send(s->job->checkpoint, step, file, to, err);
	pd_channel_on_bytes(supervisor_channel(s, from), pass_on, to);
	supervisor_tell(s, from, pd_job_file_json("send", step, file));
	answer = hear(s, from, "sent", err);
	pd_channel_on_bytes(supervisor_channel(s, from), NULL, NULL);
	json_decref(answer);
	return answer ? 0 : -1;
}

/* Brings a file into a directory of this host, in the unfinished folder. */
static int bring_here(struct supervisor *s, const char *directory, int from,
		      const struct pd_checkpoint_info *info, const struct pd_checkpoint_file *file,
		      struct pd_error *err)
{
	struct pd_file coming;

	if (pd_checkpoint_receive(directory, info->step, file, &coming, err) < 0)
		return -1;
	if (fetch(s, from, info->step, file, coming.stream, err) == 0)
		return pd_checkpoint_received(directory, info, file, &coming, err);
	pd_file_abandon(&coming);
	return -1;
}

json_t *supervisor_publish_message(int64_t step, const char *document)
{
	return json_pack("{s:s, s:I, s:s}", "event", "publish", "step", (json_int_t)step, "document",
			 document);
}

/* Gives the folder that rank r keeps the document that the first one has. */
static int give_document(struct supervisor *s, int r, int64_t step, struct pd_error *err)
{
	size_t bytes;
	char *document = pd_checkpoint_document(s->job->checkpoint, step, &bytes, err);
	json_t *answer;

	if (!document)
		return -1;
	supervisor_tell(s, r, supervisor_publish_message(step, document));
	free(document);
	answer = hear(s, r, "published", err);
	json_decref(answer);
	return answer ? 0 : -1;
}

static int bring_there(struct supervisor *s, int r, int from, int64_t step,
		       const struct pd_checkpoint_file *file, struct pd_error *err)
{
	FILE *to = pd_channel_stream(supervisor_channel(s, r));
	json_t *answer;
	int status;

	if (!to)
		return pd_error_failed(err, "a checkpoint's file cannot be sent: %s", strerror(errno));
	supervisor_tell(s, r, pd_job_file_json("receive", step, file));
	status = fetch(s, from, step, file, to, err);
	fclose(to);
	if (status < 0)
		return -1;
	supervisor_tell(s, r, pd_job_file_json("received", step, file));
	answer = hear(s, r, "has", err);
	json_decref(answer);
	return answer ? 0 : -1;
}

/* Brings a file, by its number, to the folder that rank r keeps, unless it is there. */
static int provide(struct supervisor *s, struct holding *holdings, int r,
		   const struct pd_checkpoint_info *info, int number, struct pd_error *err)
{
	const struct pd_checkpoint_file *file = &info->files[number];
	int from = holder(s, holdings, number);
	char *name;

	if (holdings[r].files[number])
		return 0;
	name = pd_checkpoint_file_name(file);
	if (!s->how->quiet)
		pd_say("%s: brings %s of step %" PRId64 " from host %s to host %s", s->job->checkpoint,
		       name, info->step, host_of(s, from), host_of(s, r));
	free(name);
	if (!holdings[r].document && give_document(s, r, info->step, err) < 0)
		return -1;
	holdings[r].document = holdings[r].files[number] = true;
	if (r > 0)
		return bring_there(s, r, from, info->step, file, err);
	return bring_here(s, s->job->checkpoint, from, info, file, err) < 0 ? -1 :
	       pd_checkpoint_adopt(s->job->checkpoint, info->step, file, err);
}

/* A host's folder that has checkpoints of something else would lose them. */
static int check_strangers(const struct supervisor *s, const struct holding *holdings, int64_t step,
			   struct pd_error *err)
{
	for (int r = 1; r < s->count; r++) {
		int64_t strange = holdings[r].other ? step : holdings[r].strange;

		if (supervisor_keeps(s, r) && strange >= 0)
			return pd_error_input(err, "%s on host %s has a checkpoint of step %" PRId64
					      " of another run than %s on host %s: expected folders"
					      " of one run, or empty ones", s->job->checkpoint,
					      host_of(s, r), strange, s->job->checkpoint,
					      host_of(s, 0));
	}
	return 0;
}

/* Brings every rank what it needs. */
static int provide_all(struct supervisor *s, struct holding *holdings, const struct pd_checkpoint *ck,
		       struct pd_error *err)
{
	const struct pd_plan *plan = s->job->plan;
	const struct pd_checkpoint_info *info = pd_checkpoint_info(ck);

	for (int k = 0; k < plan->stage_count; k++)
		for (int n = 0; n < plan->stages[k].replicas; n++)
			for (int i = 0; i < info->file_count; i++)
				if (needs(s, k, n, ck, &info->files[i]) &&
				    provide(s, holdings, s->ranks[plan->stages[k].ranks[n]].keeper,
					    info, i, err) < 0)
					return -1;
	return 0;
}

/* Brings all files together in the directory of --gather, in one folder that appears as a whole. */
static int gather(struct supervisor *s, struct holding *holdings, const struct pd_checkpoint *ck,
		  struct pd_error *err)
{
	const struct pd_checkpoint_info *info = pd_checkpoint_info(ck);
	const char *directory = s->job->gather;
	char *what = pd_job_what(s->job), *document = NULL;
	struct pd_checkpoint_lock *lock = pd_checkpoint_lock(directory, what, s->job->run, 0, err);
	int status = lock ? 0 : -1;
	size_t bytes;

	free(what);
	if (status == 0 && pd_checkpoint_exists(directory, info->step))
		status = pd_error_input(err, "--gather: %s has a checkpoint of step %" PRId64 " already",
					directory, info->step);
	else if (status == 0)
		status = pd_checkpoint_begin(directory, info->step, err);
	for (int i = 0; i < info->file_count && status == 0; i++)
		status = bring_here(s, directory, holder(s, holdings, i), info, &info->files[i], err);
	if (status == 0)
		document = pd_checkpoint_document(s->job->checkpoint, info->step, &bytes, err);
	if (document)
		status = pd_checkpoint_publish(directory, info->step, document, bytes, err);
	else if (lock)
		pd_checkpoint_abandon(directory, info->step);
	free(document);
	pd_checkpoint_unlock(lock);
	if (status == 0)
		pd_run_report_checkpoint(&s->report, directory, info->step);
	return document ? status : -1;
}

/* Goes on from a checkpoint that lies in several folders, or gathers it. */
static int resume_apart(struct supervisor *s, struct pd_error *err)
{
	struct holding *holdings = NULL;
	struct pd_checkpoint *ck = choose(s, &holdings, err);
	int status;

	if (!ck)
		return -1;
	if (s->job->gather)
		status = gather(s, holdings, ck, err);
	else if ((status = pd_job_go_on(s->job, ck, err)) == 0 &&
		 (status = check_strangers(s, holdings, pd_checkpoint_info(ck)->step, err)) == 0)
		status = provide_all(s, holdings, ck, err);
	forget(holdings, s->count);
	pd_checkpoint_close(ck);
	return status;
}

int supervisor_find_folders(struct supervisor *s, struct pd_error *err)
{
	struct pd_job *job = s->job;

	if (!job->several || !job->checkpoint)
		return 0;
	if (find_keepers(s, err) < 0)
		return -1;
	job->own_folders = s->keepers > 0;
	if (!job->asks_ranks)
		return 0;
	if ((job->own_folders || job->gather ? resume_apart(s, err) : pd_job_resume(job, err)) < 0)
		return -1;
	s->last_checkpoint = job->resume_step;
	return 0;
}
