/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/price.h"

#include "base/mem.h"
#include "memory/again.h"
#include "memory/arenas.h"
#include "memory/shared_gradients.h"
#include "plan/sparse.h"
#include "schedule/buffer_counts.h"

#include <stdlib.h>

/*
 * Returns the reducer's time on the slowest link between the replicas, as pd-plan predicts it.  A
 * replay knows which way the pieces go, and that links are shared.
 */
static int64_t allreduce_ns(const struct pd_plan *plan, int s, int64_t bytes)
{
	return pd_sum_alone_ns(&(struct pd_sum){ plan->reducer, pd_plan_members(plan, s), bytes });
}

static int64_t norms_ns(const struct pd_plan *plan, int s, int64_t full_bytes)
{
	return pd_sum_alone_ns(&(struct pd_sum){ plan->reducer, pd_plan_norm_members(plan, s),
						 pd_plan_norm_bytes(plan, full_bytes) });
}

/* Adds what is computed again within the backward of layers to that of their buckets. */
static void price_again(struct pd_stage_price *price, const struct pd_plan *plan,
			const struct pd_profile *profile, int s, const struct pd_bucket *buckets, int count)
{
	const struct pd_stage *stage = &plan->stages[s];
	struct pd_segments segments;
	struct pd_segment_layer *layers;

	if (!pd_plan_reruns_some(plan, s))
		return;
	layers = pd_plan_segments(plan, profile, s, false, &segments);
	for (int i = 0; i < stage->layer_count; i++)
		for (int b = 0; b < count && layers[i].point >= 0; b++) {
			int at = stage->first_layer + layers[i].point - buckets[b].first_layer;

			if (layers[i].point != segments.first_point && at >= 0 &&
			    at < buckets[b].layer_count)
				price->buckets[b].backward_ns =
					pd_plus(price->buckets[b].backward_ns,
						profile->layers[stage->first_layer + i].forward_ns);
		}
	free(layers);
}

static void price_buckets(struct pd_stage_price *price, const struct pd_plan *plan,
			  const struct pd_profile *profile, int s)
{
	int count = pd_plan_bucket_count(plan, s);
	struct pd_bucket *buckets;

	if (count == 1)
		return;
	buckets = pd_calloc((size_t)count, sizeof(*buckets));
	pd_plan_buckets(plan, s, buckets);
	price->buckets = pd_calloc((size_t)count, sizeof(*price->buckets));
	for (int i = 0; i < count; i++) {
		struct pd_bucket_price *bucket = &price->buckets[i];
		int first = buckets[i].first_layer;

		bucket->allreduce_ns = allreduce_ns(plan, s, pd_plan_sum_bytes(
				plan, s, buckets[i].begin_bytes, buckets[i].bytes,
				price->full_bytes));
		for (int l = first; l < first + buckets[i].layer_count; l++) {
			const struct pd_profile_layer *layer = &profile->layers[l];

			bucket->backward_ns = pd_plus(bucket->backward_ns, layer->backward_ns);
			bucket->backward_weight_ns = pd_plus(bucket->backward_weight_ns,
							     pd_profile_weight_ns(layer));
		}
	}
	price_again(price, plan, profile, s, buckets, count);
	free(buckets);
}

static void price_time(struct pd_stage_price *price, const struct pd_plan *plan,
		       const struct pd_profile *profile, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	struct pd_again again;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];

		price->forward_ns = pd_plus(price->forward_ns, layer->forward_ns);
		price->backward_ns = pd_plus(price->backward_ns, layer->backward_ns);
		price->backward_input_ns = pd_plus(price->backward_input_ns,
						pd_profile_input_ns(layer));
		price->backward_weight_ns = pd_plus(price->backward_weight_ns,
						 pd_profile_weight_ns(layer));
		price->update_ns = pd_plus(price->update_ns, pd_profile_shared_ns(
			plan->profile, layer->update_ns, plan->stages[s].replicas));
		price->update_apart_ns = pd_plus(price->update_apart_ns,
						 pd_profile_apart_ns(layer));
	}
	again = pd_plan_again_on(plan, profile, s);
	price->again_ns = again.before_ns;
	price->backward_ns = pd_plus(price->backward_ns, again.within_ns);
}

