/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of two chunks in a V: position q has stage q, whose next ones are on later positions, and the deep one. */
#include "order/made.h"

#include "base/mem.h"

#include <stdlib.h>

/* What one position has done so far. */
struct making {
	struct pd_order *order;
	int next[PD_ORDER_SPLIT][2];    /* of each pass of its two stages, the upper one first */
	int stage[2];
	int *waiting;                   /* which of the two stages has a W to be done, in the order of their I */
	int first_waiting, end_waiting;
};

enum { UPPER, DEEP };

static struct making begin(struct pd_order *order, int q)
{
	return (struct making){
		.order = order, .stage = { q, 2 * order->positions - 1 - q },
		.waiting = pd_calloc(2 * (size_t)order->microbatches, sizeof(int)),
	};
}

static void add(struct making *m, enum pd_order_pass pass, int which)
{
	pd_order_add(m->order, pass, m->stage[which], m->next[pass][which]++);
}

/* Adds I, and W right behind it or as soon as waiting ones are due. */
static void add_backward(struct making *m, int which, bool later)
{
	if (!later) {
		pd_order_add(m->order, PD_ORDER_B, m->stage[which], m->next[PD_ORDER_I][which]++);
		m->next[PD_ORDER_W][which]++;
		return;
	}
	add(m, PD_ORDER_I, which);
	m->waiting[m->end_waiting++] = which;
}

static void add_waiting(struct making *m)
{
	add(m, PD_ORDER_W, m->waiting[m->first_waiting++]);
}

static void add_pair(struct making *m, int forward, int backward)
{
	pd_order_add_pair(m->order, m->stage[forward], m->next[PD_ORDER_F][forward]++, m->stage[backward],
			  m->next[PD_ORDER_I][backward]++);
	m->next[PD_ORDER_W][backward]++;
}

static void zb_v(struct making *m, int q)
{
	int p = m->order->positions, n = m->order->microbatches;

	for (int i = 0; i < 2 * (p - q) - 1; i++)
		add(m, PD_ORDER_F, UPPER);
	for (int i = 0; i < q; i++) {
		add(m, PD_ORDER_F, DEEP);
		add(m, PD_ORDER_F, UPPER);
	}
	for (int i = 0; i < p - q; i++)
		for (int pass = PD_ORDER_F; pass <= PD_ORDER_W; pass++)
			add(m, (enum pd_order_pass)pass, DEEP);
	for (int i = 0; i < n - p; i++) {
		if (m->next[PD_ORDER_F][UPPER] < n)
			add(m, PD_ORDER_F, UPPER);
		add(m, PD_ORDER_I, UPPER);
		add(m, PD_ORDER_W, UPPER);
		for (int pass = PD_ORDER_F; pass <= PD_ORDER_W; pass++)
			add(m, (enum pd_order_pass)pass, DEEP);
	}
	for (int i = 0; i < q; i++) {
		add(m, PD_ORDER_I, UPPER);
		add(m, PD_ORDER_I, DEEP);
	}
	for (int i = 0; i < p - q; i++) {
		add(m, PD_ORDER_I, UPPER);
		add(m, PD_ORDER_W, UPPER);
	}
	for (int which = DEEP; which >= UPPER; which--)
		while (m->next[PD_ORDER_W][which] < n)
			add(m, PD_ORDER_W, which);
}

static void dualpipe_end(struct making *m, int q)
{
	int p = m->order->positions;

	for (int i = 0; i <= q; i++) {
		add_backward(m, DEEP, i > (q + 1) / 2 || (i == (q + 1) / 2 && q % 2 == 1));
		add_backward(m, UPPER, i >= (q + 1) / 2);
	}
	for (int i = 0; i < p - 1 - q; i++) {
		add_waiting(m);
		add_backward(m, UPPER, true);
	}
	for (int i = 0; i <= q; i++)
		add_waiting(m);
}

static void dualpipe_v(struct making *m, int q)
{
	int p = m->order->positions, n = m->order->microbatches;

	for (int i = 0; i < 2 * (p - 1 - q); i++)
		add(m, PD_ORDER_F, UPPER);
	for (int i = 0; i <= q; i++) {
		add(m, PD_ORDER_F, UPPER);
		add(m, PD_ORDER_F, DEEP);
	}
	for (int i = 0; i < p - 1 - q; i++) {
		add_backward(m, DEEP, true);
		add_waiting(m);
		add(m, PD_ORDER_F, DEEP);
	}
	for (int i = 0; i < n - 2 * p + q + 1; i++) {
		if (i == 0 && q == p - 1) {
			add(m, PD_ORDER_F, UPPER);
			add_backward(m, DEEP, false);
		} else {
			add_pair(m, UPPER, DEEP);
		}
		add_pair(m, DEEP, UPPER);
	}
	for (int i = 0; i < p - 1 - q; i++) {
		add_backward(m, DEEP, false);
		add_pair(m, DEEP, UPPER);
	}
	dualpipe_end(m, q);
}

/* Makes the order of at least so many microbatches, and leaves out those that are not asked for. */
static struct pd_order *make(int positions, int microbatches, int least, void (*fill)(struct making *m, int q))
{
	struct pd_order *order = pd_order_new_placed(positions, 2 * positions,
						     microbatches > least ? microbatches : least, pd_order_v);

	for (int q = 0; q < positions; q++) {
		struct making m = begin(order, q);

		fill(&m, q);
		free(m.waiting);
	}
	pd_order_drop(order, microbatches);
	return order;
}

struct pd_order *pd_order_zb_v(int positions, int microbatches)
{
	return make(positions, microbatches, 2 * positions - 1, zb_v);
}

struct pd_order *pd_order_dualpipe_v(int positions, int microbatches)
{
	return make(positions, microbatches, 2 * positions, dualpipe_v);
}
