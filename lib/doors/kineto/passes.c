/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/finder.h"

#include "base/mem.h"
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

static int by_time(const void *a, const void *b)
{
	const struct pd_kineto_item *x = a, *y = b;

	PD_ORDER(x->at_ns, y->at_ns);
	PD_ORDER(x->kind, y->kind);
	PD_ORDER(x->index, y->index);
	return 0;
}

static void list_items(struct pd_kineto_finder *f)
{
	const struct pd_kineto_walk *walk = f->walk;

	f->items = pd_calloc(walk->mark_count + walk->call_count + walk->node_count + 1, sizeof(*f->items));
	for (size_t m = 0; m < walk->mark_count; m++)
		f->items[f->count++] = (struct pd_kineto_item){ walk->marks[m].at_ns, PD_KINETO_ITEM_MARK, (int)m };
	for (size_t c = 0; c < walk->call_count; c++)
		if (walk->calls[c].works)
			f->items[f->count++] = (struct pd_kineto_item){ walk->calls[c].at_ns, PD_KINETO_ITEM_CALL, (int)c };
	for (size_t n = 0; n < walk->node_count; n++)
		f->items[f->count++] = (struct pd_kineto_item){ walk->nodes[n].at_ns, PD_KINETO_ITEM_NODE, (int)n };
	qsort(f->items, f->count, sizeof(*f->items), by_time);
}

/* Counts an optimizer's step, unless no pass has come since the last. */
static void add_update(struct pd_kineto_finder *f, const struct pd_kineto_span *span)
{
	struct pd_kineto_passes *to = f->to;

	if (to->update_count == 0 ||
	    (to->pass_count > 0 && to->passes[to->pass_count - 1].updates == (int64_t)to->update_count)) {
		to->updates = pd_grow(to->updates, &to->update_capacity, to->update_count + 1,
				      sizeof(*to->updates));
		to->updates[to->update_count++] = (struct pd_kineto_span)PD_KINETO_NOTHING;
	}
	pd_kineto_extend(&to->updates[to->update_count - 1], span);
}

static void add_pass(struct pd_kineto_finder *f, int64_t at_ns, const struct pd_kineto_span *load)
{
	struct pd_kineto_passes *to = f->to;

	f->shapes = pd_grow(f->shapes, &f->shape_capacity, to->pass_count + 1, sizeof(*f->shapes));
	to->passes = pd_grow(to->passes, &to->pass_capacity, to->pass_count + 1, sizeof(*to->passes));
	f->shapes[to->pass_count] = (struct pd_kineto_shape){ .at_ns = at_ns };
	to->passes[to->pass_count++] = (struct pd_kineto_pass){
		.updates = (int64_t)to->update_count, .load = *load, .forward = PD_KINETO_NOTHING,
		.backward = PD_KINETO_NOTHING,
	};
}

/* A pass ends where a backward, an optimizer or another step of the profiler lies between it and a call. */
static void find_passes(struct pd_kineto_finder *f)
{
	static const struct pd_kineto_span none = PD_KINETO_NOTHING;
	struct pd_kineto_span load = none;
	bool open = false;

	for (size_t i = 0; i < f->count; i++) {
		const struct pd_kineto_item *item = &f->items[i];

		if (item->kind == PD_KINETO_ITEM_CALL) {
			if (f->walk->calls[item->index].again)
				continue;
			if (!open) {
				add_pass(f, item->at_ns, &load);
				load = none;
			}
			f->places[item->index].pass = (int)f->to->pass_count - 1;
			open = true;
			continue;
		}
		open = false;
		if (item->kind != PD_KINETO_ITEM_MARK)
			continue;
		if (f->walk->marks[item->index].kind == PD_KINETO_OPTIMIZER)
			add_update(f, &f->walk->marks[item->index].span);
		if (f->walk->marks[item->index].kind == PD_KINETO_LOAD)
			load = f->walk->marks[item->index].span;
	}
}

/* Counts the nodes of each call, a recomputation's where it belongs. */
static void count_nodes(struct pd_kineto_finder *f, const int *base)
{
	for (size_t n = 0; n < f->walk->node_count; n++) {
		int call = f->walk->nodes[n].call;

		call = call >= 0 && f->walk->calls[call].again ? base[call] : call;
		if (call >= 0)
			f->places[call].nodes++;
	}
}

/*
 * Numbers the layers of each pass.  Operators between modules of which nothing has a backward, such as those that
 * make a mask, belong to the layer behind them, or to the last.
 */
static void number_layers(struct pd_kineto_finder *f)
{
	int layers = 0, pass = -1;

	for (size_t i = 0; i < f->count; i++) {
		bool is_call = f->items[i].kind == PD_KINETO_ITEM_CALL && !f->walk->calls[f->items[i].index].again;
		struct pd_kineto_place *place = is_call ? &f->places[f->items[i].index] : NULL;

		if (!place)
			continue;
		layers = place->pass == pass ? layers : 0;
		pass = place->pass;
		place->layer = layers;
		if (pd_kineto_is_layer(f, f->items[i].index))
			f->shapes[pass].layers = ++layers;
	}
	for (size_t c = 0; c < f->walk->call_count; c++)
		if (f->places[c].pass >= 0 && f->places[c].layer >= f->shapes[f->places[c].pass].layers)
			f->places[c].layer = f->shapes[f->places[c].pass].layers - 1;
}

