/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a rank's list in one walk: groups and their updates, completeness, memory. */
#include "schedule/check_rank.h"

#include "base/mem.h"
#include "plan/sparse.h"

#include <inttypes.h>
#include <stdlib.h>

static int64_t below(const struct stage_walk *part, int64_t b)
{
	return b > part->replica ? (b - part->replica - 1) / part->stage->replicas + 1 : 0;
}

/* Returns this replica's microbatches in update group u. */
static int64_t group_size(const struct rank_walk *w, const struct stage_walk *part, int64_t u)
{
	int64_t begin = u * part->group, end = begin + part->group;

	if (end > w->lists->microbatches)
		end = w->lists->microbatches;
	return begin < end ? below(part, end) - below(part, begin) : 0;
}

/*
 * Returns the backwards of a group as far as a bucket, from 1, is concerned: one in parts counts
 * when it has had that bucket's part.
 */
static int64_t backwards_of(const struct stage_walk *part, int64_t u, int bucket)
{
	return part->backwards[u % 2] + (part->had > 0 && part->had >= bucket &&
					 part->in_parts / part->group == u);
}

/* Returns the first microbatch of a group whose gradients are not complete. */
static int64_t backward_missing(const struct stage_walk *part, int64_t u)
{
	int64_t i = below(part, u * part->group);

	while (i + 1 < part->count && (part->did[PD_OP_backward * part->count + i] ||
				       part->did[PD_OP_backward_weight * part->count + i]))
		i++;
	return i * part->stage->replicas + part->replica;
}

/* Checks the sum of a bucket, or all of a group, whose turn it is. */
static bool check_group(struct rank_walk *w, const struct stage_walk *part, const struct pd_op *op,
			bool sums)
{
	int64_t u = part->updates, size = group_size(w, part, u);
	int bucket = sums || op->bucket == 0 ? part->buckets : op->bucket;

	if (op->microbatch != u * part->group)
		return WRONG(w, "expected the group that begins with microbatch %" PRId64 " next",
			     u * part->group);
	if (backwards_of(part, u, bucket) < size)
		return WRONG(w, "%" PRId64 " of the %" PRId64 " backwards of its group stand before it, "
			     "not that of microbatch %" PRId64 "; expected all",
			     backwards_of(part, u, bucket), size, backward_missing(part, u));
	return !sums || part->stage->replicas == 1 || part->sums == (u + 1) * part->buckets ||
	       WRONG(w, "its allreduce does not stand before it");
}

/* Checks an agree, which concerns all stages of the rank. */
static bool check_agree(struct rank_walk *w, const struct pd_op *op)
{
	if (!pd_plan_agrees(w->lists->plan))
		return WRONG(w, "the plan does not have its ranks agree on updates");
	if (op->stage != w->parts[0].s)
		return WRONG(w, "expected it at stage %d, the first of the rank", w->parts[0].s);
	for (int p = 0; p < w->part_count; p++)
		if (!check_group(w, &w->parts[p], op, true))
			return false;
	if (w->agreed > w->parts[0].updates)
		return WRONG(w, "a second time; expected it once");
	w->agreed++;
	return true;
}

/* Checks which bucket an all-reduce is of: they come in turn, so that all replicas agree. */
static bool check_sum(struct rank_walk *w, struct stage_walk *part, const struct pd_op *op)
{
	int64_t done = part->sums - part->updates * part->buckets;

	if (done == part->buckets)
		return WRONG(w, "a second time; expected it once");
	if (part->buckets > 1 && op->bucket != done + 1)
		return WRONG(w, "it is of bucket %d; expected bucket %" PRId64 " of %d next",
			     op->bucket, done + 1, part->buckets);
	part->sums++;
	return true;
}

/* Checks the sum of norms of a group, which makes the choice for the next. */
static bool check_norms(struct rank_walk *w, struct stage_walk *part)
{
	if (!pd_plan_is_sparse(w->lists->plan, part->s))
		return WRONG(w, "stage %d does not choose among chunks in the plan", part->s);
	if (part->norms > part->updates)
		return WRONG(w, "a second time; expected it once");
	part->norms++;
	return true;
}

/* Checks an all-reduce, a sum of norms or a step: groups come in turn, after all their backwards. */
static bool check_update(struct rank_walk *w, struct stage_walk *part, const struct pd_op *op)
{
	int64_t u = part->updates, version = (u + 1) * part->group;

	if (version > w->lists->microbatches)
		version = w->lists->microbatches;
	if (!check_group(w, part, op, op->kind != PD_OP_allreduce))
		return false;
	if (op->kind == PD_OP_norms)
		return check_norms(w, part);
	if (op->kind == PD_OP_allreduce) {
		if (part->stage->replicas == 1)
			return WRONG(w, "stage %d has one replica, and nothing to sum", part->s);
		return check_sum(w, part, op);
	}
	if (pd_plan_agrees(w->lists->plan) && w->agreed <= u)
		return WRONG(w, "its agree does not stand before it");
	if (pd_plan_is_sparse(w->lists->plan, part->s) && part->norms <= u)
		return WRONG(w, "its norms do not stand before it");
	if (op->version < 0)
		return WRONG(w, "expected a weight_version, %" PRId64, version);
	if (op->version != version)
		return WRONG(w, "writes version %" PRId64 "; expected %" PRId64 ", the micro"
			     "batches whose gradients are in it", op->version, version);
	part->newest = version;
	part->updates++;
	part->backwards[u % 2] = 0;
	return true;
}

