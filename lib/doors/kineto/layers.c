/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/finder.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *begins;
	enum pd_kineto_part parts[PD_KINETO_PARTS];
} known[] = {
#define NODE(beginning, first, second, other) { beginning, { \
	[PD_KINETO_FIRST] = PD_KINETO_##first, [PD_KINETO_SECOND] = PD_KINETO_##second, \
	[PD_KINETO_OTHER] = PD_KINETO_##other, [PD_KINETO_INPUT] = PD_KINETO_INPUT, \
	[PD_KINETO_WEIGHT] = PD_KINETO_WEIGHT } },
#include "doors/kineto/node.def"
#undef NODE
};

static const char *node_name(const struct pd_kineto_walk *walk, int node)
{
	const char *name = walk->ops->names[walk->nodes[node].name], *behind = strstr(name, ": ");

	return behind ? behind + 2 : name;
}

static char *layer_name(const struct pd_kineto_walk *walk, const struct pd_kineto_call *call, json_t *called)
{
	const char *name = walk->ops->names[call->name];
	char *whole, *numbered;
	int64_t times;

	if (!call->label && strncmp(name, "aten::", 6) == 0)
		name += 6;
	whole = call->scope < 0 ? pd_strdup(name) : pd_format("%s.%s", walk->ops->names[call->scope], name);
	times = pd_member_int(called, whole) + 1;
	pd_json_set(called, whole, json_integer(times));
	numbered = times > 1 ? pd_format("%s#%d", whole, (int)times) : pd_strdup(whole);
	free(whole);
	return numbered;
}

/* Names the layers after the calls of a pass. */
static void name_layers(struct pd_kineto_finder *f, int pass)
{
	json_t *called = json_object();

	f->to->layers = pd_calloc((size_t)f->to->layer_count + 1, sizeof(*f->to->layers));
	for (size_t i = 0; i < f->count; i++) {
		int c = f->items[i].index;

		if (f->items[i].kind != PD_KINETO_ITEM_CALL || f->walk->calls[c].again || f->places[c].pass != pass ||
		    !pd_kineto_is_layer(f, c))
			continue;
		f->to->layers[f->places[c].layer] = (struct pd_kineto_layer){
			.name = layer_name(f->walk, &f->walk->calls[c], called), .apart = true, .bytes = -1,
			.call = pd_kineto_key(f->walk, c),
		};
	}
	json_decref(called);
}

/* Returns where a call belongs in a whole pass, or NULL. */
static const struct pd_kineto_place *whole_place(const struct pd_kineto_finder *f, int call)
{
	const struct pd_kineto_place *place = call >= 0 ? &f->places[call] : NULL;

	return place && place->pass >= 0 && place->layer >= 0 && f->whole[place->pass] >= 0 ? place : NULL;
}

static struct pd_kineto_times *times_of(const struct pd_kineto_finder *f, const struct pd_kineto_place *place)
{
	return &f->to->times[(size_t)f->whole[place->pass] * (size_t)f->to->layer_count + (size_t)place->layer];
}

/* What is recomputed is part of backward, and comes before the gradient of the input. */
static void add_calls(struct pd_kineto_finder *f)
{
	for (size_t c = 0; c < f->walk->call_count; c++) {
		const struct pd_kineto_call *call = &f->walk->calls[c];
		const struct pd_kineto_place *place = whole_place(f, (int)c);
		struct pd_kineto_pass *pass;
		int64_t *ns;

		if (!place)
			continue;
		pass = &f->to->passes[place->pass];
		pd_kineto_extend(call->again ? &pass->backward : &pass->forward, &call->span);
		ns = call->again ? &times_of(f, place)->input_ns : &times_of(f, place)->forward_ns;
		*ns = pd_plus(*ns, call->ns);
	}
}

/* Notes which layers learn, and the sizes that the first whole pass has. */
static void look_at_nodes(struct pd_kineto_finder *f, int first)
{
	int64_t bytes[PD_DTYPES] = { 0 };

	for (size_t i = 0; i < f->count; i++) {
		const struct pd_kineto_node *node = f->items[i].kind == PD_KINETO_ITEM_NODE ?
			&f->walk->nodes[f->items[i].index] : NULL;
		const struct pd_kineto_place *place = node ? whole_place(f, node->call) : NULL;
		struct pd_kineto_layer *layer;

		if (!place)
			continue;
		layer = &f->to->layers[place->layer];
		f->to->layers[place->layer].learns |= node->accumulates ||
			strncmp(node_name(f->walk, f->items[i].index), "TBackward", 9) == 0;
		if (place->pass != first)
			continue;
		if (layer->bytes < 0) {
			layer->bytes = node->bytes;
			bytes[node->dtype] = pd_plus(bytes[node->dtype], node->bytes > 0 ? node->bytes : 0);
		}
		layer->parameters = pd_plus(layer->parameters, node->parameters);
	}
	for (int t = 0; t < PD_DTYPES; t++)
		if (bytes[t] > bytes[f->to->dtype])
			f->to->dtype = t;
}

/* Returns whose gradient a part of a node makes, PD_KINETO_OTHER: nobody knows. */
static enum pd_kineto_part whose(const struct pd_kineto_finder *f, int n, enum pd_kineto_part part, bool weighs)
{
	const char *name = node_name(f->walk, n);

	if (!weighs || part == PD_KINETO_INPUT || part == PD_KINETO_WEIGHT)
		return weighs ? part : PD_KINETO_INPUT;
	if (part == PD_KINETO_FIRST && f->walk->nodes[n].products == 1)
		return PD_KINETO_WEIGHT;
	for (size_t i = 0; i < PD_COUNT(known); i++)
		if (strncmp(name, known[i].begins, strlen(known[i].begins)) == 0)
			return known[i].parts[part];
	return PD_KINETO_OTHER;
}

static void add_nodes(struct pd_kineto_finder *f)
{
	for (size_t n = 0; n < f->walk->node_count; n++) {
		const struct pd_kineto_node *node = &f->walk->nodes[n];
		const struct pd_kineto_place *place = whole_place(f, node->call);
		struct pd_kineto_times *times;

		if (!place)
			continue;
		times = times_of(f, place);
		pd_kineto_extend(&f->to->passes[place->pass].backward, &node->span);
		for (int part = 0; part < PD_KINETO_PARTS; part++) {
			enum pd_kineto_part of = whose(f, (int)n, part, f->to->layers[place->layer].learns);
			int64_t *ns = of == PD_KINETO_WEIGHT ? &times->weight_ns : &times->input_ns;

			*ns = pd_plus(*ns, node->ns[part]);
			if (of == PD_KINETO_OTHER && node->ns[part] > 0)
				f->to->layers[place->layer].apart = false;
		}
	}
}

void pd_kineto_fill(struct pd_kineto_finder *f, int first)
{
	name_layers(f, first);
	f->to->times = pd_calloc(f->to->whole_count * (size_t)f->to->layer_count, sizeof(*f->to->times));
	add_calls(f);
	look_at_nodes(f, first);
	add_nodes(f);
}
