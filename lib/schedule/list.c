/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/list.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

static void make_roles(struct pd_lists *lists)
{
	const struct pd_plan *plan = lists->plan;
	int *next = pd_calloc((size_t)lists->rank_count + 1, sizeof(*next));

	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < plan->stages[s].replicas; r++, lists->role_count++)
			next[plan->stages[s].ranks[r] + 1]++;
	for (int rank = 0; rank < lists->rank_count; rank++)
		next[rank + 1] += next[rank];
	lists->first_role = pd_calloc((size_t)lists->rank_count + 1, sizeof(*next));
	for (int rank = 0; rank <= lists->rank_count; rank++)
		lists->first_role[rank] = next[rank];
	lists->roles = pd_calloc((size_t)lists->role_count, sizeof(*lists->roles));
	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < plan->stages[s].replicas; r++) {
			int rank = plan->stages[s].ranks[r];

			lists->roles[next[rank]++] = (struct pd_role){ rank, s, r };
		}
	free(next);
}

struct pd_lists *pd_lists_new(const char *name, const struct pd_plan *plan, struct pd_plan *owned,
			      int64_t minibatches, struct pd_error *err)
{
	struct pd_lists *lists = pd_zalloc(sizeof(*lists));

	lists->name = pd_strdup(name);
	lists->owned = owned;
	lists->plan = owned ? owned : plan;
	lists->minibatches = minibatches;
	lists->rank_count = lists->plan->rank_count;
	if (!pd_mul(minibatches, lists->plan->microbatches, &lists->microbatches) ||
	    lists->microbatches > INT64_C(1) << 40) {
		pd_error_input(err, "%s: %" PRId64 " minibatches of %" PRId64 " microbatches are "
			       "more than 2^40 microbatches", name, minibatches,
			       lists->plan->microbatches);
		pd_lists_free(lists);
		return NULL;
	}
	lists->wiring = pd_wiring_new(lists->plan);
	lists->ranks = pd_calloc((size_t)lists->rank_count, sizeof(*lists->ranks));
	make_roles(lists);
	return lists;
}

void pd_list_release(struct pd_list *list)
{
	for (size_t b = 0; b < list->block_count; b++)
		free(list->blocks[b].behind);
	free(list->blocks);
	free(list->ops);
	free(list->notes);
	*list = (struct pd_list){ 0 };
}

void pd_lists_free(struct pd_lists *lists)
{
	if (!lists)
		return;
	for (int r = 0; lists->ranks && r < lists->rank_count; r++)
		pd_list_release(&lists->ranks[r]);
	if (lists->wiring)
		pd_wiring_free(lists->wiring);
	free(lists->ranks);
	free(lists->roles);
	free(lists->first_role);
	free(lists->name);
	pd_plan_free(lists->owned);
	free(lists);
}

void pd_list_add(struct pd_list *list, const struct pd_op *op, const struct pd_note *note)
{
	list->ops = pd_grow(list->ops, &list->capacity, list->count + 1, sizeof(*list->ops));
	list->ops[list->count] = *op;
	if (note) {
		list->notes = pd_grow(list->notes, &list->noted, list->count + 1,
				      sizeof(*list->notes));
		list->notes[list->count] = *note;
	}
	list->count++;
}

void pd_lists_add(struct pd_lists *lists, const struct pd_op *op, const struct pd_note *note)
{
	pd_list_add(&lists->ranks[op->rank], op, note);
}

void pd_lists_repeat(struct pd_lists *lists, int rank, const struct pd_block *block)
{
	struct pd_list *list = &lists->ranks[rank];
	struct pd_block *made;

	list->blocks = pd_grow(list->blocks, &list->block_capacity, list->block_count + 1,
			       sizeof(*list->blocks));
	made = &list->blocks[list->block_count++];
	*made = *block;
	made->first = list->count - block->length;
	made->behind = NULL;
	made->behind_count = 0;
}

void pd_lists_do_again(struct pd_lists *lists, int64_t minibatches)
{
	int64_t numbers = 0;

	for (int r = 0; r < lists->rank_count; r++)
		for (size_t n = 0; n < lists->ranks[r].count; n++)
			if (lists->ranks[r].ops[n].seq >= numbers)
				numbers = lists->ranks[r].ops[n].seq + 1;
	for (int r = 0; r < lists->rank_count && minibatches > 1; r++) {
		struct pd_block block = { .length = lists->ranks[r].count, .repeat = minibatches,
					  .microbatches = lists->microbatches, .versions = lists->microbatches,
					  .numbers = numbers };

		pd_lists_repeat(lists, r, &block);
	}
	lists->minibatches = minibatches;
	lists->microbatches *= minibatches;
	pd_lists_end(lists);
}

/*
 * Sets the oldest version that any later forward reads, per stage.  The list is walked backwards.
 */
static void keep_of(struct pd_op *op, int64_t *oldest)
{
	int64_t *at = &oldest[op->stage];

	op->keep = -1;
	if (op->kind == PD_OP_forward && op->version < *at)
		*at = op->version;
	if (op->kind == PD_OP_step)
		op->keep = *at < op->version ? *at : op->version;
}

/*
 * Does this for a block.  Its operations keep what the next repetition reads, as if there always
 * were one, and what is read behind the block.
 */
static void set_keep_of_block(const struct pd_lists *lists, int rank, struct pd_list *list,
			      struct pd_block *block, int64_t *oldest)
{
	const struct pd_role *roles = &lists->roles[lists->first_role[rank]];
	int count = lists->first_role[rank + 1] - lists->first_role[rank];

