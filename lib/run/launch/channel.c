/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/channel.h"

#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STREAM_BYTES ((size_t)64 << 10) /* the most bytes of a stream in one piece */

void pd_channel_init(struct pd_channel *channel, int fd, int patience_s)
{
	struct timeval timeout = { .tv_sec = patience_s };

	*channel = (struct pd_channel){ .fd = fd };
	pthread_mutex_init(&channel->sending, NULL);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

void pd_channel_release(struct pd_channel *channel)
{
	if (channel->fd >= 0)
		close(channel->fd);
	free(channel->buffer);
	*channel = (struct pd_channel){ .fd = -1 };
}

/* Sends all bytes.  The caller holds `sending`. Returns -1 with errno set. */
static int send_all(struct pd_channel *channel, const char *bytes, size_t count)
{
	while (count > 0) {
		ssize_t n = send(channel->fd, bytes, count, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		bytes += n;
		count -= (size_t)n;
	}
	return 0;
}

/* Sends a line and what belongs to it.  Returns -1 with errno set. */
static int send_pair(struct pd_channel *channel, const char *line, size_t length, const char *bytes,
		     size_t count)
{
	int status;

	pthread_mutex_lock(&channel->sending);
	status = send_all(channel, line, length);
	if (status == 0)
		status = send_all(channel, bytes, count);
	pthread_mutex_unlock(&channel->sending);
	return status;
}

static int cannot_send(struct pd_error *err)
{
	return pd_error_failed(err, "cannot talk to the other side: %s",
			       errno == EAGAIN ? "it does not listen" : strerror(errno));
}

int pd_channel_send(struct pd_channel *channel, json_t *message, struct pd_error *err)
{
	char *text = pd_message_text(message);
	size_t length = strlen(text);
	int status;

	text[length++] = '\n';          /* replaces the final zero */
	status = send_pair(channel, text, length, NULL, 0) < 0 ? cannot_send(err) : 0;
	free(text);
	return status;
}

int pd_channel_send_packed(struct pd_channel *channel, const struct pd_packed *packed,
			   struct pd_error *err)
{
	char head[96];
	int length = snprintf(head, sizeof(head), "{\"event\":\"packed\",\"count\":%zu,\"bytes\":%zu}\n",
			      packed->count, packed->bytes);

	return send_pair(channel, head, (size_t)length, packed->text, packed->count) < 0
	       ? cannot_send(err) : 0;
}

/* ---- the stream ---- */

static ssize_t send_bytes(void *cookie, const char *bytes, size_t count)
{
	char head[64];
	int length = snprintf(head, sizeof(head), "{\"event\":\"bytes\",\"count\":%zu}\n", count);

	return send_pair(cookie, head, (size_t)length, bytes, count) < 0 ? 0 : (ssize_t)count;
}

FILE *pd_channel_stream(struct pd_channel *channel)
{
	FILE *stream = fopencookie(channel, "w", (cookie_io_functions_t){ .write = send_bytes });

	if (stream)
		setvbuf(stream, NULL, _IOFBF, STREAM_BYTES);
	return stream;
}

void pd_channel_on_bytes(struct pd_channel *channel,
			 void (*take)(void *context, const char *bytes, size_t count),
			 void *context)
{
	channel->take = take;
	channel->context = context;
}

static void drop_front(struct pd_channel *channel, size_t count)
{
	channel->used -= count;
	memmove(channel->buffer, channel->buffer + count, channel->used);
}

/* Hands the stream's bytes at the front of the buffer to `take`. */
static void take_bytes(struct pd_channel *channel)
{
	size_t count = channel->coming < channel->used ? channel->coming : channel->used;

	if (count == 0)
		return;
	if (channel->take)
		channel->take(channel->context, channel->buffer, count);
	channel->coming -= count;
	drop_front(channel, count);
}

/* ---- messages ---- */

void pd_channel_last_word(struct pd_channel *channel, const char *text, int status)
{
	char line[512];
	int n = snprintf(line, sizeof(line), "{\"event\": \"error\", \"text\": \"%.400s\","
			 " \"status\": %d}\n", text, status);

	/* the thread that sends may be this one, and then never ends */
	for (int i = 0; i < 100 && pthread_mutex_trylock(&channel->sending) != 0; i++)
		usleep(1000);
	if (send(channel->fd, line, (size_t)n, MSG_NOSIGNAL) < 0)
		return;                 /* the other side is gone */
}

/* Takes a whole line at the front of the buffer, as a message; false: there is none yet. */
static bool take_line(struct pd_channel *channel, json_t **message_p)
{
	char *end = channel->used ? memchr(channel->buffer, '\n', channel->used) : NULL;
	size_t length;

	if (!end)
		return false;
	length = (size_t)(end - channel->buffer);
	*message_p = pd_message_parse(channel->buffer, length);
	drop_front(channel, length + 1);
	return true;
}

/* Takes a compressed message likewise. */
static bool take_packed(struct pd_channel *channel, json_t **message_p)
{
	struct pd_packed packed = { channel->packed, channel->unpacked, channel->buffer };

	if (channel->used < packed.count)
		return false;
	*message_p = pd_unpack(&packed);
	drop_front(channel, packed.count);
	channel->packed = 0;
	return true;
}

static size_t number(const json_t *message, const char *key)
{
	return (size_t)pd_member_int(message, key);
}

/* Returns whether the line is the head of what follows it. */
static bool take_head(struct pd_channel *channel, const json_t *message)
{
	if (pd_message_is(message, "bytes"))
		channel->coming = number(message, "count");
	else if (pd_message_is(message, "packed"))
		channel->packed = number(message, "count");
	else
		return false;
	channel->unpacked = number(message, "bytes");
	return true;
}

/* Takes a message, after the stream's bytes before it have been handed on. */
static int take_message(struct pd_channel *channel, json_t **message_p)
{
	while (channel->coming == 0) {
		if (!(channel->packed > 0 ? take_packed : take_line)(channel, message_p))
			return 0;
		if (!json_is_object(*message_p)) {
			json_decref(*message_p);
			*message_p = NULL;
			return -1;
		}
		if (!take_head(channel, *message_p))
			return 1;
		json_decref(*message_p);
		take_bytes(channel);
	}
	return 0;
}

int pd_channel_receive(struct pd_channel *channel, json_t **message_p)
{
	int verdict;

	take_bytes(channel);
	while ((verdict = take_message(channel, message_p)) == 0) {
		ssize_t n;

		channel->buffer = pd_grow(channel->buffer, &channel->capacity,
					  channel->used + 65536, 1);
		n = recv(channel->fd, channel->buffer + channel->used,
			 channel->capacity - channel->used, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (n <= 0)
			return -1;
		channel->used += (size_t)n;
		take_bytes(channel);
	}
	return verdict;
}

int pd_channel_wait(struct pd_channel *channel, int timeout_ms, json_t **message_p)
{
	int verdict;

	while ((verdict = pd_channel_receive(channel, message_p)) == 0) {
		struct pollfd p = { .fd = channel->fd, .events = POLLIN };
		int n = poll(&p, 1, timeout_ms);

		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -1;
	}
	return verdict;
}

json_t *pd_channel_hear(struct pd_channel *channel, const char *event, int timeout_ms,
			int (*heard)(void *context, int verdict, const json_t *message, struct pd_error *err),
			void *context, struct pd_error *err)
{
	for (;;) {
		json_t *message = NULL;
		int verdict = pd_channel_wait(channel, timeout_ms, &message);
		int status = heard(context, verdict, message, err);

		if (status == 0 && pd_message_is(message, event))
			return message;
		json_decref(message);
		if (status < 0)
			return NULL;
	}
}
