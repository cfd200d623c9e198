/* SPDX-License-Identifier: Apache-2.0 */
#include "run/supervisor/supervisor.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/opt.h"
#include "predict/expect.h"
#include "run/supervisor/internal.h"
#include "run/transport/address.h"
#include "schedule/peers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int supervisor_stage_of(const struct supervisor *s, int r, int *replica_p)
{
	int replica, stage = pd_plan_stage_of_rank(s->job->plan, r, &replica);

	if (replica_p)
		*replica_p = replica;
	return stage;
}

struct pd_channel *supervisor_channel(struct supervisor *s, int r)
{
	return s->launcher->ops->channel(s->launcher, r);
}

/* Sends a message to a rank.  An error shows when its messages are read. */
void supervisor_tell(struct supervisor *s, int r, json_t *message)
{
	pd_channel_send(supervisor_channel(s, r), message, NULL);
}

void supervisor_tell_all(struct supervisor *s, json_t *message)
{
	for (int r = 0; r < s->count; r++)
		supervisor_tell(s, r, json_incref(message));
	json_decref(message);
}

static void tell_packed(struct supervisor *s, int r, const struct pd_packed *packed)
{
	pd_channel_send_packed(supervisor_channel(s, r), packed, NULL);
}

/* ---- stopping ---- */

/* All ranks have reported their places and wait: the run ends behind the one that is furthest. */
static void decide_stop(struct supervisor *s)
{
	int64_t unit = pd_schedule_unit(s->schedule), at = 0, first, end;
	const struct watched *furthest = &s->ranks[0];
	struct pd_position position;
	struct pd_phase phase = { 0 };

	for (int r = 1; r < s->count; r++) {
		const struct watched *w = &s->ranks[r];

		if (w->phase > furthest->phase ||
		    (w->phase == furthest->phase && w->highest > furthest->highest))
			furthest = w;
	}
	pd_job_begin(s->job, &position);
	while (position.number < furthest->phase &&
	       pd_job_next(s->job, s->schedule, &position, &phase))
		if (!phase.evaluate) {
			first = phase.first;
			at = phase.last;
		}
	if (!furthest->evaluate && furthest->phase >= 0) {
		first = phase.first;
		end = furthest->highest + 1 - first;
		end = unit > end ? (end > 0 ? unit : 0) : (end + unit - 1) / unit * unit;
		if (end < at - first)
			at = first + end;
	}
	if (furthest->phase < 0)
		at = pd_job_first(s->job);
	s->job->total_minibatches = pd_job_minibatches(s->job, at);
	supervisor_tell_all(s, json_pack("{s:s, s:i, s:I}", "event", "stop_at",
					 "phase", furthest->phase, "at", (json_int_t)at));
}

void supervisor_ask_stop(struct supervisor *s)
{
	if (s->stop_sent || !s->connected)
		return;
	s->stop_sent = true;
	supervisor_tell_all(s, json_pack("{s:s}", "event", "stop"));
}

/* ---- messages ---- */

/* With the addresses of those that r exchanges something with, where the ranks have told theirs. */
json_t *supervisor_connect_message(const struct supervisor *s, int r)
{
	bool *peers = pd_calloc((size_t)s->count, sizeof(*peers));
	json_t *addresses = json_object();

	pd_schedule_peers(s->schedule, r, peers);
	peers[r] = true;
	for (int q = 0; q < s->count; q++)
		if (peers[q])
			pd_address_add(addresses, q, s->ranks[q].address);
	free(peers);
	return json_pack("{s:s, s:i, s:o, s:I}", "event", "connect", "ranks", s->count, "addresses",
			 addresses, "zero_ns", (json_int_t)s->zero_ns);
}

static void connect_all(struct supervisor *s)
{
	pd_job_release_held(s->job);
	s->zero_ns = pd_now_ns();
	s->connected = true;
	s->moved_ns = pd_awake_ns(&s->awake);
	pd_run_report_begin(&s->report, s->job, s->how->report_every, s->how->quiet);
	for (int r = 0; r < s->count; r++)
		supervisor_tell(s, r, supervisor_connect_message(s, r));
	if (s->stop_asked)
		supervisor_ask_stop(s);
}

static void on_reached(struct supervisor *s, struct watched *w, const json_t *message)
{
	w->phase = (int)pd_member_int(message, "phase");
	w->evaluate = pd_member_true(message, "evaluate");
	w->highest = pd_member_int(message, "highest");
	if (++s->reached == s->count)
		decide_stop(s);
}

/* The first of them is enough: others have the like to say. */
static void say_exchange(struct supervisor *s, const json_t *message)
{
	if (s->how->quiet || s->exchange_said)
		return;
	s->exchange_said = true;
	pd_progress_bar_hide(&s->report.bar);
	pd_say("%s", pd_member_text(message, "text"));
}

