/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's list, walked once: order, completeness, versions, memory. */
#include "schedule/check.h"

#include "base/mem.h"
#include "schedule/price.h"

#include <inttypes.h>
#include <stdlib.h>

#define BUFFERS 2       /* for gradients that arrive, per link */

/* What the rank has done as one replica of one stage. */
struct part {
	const struct pd_stage *stage;
	int s, replica, ins, outs;
	int64_t group;                  /* microbatches per update */
	int64_t count;                  /* microbatches of this replica */
	bool *did;                      /* [activity][local microbatch] */
	int64_t *version;               /* that forward read, per local microbatch */
	int *waiting;                   /* per link, first those in: gradients in its buffers */
	int64_t newest, updates, sums;
	int open;                       /* groups whose gradients it adds up at once */
	int64_t backwards[2];           /* of the groups at hand, by number mod 2 */
};

struct walk {
	struct pd_fault *fault;
	const struct pd_lists *lists;
	const struct pd_prices *prices;
	int rank;
	size_t n;                       /* the number of the operation at hand */
	const struct pd_op *op;         /* NULL: at the end */
	int64_t limit_bytes;
	bool device_limit;              /* it is the device's */
	struct part *parts;
	int part_count;
	int64_t agreed;                 /* groups about which all ranks have agreed */
	struct pd_account account;
};

#define WRONG(w, ...) (pd_fault((w)->fault, (w)->rank, (w)->n, (w)->op, __VA_ARGS__), false)

static int64_t group_of(const struct pd_plan *plan, int s)
{
	return plan->microbatches > 1 ? plan->microbatches : plan->stages[s].replicas;
}

/* Stashing: as many updates before a forward as the stage's warm-up lets through. */
static int64_t stashed(const struct walk *w, int s, int64_t b)
{
	const struct pd_plan *plan = w->lists->plan;
	int64_t group = group_of(plan, s), r = plan->stages[s].replicas, u;
	int64_t warmup = plan->schedule == PD_SCHEDULE_NONE ? 0
		: b < pd_plan_admitted(plan) ? w->fault->startup[s] : plan->stages[s].warmup;

	if (plan->schedule == PD_SCHEDULE_NF1B)         /* its warm-ups are minibatches */
		u = b / group - warmup;
	else
		u = b / r < warmup ? 0 : (b / r - warmup) / (group / r);
	return u > 0 ? u * group : 0;
}

/* The version that the plan's policy has microbatch b read at stage s; -1: the newest. */
static int64_t policy_version(const struct walk *w, int s, int64_t b)
{
	const struct pd_plan *plan = w->lists->plan;
	int64_t group = group_of(plan, s);

	switch (plan->weights) {
	case PD_WEIGHTS_STASH:
		return stashed(w, s, b);
	case PD_WEIGHTS_VERTICAL_SYNC:
		return stashed(w, 0, b) / group * group;
	case PD_WEIGHTS_2BW:
		return b < group ? 0 : (b / group - 1) * group;
	case PD_WEIGHTS_FLUSH:
		return b / group * group;
	default:
		return -1;
	}
}

static int activity_count(const struct part *part)
{
	return PD_OP_KINDS + 2 * (part->ins + part->outs);
}

/* Position of a link among the part's, those in first. */
static int link_position(const struct walk *w, const struct part *part, int link)
{
	const struct pd_wiring *wiring = w->lists->wiring;

	for (int i = 0; i < part->ins; i++)
		if (wiring->in[part->s][i] == link)
			return i;
	for (int i = 0; i < part->outs; i++)
		if (wiring->out[part->s][i] == link)
			return part->ins + i;
	pd_bug("check: link %d does not touch stage %d", link, part->s);
}

static int link_at(const struct walk *w, const struct part *part, int position)
{
	const struct pd_wiring *wiring = w->lists->wiring;

	return position < part->ins ? wiring->in[part->s][position]
				    : wiring->out[part->s][position - part->ins];
}

static int other_stage(const struct walk *w, const struct part *part, int position)
{
	const struct pd_link *link = &w->lists->wiring->links[link_at(w, part, position)];

	return position < part->ins ? link->from : link->to;
}

static bool *did(const struct part *part, int activity, int64_t i)
{
	return &part->did[activity * part->count + i];
}

static int transfer(int position, bool gradient)
{
	return PD_OP_KINDS + 2 * position + gradient;
}

