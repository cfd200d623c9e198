/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/reduce/reduce.h"

#include "engine/reduce/direct.h"
#include "engine/reduce/nccl.h"
#include "engine/reduce/script.h"
#include "sums/direct.h"

int pd_reduction_advance(struct pd_reduction *r, size_t *step_p, size_t end, int (*issue)(struct pd_reduction *r))
{
	int n = 0;

	for (; *step_p < end; ++*step_p, n++) {
		int verdict = issue(r);

		if (verdict == PD_AGAIN)
			break;
		if (verdict < 0)
			return -1;
	}
	return n;
}

struct pd_reduction *pd_reduction_open(enum pd_reducer_kind kind, const struct pd_reduction_config *config,
				       struct pd_error *err)
{
	const struct pd_reducer *reducer = pd_reducers[kind];
	struct pd_members members = { config->topology, config->ranks, config->members,
				      config->rounding.dtype };
	struct pd_script script = { .floats = config->floats, .dtype = members.dtype,
				    .one_at_a_time = config->transport->ops->one_at_a_time };
	int64_t bytes = (int64_t)(config->floats * sizeof(float));
	struct pd_reduction *r;

	if (reducer->of_transport && config->transport->ops->group)
		return pd_reduction_nccl_open(config, err);
	reducer->write(&members, config->me, &script);
	r = pd_script_open(&script, (size_t)reducer->staging_bytes(&members, bytes), config, err);
	return r && kind == PD_REDUCER_dense && pd_direct_may(&members, bytes) ? pd_direct_over(r, config) : r;
}
