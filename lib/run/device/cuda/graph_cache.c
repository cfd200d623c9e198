/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cuda/graph_cache.h"

struct pd_graph_key pd_graph_key(const struct pd_pass *pass, bool backward, int from, int count)
{
	struct pd_graph_key key = {
		.from = from, .count = count, .backward = backward, .weights = pass->weights,
		.state = pass->state, .inbox = pass->inbox, .slot = pass->slot,
		.kept = pass->kept, .scratch = pass->scratch,
	};

	if (!backward) {
		key.evaluate = pass->evaluate;
		key.again = pass->again;
		return key;
	}
	key.part = pass->part;
	key.scale = pass->scale;
	key.gradients = pass->gradients;
	key.gradient_in = pass->gradient_in;
	key.gradient_out = pass->gradient_out;
	return key;
}

struct pd_graph_key pd_graph_key_of_iteration(const struct pd_pass *pass,
					      const struct pd_update *update, int from,
					      int count)
{
	struct pd_graph_key key = pd_graph_key(pass, true, from, count);

	key.iteration = true;
	if (!update)
		return key;
	key.updates = true;
	key.update = update->kind;
	key.old = update->weights;
	key.made = update->gradients;
	key.next = update->next;
	key.velocity = update->velocity;
	key.second = update->second;
	key.master = update->master;
	return key;
}

static bool same_update(const struct pd_graph_key *a, const struct pd_graph_key *b)
{
	return a->iteration == b->iteration && a->updates == b->updates &&
	       a->update == b->update && a->old == b->old && a->made == b->made &&
	       a->next == b->next && a->velocity == b->velocity && a->second == b->second &&
	       a->master == b->master;
}

static bool same(const struct pd_graph_key *a, const struct pd_graph_key *b)
{
	return a->from == b->from && a->count == b->count && a->part == b->part &&
	       a->backward == b->backward && a->evaluate == b->evaluate && a->again == b->again &&
	       a->weights == b->weights && a->scale == b->scale && a->state == b->state &&
	       a->gradients == b->gradients && a->inbox == b->inbox && a->slot == b->slot && a->kept == b->kept &&
	       a->scratch == b->scratch && a->gradient_in == b->gradient_in &&
	       a->gradient_out == b->gradient_out && same_update(a, b);
}

/* Tells whether the backward is the forward's, of the same layers. */
static bool belong(const struct pd_work *forward, const struct pd_work *backward)
{
	const struct pd_pass *f = &forward->pass, *b = &backward->pass;
	struct pd_graph_key key, other;

	if (forward->kind != PD_WORK_FORWARD || backward->kind != PD_WORK_BACKWARD ||
	    forward->net != backward->net || f->first_sample != b->first_sample ||
	    f->evaluate || f->again || b->part != PD_BACKWARD_ALL)
		return false;
	key = pd_graph_key(f, false, forward->from, forward->count);
	other = pd_graph_key(b, false, backward->from, backward->count);
	return same(&key, &other);
}

/* One that ranks agree on makes a loss scale; one with norms of tensors takes several kernels. */
static bool update_joins(const struct pd_work *update, const struct pd_work *forward)
{
	const struct pd_update *u = &update->update;

	return update->kind == PD_WORK_UPDATE && update->net == forward->net && update->from == forward->from &&
	       update->count == forward->count && !u->norm.vector && !u->delta &&
	       !pd_optimizer_is(u->kind, PD_OPTIMIZER_NORMS);
}

int pd_graph_joint(const struct pd_work *works, int n)
{
	if (n > 1 && belong(&works[0], &works[1]))
		return 2;
	return n > 2 && belong(&works[1], &works[2]) && update_joins(&works[0], &works[1]) ? 3 : 1;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
	return h ^ h >> 29;
}

/* Hashes the members that differ most between the passes of a net. */
static size_t entry_of(const struct pd_graph_key *k)
{
	uint64_t h = mix((uint64_t)k->from << 32 | (uint32_t)k->count,
			 (uint64_t)k->part << 1 | k->backward);

	h = mix(h, (uintptr_t)k->weights);
	h = mix(h, (uintptr_t)k->slot);
	h = mix(h, (uintptr_t)k->inbox);
	h = mix(h, (uintptr_t)k->gradient_in);
	h = mix(h, (uintptr_t)k->gradient_out);
	return (size_t)(h % (2 * PD_GRAPH_CACHE_KEYS));
}

struct pd_graph_entry *pd_graph_cache_see(struct pd_graph_cache *r, const struct pd_graph_key *key)
{
	size_t at = entry_of(key);

	/* half of the entries stay free, so the search ends */
	while (r->entries[at].seen > 0 && !same(&r->entries[at].key, key))
		at = (at + 1) % (2 * PD_GRAPH_CACHE_KEYS);
	if (r->entries[at].seen == 0) {
		if (r->count == PD_GRAPH_CACHE_KEYS)
			return NULL;
		r->count++;
		r->entries[at].key = *key;
	}
	if (r->entries[at].seen < 2)
		r->entries[at].seen++;
	return &r->entries[at];
}
