/* SPDX-License-Identifier: Apache-2.0 */
#include "run/report.h"

#include "base/clock.h"
#include "base/mem.h"
#include "schedule/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Past stdio, so that a reason is not lost and a line is whole.  After one that could not be
 * written none is: what is there would look complete.
 */
static void line(struct pd_report *report, json_t *event)
{
	char *text = json_dumps(event, JSON_REAL_PRECISION(9));
	size_t length = strlen(text), written = 0;

	json_decref(event);
	text[length++] = '\n';          /* in place of the final zero */
	while (written < length && !report->lost) {
		ssize_t n = write(STDOUT_FILENO, text + written, length - written);

		if (n >= 0)
			written += (size_t)n;
		else if (errno == EAGAIN)       /* somebody shares it who does not wait */
			poll(&(struct pollfd){ .fd = STDOUT_FILENO, .events = POLLOUT }, 1, -1);
		else if (errno != EINTR)
			report->lost = errno;
	}
	free(text);
}

int pd_report_check(struct pd_error *err)
{
	/* of nothing at all: a pipe does not mind, what never takes anything says so */
	if (write(STDOUT_FILENO, "", 0) < 0 && errno != EAGAIN && errno != EINTR)
		return pd_error_failed(err, "standard output: cannot write: %s", strerror(errno));
	return 0;
}

void pd_report_begin(struct pd_report *report, const struct pd_job *job, int64_t every)
{
	int64_t first = job->resume_step < 0 ? 0 : job->resume_step;

	*report = (struct pd_report){ .job = job, .every = every, .done = first,
				      .evaluated = first, .first_done = first, .last_loss = -1,
				      .last_accuracy = -1 };
	if (report->every == 0)
		report->every = job->epoch_minibatches > 10 ? job->epoch_minibatches / 10 : 1;
	report->begun_ns = report->interval_ns = pd_now_ns();
	pd_progress_begin(&report->bar, "training", job->total_minibatches);
}

static double rate(int64_t samples, int64_t ns)
{
	return ns > 0 ? (double)samples * 1e9 / (double)ns : 0;
}

