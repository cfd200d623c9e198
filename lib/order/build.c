/* SPDX-License-Identifier: Apache-2.0 */
#include "order/build.h"

#include "base/mem.h"

#include <stdlib.h>

struct pd_order_build pd_order_build_begin(const struct pd_order_request *request)
{
	size_t stages = (size_t)request->stages, microbatches = (size_t)request->microbatches;
	struct pd_order_build build = {
		.request = request,
		.order = pd_order_new(request->positions, request->stages, request->microbatches,
				      request->position_of),
		.run = pd_order_run_begin(request),
		.count = pd_calloc(PD_ORDER_SPLIT * stages, sizeof(*build.count)),
		.waiting = pd_calloc((size_t)request->positions, sizeof(*build.waiting)),
	};

	for (int s = 0; s < request->stages; s++)
		build.waiting[request->position_of[s]].end++;
	for (int q = 0; q < request->positions; q++) {
		build.waiting[q].stages = pd_calloc((size_t)build.waiting[q].end * microbatches, sizeof(int));
		build.waiting[q].end = 0;
	}
	return build;
}

void pd_order_build_release(struct pd_order_build *build)
{
	for (int q = 0; q < build->request->positions; q++)
		free(build->waiting[q].stages);
	free(build->waiting);
	free(build->count);
	pd_order_run_release(&build->run);
	pd_order_free(build->order);
	*build = (struct pd_order_build){ 0 };
}

bool pd_order_can(const struct pd_order_build *build, enum pd_order_pass pass, int stage)
{
	int i = *pd_order_count(build, pass, stage);

	if (i >= build->request->microbatches)
		return false;
	if (pass == PD_ORDER_F)
		return stage == 0 || *pd_order_count(build, PD_ORDER_F, stage - 1) > i;
	if (pass == PD_ORDER_W)
		return *pd_order_count(build, PD_ORDER_I, stage) > i;
	return *pd_order_count(build, PD_ORDER_F, stage) > i &&
	       (stage + 1 == build->request->stages || *pd_order_count(build, PD_ORDER_I, stage + 1) > i);
}

static struct pd_order_op next(const struct pd_order_build *build, enum pd_order_pass pass, int stage)
{
	return (struct pd_order_op){ .pass = (uint8_t)pass, .stage = stage,
				     .microbatch = *pd_order_count(build, pass, stage) };
}

int64_t pd_order_arrival(const struct pd_order_build *build, enum pd_order_pass pass, int stage)
{
	struct pd_order_op op = next(build, pass, stage);

	return pd_order_run_arrival(&build->run, &op);
}

bool pd_order_put(struct pd_order_build *build, enum pd_order_pass pass, int stage)
{
	struct pd_order_waiting *waiting = &build->waiting[build->request->position_of[stage]];
	struct pd_order_op op = next(build, pass, stage);

	if (!pd_order_can(build, pass, stage))
		return false;
	pd_order_run_op(&build->run, &op);
	pd_order_add(build->order, pass, stage, op.microbatch);
	++*pd_order_count(build, pass, stage);
	if (pass == PD_ORDER_I)
		waiting->stages[waiting->end++] = stage;
	return true;
}

void pd_order_put_weight(struct pd_order_build *build, int position)
{
	struct pd_order_waiting *waiting = &build->waiting[position];

	pd_order_put(build, PD_ORDER_W, waiting->stages[waiting->first++]);
}

void pd_order_put_weights(struct pd_order_build *build)
{
	for (int q = 0; q < build->request->positions; q++)
		while (pd_order_weight_waits(build, q))
			pd_order_put_weight(build, q);
}

int64_t pd_order_weight_ns(const struct pd_order_build *build, int position)
{
	const struct pd_order_waiting *waiting = &build->waiting[position];

	return build->request->stage[waiting->stages[waiting->first]].w_ns;
}

int64_t pd_order_cap(const struct pd_order_request *request, int position)
{
	return request->cap_bytes ? request->cap_bytes[position] : INT64_MAX;
}

bool pd_order_make_room(struct pd_order_build *build, int position, int64_t bytes)
{
	int64_t most = pd_order_cap(build->request, position) - bytes;

	while (pd_order_seat(build, position)->bytes > most) {
		if (!pd_order_weight_waits(build, position))
			return false;
		pd_order_put_weight(build, position);
	}
	return true;
}

int64_t pd_order_most_idle(const struct pd_order_build *build)
{
	int64_t most = 0;

	for (int q = 0; q < build->request->positions; q++)
		if (pd_order_seat(build, q)->idle_ns > most)
			most = pd_order_seat(build, q)->idle_ns;
	return most;
}

void pd_order_fill(struct pd_order_build *build, int position, int64_t until_ns, int64_t idle_ns, bool greedy)
{
	const struct pd_order_seat *seat = pd_order_seat(build, position);

	while (pd_order_weight_waits(build, position) &&
	       seat->now_ns + pd_order_weight_ns(build, position) <= until_ns)
		pd_order_put_weight(build, position);
	if (pd_order_weight_waits(build, position) && seat->now_ns < until_ns &&
	    (until_ns - seat->now_ns > idle_ns || greedy))
		pd_order_put_weight(build, position);
}
