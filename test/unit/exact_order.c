/* SPDX-License-Identifier: Apache-2.0 */
#include "exact_order.h"

#include "base/checksum.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define STAGES 12
#define TIMES 128

/* States with the same counts: they have as many times. */
struct family {
	uint8_t count[PD_ORDER_SPLIT][STAGES];
	int times;                      /* of each: when positions are free, then what is on its way */
	size_t count_of, room;
	int32_t *states;                /* one behind the other */
};

struct layer {
	struct family *families;
	size_t count, room, slots;
	size_t *at;                     /* 1 + a family, by hash; 0: none */
};

struct solver {
	const struct pd_order_request *request;
	int64_t below_ns, least_ns, states;
	int64_t first_ns[STAGES];       /* per position: when it begins at the soonest */
	int64_t ahead_ns[2][STAGES];    /* what comes behind F or I, up to the W of stage 0, which began first */
	struct layer next;
};

static const struct pd_order_stage *stage_at(const struct solver *v, int s)
{
	return &v->request->stage[s];
}

static int64_t way_ns(const struct solver *v, int from, int to)
{
	return v->request->position_of[from] == v->request->position_of[to]
		? 0 : stage_at(v, from < to ? from : to)->transfer_ns;
}

static int64_t pass_ns(const struct solver *v, int pass, int s)
{
	return pass == PD_ORDER_F ? stage_at(v, s)->f_ns : pass == PD_ORDER_I ? stage_at(v, s)->b_ns : stage_at(v, s)->w_ns;
}

/* Sets what is known without a search. */
static void set_bounds(struct solver *v)
{
	int stages = v->request->stages;
	int64_t now_ns = 0;

	for (int q = 0; q < v->request->positions; q++)
		v->first_ns[q] = -1;
	for (int s = 0; s < stages; s++) {
		int q = v->request->position_of[s];

		if (s > 0)
			now_ns += way_ns(v, s - 1, s);
		if (v->first_ns[q] < 0)
			v->first_ns[q] = now_ns;
		now_ns += stage_at(v, s)->f_ns;
	}
	for (int s = 0; s < stages; s++)
		v->ahead_ns[PD_ORDER_I][s] = s == 0 ? stage_at(v, 0)->w_ns
			: way_ns(v, s, s - 1) + stage_at(v, s - 1)->b_ns + v->ahead_ns[PD_ORDER_I][s - 1];
	for (int s = stages - 1; s >= 0; s--)
		v->ahead_ns[PD_ORDER_F][s] = s + 1 == stages
			? stage_at(v, s)->b_ns + v->ahead_ns[PD_ORDER_I][s]
			: way_ns(v, s, s + 1) + stage_at(v, s + 1)->f_ns + v->ahead_ns[PD_ORDER_F][s + 1];
}

/* A state that is looked at: its times by what they are of. */
struct open {
	const struct family *family;
	int64_t free_ns[STAGES];
	int64_t arrival_ns[2][STAGES][256];     /* of F and I, at the stage that waits for it */
};

static int count_waiting(const struct solver *v, const struct family *f, int pass, int s)
{
	if (pass == PD_ORDER_F)
		return s == 0 ? 0 : f->count[PD_ORDER_F][s - 1] - f->count[PD_ORDER_F][s];
	return s + 1 == v->request->stages ? 0 : f->count[PD_ORDER_I][s + 1] - f->count[PD_ORDER_I][s];
}

static void unpack_state(const struct solver *v, const struct family *f, const int32_t *state, struct open *o)
{
	int t = 0;

	o->family = f;
	for (int q = 0; q < v->request->positions; q++)
		o->free_ns[q] = state[t++];
	for (int pass = PD_ORDER_F; pass <= PD_ORDER_I; pass++)
		for (int s = 0; s < v->request->stages; s++)
			for (int i = 0; i < count_waiting(v, f, pass, s); i++)
				o->arrival_ns[pass][s][f->count[pass][s] + i] = state[t++];
}

static bool is_complete(const struct solver *v, const struct family *f, int position)
{
	for (int s = 0; s < v->request->stages; s++)
		if (v->request->position_of[s] == position && f->count[PD_ORDER_W][s] < v->request->microbatches)
			return false;
	return true;
}

