/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/meeting.h"

#include "base/clock.h"
#include "base/mem.h"
#include "run/socket/door.h"
#include "run/socket/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_S 5                      /* the first may be busy with others, or not be asked yet */
#define AGAIN_MS 20                     /* between two attempts */

struct pd_meeting {
	struct pd_door *door;           /* NULL: closed */
	json_t *at;                     /* [[address, port]...] */
	int processes;
	int *fds;                       /* [process][kind]; -1: not there yet, or taken */
};

static size_t guest_of(int process, enum pd_meeting_kind kind)
{
	return (size_t)(process - 1) * PD_MEETING_KINDS + kind;
}

static int listen_at(struct pd_meeting *m, const json_t *addresses, struct pd_error *err)
{
	json_t *address;
	size_t i;

	json_array_foreach(addresses, i, address) {
		int port = pd_door_listen(m->door, json_string_value(address), err);

		if (port < 0)
			return -1;
		pd_json_add(m->at, json_pack("[O, i]", address, port));
	}
	return i > 0 ? 0 : pd_error_failed(err, "this host has no address at which others reach it");
}

struct pd_meeting *pd_meeting_open(int processes, const json_t *addresses, struct pd_error *err)
{
	struct pd_meeting *m = pd_zalloc(sizeof(*m));
	size_t guests = guest_of(processes, 0);

	m->processes = processes;
	m->at = json_array();
	m->fds = pd_calloc(guests, sizeof(*m->fds));
	for (size_t i = 0; i < guests; i++)
		m->fds[i] = -1;
	m->door = pd_door_open(guests, err);
	if (m->door && listen_at(m, addresses, err) == 0)
		return m;
	pd_meeting_close(m);
	return NULL;
}

void pd_meeting_close(struct pd_meeting *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < guest_of(m->processes, 0); i++)
		if (m->fds[i] >= 0)
			close(m->fds[i]);
	pd_door_close(m->door);
	json_decref(m->at);
	free(m->fds);
	free(m);
}

int pd_meeting_take(struct pd_meeting *m, int process, enum pd_meeting_kind kind)
{
	int *at = &m->fds[guest_of(process, kind)], fd = *at;

	*at = -1;
	return fd;
}

/* ---- invitations ---- */

#define PAIR_DIGITS (2 * sizeof(struct pd_words))       /* hexadecimal */

json_t *pd_meeting_invitation(const struct pd_meeting *m)
{
	size_t guests = guest_of(m->processes, 0);
	char *words = pd_zalloc(guests * PAIR_DIGITS + 1), *at = words;
	json_t *invitation;

	for (size_t i = 0; i < guests; i++)
		for (size_t k = 0; k < sizeof(struct pd_words); k++)
			at += sprintf(at, "%02x", ((const uint8_t *)pd_door_words(m->door, i))[k]);
	invitation = json_pack("{s:O, s:s}", "at", m->at, "words", words);
	free(words);
	return invitation;
}

static int read_words(const json_t *invitation, int process, enum pd_meeting_kind kind,
		      struct pd_words *out)
{
	const char *words = pd_member_text(invitation, "words");
	size_t at = guest_of(process, kind) * PAIR_DIGITS;

	if (!words || strlen(words) < at + PAIR_DIGITS)
		return -1;
	for (size_t k = 0; k < sizeof(*out); k++)
		if (sscanf(words + at + 2 * k, "%2hhx", &((uint8_t *)out)[k]) != 1)
			return -1;
	return 0;
}

/* ---- those who come ---- */

static void block(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

static void came(void *meeting, size_t guest, int fd)
{
	block(fd);
	((struct pd_meeting *)meeting)->fds[guest] = fd;
}

static int first_missing(const struct pd_meeting *m)
{
	int guest = 0;

	while (m->fds[guest] >= 0)
		guest++;
	return 1 + guest / PD_MEETING_KINDS;
}

int pd_meeting_wait(struct pd_meeting *m, int patience_s, struct pd_error *err)
{
	int64_t until = pd_now_ns() + patience_s * INT64_C(1000000000);
	struct pollfd at_door = { .fd = pd_door_fd(m->door), .events = POLLIN };
	size_t missing;

	while ((missing = pd_door_look(m->door, came, m)) > 0 && pd_now_ns() < until)
		poll(&at_door, 1, 1000);
	pd_door_close(m->door);
	m->door = NULL;
	return missing == 0 ? 0
	       : pd_error_failed(err, "rank %d has not connected within %d s", first_missing(m),
				 patience_s);
}

/* ---- one who joins ---- */

/* Says the word, and waits for the answer.  -1 with errno: EPROTO where it is another's. */
static int introduce(int fd, const struct pd_words *words)
{
	struct timeval patience = { .tv_sec = ANSWER_S }, for_ever = { 0 };
	uint8_t answer[PD_WORD_BYTES];
	ssize_t n;

	pd_socket_at_once(fd);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (send(fd, words->ask, PD_WORD_BYTES, MSG_NOSIGNAL) != PD_WORD_BYTES)
		return -1;
	n = recv(fd, answer, PD_WORD_BYTES, MSG_WAITALL);
	if (n >= 0)
		errno = n == 0 ? ECONNRESET : EPROTO;
	if (n != PD_WORD_BYTES || !pd_words_same(answer, words->answer))
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof(for_ever));
	return 0;
}

static int join_at(const json_t *at, const struct pd_words *words)
{
	int fd = pd_socket_connect(json_string_value(json_array_get(at, 0)),
				   (int)json_integer_value(json_array_get(at, 1))), why;

	if (fd < 0 || introduce(fd, words) == 0)
		return fd;
	why = errno;
	close(fd);
	errno = why;
	return -1;
}

/*
 * Where a connection was lost among those of strangers, could not be begun for them, or waits behind
 * them for an answer (EAGAIN), another may stay.
 */
static bool may_try_again(int error)
{
	return error == ECONNRESET || error == EPIPE || error == ETIMEDOUT || error == EAGAIN ||
	       error == EINTR;
}

int pd_meeting_join(const json_t *invitation, int process, enum pd_meeting_kind kind,
		    struct pd_error *err)
{
	int64_t until = pd_now_ns() + PD_MEETING_PATIENCE_S * INT64_C(1000000000);
	struct pd_words words;
	const json_t *at = NULL;
	bool again = true;
	size_t i;

	if (read_words(invitation, process, kind, &words) < 0)
		return pd_error_failed(err, "the first process sent an invitation that cannot be read");
	errno = EADDRNOTAVAIL;
	while (again) {
		again = false;
		json_array_foreach(json_object_get(invitation, "at"), i, at) {
			int fd = join_at(at, &words);

			if (fd >= 0)
				return fd;
			again |= may_try_again(errno) && pd_now_ns() < until;
		}
		if (again)
			poll(NULL, 0, AGAIN_MS);
	}
	return pd_error_failed(err, "cannot reach the first process at %s, port %d: %s",
			       json_string_value(json_array_get(at, 0)),
			       (int)json_integer_value(json_array_get(at, 1)),
			       errno == EPROTO ? "something else answers there" :
			       errno == EAGAIN ? "it does not answer" : strerror(errno));
}
