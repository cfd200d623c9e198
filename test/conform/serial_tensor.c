/* SPDX-License-Identifier: Apache-2.0 */
#include "serial.h"

#include "base/mem.h"
#include "checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

void serial_add_version(struct tensor *v, float *values, double scale)
{
	v->scales = pd_grow(v->scales, &v->scales_capacity, v->count + 1, sizeof(*v->scales));
	v->scales[v->count] = scale;
	v->versions = pd_grow(v->versions, &v->capacity, v->count + 1, sizeof(*v->versions));
	v->versions[v->count++] = values;
}

void serial_tensors_open(struct trainer *t)
{
	const struct pd_named *named;

	t->count = t->ops->net.named(t->net, &named);
	t->tensors = pd_calloc((size_t)t->count, sizeof(*t->tensors));
	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];
		float *values = pd_calloc((size_t)named[i].elements, sizeof(float));

		v->named = &named[i];
		v->elements = (size_t)named[i].elements;
		if (named[i].part != PD_PART_PARAMETER) {
			t->ops->net.export(t->net, i, PD_FULL, t->state, values);
			v->state = values;
			continue;
		}
		t->ops->net.export(t->net, i, PD_FULL, t->master ? t->master : t->weights, values);
		serial_add_version(v, values, asked.loss_scale > 0 ? asked.loss_scale : 1);
		v->gradient = pd_calloc(v->elements, sizeof(float));
		v->sum = pd_calloc(v->elements, sizeof(float));
		v->velocity = pd_calloc(v->elements, sizeof(float));
		v->second = pd_calloc(v->elements, sizeof(float));
		v->mask = pd_calloc(v->elements, sizeof(float));
		v->delta = pd_calloc(v->elements, sizeof(float));
		v->seen = pd_calloc(v->elements, sizeof(float));
		memcpy(v->seen, values, v->elements * sizeof(float));
		v->parts = pd_calloc((size_t)t->most_replicas, sizeof(*v->parts));
		for (int k = 0; k < t->most_replicas; k++)
			v->parts[k] = pd_calloc(v->elements, sizeof(float));
	}
}

void serial_forget(struct tensor *v)
{
	for (size_t i = 0; i + 1 < v->count; i++)
		free(v->versions[i]);
	v->versions[0] = v->versions[v->count - 1];
	v->scales[0] = v->scales[v->count - 1];
	v->count = 1;
	v->origin = v->floor = 0;
}

struct tensor *serial_parameter(const struct trainer *t)
{
	struct tensor *v = t->tensors;

	while (v->named->part != PD_PART_PARAMETER)
		v++;
	return v;
}

void serial_tensors_close(struct trainer *t)
{
	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];

		for (size_t k = 0; k < v->count; k++)
			free(v->versions[k]);
		for (int k = 0; k < t->most_replicas && v->parts; k++)
			free(v->parts[k]);
		free(v->parts);
		free(v->versions);
		free(v->scales);
		free(v->gradient);
		free(v->sum);
		free(v->velocity);
		free(v->second);
		free(v->mask);
		free(v->delta);
		free(v->seen);
		free(v->state);
	}
	free(t->tensors);
}

static void set_tensor(struct pd_tensor *out, const struct pd_named *named, const char *what)
{
	*out = (struct pd_tensor){ .name = pd_format("%s%s", named->name, what),
				   .dims = named->dims, .elements = named->elements };
	memcpy(out->size, named->size, sizeof(named->size));
}

/* Adds the residuals of stages with sparse sums, to be freed; returns the new number of tensors. */
static size_t add_residuals(struct trainer *t, struct pd_tensor *list, const float **values, size_t n)
{
	for (int i = 0; i < t->count; i++) {
		const struct tensor *v = &t->tensors[i];
		int s = pd_plan_stage_of_layer(t->plan, v->named->layer);

		for (int k = 0; k < t->plan->stages[s].replicas && !v->state &&
		     serial_is_sparse(t->plan, s); k++) {
			char what[32];

			snprintf(what, sizeof(what), k ? ".residual#%d" : ".residual", k);
			set_tensor(&list[n], v->named, what);
			values[n++] = serial_sparse_residual(t, i, k);
		}
	}
	return n;
}

/* Adds the norms of stages with sparse sums; returns the new number of tensors. */
static size_t add_norms(struct trainer *t, struct pd_tensor *list, const float **values, size_t n)
{
	for (int s = 0; s < t->plan->stage_count; s++) {
		const struct pd_stage *stage = &t->plan->stages[s];
		size_t chunks;

		if (!serial_is_sparse(t->plan, s))
			continue;
		values[n] = serial_sparse_norms(s, &chunks);
		if (chunks == 0)        /* a stage without parameters */
			continue;
		list[n++] = (struct pd_tensor){
			.name = pd_format("norms of chunks of %lld/%s", (long long)t->plan->chunk,
					  t->plan->profile->layers[stage->first_layer].name),
			.dims = 1, .size[0] = (int64_t)chunks, .elements = (int64_t)chunks,
		};
	}
	return n;
}

void serial_tensors_write(struct trainer *t)
{
	size_t n = 0, residuals, end, room = (4 + (size_t)t->most_replicas) * (size_t)t->count +
			     (size_t)t->plan->stage_count + 1;
	struct pd_tensor *list = pd_calloc(room, sizeof(*list));
	const float **values = pd_calloc(room, sizeof(*values));
	uint64_t checksum;
	bool one_moment = asked.optimizer != ADAM && asked.optimizer != ADAMW;
	struct pd_error err;

	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];

		if (v->named->copy)
			continue;
		set_tensor(&list[n], v->named, "");
		values[n++] = v->state ? v->state : v->versions[v->count - 1];
		if (!v->state && serial_corrects(t, v)) {
			set_tensor(&list[n], v->named, ".delta");
			values[n++] = v->delta;
		}
		if (v->state || (one_moment && asked.momentum == 0))
			continue;
		set_tensor(&list[n], v->named, ".velocity");
		values[n++] = v->velocity;
		if (one_moment)
			continue;
		set_tensor(&list[n], v->named, ".second");
		values[n++] = v->second;
	}
	residuals = n;
	end = n = add_residuals(t, list, values, n);
	n = add_norms(t, list, values, n);
	serial_check(pd_safetensors_write(asked.output, list, values, n, NULL, &checksum, &err) == 0,
		     &err);
	for (size_t i = 0; i < n; i++)
		free(list[i].name);
	for (size_t i = residuals; i < end; i++)
		free((float *)values[i]);
	free(list);
	free(values);
}
