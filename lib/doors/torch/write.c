/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one minibatch as a table for torch.distributed.pipelining. */
#include "doors/torch/torch.h"

#include "base/error.h"
#include "base/mem.h"
#include "doors/torch/table.h"
#include "order/order.h"
#include "plan/chain.h"
#include "plan/recompute.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const pd_torch_action_name[] = {
#define TORCH_ACTION(name, has_microbatch, what) #name,
#include "doors/torch/action.def"
#undef TORCH_ACTION
	NULL
};

/* Returns the action for an operation, or PD_TORCH_ACTIONS if it has none. */
static enum pd_torch_action action_of(enum pd_op_kind kind)
{
	switch (kind) {
	case PD_OP_forward:
		return PD_TORCH_F;
	case PD_OP_backward:
		return PD_TORCH_B;
	case PD_OP_backward_input:
		return PD_TORCH_I;
	case PD_OP_backward_weight:
		return PD_TORCH_W;
	case PD_OP_send_activation:
		return PD_TORCH_SEND_F;
	case PD_OP_recv_activation:
		return PD_TORCH_RECV_F;
	case PD_OP_send_gradient:
		return PD_TORCH_SEND_B;
	case PD_OP_recv_gradient:
		return PD_TORCH_RECV_B;
	default:
		return PD_TORCH_ACTIONS;
	}
}

const char *pd_torch_short(const struct pd_op *op, char *buf)
{
	enum pd_torch_action action = action_of(op->kind);

	snprintf(buf, 40, "%d%s%" PRId64, op->stage,
		 action < PD_TORCH_ACTIONS ? pd_torch_action_name[action]
					   : pd_op_kind_name[op->kind],
		 op->microbatch);
	return buf;
}

static void say_what_is_left(const struct pd_plan *plan)
{
	int replicas = plan->stages[0].replicas;

	if (replicas > 1)
		pd_say("each row stands for %d ranks, the replicas of its stages, each with one of "
		       "%d microbatches: "
		       "data parallelism over them is yours to set up",
		       replicas, replicas);
	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].recompute) {
			pd_say("stage %d recomputes in the plan, which the table cannot say: wrap %s in "
			       "torch.utils.checkpoint", s,
			       pd_plan_reruns_some(plan, s) ? "those of its layers" : "its module");
			break;
		}
}

int pd_torch_sayable(const struct pd_plan *plan, const struct pd_wiring *wiring,
		     struct pd_error *err)
{
	if (pd_chain_check_flush(plan, "PyTorch", err) < 0 ||
	    pd_chain_check_replicas(plan, "PyTorch", err) < 0 ||
	    pd_chain_check_links(plan, wiring, "PyTorch", err) < 0 ||
	    pd_chain_check_shares(plan, "PyTorch", err) < 0)
		return -1;
	say_what_is_left(plan);
	return 0;
}

/* A row while it is written. */
struct row {
	FILE *out;
	bool comms, begun;
	bool paired;                    /* a cell has the forward of a pair, and is to get its backward */
	int replicas;
	int64_t microbatches;           /* of one replica */
	int64_t *done;                  /* per stage: microbatches whose gradients are complete */
	int whole;                      /* the stage whose gradients are to be reduced, or -1 */
	struct pd_list sent;            /* activations that no wait has followed, and gradients */
};

static void cell(struct row *row, int stage, enum pd_torch_action action, int64_t microbatch)
{
	fprintf(row->out, "%s%d%s", row->begun ? "," : "", stage, pd_torch_action_name[action]);
	if (microbatch >= 0)
		fprintf(row->out, "%" PRId64, microbatch);
	row->begun = true;
}

/* Writes a computation, or its part of the cell of a pair. */
static void compute_cell(struct row *row, const struct pd_op *op, enum pd_torch_action action)
{
	fputs(row->paired ? ";" : row->begun ? "," : "", row->out);
	fprintf(row->out, "%s%d%s%" PRId64 "%s", op->beside ? "(" : "", op->stage,
		pd_torch_action_name[action], op->microbatch / row->replicas,
		row->paired ? PD_ORDER_PAIR_END : "");
	row->begun = true;
	row->paired = op->beside;
}

/* Waits for the send of an activation once its gradient is back: its receiver has used it. */
static void wait_forward(struct row *row, const struct pd_op *op)
{
	struct pd_list *sent = &row->sent;

	for (size_t n = 0; n < sent->count; n++) {
		const struct pd_op *send = &sent->ops[n];

		if (send->kind == PD_OP_send_activation && send->stage == op->stage &&
		    send->microbatch == op->microbatch) {
			cell(row, op->stage, PD_TORCH_WAIT_SEND_F, op->microbatch / row->replicas);
			memmove(&sent->ops[n], &sent->ops[n + 1], (sent->count - n - 1) * sizeof(*sent->ops));
			sent->count--;
			return;
		}
	}
}

