/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/memory.h"

#include "base/mem.h"
#include "memory/again.h"
#include "memory/arenas.h"
#include "memory/buckets.h"
#include "memory/scratch.h"
#include "plan/sparse.h"

#include <stdlib.h>

/*
 * Returns the most that is live in scratch at once in a backward of the stage.  The gradient of an
 * activation lives from the last layer that uses it to the layer that made it; where a layer adds
 * its part there is a second one, and there is the workspace of the current layer.  A layer that
 * keeps nothing of its own (in place, such as relu) passes the gradient on.
 */
static int64_t scratch_peak(const struct pd_profile *profile, int first, int count)
{
	bool *live = pd_calloc((size_t)count, sizeof(*live));
	int64_t held = 0, peak = 0;

	for (int l = first + count - 1; l >= first; l--) {
		const struct pd_profile_layer *layer = &profile->layers[l];
		bool passes = layer->stash_bytes == 0 && live[l - first];
		int64_t at_work = layer->workspace_bytes;

		for (int i = layer->input_count - 1; i >= 0; i--) {
			const struct pd_profile_layer *input = &profile->layers[layer->inputs[i]];

			if (!input->needs_gradient || layer->inputs[i] < first)
				continue;
			if (live[layer->inputs[i] - first]) {
				at_work = pd_plus(at_work, input->activation_bytes);
				continue;
			}
			live[layer->inputs[i] - first] = true;
			if (passes)
				held -= layer->activation_bytes;
			passes = false;
			held = pd_plus(held, input->activation_bytes);
		}
		if (pd_plus(held, at_work) > peak)
			peak = pd_plus(held, at_work);
		if (live[l - first] && (layer->stash_bytes > 0 || passes))
			held -= layer->activation_bytes;
	}
	free(live);
	return peak;
}

static int64_t aligned(int64_t bytes)
{
	return (int64_t)pd_align((size_t)bytes);
}

/*
 * Returns the bytes of the model's inputs that the stage loads, or those of the buffers they take.
 */
static int64_t loaded_bytes(const struct pd_profile *profile, int first, int count, bool places)
{
	const struct pd_model *model = profile->model;
	int64_t bytes = 0;

	for (int t = 0; model && t < model->input_count; t++) {
		size_t each = pd_dtype_bytes(model->inputs[t].dtype == PD_I32 ? PD_I32
										: profile->dtype);
		int64_t input = pd_times((int64_t)each * profile->batch_size,
				      pd_shape_elements(&model->inputs[t].shape));
		bool used = false;

		for (int l = first; l < first + count && !used; l++)
			for (int i = 0; i < model->layers[l].input_count; i++)
				used |= model->layers[l].inputs[i] == t;
		if (used)
			bytes = pd_plus(bytes, places ? aligned(input) : input);
	}
	return bytes;
}

int64_t pd_memory_weights(const struct pd_profile *profile, int64_t full_bytes)
{
	return full_bytes / (int64_t)sizeof(float) * (int64_t)pd_dtype_bytes(profile->dtype);
}

int64_t pd_memory_master(const struct pd_profile *profile, int64_t full_bytes)
{
	return profile->dtype == PD_F32 ? 0 : full_bytes;
}

int64_t pd_memory_parameters(const struct pd_profile *profile, int layer, bool copies)
{
	return copies ? pd_memory_copy(profile, layer) : profile->layers[layer].parameter_bytes;
}

/* Bytes of a parameter's weight, gradient and the rest, and whether gradients are summed in buffers. */
static const struct parameter_bytes {
	int64_t weight, gradient, rest;
} bytes_of[PD_MEMORY_MODELS][2] = {
#define MEMORY_MODEL(symbol, name, weight, gradient, rest, weight16, gradient16, rest16, ...) \
	{ { weight, gradient, rest }, { weight16, gradient16, rest16 } },
#include "profile/memory_model.def"
};
static const bool has_buffers[PD_MEMORY_MODELS] = {
#define MEMORY_MODEL(symbol, name, weight, gradient, rest, weight16, gradient16, rest16, buffers, what) buffers,
#include "profile/memory_model.def"
};