static int pack_state(const struct solver *v, const struct family *f, const struct open *o, int64_t now_ns, int32_t *state)
{
	int t = 0;

	for (int q = 0; q < v->request->positions; q++)
		state[t++] = (int32_t)(is_complete(v, f, q) ? o->free_ns[q] : pd_max(o->free_ns[q], now_ns));
	for (int pass = PD_ORDER_F; pass <= PD_ORDER_I; pass++)
		for (int s = 0; s < v->request->stages; s++)
			for (int i = 0; i < count_waiting(v, f, pass, s); i++) {
				int64_t at = o->arrival_ns[pass][s][f->count[pass][s] + i];

				state[t++] = (int32_t)pd_max(at, state[v->request->position_of[s]]);
				if (t == TIMES)
					pd_bug("exact_order: too many times");
			}
	return t;
}

static int64_t bytes_at(const struct solver *v, const struct family *f, int position)
{
	int64_t bytes = 0;

	for (int s = 0; s < v->request->stages; s++)
		if (v->request->position_of[s] == position)
			bytes += f->count[PD_ORDER_F][s] * stage_at(v, s)->f_bytes +
				 f->count[PD_ORDER_I][s] * stage_at(v, s)->b_bytes +
				 f->count[PD_ORDER_W][s] * stage_at(v, s)->w_bytes;
	return bytes;
}

/* Returns the least that a state can end with. */
static int64_t bound_of(const struct solver *v, const struct family *f, const int32_t *state)
{
	int m = v->request->microbatches;
	int64_t most = 0;

	for (int q = 0; q < v->request->positions; q++) {
		int64_t left = 0;

		for (int s = 0; s < v->request->stages; s++)
			for (int pass = 0; pass < PD_ORDER_SPLIT && v->request->position_of[s] == q; pass++)
				left += (m - f->count[pass][s]) * pass_ns(v, pass, s);
		most = pd_max(most, state[q] + left - (v->request->agrees ? 0 : v->first_ns[q]));
	}
	for (int s = 0; s < v->request->stages; s++)
		for (int pass = PD_ORDER_F; pass <= PD_ORDER_I; pass++)
			if (f->count[pass][s] < m)
				most = pd_max(most, state[v->request->position_of[s]] + v->ahead_ns[pass][s] +
						    (m - f->count[pass][s]) * pass_ns(v, pass, s));
	return most;
}

static struct family *family_of(struct layer *layer, const struct family *like, int times)
{
	size_t hash = (size_t)pd_checksum(0, like->count, sizeof(like->count));

	if (2 * (layer->count + 1) > layer->slots) {
		size_t slots = layer->slots ? 2 * layer->slots : 64, *at = pd_calloc(slots, sizeof(*at));

		for (size_t k = 0; k < layer->count; k++) {
			size_t to = (size_t)pd_checksum(0, layer->families[k].count, sizeof(like->count)) % slots;

			while (at[to])
				to = (to + 1) % slots;
			at[to] = k + 1;
		}
		free(layer->at);
		layer->at = at;
		layer->slots = slots;
	}
	for (hash %= layer->slots; layer->at[hash]; hash = (hash + 1) % layer->slots)
		if (memcmp(layer->families[layer->at[hash] - 1].count, like->count, sizeof(like->count)) == 0)
			return &layer->families[layer->at[hash] - 1];
	layer->families = pd_grow(layer->families, &layer->room, layer->count + 1, sizeof(*layer->families));
	layer->families[layer->count] = (struct family){ .times = times };
	memcpy(layer->families[layer->count].count, like->count, sizeof(like->count));
	layer->at[hash] = ++layer->count;
	return &layer->families[layer->count - 1];
}

static bool never_later(const int32_t *a, const int32_t *b, int times)
{
	for (int t = 0; t < times; t++)
		if (a[t] > b[t])
			return false;
	return true;
}

