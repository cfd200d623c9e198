/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/reduce/direct.h"

#include "base/buffer_pieces.h"
#include "base/mem.h"
#include "base/shared_memory.h"
#include "engine/device/submit.h"
#include "sums/direct.h"

#include <stdlib.h>

#define NOTE_TAG     (PD_REDUCTION_TAGS - 1)    /* the messages' reduction has others */

enum { READY, WRITTEN };        /* tags */

_Static_assert(PD_DIRECT_MEMBERS <= PD_SUM_SOURCES, "a device sums up what all members have");

/* A note from a member to the others about its buffer. */
struct note {
	struct pd_shared_place place;   /* of its buffer */
	int64_t mapped;                 /* it has mapped all buffers */
};

/* The state of the members' agreement about a buffer. */
enum standing { TELLS_PLACE, TELLS_WHETHER, DIRECT, BY_MESSAGES };

struct buffer {
	struct buffer *next;
	float *buf;
	enum standing standing;
	bool told;                      /* a sum with the notes of this standing has begun */
	struct note own, *notes;        /* by member */
	float *parts[PD_SUM_SOURCES];   /* of this member's share, in all buffers; NULL: not mapped */
};

/* Messages between this member and another. */
struct pair {
	struct pd_event ready_out, ready_in, written_out, written_in;   /* or the notes, as ready */
};

struct direct {
	struct pd_reduction base;
	struct pd_reduction_config config;
	struct pd_reduction *messages;
	struct buffer *buffers;
	struct pair *pairs;
	struct pd_event summed;         /* my share is; or the messages' sum is done */

	/* the one under way */
	struct buffer *at;
	const struct pd_event *after;
	struct pd_event *done;
	size_t step;
};

static size_t share_begin(const struct direct *d, int i)
{
	return pd_piece_begin(d->config.floats, d->config.members, i);
}

static size_t share_floats(const struct direct *d)
{
	return share_begin(d, d->config.me + 1) - share_begin(d, d->config.me);
}

static void unmap(struct direct *d, struct buffer *buffer)
{
	for (int i = 0; i < d->config.members; i++) {
		if (i != d->config.me && buffer->parts[i])
			pd_shared_unmap(buffer->parts[i], share_floats(d) * sizeof(float));
		buffer->parts[i] = NULL;
	}
}

static void direct_close(struct pd_reduction *r)
{
	struct direct *d = (struct direct *)r;

	while (d->buffers) {
		struct buffer *buffer = d->buffers;

		d->buffers = buffer->next;
		unmap(d, buffer);
		free(buffer->notes);
		free(buffer);
	}
	d->messages->ops->close(d->messages);
	free(d->pairs);
	free(d);
}

static struct buffer *buffer_of(struct direct *d, float *buf)
{
	struct buffer *buffer;

	for (buffer = d->buffers; buffer; buffer = buffer->next)
		if (buffer->buf == buf)
			return buffer;
	buffer = pd_zalloc(sizeof(*buffer));
	*buffer = (struct buffer){ .next = d->buffers, .buf = buf,
				   .standing = d->config.device->ops->memory.shares ? DIRECT : TELLS_PLACE,
				   .own.place = pd_shared_place_of(buf),
				   .notes = pd_calloc((size_t)d->config.members,
						      sizeof(*buffer->notes)) };
	d->buffers = buffer;
	return buffer;
}

/* Maps this member's share of all buffers; false: not all of them can be. */
static bool map(struct direct *d, struct buffer *buffer)
{
	size_t begin = share_begin(d, d->config.me);

	for (int i = 0; i < d->config.members; i++) {
		struct pd_shared_place place = buffer->notes[i].place;

		place.offset += begin * sizeof(float);
		buffer->parts[i] = i == d->config.me ? buffer->buf + begin
				 : pd_shared_map(&place, share_floats(d) * sizeof(float));
		if (!buffer->parts[i])
			return false;
	}
	return true;
}

static bool all_shared(const struct direct *d, const struct buffer *buffer)
{
	for (int i = 0; i < d->config.members; i++)
		if (buffer->notes[i].place.pid == 0)
			return false;
	return true;
}

static bool all_mapped(const struct direct *d, const struct buffer *buffer)
{
	for (int i = 0; i < d->config.members; i++)
		if (!buffer->notes[i].mapped)
			return false;
	return true;
}

