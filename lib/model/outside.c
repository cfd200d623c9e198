/* SPDX-License-Identifier: Apache-2.0 */
#include "model/outside.h"

#include "base/mem.h"
#include "base/sort.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a document says of a tensor of a layer. */
struct entry {
	const struct pd_layer_tensor *tensor;
	int owner;
	bool alias, exported;
	char *name;
	bool transposed;
	int64_t start;                  /* -1: it is all of the outside's tensor */
	const json_t *shape;            /* or NULL */
};

struct making {
	const struct pd_model *model;
	struct pd_outsides *to;
	size_t room;
	bool ours, sourced;
	struct pd_error *err;
};

static json_t *source(const struct pd_model *model)
{
	return json_object_get(model->json, "source");
}

json_t *pd_model_config(const struct pd_model *model)
{
	return json_object_get(source(model), "config");
}

const char *pd_model_prefix(const struct pd_model *model)
{
	const char *prefix = pd_member_text(source(model), "prefix");

	return prefix ? prefix : "";
}

/* Aliases that a source does not name are not there: PyTorch names all, a Hugging Face file one. */
static void read_entry(const struct making *m, const struct pd_layer *layer,
		       const struct pd_layer_tensor *tensor, struct entry *entry_p)
{
	const json_t *value = m->ours ? NULL : json_object_get(layer->names, tensor->name);
	const json_t *start = json_object_get(value, "start");
	const char *name = json_is_object(value) ? pd_member_text(value, "name") : json_string_value(value);

	entry_p->tensor = tensor;
	entry_p->exported = (!entry_p->alias || layer->names || !m->sourced) &&
			    !json_is_false(json_object_get(value, "export"));
	entry_p->name = name ? pd_strdup(name) : pd_format("%s.%s", layer->name, tensor->name);
	entry_p->transposed = pd_member_true(value, "transpose");
	entry_p->start = start ? json_integer_value(start) : -1;
	entry_p->shape = json_object_get(value, "shape");
}

static void set_shape(struct pd_outside *outside, const struct entry *entry)
{
	const struct pd_layer_tensor *tensor = entry->tensor;
	size_t d;
	json_t *extent;

	outside->dims = tensor->dims;
	for (int i = 0; i < tensor->dims; i++)
		outside->size[i] = tensor->size[i];
	if (!entry->shape)
		return;
	outside->dims = (int)json_array_size(entry->shape);
	json_array_foreach(entry->shape, d, extent)
		outside->size[d] = json_integer_value(extent);
}

static struct pd_outside *add(struct making *m, const struct entry *entry)
{
	struct pd_outsides *to = m->to;
	struct pd_outside *outside;

	to->all = pd_grow(to->all, &m->room, (size_t)to->count + 1, sizeof(*to->all));
	outside = &to->all[to->count];
	*outside = (struct pd_outside){ .name = pd_strdup(entry->name), .transposed = entry->transposed,
					.split = entry->start >= 0, .alias = true };
	set_shape(outside, entry);
	pd_json_set(to->by_name, entry->name, json_integer(to->count++));
	return outside;
}

/* Is it named twice, by two layers of which one owns it? */
static bool is_same(const struct pd_outside *outside, const struct entry *entry)
{
	for (int p = 0; p < outside->part_count; p++) {
		const struct pd_outside_part *part = &outside->parts[p];

		if (part->layer == entry->owner && strcmp(part->tensor->name, entry->tensor->name) == 0 &&
		    part->start == (entry->start < 0 ? 0 : entry->start))
			return outside->transposed == entry->transposed;
	}
	return false;
}

/* Can they lie side by side? */
static int check_beside(const struct making *m, const struct pd_outside *outside, const struct entry *entry)
{
	const struct pd_outside_part *first = &outside->parts[0];
	const char *a = m->model->layers[first->layer].name, *b = m->model->layers[entry->owner].name;

	if (!outside->split || entry->start < 0)
		return pd_error_input(m->err, "\"%.60s.%s\" and \"%.60s.%s\" are both called \"%.80s\": expected "
				      "a \"start\" of both, or another name", a, first->tensor->name, b,
				      entry->tensor->name, outside->name);
	if (outside->transposed != entry->transposed || first->tensor->dims != entry->tensor->dims ||
	    memcmp(&first->tensor->size[1], &entry->tensor->size[1],
		   (size_t)(entry->tensor->dims - 1) * sizeof(*entry->tensor->size)) != 0)
		return pd_error_input(m->err, "\"%.60s.%s\" and \"%.60s.%s\" are both rows of \"%.80s\": expected "
				      "the same axes but for the first", a, first->tensor->name, b,
				      entry->tensor->name, outside->name);
	return 0;
}