static bool computes(enum pd_op_kind kind)
{
	return kind != PD_OP_load && !pd_op_of_all(kind) && !pd_op_transfers(kind);
}

/*
 * Checks that the rank computes nothing between the parts of a backward: in between, scratch has
 * gradients of activations.
 */
static bool check_open(struct rank_walk *w, const struct pd_op *op)
{
	for (int p = 0; p < w->part_count && computes(op->kind); p++) {
		const struct stage_walk *part = &w->parts[p];

		if (part->had > 0 && (op->bucket != part->had + 1 || op->stage != part->s ||
					op->microbatch != part->in_parts))
			return WRONG(w, "the backward of microbatch %" PRId64 " at stage %d has had "
				     "%d of its %d parts; expected the next one", part->in_parts,
				     part->s, part->had, part->buckets);
	}
	return true;
}

/* Checks that a forward that is beside the next operation is so beside a backward that does not need it. */
static bool check_pair(struct rank_walk *w, const struct pd_op *op)
{
	const struct pd_op *forward = &w->before;

	if (op->beside && op->kind != PD_OP_forward)
		return WRONG(w, "it is beside the next operation; expected this of a forward alone");
	if (!forward->beside)
		return true;
	return ((op->kind == PD_OP_backward || op->kind == PD_OP_backward_input) &&
		(op->stage != forward->stage || op->microbatch != forward->microbatch)) ||
	       WRONG(w, "the forward of microbatch %" PRId64 " at stage %d before it is beside what comes next; "
		     "expected a backward that does not wait for it", forward->microbatch, forward->stage);
}

static bool check_op(struct rank_walk *w, const struct pd_op *op)
{
	struct stage_walk *part = w->parts;
	int64_t i;

	if (!check_open(w, op) || !check_pair(w, op))
		return false;
	w->before = *op;
	/* An agree belongs to the rank, whatever stage it names. */
	while (part->s != op->stage && op->kind != PD_OP_agree)
		part++;
	if (op->kind == PD_OP_agree) {
		if (!check_agree(w, op))
			return false;
	} else if (pd_op_of_all(op->kind) || op->kind == PD_OP_step) {
		if (!check_update(w, part, op))
			return false;
	} else {
		if (op->microbatch % part->stage->replicas != part->replica)
			return WRONG(w, "the microbatch belongs to rank %d", part->stage->ranks[
				     op->microbatch % part->stage->replicas]);
		i = op->microbatch / part->stage->replicas;
		if (!pd_check_microbatch(w, part, op, i))
			return false;
	}
	pd_account_enter(&w->account, op);
	if (w->account.held_bytes > w->limit_bytes)
		return WRONG(w, "the rank holds %" PRId64 " bytes with it; expected at most %"
			     PRId64 ", the memory of %s", w->account.held_bytes > INT64_MAX
			     ? INT64_MAX : (int64_t)w->account.held_bytes, w->limit_bytes,
			     w->device_limit ? "a device"
			     : w->fault->schedule ? "the rank in the plan, which this version would"
						    " not predict: plan anew"
						  : "the rank in the plan");
	return true;
}

/*
 * Checks that the list is complete.  That is so if all its updates are there: an update needs the
 * backwards of its group, a backward its forward and gradients, a forward its activations; and
 * whatever arrives must be sent.
 */
static bool check_end(struct rank_walk *w, const struct stage_walk *part)
{
	int64_t last = w->lists->microbatches, updates = (last + part->group - 1) / part->group;

	return part->updates == updates ||
	       WRONG(w, "the list ends without the step of the group that begins with microbatch %"
		     PRId64 " at stage %d", part->updates * part->group, part->s);
}

static void part_init(struct stage_walk *part, const struct rank_walk *w,
		      const struct pd_role *role)
{
	const struct pd_plan *plan = w->lists->plan;

	*part = (struct stage_walk){
		.stage = &plan->stages[role->stage], .s = role->stage, .replica = role->replica,
		.ins = w->lists->wiring->in_count[role->stage],
		.outs = w->lists->wiring->out_count[role->stage],
		.group = check_group_of(plan, role->stage),
		.buckets = pd_plan_bucket_count(plan, role->stage),
		.open = pd_plan_open_groups(plan, role->stage),
	};
	if (pd_plan_carries(plan, role->stage))
		part->lanes = pd_profile_lane_round(plan->profile) / part->stage->replicas;
	part->count = below(part, w->lists->microbatches);
	part->did = pd_calloc((size_t)part->count, (size_t)check_activities(part));
	part->version = pd_calloc((size_t)part->count, sizeof(*part->version));
	part->waiting = pd_calloc((size_t)(part->ins + part->outs), sizeof(*part->waiting));
}

