/* SPDX-License-Identifier: Apache-2.0 */
/* Tests processes that meet, and strangers at the same port. */
#include "run/launch/meeting.h"

#include "base/mem.h"
#include "run/socket/door.h"
#include "run/socket/socket.h"
#include "tap.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PROCESSES 3
#define FLOOD 2300                      /* silent connections */

static json_t *invitation;
static int joined[PROCESSES][PD_MEETING_KINDS];

static struct pd_meeting *open_meeting(void)
{
	json_t *addresses = json_pack("[s]", PD_LOOPBACK);
	struct pd_error err = { 0 };
	struct pd_meeting *meeting = pd_meeting_open(PROCESSES, addresses, &err);

	json_decref(addresses);
	invitation = pd_meeting_invitation(meeting);
	return meeting;
}

/* Where the first process listens: [address, port]. */
static json_t *at(void)
{
	return json_array_get(json_object_get(invitation, "at"), 0);
}

static int port(void)
{
	return (int)json_integer_value(json_array_get(at(), 1));
}

static void *join_all(void *unused)
{
	struct pd_error err;

	/* The strangers connect first. */
	usleep(100000);
	for (int process = PROCESSES - 1; process > 0; process--)
		for (int kind = 0; kind < PD_MEETING_KINDS; kind++)
			joined[process][kind] = pd_meeting_join(invitation, process,
								(enum pd_meeting_kind)kind, &err);
	return NULL;
}

/* Connects as a stranger and sends so many bytes; returns the connection. */
static int stranger(const void *bytes, size_t count)
{
	int fd = pd_socket_connect("127.0.0.1", port());

	if (fd < 0 || send(fd, bytes, count, MSG_NOSIGNAL) != (ssize_t)count)
		diag("a stranger cannot connect: %s", strerror(errno));
	return fd;
}

/* Tells whether a connection has ended without an answer. */
static bool was_ignored(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN);
}

static bool connected(int a, int b)
{
	char byte = 'a';

	return send(a, &byte, 1, 0) == 1 && recv(b, &byte, 1, 0) == 1 && byte == 'a' &&
	       send(b, "b", 1, 0) == 1 && recv(a, &byte, 1, 0) == 1 && byte == 'b';
}

static void among_strangers(void)
{
	struct pd_error err = { 0 };
	struct pd_meeting *meeting = open_meeting();
	char garbage[4096];
	int strangers[4], silent;
	bool all = true;
	pthread_t thread;

	memset(garbage, 'G', sizeof(garbage));
	pthread_create(&thread, NULL, join_all, NULL);
	strangers[0] = stranger(garbage, sizeof(garbage));
	strangers[1] = stranger(garbage, PD_WORD_BYTES);
	strangers[2] = stranger("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", PD_WORD_BYTES);
	strangers[3] = stranger("GET / HTTP/1.0\r\n\r\n 1234567890", 29);
	silent = stranger(garbage, PD_WORD_BYTES / 2);
	is_int(pd_meeting_wait(meeting, 20, &err), 0, "all come, whoever else does");
	pthread_join(thread, NULL);
	for (int i = 0; i < 4; i++)
		all &= was_ignored(strangers[i]);
	ok(all, "strangers get no answer, and their connections end");
	all = true;
	for (int process = 1; process < PROCESSES; process++)
		for (int kind = 0; kind < PD_MEETING_KINDS; kind++) {
			int fd = pd_meeting_take(meeting, process, (enum pd_meeting_kind)kind);

			all &= fd > 0 && joined[process][kind] > 0 &&
			       connected(fd, joined[process][kind]);
		}
	ok(all, "each connection is that of its process and kind");
	ok(pd_socket_connect("127.0.0.1", port()) < 0, "then nobody listens any more");
	pd_meeting_close(meeting);
	ok(was_ignored(silent), "one who said half a word is forgotten");
}

struct unanswered { int first, later; };

/* Accepts a connection that it does not answer, and then one that it does. */
static void *answer_the_second(void *listener)
{
	struct unanswered *u = listener;
	struct pollfd comes = { .fd = u->first, .events = POLLIN };
	uint8_t word[PD_WORD_BYTES];
	int fd;

	poll(&comes, 1, -1);
	fd = accept(u->first, NULL, NULL);
	poll(&comes, 1, -1);
	u->later = accept(u->first, NULL, NULL);
	if (recv(u->later, word, sizeof(word), MSG_WAITALL) == PD_WORD_BYTES)
		send(u->later, "bbbbbbbbbbbbbbbb", PD_WORD_BYTES, MSG_NOSIGNAL);
	close(fd);
	return NULL;
}

