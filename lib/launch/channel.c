/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/channel.h"

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

int pd_channel_send(struct pd_channel *channel, json_t *message, struct pd_error *err)
{
	char *text = json_dumps(message, JSON_COMPACT);
	size_t length = text ? strlen(text) : 0;
	int status;

	json_decref(message);
	if (!text)
		pd_bug("channel: a message that cannot be written");
	text[length++] = '\n';          /* replaces the final zero */
	pthread_mutex_lock(&channel->sending);
	status = send_all(channel, text, length);
	if (status < 0)
		pd_error_failed(err, "cannot talk to the other side: %s",
				errno == EAGAIN ? "it does not listen" : strerror(errno));
	pthread_mutex_unlock(&channel->sending);
	free(text);
	return status;
}

/* ---- the stream ---- */

static ssize_t send_bytes(void *cookie, const char *bytes, size_t count)
{
	struct pd_channel *channel = cookie;
	char head[64];
	int length = snprintf(head, sizeof(head), "{\"event\":\"bytes\",\"count\":%zu}\n", count);
	int status;

	pthread_mutex_lock(&channel->sending);
	status = send_all(channel, head, (size_t)length);
	if (status == 0)
		status = send_all(channel, bytes, count);
	pthread_mutex_unlock(&channel->sending);
	return status == 0 ? (ssize_t)count : 0;
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

/* Hands the stream's bytes at the front of the buffer to `take`. */
static void take_bytes(struct pd_channel *channel)
{
	size_t count = channel->coming < channel->used ? channel->coming : channel->used;

	if (count == 0)
		return;
	if (channel->take)
		channel->take(channel->context, channel->buffer, count);
	channel->coming -= count;
	channel->used -= count;
	memmove(channel->buffer, channel->buffer + count, channel->used);
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

/*
 * Takes a whole line at the front of the buffer, as a message; returns 0 where there is none yet.
 */
static int take_line(struct pd_channel *channel, json_t **message_p)
{
	char *end = channel->used ? memchr(channel->buffer, '\n', channel->used) : NULL;
	size_t length;

	if (!end)
		return 0;
	length = (size_t)(end - channel->buffer);
	*message_p = json_loadb(channel->buffer, length, 0, NULL);
	channel->used -= length + 1;
	memmove(channel->buffer, end + 1, channel->used);
	if (json_is_object(*message_p))
		return 1;
	json_decref(*message_p);
	*message_p = NULL;
	return -1;
}

/* Takes a message, after the stream's bytes before it have been handed on. */
static int take(struct pd_channel *channel, json_t **message_p)
{
	int verdict = 0;

	while (channel->coming == 0 && (verdict = take_line(channel, message_p)) > 0 &&
	       pd_message_is(*message_p, "bytes")) {
		channel->coming = (size_t)json_integer_value(json_object_get(*message_p, "count"));
		json_decref(*message_p);
		verdict = 0;
		take_bytes(channel);
	}
	return verdict;
}

int pd_channel_receive(struct pd_channel *channel, json_t **message_p)
{
	int verdict;

	take_bytes(channel);
	while ((verdict = take(channel, message_p)) == 0) {
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

int pd_message_is(const json_t *message, const char *event)
{
	const char *text = json_string_value(json_object_get(message, "event"));

	return text && strcmp(text, event) == 0;
}
