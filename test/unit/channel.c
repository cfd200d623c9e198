/* SPDX-License-Identifier: Apache-2.0 */
/* A channel: messages of two threads and a stream, over one socket, each whole and in order. */
#include "launch/channel.h"

#include "base/mem.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LINES 50000                     /* of the stream: more than a socket holds */
#define EVERY 500                       /* lines, then a message */
#define LIMIT_MS 20000

static struct pd_channel here, there;

static void *chatter(void *unused)
{
	for (int i = 0; i < 2000; i++)
		pd_channel_send(&there, json_pack("{s:s, s:i}", "event", "alive", "n", i), NULL);
	return NULL;
}

static void *writer(void *unused)
{
	FILE *stream = pd_channel_stream(&there);
	pthread_t thread;

	pthread_create(&thread, NULL, chatter, NULL);
	for (int i = 0; i < LINES; i++) {
		if (i % EVERY == 0) {
			fflush(stream);
			pd_channel_send(&there, json_pack("{s:s, s:i}", "event", "line", "n", i),
					NULL);
		}
		fprintf(stream, "{\"line\": %d}\n", i);
	}
	fclose(stream);
	pthread_join(thread, NULL);
	pd_channel_send(&there, json_pack("{s:s}", "event", "done"), NULL);
	return NULL;
}

static struct {
	char *text;
	size_t used, room;
} stream;

static void keep(void *context, const char *bytes, size_t count)
{
	stream.text = pd_grow(stream.text, &stream.room, stream.used + count, 1);
	memcpy(stream.text + stream.used, bytes, count);
	stream.used += count;
}

static size_t lines(void)
{
	size_t n = 0;

	for (size_t i = 0; i < stream.used; i++)
		n += stream.text[i] == '\n';
	return n;
}

static bool is_whole(void)
{
	size_t at = 0;

	for (int i = 0; i < LINES; i++) {
		char line[64];
		size_t length = (size_t)snprintf(line, sizeof(line), "{\"line\": %d}\n", i);

		if (at + length > stream.used || memcmp(stream.text + at, line, length) != 0)
			return false;
		at += length;
	}
	return at == stream.used;
}

int main(void)
{
	bool in_order = true, done = false;
	int alive = 0, pair[2];
	json_t *message;
	pthread_t thread;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		pd_bug("socketpair");
	pd_channel_init(&here, pair[0], 0);
	pd_channel_init(&there, pair[1], 0);
	pd_channel_on_bytes(&here, keep, NULL);
	pthread_create(&thread, NULL, writer, NULL);
	while (!done && pd_channel_wait(&here, LIMIT_MS, &message) == 1) {
		int n = (int)json_integer_value(json_object_get(message, "n"));

		done = pd_message_is(message, "done");
		if (pd_message_is(message, "alive"))
			in_order &= n == alive++;
		if (pd_message_is(message, "line"))
			in_order &= (size_t)n == lines();
		json_decref(message);
	}
	pthread_join(thread, NULL);
	ok(done, "all has come");
	ok(in_order, "messages in order, behind what was flushed before them");
	is_int(alive, 2000, "none is lost");
	ok(is_whole(), "the stream is whole");
	pd_channel_release(&there);
	is_int(pd_channel_wait(&here, LIMIT_MS, &message), -1, "the other side is gone");
	pd_channel_release(&here);
	free(stream.text);
	return done_testing();
}