/* Leaves out passes without a backward, such as those of an evaluation. */
static void drop_untrained(struct pd_kineto_finder *f)
{
	int *now = pd_calloc(f->to->pass_count + 1, sizeof(*now)), count = 0;

	for (size_t p = 0; p < f->to->pass_count; p++) {
		now[p] = f->shapes[p].nodes > 0 ? count : -1;
		if (now[p] < 0)
			continue;
		f->shapes[count] = f->shapes[p];
		f->to->passes[count++] = f->to->passes[p];
	}
	for (size_t c = 0; c < f->walk->call_count; c++)
		f->places[c].pass = f->places[c].pass < 0 ? -1 : now[f->places[c].pass];
	f->to->pass_count = (size_t)count;
	free(now);
}

/* Adds up what the layers of each pass are, and how many nodes it has. */
static void find_shapes(struct pd_kineto_finder *f)
{
	for (size_t i = 0; i < f->count; i++) {
		int c = f->items[i].index;
		struct pd_kineto_shape *shape;

		if (f->items[i].kind != PD_KINETO_ITEM_CALL || f->walk->calls[c].again)
			continue;
		shape = &f->shapes[f->places[c].pass];
		shape->nodes += f->places[c].nodes;
		if (pd_kineto_is_layer(f, c))
			shape->hash = (shape->hash ^ (uint64_t)pd_kineto_key(f->walk, c)) * 0x100000001b3 + 1;
	}
}

static void place_again(struct pd_kineto_finder *f, const int *base)
{
	for (size_t c = 0; c < f->walk->call_count; c++)
		if (base[c] >= 0)
			f->places[c] = f->places[base[c]];
}

static int by_hash(const void *a, const void *b)
{
	const struct pd_kineto_shape *x = a, *y = b;

	PD_ORDER(x->hash, y->hash);
	PD_ORDER(x->at_ns, y->at_ns);
	return 0;
}

/* Finds the passes with the layers that most have; returns the first one's number, or -1. */
static int find_whole(struct pd_kineto_finder *f)
{
	struct pd_kineto_shape *sorted = pd_memdup(f->shapes, f->to->pass_count * sizeof(*sorted));
	size_t most = 0, run = 0;
	int first = -1, layers = 0;
	uint64_t hash = 0;

	if (f->to->pass_count > 0)
		qsort(sorted, f->to->pass_count, sizeof(*sorted), by_hash);
	for (size_t p = 0; p < f->to->pass_count; p++) {
		run = p > 0 && sorted[p].hash == sorted[p - 1].hash ? run : 0;
		run++;
		if (run > most) {
			most = run;
			hash = sorted[p].hash;
			layers = sorted[p].layers;
		}
	}
	free(sorted);
	f->whole = pd_calloc(f->to->pass_count + 1, sizeof(*f->whole));
	for (size_t p = 0; p < f->to->pass_count; p++) {
		bool whole = f->shapes[p].hash == hash && f->shapes[p].layers == layers;

		f->to->passes[p].whole = whole;
		f->whole[p] = whole ? (int)f->to->whole_count++ : -1;
		first = whole && first < 0 ? (int)p : first;
	}
	f->to->left_out = f->to->pass_count - f->to->whole_count;
	f->to->layer_count = layers;
	return first;
}

bool pd_kineto_has_labels(const struct pd_kineto_walk *walk)
{
	for (size_t c = 0; c < walk->call_count; c++)
		if (walk->calls[c].label && walk->calls[c].works)
			return true;
	return false;
}

int pd_kineto_passes(const struct pd_kineto_walk *walk, struct pd_kineto_passes *out_p, struct pd_error *err)
{
	struct pd_kineto_finder f = { .walk = walk, .to = out_p };
	int first, *base;

	*out_p = (struct pd_kineto_passes){ .gpu = walk->gpu };
	if (!pd_kineto_has_labels(walk))
		return pd_error_input(err, "%s: expected actions of a pipeline, such as \"PP:0F0\", or modules, found neither, "
				      "nor blocks of operators that repeat themselves: record %s with "
				      "profile(with_stack=True%s), which names all modules, or with "
				      "record_function(NAME) around parts of forward", walk->ops->file,
				      walk->ops->compiled ? "an uncompiled run (TORCH_COMPILE_DISABLE=1)" : "it",
				      walk->call_count > 0 || walk->ops->compiled ? "" : ", activities=[CPU, CUDA]");
	f.places = pd_calloc(walk->call_count, sizeof(*f.places));
	for (size_t c = 0; c < walk->call_count; c++)
		f.places[c] = (struct pd_kineto_place){ .pass = -1, .layer = -1 };
	list_items(&f);
	find_passes(&f);
	base = pd_kineto_bases(&f);
	count_nodes(&f, base);
	number_layers(&f);
	pd_kineto_split(&f);
	find_shapes(&f);
	place_again(&f, base);
	drop_untrained(&f);
	first = find_whole(&f);
	if (first >= 0)
		pd_kineto_fill(&f, first);
	free(base);
	free(f.items);
	free(f.places);
	free(f.shapes);
	free(f.whole);
	return first >= 0 ? 0 : pd_error_input(err, "%s: it has modules, but no backward that belongs to them: expected "
					       "whole steps of training", walk->ops->file);
}

void pd_kineto_passes_release(struct pd_kineto_passes *passes)
{
	for (int l = 0; passes->layers && l < passes->layer_count; l++)
		free(passes->layers[l].name);
	free(passes->layers);
	free(passes->passes);
	free(passes->updates);
	free(passes->times);
}
