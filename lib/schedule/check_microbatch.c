/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a microbatch's operations on a stage: each is done once, after what it needs, and with the
 * right weights.
 */
#include "schedule/check_rank.h"

#include "base/error.h"
#include "schedule/buffer_counts.h"

#include <inttypes.h>

/*
 * Returns the version that weight stashing reads: the warm-up decides how many updates come before
 * a forward.
 */
static int64_t stashed(const struct rank_walk *w, int s, int64_t b)
{
	const struct pd_plan *plan = w->lists->plan;
	int64_t group = check_group_of(plan, s), r = plan->stages[s].replicas, u;
	int64_t warmup = pd_schedule_has(plan->schedule, PD_FACT_ALONE) ? 0
		: b < pd_plan_admitted(plan) ? w->fault->startup[s] : plan->stages[s].warmup;

	if (pd_schedule_has(plan->schedule, PD_FACT_MINIBATCHES))
		u = b / group - warmup;
	else
		u = b / r < warmup ? 0 : (b / r - warmup) / (group / r);
	return u > 0 ? u * group : 0;
}

/* Returns the version that microbatch b reads at stage s by the plan's weights; -1: the newest. */
static int64_t policy_version(const struct rank_walk *w, int s, int64_t b)
{
	const struct pd_plan *plan = w->lists->plan;
	bool behind = pd_weights_have(plan->weights, PD_WEIGHTS_BEHIND);
	int64_t group = check_group_of(plan, s);

	if (pd_weights_have(plan->weights, PD_WEIGHTS_GROUPS))
		return behind && b < group ? 0 : (b / group - behind) * group;
	if (pd_weights_have(plan->weights, PD_WEIGHTS_TAGS))
		return stashed(w, 0, b) / group * group;
	return pd_weights_have(plan->weights, PD_WEIGHTS_STASHES) ? stashed(w, s, b) : -1;
}

/* Returns the position of a link among the stage's, those into it first. */
static int link_position(const struct rank_walk *w, const struct stage_walk *part, int link)
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

static int link_at(const struct rank_walk *w, const struct stage_walk *part, int position)
{
	const struct pd_wiring *wiring = w->lists->wiring;

	return position < part->ins ? wiring->in[part->s][position]
				    : wiring->out[part->s][position - part->ins];
}

static int other_stage(const struct rank_walk *w, const struct stage_walk *part, int position)
{
	const struct pd_link *link = &w->lists->wiring->links[link_at(w, part, position)];

	return position < part->ins ? link->from : link->to;
}

static bool *did(const struct stage_walk *part, int activity, int64_t i)
{
	return &part->did[activity * part->count + i];
}

static int transfer(int position, bool gradient)
{
	return PD_OP_KINDS + 2 * position + gradient;
}

