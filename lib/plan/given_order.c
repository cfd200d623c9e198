/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/given_order.h"

#include "base/mem.h"
#include "order/order.h"

#include <inttypes.h>
#include <stdlib.h>

int pd_plan_positions(const struct pd_plan *plan, int *position_of)
{
	int *at = pd_calloc((size_t)plan->topology.devices, sizeof(*at)), count = 0;   /* per rank; 0: none */

	for (int s = 0; s < plan->stage_count; s++) {
		int rank = plan->stages[s].ranks[0];

		if (!at[rank])
			at[rank] = ++count;
		position_of[s] = at[rank] - 1;
	}
	free(at);
	return count;
}

struct pd_order *pd_plan_order_new(const struct pd_plan *plan, struct pd_error *err)
{
	int replicas = plan->stages[0].replicas, *position_of, positions;
	struct pd_order *order;

	for (int s = 1; s < plan->stage_count; s++)
		if (plan->stages[s].replicas != replicas) {
			pd_error_input(err, "stage %d has %d replicas, stage 0 has %d: expected as many everywhere "
				       "with schedule \"%s\"", s, plan->stages[s].replicas, replicas,
				       pd_schedule_kind_name[plan->schedule]);
			return NULL;
		}
	if (plan->microbatches % replicas != 0) {
		pd_error_input(err, "microbatches: expected a multiple of the %d replicas, found %" PRId64, replicas,
			       plan->microbatches);
		return NULL;
	}
	position_of = pd_calloc((size_t)plan->stage_count, sizeof(*position_of));
	positions = pd_plan_positions(plan, position_of);
	order = pd_order_new(positions, plan->stage_count, (int)(plan->microbatches / replicas), position_of);
	free(position_of);
	return order;
}

static int read_texts(const struct pd_place *place, struct pd_order *order, struct pd_error *err)
{
	size_t count;

	if (pd_json_array(place, &count, err) < 0)
		return -1;
	if (count != (size_t)order->positions)
		return pd_place_error(place, err, "expected a text for each of the %d ranks of a pipeline, found %zu",
				      order->positions, count);
	for (int q = 0; q < order->positions; q++) {
		struct pd_place at = pd_place_index(place, (size_t)q);
		struct pd_error why;
		const char *text;

		if (pd_json_string(&at, &text, err) < 0)
			return -1;
		if (pd_order_read(order, q, text, &why) < 0)
			return pd_place_error(&at, err, "%s", why.text);
	}
	return 0;
}

int pd_plan_read_order(const struct pd_place *root, struct pd_plan *plan, struct pd_error *err)
{
	bool ordered = pd_schedule_has(plan->schedule, PD_FACT_ORDERED);
	struct pd_place place = pd_place_key(root, "order");
	struct pd_error why;

	if (!ordered && !place.value)
		return 0;
	if (!ordered)
		return pd_place_error(&place, err, "schedule \"%s\" has an order of its own",
				      pd_schedule_kind_name[plan->schedule]);
	if (!place.value)
		return pd_place_error(&place, err, "schedule \"%s\" is that of this key, which is missing",
				      pd_schedule_kind_name[plan->schedule]);
	plan->order = pd_plan_order_new(plan, &why);
	if (!plan->order)
		return pd_place_error(root, err, "%s", why.text);
	if (read_texts(&place, plan->order, err) < 0)
		return -1;
	if (pd_order_certify(plan->order, NULL, &why) < 0)
		return pd_place_error(&place, err, "%s", why.text);
	return 0;
}

json_t *pd_plan_order_json(const void *of)
{
	const struct pd_plan *plan = of;
	json_t *texts;

	if (!plan->order)
		return NULL;
	texts = json_array();
	for (int q = 0; q < plan->order->positions; q++) {
		char *text = pd_order_text(plan->order, q);

		pd_json_add(texts, json_string(text));
		free(text);
	}
	return texts;
}
