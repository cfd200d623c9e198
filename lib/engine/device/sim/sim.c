/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated devices and nets are made from a plan. */
#include "base/mem.h"
#include "engine/device/sim/engine.h"
#include "memory/again.h"
#include "memory/buckets.h"
#include "memory/memory.h"

#include <math.h>
#include <stdlib.h>

#define FIRST_ADDRESS (UINT64_C(1) << 40)

static int64_t forward_of(const struct pd_profile_layer *layer)
{
	return layer->forward_ns;
}

static int64_t backward_of(const struct pd_profile_layer *layer)
{
	return layer->backward_ns;
}

static int64_t *before_each(const struct pd_profile *profile,
			    int64_t (*time_of)(const struct pd_profile_layer *layer))
{
	int64_t *before = pd_calloc((size_t)profile->layer_count + 1, sizeof(*before));

	for (int l = 0; l < profile->layer_count; l++)
		if (!pd_add(before[l], time_of(&profile->layers[l]), &before[l + 1]))
			pd_bug("profile %s: the sum of its times overflows", profile->name);
	return before;
}

/* Sets by layer what a recompute takes of it, and what else is computed again in its backward. */
static void time_again(const struct pd_plan *plan, const struct pd_profile *profile, int s,
		       int64_t *before_ns, int64_t *within_ns)
{
	const struct pd_stage *stage = &plan->stages[s];
	int first = stage->first_layer;
	struct pd_segments segments;
	struct pd_segment_layer *layers = pd_plan_segments(plan, profile, s, false, &segments);

	for (int i = 0; i < stage->layer_count; i++)
		if (layers[i].point == segments.first_point)
			before_ns[first + i] = profile->layers[first + i].forward_ns;
		else if (layers[i].point >= 0)
			within_ns[first + layers[i].point] += profile->layers[first + i].forward_ns;
	free(layers);
}

/* Sets, and adds to those of backward, the times before each layer of what is computed again. */
static void add_again(struct pd_sim_kind *kind, const struct pd_plan *plan)
{
	size_t layers = (size_t)kind->profile->layer_count;
	int64_t *within_ns = pd_calloc(layers, sizeof(*within_ns)), within = 0;

	kind->again_ns = pd_calloc(layers + 1, sizeof(*kind->again_ns));
	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].recompute)
			time_again(plan, kind->profile, s, kind->again_ns + 1, within_ns);
	for (size_t l = 0; l < layers; l++) {
		within += within_ns[l];
		kind->again_ns[l + 1] += kind->again_ns[l];
		kind->backward_ns[l + 1] += within;
	}
	free(within_ns);
}

/* The same of updates, which replicas may share out. */
static int64_t *update_before_each(const struct pd_plan *plan, const struct pd_profile *profile)
{
	int64_t *before = pd_calloc((size_t)profile->layer_count + 1, sizeof(*before));

	for (int s = 0; s < plan->stage_count; s++)
		for (int l = plan->stages[s].first_layer, i = 0; i < plan->stages[s].layer_count; i++, l++)
			before[l + 1] = before[l] + pd_profile_shared_ns(plan->profile,
				profile->layers[l].update_ns, plan->stages[s].replicas);
	return before;
}

