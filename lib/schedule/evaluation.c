/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/evaluation.h"

#include "base/minmax.h"

static int64_t replicas(const struct pd_schedule *schedule, int s)
{
	return schedule->plan->stages[s].replicas;
}

static int64_t evaluation_span(const struct pd_schedule *schedule)
{
	return 32 * (int64_t)schedule->stage_count;
}

/*
 * Returns the microbatches that a replica has in flight in an evaluation if every stage up to the
 * farthest that it sends to works on one, and the next arrives.
 */
static int64_t needed(const struct pd_schedule *schedule, int s)
{
	const struct pd_wiring *wiring = schedule->wiring;
	int64_t r = replicas(schedule, s), between = r;
	int far = s + 1;

	for (int i = 0; i < wiring->out_count[s]; i++)
		if (wiring->links[wiring->out[s][i]].to > far)
			far = wiring->links[wiring->out[s][i]].to;
	for (int t = s + 1; t < far; t++)
		between += replicas(schedule, t);
	return (between + r - 1) / r + 1;
}

/*
 * Returns how many ticks after a forward with that lead its activation finds room where it goes, whose
 * leads_s and lingers_s are set.
 */
static int64_t room_after(const struct pd_schedule *schedule, const struct pd_link *link, int64_t lead)
{
	int s = link->from, t = link->to;
	int64_t inboxes = pd_schedule_inboxes(schedule, t, true) * replicas(schedule, t);

	return (lead - schedule->evaluation_leads[t] - inboxes) * evaluation_span(schedule) +
	       16 * (int64_t)(t - s) + schedule->evaluation_lingers[t] + 3;
}

/* Returns the most lead with which that is before the forward that needs the same slot or outbox. */
static int64_t most_lead(const struct pd_schedule *schedule, const struct pd_link *link)
{
	int s = link->from;
	int64_t span = evaluation_span(schedule), held = schedule->evaluation_slots[s];

	if (schedule->plan->stages[s].recompute)
		held = pd_min(held, schedule->outboxes[s]);
	return (held * replicas(schedule, s) * span - 1 - room_after(schedule, link, 0)) / span;
}

/*
 * In an evaluation a stage is ahead of the next one by one forward of each replica, or less where
 * an activation that skips stages could not be held for as long: neither has more than training.
 * Going down, leads never fall: lingers_s are less than what all inboxes but one take, so most_lead is
 * more than the lead of the stage that the link goes to, and all that it skips have at most that.
 */
void pd_evaluation_shape(struct pd_schedule *schedule)
{
	const struct pd_wiring *wiring = schedule->wiring;
	bool slants = pd_wiring_skips(wiring) || schedule->chunks > 1;
	int64_t *leads = schedule->evaluation_leads, *lingers = schedule->evaluation_lingers;

	for (int s = 0; s < schedule->stage_count; s++) {
		schedule->evaluation_slots[s] = (int)pd_min(schedule->slots[s], needed(schedule, s));
		leads[s] = INT64_MAX;
	}
	for (int s = schedule->stage_count - 1; s >= 0; s--) {
		leads[s] = slants && s < schedule->stage_count - 1
			? pd_min(leads[s], leads[s + 1] + replicas(schedule, s)) : 0;
		for (int i = 0; i < wiring->out_count[s] && slants; i++) {
			const struct pd_link *link = &wiring->links[wiring->out[s][i]];

			if (room_after(schedule, link, leads[s]) - 2 > lingers[s])
				lingers[s] = room_after(schedule, link, leads[s]) - 2;
		}
		for (int i = 0; i < wiring->in_count[s]; i++) {
			const struct pd_link *link = &wiring->links[wiring->in[s][i]];

			for (int u = link->from; u < s; u++)
				leads[u] = pd_min(leads[u], most_lead(schedule, link));
		}
	}
}