/* Returns sizes by sums; those of another program have the arenas' names that come nearest. */
static struct pd_stage_memory sizes_of(const struct pd_profile *profile, const struct pd_memory_sums *sums,
				       int replicas, int64_t in_bytes, int64_t out_bytes)
{
	const struct pd_memory_rule *rule = &profile->memory;
	const struct parameter_bytes *each = &bytes_of[rule->model][profile->dtype != PD_F32];
	int64_t parameters = sums->parameters / (int64_t)sizeof(float), rest = pd_times(each->rest, parameters);
	struct pd_stage_memory sizes = {
		.full_bytes = sums->parameters, .state_bytes = sums->state, .slot_bytes = sums->stash,
		.inbox_bytes = pd_plus(in_bytes, sums->loaded), .outbox_bytes = out_bytes,
		.gradient_in_bytes = out_bytes, .gradient_out_bytes = in_bytes, .scratch_bytes = sums->scratch,
	};
	bool own = rule->model == PD_MEMORY_OWN;

	if (!own)
		sizes.full_bytes = pd_times(each->gradient, parameters);
	sizes.weights_bytes = own ? pd_memory_weights(profile, sums->parameters) : pd_times(each->weight, parameters);
	sizes.master_bytes = own ? pd_memory_master(profile, sums->parameters)
				 : rule->sharded ? (rest - 1) / replicas + 1 : rest;
	sizes.staging_bytes = replicas > 1 && (own || has_buffers[rule->model]) ? sizes.full_bytes : 0;
	return sizes;
}

void pd_memory_margin(const struct pd_profile *profile, struct pd_memory *memory)
{
	memory->margin_bytes = (int64_t)((double)memory->total_bytes * profile->memory.margin);
	memory->total_bytes = pd_plus(memory->total_bytes, memory->margin_bytes);
}

void pd_memory_price(const struct pd_profile *profile, const struct pd_memory_sums *sums,
		     int replicas, int warmup, int64_t in_bytes, int64_t out_bytes,
		     struct pd_memory *out_p)
{
	struct pd_arena_counts counts = {
		.versions = warmup + 1, .slots = warmup + 1, .inboxes = warmup + 2, .arriving = 2, .leaving = 2,
		.moments = 1, .sums = 1,
	};
	struct pd_stage_memory sizes = sizes_of(profile, sums, replicas, in_bytes, out_bytes);
	struct pd_arena_need needs[PD_ARENAS];

	if (profile->memory.model != PD_MEMORY_OWN)
		counts = pd_arena_counts_elsewhere(&counts);
	pd_arenas_need(&counts, &sizes, needs);
	*out_p = (struct pd_memory){ .total_bytes = 0 };
	pd_arenas_add(needs, out_p);
	pd_memory_margin(profile, out_p);
}

void pd_memory_add_up(const struct pd_profile *profile, int first, int count,
		      struct pd_memory_sums *sums_p)
{
	struct pd_memory_sums sums = {
		.loaded = loaded_bytes(profile, first, count, false),
		.scratch = scratch_peak(profile, first, count),
	};

	for (int l = first; l < first + count; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];

		sums.parameters += pd_memory_parameters(profile, l, false);
		sums.stash = pd_plus(sums.stash, layer->stash_bytes);
		sums.state += layer->state_bytes;
	}
	*sums_p = sums;
}

void pd_memory_of(const struct pd_profile *profile, int first, int count, int replicas,
		  int warmup, int64_t in_bytes, int64_t out_bytes, struct pd_memory *out_p)
{
	struct pd_memory_sums sums;

	pd_memory_add_up(profile, first, count, &sums);
	pd_memory_price(profile, &sums, replicas, warmup, in_bytes, out_bytes, out_p);
}

/* One layer's bytes are those of what all of them share; others have what is theirs alone. */
static int holder(const struct pd_profile *profile, int layer)
{
	const struct pd_profile_layer *layers = profile->layers;
	int most = layer;

	for (int l = 0; l < profile->layer_count; l++)
		if (layers[l].shared && layers[l].owner == layers[layer].owner &&
		    layers[l].parameter_bytes > layers[most].parameter_bytes)
			most = l;
	return most;
}

