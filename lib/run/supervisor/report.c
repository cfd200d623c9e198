/* SPDX-License-Identifier: Apache-2.0 */
#include "run/supervisor/report.h"

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
 * Writes a line without stdio, so that a line is whole and an error is known.  After a line that
 * could not be written no other is, since the output would look complete.
 */
static void line(struct pd_run_report *report, json_t *event)
{
	bool last = strcmp(pd_member_text(event, "event"), "done") == 0;
	char *text = json_dumps(event, JSON_REAL_PRECISION(9));
	size_t length = strlen(text), written = report->quiet && !last ? length + 1 : 0;

	json_decref(event);
	text[length++] = '\n';          /* replaces the final zero */
	while (written < length && !report->lost) {
		ssize_t n = write(STDOUT_FILENO, text + written, length - written);

		if (n >= 0)
			written += (size_t)n;
		/* standard output may be shared with a program that made it non-blocking */
		else if (errno == EAGAIN)
			poll(&(struct pollfd){ .fd = STDOUT_FILENO, .events = POLLOUT }, 1, -1);
		else if (errno != EINTR)
			report->lost = errno;
	}
	free(text);
}

void pd_run_report_starting(struct pd_run_report *report, int ready, int workers, bool quiet)
{
	char note[64];

	snprintf(note, sizeof(note), "%d worker%s, %d ready", workers, workers == 1 ? "" : "s",
		 ready);
	if (ready == 0)
		pd_progress_bar_begin(&report->bar, "starting", workers, quiet);
	pd_progress_bar_show(&report->bar, ready, note);
}

/* Shows the bar. what: the newest minibatch's loss, or another activity. */
static void show_bar(struct pd_run_report *report, const char *what)
{
	char note[256], pace[96] = "";
	size_t used = pd_pace_place(&report->pace, report->done, note, sizeof(note));

	pd_pace_rate(&report->pace, report->done, pace, sizeof(pace));
	snprintf(note + used, sizeof(note) - used, ", %s%s", what, pace);
	pd_progress_bar_show(&report->bar, report->done, note);
}

static int64_t samples_of(const struct pd_run_report *report, int64_t minibatches)
{
	return pd_job_microbatches(report->job, minibatches) * report->job->plan->profile->batch_size;
}

/* Shows that another minibatch is trained. */
static void show_trained(struct pd_run_report *report)
{
	char loss[32];

	if (pd_pace_stretch_done(&report->stretch, report->done, report->newest_ns))
		pd_pace_measure(&report->pace, report->done,
				samples_of(report, report->done - report->first_done));
	snprintf(loss, sizeof(loss), "loss %.4f", report->last_loss);
	show_bar(report, loss);
}

/* Returns the layer, in the plan's order, that is loss number `loss`. */
static int loss_layer(const struct pd_run_report *report, int loss)
{
	const struct pd_model *model = report->job->plan->profile->model;
	int l = 0;

	while (pd_model_losses(model, 0, l + 1) <= loss)
		l++;
	return l;
}

static int find_main_loss(const struct pd_run_report *report)
{
	const struct pd_model *model = report->job->plan->profile->model;
	int last = 0;

	for (int k = 1; k < report->losses; k++)
		if (pd_model_number(model, loss_layer(report, k)) >
		    pd_model_number(model, loss_layer(report, last)))
			last = k;
	return last;
}

static void sums_clear(struct pd_sums *sums, int losses)
{
	memset(sums->losses, 0, (size_t)losses * sizeof(*sums->losses));
	sums->samples = sums->microbatches = 0;
}

/* Adds a microbatch's losses, which are all of the same samples. */
static void sums_add(struct pd_sums *sums, const struct pd_loss *values, int losses)
{
	for (int k = 0; k < losses; k++) {
		sums->losses[k].sum += values[k].sum;
		sums->losses[k].correct += values[k].correct;
		sums->losses[k].rows += values[k].rows;
	}
	sums->samples += values[0].samples;
	sums->microbatches++;
}

static int64_t counted_rows(const struct pd_loss *values, int losses)
{
	int64_t rows = 0;

	for (int k = 0; k < losses; k++)
		rows += values[k].rows;
	return rows;
}

static const struct pd_layer *layer_of(const struct pd_run_report *report, int loss)
{
	return &report->job->plan->profile->model->layers[loss_layer(report, loss)];
}

