/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream in front of a device's, for a device that gains from works that come together (stream.submit).  It
 * keeps what worker_issue makes, in order, and hands it over before worker_issue returns: so nothing waits
 * for what is kept.
 */
#include "engine/worker/internal.h"

#include <string.h>

#define WORKS 32

struct batch {
	struct pd_stream base;
	struct pd_device device;        /* that of base, which knows no more than how to submit */
	struct pd_stream *stream;       /* the device's */
	int count;
	struct pd_work works[WORKS];
};

static int hand_over(struct batch *b)
{
	int status = b->count > 0 ? b->stream->device->ops->stream.submit(b->stream, b->works, b->count) : 0;

	if (status == 0)
		b->count = 0;
	return status;
}

static int submit(struct pd_stream *base, const struct pd_work *works, int n)
{
	struct batch *b = (struct batch *)base;
	int status = b->count + n > WORKS ? hand_over(b) : 0;

	if (status != 0)
		return status;
	memcpy(&b->works[b->count], works, (size_t)n * sizeof(*works));
	b->count += n;
	return 0;
}

struct pd_stream *worker_batch_new(struct pd_worker *w, struct pd_stream *stream)
{
	static const struct pd_device_ops ops = { .stream.submit = submit };
	struct batch *b = worker_keep(w, 1, sizeof(*b));

	b->device.ops = &ops;
	b->base.device = &b->device;
	b->stream = stream;
	return &b->base;
}

int worker_hand_over(struct pd_worker *w)
{
	return w->compute == w->behind ? 0 : hand_over((struct batch *)w->compute);
}