int64_t pd_memory_shared(const struct pd_profile *profile, int layer)
{
	return profile->layers[layer].shared
		? profile->layers[holder(profile, layer)].parameter_bytes : 0;
}

int64_t pd_memory_copy(const struct pd_profile *profile, int layer)
{
	int64_t bytes = profile->layers[layer].parameter_bytes;

	if (!profile->layers[layer].shared || holder(profile, layer) == layer)
		return bytes;
	return bytes + pd_memory_shared(profile, layer);
}

/* Tells whether the weight part of backward needs the gradient of the layer's output. */
static bool keeps_gradient(const struct pd_profile *profile, int layer)
{
	return pd_memory_copy(profile, layer) > 0 &&
	       (!profile->model || pd_layer_is(&profile->model->layers[layer], PD_KIND_SPLITS));
}

int64_t pd_memory_split(const struct pd_profile *profile, int layer)
{
	const struct pd_layer *at = profile->model ? &profile->model->layers[layer] : NULL;

	if (at && at->frozen)
		return 0;
	if (at && pd_layer_is(at, PD_KIND_KEEPS_GATES)) {
		int directions = at->bidirectional ? 2 : 1;
		int64_t output = profile->layers[layer].activation_bytes / directions;

		return pd_times(directions, aligned(pd_times(4, output)));
	}
	return keeps_gradient(profile, layer)
		? profile->layers[layer].activation_bytes
		: pd_memory_copy(profile, layer);
}

int64_t pd_memory_carried(const struct pd_profile *profile, int layer)
{
	const struct pd_layer *at = profile->model ? &profile->model->layers[layer] : NULL;

	if (!at || at->lanes == 0)
		return 0;
	return 2 * aligned(pd_times((int64_t)sizeof(float) * profile->batch_size, at->hidden_size));
}

/*
 * A stage's tensors in the numbers of pd_scratch_place: those that arrive, then its layers'
 * outputs.
 */
struct stage {
	const struct pd_profile *profile;
	int first, count;
	int arriving_count;
	int *arriving;                  /* layers, ascending */
	struct pd_scratch_tensor *tensors;
	struct pd_scratch_layer *layers;
	int *inputs;                    /* of all the layers */
	bool *wants;
	bool split;                     /* backward in two parts */
	struct pd_segment_layer *segments;      /* NULL: it does not recompute */
	int first_point;
	struct pd_stage_memory *memory;
};

