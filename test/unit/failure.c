/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests which rank a failure names: if nothing moves, the one that all the others wait for; if one rank
 * has lost another, the one that was the cause.
 */
#include "run/supervisor/internal.h"

#include "tap.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RANKS 4

static int numbers[RANKS] = { 0, 1, 2, 3 };
static struct watched ranks[RANKS];

/* Lets rank r be at an operation with `peer`, with several others (-1), or alone (-2). */
static void doing(int r, const char *what, int peer)
{
	ranks[r].computing = peer == -2;
	ranks[r].peer = peer < 0 ? -1 : peer;
	snprintf(ranks[r].doing, sizeof(ranks[r].doing), "%s of minibatch 7", what);
}

static struct pd_stage stages[RANKS];
static struct pd_plan plan = { .stages = stages, .stage_count = RANKS, .rank_count = RANKS };
static struct pd_job job = { .plan = &plan };
static const struct pd_supervision how = { .timeout_s = 5 };

/* ---- a launcher whose ranks are ends of sockets ---- */

static struct pd_channel here[RANKS], there[RANKS];     /* the supervisor's ends, and the ranks' */

static int hosts = 1;

static struct pd_channel *channel(struct pd_launcher *launcher, int rank)
{
	return &here[rank];
}

static enum pd_ended ended(struct pd_launcher *launcher, int rank)
{
	return there[rank].fd < 0 ? PD_ENDED_BADLY : PD_STILL_RUNS;
}

static const char *fate(const struct pd_launcher *launcher, int rank, char buf[PD_FATE_TEXT])
{
	return strcpy(buf, "was struck by lightning");
}

static const struct pd_seat *seat(const struct pd_launcher *launcher, int rank)
{
	static struct pd_seat seats[RANKS];

	seats[rank].hosts = hosts;
	snprintf(seats[rank].host, sizeof(seats[rank].host), "h%d", rank);
	return &seats[rank];
}

static void look(struct pd_launcher *launcher)
{
}

static enum pd_activity does;

static enum pd_activity activity(struct pd_launcher *launcher, int rank)
{
	return does;
}

static const struct pd_launcher_ops launcher_ops = {
	.name = "sockets", .channel = channel, .ended = ended, .fate = fate, .seat = seat,
	.look = look, .activity = activity,
};

/* ---- the rank that is named ---- */

static void is_named(int r, const char *what)
{
	struct pd_launcher launcher = { .ops = &launcher_ops };
	struct supervisor s = { .job = &job, .how = &how, .launcher = &launcher, .ranks = ranks,
				.count = RANKS, .connected = true, .last_checkpoint = -1 };
	struct pd_error err = { 0 };
	char name[WHO_TEXT];

	ok(supervisor_nothing_moves(&s, &err) < 0 && err.status == PD_EXIT_FAILED &&
	   strstr(err.text, supervisor_who(&s, r, name)), "%s", what);
	diag("%s", err.text);
}

static void start_all(void)
{
	for (int r = 0; r < RANKS; r++) {
		int pair[2];

		pd_channel_release(&here[r]);
		pd_channel_release(&there[r]);
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
			pd_bug("socketpair");
		pd_channel_init(&here[r], pair[0], 0);
		pd_channel_init(&there[r], pair[1], 0);
		ranks[r] = (struct watched){ .peer = -1 };
	}
}

/* Returns rank r's last message, as lib/run/launch/task.c sends it, about rank `peer` or about itself (-1). */
static json_t *word(int r, const char *text, int peer)
{
	struct pd_error err;

	if (peer < 0)
		pd_error_failed(&err, "rank %d: %s", r, text);
	else
		pd_error_peer(&err, peer, "rank %d: %s", r, text);
	return json_pack("{s:s, s:s, s:i, s:i, s:i}", "event", "error", "text", err.text, "status",
			 (int)err.status, "cause", (int)err.cause, "peer", err.peer);
}

static void says(int r, const char *text, int peer)
{
	pd_channel_send(&there[r], word(r, text, peer), NULL);
}

/* Checks that the run ends with this sentence when rank r's last message arrives. */
static void ends_with(int r, const char *text, int peer, const char *sentence, const char *what)
{
	struct pd_launcher launcher = { .ops = &launcher_ops };
	struct supervisor s = { .job = &job, .how = &how, .launcher = &launcher, .ranks = ranks,
				.count = RANKS, .connected = true, .last_checkpoint = -1 };
	struct pd_error err = { 0 };
	json_t *message = word(r, text, peer);

	ok(supervisor_on_error(&s, r, message, &err) < 0 && err.status == PD_EXIT_FAILED,
	   "%s: an error", what);
	is_str(err.text, sentence, "%s", what);
	json_decref(message);
}

