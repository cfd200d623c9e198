/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that messages of two threads, some of them compressed, and a stream come over the socket of a
 * channel whole and in order, and strings with the bytes that they had.
 */
#include "run/launch/channel.h"

#include "base/mem.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LINES 50000                     /* lines of the stream, more than a socket holds */
#define EVERY 500                       /* lines between two messages */
#define NOISE 5000                      /* numbers in a compressed message */
#define LIMIT_MS 20000

static struct pd_channel here, there;

static json_t *noise(void)
{
	json_t *numbers = json_array();

	for (int i = 0; i < NOISE; i++)
		json_array_append_new(numbers, json_integer(random()));
	return numbers;
}

static void *chatter(void *unused)
{
	for (int i = 0; i < 2000; i++)
		pd_channel_send(&there, json_pack("{s:s, s:i}", "event", "alive", "n", i), NULL);
	return NULL;
}

/* Sends the message before line n; every other one is compressed. */
static void say_line(int n)
{
	json_t *message = json_pack("{s:s, s:i}", "event", "line", "n", n);
	struct pd_packed packed;

	if (n / EVERY % 2 == 0) {
		pd_channel_send(&there, message, NULL);
		return;
	}
	json_object_set_new(message, "noise", noise());
	packed = pd_pack(message);
	pd_channel_send_packed(&there, &packed, NULL);
	pd_packed_release(&packed);
}

static void *writer(void *unused)
{
	FILE *stream = pd_channel_stream(&there);
	pthread_t thread;

	pthread_create(&thread, NULL, chatter, NULL);
	for (int i = 0; i < LINES; i++) {
		if (i % EVERY == 0) {
			fflush(stream);
			say_line(i);
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

/* Tests that a compressed message whose text has another size than its head says is refused. */
static void damaged(void)
{
	struct pd_packed packed = pd_pack(json_pack("{s:s}", "event", "line"));
	json_t *message;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		pd_bug("socketpair");
	pd_channel_init(&here, pair[0], 0);
	pd_channel_init(&there, pair[1], 0);
	packed.bytes--;
	pd_channel_send_packed(&there, &packed, NULL);
	is_int(pd_channel_wait(&here, LIMIT_MS, &message), -1, "a damaged message ends it");
	pd_packed_release(&packed);
	pd_channel_release(&there);
	pd_channel_release(&here);
}

#define ODD "caf\351 \303\251 \377\200 \303"   /* bytes of Latin-1, an accented letter, bytes of nothing */

/* Tests that paths come with their bytes, beside text, as they were or compressed. */
static void bytes(bool packs)
{
	json_t *message = json_pack("{s:s, s:o, s:s, s:[o, s]}", "event", "job", "path",
				    pd_json_bytes(ODD), "text", "na\303\257ve", "list",
				    pd_json_bytes(ODD "/x"), "plain"), *list, *mine = json_incref(message);
	struct pd_packed packed;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		pd_bug("socketpair");
	pd_channel_init(&here, pair[0], 0);
	pd_channel_init(&there, pair[1], 0);
	if (packs) {
		packed = pd_pack(message);
		pd_channel_send_packed(&there, &packed, NULL);
		pd_packed_release(&packed);
	} else {
		pd_channel_send(&there, message, NULL);
	}
	ok(strcmp(pd_member_text(mine, "path"), ODD) == 0, "what is sent stays as it was");
	json_decref(mine);
	is_int(pd_channel_wait(&here, LIMIT_MS, &message), 1, "a message with odd bytes comes");
	ok(pd_message_is(message, "job"), "as what it was");
	ok(strcmp(pd_member_text(message, "path"), ODD) == 0, "a path has its bytes");
	ok(strcmp(pd_member_text(message, "text"), "na\303\257ve") == 0, "text beside it, too");
	list = json_object_get(message, "list");
	ok(strcmp(json_string_value(json_array_get(list, 0)), ODD "/x") == 0, "one in a list, too");
	ok(strcmp(json_string_value(json_array_get(list, 1)), "plain") == 0, "and what is ASCII");
	json_decref(message);
	pd_channel_release(&there);
	pd_channel_release(&here);
}

static void shown(void)
{
	json_t *text = pd_json_shown(ODD), *same = pd_json_shown("na\303\257ve");

	ok(strcmp(json_string_value(text), "caf\357\277\275 \303\251 \357\277\275\357\277\275"
		  " \357\277\275") == 0, "for people, odd bytes are U+FFFD");
	ok(strcmp(json_string_value(same), "na\303\257ve") == 0, "and text is itself");
	json_decref(text);
	json_decref(same);
}

/* Counts what is heard; messages of the event "no" end it. */
static int heard(void *count, int verdict, const json_t *message, struct pd_error *err)
{
	++*(int *)count;
	if (verdict > 0 && !pd_message_is(message, "no"))
		return 0;
	return pd_error_failed(err, "%s", verdict > 0 ? "no" : verdict == 0 ? "silent" : "gone");
}

/* Waits for a message "yes" among others; returns how many were heard, less than 0 where it did not come. */
static int hears(const char *const *events, int timeout_ms, struct pd_error *err)
{
	int count = 0;
	json_t *message;

	for (; *events; events++)
		pd_channel_send(&there, json_pack("{s:s}", "event", *events), NULL);
	message = pd_channel_hear(&here, "yes", timeout_ms, heard, &count, err);
	count = pd_message_is(message, "yes") ? count : -count;
	json_decref(message);
	return count;
}

static void test_hearing(void)
{
	struct pd_error err = { 0 };

	is_int(hears((const char *const[]){ "a", "b", "yes", NULL }, LIMIT_MS, &err), 3, "the message that is waited for, "
	       "the third");
	is_int(hears((const char *const[]){ "a", "no", NULL }, LIMIT_MS, &err), -2, "one that ends the wait");
	is_str(err.text, "no", "and why");
	is_int(hears((const char *const[]){ NULL }, 1, &err), -1, "none comes");
	is_str(err.text, "silent", "which is heard, too");
	pd_channel_release(&there);
	is_int(hears((const char *const[]){ NULL }, LIMIT_MS, &err), -1, "the other end has gone");
	is_str(err.text, "gone", "as well");
}

int main(void)
{
	bool in_order = true, done = false;
	int alive = 0, noisy = 0, pair[2];
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
		noisy += json_array_size(json_object_get(message, "noise")) == NOISE;
		json_decref(message);
	}
	pthread_join(thread, NULL);
	ok(done, "all has come");
	ok(in_order, "messages in order, behind what was flushed before them");
	is_int(alive, 2000, "none is lost");
	is_int(noisy, LINES / EVERY / 2, "nor is one that is compressed");
	ok(is_whole(), "the stream is whole");
	test_hearing();
	is_int(pd_channel_wait(&here, LIMIT_MS, &message), -1, "the other side is gone");
	pd_channel_release(&here);
	damaged();
	bytes(false);
	bytes(true);
	shown();
	free(stream.text);
	return done_testing();
}
