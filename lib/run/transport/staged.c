/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This transport serves devices whose memory the host cannot read (pd_device_ops.separate_memory),
 * over a transport of host memory.  A send first copies to the host, a receive afterwards to the
 * device.  It always works, and costs two more copies.
 *
 * The copies have a stream of their own, on which nothing else waits.  Host buffers are parts of an
 * array that is allocated first, and are kept and used again.  Another is only allocated where that
 * array ends: the device may have to be idle for that, which it is not while a kernel waits for
 * another rank.
 */
#include "run/transport/provider.h"

#include "base/mem.h"
#include "engine/device/submit.h"

#include <stdlib.h>

enum phase {
	WAITING,                        /* a send waits until its buffer is ready */
	FIRST,                          /* event `first` is pending */
	SECOND,                         /* `first` is done, `second` is pending */
};

struct host_buffer {
	struct host_buffer *next;
	size_t bytes;
	void *memory;
};

struct staged_transfer {
	struct staged_transfer *next;
	bool receive;
	enum phase phase;
	int peer;
	uint64_t tag;
	char *buf;
	size_t bytes;
	const struct pd_event *after;
	struct pd_event *done;
	struct pd_event first, second;  /* send: copied, sent; receive: received, copied */
	struct host_buffer *buffer;
};

struct staged {
	struct pd_transport base;
	struct pd_transport *host;
	const struct pd_connector *connector;   /* its */
	struct pd_device *device;
	struct pd_stream *stream;
	struct pd_gate *gate;
	struct staged_transfer *active, **last;         /* in the order of their calls */
	struct staged_transfer *idle;
	struct host_buffer *buffers;			/* the unused ones */
	char *array;                                    /* what buffers are parts of; or NULL */
	size_t array_bytes, array_used;
};

/* ---- memory ---- */

static bool in_array(const struct staged *s, const struct host_buffer *buffer)
{
	const char *memory = buffer->memory;

	return s->array && memory >= s->array && memory < s->array + s->array_bytes;
}

/* Returns memory for a buffer that is kept: of the array, as long as it lasts. */
static void *take_memory(struct staged *s, size_t bytes, struct pd_error *err)
{
	char *memory = s->array + s->array_used;

	if (bytes > s->array_bytes - s->array_used)
		return s->device->ops->memory.host_alloc(s->device, bytes, err);
	s->array_used += bytes;
	return memory;
}

/* Takes an unused buffer that fits without wasting more than half, or makes one. */
static struct host_buffer *take_buffer(struct staged *s, size_t bytes, struct pd_error *err)
{
	struct host_buffer **at = &s->buffers, *buffer;

	while (*at && ((*at)->bytes < bytes || (*at)->bytes / 2 > bytes))
		at = &(*at)->next;
	buffer = *at;
	if (buffer) {
		*at = buffer->next;
		return buffer;
	}
	buffer = pd_zalloc(sizeof(*buffer));
	buffer->bytes = pd_align(bytes ? bytes : 1);
	buffer->memory = take_memory(s, buffer->bytes, err);
	if (buffer->memory)
		return buffer;
	free(buffer);
	return NULL;
}

static void free_buffers(struct staged *s)
{
	for (struct host_buffer *buffer = s->buffers, *next; buffer; buffer = next) {
		next = buffer->next;
		if (!in_array(s, buffer))
			s->device->ops->memory.host_free(s->device, buffer->memory);
		free(buffer);
	}
	if (s->array)
		s->device->ops->memory.host_free(s->device, s->array);
}

static void give_buffer(struct staged *s, struct host_buffer *buffer)
{
	buffer->next = s->buffers;
	s->buffers = buffer;
}

static struct staged_transfer *take_transfer(struct staged *s)
{
	struct staged_transfer *x = s->idle;

	if (!x)
		return pd_zalloc(sizeof(*x));
	s->idle = x->next;
	return x;
}

/* ---- one transfer ---- */

static void complete(struct staged *s, struct staged_transfer *x)
{
	pd_event_complete(x->done, x->first.start_ns, x->second.end_ns, s->gate);
}

