/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel is the socket between a launcher and a rank.  It carries JSON messages, one a line or
 * compressed, and between them, in order, the bytes of a stream, which the receiver hands on as they
 * come.
 */
#pragma once

#include "base/json.h"
#include "run/launch/message.h"
#include "run/launch/packed.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

struct pd_channel {
	int fd;
	pthread_mutex_t sending;        /* several threads may send; one receives */
	char *buffer;
	size_t used, capacity;
	size_t coming;	/* bytes of the peer's stream that come before its next message */
	size_t packed, unpacked;        /* bytes of a compressed message that comes next, and its text's */
	void (*take)(void *context, const char *bytes, size_t count);
	void *context;
};

/*
 * Takes over fd.  A send waits at most `patience_s` seconds until the peer takes it; 0: for ever.
 */
void pd_channel_init(struct pd_channel *channel, int fd, int patience_s);
void pd_channel_release(struct pd_channel *channel);         /* closes fd */

/* Sends a message, whose reference it takes. */
int pd_channel_send(struct pd_channel *channel, json_t *message, struct pd_error *err);
/* Sends a compressed message, which arrives as if it had been sent as it was. */
int pd_channel_send_packed(struct pd_channel *channel, const struct pd_packed *packed,
			   struct pd_error *err);
/*
 * Sends {"event": "error", "text": text, "status": status}, the last message of a process.
 * Allocates nothing, and does not wait long for a thread that is sending.
 */
void pd_channel_last_word(struct pd_channel *channel, const char *text, int status);
/*
 * Returns 1 and a new reference, 0 where no message is whole yet, or -1 where the peer is gone or
 * sends something else.
 */
int pd_channel_receive(struct pd_channel *channel, json_t **message_p);
/* Receives likewise, but waits up to timeout_ms (-1: for ever). */
int pd_channel_wait(struct pd_channel *channel, int timeout_ms, json_t **message_p);
/*
 * Returns a new reference to the next message of that kind.  Until then heard() is given what pd_channel_wait()
 * returns, and each message, that one too; where it returns -1, with an error, NULL is returned.
 */
json_t *pd_channel_hear(struct pd_channel *channel, const char *event, int timeout_ms,
			int (*heard)(void *context, int verdict, const json_t *message, struct pd_error *err),
			void *context, struct pd_error *err);

/*
 * Opens a stream to the peer, to be closed before the channel is released; NULL with errno.  Once
 * flushed, what was written arrives before any message that is sent later.
 */
FILE *pd_channel_stream(struct pd_channel *channel);
/* Sets the function that is given the bytes of the peer's stream while messages are received. */
void pd_channel_on_bytes(struct pd_channel *channel,
			 void (*take)(void *context, const char *bytes, size_t count),
			 void *context);