/* Draws the conclusion from the notes that came with the last sum of the buffer. */
static void conclude(struct direct *d, struct buffer *buffer)
{
	if (!buffer->told)
		return;
	buffer->told = false;
	buffer->notes[d->config.me] = buffer->own;
	if (buffer->standing == TELLS_PLACE && all_shared(d, buffer)) {
		buffer->own.mapped = map(d, buffer);
		buffer->standing = TELLS_WHETHER;
	} else if (buffer->standing == TELLS_WHETHER && all_mapped(d, buffer)) {
		buffer->standing = DIRECT;
	} else {
		buffer->standing = BY_MESSAGES;
		unmap(d, buffer);
	}
}

static int post(struct direct *d, bool send, int member, uint64_t tag, void *at, size_t bytes,
		const struct pd_event *after, struct pd_event *ev)
{
	struct pd_transport *t = d->config.transport;

	pd_event_arm(ev);
	return send ? t->ops->send(t, d->config.ranks[member], tag, at, bytes, after, ev)
		    : t->ops->recv(t, d->config.ranks[member], tag, at, bytes, after, ev);
}

static int tell(struct direct *d, struct buffer *buffer, uint64_t tag)
{
	buffer->told = true;
	for (int i = 0; i < d->config.members; i++)
		if (i != d->config.me &&
		    (post(d, false, i, tag, &buffer->notes[i], sizeof(buffer->notes[i]), NULL,
			  &d->pairs[i].ready_in) < 0 ||
		     post(d, true, i, tag, &buffer->own, sizeof(buffer->own), NULL,
			  &d->pairs[i].ready_out) < 0))
			return -1;
	return 0;
}

static int post_all(struct direct *d, uint64_t tag)
{
	for (int k = 1; k < d->config.members; k++) {
		int i = (d->config.me + k) % d->config.members;
		struct pair *pair = &d->pairs[i];

		if (post(d, false, i, tag + READY, d->at->buf, 0, NULL, &pair->ready_in) < 0 ||
		    post(d, false, i, tag + WRITTEN, d->at->buf, 0, NULL, &pair->written_in) < 0 ||
		    post(d, true, i, tag + READY, d->at->buf, 0, d->after, &pair->ready_out) < 0 ||
		    post(d, true, i, tag + WRITTEN, d->at->buf, 0, &d->summed,
			 &pair->written_out) < 0)
			return -1;
	}
	return 0;
}

/* Steps of this reduction's own, besides those of the messages'. */
static size_t steps_upto(const struct direct *d, enum pd_reduction_part upto)
{
	size_t n = (size_t)d->config.members;

	if (d->at->standing == DIRECT)
		return upto == PD_REDUCTION_ALL ? 4 * n + 2 : n + 1;
	return upto == PD_REDUCTION_ALL && d->at->standing != BY_MESSAGES ? 2 * n + 1 : 0;
}

static bool direct_issued(const struct pd_reduction *r, enum pd_reduction_part upto)
{
	const struct direct *d = (const struct direct *)r;

	return !d->at || (d->step >= steps_upto(d, upto) &&
			  (d->at->standing == DIRECT || d->messages->ops->issued(d->messages, upto)));
}

/* Bytes that others read of this member's buffer, or get from it, count as sent, as by messages. */
static void count_sent(struct direct *d)
{
	size_t own = share_floats(d), others = (size_t)(d->config.members - 1);

	d->base.sent_bytes = (int64_t)((d->config.floats - own + others * own) * sizeof(float));
	d->base.messages = 2 * (d->config.members - 1);
}

static int direct_start(struct pd_reduction *r, float *buf, uint64_t tag_base,
			const struct pd_event *after, struct pd_event *done)
{
	struct direct *d = (struct direct *)r;
	struct pd_reduction *messages = d->messages;

	if (!direct_issued(r, PD_REDUCTION_ALL))
		pd_bug("an all-reduce begins before the last one is done");
	d->at = buffer_of(d, buf);
	d->after = after;
	d->done = done;
	d->step = 0;
	conclude(d, d->at);
	d->base.polls = d->at->standing == BY_MESSAGES && messages->polls;
	if (d->at->standing != BY_MESSAGES)
		pd_event_arm(&d->summed);
	if (d->at->standing == DIRECT) {
		count_sent(d);
		return post_all(d, tag_base);
	}
	if (d->at->standing != BY_MESSAGES && tell(d, d->at, tag_base + NOTE_TAG) < 0)
		return -1;
	if (messages->ops->start(messages, buf, tag_base, after,
				 d->at->standing == BY_MESSAGES ? done : &d->summed) < 0)
		return -1;
	d->base.sent_bytes = messages->sent_bytes;
	d->base.messages = messages->messages;
	return 0;
}