static void causes(void)
{
	start_all();
	pd_channel_release(&there[2]);
	ends_with(1, "lost it", 2, "rank 2 (stage 2 of 4) was struck by lightning",
		  "a rank that is gone");
	start_all();
	pd_channel_release(&there[2]);
	pd_channel_release(&there[3]);
	ends_with(1, "lost it", 3, "rank 3 (stage 3 of 4) was struck by lightning",
		  "two are gone: the one that was blamed");
	start_all();
	says(2, "no room", -1);
	ends_with(1, "lost it", 2, "rank 2 (stage 2 of 4): rank 2: no room",
		  "the other one's own word");
	start_all();
	says(2, "lost it", 3);
	pd_channel_release(&there[2]);
	pd_channel_release(&there[3]);
	ends_with(1, "lost it", 2, "rank 3 (stage 3 of 4) was struck by lightning",
		  "the one that was blamed blames another");
	start_all();
	pd_channel_release(&there[2]);
	ends_with(1, "no room for: lost rank 2", -1,
		  "rank 1 (stage 1 of 4): rank 1: no room for: lost rank 2",
		  "what a sentence says does not decide");
	start_all();
	ends_with(1, "lost it", 2, "rank 1 (stage 1 of 4): rank 1: lost it",
		  "all the others run, and say nothing");
	for (int r = 0; r < RANKS; r++) {
		pd_channel_release(&here[r]);
		pd_channel_release(&there[r]);
	}
}

/* Lets a second pass; returns whether rank 1 is given up, which said its last word four seconds ago. */
static bool is_given_up(struct supervisor *s, enum pd_activity what)
{
	does = what;
	ranks[1].looked_ns = pd_awake_ns(&s->awake) - SECOND_NS;
	return supervisor_is_silent(s, 1);
}

/* Tests that silence is held against a rank only while it sleeps. */
static void silence(void)
{
	struct pd_launcher launcher = { .ops = &launcher_ops };
	struct pd_supervision patient = { .timeout_s = 100, .silence_s = 4 };
	struct supervisor s = { .job = &job, .how = &patient, .launcher = &launcher, .ranks = ranks,
				.count = RANKS, .connected = true, .last_checkpoint = -1 };
	int64_t moved_ns;
	bool any = false;

	start_all();
	pd_awake_ns(&s.awake);
	ranks[1].heard_ns = -4 * SECOND_NS;
	for (int i = 0; i < 50; i++)
		any |= is_given_up(&s, i % 2 ? PD_RUNS : PD_HELD_UP);
	ok(!any, "a rank that says nothing does not hang while it runs, or waits for a disk");
	ok(!is_given_up(&s, PD_ASLEEP), "nor as soon as it sleeps");
	ok(is_given_up(&s, PD_ASLEEP), "but then");
	supervisor_heard(&s, 1);
	ok(!is_given_up(&s, PD_ASLEEP), "and no more, once it has said something");
	patient.timeout_s = 1;
	ranks[1].heard_ns = -4 * SECOND_NS;
	ok(!is_given_up(&s, PD_ASLEEP), "a shorter --timeout: one look is not enough");
	ok(is_given_up(&s, PD_ASLEEP), "a second is");

	s.connected = false;
	s.moved_ns = moved_ns = -9 * SECOND_NS;
	ranks[1].heard_ns = pd_awake_ns(&s.awake);
	is_given_up(&s, PD_HELD_UP);
	ok(s.moved_ns == moved_ns, "while ranks start, one that does not run does not get on");
	is_given_up(&s, PD_RUNS);
	ok(s.moved_ns > moved_ns, "and one that runs does");
}

int main(void)
{
	for (int r = 0; r < RANKS; r++) {
		stages[r] = (struct pd_stage){ .replicas = 1, .ranks = &numbers[r] };
		here[r].fd = there[r].fd = -1;
	}
	doing(0, "recv_gradient", 1);
	doing(1, "recv_gradient", 2);
	doing(2, "backward", -2);
	doing(3, "send_gradient", 2);
	is_named(2, "one computes, and the others wait for it");

	ranks[1].heard_ns = -3 * SECOND_NS;
	is_named(1, "one has said nothing for a while, and at last that it waited");
	ranks[2].heard_ns = -4 * SECOND_NS;
	is_named(2, "two have: the one that was silent first");
	ranks[1].heard_ns = ranks[2].heard_ns = 0;

	doing(2, "agree", -1);
	is_named(2, "nobody computes: where waiting for each other leads");
	ranks[3].busy = true;
	is_named(3, "one writes a checkpoint");
	ranks[3].busy = false;
	doing(2, "recv_activation", 0);
	is_named(1, "in a circle, one of it");
	hosts = 2;
	is_named(1, "and where there are several hosts, with its own");
	hosts = 1;
	causes();
	silence();
	return done_testing();
}