static void fail(struct staged *s, struct staged_transfer *x)
{
	struct pd_error err;

	pd_error_peer(&err, x->peer, "%s of %zu bytes %s rank %d: what it waited for failed",
		      x->receive ? "receive" : "send", x->bytes, x->receive ? "from" : "to",
		      x->peer);
	pd_event_fail(x->done, &err, s->gate);
}

/* Copies the ready buffer to the host and posts the send behind that copy. */
static int begin_send(struct staged *s, struct staged_transfer *x)
{
	int status;

	pd_event_arm(&x->first);
	status = pd_submit_copy(s->stream, x->buffer->memory, x->buf, x->bytes,
				     PD_COPY_TO_HOST, &x->first);
	if (status != 0)
		return status == PD_AGAIN ? 0 : -1;
	x->phase = FIRST;
	pd_event_arm(&x->second);
	return s->host->ops->send(s->host, x->peer, x->tag, x->buffer->memory, x->bytes, &x->first,
				   &x->second) < 0 ? -1 : 1;
}

/* Copies what was received to the device. */
static int end_receive(struct staged *s, struct staged_transfer *x)
{
	int status;

	pd_event_arm(&x->second);
	status = pd_submit_copy(s->stream, x->buf, x->buffer->memory, x->bytes,
					     PD_COPY_TO_DEVICE, &x->second);
	if (status != 0)
		return status == PD_AGAIN ? 0 : -1;
	x->phase = SECOND;
	return 1;
}

/* Returns the event that the transfer waits for now; NULL: none. */
static const struct pd_event *pending(const struct staged_transfer *x)
{
	return x->phase == WAITING ? x->after : x->phase == FIRST ? &x->first : &x->second;
}

/*
 * Advances a transfer.  Returns 1 if it got further or ended (*over_p), 0 if not, -1 where the
 * transport or the device is broken.
 */
static int move(struct staged *s, struct staged_transfer *x, bool *over_p)
{
	const struct pd_event *ev = pending(x);

	*over_p = false;
	if (ev && !pd_event_done(ev))
		return 0;
	if (ev && pd_event_failed(ev)) {
		/* a send's second event is still with the host's transport and will fail, too */
		if (x->phase == FIRST && !x->receive) {
			x->phase = SECOND;
			return 1;
		}
		fail(s, x);
		*over_p = true;
		return 1;
	}
	if (x->phase == WAITING)
		return begin_send(s, x);
	if (x->phase == FIRST && x->receive)
		return end_receive(s, x);
	if (x->phase == FIRST) {
		x->phase = SECOND;
		return 1;
	}
	complete(s, x);
	*over_p = true;
	return 1;
}

/* Advances all transfers; returns how many got further. */
static int move_all(struct staged *s)
{
	struct staged_transfer **at = &s->active;
	int moved = 0;

	while (*at) {
		struct staged_transfer *x = *at;
		bool over;
		int verdict = move(s, x, &over);

		if (verdict < 0)
			return -1;
		moved += verdict;
		if (!over) {
			at = &x->next;
			continue;
		}
		*at = x->next;
		if (!*at)
			s->last = at;
		give_buffer(s, x->buffer);
		x->next = s->idle;
		s->idle = x;
	}
	return moved;
}

/* ---- the seam ---- */

static struct staged_transfer *enlist(struct staged *s, const struct staged_transfer *what,
				      struct pd_error *err)
{
	struct host_buffer *buffer = take_buffer(s, what->bytes, err);
	struct staged_transfer *x;

	if (!buffer)
		return NULL;
	x = take_transfer(s);
	*x = *what;
	x->buffer = buffer;
	*s->last = x;
	s->last = &x->next;
	return x;
}

/* Fails the event of a transfer that could not be posted. */
static int refuse(struct staged *s, struct pd_event *done, const struct pd_error *why)
{
	pd_event_fail(done, why, s->gate);
	return -1;
}

static int staged_send(struct pd_transport *base, int peer, uint64_t tag, const void *buf,
		       size_t bytes, const struct pd_event *after, struct pd_event *done)
{
	struct staged *s = (struct staged *)base;
	struct pd_error err;
	struct staged_transfer *x = enlist(s, &(struct staged_transfer){
		.peer = peer, .tag = tag, .buf = (char *)buf, .bytes = bytes, .after = after,
		.done = done }, &err);

	if (!x)
		return refuse(s, done, &err);
	return !after || (pd_event_done(after) && !pd_event_failed(after))
		? (begin_send(s, x) < 0 ? -1 : 0) : 0;
}