static int by_tensor(const void *a, const void *b)
{
	const struct pd_net_tensor *x = a, *y = b;

	return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* Lists the tensors of some links, ascending, and places their gradients. */
static struct pd_net_tensor *tensors_of(const struct pd_plan *plan,
					const struct pd_wiring *wiring, const int *links,
					int link_count, int *count_p, size_t *gradient_bytes_p)
{
	struct pd_net_tensor *list;
	size_t gradient = 0;
	int n = 0;

	for (int i = 0; i < link_count; i++)
		n += wiring->links[links[i]].tensor_count;
	list = pd_calloc((size_t)n, sizeof(*list));
	n = 0;
	for (int i = 0; i < link_count; i++) {
		const struct pd_link *link = &wiring->links[links[i]];

		for (int t = 0; t < link->tensor_count; t++)
			list[n++].tensor = link->tensors[t];
	}
	qsort(list, (size_t)n, sizeof(*list), by_tensor);
	for (int i = 0; i < n; i++) {
		list[i].bytes = (size_t)plan->profile->layers[list[i].tensor].activation_bytes;
		list[i].gradient_offset = gradient;
		gradient += pd_align(list[i].bytes);
	}
	*count_p = n;
	*gradient_bytes_p = gradient;
	return list;
}

/*
 * An inbox holds the tensors that arrive; a slot holds what each layer keeps, also from one part of
 * backward to the other.  A tensor that leaves lies where its layer keeps it, one that is passed on
 * where it arrived.
 */
static void lay_out_slot(const struct pd_plan *plan, const struct pd_stage *stage,
			 struct pd_net_sizes *sizes)
{
	int out = 0, in = 0;

	for (int i = 0; i < sizes->in_count; i++) {
		sizes->in[i].inbox = true;
		sizes->in[i].offset = sizes->inbox_bytes;
		sizes->inbox_bytes += pd_align(sizes->in[i].bytes);
	}
	for (; out < sizes->out_count && sizes->out[out].tensor < stage->first_layer; out++) {
		while (sizes->in[in].tensor != sizes->out[out].tensor)
			in++;
		sizes->out[out].inbox = true;
		sizes->out[out].offset = sizes->in[in].offset;
	}
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		const struct pd_profile_layer *layer = &plan->profile->layers[l];
		size_t bytes = (size_t)layer->stash_bytes;

		if (out < sizes->out_count && sizes->out[out].tensor == l) {
			if (bytes < sizes->out[out].bytes)
				bytes = sizes->out[out].bytes;
			sizes->out[out++].offset = sizes->slot_bytes;
		}
		sizes->slot_bytes += pd_align(bytes);
		if (pd_plan_splits(plan))
			sizes->slot_bytes += pd_align((size_t)pd_memory_split(plan->profile, l));
	}
}

static void size_stage(const struct pd_plan *plan, const struct pd_wiring *wiring, int s,
		       struct pd_net_sizes *sizes)
{
	const struct pd_stage *stage = &plan->stages[s];

	sizes->in = tensors_of(plan, wiring, wiring->in[s], wiring->in_count[s],
			       &sizes->in_count, &sizes->gradient_out_bytes);
	sizes->out = tensors_of(plan, wiring, wiring->out[s], wiring->out_count[s],
				&sizes->out_count, &sizes->gradient_in_bytes);
	lay_out_slot(plan, stage, sizes);
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		const struct pd_profile_layer *layer = &plan->profile->layers[l];

		sizes->full_bytes += (size_t)pd_plan_layer_bytes(plan, l);
		if (sizes->scratch_bytes < (size_t)layer->workspace_bytes)
			sizes->scratch_bytes = (size_t)layer->workspace_bytes;
	}
	sizes->weights_bytes = (size_t)pd_memory_weights(plan->profile,
							 (int64_t)sizes->full_bytes);
}

/* The parameters of layers lie one after the other, in the layers' order. */
static void find_tied_layers(const struct pd_plan *plan, int s, struct pd_sim_net *net)
{
	const struct pd_stage *stage = &plan->stages[s];
	size_t offset = 0;

	net->tied_layers = pd_calloc((size_t)stage->layer_count, sizeof(*net->tied_layers));
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count &&
	     pd_plan_has_tied_weights(plan); l++) {
		if (plan->profile->layers[l].shared)
			net->tied_layers[net->tied_layer_count++] = (struct pd_tied_layer){
				.layer = l, .owner = plan->profile->layers[l].owner, .offset = offset,
				.bytes = pd_align((size_t)pd_memory_shared(plan->profile, l)) };
		offset += pd_align((size_t)pd_memory_copy(plan->profile, l));
	}
}

/* Returns by how much 1 + 1/2 + ... + 1/n exceeds 1. */
static double harmonic(int64_t n)
{
	double sum = 0;

	for (int64_t i = 2; i <= n; i++)
		sum += 1 / (double)i;
	return sum;
}