/* A connection that waits behind those of strangers for its answer is given up for another. */
static void behind_others(void)
{
	char words[4 * PD_WORD_BYTES * 2 + 1] = "";
	struct unanswered u;
	struct pd_error err = { 0 };
	json_t *told;
	pthread_t thread;
	int at_port, fd;

	u.first = pd_socket_listen(PD_LOOPBACK, &at_port, &err);
	for (int i = 0; i < 4 * PD_WORD_BYTES; i++)
		strcat(words, i / PD_WORD_BYTES % 2 ? "62" : "61");
	told = json_pack("{s:[[s, i]], s:s}", "at", PD_LOOPBACK, at_port, "words", words);
	pthread_create(&thread, NULL, answer_the_second, &u);
	fd = pd_meeting_join(told, 1, PD_MEETING_AGENT, &err);
	pthread_join(thread, NULL);
	ok(fd >= 0, "one whose connection is not answered tries again: %s", err.text);
	close(fd);
	close(u.later);
	close(u.first);
	json_decref(told);
}

static void *join_twice(void *result)
{
	struct pd_error err;

	*(int *)result = pd_meeting_join(invitation, 1, PD_MEETING_AGENT, &err);
	((int *)result)[1] = pd_meeting_join(invitation, 1, PD_MEETING_AGENT, &err);
	return NULL;
}

static void late(void)
{
	struct pd_error err = { 0 };
	struct pd_meeting *meeting;
	int fds[2];
	pthread_t thread;

	json_decref(invitation);
	meeting = open_meeting();
	pthread_create(&thread, NULL, join_twice, fds);
	is_int(pd_meeting_wait(meeting, 1, &err), -1, "who does not come is not waited for for ever");
	is_str(err.text, "rank 1 has not connected within 1 s", "and is named");
	pthread_join(thread, NULL);
	ok(fds[0] >= 0 && fds[1] < 0, "a word serves once");
	pd_meeting_close(meeting);
	ok(pd_meeting_join(invitation, 1, PD_MEETING_AGENT, &err) < 0 &&
	   strstr(err.text, "cannot reach the first process at 127.0.0.1"),
	   "where nobody listens one is told so");
	json_decref(invitation);
	invitation = json_pack("{s:i}", "port", 1);
	ok(pd_meeting_join(invitation, 1, PD_MEETING_AGENT, &err) < 0,
	   "an invitation without words is none");
	json_decref(invitation);
}

static void *answer_anything(void *listener)
{
	struct pollfd p = { .fd = *(int *)listener, .events = POLLIN };
	char hello[PD_WORD_BYTES], answer[PD_WORD_BYTES] = "sixteen letters";
	int fd = poll(&p, 1, 20000) > 0 ? accept(p.fd, NULL, NULL) : -1;

	if (recv(fd, hello, sizeof(hello), MSG_WAITALL) != (ssize_t)sizeof(hello) ||
	    send(fd, answer, sizeof(answer), MSG_NOSIGNAL) != (ssize_t)sizeof(answer))
		diag("nobody came: %s", strerror(errno));
	close(fd);
	return NULL;
}

/* Tests that a program which has got the port of the first process is found out. */
static void false_first(void)
{
	struct pd_error err = { 0 };
	struct pd_meeting *meeting = open_meeting();
	int number, listener = pd_socket_listen(PD_LOOPBACK, &number, &err);
	pthread_t thread;

	json_array_set_new(at(), 1, json_integer(number));
	pthread_create(&thread, NULL, answer_anything, &listener);
	ok(pd_meeting_join(invitation, 1, PD_MEETING_AGENT, &err) < 0 &&
	   strstr(err.text, "something else answers there"), "who answers with another word is not it");
	pthread_join(thread, NULL);
	close(listener);
	json_decref(invitation);
	pd_meeting_close(meeting);
}

/* Tests that those who are expected need not wait for those who say nothing, from the same address too. */
static void flood(void)
{
	static int silent[FLOOD];
	struct pd_error err = { 0 };
	struct pd_meeting *meeting;
	int gone = 0;
	pthread_t thread;

	json_decref(invitation);
	meeting = open_meeting();
	pd_socket_allow_many();
	for (int i = 0; i < FLOOD; i++)
		silent[i] = stranger("", 0);
	pthread_create(&thread, NULL, join_all, NULL);
	is_int(pd_meeting_wait(meeting, 20, &err), 0, "all come, behind %d silent connections", FLOOD);
	pthread_join(thread, NULL);
	for (int i = 0; i < FLOOD; i++) {
		gone += was_ignored(silent[i]);
		close(silent[i]);
	}
	is_int(gone, FLOOD, "which are gone");
	pd_meeting_close(meeting);
}

int main(void)
{
	among_strangers();
	behind_others();
	flood();
	late();
	false_first();
	return done_testing();
}
