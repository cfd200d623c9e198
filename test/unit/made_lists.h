/* SPDX-License-Identifier: Apache-2.0 */
/* The generator's lists with all their operations. */
#pragma once

#include "schedule/list.h"

static inline struct pd_lists *made_lists(const char *name, const struct pd_schedule *schedule,
					  int64_t minibatches, struct pd_error *err)
{
	struct pd_lists *lists = pd_lists_new(name, schedule->plan, NULL, minibatches, err);
	struct pd_phase phase = { .last = lists ? lists->microbatches : 0 };

	for (int r = 0; lists && r < lists->rank_count; r++) {
		struct pd_cursor cursor;
		struct pd_op op;

		pd_cursor_init(&cursor, schedule, r, &phase, 0);
		while (pd_cursor_next(&cursor, &op))
			pd_lists_add(lists, &op, NULL);
		pd_cursor_release(&cursor);
	}
	if (lists)
		pd_lists_end(lists);
	return lists;
}
