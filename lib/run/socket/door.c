/* SPDX-License-Identifier: Apache-2.0 */
#include "run/socket/door.h"

#include "base/clock.h"
#include "base/mem.h"
#include "run/socket/socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_LISTENERS 64
#define BATCH 64                        /* of those who come, before others are listened to */
#define SILENT_NS INT64_C(5000000000)   /* a stranger may be silent for so long */

struct stranger {
	int fd;
	int64_t since_ns;
	uint8_t from[16];               /* of the address, what counts */
	int same;                       /* how many of them are from there */
	size_t got;
	uint8_t word[PD_WORD_BYTES];
};

struct guest {
	struct pd_words words;
	bool came;
};

struct pd_door {
	int events;                     /* an epoll of all descriptors */
	int listeners[MOST_LISTENERS], listener_count;
	struct guest *guests;
	size_t count, missing;
	struct stranger strangers[PD_MOST_STRANGERS];
	int stranger_count;
	void (*came)(void *context, size_t guest, int fd);
	void *context;
};

bool pd_words_same(const uint8_t *a, const uint8_t *b)
{
	unsigned int difference = 0;

	for (int i = 0; i < PD_WORD_BYTES; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
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

struct pd_door *pd_door_open(size_t guests, struct pd_error *err)
{
	struct pd_door *d = pd_zalloc(sizeof(*d));
	int status = 0;

	d->count = d->missing = guests;
	d->guests = pd_calloc(guests, sizeof(*d->guests));
	d->events = epoll_create1(EPOLL_CLOEXEC);
	if (d->events < 0)
		status = pd_error_failed(err, "epoll: %s", strerror(errno));
	for (size_t i = 0; i < guests && status == 0; i++)
		status = fill_random(&d->guests[i].words, sizeof(d->guests[i].words), err);
	if (status == 0)
		return d;
	pd_door_close(d);
	return NULL;
}

static void watch(const struct pd_door *d, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	epoll_ctl(d->events, EPOLL_CTL_ADD, fd, &event);
}

int pd_door_listen(struct pd_door *d, const char *address, struct pd_error *err)
{
	int port, fd;

	if (d->listener_count == MOST_LISTENERS)
		return pd_error_failed(err, "more than %d addresses to listen at", MOST_LISTENERS);
	fd = pd_socket_listen(address, &port, err);
	if (fd < 0)
		return -1;
	d->listeners[d->listener_count++] = fd;
	watch(d, fd);
	return port;
}

/* Nobody else is expected. */
static void shut(struct pd_door *d)
{
	for (int i = 0; i < d->stranger_count; i++)
		close(d->strangers[i].fd);
	for (int i = 0; i < d->listener_count; i++)
		close(d->listeners[i]);
	d->stranger_count = d->listener_count = 0;
}

void pd_door_close(struct pd_door *d)
{
	if (!d)
		return;
	shut(d);
	if (d->events >= 0)
		close(d->events);
	free(d->guests);
	free(d);
}

const struct pd_words *pd_door_words(const struct pd_door *d, size_t guest)
{
	return &d->guests[guest].words;
}

static void strike_off(struct pd_door *d, size_t guest)
{
	if (d->guests[guest].came)
		return;
	d->guests[guest].came = true;
	d->missing--;
}

void pd_door_forget(struct pd_door *d, size_t guest)
{
	strike_off(d, guest);
	if (d->missing == 0)
		shut(d);
}

int pd_door_fd(const struct pd_door *d)
{
	return d->events;
}

/* ---- strangers ---- */

/* Counts a stranger in or out among those from the same address. */
static void count_same(struct pd_door *d, const uint8_t *from, int change)
{
	for (int i = 0; i < d->stranger_count; i++)
		if (memcmp(d->strangers[i].from, from, sizeof(d->strangers[i].from)) == 0)
			d->strangers[i].same += change;
}

/* Forgets a stranger, whose connection is another's now, or closed.  Others keep their order. */
static void forget(struct pd_door *d, int i)
{
	uint8_t from[16];

	memcpy(from, d->strangers[i].from, sizeof(from));
	d->stranger_count--;
	memmove(&d->strangers[i], &d->strangers[i + 1],
		(size_t)(d->stranger_count - i) * sizeof(d->strangers[0]));
	count_same(d, from, -1);
}

static void send_away(struct pd_door *d, int i)
{
	close(d->strangers[i].fd);
	forget(d, i);
}

/* Sends the oldest away of those whose address has the most. */
static void make_room(struct pd_door *d)
{
	int out = 0;

	for (int i = 1; i < d->stranger_count; i++)
		if (d->strangers[i].same > d->strangers[out].same)
			out = i;
	send_away(d, out);
}

static void send_silent_away(struct pd_door *d)
{
	int64_t now_ns = pd_now_ns();

	while (d->stranger_count > 0 && now_ns - d->strangers[0].since_ns >= SILENT_NS)
		send_away(d, 0);
}

/* Returns the guest whose word it is, or `count`.  All words are compared. */
static size_t recognize(const struct pd_door *d, const uint8_t *word)
{
	size_t found = d->count;

	for (size_t i = 0; i < d->count; i++)
		if (pd_words_same(d->guests[i].words.ask, word) && !d->guests[i].came)
			found = i;
	return found;
}

/* A stranger has said a word. */
static void answer(struct pd_door *d, int i)
{
	size_t guest = recognize(d, d->strangers[i].word);
	int fd = d->strangers[i].fd;

	if (guest == d->count ||
	    send(fd, d->guests[guest].words.answer, PD_WORD_BYTES, MSG_NOSIGNAL) != PD_WORD_BYTES) {
		send_away(d, i);
		return;
	}
	epoll_ctl(d->events, EPOLL_CTL_DEL, fd, NULL);
	forget(d, i);
	pd_socket_at_once(fd);
	strike_off(d, guest);
	d->came(d->context, guest, fd);
}

static void listen_to(struct pd_door *d, int i)
{
	struct stranger *s = &d->strangers[i];
	ssize_t n = recv(s->fd, s->word + s->got, PD_WORD_BYTES - s->got, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	s->got += n > 0 ? (size_t)n : 0;
	if (n <= 0)
		send_away(d, i);
	else if (s->got == PD_WORD_BYTES)
		answer(d, i);
}

/* ---- those who come ---- */

static void address_of(const struct sockaddr_storage *from, uint8_t out[16])
{
	memset(out, 0, 16);
	if (from->ss_family == AF_INET)
		memcpy(out + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
	else
		memcpy(out, &((const struct sockaddr_in6 *)from)->sin6_addr, 8);
}

static void let_in(struct pd_door *d, int fd, const struct sockaddr_storage *from)
{
	struct stranger *s;

	if (d->stranger_count == PD_MOST_STRANGERS)
		make_room(d);
	s = &d->strangers[d->stranger_count];
	*s = (struct stranger){ .fd = fd, .since_ns = pd_now_ns() };
	address_of(from, s->from);
	for (int i = 0; i < d->stranger_count; i++)
		s->same += memcmp(d->strangers[i].from, s->from, sizeof(s->from)) == 0;
	d->stranger_count++;
	count_same(d, s->from, 1);
	watch(d, fd);
	listen_to(d, d->stranger_count - 1);
}

static void accept_some(struct pd_door *d, int listener)
{
	for (int i = 0; i < BATCH; i++) {
		struct sockaddr_storage from = { 0 };
		socklen_t length = sizeof(from);
		int fd = accept4(listener, (struct sockaddr *)&from, &length,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0)
			let_in(d, fd, &from);
		else if ((errno == EMFILE || errno == ENFILE) && d->stranger_count > 0)
			make_room(d);
		else if (errno != ECONNABORTED)
			return;
	}
}

static int stranger_of(const struct pd_door *d, int fd)
{
	int i = 0;

	while (i < d->stranger_count && d->strangers[i].fd != fd)
		i++;
	return i;
}

/* Those who are here and have something to say come before those who are outside. */
size_t pd_door_look(struct pd_door *d, void (*came)(void *context, size_t guest, int fd),
		    void *context)
{
	struct epoll_event events[BATCH];
	int n = epoll_wait(d->events, events, BATCH, 0);

	d->came = came;
	d->context = context;
	for (int i = 0; i < n; i++) {
		int s = stranger_of(d, events[i].data.fd);

		if (s < d->stranger_count)
			listen_to(d, s);
	}
	for (int i = 0; i < d->listener_count && n > 0; i++)
		accept_some(d, d->listeners[i]);
	send_silent_away(d);
	if (d->missing == 0)
		shut(d);
	return d->missing;
}
