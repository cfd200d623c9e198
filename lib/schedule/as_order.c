/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/as_order.h"

#include "base/json.h"
#include "plan/given_order.h"

static void add(struct pd_order *order, const struct pd_op *op, int64_t replicas)
{
	static const struct {
		bool computes;
		enum pd_order_pass pass;
	} passes[PD_OP_KINDS] = {
		[PD_OP_forward] = { true, PD_ORDER_F }, [PD_OP_backward] = { true, PD_ORDER_B },
		[PD_OP_backward_input] = { true, PD_ORDER_I }, [PD_OP_backward_weight] = { true, PD_ORDER_W },
	};

	const struct pd_order_list *list = &order->lists[order->position_of[op->stage]];

	if (!passes[op->kind].computes || op->more)
		return;
	pd_order_add(order, passes[op->kind].pass, op->stage, (int)(op->microbatch / replicas));
	list->ops[list->count - 1].beside = op->beside;
}

void pd_schedule_add_order(struct pd_order *order, const struct pd_plan *plan, const struct pd_schedule *schedule,
			   const struct pd_lists *lists)
{
	int next = 0;

	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_op_source source;
		struct pd_op op;

		if (order->position_of[s] < next)
			continue;
		next++;
		pd_op_source_begin(&source, schedule, lists, plan->stages[s].ranks[0],
				   (int64_t)order->microbatches * plan->stages[s].replicas);
		while (pd_op_source_next(&source, &op))
			add(order, &op, plan->stages[s].replicas);
		pd_op_source_end(&source);
	}
}

json_t *pd_plan_as_ordered(const struct pd_plan *plan, const struct pd_schedule *schedule,
			   const struct pd_lists *lists, struct pd_error *err)
{
	struct pd_plan ordered = *plan;
	json_t *json;

	if (!pd_weights_have(plan->weights, PD_WEIGHTS_DRAINS)) {
		pd_error_input(err, "%s: weights: a plan's own order is that of a minibatch with one version of the "
			       "weights: expected \"flush\", found \"%s\"", pd_plan_name(plan),
			       pd_weight_kind_name[plan->weights]);
		return NULL;
	}
	ordered.schedule = PD_SCHEDULE_ORDERED;
	ordered.startup = PD_STARTUP_FRUGAL;
	ordered.order = pd_plan_order_new(&ordered, err);
	if (!ordered.order)
		return NULL;
	pd_schedule_add_order(ordered.order, plan, schedule, lists);
	json = pd_order_certify(ordered.order, NULL, err) < 0 ? NULL : pd_plan_json(&ordered);
	pd_order_free(ordered.order);
	if (json)
		json_object_del(json, "predicted");
	return json;
}
