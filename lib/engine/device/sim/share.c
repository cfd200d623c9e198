/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A share is the processors that some ranks have in common.  All work on it runs at one pace: 1,
 * or, with more threads than processors, processors / threads.  Where these are of several ranks,
 * each finds caches that the others have filled, turn after turn, and the pace is lower by the
 * profile's factor.  So each share has a clock that runs at this pace, and a piece of work ends when
 * the clock has advanced by its duration.
 *
 * Where ranks have processors of their own and the profile says that computing is slower beside
 * transfers, each has a share, whose pace is lower while bytes come or leave.
 */
#include "base/mem.h"
#include "engine/device/sim/engine.h"

#include <math.h>
#include <stdlib.h>

struct job {
	struct pd_sim_activity *activity;
	double end;                     /* by the share's clock */
	int64_t threads;
};

struct pd_sim_share {
	int64_t processors;
	double in_turns;                /* how much longer work takes while there are turns; 1 or more */
	int64_t threads;                /* threads of all jobs */
	int travelling;                 /* transfers that come or leave, where that counts */
	double beside_transfers;        /* how much longer work takes beside them; 1 or more */
	double clock;
	int64_t at_ns;                  /* time on sim's clock at that reading */
	uint64_t wake;                  /* number of the wake that is valid */
	size_t count, capacity;
	struct job *jobs;               /* the running work of a few ranks, so there are few */
};

struct wake {
	struct pd_sim_activity activity;
	struct pd_sim_share *share;
	uint64_t number;
};

static double pace(const struct pd_sim_share *share)
{
	if (share->threads > share->processors)
		return (double)share->processors / ((double)share->threads * share->in_turns);
	return share->travelling > 0 ? 1 / share->beside_transfers : 1;
}

static void bring_up_to(struct pd_sim_share *share, int64_t now_ns)
{
	share->clock += (double)(now_ns - share->at_ns) * pace(share);
	share->at_ns = now_ns;
}

static void wake_up(struct pd_sim *sim, struct pd_sim_activity *activity);

static void plan_wake(struct pd_sim *sim, struct pd_sim_share *share)
{
	double next = INFINITY, left;
	struct wake *wake;

	share->wake++;
	for (size_t i = 0; i < share->count; i++)
		next = fmin(next, share->jobs[i].end);
	if (share->count == 0)
		return;
	left = ceil((next - share->clock) / pace(share) - 1e-3);
	wake = pd_pool_take(&sim->wakes, sizeof(*wake));
	*wake = (struct wake){ .activity.next = wake_up, .share = share, .number = share->wake };
	left = fmin(left, (double)PD_COST_MAX);
	pd_sim_at(sim, &wake->activity, share->at_ns + (left > 0 ? (int64_t)left : 0));
}

static void wake_up(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	struct wake *wake = (struct wake *)activity;
	struct pd_sim_share *share = wake->share;
	bool valid = wake->number == share->wake;
	size_t kept = 0;

	pd_pool_return(&sim->wakes, wake);
	if (!valid)
		return;
	bring_up_to(share, sim->now_ns);
	for (size_t i = 0; i < share->count; i++) {
		struct job *job = &share->jobs[i];

		if (job->end > share->clock + 0.5) {
			share->jobs[kept++] = *job;
			continue;
		}
		share->threads -= job->threads;
		pd_sim_at(sim, job->activity, sim->now_ns);
	}
	share->count = kept;
	plan_wake(sim, share);
}

void pd_sim_work_shared(struct pd_sim *sim, struct pd_sim_activity *activity, int rank,
			int64_t threads, int64_t duration_ns)
{
	struct pd_sim_share *share = &sim->shares[rank % sim->share_count];

	bring_up_to(share, sim->now_ns);
	share->jobs = pd_grow(share->jobs, &share->capacity, share->count + 1,
			      sizeof(*share->jobs));
	share->jobs[share->count++] = (struct job){ activity, share->clock + (double)duration_ns,
						    threads };
	share->threads += threads;
	plan_wake(sim, share);
}

static void aside_end(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	pd_pool_return(&sim->asides, activity);
}

void pd_sim_work_aside(struct pd_sim *sim, int rank, int64_t duration_ns)
{
	struct pd_sim_activity *activity = pd_pool_take(&sim->asides, sizeof(*activity));

	*activity = (struct pd_sim_activity){ .next = aside_end, .rank = rank };
	pd_sim_work(sim, activity, rank, 1, duration_ns);
}

static void free_shares(struct pd_sim *sim)
{
	for (int i = 0; i < sim->share_count; i++)
		free(sim->shares[i].jobs);
	free(sim->shares);
	sim->shares = NULL;
	sim->share_count = 0;
}

void pd_sim_slow_beside_transfers(struct pd_sim *sim, double factor)
{
	sim->beside_transfers = factor;
	sim->share_count = sim->rank_count;
	sim->shares = pd_calloc((size_t)sim->share_count, sizeof(*sim->shares));
	for (int i = 0; i < sim->share_count; i++)
		sim->shares[i] = (struct pd_sim_share){ .processors = INT64_MAX, .beside_transfers = factor };
}

void pd_sim_travels(struct pd_sim *sim, int rank, int change)
{
	struct pd_sim_share *share;

	if (sim->beside_transfers <= 1)
		return;
	share = &sim->shares[rank];
	bring_up_to(share, sim->now_ns);
	share->travelling += change;
	plan_wake(sim, share);
}

void pd_sim_set_processors(struct pd_sim *sim, int64_t processors, int64_t threads)
{
	int64_t each = processors / sim->rank_count;

	free_shares(sim);
	sim->shared = true;
	sim->beside_transfers = 1;      /* copies have processor time of their own */
	sim->share_count = processors < sim->rank_count ? (int)processors : sim->rank_count;
	sim->shares = pd_calloc((size_t)sim->share_count, sizeof(*sim->shares));
	for (int i = 0; i < sim->share_count; i++)
		sim->shares[i] = (struct pd_sim_share){
			.processors = each > 0 ? each : 1,
			.in_turns = i + sim->share_count < sim->rank_count ? sim->in_turns : 1,
		};
	sim->threads = threads < each ? threads : each > 0 ? each : 1;
}

void pd_sim_free_processors(struct pd_sim *sim)
{
	free_shares(sim);
	pd_pool_release(&sim->wakes);
	pd_pool_release(&sim->asides);
}
