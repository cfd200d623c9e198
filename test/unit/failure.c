/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank is named where nothing moves: the one that all the others wait for. */
#include "run/internal.h"

#include "tap.h"

#include <string.h>

#define RANKS 4

static int numbers[RANKS] = { 0, 1, 2, 3 };
static struct watched ranks[RANKS];

/* Rank r says that it is at an operation with `peer`, or with others (-1), or alone (-2). */
static void doing(int r, const char *what, int peer)
{
	ranks[r].computing = peer == -2;
	ranks[r].peer = peer < 0 ? -1 : peer;
	snprintf(ranks[r].doing, sizeof(ranks[r].doing), "%s of minibatch 7", what);
}

static void is_named(int r, const char *what)
{
	struct pd_stage stages[RANKS];
	struct pd_plan plan = { .stages = stages, .stage_count = RANKS, .rank_count = RANKS };
	struct pd_job job = { .plan = &plan };
	struct pd_supervision how = { .timeout_s = 5 };
	struct supervisor s = { .job = &job, .how = &how, .ranks = ranks, .count = RANKS,
				.connected = true, .last_checkpoint = -1 };
	struct pd_error err = { 0 };
	char name[64];

	for (int i = 0; i < RANKS; i++)
		stages[i] = (struct pd_stage){ .replicas = 1, .ranks = &numbers[i] };
	ok(supervisor_nothing_moves(&s, &err) < 0 && err.status == PD_EXIT_FAILED &&
	   strstr(err.text, supervisor_who(&s, r, name, sizeof(name))), "%s", what);
	diag("%s", err.text);
}

int main(void)
{
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
	return done_testing();
}