static int staged_recv(struct pd_transport *base, int peer, uint64_t tag, void *buf, size_t bytes,
		       const struct pd_event *after, struct pd_event *done)
{
	struct staged *s = (struct staged *)base;
	struct pd_error err;
	struct staged_transfer *x = enlist(s, &(struct staged_transfer){
		.receive = true, .phase = FIRST, .peer = peer, .tag = tag, .buf = buf,
		.bytes = bytes, .done = done }, &err);

	if (!x)
		return refuse(s, done, &err);
	pd_event_arm(&x->first);
	return s->host->ops->recv(s->host, peer, tag, x->buffer->memory, bytes, after, &x->first);
}

static int staged_progress(struct pd_transport *base)
{
	struct staged *s = (struct staged *)base;
	int inner = s->host->ops->progress(s->host), mine = move_all(s);

	/* transfers advance even if the host's transport is broken: their events have failed */
	return inner < 0 || mine < 0 ? -1 : inner + mine;
}

static int staged_arm(struct pd_transport *base)
{
	struct staged *s = (struct staged *)base;

	for (const struct staged_transfer *x = s->active; x; x = x->next) {
		const struct pd_event *ev = pending(x);

		if (!ev || pd_event_done(ev))
			return 1;
	}
	return s->host->ops->arm(s->host);
}

/* Fails the transfers that have not begun. */
static void drop_waiting(struct staged *s)
{
	for (struct staged_transfer **at = &s->active; *at;) {
		struct staged_transfer *x = *at;

		if (x->phase != WAITING) {
			at = &x->next;
			continue;
		}
		*at = x->next;
		fail(s, x);
		give_buffer(s, x->buffer);
		free(x);
	}
}

/*
 * What was received before the host's transport is cancelled is still copied to the device.  All
 * other events of that transport fail, and so do their transfers.
 */
static void staged_close(struct pd_transport *base)
{
	struct staged *s = (struct staged *)base;

	drop_waiting(s);
	s->connector->cancel(s->host);
	while (move_all(s) > 0)
		;
	if (s->stream)
		s->device->ops->stream.close(s->stream);
	while (move_all(s) > 0)
		;
	for (struct staged_transfer *x = s->active, *next; x; x = next) {
		next = x->next;
		fail(s, x);
		give_buffer(s, x->buffer);
		free(x);
	}
	for (struct staged_transfer *x = s->idle, *next; x; x = next) {
		next = x->next;
		free(x);
	}
	free_buffers(s);
	free(s);
}

static int staged_fd(struct pd_transport *base)
{
	struct staged *s = (struct staged *)base;

	return s->host->ops->fd(s->host);
}

static const struct pd_transport_ops staged_ops = {
	.close = staged_close,
	.send = staged_send,
	.recv = staged_recv,
	.progress = staged_progress,
	.fd = staged_fd,
	.arm = staged_arm,
};

static int allocate_array(struct staged *s, int64_t bytes, struct pd_error *err)
{
	if (bytes <= 0)
		return 0;
	s->array = s->device->ops->memory.host_alloc(s->device, (size_t)bytes, err);
	s->array_bytes = s->array ? (size_t)bytes : 0;
	return s->array ? 0 : -1;
}

/* ---- the provider ---- */

/* NULL: the device has no stream left, or the host no memory. */
static struct pd_transport *staged_open(const struct pd_transport_config *config, struct pd_error *err)
{
	struct staged *s = pd_zalloc(sizeof(*s));

	s->base.ops = &staged_ops;
	s->host = config->host->transport;
	s->connector = config->host->by->connector;
	s->device = config->device;
	s->gate = config->gate;
	s->last = &s->active;
	s->stream = s->device->ops->stream.open(s->device, err);
	if (s->stream && allocate_array(s, config->under_way_bytes, err) == 0)
		return &s->base;
	staged_close(&s->base);
	return NULL;
}

const struct pd_transport_provider pd_provider_staged = {
	.name = "staged",
	.alone = true,
	.before = "what GPUs exchange goes through host memory: ",
	.after = "",
	.open = staged_open,
};