static int take_entry(struct making *m, const struct entry *entry)
{
	json_t *known = json_object_get(m->to->by_name, entry->name);
	struct pd_outside *outside = known ? &m->to->all[json_integer_value(known)] : add(m, entry);

	if (!is_same(outside, entry)) {
		if (known && check_beside(m, outside, entry) < 0)
			return -1;
		outside->parts = pd_regrow(outside->parts, (size_t)outside->part_count + 1,
					   sizeof(*outside->parts));
		outside->parts[outside->part_count++] = (struct pd_outside_part){
			.layer = entry->owner, .tensor = entry->tensor,
			.start = entry->start < 0 ? 0 : entry->start };
	}
	outside->alias &= entry->alias;
	outside->exported |= entry->exported;
	return 0;
}

/* Takes a tensor under its name, and under further ones, which may be missing. */
static int take_all(struct making *m, const struct pd_layer *layer, const struct pd_layer_tensor *tensor,
		    struct entry entry)
{
	const json_t *also, *name;
	size_t n;
	int status;

	if (!m->ours && json_is_null(json_object_get(layer->names, tensor->name)))
		return 0;               /* the outside does not have it */
	read_entry(m, layer, tensor, &entry);
	status = take_entry(m, &entry);
	free(entry.name);
	also = m->ours ? NULL : json_object_get(json_object_get(layer->names, tensor->name), "also");
	entry.alias = true;
	json_array_foreach(also, n, name) {
		entry.name = (char *)json_string_value(name);
		status = status < 0 ? -1 : take_entry(m, &entry);
	}
	return status;
}

static int take_layer(struct making *m, int number)
{
	const struct pd_layer *layer = &m->model->layers[number];
	int status = 0;

	for (int p = 0; p < layer->parameter_count && status == 0; p++) {
		struct entry entry = { .owner = layer->shares >= 0 ? layer->shares : number,
				       .alias = layer->shares >= 0 };

		status = take_all(m, layer, &layer->parameters[p], entry);
	}
	for (int s = 0; s < layer->state_count && layer->lanes == 0 && status == 0; s++) {
		status = take_all(m, layer, &layer->states[s], (struct entry){ .owner = number });
	}
	return status;
}

static int by_start(const void *a, const void *b)
{
	const struct pd_outside_part *x = a, *y = b;

	PD_ORDER(x->start, y->start);
	return 0;
}

/* Checks that parts lie side by side, and works out the shape of all of them. */
static int finish(const struct making *m, struct pd_outside *outside)
{
	int64_t rows = 0;

	qsort(outside->parts, (size_t)outside->part_count, sizeof(*outside->parts), by_start);
	for (int p = 0; p < outside->part_count; p++) {
		const struct pd_outside_part *part = &outside->parts[p];

		if (part->start != rows)
			return pd_error_input(m->err, "\"%.60s.%s\" begins at row %" PRId64 " of \"%.80s\": expected "
					      "%" PRId64 ", without gap or overlap",
					      m->model->layers[part->layer].name, part->tensor->name,
					      part->start, outside->name, rows);
		rows += part->tensor->size[0];
	}
	if (outside->split)
		outside->size[0] = rows;
	if (outside->transposed) {
		rows = outside->size[0];
		outside->size[0] = outside->size[1];
		outside->size[1] = rows;
	}
	outside->elements = 1;
	for (int d = 0; d < outside->dims; d++)
		if (!pd_mul(outside->elements, outside->size[d], &outside->elements))
			return pd_error_input(m->err, "\"%.80s\": expected fewer elements", outside->name);
	return 0;
}

int pd_outsides_make(const struct pd_model *model, bool ours, struct pd_outsides *outsides_p,
		     struct pd_error *err)
{
	struct making m = { .model = model, .to = outsides_p, .ours = ours, .sourced = source(model), .err = err };
	int status = 0;

	*outsides_p = (struct pd_outsides){ .by_name = json_object() };
	for (int l = 0; l < model->layer_count && status == 0; l++)
		status = take_layer(&m, l);
	for (int i = 0; i < outsides_p->count && status == 0; i++)
		status = finish(&m, &outsides_p->all[i]);
	if (status < 0)
		pd_outsides_release(outsides_p);
	return status;
}

void pd_outsides_release(struct pd_outsides *outsides)
{
	for (int i = 0; i < outsides->count; i++) {
		free(outsides->all[i].name);
		free(outsides->all[i].parts);
	}
	free(outsides->all);
	json_decref(outsides->by_name);
	*outsides = (struct pd_outsides){ 0 };
}
