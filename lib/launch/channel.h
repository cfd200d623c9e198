/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON messages, a line each, over the socket between a launcher and a rank; and between them, in
 * order, the bytes of a stream, which the other side hands on as they come.
 */
#ifndef PD_LAUNCH_CHANNEL_H
#define PD_LAUNCH_CHANNEL_H

#include "base/error.h"

#include <jansson.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

struct pd_channel {
	int fd;
	pthread_mutex_t sending;        /* several threads may send, one receives */
	char *buffer;
	size_t used, capacity;
	size_t coming;                  /* bytes of the other side's stream, before the next message */
	void (*take)(void *context, const char *bytes, size_t count);
	void *context;
};

/* Takes over fd.  A send waits for room at most so many seconds; 0: as long as it takes. */
void pd_channel_init(struct pd_channel *channel, int fd, int patience_s);
void pd_channel_release(struct pd_channel *channel);         /* closes fd */

/* Sends; takes over message. */
int pd_channel_send(struct pd_channel *channel, json_t *message, struct pd_error *err);
/*
 * The last thing that a process says, {"event": "error", "text": text, "status": status}: without
 * allocating, and without waiting long for a thread that is sending.
 */
void pd_channel_last_word(struct pd_channel *channel, const char *text, int status);
/* 1 and a new reference, 0: nothing whole yet, -1: the other side is gone (or talks nonsense). */
int pd_channel_receive(struct pd_channel *channel, json_t **message_p);
/* The same, waiting up to timeout_ms (-1: for ever). */
int pd_channel_wait(struct pd_channel *channel, int timeout_ms, json_t **message_p);

/*
 * A stream to the other side, to be closed before the channel is released.  What is written is
 * there once it is flushed, before any message that is sent later; NULL with errno.
 */
FILE *pd_channel_stream(struct pd_channel *channel);
/* What comes of the other side's stream while messages are received; nobody else takes it. */
void pd_channel_on_bytes(struct pd_channel *channel,
			 void (*take)(void *context, const char *bytes, size_t count),
			 void *context);

/* The member "event" of a message is this word. */
int pd_message_is(const json_t *message, const char *event);

#endif
