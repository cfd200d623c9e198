/* SPDX-License-Identifier: Apache-2.0 */
/*
 * These submit a single work (work.h) to a stream.  They return 0, PD_AGAIN or -1 as stream.submit does.  They
 * do not clear what a work of the kind has not, because a replay does little else.
 */
#pragma once

#include "engine/device/device.h"

static inline int pd_submit(struct pd_stream *stream, struct pd_work *work, enum pd_work_kind kind,
			    struct pd_event *ev)
{
	work->kind = kind;
	work->ev = ev;
	return stream->device->ops->stream.submit(stream, work, 1);
}

static inline int pd_submit_layers(struct pd_stream *stream, struct pd_work *work, enum pd_work_kind kind,
				   struct pd_net *net, int from, int count, struct pd_event *ev)
{
	work->net = net;
	work->from = from;
	work->count = count;
	return pd_submit(stream, work, kind, ev);
}

/* Lets work that is submitted from now on start after an event. */
static inline int pd_submit_wait(struct pd_stream *stream, struct pd_event *awaited)
{
	struct pd_work work;

	work.awaited = awaited;
	return pd_submit(stream, &work, PD_WORK_WAIT, NULL);
}

static inline int pd_submit_forward(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
				    int from, int count, struct pd_event *ev)
{
	struct pd_work work;

	work.pass = *pass;
	return pd_submit_layers(stream, &work, PD_WORK_FORWARD, net, from, count, ev);
}

static inline int pd_submit_backward(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
				     int from, int count, struct pd_event *ev)
{
	struct pd_work work;

	work.pass = *pass;
	return pd_submit_layers(stream, &work, PD_WORK_BACKWARD, net, from, count, ev);
}

static inline int pd_submit_update(struct pd_stream *stream, struct pd_net *net, const struct pd_update *update,
				   int from, int count, struct pd_event *ev)
{
	struct pd_work work;

	work.update = *update;
	return pd_submit_layers(stream, &work, PD_WORK_UPDATE, net, from, count, ev);
}

/* -1 where there are more than PD_SUM_SOURCES. */
static inline int pd_submit_sum(struct pd_stream *stream, float *dst, const float *const *src, int n, size_t count,
				struct pd_event *ev)
{
	struct pd_work work;

	if (n > PD_SUM_SOURCES)
		return -1;
	work.sum.dst = dst;
	for (int i = 0; i < n; i++)
		work.sum.src[i] = src[i];
	work.sum.n = n;
	work.sum.count = count;
	return pd_submit(stream, &work, PD_WORK_SUM, ev);
}

static inline int pd_submit_sum_all(struct pd_stream *stream, float *const *arrays, int n, size_t count,
				    struct pd_event *ev)
{
	struct pd_work work;

	if (n > PD_SUM_SOURCES)
		return -1;
	for (int i = 0; i < n; i++)
		work.sum_all.arrays[i] = arrays[i];
	work.sum_all.n = n;
	work.sum_all.count = count;
	return pd_submit(stream, &work, PD_WORK_SUM_ALL, ev);
}

static inline int pd_submit_mixed_sum(struct pd_stream *stream, const struct pd_mixed_sum *sum, struct pd_event *ev)
{
	struct pd_work work;

	work.mixed_sum = *sum;
	return pd_submit(stream, &work, PD_WORK_MIXED_SUM, ev);
}

static inline int pd_submit_squares(struct pd_stream *stream, struct pd_net *net, const struct pd_squares *what,
				    struct pd_event *ev)
{
	struct pd_work work;

	work.net = net;
	work.squares = *what;
	return pd_submit(stream, &work, PD_WORK_SQUARES, ev);
}

static inline int pd_submit_unite(struct pd_stream *stream, double *vector, const double *other, size_t count,
				  struct pd_event *ev)
{
	struct pd_work work;

	work.unite.vector = vector;
	work.unite.other = other;
	work.unite.count = count;
	return pd_submit(stream, &work, PD_WORK_UNITE, ev);
}

static inline int pd_submit_chunks(struct pd_stream *stream, const struct pd_chunks *what, struct pd_event *ev)
{
	struct pd_work work;

	work.chunks = *what;
	return pd_submit(stream, &work, PD_WORK_CHUNKS, ev);
}

static inline int pd_submit_copy(struct pd_stream *stream, void *dst, const void *src, size_t bytes,
				 enum pd_copy way, struct pd_event *ev)
{
	struct pd_work work;

	work.copy.dst = dst;
	work.copy.src = src;
	work.copy.bytes = bytes;
	work.copy.way = way;
	return pd_submit(stream, &work, PD_WORK_COPY, ev);
}

static inline int pd_submit_call(struct pd_stream *stream, const struct pd_call *call, struct pd_event *ev)
{
	struct pd_work work;

	work.call = *call;
	return pd_submit(stream, &work, PD_WORK_CALL, ev);
}