static int64_t below(const struct part *part, int64_t b)
{
	return b > part->replica ? (b - part->replica - 1) / part->stage->replicas + 1 : 0;
}

/* This replica's microbatches in update group u. */
static int64_t group_size(const struct walk *w, const struct part *part, int64_t u)
{
	int64_t begin = u * part->group, end = begin + part->group;

	if (end > w->lists->microbatches)
		end = w->lists->microbatches;
	return begin < end ? below(part, end) - below(part, begin) : 0;
}

static bool check_transfer(struct walk *w, struct part *part, const struct pd_op *op, int64_t i)
{
	const struct pd_plan *plan = w->lists->plan;
	int p = link_position(w, part, op->link), far = other_stage(w, part, p);
	int peer = plan->stages[far].ranks[op->microbatch % plan->stages[far].replicas];
	bool gradient = op->kind == PD_OP_recv_gradient || op->kind == PD_OP_send_gradient;
	bool *done = did(part, transfer(p, gradient), i);

	if (op->peer != peer)
		return WRONG(w, "its peer is rank %d; expected %d, which has the microbatch at "
			     "stage %d", op->peer, peer, far);
	if (*done)
		return WRONG(w, "a second time; expected it once");
	*done = true;
	switch (op->kind) {
	case PD_OP_send_activation:
		if (!*did(part, PD_OP_forward, i))
			return WRONG(w, "its forward does not stand before it");
		break;
	case PD_OP_recv_gradient:
		if (++part->waiting[p] > BUFFERS)
			return WRONG(w, "%d gradients wait from stage %d; expected a backward "
				     "between, there are %d buffers", part->waiting[p], far,
				     BUFFERS);
		break;
	case PD_OP_send_gradient:
		if (!*did(part, PD_OP_backward, i) && !*did(part, PD_OP_backward_input, i))
			return WRONG(w, "its backward does not stand before it");
		part->waiting[p]--;
		break;
	default:
		break;
	}
	return true;
}

static bool check_version(struct walk *w, const struct part *part, const struct pd_op *op,
			  int64_t expected, const char *why)
{
	if (op->version < 0)
		return WRONG(w, "expected a weight_version, %" PRId64, expected);
	if (op->version != expected)
		return WRONG(w, "reads version %" PRId64 "; expected %" PRId64 ", %s", op->version,
			     expected, why);
	if (op->version > part->newest)
		return WRONG(w, "reads version %" PRId64 ", which no step before it has written; "
			     "the newest is %" PRId64, op->version, part->newest);
	return true;
}

static bool check_forward(struct walk *w, struct part *part, const struct pd_op *op, int64_t i)
{
	int64_t version = policy_version(w, part->s, op->microbatch);

	if (w->lists->wiring->loads[part->s] && !*did(part, PD_OP_load, i))
		return WRONG(w, "its load does not stand before it");
	for (int p = 0; p < part->ins; p++)
		if (!*did(part, transfer(p, false), i))
			return WRONG(w, "the recv_activation from stage %d does not stand before "
				     "it", other_stage(w, part, p));
	part->version[i] = op->version;
	return version < 0 ? check_version(w, part, op, part->newest, "the newest")
			   : check_version(w, part, op, version, "by the plan's weights");
}

/* Forward and backward see the same, and what does not must see the newest. */
static bool check_same_version(struct walk *w, const struct part *part, const struct pd_op *op,
			       int64_t i)
{
	return w->lists->plan->weights == PD_WEIGHTS_LATEST
		? check_version(w, part, op, part->newest, "the newest")
		: check_version(w, part, op, part->version[i], "as its forward");
}

/* Both of a backward in one and of one's input part. */
static bool check_backward(struct walk *w, struct part *part, const struct pd_op *op, int64_t i)
{
	if (*did(part, op->kind == PD_OP_backward ? PD_OP_backward_input : PD_OP_backward, i))
		return WRONG(w, "its backward is there already; expected it whole or in two parts");
	if (!*did(part, PD_OP_forward, i))
		return WRONG(w, "its forward does not stand before it");
	if (part->stage->recompute && !*did(part, PD_OP_recompute, i))
		return WRONG(w, "its recompute does not stand before it");
	for (int p = part->ins; p < part->ins + part->outs; p++) {
		if (!*did(part, transfer(p, true), i))
			return WRONG(w, "the recv_gradient from stage %d does not stand before it",
				     other_stage(w, part, p));
		part->waiting[p]--;
	}
	for (int p = 0; p < part->ins; p++)
		if (++part->waiting[p] > w->fault->leaving[part->s])
			return WRONG(w, "%d gradients wait to go to stage %d; expected a "
				     "send_gradient between, there are %d buffers",
				     part->waiting[p], other_stage(w, part, p),
				     w->fault->leaving[part->s]);
	return check_same_version(w, part, op, i);
}

