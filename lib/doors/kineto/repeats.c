/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/finder.h"

#include "base/mem.h"
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

struct known_call {
	int pass;
	int64_t key;
	int call;
};

static int by_key(const void *a, const void *b)
{
	const struct known_call *x = a, *y = b;

	PD_ORDER(x->pass, y->pass);
	PD_ORDER(x->key, y->key);
	PD_ORDER(x->call, y->call);
	return 0;
}

static bool is_first(const struct pd_kineto_finder *f, int call)
{
	return f->walk->calls[call].works && !f->walk->calls[call].again;
}

/*
 * Finds the call that a recomputation repeats.  What is recomputed where backward first reads something of it came
 * before that in forward; what CheckpointFunction recomputes it had called itself.
 */
static int find_base(const struct pd_kineto_finder *f, const struct known_call *calls, size_t count, int call,
		     const int *base)
{
	int node = f->walk->calls[call].node, by = node >= 0 ? f->walk->nodes[node].call : -1;
	struct known_call wanted;
	bool inside;
	size_t at;

	by = by >= 0 && f->walk->calls[by].again ? base[by] : by;
	if (by < 0)
		return -1;
	inside = strcmp(f->walk->ops->names[f->walk->calls[by].name], "CheckpointFunction") == 0;
	wanted = (struct known_call){ f->places[by].pass, pd_kineto_key(f->walk, call), by };
	at = pd_count_below(&wanted, calls, count, sizeof(*calls), by_key, inside ? -1 : 0) - !inside;
	return at < count && calls[at].pass == wanted.pass && calls[at].key == wanted.key ? calls[at].call : -1;
}

int *pd_kineto_bases(const struct pd_kineto_finder *f)
{
	struct known_call *calls = pd_calloc(f->walk->call_count + 1, sizeof(*calls));
	int *base = pd_calloc(f->walk->call_count + 1, sizeof(*base)), call_count = (int)f->walk->call_count;
	size_t count = 0;

	for (int c = 0; c < call_count; c++)
		if (is_first(f, c))
			calls[count++] = (struct known_call){ f->places[c].pass, pd_kineto_key(f->walk, c), c };
	if (count > 0)
		qsort(calls, count, sizeof(*calls), by_key);
	for (int c = 0; c < call_count; c++)
		base[c] = f->walk->calls[c].again ? find_base(f, calls, count, c, base) : -1;
	free(calls);
	return base;
}

int pd_kineto_period(const int64_t *keys, int count)
{
	int *border = pd_calloc((size_t)count + 1, sizeof(*border)), n, length = 0;

	for (n = 1; n < count; n++) {
		while (length > 0 && keys[n] != keys[length])
			length = border[length - 1];
		length += keys[n] == keys[length];
		border[n] = length;
	}
	n = count > 0 ? count - border[count - 1] : 1;
	free(border);
	return count % n == 0 ? n : count;
}

/* Finds the periods of the passes' layers. */
static int *periods(const struct pd_kineto_finder *f)
{
	int *of = pd_calloc(f->to->pass_count + 1, sizeof(*of)), count = 0;
	int64_t *keys = pd_calloc(f->walk->call_count + 1, sizeof(*keys));

	for (size_t i = 0; i < f->count; i++) {
		int c = f->items[i].index, pass;

		if (f->items[i].kind != PD_KINETO_ITEM_CALL || !is_first(f, c) || !pd_kineto_is_layer(f, c))
			continue;
		pass = f->places[c].pass;
		keys[count++] = pd_kineto_key(f->walk, c);
		if (count < f->shapes[pass].layers)
			continue;
		of[pass] = pd_kineto_period(keys, count);
		count = 0;
	}
	free(keys);
	return of;
}

void pd_kineto_split(struct pd_kineto_finder *f)
{
	struct pd_kineto_passes *to = f->to;
	int *of = periods(f), *first = pd_calloc(to->pass_count + 1, sizeof(*first));
	struct pd_kineto_pass *passes = NULL;
	struct pd_kineto_shape *shapes = NULL;
	size_t capacity = 0, shape_capacity = 0, count = 0;

	for (size_t p = 0; p < to->pass_count; p++) {
		int times = of[p] > 0 ? f->shapes[p].layers / of[p] : 1;

		first[p] = (int)count;
		passes = pd_grow(passes, &capacity, count + (size_t)times, sizeof(*passes));
		shapes = pd_grow(shapes, &shape_capacity, count + (size_t)times, sizeof(*shapes));
		for (int n = 0; n < times; n++, count++) {
			passes[count] = to->passes[p];
			if (n > 0)
				passes[count].load = (struct pd_kineto_span)PD_KINETO_NOTHING;
			shapes[count] = (struct pd_kineto_shape){ .at_ns = f->shapes[p].at_ns + n,
								  .layers = f->shapes[p].layers / times };
		}
	}
	for (size_t c = 0; c < f->walk->call_count; c++) {
		struct pd_kineto_place *place = &f->places[c];
		int every = place->pass >= 0 ? of[place->pass] : 0;

		place->pass = place->pass >= 0 ? first[place->pass] : -1;
		if (every > 0 && place->layer >= 0) {
			place->pass += place->layer / every;
			place->layer %= every;
		}
	}
	free(to->passes);
	free(f->shapes);
	free(of);
	free(first);
	to->passes = passes;
	to->pass_count = count;
	f->shapes = shapes;
}