static void on_alive(struct supervisor *s, struct watched *w, const json_t *message)
{
	int64_t retired = pd_member_int(message, "retired");

	w->busy = !json_object_get(message, "doing");
	if (w->busy)
		return;
	if (retired != w->retired)
		s->moved_ns = w->heard_ns;
	w->retired = retired;
	w->computing = pd_member_true(message, "computing");
	w->peer = (int)pd_member_int(message, "peer");
	snprintf(w->doing, sizeof(w->doing), "%s", pd_member_text(message, "doing"));
}

bool supervisor_gives_up(const struct supervisor *s)
{
	return s->how->stops_on_divergence &&
	       (s->report.diverged_at > 0 || s->bad_step >= 0 || s->report.learned_nothing);
}

static int on_message(struct supervisor *s, int r, const json_t *message, struct pd_error *err)
{
	struct watched *w = &s->ranks[r];

	supervisor_heard(s, r);
	if (pd_message_is(message, "ready")) {
		s->moved_ns = w->heard_ns;
		w->address = json_incref(json_object_get(message, "address"));
		w->memory_bytes = pd_member_int(message, "memory_bytes");
		w->threads = pd_member_int(message, "threads");
		if (++s->ready == s->count)
			connect_all(s);
		else
			pd_run_report_starting(&s->report, s->ready, s->count, s->how->quiet);
	} else if (pd_message_is(message, "alive")) {
		on_alive(s, w, message);
	} else if (pd_message_is(message, "losses")) {
		s->moved_ns = w->heard_ns;
		pd_run_report_losses(&s->report, message);
	} else if (pd_message_is(message, "not_finite")) {
		pd_run_report_not_finite(&s->report, message);
	} else if (pd_message_is(message, "exchange")) {
		say_exchange(s, message);
	} else if (pd_message_is(message, "updated")) {
		pd_run_report_update(&s->report, message);
	} else if (pd_message_is(message, "reached")) {
		on_reached(s, w, message);
	} else if (pd_message_is(message, "exported")) {
		return supervisor_exported(s, message, err);
	} else if (pd_message_is(message, "saved")) {
		return supervisor_saved(s, message, err);
	} else if (pd_message_is(message, "published")) {
		return supervisor_published(s, message, err);
	} else if (pd_message_is(message, "done")) {
		pd_run_times_hear(&s->report.times, r, message);
		if (supervisor_has_trace(s, r, err) < 0)
			return -1;
		if (++s->done == s->count)
			s->report.ended_ns = pd_now_ns();
	} else if (pd_message_is(message, "error")) {
		return supervisor_on_error(s, r, message, err);
	}
	return 0;
}

int supervisor_read_rank(struct supervisor *s, int r, struct pd_error *err)
{
	json_t *message;
	int verdict;

	while ((verdict = pd_channel_receive(supervisor_channel(s, r), &message)) > 0) {
		int status = on_message(s, r, message, err);

		json_decref(message);
		if (status < 0)
			return -1;
	}
	return verdict < 0 ? supervisor_on_gone(s, r, err) : 0;
}

/* ---- the whole run ---- */

static void tell_jobs(struct supervisor *s)
{
	struct pd_packed job = pd_pack(pd_job_json(s->job));

	for (int r = 0; r < s->count; r++) {
		tell_packed(s, r, &job);
		supervisor_tell(s, r, pd_job_place_json(s->job, r, s->launcher->ops->seat(s->launcher,
											  r)));
	}
	pd_packed_release(&job);
}

static int start_all(struct supervisor *s, struct pd_error *err)
{
	struct pd_launcher *launcher = s->launcher;

	for (int r = 0; r < s->count; r++) {
		struct watched *w = &s->ranks[r];

		if (supervisor_open_trace(s, r, err) < 0 ||
		    launcher->ops->start(launcher, r, err) < 0)
			return -1;
		supervisor_tell(s, r, json_pack("{s:s}", "event", "train"));
		w->phase = -1;
	}
	if (supervisor_find_folders(s, err) < 0)
		return -1;
	for (int r = 0; r < s->count; r++) {
		supervisor_receive_trace(s, r);
		supervisor_heard(s, r);
	}
	s->moved_ns = pd_awake_ns(&s->awake);
	if (!s->job->gather)
		tell_jobs(s);
	return 0;
}

/* Sets what the run was expected to take. */
static void expect_run(const struct supervisor *s, struct pd_expected_run *out_p)
{
	int64_t processors, threads;

	*out_p = (struct pd_expected_run){ 0 };
	if (s->report.done == s->report.first_done)
		return;
	supervisor_processors(s, &processors, &threads);
	pd_expect_run(s->job->plan, s->job->lists, processors, threads, out_p);
}