/* The profile knows the factor of `workers` replicas; fewer cost less.  It is never below 1. */
static double factor_of(double factor, int64_t replicas, int64_t workers)
{
	double part = (double)(replicas < workers ? replicas : workers) - 1;

	return fmax(1, 1 + (factor - 1) * part / (double)(workers - 1));
}

/* Returns how long a rank computes for one update of its stages. */
static double busy_ns(const struct pd_sim *sim, const struct pd_plan *plan, int rank)
{
	const struct pd_sim_kind *kind = sim->devices[rank].kind;
	double ns = 0;

	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];
		int first = stage->first_layer, end = first + stage->layer_count;
		double passes = fmax(1, (double)plan->microbatches / stage->replicas);

		for (int i = 0; i < stage->replicas; i++)
			if (stage->ranks[i] == rank)
				ns += passes * (double)(kind->forward_ns[end] - kind->forward_ns[first] +
							kind->backward_ns[end] - kind->backward_ns[first]);
	}
	return ns;
}

/*
 * Delays are taken to have an exponential distribution: the slowest of n is late by 1 + 1/2 + ... +
 * 1/n times their mean.  They come at any time, independent of each other; so their spread grows as
 * the square root of the time in which they can come.
 */
static int64_t slowest_of(const struct pd_sim *sim, const struct pd_plan *plan, int rank, int replicas)
{
	const struct pd_sim_kind *kind = sim->devices[rank].kind;
	const struct pd_profile *profile = kind->profile;
	double whole_ns = (double)(kind->forward_ns[profile->layer_count] +
				   kind->backward_ns[profile->layer_count]);

	if (whole_ns <= 0)
		return 0;
	return llround((double)profile->in_step.slowest_ns * harmonic(replicas) /
		       harmonic(profile->workers) * sqrt(busy_ns(sim, plan, rank) / whole_ns));
}

/* Sets what a replica of a stage costs the others; each kind of device has a profile that knows it. */
static void set_replica(struct pd_sim *sim, const struct pd_plan *plan, const struct pd_stage *stage, int rank)
{
	const struct pd_profile *profile = sim->devices[rank].kind->profile;
	const struct pd_in_step *in_step = &profile->in_step;
	int64_t workers = profile->workers;
	struct pd_sim_replicas replicas = { .first = stage->ranks[0] };

	if (stage->replicas > 1 && workers > 1) {
		replicas.forward = factor_of(in_step->forward, stage->replicas, workers);
		replicas.backward = factor_of(in_step->backward, stage->replicas, workers);
		replicas.update = factor_of(in_step->update, stage->replicas, workers);
	}
	if (replicas.update > 0 && in_step->slowest_ns > 0)
		replicas.slowest_ns = slowest_of(sim, plan, rank, stage->replicas);
	sim->devices[rank].replicas = replicas;
}

static void set_replicas(struct pd_sim *sim, const struct pd_plan *plan, int s)
{
	const struct pd_stage *stage = &plan->stages[s];

	for (int i = 0; i < stage->replicas; i++) {
		sim->devices[stage->ranks[i]].direct_bytes_per_s = pd_plan_direct_bytes_per_s(plan, s);
		set_replica(sim, plan, stage, stage->ranks[i]);
	}
}

static void make_devices(struct pd_sim *sim, const struct pd_plan *plan)
{
	sim->devices = pd_calloc((size_t)sim->rank_count, sizeof(*sim->devices));
	sim->nets = pd_calloc((size_t)plan->stage_count, sizeof(*sim->nets));
	for (int r = 0; r < sim->rank_count; r++)
		sim->devices[r] = (struct pd_sim_device){
			.base.ops = &pd_device_sim, .sim = sim, .rank = r,
			.kind = &sim->kinds[pd_topology_kind_of(&plan->topology, r)],
			.next_address = FIRST_ADDRESS };
	for (int s = 0; s < plan->stage_count; s++) {
		sim->nets[s].base.device = &sim->devices[plan->stages[s].ranks[0]].base;
		sim->nets[s].sizes = &sim->sizes[s];
		set_replicas(sim, plan, s);
		find_tied_layers(plan, s, &sim->nets[s]);
	}
}