static int wait_for(struct direct *d, const struct pd_event *ev)
{
	return ev ? pd_submit_wait(d->config.stream, (struct pd_event *)ev) : 0;
}

static int finish(struct direct *d)
{
	return pd_submit_sum(d->config.stream, d->at->buf, NULL, 0, 0, d->done);
}

/* After the messages' sum, waits for the notes; the last step completes `done`. */
static int issue_told(struct pd_reduction *r)
{
	struct direct *d = (struct direct *)r;
	int n = d->config.members, step = (int)d->step, i = step % n;

	if (step == 2 * n)
		return finish(d);
	if (i == d->config.me)
		return 0;
	return wait_for(d, step < n ? &d->pairs[i].ready_in : &d->pairs[i].ready_out);
}

/*
 * Waits until all members are ready, and adds; waits until its messages have left and all members have
 * written; the last step completes `done`.
 */
static int issue_direct(struct pd_reduction *r)
{
	struct direct *d = (struct direct *)r;
	int n = d->config.members, step = (int)d->step, i;
	struct pair *pair;

	if (step < n)
		return wait_for(d, step == d->config.me ? d->after : &d->pairs[step].ready_in);
	step -= n;
	if (step == 0)
		return pd_submit_sum_all(d->config.stream, d->at->parts, n,
							   share_floats(d), &d->summed);
	step--;
	if (step == 3 * n)
		return finish(d);
	i = step % n;
	pair = &d->pairs[i];
	if (i == d->config.me)
		return 0;
	return wait_for(d, step < n ? &pair->ready_out : step < 2 * n ? &pair->written_out
								      : &pair->written_in);
}

static int direct_progress(struct pd_reduction *r, enum pd_reduction_part upto)
{
	struct direct *d = (struct direct *)r;
	bool direct = d->at && d->at->standing == DIRECT;
	int n = 0, more;

	if (!d->at)
		return 0;
	if (!direct) {
		d->messages->may_wait = d->base.may_wait || !d->base.polls;
		n = d->messages->ops->progress(d->messages, upto);
		if (n < 0 || !d->messages->ops->issued(d->messages, upto))
			return n;
	}
	more = pd_reduction_advance(r, &d->step, steps_upto(d, upto), direct ? issue_direct : issue_told);
	return more < 0 ? -1 : n + more;
}

static int64_t direct_started_ns(const struct pd_reduction *r)
{
	const struct direct *d = (const struct direct *)r;
	int64_t started_ns = d->summed.start_ns;

	if (d->at->standing != DIRECT)
		return d->messages->ops->started_ns(d->messages);
	for (int i = 0; i < d->config.members; i++)
		if (i != d->config.me && d->pairs[i].ready_out.start_ns < started_ns)
			started_ns = d->pairs[i].ready_out.start_ns;
	return started_ns;
}

static size_t direct_staging_bytes(const struct pd_reduction *r)
{
	const struct direct *d = (const struct direct *)r;

	return d->messages->ops->staging_bytes(d->messages);
}

static const struct pd_reduction_ops direct_ops = {
	.close = direct_close,
	.start = direct_start,
	.progress = direct_progress,
	.issued = direct_issued,
	.started_ns = direct_started_ns,
	.staging_bytes = direct_staging_bytes,
};

struct pd_reduction *pd_direct_over(struct pd_reduction *messages,
				    const struct pd_reduction_config *config)
{
	const struct pd_memory_ops *memory = &config->device->ops->memory;
	struct direct *d;

	if (!memory->shared_alloc || (memory->shares && !memory->shares(config->device, config->ranks,
										  config->members, config->floats)))
		return messages;
	d = pd_zalloc(sizeof(*d));
	d->base.ops = &direct_ops;
	d->config = *config;
	d->messages = messages;
	d->pairs = pd_calloc((size_t)config->members, sizeof(*d->pairs));
	return &d->base;
}
