/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/room.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

/* What one replica of a stage has at hand, in numbers of its own microbatches. */
struct need {
	int64_t arrived, forwarded;     /* the highest begun, plus one */
	int64_t ended;                  /* all before this have ended */
	bool *done;
	int64_t inboxes, slots;         /* at most */
	/* versions of the weights, ascending by number, and who reads them */
	struct { int64_t number; int readers; } *live;
	size_t live_count, live_room;
	int64_t versions;               /* at most */
};

static void begin(struct need *need, int64_t i, bool forward)
{
	if (i + 1 > need->arrived)
		need->arrived = i + 1;
	if (forward && i + 1 > need->forwarded)
		need->forwarded = i + 1;
	if (need->arrived - need->ended > need->inboxes)
		need->inboxes = need->arrived - need->ended;
	if (need->forwarded - need->ended > need->slots)
		need->slots = need->forwarded - need->ended;
}

static void end(struct need *need, int64_t i)
{
	need->done[i] = true;
	while (need->ended < need->forwarded && need->done[need->ended])
		need->ended++;
}

static void read_version(struct need *need, int64_t number, int by)
{
	for (size_t v = 0; v < need->live_count; v++)
		if (need->live[v].number == number)
			need->live[v].readers += by;
}

/* As pd_weights_step: what nobody reads nor will is free, the newest before among them. */
static void step(struct need *need, int64_t number, int64_t keep)
{
	size_t n = 0;

	for (size_t v = 0; v < need->live_count; v++)
		if (need->live[v].readers > 0 || need->live[v].number >= keep)
			need->live[n++] = need->live[v];
	need->live = pd_grow(need->live, &need->live_room, n + 1, sizeof(*need->live));
	need->live[n].number = number;
	need->live[n].readers = 0;
	need->live_count = n + 1;
	if ((int64_t)need->live_count > need->versions)
		need->versions = (int64_t)need->live_count;
}

static void follow(struct need *need, const struct pd_schedule *schedule, const struct pd_op *op)
{
	int64_t i = op->microbatch / schedule->plan->stages[op->stage].replicas;
	bool last = op->kind == (schedule->splits ? PD_OP_backward_weight : PD_OP_backward);

	switch (op->kind) {
	case PD_OP_load:
	case PD_OP_recv_activation:
		begin(need, i, false);
		break;
	case PD_OP_forward:
		begin(need, i, true);
		read_version(need, op->version, 1);
		break;
	case PD_OP_backward:
	case PD_OP_backward_weight:
		if (!last)
			break;
		end(need, i);
		read_version(need, op->version, -1);
		break;
	case PD_OP_step:
		step(need, op->version, op->keep);
		break;
	default:
		break;
	}
}

/* More warm-up is what more versions come from (pd_schedule_versions). */
static int give(struct pd_schedule *schedule, int s, const struct need *need,
		struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;
	int64_t slots = need->slots > need->inboxes - 1 ? need->slots : need->inboxes - 1;
	int at = plan->weights == PD_WEIGHTS_VERTICAL_SYNC ? 0 : s;
	int64_t r = plan->stages[at].replicas;
	int64_t warmup = ((need->versions - 1) * schedule->group[s] + r - 1) / r;

	if (slots > schedule->slots[s])
		schedule->slots[s] = (int)slots;
	if (need->versions <= pd_schedule_versions(schedule, s))
		return 0;
	if (warmup > schedule->warmup[at])
		schedule->warmup[at] = (int)warmup;
	if (need->versions <= pd_schedule_versions(schedule, s))
		return 0;
	return pd_error_input(err, "stage %d needs %" PRId64 " versions of its weights at once: "
			      "expected at most the %d that weights \"%s\" keep", s, need->versions,
			      pd_schedule_versions(schedule, s),
			      pd_weight_kind_name[plan->weights]);
}

static void need_init(struct need *need, int64_t microbatches)
{
	*need = (struct need){ .done = pd_calloc((size_t)microbatches, sizeof(bool)) };
	step(need, 0, 0);               /* the version with which training begins */
}

static void need_release(struct need *need)
{
	free(need->done);
	free(need->live);
}

static int make_room_on(struct pd_schedule *schedule, const struct pd_lists *lists, int rank,
			struct pd_error *err)
{
	const struct pd_list *list = &lists->ranks[rank];
	int chunks = schedule->chunks, stages[chunks], result = 0;
	struct need needs[chunks];

	pd_schedule_stages(schedule, rank, stages);
	for (int c = 0; c < chunks; c++)
		need_init(&needs[c], lists->microbatches);
	for (size_t i = 0; i < list->count; i++)
		follow(&needs[(list->ops[i].stage - stages[0]) / schedule->positions], schedule,
		       &list->ops[i]);
	for (int c = 0; c < chunks; c++) {
		if (result == 0)
			result = give(schedule, stages[c], &needs[c], err);
		need_release(&needs[c]);
	}
	return result;
}

int pd_replay_make_room(struct pd_schedule *schedule, const struct pd_lists *lists,
			struct pd_error *err)
{
	for (int rank = 0; rank < lists->rank_count; rank++)
		if (make_room_on(schedule, lists, rank, err) < 0)
			return -1;
	return 0;
}