/*
 * Adds up a stage with nothing in flight: one version, and the buffers for gradients.  In another program, these
 * without what counts from when it comes for the next microbatch, or is sent while that is computed.
 */
static int64_t fixed_bytes(const struct pd_stage_price *price, const struct pd_plan *plan,
			   const struct pd_profile *profile, int s, const struct pd_stage_memory *sizes)
{
	bool own = profile->memory.model == PD_MEMORY_OWN;
	struct pd_arena_counts counts = pd_arena_counts_of(plan, s, (struct pd_arena_counts){
		.versions = 1, .arriving = PD_PASSAGES, .leaving = price->leaving, .moments = 1,
	});
	struct pd_arena_need needs[PD_ARENAS];
	struct pd_memory memory = { .total_bytes = 0 };

	if (!own)
		counts = pd_arena_counts_elsewhere(&counts);
	pd_arenas_need(&counts, sizes, needs);
	pd_arenas_add(needs, &memory);
	pd_memory_margin(profile, &memory);
	return own ? memory.total_bytes : memory.total_bytes - price->arriving_bytes -
					  (plan->stages[s].recompute ? price->leaving_bytes : 0);
}

static int64_t with_margin(const struct pd_profile *profile, int64_t bytes)
{
	return profile->memory.margin > 0 ? (int64_t)((double)bytes * (1 + profile->memory.margin)) : bytes;
}

static void price_memory(struct pd_stage_price *price, const struct pd_plan *plan,
			 const struct pd_profile *profile, const struct pd_wiring *wiring, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	bool own = profile->memory.model == PD_MEMORY_OWN;
	struct pd_stage_memory sizes;

	price->arriving_bytes = pd_wiring_in_bytes(wiring, s);
	price->leaving_bytes = pd_wiring_out_bytes(wiring, s);
	pd_memory_of_stage(plan, profile, wiring, s, &sizes);
	for (int l = stage->first_layer; own && stage->recompute && l < stage->first_layer + stage->layer_count; l++)
		price->carried_bytes += pd_memory_carried(profile, l);
	price->kept_bytes = with_margin(profile, sizes.kept_bytes);
	price->slot_bytes = with_margin(profile, pd_plus(sizes.slot_bytes, sizes.kept_bytes)) - price->kept_bytes;
	price->loaded_bytes = wiring->loads[s] ? with_margin(profile, sizes.inbox_bytes - price->arriving_bytes -
							     price->carried_bytes) : 0;
	price->weights_bytes = own ? sizes.weights_bytes : 0;
	price->full_bytes = own ? sizes.full_bytes : pd_plan_stage_parameters(plan, s);
	price->fixed_bytes = fixed_bytes(price, plan, profile, s, &sizes);
}

/* Counts the vectors that ranks agree by at a rank's first stage. */
static int64_t vector_bytes(const struct pd_plan *plan, int s)
{
	int64_t vector = (int64_t)pd_align((size_t)pd_schedule_norm_bytes(plan));

	return pd_plan_stage_of_rank(plan, plan->stages[s].ranks[0], NULL) == s
		? (1 + pd_schedule_norm_rounds(plan)) * vector : 0;
}

/* Adds a second sum of gradients, the scales of a version and of sums, and the vectors. */
static int64_t norm_bytes(const struct pd_plan *plan, int s, int64_t full_bytes)
{
	int64_t sums = pd_plan_open_groups(plan, s);

	return pd_plus(pd_times(sums - 1, full_bytes) + (1 + sums) * PD_ALIGN,
		       vector_bytes(plan, s));
}