static void make_kinds(struct pd_sim *sim, const struct pd_plan *plan)
{
	sim->kind_count = pd_plan_kinds(plan);
	sim->kinds = pd_calloc((size_t)sim->kind_count, sizeof(*sim->kinds));
	for (int k = 0; k < sim->kind_count; k++) {
		const struct pd_profile *profile = pd_profile_of_kind(plan->profile, k);

		sim->kinds[k] = (struct pd_sim_kind){
			.profile = profile, .forward_ns = before_each(profile, forward_of),
			.backward_ns = before_each(profile, backward_of),
			.input_ns = before_each(profile, pd_profile_input_ns),
			.weight_ns = before_each(profile, pd_profile_weight_ns),
			.update_ns = update_before_each(plan, profile),
			.update_apart_ns = before_each(profile, pd_profile_apart_ns),
		};
		add_again(&sim->kinds[k], plan);
	}
}

static void free_kinds(struct pd_sim *sim)
{
	for (int k = 0; k < sim->kind_count; k++) {
		free(sim->kinds[k].forward_ns);
		free(sim->kinds[k].again_ns);
		free(sim->kinds[k].backward_ns);
		free(sim->kinds[k].input_ns);
		free(sim->kinds[k].weight_ns);
		free(sim->kinds[k].update_ns);
		free(sim->kinds[k].update_apart_ns);
	}
	free(sim->kinds);
}

struct pd_sim *pd_sim_new(const struct pd_plan *plan, const struct pd_wiring *wiring)
{
	struct pd_sim *sim = pd_zalloc(sizeof(*sim));

	sim->rank_count = plan->rank_count;
	sim->ready = pd_calloc((size_t)sim->rank_count, sizeof(*sim->ready));
	sim->is_ready = pd_calloc((size_t)sim->rank_count, sizeof(*sim->is_ready));
	sim->awaited = pd_calloc((size_t)sim->rank_count, sizeof(*sim->awaited));
	make_kinds(sim, plan);
	sim->operation_ns = plan->profile->operation_ns;
	sim->launch_ns = plan->profile->launch_ns;
	sim->in_turns = fmax(1, plan->profile->in_turns);
	sim->copied_bytes_per_s = plan->profile->link_bandwidth_bytes_per_s;
	sim->direct = (struct pd_members){ .topology = &plan->topology, .dtype = PD_F32 };
	sim->stage_count = plan->stage_count;
	sim->sizes = pd_calloc((size_t)sim->stage_count, sizeof(*sim->sizes));
	for (int s = 0; s < plan->stage_count; s++)
		size_stage(plan, wiring, s, &sim->sizes[s]);
	make_devices(sim, plan);
	if (plan->profile->beside_transfers > 1)
		pd_sim_slow_beside_transfers(sim, plan->profile->beside_transfers);
	return sim;
}

void pd_sim_free(struct pd_sim *sim)
{
	if (!sim)
		return;
	for (int s = 0; s < sim->stage_count; s++) {
		free(sim->sizes[s].in);
		free(sim->sizes[s].out);
		free(sim->nets[s].tied_layers);
	}
	for (int r = 0; r < sim->rank_count; r++)
		free(sim->devices[r].blocks);
	pd_sim_free_processors(sim);
	pd_pool_release(&sim->waiters);
	pd_pool_release(&sim->tasks);
	pd_arena_release(&sim->streams);
	free(sim->heap);
	free(sim->today);
	free(sim->ready);
	free(sim->is_ready);
	free(sim->awaited);
	free(sim->devices);
	free(sim->nets);
	free(sim->sizes);
	free_kinds(sim);
	free(sim);
}

struct pd_device *pd_sim_device(struct pd_sim *sim, int rank)
{
	return &sim->devices[rank].base;
}

struct pd_net *pd_sim_net(struct pd_sim *sim, int stage)
{
	return &sim->nets[stage].base;
}