/*
 * Sets the memory limit of the rank: what the plan predicts, or, without a prediction, what
 * lib/memory/memory.h says for 1F1B with stashing.
 */
static void set_limit(struct rank_walk *w)
{
	const struct pd_plan *plan = w->lists->plan;
	int64_t device_bytes = pd_topology_memory_of(&plan->topology, w->rank), bytes = 0;

	w->limit_bytes = INT64_MAX;
	for (int p = 0; p < w->part_count; p++) {
		const struct stage_walk *part = &w->parts[p];
		const struct pd_stage_price *price = pd_price_on(w->prices, part->s, w->rank);
		int startup = w->fault->startup[part->s];
		__int128 priced = (__int128)price->fixed_bytes + (__int128)startup *
			(price->weights_bytes + price->slot_bytes) + price->slot_bytes +
			((__int128)startup + 2) *
			(price->loaded_bytes + price->arriving_bytes);
		int64_t stage_bytes = part->stage->memory_bytes;

		if (part->stage->recompute)
			priced += ((__int128)startup + 1) *
				  (price->leaving_bytes + price->carried_bytes + price->kept_bytes);
		if (stage_bytes > 0)    /* the prediction is for updates without agree */
			stage_bytes = pd_plus(stage_bytes, price->norm_bytes);
		if (stage_bytes == 0)
			stage_bytes = pd_schedule_has(plan->schedule, PD_FACT_LEADS) &&
				pd_weights_stash_alone(plan->weights) && plan->microbatches == 1 &&
				priced < INT64_MAX ? (int64_t)priced : INT64_MAX;
		if (!pd_add(bytes, stage_bytes, &bytes))
			bytes = INT64_MAX;
	}
	w->limit_bytes = bytes;
	if (device_bytes > 0 && device_bytes < bytes) {
		w->limit_bytes = device_bytes;
		w->device_limit = true;
	}
}

/* Checks the numbers in a list made by hand, which the other checks rely on. */
static bool check_ranges(struct rank_walk *w, const struct pd_op *op)
{
	int64_t last = w->lists->microbatches;

	if (op->microbatch < 0 || op->microbatch >= last)
		return WRONG(w, "expected a microbatch from 0 to %" PRId64, last - 1);
	if (op->version < -1 || op->version > last)
		return WRONG(w, "expected a weight_version from 0 to %" PRId64, last);
	if (pd_op_transfers(op->kind) && (op->peer < 0 || op->peer >= w->lists->rank_count))
		return WRONG(w, "expected a peer from 0 to %d", w->lists->rank_count - 1);
	return true;
}

static bool expect_op(struct rank_walk *w, const struct pd_op *op)
{
	if (!check_ranges(w, op))
		return false;
	pd_account_expect(&w->account, op);
	return true;
}

static bool walk_list(struct rank_walk *w, bool (*each)(struct rank_walk *w,
							const struct pd_op *op))
{
	struct pd_op_source source;
	struct pd_op op;
	bool right = true;

	pd_op_source_begin(&source, w->fault->schedule, w->lists, w->rank, w->lists->microbatches);
	w->op = &op;
	for (w->n = 0; right && pd_op_source_next(&source, &op); w->n++)
		right = each(w, &op);
	w->op = NULL;
	pd_op_source_end(&source);
	return right;
}

void pd_check_rank(struct pd_fault *fault, const struct pd_prices *prices, int rank)
{
	const struct pd_lists *lists = fault->lists;
	const struct pd_role *roles = &lists->roles[lists->first_role[rank]];
	struct rank_walk w = { .fault = fault, .lists = lists, .prices = prices, .rank = rank,
			       .part_count = lists->first_role[rank + 1] -
			       lists->first_role[rank] };
	bool right;

	w.parts = pd_calloc((size_t)w.part_count, sizeof(*w.parts));
	for (int p = 0; p < w.part_count; p++)
		part_init(&w.parts[p], &w, &roles[p]);
	set_limit(&w);
	pd_account_init(&w.account, prices, lists->microbatches);
	right = walk_list(&w, expect_op) && walk_list(&w, check_op);
	for (int p = 0; p < w.part_count && right; p++)
		right = check_end(&w, &w.parts[p]);
	pd_account_release(&w.account);
	for (int p = 0; p < w.part_count; p++) {
		free(w.parts[p].did);
		free(w.parts[p].version);
		free(w.parts[p].waiting);
	}
	free(w.parts);
}