static int supervise(struct supervisor *s, struct pd_error *err)
{
	int64_t *memory = pd_calloc((size_t)s->count, sizeof(*memory));
	int status;
	bool in_order;

	pd_run_report_starting(&s->report, 0, s->count, s->how->quiet);
	status = start_all(s, err);
	if (status == 0 && !s->job->gather)
		status = supervisor_watch(s, err);
	if (supervisor_gives_up(s))
		s->at_once = true;
	if (status == 0 && s->connected && s->job->trace && !s->at_once)
		supervisor_measure_drift(s);
	if (status == 0 && (s->connected || s->job->gather) && !s->at_once)
		status = supervisor_settle(s, err);
	for (int r = 0; r < s->count; r++) {
		s->launcher->ops->kill(s->launcher, r);
		memory[r] = s->ranks[r].memory_bytes;
	}
	if (status == 0 && s->connected && !s->job->only_evaluates && !s->at_once &&
	    s->job->until == 0)
		pd_run_report_learned(&s->report);
	s->at_once |= supervisor_gives_up(s);
	in_order = status == 0 && !s->at_once && !s->job->gather && s->job->until == 0;
	if (in_order && !s->connected)  /* stopped before anything was trained */
		pd_run_report_begin(&s->report, s->job, s->how->report_every, s->how->quiet);
	if (in_order) {
		struct pd_expected_run expected;

		expect_run(s, &expected);
		pd_run_report_end(&s->report, s->schedule, s->stop_asked ? "stopped" : "done",
				  memory, &expected);
		pd_expected_run_release(&expected);
	} else {
		pd_progress_bar_end(&s->report.bar);
	}
	if (in_order && s->connected && s->job->trace)
		status = supervisor_merge_trace(s, err);
	if (status == 0 && s->report.lost)
		status = supervisor_lost_output(s, err);
	if (in_order && s->signal != 0 && !s->how->quiet && !s->job->only_evaluates)
		supervisor_say_stopped(s, "stopped");
	supervisor_close_trace(s);
	free(memory);
	return status;
}

/* More threads than processors only get in each other's way, and a thousand never begin. */
static int check_threads(const struct supervisor *s, struct pd_error *err)
{
	int processors = s->launcher->ops->processors(s->launcher);
	bool several = s->launcher->ops->seat(s->launcher, 0)->hosts > 1;

	if (s->job->threads <= processors)
		return 0;
	return pd_error_input(err, "--threads=%" PRId64 ": %s us use %d processor%s%s", s->job->threads,
			      several ? "these machines let" : "this machine lets", processors,
			      processors == 1 ? "" : "s", several ? " in all" : "");
}

int supervisor_run(struct pd_job *job, const struct pd_supervision *how, struct run_end *end_p,
		   struct pd_error *err)
{
	struct supervisor s = { .job = job, .how = how, .count = job->plan->rank_count, .bad_step = -1,
				.last_checkpoint = job->resume_step, .signal_fd = -1 };
	int status = -1;

	if (pd_output_check(err) < 0)
		return -1;
	s.schedule = pd_schedule_new(job->plan, err);
	if (!s.schedule)
		return -1;
	s.ranks = pd_calloc((size_t)s.count, sizeof(*s.ranks));
	for (int r = 0; r < s.count; r++)
		s.ranks[r].trace = -1;
	s.launcher = how->launcher->open(s.count, err);
	if (s.launcher) {
		status = check_threads(&s, err) < 0 ? -1 : supervisor_check_mapping(&s, err);
		if (how->print_mapping)
			supervisor_print_mapping(&s);
		else if (status == 0 && (status = supervisor_catch_signals(&s, err)) == 0)
			status = supervise(&s, err);
		supervisor_release_signals(&s);
		s.launcher->ops->close(s.launcher);
	}
	supervisor_forget_pending(&s);
	*end_p = (struct run_end){
		.diverged_at = supervisor_gives_up(&s) ? s.report.diverged_at : 0,
		.bad_step = supervisor_gives_up(&s) ? s.bad_step : -1,
		.learned_nothing = supervisor_gives_up(&s) && s.report.learned_nothing,
		.last_checkpoint = s.last_checkpoint, .unit = pd_schedule_unit(s.schedule),
	};
	for (int r = 0; r < s.count; r++)
		json_decref(s.ranks[r].address);
	free(s.ranks);
	pd_run_report_release(&s.report);
	pd_schedule_free(s.schedule);
	return status < 0 ? -1 : s.stop_asked ? s.signal : 0;
}

int pd_supervise(struct pd_job *job, const struct pd_supervision *how, struct pd_error *err)
{
	struct run_end end = { .bad_step = -1 };
	int status = supervisor_run(job, how, &end, err);

	if (status == 0 && end.learned_nothing)
		return pd_error_failed(err, "--on-divergence=stop: nothing was learned: stopped");
	return status == 0 && (end.diverged_at > 0 || end.bad_step >= 0)
		? supervisor_stop_at_good(job, how, &end, err) : status;
}
