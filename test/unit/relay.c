/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays a network that is slow or loses packets, between hosts that contrib/hosts.sh makes:
 *
 *     relay PREFIX COUNT DELAY_MS LOSS_PERCENT [later]
 *
 * makes COUNT tun devices PREFIX1, PREFIX2 and so on, writes "ready", and from then on takes each
 * packet to the device N of its destination, 10.99.(N / 256).(N % 256), DELAY_MS milliseconds later,
 * except for LOSS_PERCENT of the packets, which are lost at random, always the same ones.  With "later"
 * it takes all packets at once until it gets SIGUSR1.  It ends with its parent.  It exits with 77 and
 * an error message if there are no such devices.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define PACKET_BYTES 2048
#define QUEUE 32768                     /* packets on their way; more stay in the devices, or are lost */
#define MOST 64                         /* the most devices */

struct packet {
	int64_t due_ns;
	int to;
	ssize_t bytes;
	unsigned char data[PACKET_BYTES];
};

static struct packet *queue;
static size_t first, count;
static struct pollfd devices[MOST];

static volatile sig_atomic_t bad = 1;

static void turn_bad(int number)
{
	bad = 1;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int open_device(const char *prefix, int number)
{
	struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%.11s%hhu", prefix,
		 (unsigned char)number);
	if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0)
		return fd;
	fprintf(stderr, "relay: no tun devices here: %s\n", strerror(errno));
	exit(77);
}

/* Returns the index of the device that leads to an IPv4 packet's destination, or -1. */
static int destination(const struct packet *p, int devices_count)
{
	int number = p->bytes >= 20 && p->data[0] >> 4 == 4 ? p->data[18] * 256 + p->data[19] : 0;

	return number >= 1 && number <= devices_count ? number - 1 : -1;
}

/* Queues all packets that a device has, except for those that are lost. */
static void take(int fd, int devices_count, int64_t delay_ns, double loss)
{
	static uint64_t state = 88172645463325252u;

	while (count < QUEUE) {
		struct packet *p = &queue[(first + count) % QUEUE];

		p->bytes = read(fd, p->data, sizeof(p->data));
		if (p->bytes <= 0)
			return;
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		p->to = destination(p, devices_count);
		p->due_ns = now_ns() + delay_ns;
		count += p->to >= 0 && (double)(state >> 11) / 9007199254740992.0 * 100 >= loss;
	}
}

static void deliver(void)
{
	while (count > 0 && queue[first].due_ns <= now_ns()) {
		const struct packet *p = &queue[first];

		/* A device that is down or full loses the packet, as a network would. */
		if (write(devices[p->to].fd, p->data, (size_t)p->bytes) < 0 && errno == EBADF)
			exit(1);
		first = (first + 1) % QUEUE;
		count--;
	}
}

int main(int argc, char **argv)
{
	int n = argc == 5 || argc == 6 ? atoi(argv[2]) : 0;
	double delay_ms, loss;

	if (n < 1 || n > MOST) {
		fprintf(stderr, "usage: relay PREFIX COUNT DELAY_MS LOSS_PERCENT [later]\n");
		return 2;
	}
	delay_ms = atof(argv[3]);
	loss = atof(argv[4]);
	bad = argc == 5;
	signal(SIGUSR1, turn_bad);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	queue = calloc(QUEUE, sizeof(*queue));
	if (!queue)
		return 3;
	for (int i = 0; i < n; i++)
		devices[i] = (struct pollfd){ .fd = open_device(argv[1], i + 1), .events = POLLIN };
	puts("ready");
	fclose(stdout);
	for (;;) {
		int64_t wait_ns = count ? queue[first].due_ns - now_ns() : INT64_C(1000000000);
		struct timespec wait = { .tv_nsec = wait_ns > 999999999 ? 999999999 :
						    wait_ns > 0 ? (long)wait_ns : 0 };

		ppoll(devices, (nfds_t)n, &wait, NULL);
		for (int i = 0; i < n; i++)
			if (devices[i].revents & POLLIN)
				take(devices[i].fd, n, bad ? (int64_t)(delay_ms * 1e6) : 0,
				     bad ? loss : 0);
		deliver();
	}
}
