/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/meeting.h"

#include "base/clock.h"
#include "base/mem.h"
#include "launch/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define WORD 16                         /* bytes of a random word */
#define MOST_STRANGERS 256              /* connections that have not said yet who they are */
#define STRANGER_NS INT64_C(5000000000) /* and may stay so for so long */
#define ANSWER_S 20                     /* the first may be busy with others */

/* The first bytes on a connection, in network order. */
struct hello {
	uint8_t word[WORD];
	uint32_t process, kind;
};

struct expected {
	uint8_t ask[WORD], answer[WORD];
	int fd;                         /* -1: not there yet */
};

struct stranger {
	int fd;
	int64_t since_ns;
	size_t got;
	struct hello hello;
};

struct pd_meeting {
	int listener, port, processes, missing;
	bool one_host;
	struct expected *expected;      /* [process][kind] */
	struct stranger strangers[MOST_STRANGERS];
	int stranger_count;
};

static struct expected *expected(const struct pd_meeting *m, int process, int kind)
{
	return &m->expected[process * PD_MEETING_KINDS + kind];
}

static int fill_random(void *bytes, size_t count, struct pd_error *err)
{
	for (size_t done = 0; done < count;) {
		ssize_t n = getrandom((char *)bytes + done, count - done, 0);

		if (n < 0 && errno != EINTR)
			return pd_error_failed(err, "no random numbers: %s", strerror(errno));
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

struct pd_meeting *pd_meeting_open(int processes, bool one_host, struct pd_error *err)
{
	struct pd_meeting *m = pd_zalloc(sizeof(*m));
	int status = 0;

	m->processes = processes;
	m->one_host = one_host;
	m->missing = (processes - 1) * PD_MEETING_KINDS;
	m->expected = pd_calloc((size_t)processes * PD_MEETING_KINDS, sizeof(*m->expected));
	m->listener = pd_network_listen(one_host, &m->port, err);
	for (int i = 0; i < processes * PD_MEETING_KINDS && status == 0; i++) {
		status = fill_random(&m->expected[i], offsetof(struct expected, fd), err);
		m->expected[i].fd = -1;
	}
	if (m->listener >= 0 && status == 0)
		return m;
	pd_meeting_close(m);
	return NULL;
}

void pd_meeting_close(struct pd_meeting *m)
{
	if (!m)
		return;
	for (int i = 0; i < m->processes * PD_MEETING_KINDS; i++)
		if (m->expected[i].fd > 0)
			close(m->expected[i].fd);
	for (int i = 0; i < m->stranger_count; i++)
		close(m->strangers[i].fd);
	if (m->listener >= 0)
		close(m->listener);
	free(m->expected);
	free(m);
}

int pd_meeting_take(struct pd_meeting *m, int process, enum pd_meeting_kind kind)
{
	int fd = expected(m, process, (int)kind)->fd;

	expected(m, process, (int)kind)->fd = -1;
	return fd;
}

/* ---- invitations ---- */

#define PAIR_DIGITS (4 * WORD)          /* hexadecimal, of both words */

json_t *pd_meeting_invitation(const struct pd_meeting *m)
{
	size_t pairs = (size_t)m->processes * PD_MEETING_KINDS;
	char *words = pd_zalloc(pairs * PAIR_DIGITS + 1), *at = words;
	json_t *invitation;

	for (size_t i = 0; i < pairs; i++)
		for (size_t k = 0; k < 2 * (size_t)WORD; k++)
			at += sprintf(at, "%02x", ((const uint8_t *)&m->expected[i])[k]);
	invitation = json_pack("{s:i, s:o, s:s}", "port", m->port, "addresses",
			       pd_network_addresses(m->one_host), "words", words);
	free(words);
	return invitation;
}

static int read_words(const json_t *invitation, int process, enum pd_meeting_kind kind,
		      struct expected *out)
{
	const char *words = pd_member_text(invitation, "words");
	size_t at = ((size_t)process * PD_MEETING_KINDS + kind) * PAIR_DIGITS;

	if (!words || strlen(words) < at + PAIR_DIGITS)
		return -1;
	for (size_t k = 0; k < 2 * (size_t)WORD; k++)
		if (sscanf(words + at + 2 * k, "%2hhx", &((uint8_t *)out)[k]) != 1)
			return -1;
	return 0;
}

/* ---- those who come ---- */

/* Compares words in a time that does not depend on where they differ. */
static bool same_word(const uint8_t *a, const uint8_t *b)
{
	unsigned int difference = 0;

	for (int i = 0; i < WORD; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
}

/* Calls block from now on, and what is sent goes at once. */
static void make_plain(int fd)
{
	int yes = 1;

	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

static void accept_all(struct pd_meeting *m)
{
	int fd;

	while (m->stranger_count < MOST_STRANGERS &&
	       (fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		m->strangers[m->stranger_count++] = (struct stranger){ .fd = fd,
								       .since_ns = pd_now_ns() };
}

/* Returns which of those expected it is, or NULL. */
static struct expected *recognize(const struct pd_meeting *m, const struct hello *hello)
{
	uint32_t process = ntohl(hello->process), kind = ntohl(hello->kind);
	struct expected *e;

	if (process == 0 || process >= (uint32_t)m->processes || kind >= PD_MEETING_KINDS)
		return NULL;
	e = expected(m, (int)process, (int)kind);
	return e->fd < 0 && same_word(e->ask, hello->word) ? e : NULL;
}

/* Reads on; returns whether it is a stranger still. */
static bool listen_to(struct pd_meeting *m, struct stranger *s)
{
	ssize_t n = recv(s->fd, (char *)&s->hello + s->got, sizeof(s->hello) - s->got, 0);
	struct expected *e;

	if (n < 0 && (errno == EAGAIN || errno == EINTR) &&
	    pd_now_ns() - s->since_ns < STRANGER_NS)
		return true;
	s->got += n > 0 ? (size_t)n : 0;
	if (n > 0 && s->got < sizeof(s->hello))
		return true;
	e = n > 0 ? recognize(m, &s->hello) : NULL;
	if (!e || send(s->fd, e->answer, WORD, MSG_NOSIGNAL) != WORD) {
		close(s->fd);
		return false;
	}
	make_plain(s->fd);
	e->fd = s->fd;
	m->missing--;
	return false;
}

static void listen_to_all(struct pd_meeting *m)
{
	int kept = 0;

	for (int i = 0; i < m->stranger_count; i++)
		if (listen_to(m, &m->strangers[i]))
			m->strangers[kept++] = m->strangers[i];
	m->stranger_count = kept;
}

static void sleep_until_somebody(const struct pd_meeting *m)
{
	struct pollfd fds[MOST_STRANGERS + 1];
	nfds_t n = 0;

	for (; n < (nfds_t)m->stranger_count; n++)
		fds[n] = (struct pollfd){ .fd = m->strangers[n].fd, .events = POLLIN };
	if (m->stranger_count < MOST_STRANGERS)
		fds[n++] = (struct pollfd){ .fd = m->listener, .events = POLLIN };
	poll(fds, n, 1000);
}

static int first_missing(const struct pd_meeting *m)
{
	int process = 1;

	while (expected(m, process, PD_MEETING_AGENT)->fd >= 0 &&
	       expected(m, process, PD_MEETING_RANK)->fd >= 0)
		process++;
	return process;
}

int pd_meeting_wait(struct pd_meeting *m, int patience_s, struct pd_error *err)
{
	int64_t until = pd_now_ns() + patience_s * INT64_C(1000000000);

	while (m->missing > 0 && pd_now_ns() < until) {
		sleep_until_somebody(m);
		accept_all(m);
		listen_to_all(m);
	}
	close(m->listener);
	m->listener = -1;
	return m->missing == 0 ? 0
	       : pd_error_failed(err, "rank %d has not connected within %d s", first_missing(m),
				 patience_s);
}

/* ---- one who joins ---- */

static int introduce(int fd, const struct expected *words, int process, enum pd_meeting_kind kind)
{
	struct hello hello = { .process = htonl((uint32_t)process), .kind = htonl(kind) };
	struct timeval patience = { .tv_sec = ANSWER_S }, for_ever = { 0 };
	uint8_t answer[WORD];

	memcpy(hello.word, words->ask, WORD);
	make_plain(fd);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello) ||
	    recv(fd, answer, WORD, MSG_WAITALL) != WORD || !same_word(answer, words->answer)) {
		errno = EPROTO;
		return -1;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof(for_ever));
	return 0;
}

int pd_meeting_join(const json_t *invitation, int process, enum pd_meeting_kind kind,
		    struct pd_error *err)
{
	int port = (int)pd_member_int(invitation, "port");
	const char *address = "";
	struct expected words;
	json_t *one;
	size_t i;

	if (read_words(invitation, process, kind, &words) < 0)
		return pd_error_failed(err, "the first process sent an invitation that cannot be read");
	errno = EADDRNOTAVAIL;
	json_array_foreach(json_object_get(invitation, "addresses"), i, one) {
		int fd = pd_network_connect(address = json_string_value(one), port);

		if (fd >= 0 && introduce(fd, &words, process, kind) == 0)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return pd_error_failed(err, "cannot reach the first process at %s, port %d: %s", address, port,
			       errno == EPROTO ? "something else answers there" : strerror(errno));
}
