/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the seats that the launcher of one machine assigns, and how a seat is sent to its rank. */
#include "base/mem.h"
#include "run/job/job.h"
#include "run/launch/launcher.h"

#include "read_plan.h"
#include "tap.h"

#include <stdlib.h>

#define RANKS 3

static void forked_seats(void)
{
	struct pd_error err = { 0 };
	struct pd_launcher *launcher = pd_launcher_fork.open(RANKS, &err);
	const struct pd_seat *first;
	bool alike = true, ended = true;

	ok(launcher != NULL, "the launcher of this machine opens");
	first = launcher->ops->seat(launcher, 0);
	for (int r = 0; r < RANKS; r++) {
		const struct pd_seat *seat = launcher->ops->seat(launcher, r);

		alike &= seat->local == r && seat->locals == RANKS && seat->device == r &&
			 seat->sharer == r && seat->sharers == RANKS && seat->hosts == 1 &&
			 seat->clock_ahead_ns == 0 && pd_seat_beside(seat, first);
		ended &= launcher->ops->ended(launcher, r) != PD_STILL_RUNS;
		launcher->ops->kill(launcher, r);
	}
	ok(alike, "all ranks are on one host, in their order, a device each");
	ok(ended, "what was not started does not run");
	launcher->ops->close(launcher);
}

static void with_the_job(void)
{
	const char *source = getenv("PD_SOURCE");
	char *name = pd_format("%s/test/data/small-plan.json", source ? source : ".");
	struct pd_error err = { 0 };
	struct pd_job job = { .plan = read_plan_file(name, &err), .device = "cpu" }, *got;
	const struct pd_seat seat = { .host = "node7", .local = 2, .locals = 4, .hosts = 5,
				      .sharer = 1, .sharers = 2, .device = 3, .device_sharers = 4,
				      .clock_ahead_ns = -5000000000 };
	json_t *message, *place;

	if (!ok(job.plan != NULL, "%s", name))
		diag("%s", err.text);
	message = pd_job_json(&job);
	place = pd_job_place_json(&job, 1, &seat);
	json_object_update(message, place);
	json_decref(place);
	got = pd_job_parse(message, &err);
	ok(got && pd_seat_beside(&got->seat, &seat) && got->seat.local == 2 &&
	   got->seat.locals == 4 && got->seat.hosts == 5 && got->seat.sharer == 1 &&
	   got->seat.sharers == 2 && got->seat.device == 3 && got->seat.device_sharers == 4 &&
	   got->seat.clock_ahead_ns == -5000000000, "a seat comes with the job");
	json_object_del(message, "seat");
	ok(!pd_job_parse(message, &err), "a job without a seat is none");
	json_decref(message);
	if (got)
		pd_job_free(got);
	pd_plan_free(job.plan);
	free(name);
}

int main(void)
{
	forked_seats();
	with_the_job();
	return done_testing();
}
