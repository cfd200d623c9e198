/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/recurrence.h"

#include "base/mem.h"
#include "base/minmax.h"

#include <stdlib.h>

#define LONGEST 64                      /* turns after which it may repeat */

void pd_recurrence_init(struct pd_recurrence *recurrence, int64_t turn)
{
	*recurrence = (struct pd_recurrence){ .turn = turn };
}

void pd_recurrence_release(struct pd_recurrence *recurrence)
{
	free(recurrence->turns);
	*recurrence = (struct pd_recurrence){ 0 };
}

/* Mixes more into a hash, depending on what is already in it. */
static uint64_t mix(uint64_t mark, uint64_t more)
{
	mark = (mark ^ more) * UINT64_C(0x9e3779b97f4a7c15);
	return mark ^ mark >> 29;
}

void pd_recurrence_add(struct pd_recurrence *recurrence, uint64_t number, int64_t longest_ns)
{
	recurrence->mark = mix(recurrence->mark, number);
	recurrence->longest_ns = pd_max(recurrence->longest_ns, longest_ns);
}

void pd_recurrence_note(struct pd_recurrence *recurrence, const struct pd_record *record,
			int64_t ahead, int64_t now_ns)
{
	const struct pd_op *op = &record->op;
	uint64_t mark = (uint64_t)ahead;

	mark = mix(mark, (uint64_t)op->kind << 32 | (uint32_t)op->rank);
	mark = mix(mark, (uint64_t)(uint32_t)op->link << 32 | (uint32_t)op->stage);
	mark = mix(mark, (uint64_t)(op->microbatch - recurrence->count * recurrence->turn));
	mark = mix(mark, (uint64_t)(record->start_ns - recurrence->begin_ns));
	mark = mix(mark, (uint64_t)(record->end_ns - recurrence->begin_ns));
	mark = mix(mark, (uint64_t)(now_ns - recurrence->begin_ns));
	pd_recurrence_add(recurrence, mark, now_ns - record->start_ns);
}

/*
 * Tells whether the last turns, as far back as current operations began, equal as many turns up to
 * turn number `before`.
 */
static bool same(const struct pd_recurrence *recurrence, int64_t before)
{
	const struct pd_recurrence_turn *now = &recurrence->turns[recurrence->count - 1];
	const struct pd_recurrence_turn *then = &recurrence->turns[before];
	int64_t since_ns = now->end_ns - now->longest_ns;

	for (; before >= 0; before--, now--, then--) {
		if (now->mark != then->mark)
			return false;
		if (before > 0 && now[-1].end_ns <= since_ns)
			return true;
	}
	return false;
}

/* Ends a turn; returns true if everything repeats from now on. */
static bool end_turn(struct pd_recurrence *recurrence, int64_t now_ns, double *period_ns_p)
{
	int64_t last = recurrence->count;

	if (last == recurrence->room) {
		size_t room = (size_t)recurrence->room;

		recurrence->turns = pd_grow(recurrence->turns, &room, room + 1,
					    sizeof(*recurrence->turns));
		recurrence->room = (int64_t)room;
	}
	/* A turn that ended together with the one before shows nothing, so it equals no other. */
	recurrence->turns[last] = (struct pd_recurrence_turn){
		.mark = recurrence->mark ? recurrence->mark : mix(0, (uint64_t)last + 1), .end_ns = now_ns,
		.longest_ns = recurrence->longest_ns };
	recurrence->count++;
	recurrence->mark = 0;
	recurrence->begin_ns = now_ns;
	recurrence->longest_ns = 0;
	for (int64_t before = last - 1; period_ns_p && before >= 0 && before >= last - LONGEST; before--)
		if (same(recurrence, before)) {
			*period_ns_p = (double)(now_ns - recurrence->turns[before].end_ns) /
				       (double)((last - before) * recurrence->turn);
			return true;
		}
	return false;
}

bool pd_recurrence_found(struct pd_recurrence *recurrence, int64_t n, int64_t now_ns, double *period_ns_p)
{
	while (recurrence->turn > 0 && n >= (recurrence->count + 1) * recurrence->turn)
		if (end_turn(recurrence, now_ns, period_ns_p))
			return true;
	return false;
}
