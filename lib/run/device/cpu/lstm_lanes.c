/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that lanes of an LSTM carry from microbatch to microbatch.  A layer's state has hidden
 * states and cells of all lanes, of training and then of an evaluation; what a microbatch begins
 * with is carried (run/device/compiled_net.h), for backward and for a second forward.
 */
#include "run/device/cpu/lstm.h"

#include <string.h>

/* The hidden state, or the cells, of a sample's lane. */
static float *lane(const struct lstm_way *w, int64_t n, bool cells)
{
	size_t quarter = w->l->state_bytes / 4;
	char *state = (char *)w->l->state + (w->pass->evaluate ? 2 : 0) * quarter +
		      (cells ? quarter : 0);

	return (float *)state + (w->pass->first_sample + n) % w->m->lanes * w->m->hidden;
}

float *lstm_carried(const struct lstm_way *w, int64_t n, bool cells)
{
	size_t half = cells ? w->l->carried_bytes / 2 : 0;

	return (float *)((char *)w->l->carried + half) + n * w->m->hidden;
}

/* Takes what its lane has been left with; zeros if it is the first in it. */
static void take_up(const struct lstm_way *w, int64_t n)
{
	size_t bytes = lstm_floats(w->m->hidden);

	for (int cells = 0; cells < 2; cells++)
		if (w->pass->first_sample + n < w->m->lanes)
			memset(lstm_carried(w, n, cells), 0, bytes);
		else
			memcpy(lstm_carried(w, n, cells), lane(w, n, cells), bytes);
}

void lstm_take_up_lanes(const struct lstm_way *w)
{
	const struct lstm *m = w->m;
	int64_t batch = w->l->net->batch, all = batch * m->hidden;
	float *hidden = lstm_room(w, m->forward.hidden), *cells = lstm_room(w, m->forward.cells);

	for (int64_t n = 0; n < batch && m->lanes && !w->pass->again; n++)
		take_up(w, n);
	if (m->lanes) {
		memcpy(hidden, lstm_carried(w, 0, false), lstm_floats(all));
		memcpy(cells, lstm_carried(w, 0, true), lstm_floats(all));
	} else {
		memset(hidden, 0, lstm_floats(all));
		memset(cells, 0, lstm_floats(all));
	}
	if (m->native)
		lstm_narrow(w, lstm_scratch(w, m->forward.state), hidden, all);
}

void lstm_leave_lanes(const struct lstm_way *w)
{
	const struct lstm *m = w->m;

	for (int64_t n = 0; n < w->l->net->batch && m->lanes && !w->pass->again; n++) {
		int64_t steps = lstm_length(w, n);
		const float *cells = steps > 0
			? w->cells + lstm_row_of(w, n, steps - 1) * m->hidden
			: lstm_room(w, m->forward.cells) + n * m->hidden;

		memcpy(lane(w, n, false), lstm_room(w, m->forward.hidden) + n * m->hidden,
		       lstm_floats(m->hidden));
		memcpy(lane(w, n, true), cells, lstm_floats(m->hidden));
	}
}