/* Returns the mean over all rows that count; not a number if none does. */
static double mean_of(const struct pd_sums *sums, int loss, double sum)
{
	return sum / (double)sums->losses[loss].rows;
}

/* -1: the loss has none. */
static double accuracy(const struct pd_run_report *report, const struct pd_sums *sums, int loss)
{
	if (!pd_layer_is(layer_of(report, loss), PD_KIND_CLASSIFIES))
		return -1;
	return sums->losses[loss].rows > 0
		? mean_of(sums, loss, (double)sums->losses[loss].correct) : 0;
}

/*
 * Returns the mean of the training loss, which is the sum of all losses; of those for which some row
 * counts, if there are any.
 */
static double mean_loss(const struct pd_run_report *report, const struct pd_sums *sums)
{
	double sum = 0;
	bool counts = false;

	for (int k = 0; k < report->losses; k++) {
		sum += sums->losses[k].rows > 0 ? mean_of(sums, k, sums->losses[k].sum) : 0;
		counts |= sums->losses[k].rows > 0;
	}
	return counts ? sum : NAN;
}

/*
 * Replicas end together only where each minibatch is one microbatch; otherwise all stages update after
 * every minibatch.
 */
static void begin_stretch(struct pd_run_report *report, int64_t done)
{
	const struct pd_plan *plan = report->job->plan;
	/* a schedule is one phase, whatever its epochs */
	int64_t round = 1, epoch = report->job->lists ? INT64_MAX : report->job->epoch_minibatches;

	for (int s = 0; s < plan->stage_count && plan->microbatches == 1; s++)
		round = pd_lcm(round, plan->stages[s].replicas, epoch);
	pd_pace_stretch_begin(&report->stretch, round ? round : epoch, epoch, done, report->newest_ns);
}

void pd_run_report_begin(struct pd_run_report *report, const struct pd_job *job, int64_t every,
			 bool quiet)
{
	const struct pd_model *model = job->plan->profile->model;
	int64_t first = pd_job_first_step(job);
	bool not_finite = report->not_finite[PD_GIVEN_INIT];    /* ranks begin before this */

	*report = (struct pd_run_report){ .job = job, .every = every, .done = first,
					  .evaluated = first, .first_done = first, .last_loss = -1,
					  .not_finite = { not_finite } };
	report->losses = pd_model_losses(model, 0, model->layer_count);
	report->main_loss = find_main_loss(report);
	report->training.losses = pd_calloc((size_t)report->losses, sizeof(struct pd_loss));
	report->evaluation.losses = pd_calloc((size_t)report->losses, sizeof(struct pd_loss));
	pd_tally_begin(&report->trained, report->losses, pd_job_first(job));
	pd_tally_begin(&report->tested, report->losses, 0);
	if (report->every == 0)
		report->every = job->epoch_minibatches > 10 ? job->epoch_minibatches / 10 : 1;
	report->begun_ns = report->newest_ns = pd_now_ns();
	begin_stretch(report, first);
	pd_run_times_begin(&report->times, job->plan, job->lists ? INT64_MAX
			   : pd_job_microbatches(job, job->epoch_minibatches), pd_job_first(job));
	report->quiet = quiet;
	report->pace.total = job->total_minibatches;
	report->pace.epoch_minibatches = job->epoch_minibatches;
	pd_progress_bar_begin(&report->bar, "training", job->total_minibatches, quiet);
	show_bar(report, "connecting");
}