/* Adds a state, unless another is as good; those that it is as good as go. */
static void add_state(struct solver *v, const struct family *like, const int32_t *state, int times)
{
	struct family *f = family_of(&v->next, like, times);
	size_t left = 0;

	for (size_t k = 0; k < f->count_of; k++)
		if (never_later(&f->states[k * (size_t)times], state, times))
			return;
	for (size_t k = 0; k < f->count_of; k++)
		if (!never_later(state, &f->states[k * (size_t)times], times)) {
			memmove(&f->states[left * (size_t)times], &f->states[k * (size_t)times],
				(size_t)times * sizeof(*state));
			left++;
		}
	f->count_of = left;
	f->states = pd_grow(f->states, &f->room, (left + 1) * (size_t)times, sizeof(*f->states));
	memcpy(&f->states[left * (size_t)times], state, (size_t)times * sizeof(*state));
	f->count_of++;
}

/* Begins the next pass of a stage, if that can be. */
static void begin_pass(struct solver *v, struct open *o, int64_t now_ns, int pass, int s)
{
	const struct pd_order_request *request = v->request;
	struct family f = *o->family;
	int i = f.count[pass][s], q = request->position_of[s], to = pass == PD_ORDER_F ? s + 1 : s - 1;
	int64_t from_ns = o->free_ns[q], free_ns = o->free_ns[q];
	int32_t state[TIMES];
	int times;

	if (i == request->microbatches || (pass > PD_ORDER_F && f.count[pass - 1][s] <= i))
		return;
	if (pass == PD_ORDER_F && s > 0 && f.count[PD_ORDER_F][s - 1] <= i)
		return;
	if (pass == PD_ORDER_I && s + 1 < request->stages && f.count[PD_ORDER_I][s + 1] <= i)
		return;
	f.count[pass][s]++;
	if (pass == PD_ORDER_F && request->cap_bytes && bytes_at(v, &f, q) > request->cap_bytes[q])
		return;
	if ((pass == PD_ORDER_F && s > 0) || (pass == PD_ORDER_I && s + 1 < request->stages))
		from_ns = pd_max(from_ns, o->arrival_ns[pass][s][i]);
	from_ns = pd_max(from_ns, now_ns);
	o->free_ns[q] = from_ns + pass_ns(v, pass, s);
	if (pass != PD_ORDER_W && to >= 0 && to < request->stages)
		o->arrival_ns[pass][to][i] = o->free_ns[q] + way_ns(v, s, to);
	times = pack_state(v, &f, o, from_ns, state);
	if (bound_of(v, &f, state) < v->below_ns)
		add_state(v, &f, state, times);
	o->free_ns[q] = free_ns;
}

static void layer_end(struct layer *layer)
{
	for (size_t k = 0; k < layer->count; k++)
		free(layer->families[k].states);
	free(layer->families);
	free(layer->at);
	*layer = (struct layer){ 0 };
}

/* Looks at all states of a layer. */
static void look_at_layer(struct solver *v, const struct layer *layer)
{
	static struct open o;

	for (size_t k = 0; k < layer->count; k++)
		for (size_t n = 0; n < layer->families[k].count_of; n++) {
			const struct family *f = &layer->families[k];

			unpack_state(v, f, &f->states[n * (size_t)f->times], &o);
			v->states++;
			for (int s = 0; s < v->request->stages; s++)
				for (int pass = 0; pass < PD_ORDER_SPLIT; pass++)
					begin_pass(v, &o, 0, pass, s);
		}
}

struct exact exact_order(const struct pd_order_request *request, int64_t below_ns, int64_t most_states)
{
	struct solver v = { .request = request, .below_ns = below_ns };
	int operations = PD_ORDER_SPLIT * request->stages * request->microbatches, n = 0;
	struct family none = { .times = request->positions };
	struct layer now = { 0 };
	int32_t zero[TIMES] = { 0 };
	struct exact exact = { .value_ns = below_ns };

	set_bounds(&v);
	add_state(&v, &none, zero, request->positions);
	for (; n < operations && v.states <= most_states; n++) {
		now = v.next;
		v.next = (struct layer){ 0 };
		look_at_layer(&v, &now);
		layer_end(&now);
	}
	for (size_t k = 0; k < v.next.count && n == operations; k++)
		for (size_t j = 0; j < v.next.families[k].count_of; j++) {
			const struct family *f = &v.next.families[k];

			exact.value_ns = pd_min(exact.value_ns, bound_of(&v, f, &f->states[j * (size_t)f->times]));
		}
	exact.decided = n == operations;
	exact.states = v.states;
	layer_end(&v.next);
	return exact;
}