static void price_stage(struct pd_prices *prices, const struct pd_schedule *schedule, int kind, int s)
{
	const struct pd_plan *plan = prices->plan;
	const struct pd_profile *profile = pd_profile_of_kind(plan->profile, kind);
	struct pd_stage_price *price = &prices->stages[kind * plan->stage_count + s];

	price->leaving = schedule ? pd_schedule_leaving(schedule, s) : PD_PASSAGES;
	price_time(price, plan, profile, s);
	price_memory(price, plan, profile, prices->wiring, s);
	price->allreduce_ns = allreduce_ns(plan, s, pd_plan_sum_bytes(
			plan, s, 0, price->full_bytes, price->full_bytes));
	if (pd_plan_is_sparse(plan, s))
		price->norms_ns = norms_ns(plan, s, price->full_bytes);
	price_buckets(price, plan, profile, s);
	if (!pd_plan_agrees(plan))
		return;
	price->norm_bytes = norm_bytes(plan, s, price->full_bytes);
	price->fixed_bytes = pd_plus(price->fixed_bytes, vector_bytes(plan, s));
}

void pd_prices_init(struct pd_prices *prices, const struct pd_plan *plan,
		    const struct pd_wiring *wiring)
{
	struct pd_error ignored;
	struct pd_schedule *schedule = pd_schedule_new(plan, &ignored);

	*prices = (struct pd_prices){ .plan = plan, .wiring = wiring };
	prices->stages = pd_calloc((size_t)plan->stage_count * (size_t)pd_plan_kinds(plan),
				   sizeof(*prices->stages));
	for (int kind = 0; kind < pd_plan_kinds(plan); kind++)
		for (int s = 0; s < plan->stage_count; s++)
			price_stage(prices, schedule, kind, s);
	pd_schedule_free(schedule);
}

void pd_prices_release(struct pd_prices *prices)
{
	for (int i = 0; prices->stages && i < prices->plan->stage_count * pd_plan_kinds(prices->plan); i++)
		free(prices->stages[i].buckets);
	free(prices->stages);
	prices->stages = NULL;
}

/* Returns the time to receive the gradients of copies of the rank's shared parameters, one by one. */
static int64_t copies_ns(const struct pd_plan *plan, int rank)
{
	struct pd_copy_transfer *list;
	size_t count = pd_plan_copy_transfers(plan, &list);
	int64_t total = 0;

	for (size_t i = 0; i < count; i++)
		if (list[i].to == rank)
			total = pd_plus(total, pd_topology_transfer_ns(&plan->topology, list[i].from, rank,
								       list[i].bytes));
	free(list);
	return total;
}

/*
 * Returns the time of an agree.  A round takes as long as the slower of what the rank sends and
 * what it receives (lib/engine/worker/global_norm.c).  Profiles do not have the time of the sums of
 * squares.
 */
static int64_t agree_ns(const struct pd_plan *plan, int rank)
{
	int64_t bytes = pd_schedule_norm_bytes(plan), total = 0;

	for (int k = 0; k < pd_schedule_norm_rounds(plan); k++) {
		int64_t far = INT64_C(1) << k, n = plan->rank_count;
		int64_t out = pd_topology_transfer_ns(&plan->topology, rank, (rank + far) % n,
						      bytes);
		int64_t in = pd_topology_transfer_ns(&plan->topology, (rank - far + n) % n, rank,
						     bytes);

		total = pd_plus(total, out > in ? out : in);
	}
	return pd_plus(total, copies_ns(plan, rank));
}

/*
 * Returns the duration of an operation by itself; for a transfer, the time without others on its
 * way.
 */