static bool check_transfer(struct rank_walk *w, struct stage_walk *part, const struct pd_op *op,
			   int64_t i)
{
	const struct pd_plan *plan = w->lists->plan;
	int p = link_position(w, part, op->link), far = other_stage(w, part, p);
	int peer = plan->stages[far].ranks[op->microbatch % plan->stages[far].replicas];
	bool *done = did(part, transfer(p, pd_op_of_gradient(op->kind)), i);

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
		if (++part->waiting[p] > PD_PASSAGES && !w->lists->any_wait)
			return WRONG(w, "%d gradients wait from stage %d; expected a backward "
				     "between, there are %d buffers", part->waiting[p], far,
				     PD_PASSAGES);
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

static bool check_version(struct rank_walk *w, const struct stage_walk *part,
			  const struct pd_op *op, int64_t expected, const char *why)
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

static bool check_forward(struct rank_walk *w, struct stage_walk *part, const struct pd_op *op,
			  int64_t i)
{
	int64_t version = policy_version(w, part->s, op->microbatch);

	if (w->lists->wiring->loads[part->s] && !*did(part, PD_OP_load, i))
		return WRONG(w, "its load does not stand before it");
	for (int p = 0; p < part->ins && w->lists->lack != PD_LACK_TRANSFERS; p++)
		if (!*did(part, transfer(p, false), i))
			return WRONG(w, "the recv_activation from stage %d does not stand before "
				     "it", other_stage(w, part, p));
	if (part->lanes > 0 && i >= part->lanes && !*did(part, PD_OP_forward, i - part->lanes))
		return WRONG(w, "the forward of microbatch %" PRId64 ", with whose state it goes on, "
			     "does not stand before it",
			     op->microbatch - part->lanes * part->stage->replicas);
	part->version[i] = op->version;
	return version < 0 ? check_version(w, part, op, part->newest, "the newest")
			   : check_version(w, part, op, version, "by the plan's weights");
}

/*
 * Checks that backward reads the version that forward read, or the newest if that is not required.
 */
static bool check_same_version(struct rank_walk *w, const struct stage_walk *part,
			       const struct pd_op *op, int64_t i)
{
	return pd_weights_have(w->lists->plan->weights, PD_WEIGHTS_REREADS)
		? check_version(w, part, op, part->newest, "the newest")
		: check_version(w, part, op, part->version[i], "as its forward");
}

/* Checks a whole backward, or the part for the inputs. */
static bool check_backward(struct rank_walk *w, struct stage_walk *part, const struct pd_op *op,
			   int64_t i)
{
	if (*did(part, op->kind == PD_OP_backward ? PD_OP_backward_input : PD_OP_backward, i))
		return WRONG(w, "its backward is there already; expected it whole or in two parts");
	if (!*did(part, PD_OP_forward, i))
		return WRONG(w, "its forward does not stand before it");
	if (part->stage->recompute && !*did(part, PD_OP_recompute, i))
		return WRONG(w, "its recompute does not stand before it");
	if (w->lists->lack == PD_LACK_TRANSFERS)
		return check_same_version(w, part, op, i);
	for (int p = part->ins; p < part->ins + part->outs; p++) {
		if (!*did(part, transfer(p, true), i))
			return WRONG(w, "the recv_gradient from stage %d does not stand before it",
				     other_stage(w, part, p));
		part->waiting[p]--;
	}
	for (int p = 0; p < part->ins; p++)
		if (++part->waiting[p] > w->prices->stages[part->s].leaving && !w->lists->any_wait)
			return WRONG(w, "%d gradients wait to go to stage %d; expected a "
				     "send_gradient between, there are %d buffers",
				     part->waiting[p], other_stage(w, part, p),
				     w->prices->stages[part->s].leaving);
	return check_same_version(w, part, op, i);
}

/*
 * Checks an operation that adds to the gradients of the parameters: groups come one after the
 * other, or two at once.
 */
static bool check_gradient(struct rank_walk *w, struct stage_walk *part, const struct pd_op *op)
{
	int64_t u = op->microbatch / part->group;

	if (u >= part->updates + part->open)
		return WRONG(w, "the step of the group before, from microbatch %" PRId64 " on, does"
			     " not stand before it", part->updates * part->group);
	part->backwards[u % 2] += !op->more;
	return true;
}

/* Checks that the parts of a backward come in turn; check_open sees that nothing is between. */
static bool check_part(struct rank_walk *w, struct stage_walk *part, const struct pd_op *op)
{
	if (op->bucket != part->had + 1)
		return WRONG(w, "it is part %d of its backward; expected part %d next", op->bucket,
			     part->had + 1);
	part->in_parts = op->microbatch;
	part->had = op->more ? op->bucket : 0;
	return true;
}

static bool check_compute(struct rank_walk *w, struct stage_walk *part, const struct pd_op *op,
			  int64_t i)
{
	if (*did(part, op->kind, i))
		return WRONG(w, "a second time; expected it once");
	if (op->bucket > 0 && !check_part(w, part, op))
		return false;
	*did(part, op->kind, i) = !op->more;
	if (op->bucket > 1)
		return check_same_version(w, part, op, i) && check_gradient(w, part, op);
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

bool pd_check_microbatch(struct rank_walk *w, struct stage_walk *part, const struct pd_op *op,
			 int64_t i)
{
	return pd_op_transfers(op->kind) ? check_transfer(w, part, op, i)
					 : check_compute(w, part, op, i);
}