/* null: not a number, or infinite */
static json_t *real(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static double sum_of(const json_t *message)
{
	const json_t *sum = json_object_get(message, "sum");

	return json_is_null(sum) ? NAN : json_real_value(sum);
}

static int64_t whole(const json_t *message, const char *key)
{
	return json_integer_value(json_object_get(message, key));
}

/* Replicas that have done their part may be in the next epoch by now: done says too much. */
static void evaluated(struct pd_report *report, const json_t *message)
{
	int64_t epoch = report->evaluated / report->job->epoch_minibatches + 1;

	report->test_sum += sum_of(message);
	report->test_correct += whole(message, "correct");
	report->test_samples += whole(message, "samples");
	if (++report->test_minibatches < report->job->test_minibatches)
		return;
	report->last_accuracy = (double)report->test_correct / (double)report->test_samples;
	report->evaluated = epoch * report->job->epoch_minibatches;
	if (report->evaluated > report->job->total_minibatches)
		report->evaluated = report->job->total_minibatches;
	pd_progress_hide(&report->bar);
	line(report, json_pack("{s:s, s:I, s:I, s:o, s:f, s:I}", "event", "evaluation",
		       "step", (json_int_t)report->evaluated, "epoch", (json_int_t)epoch,
		       "loss", real(report->test_sum / (double)report->test_samples),
		       "accuracy", report->last_accuracy,
		       "samples", (json_int_t)report->test_samples));
	report->test_sum = 0;
	report->test_correct = report->test_samples = report->test_minibatches = 0;
	report->interval_ns = pd_now_ns();      /* the next rate is of training alone */
}

void pd_report_update(struct pd_report *report, const json_t *message)
{
	const json_t *norm = json_object_get(message, "grad_norm");

	report->updated = true;
	report->grad_norm = json_is_null(norm) ? NAN : json_real_value(norm);
	report->loss_scale = json_real_value(json_object_get(message, "loss_scale"));
	report->skipped = whole(message, "skipped");
}

/* Of the newest update. */
static void add_update(const struct pd_report *report, json_t *event)
{
	if (!report->updated)
		return;
	json_object_set_new(event, "grad_norm", real(report->grad_norm));
	json_object_set_new(event, "loss_scale", real(report->loss_scale));
	json_object_set_new(event, "skipped", json_integer(report->skipped));
}

void pd_report_loss(struct pd_report *report, const json_t *message)
{
	int64_t now = pd_now_ns();
	char note[96];
	json_t *event;

	if (json_is_true(json_object_get(message, "evaluate"))) {
		evaluated(report, message);
		return;
	}
	report->done++;
	report->minibatches++;
	report->sum += sum_of(message);
	report->correct += whole(message, "correct");
	report->samples += whole(message, "samples");
	report->last_loss = report->sum / (double)report->samples;
	snprintf(note, sizeof(note), "%" PRId64 "/%" PRId64 " loss %.4f", report->done,
		 report->job->total_minibatches, report->last_loss);
	pd_progress_show(&report->bar, report->done, note);
	if (report->minibatches < report->every && report->done < report->job->total_minibatches)
		return;
	pd_progress_hide(&report->bar);
	event = json_pack("{s:s, s:I, s:I, s:o, s:f, s:f}", "event", "progress",
			  "step", (json_int_t)report->done, "epoch",
			  (json_int_t)((report->done - 1) / report->job->epoch_minibatches + 1),
			  "loss", real(report->last_loss),
			  "accuracy", (double)report->correct / (double)report->samples,
			  "samples_per_s", rate(report->samples, now - report->interval_ns));
	add_update(report, event);
	line(report, event);
	report->sum = 0;
	report->correct = report->samples = report->minibatches = 0;
	report->interval_ns = now;
}

void pd_report_checkpoint(struct pd_report *report, const char *directory, int64_t step)
{
	pd_progress_hide(&report->bar);
	line(report, json_pack("{s:s, s:I, s:s}", "event", "checkpoint", "step", (json_int_t)step,
		       "directory", directory));
}

static bool predict_memory(const struct pd_report *report, const struct pd_schedule *schedule,
			   int rank, struct pd_memory *out_p)
{
	const struct pd_job *job = report->job;
	int stage = pd_plan_stage_of_rank(job->plan, rank, NULL);
	/* where there are several stages on a rank, nothing is corrected */
	int moments = pd_optimizer_arenas(&job->optimizer, pd_schedule_delay(schedule, stage));
	struct pd_room rooms[schedule->chunks];
	struct pd_stage_memory one;
	bool exact;

	if (job->lists) {
		pd_room_of_list(schedule, job->lists, rank, job->test_minibatches > 0, rooms);
		exact = pd_schedule_memory_in(schedule, rank, rooms, moments, out_p);
		pd_rooms_release(rooms, schedule->chunks);
	} else {
		exact = pd_schedule_memory(schedule, rank, moments, out_p);
	}
	if (moments == pd_optimizer_moments(&job->optimizer))
		return exact;
	/* the corrected weights, of those arenas, are of the type that backward reads */
	pd_memory_of_stage(job->plan, schedule->wiring, stage, &one);
	out_p->optimizer_bytes -= one.full_bytes - one.weights_bytes;
	out_p->total_bytes -= one.full_bytes - one.weights_bytes;
	return exact;
}

/*
 * What differs is named, rank after rank: a difference is an error, of the rule or of a
 * profile made for another device or number of threads.
 */
static void report_memory(const struct pd_report *report, const struct pd_schedule *schedule,
			  const int64_t *memory_bytes, json_t *event)
{
	json_t *measured = json_array(), *predicted = json_array();
	char *verdict = pd_strdup("as predicted");
	bool exact = true, begun = true, differs = false;

	for (int r = 0; r < schedule->plan->rank_count; r++) {
		struct pd_memory memory;
		int64_t more;

		exact &= predict_memory(report, schedule, r, &memory);
		begun &= memory_bytes[r] > 0;
		json_array_append_new(measured, json_integer(memory_bytes[r]));
		json_array_append_new(predicted, json_integer(memory.total_bytes));
		more = memory_bytes[r] - memory.total_bytes;
		if (more != 0) {
			char *so_far = verdict;

			verdict = pd_format("%s%s rank %d has %" PRId64 " bytes %s than predicted",
					    differs ? so_far : "error:", differs ? "," : "", r,
					    more > 0 ? more : -more, more > 0 ? "more" : "fewer");
			free(so_far);
			differs = true;
		}
	}
	json_object_set_new(event, "memory_bytes", measured);
	json_object_set_new(event, "predicted_memory_bytes", predicted);
	json_object_set_new(event, "memory",
			    json_string(!begun ? "not compared: not all ranks had begun" : !exact ?
					"not compared: the profile does not say enough" : verdict));
	free(verdict);
}

void pd_report_end(struct pd_report *report, const struct pd_schedule *schedule,
		   const char *outcome, const int64_t *memory_bytes)
{
	int64_t ns = (report->ended_ns ? report->ended_ns : pd_now_ns()) - report->begun_ns;
	int64_t trained = report->done - report->first_done;
	json_t *event = json_pack("{s:s, s:s, s:I, s:I, s:f}", "event", "done", "outcome", outcome,
				  "step", (json_int_t)report->done, "elapsed_ns", (json_int_t)ns,
				  "samples_per_s",
				  rate(trained * report->job->plan->profile->batch_size, ns));

	report_memory(report, schedule, memory_bytes, event);
	if (report->done > report->first_done)
		json_object_set_new(event, "loss", real(report->last_loss));
	add_update(report, event);
	if (report->last_accuracy >= 0)
		json_object_set_new(event, "accuracy", json_real(report->last_accuracy));
	pd_progress_end(&report->bar);
	line(report, event);
}