/* What adds to the gradients of the parameters: a group after the other, or two at once. */
static bool check_gradient(struct walk *w, struct part *part, const struct pd_op *op)
{
	int64_t u = op->microbatch / part->group;

	if (u >= part->updates + part->open)
		return WRONG(w, "the step of the group before, from microbatch %" PRId64 " on, does"
			     " not stand before it", part->updates * part->group);
	part->backwards[u % 2]++;
	return true;
}

static bool check_compute(struct walk *w, struct part *part, const struct pd_op *op, int64_t i)
{
	if (*did(part, op->kind, i))
		return WRONG(w, "a second time; expected it once");
	*did(part, op->kind, i) = true;
	switch (op->kind) {
	case PD_OP_load:
		return w->lists->wiring->loads[part->s] ||
		       WRONG(w, "stage %d uses no inputs of the model", part->s);
	case PD_OP_forward:
		return check_forward(w, part, op, i);
	case PD_OP_recompute:
		if (!part->stage->recompute)
			return WRONG(w, "the plan does not have stage %d recompute", part->s);
		if (!*did(part, PD_OP_forward, i))
			return WRONG(w, "its forward does not stand before it");
		return check_same_version(w, part, op, i);
	case PD_OP_backward:
		return check_backward(w, part, op, i) && check_gradient(w, part, op);
	case PD_OP_backward_input:
		return check_backward(w, part, op, i);
	case PD_OP_backward_weight:
		if (!*did(part, PD_OP_backward_input, i))
			return WRONG(w, "its backward_input does not stand before it");
		return check_same_version(w, part, op, i) && check_gradient(w, part, op);
	default:
		return true;
	}
}

/* The backwards of the group whose turn it is, and their sum. */
static bool check_group(struct walk *w, const struct part *part, const struct pd_op *op, bool sums)
{
	int64_t u = part->updates, size = group_size(w, part, u);

	if (op->microbatch != u * part->group)
		return WRONG(w, "expected the group that begins with microbatch %" PRId64 " next",
			     u * part->group);
	if (part->backwards[u % 2] < size)
		return WRONG(w, "%" PRId64 " of the %" PRId64 " backwards of its group stand "
			     "before it; expected all", part->backwards[u % 2], size);
	return !sums || part->stage->replicas == 1 || part->sums > u ||
	       WRONG(w, "its allreduce does not stand before it");
}

/* What all ranks agree on is about all the stages of each. */
static bool check_agree(struct walk *w, const struct pd_op *op)
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

