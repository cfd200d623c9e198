/* SPDX-License-Identifier: Apache-2.0 */
/* Tests who is let in at a door (run/socket/door.h), and how strangers leave. */
#include "run/socket/door.h"

#include "run/socket/socket.h"
#include "tap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUESTS 3

static struct pd_door *door;
static int port, came[GUESTS];

static void take(void *unused, size_t guest, int fd)
{
	came[guest] = fd;
}

/* Has the door look until it has nothing to do; returns how many guests are missing. */
static size_t look(void)
{
	struct pollfd at_door = { .fd = pd_door_fd(door), .events = POLLIN };
	size_t missing;

	do
		missing = pd_door_look(door, take, NULL);
	while (poll(&at_door, 1, 20) > 0);
	return missing;
}

static void begin(void)
{
	struct pd_error err = { 0 };

	door = pd_door_open(GUESTS, &err);
	port = pd_door_listen(door, PD_LOOPBACK, &err);
	memset(came, -1, sizeof(came));
}

/* Connects from an address of this host and sends some bytes; returns the connection. */
static int visit(const char *from, const void *bytes, size_t count)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr(from) };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				  .sin_addr.s_addr = inet_addr(PD_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(fd, (struct sockaddr *)&own, sizeof(own)) < 0 ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		close(fd);
		return -1;
	}
	if (send(fd, bytes, count, MSG_NOSIGNAL) != (ssize_t)count)
		diag("a visitor cannot speak: %s", strerror(errno));
	return fd;
}

/* Returns what can be read from a connection: bytes, 0 for its end, or -errno. */
static int heard(int fd, void *bytes, size_t room)
{
	ssize_t n = recv(fd, bytes, room, MSG_DONTWAIT);

	return n < 0 ? -errno : (int)n;
}

static void guests(void)
{
	uint8_t answer[2 * PD_WORD_BYTES], wrong[PD_WORD_BYTES + 1];
	int fd, again, halves;

	begin();
	fd = visit(PD_LOOPBACK, pd_door_words(door, 1)->ask, PD_WORD_BYTES);
	is_int((int)look(), GUESTS - 1, "a guest is let in");
	ok(came[1] >= 0 && came[0] < 0 && came[2] < 0, "and known by the word");
	is_int(heard(fd, answer, sizeof(answer)), PD_WORD_BYTES, "there is an answer of a word");
	ok(pd_words_same(answer, pd_door_words(door, 1)->answer), "the right one");

	again = visit("127.0.0.2", pd_door_words(door, 1)->ask, PD_WORD_BYTES);
	is_int((int)look(), GUESTS - 1, "a word that has served lets nobody in");
	is_int(heard(again, answer, sizeof(answer)), 0, "and there is no answer, but an end");

	/* the kernel resets a connection that is closed with bytes in it that were not read */
	memcpy(wrong, pd_door_words(door, 0)->ask, PD_WORD_BYTES);
	wrong[PD_WORD_BYTES - 1] ^= 1;
	close(again);
	again = visit("127.0.0.2", wrong, PD_WORD_BYTES);
	look();
	is_int(heard(again, answer, sizeof(answer)), 0, "one bit is wrong: all of the word was read");
	close(again);
	again = visit("127.0.0.2", wrong, PD_WORD_BYTES + 1);
	look();
	is_int(heard(again, answer, sizeof(answer)), -ECONNRESET, "nothing is read that is beyond the word");

	halves = visit(PD_LOOPBACK, pd_door_words(door, 0)->ask, PD_WORD_BYTES / 2);
	look();
	is_int(heard(halves, answer, sizeof(answer)), -EAGAIN, "half a word is waited on");
	if (send(halves, pd_door_words(door, 0)->ask + PD_WORD_BYTES / 2, PD_WORD_BYTES / 2, 0) < 0)
		diag("%s", strerror(errno));
	is_int((int)look(), GUESTS - 2, "and the other half lets in");
	pd_door_forget(door, 2);
	is_int(visit(PD_LOOPBACK, "", 0), -1, "when nobody else is expected, nobody listens");
	for (int i = 0; i < GUESTS; i++)
		if (came[i] >= 0)
			close(came[i]);
	close(fd);
	close(again);
	close(halves);
	pd_door_close(door);
}

/* Silent ones of one address are sent away for each other, and not for those of others. */
static void crowd(void)
{
	enum { CROWD = PD_MOST_STRANGERS + 100 };
	int first, fds[CROWD], gone = 0;
	uint8_t answer[PD_WORD_BYTES];

	begin();
	pd_socket_allow_many();
	first = visit("127.0.0.3", pd_door_words(door, 2)->ask, PD_WORD_BYTES / 2);
	look();
	for (int i = 0; i < CROWD; i++)
		fds[i] = visit("127.0.0.2", "", 0);
	look();
	for (int i = 0; i < CROWD; i++)
		gone += heard(fds[i], answer, sizeof(answer)) == 0;
	is_int(gone, CROWD - PD_MOST_STRANGERS + 1, "those who are too many leave");
	is_int(heard(fds[0], answer, sizeof(answer)), 0, "the oldest first");
	if (send(first, pd_door_words(door, 2)->ask + PD_WORD_BYTES / 2, PD_WORD_BYTES / 2, MSG_NOSIGNAL) < 0)
		diag("%s", strerror(errno));
	is_int((int)look(), GUESTS - 1, "one of another address, who came first, is still heard");
	is_int(heard(first, answer, sizeof(answer)), PD_WORD_BYTES, "and answered");
	pd_door_close(door);
	for (int i = 0; i < CROWD; i++)
		close(fds[i]);
	close(first);
	close(came[2]);
}

int main(void)
{
	guests();
	crowd();
	return done_testing();
}