/* Reduces the gradients of a stage that is through: without that PyTorch does not take their mean.
 */
static void reduce(struct row *row)
{
	if (row->whole < 0)
		return;
	cell(row, row->whole, PD_TORCH_REDUCE_GRAD, -1);
	cell(row, row->whole, PD_TORCH_WAIT_REDUCE_GRAD, -1);
	row->whole = -1;
}

/* Notes or writes what must follow an operation. */
static void follow(struct row *row, const struct pd_op *op)
{
	if (pd_op_sends(op->kind))
		pd_list_add(&row->sent, op, NULL);
	if (op->kind == PD_OP_backward || op->kind == PD_OP_backward_input)
		wait_forward(row, op);
	if ((op->kind == PD_OP_backward || op->kind == PD_OP_backward_weight) &&
	    ++row->done[op->stage] == row->microbatches)
		row->whole = op->stage;
}

static void write_row(struct row *row, struct pd_op_source *source)
{
	struct pd_op op;

	while (pd_op_source_next(source, &op) && !ferror(row->out)) {
		enum pd_torch_action action = action_of(op.kind);
		bool transfers = pd_op_transfers(op.kind);

		/* Parts of a backward are one action; a transfer within the rank is none. */
		if (action == PD_TORCH_ACTIONS || op.more || (transfers && (!row->comms || op.peer == op.rank)))
			continue;
		if (!transfers)         /* what is made is sent first */
			reduce(row);
		if (transfers)
			cell(row, op.stage, action, op.microbatch / row->replicas);
		else
			compute_cell(row, &op, action);
		if (row->comms)
			follow(row, &op);
	}
	reduce(row);
	for (size_t n = 0; n < row->sent.count; n++)
		cell(row, row->sent.ops[n].stage, row->sent.ops[n].kind == PD_OP_send_activation
		     ? PD_TORCH_WAIT_SEND_F : PD_TORCH_WAIT_SEND_B, row->sent.ops[n].microbatch / row->replicas);
	putc('\n', row->out);
}

/* Returns the rank that is row p: without replicas p, else the first replica of stage p. */
static int rank_of_row(const struct pd_plan *plan, int p)
{
	return plan->stages[0].replicas == 1 ? p : plan->stages[p].ranks[0];
}

/* Refuses what would have PyTorch take the loss of another microbatch. */
static int check_losses(const struct pd_lists *lists, const struct pd_schedule *schedule,
			struct pd_error *err)
{
	const struct pd_plan *plan = lists->plan;
	int last = plan->stage_count - 1;
	int64_t before = -1;
	struct pd_op_source source;
	struct pd_op op;

	pd_op_source_begin(&source, schedule, lists, plan->stages[last].ranks[0], lists->microbatches);
	while (before >= -1 && pd_op_source_next(&source, &op)) {
		if (op.kind != PD_OP_forward || op.stage != last)
			continue;
		if (op.microbatch < before)
			pd_error_input(err, "%s: stage %d, the last, does the forward of microbatch %" PRId64
				       " before that of %" PRId64 ": " PD_TORCH_LOSS_RULE, lists->name, last,
				       before, op.microbatch);
		before = op.microbatch < before ? -2 : op.microbatch;
	}
	pd_op_source_end(&source);
	return before >= -1 ? 0 : -1;
}

int pd_torch_write(FILE *out, const struct pd_lists *lists, const struct pd_schedule *schedule,
		   bool comms, struct pd_error *err)
{
	const struct pd_plan *plan = lists->plan;
	int replicas = plan->stages[0].replicas;

	if (check_losses(lists, schedule, err) < 0)
		return -1;
	for (int p = 0; p < lists->rank_count / replicas && !ferror(out); p++) {
		struct row row = { .out = out, .comms = comms, .replicas = replicas, .whole = -1,
				   .microbatches = lists->microbatches / replicas,
				   .done = pd_calloc((size_t)plan->stage_count, sizeof(*row.done)) };
		struct pd_op_source source;

		pd_op_source_begin(&source, schedule, lists, rank_of_row(plan, p), lists->microbatches);
		write_row(&row, &source);
		pd_op_source_end(&source);
		pd_list_release(&row.sent);
		free(row.done);
	}
	if (fflush(out) != 0 || ferror(out))
		return pd_error_failed(err, "cannot write the table: %s", strerror(errno));
	return 0;
}