/* Makes a JSON number, or null for NaN and infinity. */
static json_t *real(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

/* Adds the accuracy of one loss and, if a sample has several rows (tokens), the perplexity. */
static void add_quality(const struct pd_run_report *report, const struct pd_sums *sums, int loss,
			json_t *to)
{
	double share = accuracy(report, sums, loss);

	if (share < 0)
		return;
	pd_json_set(to, "accuracy", json_real(share));
	if (layer_of(report, loss)->output.dims > 0)
		pd_json_set(to, "perplexity", real(exp(mean_of(sums, loss,
							       sums->losses[loss].sum))));
}

/* Adds loss and accuracy; with several losses, also each by its name. */
static void add_losses(const struct pd_run_report *report, const struct pd_sums *sums,
		       json_t *event)
{
	json_t *all = json_object();

	pd_json_set(event, "loss", real(mean_loss(report, sums)));
	add_quality(report, sums, report->main_loss, event);
	for (int k = 0; k < report->losses; k++) {
		json_t *each = json_object();

		pd_json_set(each, "loss", real(mean_of(sums, k, sums->losses[k].sum)));
		add_quality(report, sums, k, each);
		pd_json_set(all, layer_of(report, k)->name, each);
	}
	if (report->losses > 1)
		json_object_set(event, "losses", all);
	json_decref(all);
}

/* Adds what is evaluated, and on which data. */
static void add_subject(const struct pd_job *job, json_t *event)
{
	pd_json_set(event, "parameters", pd_json_shown(job->init));
	pd_json_set(event, "data", pd_json_shown(job->data));
}

/* Says on standard error what the report of an evaluation says. */
static void say_quality(const struct pd_run_report *report)
{
	const struct pd_sums *sums = &report->evaluation;
	double loss = mean_loss(report, sums), share = accuracy(report, sums, report->main_loss);
	char more[64] = "";

	if (report->quiet)
		return;
	if (share >= 0)
		snprintf(more, sizeof(more), ", accuracy %.2f %%", 100 * share);
	if (json_object_get(report->last_evaluation, "perplexity"))
		snprintf(more + strlen(more), sizeof(more) - strlen(more), ", perplexity %.6g",
			 exp(mean_of(sums, report->main_loss, sums->losses[report->main_loss].sum)));
	pd_say("loss %.6g%s%s", loss, more, isfinite(loss) ? "" : ": not a finite number");
}

/*
 * Reports an evaluation.  Its epoch is counted here: replicas that have ended it may already train
 * the next one, so `done` can be too large.
 */
static void evaluated(struct pd_run_report *report)
{
	const struct pd_sums *sums = &report->evaluation;
	int64_t size = report->job->epoch_minibatches;
	json_t *event;

	report->evaluated = (report->evaluated / size + 1) * size;
	if (report->evaluated > report->job->total_minibatches)
		report->evaluated = report->job->total_minibatches;
	if (report->evaluated < report->first_done)     /* nothing was left to train */
		report->evaluated = report->first_done;
	pd_progress_bar_hide(&report->bar);
	event = json_pack("{s:s, s:I}", "event", "evaluation", "step", (json_int_t)report->evaluated);
	if (report->job->only_evaluates)
		add_subject(report->job, event);
	else
		pd_json_set(event, "epoch", json_integer((report->evaluated - 1) / size + 1));
	json_decref(report->last_evaluation);
	report->last_evaluation = json_object();
	add_losses(report, sums, report->last_evaluation);
	json_object_update(event, report->last_evaluation);
	pd_json_set(event, "samples", json_integer(sums->samples));
	if (report->job->only_evaluates)
		say_quality(report);
	report->tested_samples = sums->samples;
	line(report, event);
	sums_clear(&report->evaluation, report->losses);
	begin_stretch(report, report->done);    /* the next rate is for training alone */
}

void pd_run_report_update(struct pd_run_report *report, const json_t *message)
{
	const json_t *norm = json_object_get(message, "grad_norm");

	report->updated = true;
	report->grad_norm = json_is_null(norm) ? NAN : json_real_value(norm);
	report->loss_scale = json_real_value(json_object_get(message, "loss_scale"));
	report->skipped = pd_member_int(message, "skipped");
	*(pd_member_true(message, "skip") ? &report->left_out : &report->made) += 1;
}

static void say_learned_nothing(struct pd_run_report *report, char *why)
{
	int64_t done = report->done - report->first_done;

	report->learned_nothing = true;
	pd_progress_bar_hide(&report->bar);
	pd_say("nothing was learned in %" PRId64 " minibatch%s: %s", done, done == 1 ? "" : "es",
	       why);
	free(why);
}

void pd_run_report_learned(struct pd_run_report *report)
{
	const struct pd_optimizer *o = &report->job->optimizer;

	if (report->learned_nothing || report->diverged_at || report->done == report->first_done)
		return;
	if (report->counted == 0)
		say_learned_nothing(report, pd_format(
			"no label of the %s counts in layer %s: expected some that its loss does "
			"not ignore", report->job->data ? "training set" : "made-up data",
			layer_of(report, report->main_loss)->name));
	else if (report->left_out > 0 && report->made == 0)
		say_learned_nothing(report, pd_format(
			"all updates were left out, since gradients in %s overflow at a loss scale "
			"of %g; a lower --loss-scale%s, or a plan in bf16, may help",
			pd_dtype_name[report->job->plan->profile->dtype], report->loss_scale,
			o->loss_scale_interval > 0 ? "-init" : ", or dynamic"));
}

/* A scale that adapts may need the updates of an epoch, which is not said before the run ends. */
static void note_epoch(struct pd_run_report *report)
{
	if (report->done % report->job->epoch_minibatches == 0 &&
	    report->job->optimizer.loss_scale_interval == 0)
		pd_run_report_learned(report);
}

/* Adds the numbers of the newest update. */
static void add_update(const struct pd_run_report *report, json_t *event)
{
	if (!report->updated)
		return;
	pd_json_set(event, "grad_norm", real(report->grad_norm));
	pd_json_set(event, "loss_scale", real(report->loss_scale));
	pd_json_set(event, "skipped", json_integer(report->skipped));
}

static void minibatch_done(struct pd_run_report *report)
{
	struct pd_sums *sums = &report->training;
	int64_t size = pd_job_microbatches(report->job, 1);
	json_t *event;

	report->done++;
	report->last_loss = mean_loss(report, sums);
	show_trained(report);
	note_epoch(report);
	if (sums->microbatches / size < report->every &&
	    report->done < report->job->total_minibatches)
		return;
	pd_progress_bar_hide(&report->bar);
	event = json_pack("{s:s, s:I, s:I}", "event", "progress",
			  "step", (json_int_t)report->done, "epoch",
			  (json_int_t)((report->done - 1) / report->job->epoch_minibatches + 1));
	add_losses(report, sums, event);
	pd_json_set(event, "samples_per_s",
		    real(pd_pace_stretch_end(&report->stretch) * (double)samples_of(report, 1)));
	add_update(report, event);
	line(report, event);
	sums_clear(sums, report->losses);
}

/* Says in which minibatch a loss was not finite, of the first such loss that arrives. */
static void diverged(struct pd_run_report *report, int64_t microbatch, int loss)
{
	if (report->diverged_at)
		return;
	report->diverged_at = microbatch / pd_job_microbatches(report->job, 1) + 1;
	pd_progress_bar_hide(&report->bar);
	pd_say("layer %s: the loss of minibatch %" PRId64 " is not a finite number: %s",
	       layer_of(report, loss)->name, report->diverged_at, report->not_finite[PD_GIVEN_INIT] ||
	       report->not_finite[PD_GIVEN_DATA] ? "nor are all that it was made of" : "training has diverged; a lower --lr, --lr-warmup or"
	       " --clip-grad-norm may help");
}

void pd_run_report_not_finite(struct pd_run_report *report, const json_t *message)
{
	bool *said = &report->not_finite[pd_member_int(message, "given") != PD_GIVEN_INIT];

	if (*said)                      /* one is enough */
		return;
	*said = true;
	pd_progress_bar_hide(&report->bar);
	pd_say("%s", pd_member_text(message, "text"));
}

/*
 * Takes the losses of one stage.  Microbatches of an evaluation are numbered after those of the
 * evaluation before, since one stage may have begun the next while losses of another are missing.
 */
static void note(struct pd_run_report *report, const json_t *message, bool evaluates)
{
	int64_t b = pd_member_int(message, "microbatch");
	int first = (int)pd_member_int(message, "first");
	json_t *value;
	size_t k;

	if (evaluates)  /* every second phase is an evaluation */
		b += pd_member_int(message, "phase") / 2 * report->job->test_microbatches;
	json_array_foreach(json_object_get(message, "losses"), k, value) {
		json_t *sum = json_object_get(value, "sum");
		struct pd_loss loss = {
			.sum = json_is_null(sum) ? NAN : json_real_value(sum),
			.correct = pd_member_int(value, "correct"),
			.samples = pd_member_int(value, "samples"), .rows = pd_member_int(value, "rows"),
		};

		if (json_is_null(sum) && !evaluates)
			diverged(report, b, first + (int)k);
		pd_tally_add(evaluates ? &report->tested : &report->trained, b, first + (int)k,
			     &loss);
	}
}

void pd_run_report_losses(struct pd_run_report *report, const json_t *message)
{
	bool evaluates = pd_member_true(message, "evaluate");
	struct pd_tally *tally = evaluates ? &report->tested : &report->trained;
	struct pd_sums *sums = evaluates ? &report->evaluation : &report->training;
	int64_t size = pd_job_microbatches(report->job, 1);
	const struct pd_loss *values;

	/* when the rank had them: messages are read late where the host is busy */
	if (report->begun_ns + pd_member_int(message, "at_ns") > report->newest_ns)
		report->newest_ns = report->begun_ns + pd_member_int(message, "at_ns");
	note(report, message, evaluates);
	if (evaluates)
		pd_pace_interrupt(&report->pace);
	while ((values = pd_tally_take(tally))) {
		sums_add(sums, values, report->losses);
		if (!evaluates) {
			report->counted += counted_rows(values, report->losses);
			pd_run_times_add(&report->times, report->newest_ns);
		}
		if (evaluates && sums->microbatches == report->job->test_microbatches)
			evaluated(report);
		else if (!evaluates && sums->microbatches % size == 0)
			minibatch_done(report);
		else if (evaluates)
			show_bar(report, "evaluating");
	}
}

void pd_run_report_release(struct pd_run_report *report)
{
	pd_tally_release(&report->trained);
	pd_tally_release(&report->tested);
	free(report->training.losses);
	free(report->evaluation.losses);
	json_decref(report->last_evaluation);
	pd_run_times_release(&report->times);
}

void pd_run_report_checkpoint(struct pd_run_report *report, const char *directory, int64_t step)
{
	pd_progress_bar_hide(&report->bar);
	line(report, json_pack("{s:s, s:I, s:o}", "event", "checkpoint", "step", (json_int_t)step,
			       "directory", pd_json_shown(directory)));
}

static bool predict_memory(const struct pd_run_report *report, const struct pd_schedule *schedule,
			   int rank, struct pd_memory *out_p)
{
	const struct pd_job *job = report->job;
	struct pd_moments moments = pd_optimizer_moments(&job->optimizer);
	int chunks = pd_schedule_chunks(schedule, rank);
	struct pd_buffer_counts buffer_counts[chunks];
	bool exact;

	if (!job->lists)
		return pd_schedule_memory(schedule, rank, &moments, out_p);
	pd_buffer_counts_of_list(schedule, job->lists, rank, job->test_microbatches > 0,
				 buffer_counts);
	exact = pd_schedule_memory_in(schedule, rank, buffer_counts, &moments, out_p);
	pd_buffer_counts_release(buffer_counts, chunks);
	return exact;
}

/*
 * Names each rank whose memory differs from the prediction: the rule is wrong, or the profile was made for
 * another device or number of threads.
 */
static void report_memory(const struct pd_run_report *report, const struct pd_schedule *schedule,
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
		pd_json_add(measured, json_integer(memory_bytes[r]));
		pd_json_add(predicted, json_integer(memory.total_bytes));
		more = memory_bytes[r] - memory.total_bytes;
		if (more != 0) {
			char *so_far = verdict;

			verdict = pd_format("%s%s rank %d has %" PRId64 " bytes %s than predicted",
					    differs ? so_far : "not as predicted:", differs ? "," : "", r,
					    more > 0 ? more : -more, more > 0 ? "more" : "fewer");
			free(so_far);
			differs = true;
		}
	}
	pd_json_set(event, "memory_bytes", measured);
	pd_json_set(event, "predicted_memory_bytes", predicted);
	pd_json_set(event, "memory",
		    json_string(!begun ? "not compared: not all ranks had begun" : !exact ?
				"not compared: the profile does not say enough" : verdict));
	free(verdict);
}

void pd_run_report_end(struct pd_run_report *report, const struct pd_schedule *schedule,
		       const char *outcome, const int64_t *memory_bytes,
		       const struct pd_expected_run *expected)
{
	int64_t ns = (report->ended_ns ? report->ended_ns : pd_now_ns()) - report->begun_ns;
	double samples = report->job->only_evaluates ? (double)report->tested_samples
		       : (double)samples_of(report, report->done - report->first_done);
	json_t *event = json_pack("{s:s, s:s, s:I, s:I, s:f}", "event", "done", "outcome", outcome,
				  "step", (json_int_t)report->done, "elapsed_ns", (json_int_t)ns,
				  "samples_per_s", ns > 0 ? samples * 1e9 / (double)ns : 0);

	report_memory(report, schedule, memory_bytes, event);
	if (expected->period_ns > 0)
		pd_run_times_report(&report->times, expected, event);
	if (report->done > report->first_done)
		pd_json_set(event, "loss", real(report->last_loss));
	add_update(report, event);
	json_object_set(event, "evaluation", report->last_evaluation);
	pd_progress_bar_end(&report->bar);
	line(report, event);
}
