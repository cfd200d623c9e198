/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay of a plan without workers, for plans of a frequent kind; private to this folder.
 *
 * A replay (lib/replay) runs the workers of a real run, and most of its time goes into what they
 * do for any device, transport and schedule.  Here each rank's list, from the same generator, is
 * taken by the same rules (lib/worker: what may be issued when, what it waits for), and time
 * passes by the same rules (lib/device/sim, lib/transport/sim: what starts when, which of those
 * that wait goes first), but nothing else is done.  What an all-reduce sends and sums is what
 * lib/transport/collective posts, which is asked once per member.  So every backward ends at the
 * nanosecond at which the replay ends it: test/unit/express.c compares them.
 */
#ifndef PD_PLANNER_EXPRESS_H
#define PD_PLANNER_EXPRESS_H

#include "plan/plan.h"
#include "replay/replay.h"

/*
 * As pd_replay_run: calls options->retired, of backwards only, with their stage, microbatch and
 * end, in the order of the replay, until *options->enough.  Of the options only these and the
 * minibatches may be set.  1: done; 0: it does not know such a plan, and what was retired so far
 * does not count; -1: the plan is refused.
 */
int pd_express_run(const struct pd_plan *plan, const struct pd_replay_options *options,
		   struct pd_error *err);

#endif
