/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/reduce/queue.h"

#include "base/mem.h"

#include <stdlib.h>

void pd_reduction_queue_release(struct pd_reduction_queue *queue)
{
	free(queue->under_way);
	*queue = (struct pd_reduction_queue){ .count = 0 };
}

/*
 * Does a part of the first n, as far as the stream has room.  Sets *issued_p to how many at the front have
 * all of it.  A reduction lets the stream wait only when those before it have all of theirs there: another
 * member may need their sums before it begins the one that the stream would wait for.  Second parts go in
 * order, since an update waits for the end of the last sum alone.
 */
static int progress(struct pd_reduction_queue *queue, enum pd_reduction_part upto, size_t n,
		    size_t *issued_p)
{
	int moved = 0;

	*issued_p = 0;
	for (size_t i = 0; i < n; i++) {
		const struct pd_reduction_under_way *at = &queue->under_way[i];
		int more;

		if (*issued_p < i && !at->r->polls)
			continue;
		at->r->may_wait = *issued_p == i && !at->more;
		more = at->r->ops->progress(at->r, upto);
		if (more < 0)
			return -1;
		moved += more;
		if (at->r->ops->issued(at->r, upto))
			*issued_p += *issued_p == i;
		else if (!at->r->polls || upto == PD_REDUCTION_ALL)
			break;
	}
	return moved;
}

/* Returns how many at the front are of one stage. */
static size_t of_one_stage(const struct pd_reduction_queue *queue)
{
	size_t n = 0;

	while (n < queue->count && queue->under_way[n].more)
		n++;
	return n < queue->count ? n + 1 : n;
}

static void drop(struct pd_reduction_queue *queue, size_t n)
{
	queue->count -= n;
	for (size_t i = 0; i < queue->count; i++)
		queue->under_way[i] = queue->under_way[i + n];
}

int pd_reduction_queue_progress(struct pd_reduction_queue *queue)
{
	int moved = 0;

	while (queue->count > 0) {
		size_t n = of_one_stage(queue), issued;
		int more = progress(queue, PD_REDUCTION_SUMS, n, &issued);

		if (more < 0)
			return -1;
		moved += more;
		if (issued < n)
			break;
		more = progress(queue, PD_REDUCTION_ALL, n, &issued);
		if (more < 0)
			return -1;
		moved += more;
		drop(queue, issued);
		if (issued < n)
			break;
	}
	return moved;
}

int pd_reduction_queue_add(struct pd_reduction_queue *queue, struct pd_reduction *r, bool more)
{
	size_t issued;

	queue->under_way = pd_grow(queue->under_way, &queue->capacity, queue->count + 1,
				   sizeof(*queue->under_way));
	queue->under_way[queue->count++] = (struct pd_reduction_under_way){ r, more };
	return progress(queue, PD_REDUCTION_SUMS, of_one_stage(queue), &issued) < 0 ? -1 : 0;
}
