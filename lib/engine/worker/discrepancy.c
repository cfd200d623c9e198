/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PipeMare's discrepancy correction (MLSys 2021, section 3.2): where backward sees the newest
 * weights w, and forward saw those of `delay` updates before, backward reads
 *
 *     u = w - delay d,      d' = keep d + (1 - keep)(w' - w),      keep = D^(1 / delay)
 *
 * so d is how w has moved from update to update of late, and u about where it was.  Each
 * update makes d and u with w' (struct pd_update).  Before the first, and where a run
 * resumes, u is made here, on the host: it rounds as the devices do.
 */
#include "engine/worker/internal.h"

#include "base/mem.h"

#include <stdlib.h>

/*
 * The product, exact in double, is rounded before it is subtracted, so that no multiply-add is
 * fused.
 */
static void correct(float *w, const float *d, int64_t elements, float delay)
{
	for (int64_t i = 0; i < elements; i++) {
		float moved = (float)((double)delay * (double)d[i]);

		w[i] = w[i] - moved;
	}
}

int pd_worker_correct_discrepancy(struct pd_worker *w, int i)
{
	const struct pd_device_ops *device = w->config.device->ops;
	struct chunk *c = &w->chunks[i];
	const struct pd_named *named;
	const void *newest = c->master ? c->master : pd_weights_newest(&c->weights, NULL);
	enum pd_form form = c->master ? PD_FULL : PD_WORKING;
	int count = c->corrected ? device->net.named(c->net, &named) : 0, status = 0;

	for (int k = 0; k < count && status == 0; k++) {
		float *values, *delta;

		if (named[k].part != PD_PART_PARAMETER)
			continue;
		values = pd_calloc((size_t)named[k].elements, sizeof(*values));
		delta = pd_calloc((size_t)named[k].elements, sizeof(*delta));
		if (device->net.export(c->net, k, form, newest, values) < 0 ||
		    device->net.export(c->net, k, PD_FULL, c->delta, delta) < 0)
			status = -1;
		correct(values, delta, named[k].elements, (float)c->delay);
		if (status == 0 && device->net.import(c->net, k, PD_WORKING, c->corrected,
						      values) < 0)
			status = -1;
		free(values);
		free(delta);
	}
	return status;
}