/* An all-reduce or a step: of the groups in turn, after all that is in them. */
static bool check_update(struct walk *w, struct part *part, const struct pd_op *op)
{
	int64_t u = part->updates, version = (u + 1) * part->group;

	if (version > w->lists->microbatches)
		version = w->lists->microbatches;
	if (!check_group(w, part, op, op->kind == PD_OP_step))
		return false;
	if (op->kind == PD_OP_allreduce) {
		if (part->stage->replicas == 1)
			return WRONG(w, "stage %d has one replica, and nothing to sum", part->s);
		if (part->sums > u)
			return WRONG(w, "a second time; expected it once");
		part->sums++;
		return true;
	}
	if (pd_plan_agrees(w->lists->plan) && w->agreed <= u)
		return WRONG(w, "its agree does not stand before it");
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

static bool check_op(struct walk *w, const struct pd_op *op)
{
	struct part *part = w->parts;
	int64_t i;

	/* an agree is one of the rank, whatever stage it names */
	while (part->s != op->stage && op->kind != PD_OP_agree)
		part++;
	if (op->kind == PD_OP_agree) {
		if (!check_agree(w, op))
			return false;
	} else if (op->kind == PD_OP_allreduce || op->kind == PD_OP_step) {
		if (!check_update(w, part, op))
			return false;
	} else {
		if (op->microbatch % part->stage->replicas != part->replica)
			return WRONG(w, "the microbatch belongs to rank %d", part->stage->ranks[
				     op->microbatch % part->stage->replicas]);
		i = op->microbatch / part->stage->replicas;
		if (!(pd_op_transfers(op->kind) ? check_transfer(w, part, op, i)
						: check_compute(w, part, op, i)))
			return false;
	}
	pd_account_enter(&w->account, op);
	if (w->account.held_bytes > w->limit_bytes)
		return WRONG(w, "the rank holds %" PRId64 " bytes with it; expected at most %"
			     PRId64 ", the memory of %s", w->account.held_bytes > INT64_MAX
			     ? INT64_MAX : (int64_t)w->account.held_bytes, w->limit_bytes,
			     w->device_limit ? "a device" : "the rank in the plan");
	return true;
}

/*
 * A list is complete when all its updates are there: an update wants the backwards of its
 * group, a backward its forward and gradients, a forward its activations, and what arrives
 * wants to be sent.
 */
static bool check_end(struct walk *w, const struct part *part)
{
	int64_t last = w->lists->microbatches, updates = (last + part->group - 1) / part->group;

	return part->updates == updates ||
	       WRONG(w, "the list ends without the step of the group that begins with microbatch %"
		     PRId64 " at stage %d", part->updates * part->group, part->s);
}

static void part_init(struct part *part, const struct walk *w, const struct pd_seat *seat)
{
	const struct pd_plan *plan = w->lists->plan;

	*part = (struct part){
		.stage = &plan->stages[seat->stage], .s = seat->stage, .replica = seat->replica,
		.ins = w->lists->wiring->in_count[seat->stage],
		.outs = w->lists->wiring->out_count[seat->stage],
		.group = group_of(plan, seat->stage),
		.open = pd_plan_open_groups(plan, seat->stage),
	};
	part->count = below(part, w->lists->microbatches);
	part->did = pd_calloc((size_t)part->count, (size_t)activity_count(part));
	part->version = pd_calloc((size_t)part->count, sizeof(*part->version));
	part->waiting = pd_calloc((size_t)(part->ins + part->outs), sizeof(*part->waiting));
}

/*
 * The plan's bytes for the rank: those predicted, or, where the plan says none, what
 * lib/plan/memory.h prices, which is 1F1B with stashing.
 */
static void set_limit(struct walk *w)
{
	const struct pd_plan *plan = w->lists->plan;
	int64_t device_bytes = plan->topology.memory_bytes, bytes = 0;

	w->limit_bytes = INT64_MAX;
	for (int p = 0; p < w->part_count; p++) {
		const struct part *part = &w->parts[p];
		const struct pd_stage_price *price = &w->prices->stages[part->s];
		int startup = w->fault->startup[part->s];
		__int128 priced = (__int128)price->fixed_bytes + (__int128)startup *
			(price->weights_bytes + price->slot_bytes) + price->slot_bytes +
			((__int128)startup + 2) *
			(price->loaded_bytes + price->arriving_bytes);
		int64_t stage_bytes = part->stage->memory_bytes;

		if (part->stage->recompute)
			priced += ((__int128)startup + 1) * price->leaving_bytes;
		if (stage_bytes > 0)    /* predicted for updates that nobody agrees on */
			stage_bytes = pd_plus(stage_bytes, price->agree_bytes);
		if (stage_bytes == 0)
			stage_bytes = plan->schedule == PD_SCHEDULE_1F1B &&
				plan->weights == PD_WEIGHTS_STASH && plan->microbatches == 1 &&
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

/* Numbers that the rest can rely on, in lists that were made by hand. */
static bool check_ranges(struct walk *w, const struct pd_op *op)
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

static bool expect_op(struct walk *w, const struct pd_op *op)
{
	if (!check_ranges(w, op))
		return false;
	pd_account_expect(&w->account, op);
	return true;
}

static bool walk_list(struct walk *w, bool (*each)(struct walk *w, const struct pd_op *op))
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
	const struct pd_seat *seats = &lists->seats[lists->first_seat[rank]];
	struct walk w = { .fault = fault, .lists = lists, .prices = prices, .rank = rank,
			  .part_count = lists->first_seat[rank + 1] - lists->first_seat[rank] };
	bool right;

	w.parts = pd_calloc((size_t)w.part_count, sizeof(*w.parts));
	for (int p = 0; p < w.part_count; p++)
		part_init(&w.parts[p], &w, &seats[p]);
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