static int64_t duration_ns(const struct pd_prices *prices, const struct pd_op *op)
{
	const struct pd_stage_price *price = pd_price_on(prices, op->stage, op->rank);
	const struct pd_bucket_price *bucket = op->bucket > 0 ? &price->buckets[op->bucket - 1]
							      : NULL;

	switch (op->kind) {
	case PD_OP_forward:
		return price->forward_ns;
	case PD_OP_recompute:
		return price->again_ns;
	case PD_OP_backward:
		return bucket ? bucket->backward_ns : price->backward_ns;
	case PD_OP_backward_input:
		return price->backward_input_ns;
	case PD_OP_backward_weight:
		return bucket ? bucket->backward_weight_ns : price->backward_weight_ns;
	case PD_OP_allreduce:
		return bucket ? bucket->allreduce_ns : price->allreduce_ns;
	case PD_OP_norms:
		return price->norms_ns;
	case PD_OP_agree:
		return agree_ns(prices->plan, op->rank);
	case PD_OP_step:
		return price->update_ns;
	case PD_OP_load:                /* a profile does not measure it */
		return 0;
	default:
		return op->rank == op->peer ? 0
			: pd_topology_transfer_ns(&prices->plan->topology, op->rank, op->peer,
						  prices->wiring->links[op->link].bytes);
	}
}

void pd_account_init(struct pd_account *account, const struct pd_prices *prices,
		     int64_t microbatches)
{
	size_t stages = (size_t)prices->plan->stage_count;

	*account = (struct pd_account){ .prices = prices, .microbatches = microbatches,
					.stage_count = prices->plan->stage_count };
	account->reads = pd_calloc(stages, sizeof(*account->reads));
	account->newest = pd_calloc(stages, sizeof(*account->newest));
}

void pd_account_release(struct pd_account *account)
{
	for (int s = 0; s < account->stage_count; s++)
		free(account->reads[s]);
	free(account->reads);
	free(account->newest);
}

/* A backward in parts reads its version once, to the end of the last part. */
static bool reads(const struct pd_op *op)
{
	return op->version >= 0 && op->kind != PD_OP_step && !op->more;
}

void pd_account_expect(struct pd_account *account, const struct pd_op *op)
{
	if (!account->reads[op->stage]) {       /* the rank has this stage */
		account->reads[op->stage] = pd_calloc((size_t)account->microbatches + 1,
						      sizeof(int32_t));
		account->held_bytes += pd_price_on(account->prices, op->stage, op->rank)->fixed_bytes;
	}
	if (reads(op))
		account->reads[op->stage][op->version]++;
}

int64_t pd_account_duration_ns(const struct pd_account *account, const struct pd_op *op)
{
	if (op->kind == PD_OP_step && account->reads[op->stage][account->newest[op->stage]] > 0)
		return pd_price_on(account->prices, op->stage, op->rank)->update_apart_ns;
	return duration_ns(account->prices, op);
}

int64_t pd_account_enter(struct pd_account *account, const struct pd_op *op)
{
	const struct pd_stage_price *price = pd_price_on(account->prices, op->stage, op->rank);
	bool recompute = account->prices->plan->stages[op->stage].recompute;
	int32_t *to_come = account->reads[op->stage];
	int64_t *newest = &account->newest[op->stage], delta = 0;

	if (reads(op) && --to_come[op->version] == 0 && op->version != *newest)
		delta -= price->weights_bytes;
	switch (op->kind) {
	case PD_OP_load:
		delta += price->loaded_bytes;
		break;
	case PD_OP_recv_activation:
		delta += account->prices->wiring->links[op->link].bytes;
		break;
	case PD_OP_forward:
		delta += recompute ? pd_plus(pd_plus(price->leaving_bytes, price->carried_bytes), price->kept_bytes)
				   : price->slot_bytes;
		break;
	case PD_OP_send_activation:
		delta -= recompute ? account->prices->wiring->links[op->link].bytes : 0;
		break;
	case PD_OP_recompute:
		delta += recompute ? price->slot_bytes : 0;
		break;
	case PD_OP_backward:
	case PD_OP_backward_weight:
		if (op->more)
			break;
		delta -= pd_plus(pd_plus(pd_plus(price->slot_bytes, price->kept_bytes), price->carried_bytes),
				 pd_plus(price->loaded_bytes, price->arriving_bytes));
		break;
	case PD_OP_step:
		delta += to_come[*newest] > 0 ? price->weights_bytes : 0;
		if (op->version >= 0)   /* a document may leave the version out */
			*newest = op->version;
		break;
	default:
		break;
	}
	account->held_bytes += delta;
	return delta;
}