	block->behind_count = count;
	block->behind = pd_calloc((size_t)count, sizeof(*block->behind));
	for (int i = 0; i < count; i++) {
		int s = roles[i].stage;

		block->behind[i] = (struct pd_behind){ s, oldest[s] };
		oldest[s] = INT64_MAX;
	}
	for (int pass = 0; pass < 2; pass++) {
		for (size_t n = block->first + block->length; n-- > block->first;)
			keep_of(&list->ops[n], oldest);
		for (int i = 0; i < count && pass == 0; i++)
			if (oldest[roles[i].stage] < INT64_MAX)
				oldest[roles[i].stage] += block->versions;
	}
	for (int i = 0; i < count; i++)
		if (block->behind[i].version < oldest[roles[i].stage])
			oldest[roles[i].stage] = block->behind[i].version;
}

static void set_keep(const struct pd_lists *lists, int rank, int64_t *oldest)
{
	struct pd_list *list = &lists->ranks[rank];
	size_t block = list->block_count, n = list->count;

	for (int i = lists->first_role[rank]; i < lists->first_role[rank + 1]; i++)
		oldest[lists->roles[i].stage] = INT64_MAX;
	while (n > 0) {
		struct pd_block *b = block > 0 ? &list->blocks[block - 1] : NULL;

		if (b && n == b->first + b->length) {
			set_keep_of_block(lists, rank, list, b, oldest);
			n = b->first;
			block--;
		} else {
			keep_of(&list->ops[--n], oldest);
		}
	}
}

void pd_lists_end(struct pd_lists *lists)
{
	int64_t *oldest = pd_calloc((size_t)lists->plan->stage_count, sizeof(*oldest));

	for (int r = 0; r < lists->rank_count; r++)
		set_keep(lists, r, oldest);
	free(oldest);
}

int pd_lists_replica(const struct pd_lists *lists, int rank, int stage)
{
	for (int i = lists->first_role[rank]; i < lists->first_role[rank + 1]; i++)
		if (lists->roles[i].stage == stage)
			return lists->roles[i].replica;
	return -1;
}

int64_t pd_lists_count(const struct pd_lists *lists)
{
	int64_t count = 0;

	for (int r = 0; r < lists->rank_count; r++)
		count += pd_list_length(&lists->ranks[r]);
	return count;
}

int64_t pd_list_length(const struct pd_list *list)
{
	int64_t length = (int64_t)list->count;

	for (size_t b = 0; b < list->block_count; b++)
		length += (list->blocks[b].repeat - 1) * (int64_t)list->blocks[b].length;
	return length;
}

void pd_list_begin(struct pd_list_cursor *cursor, const struct pd_list *list,
		   const struct pd_phase *phase)
{
	*cursor = (struct pd_list_cursor){ .list = list, .phase = *phase,
					   .highest = phase->first - 1 };
}

static void keep_behind(const struct pd_block *block, struct pd_op *op)
{
	for (int i = 0; i < block->behind_count; i++)
		if (block->behind[i].stage == op->stage && block->behind[i].version < op->keep)
			op->keep = block->behind[i].version;
}

/* Takes an operation of the block that the cursor is in. */
static void take_repeated(struct pd_list_cursor *cursor, struct pd_op *op)
{
	const struct pd_block *block = &cursor->list->blocks[cursor->block];
	int64_t n = cursor->repetition;

	op->microbatch += n * block->microbatches;
	if (op->version >= 0)
		op->version += n * block->versions;
	if (op->keep >= 0) {
		op->keep += n * block->versions;
		keep_behind(block, op);
	}
	if (op->seq >= 0)
		op->seq += n * block->numbers;
	if (cursor->next < block->first + block->length)
		return;
	if (++cursor->repetition < block->repeat) {
		cursor->next = block->first;
	} else {
		cursor->repetition = 0;
		cursor->block++;
	}
}

bool pd_list_next(struct pd_list_cursor *cursor, struct pd_op *op_p)
{
	const struct pd_list *list = cursor->list;
	struct pd_op op;

	if (cursor->next == list->count)
		return false;
	op = list->ops[cursor->next++];
	cursor->at = cursor->next - 1;
	if (cursor->block < list->block_count && cursor->at >= list->blocks[cursor->block].first)
		take_repeated(cursor, &op);
	op.microbatch += cursor->phase.first;
	if (op.version >= 0)
		op.version += cursor->phase.first;
	if (op.keep >= 0)
		op.keep += cursor->phase.first;
	if (op.seq >= 0)
		op.seq += cursor->phase.base;
	if (op.microbatch > cursor->highest)
		cursor->highest = op.microbatch;
	*op_p = op;
	return true;
}

void pd_op_source_init(struct pd_op_source *source, const struct pd_schedule *schedule,
		       const struct pd_list *list, int rank, const struct pd_phase *phase,
		       int64_t floor)
{
	source->generated = !list;
	if (list)
		pd_list_begin(&source->list, list, phase);
	else
		pd_cursor_init(&source->cursor, schedule, rank, phase, floor);
}

int64_t pd_op_source_highest(const struct pd_op_source *source)
{
	return source->generated ? pd_cursor_highest(&source->cursor)
				 : source->list.highest;
}

void pd_op_source_begin(struct pd_op_source *source, const struct pd_schedule *schedule,
			const struct pd_lists *lists, int rank, int64_t microbatches)
{
	struct pd_phase phase = { .last = microbatches };

	pd_op_source_init(source, schedule, schedule ? NULL : &lists->ranks[rank], rank, &phase, 0);
}

bool pd_op_source_next(struct pd_op_source *source, struct pd_op *op_p)
{
	return source->generated ? pd_cursor_next(&source->cursor, op_p)
				 : pd_list_next(&source->list, op_p);
}

void pd_op_source_end(struct pd_op_source *source)
{
	if (source->generated)
		pd_cursor_release(&source->cursor);
}