static int compare(const void *a, const void *b)
{
	return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static int tensor_of(const struct stage *s, int layer)
{
	int *found;

	if (layer >= s->first)
		return s->arriving_count + layer - s->first;
	found = bsearch(&layer, s->arriving, (size_t)s->arriving_count, sizeof(layer), compare);
	return found ? (int)(found - s->arriving) : -1;
}

static bool needs_gradient(const struct pd_profile *profile, int layer)
{
	return pd_model_needs_gradient(profile->model, profile->model->input_count + layer);
}

/*
 * Finds tensors that arrive: each has a place in the inbox, and its gradient one in gradient-out.
 */
static void find_arriving(struct stage *s, const struct pd_wiring *wiring, int stage)
{
	for (int i = 0; i < wiring->in_count[stage]; i++)
		s->arriving_count += wiring->links[wiring->in[stage][i]].tensor_count;
	s->arriving = pd_calloc((size_t)s->arriving_count, sizeof(*s->arriving));
	for (int i = 0, n = 0; i < wiring->in_count[stage]; i++) {
		const struct pd_link *link = &wiring->links[wiring->in[stage][i]];

		for (int t = 0; t < link->tensor_count; t++)
			s->arriving[n++] = link->tensors[t];
	}
	if (s->arriving_count > 0)
		qsort(s->arriving, (size_t)s->arriving_count, sizeof(*s->arriving), compare);
	s->tensors = pd_calloc((size_t)(s->arriving_count + s->count), sizeof(*s->tensors));
	for (int t = 0; t < s->arriving_count; t++) {
		struct pd_scratch_tensor *tensor = &s->tensors[t];
		int64_t bytes = s->profile->layers[s->arriving[t]].activation_bytes;

		*tensor = (struct pd_scratch_tensor){ .bytes = (size_t)bytes, .arrives = true };
		s->memory->inbox_bytes += aligned(bytes);
		if (!needs_gradient(s->profile, s->arriving[t]))
			continue;
		tensor->out_offset = (size_t)s->memory->gradient_out_bytes;
		s->memory->gradient_out_bytes += aligned(bytes);
	}
}

/* Finds tensors that leave, made here or passed on: their gradients have a place in gradient-in. */
static void find_leaving(struct stage *s, const struct pd_wiring *wiring, int stage)
{
	for (int i = 0; i < wiring->out_count[stage]; i++) {
		const struct pd_link *link = &wiring->links[wiring->out[stage][i]];

		for (int n = 0; n < link->tensor_count; n++) {
			int layer = link->tensors[n];
			struct pd_scratch_tensor *tensor = &s->tensors[tensor_of(s, layer)];

			s->memory->outbox_bytes += aligned(s->profile->layers[layer].activation_bytes);
			tensor->leaves = true;
			tensor->in_offset = SIZE_MAX;
			if (!needs_gradient(s->profile, layer))
				continue;
			tensor->in_offset = (size_t)s->memory->gradient_in_bytes;
			s->memory->gradient_in_bytes +=
				aligned(s->profile->layers[layer].activation_bytes);
		}
	}
}

static void describe_layers(struct stage *s)
{
	int total = 0;

	for (int l = 0; l < s->count; l++)
		total += s->profile->layers[s->first + l].input_count;
	s->inputs = pd_calloc((size_t)total, sizeof(*s->inputs));
	s->wants = pd_calloc((size_t)total, sizeof(*s->wants));
	s->layers = pd_calloc((size_t)s->count, sizeof(*s->layers));
	for (int l = 0, n = 0; l < s->count; l++) {
		const struct pd_profile_layer *layer = &s->profile->layers[s->first + l];

		s->layers[l] = (struct pd_scratch_layer){
			.input_count = layer->input_count,
			.inputs = s->inputs + n, .wants = s->wants + n,
			.in_place = layer->in_place, .passes = layer->passes_gradient,
			.forward_bytes = (size_t)layer->forward_workspace_bytes,
			.backward_bytes = (size_t)layer->backward_workspace_bytes,
			.again_bytes = s->layers[l].again_bytes,
		};
		if (s->segments && s->segments[l].point >= 0 && s->segments[l].point != s->first_point) {
			size_t *again = &s->layers[s->segments[l].point].again_bytes;

			if ((size_t)layer->forward_workspace_bytes > *again)
				*again = (size_t)layer->forward_workspace_bytes;
		}
		s->tensors[s->arriving_count + l].bytes = (size_t)layer->activation_bytes;
		s->tensors[s->arriving_count + l].stays =
			s->split && keeps_gradient(s->profile, s->first + l);
		for (int i = 0; i < layer->input_count; i++, n++) {
			s->inputs[n] = tensor_of(s, layer->inputs[i]);
			s->wants[n] = needs_gradient(s->profile, layer->inputs[i]);
		}
	}
}

/* Adds what a stage that recomputes keeps, and sets before which layer's backward it begins to recompute. */
static struct pd_segment_layer *place_segments(const struct pd_plan *plan,
					       const struct pd_profile *profile, int stage,
					       struct pd_stage_memory *memory, int *first_point_p)
{
	struct pd_segments segments;
	struct pd_segment_layer *layers = pd_plan_segments(plan, profile, stage, memory->exact,
							   &segments);

	memory->slot_bytes += (int64_t)segments.slot_bytes;
	memory->kept_bytes += (int64_t)segments.kept_bytes;
	*first_point_p = segments.first_point;
	return layers;
}

static void exactly(const struct pd_plan *plan, const struct pd_profile *profile,
		    const struct pd_wiring *wiring, int stage, struct pd_stage_memory *memory)
{
	struct stage s = { .profile = profile, .first = plan->stages[stage].first_layer,
			   .count = plan->stages[stage].layer_count, .memory = memory,
			   .split = pd_plan_splits(plan) };

	bool tied = pd_plan_has_tied_weights(plan), again = plan->stages[stage].recompute;

	memory->inbox_bytes = loaded_bytes(s.profile, s.first, s.count, true);
	for (int l = s.first; l < s.first + s.count; l++) {
		const struct pd_profile_layer *layer = &s.profile->layers[l];
		int64_t carried = again ? pd_memory_carried(s.profile, l) : 0;

		/* Shared parameters count once, at the first layer that has them. */
		memory->full_bytes += aligned(tied ? pd_memory_copy(s.profile, l)
						      : layer->parameter_bytes);
		memory->state_bytes += aligned(layer->state_bytes);
		memory->slot_bytes += again ? 0 : aligned(layer->stash_bytes);
		memory->inbox_bytes += carried;
		if (s.split)
			memory->slot_bytes += aligned(pd_memory_split(s.profile, l));
	}
	s.segments = again ? place_segments(plan, profile, stage, memory, &s.first_point) : NULL;
	find_arriving(&s, wiring, stage);
	find_leaving(&s, wiring, stage);
	describe_layers(&s);
	memory->scratch_bytes = (int64_t)pd_scratch_place(s.layers, s.count, s.tensors,
							  s.arriving_count);
	free(s.arriving);
	free(s.tensors);
	free(s.layers);
	free(s.inputs);
	free(s.wants);
	free(s.segments);
}

/* By sums; also what another program takes. */
static void roughly(const struct pd_plan *plan, const struct pd_profile *profile,
		    const struct pd_wiring *wiring, int stage, struct pd_stage_memory *memory)
{
	const struct pd_stage *at = &plan->stages[stage];
	bool own = profile->memory.model == PD_MEMORY_OWN;
	struct pd_memory_sums sums;
	int point;

	pd_memory_add_up(profile, at->first_layer, at->layer_count, &sums);
	if (own)
		sums.parameters = pd_plan_stage_parameters(plan, stage);
	for (int l = at->first_layer; own && pd_plan_splits(plan) && l < at->first_layer + at->layer_count; l++)
		sums.stash = pd_plus(sums.stash, pd_memory_split(profile, l));
	*memory = sizes_of(profile, &sums, at->replicas, pd_wiring_in_bytes(wiring, stage),
			   pd_wiring_out_bytes(wiring, stage));
	if (!at->recompute)
		return;
	for (int l = at->first_layer; l < at->first_layer + at->layer_count; l++)
		memory->slot_bytes -= profile->layers[l].stash_bytes;   /* what is split stays */
	free(place_segments(plan, profile, stage, memory, &point));
}

void pd_memory_of_stage(const struct pd_plan *plan, const struct pd_profile *profile,
			const struct pd_wiring *wiring, int stage, struct pd_stage_memory *out_p)
{
	const struct pd_stage *at = &plan->stages[stage];
	bool own = profile->memory.model == PD_MEMORY_OWN, exact = own && profile->model;

	for (int l = at->first_layer; l < at->first_layer + at->layer_count && exact; l++)
		exact = profile->layers[l].backward_workspace_bytes >= 0;
	*out_p = (struct pd_stage_memory){ .exact = exact };
	(exact ? exactly : roughly)(plan, profile, wiring, stage, out_p);
	if (!own)
		return;
	out_p->weights_bytes = pd_memory_weights(profile, out_p->full_bytes);
	out_p->master_bytes = pd_memory_master(profile, out_p->full_bytes);
	out_p->staging_bytes = pd_plan_staging_bytes(plan, stage, out_p->full_bytes);
	out_p->chunk_table_bytes = pd_plan_chunk_table_bytes(plan, stage, out_p->full_bytes);
}
