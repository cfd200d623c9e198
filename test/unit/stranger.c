/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stranger MOST WIRE HOST...: connects to whatever listens at an address of the hosts, for a minute or until
 * SIGTERM, but MOST times.  WIRE and HOST are network namespaces.  It says nothing, half a word, a wrong word,
 * the number with which UCX's TCP begins, or garbage; and once it has seen a word of others on the wire, it says
 * that again.  At the end it prints
 *
 *     {"ports": 4, "connections": 3000, "answered": 0, "replayed": 20, "words": 4}
 *
 * where answered are those that were given any byte.
 */
#include "base/clock.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define KEPT 512                        /* connections that are open at once */
#define LIMIT_NS INT64_C(60000000000)
#define LOOK_NS INT64_C(20000000)
#define WORD 16
#define MOST_WORDS 64
#define MOST_PORTS 4096
#define KINDS 8                         /* of what is said, in turn */

static struct { long connections, answered, replayed; } count;
static int kept[KEPT];
static struct { uint32_t address; uint16_t port; bool shut; } ports[MOST_PORTS];
static int port_count;
static uint8_t words[MOST_WORDS][WORD];
static int word_count;
static volatile sig_atomic_t ended;

static void end(int signal)
{
	ended = 1;
}

/* Enters a network namespace. */
static void enter(const char *name)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) < 0) {
		fprintf(stderr, "stranger: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	close(fd);
}

/* Returns a process that does nothing in a network namespace, since to enter one takes long. */
static pid_t live_at(const char *name)
{
	int ready[2];
	char byte;
	pid_t pid;

	if (pipe(ready) < 0 || (pid = fork()) < 0)
		exit(1);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGTERM, SIG_DFL);
		enter(name);
		if (write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	if (read(ready[0], &byte, 1) != 1)
		exit(1);
	return pid;
}

/* ---- what others say ---- */

/* This one's own wrong words have one byte all through. */
static bool is_known(const uint8_t *word)
{
	if (memcmp(word, word + 1, WORD - 1) == 0)
		return true;
	for (int i = 0; i < word_count; i++)
		if (memcmp(words[i], word, WORD) == 0)
			return true;
	return false;
}

/* Remembers the bytes of a packet of TCP that has as many as a word. */
static void hear(const uint8_t *packet, size_t bytes)
{
	const struct ethhdr *frame = (const struct ethhdr *)packet;
	const struct iphdr *ip = (const struct iphdr *)(packet + ETH_HLEN);
	size_t head = ETH_HLEN + ip->ihl * 4u, all = ETH_HLEN + (size_t)ntohs(ip->tot_len);
	const struct tcphdr *tcp = (const struct tcphdr *)(packet + head);

	if (frame->h_proto != htons(ETH_P_IP) || bytes < head + sizeof(*tcp) || ip->protocol != IPPROTO_TCP)
		return;
	head += tcp->doff * 4u;
	if (all == head + WORD && bytes >= all && word_count < MOST_WORDS && !is_known(packet + head))
		memcpy(words[word_count++], packet + head, WORD);
}

static void listen_to(int wire)
{
	uint8_t packet[2048];
	ssize_t n;

	while ((n = recv(wire, packet, sizeof(packet), MSG_DONTWAIT)) > 0)
		if ((size_t)n > ETH_HLEN + sizeof(struct iphdr))
			hear(packet, (size_t)n);
}

/* ---- what this one says ---- */

static size_t speech(long number, uint8_t *out)
{
	static const uint64_t magic = UINT64_C(0xCAFEBABE12345678);

	memset(out, (int)number, 4096);
	switch (number % KINDS) {
	case 0:
		return WORD / 2;
	case 1:
		return WORD;
	case 2:
		memcpy(out, &magic, sizeof(magic));
		return 41;
	case 3:
		return 4096;
	case 4:
	case 5:
		if (word_count == 0)
			return 0;
		memcpy(out, words[(number / KINDS) % word_count], WORD);
		count.replayed++;
		return WORD + number % 2;
	default:
		return 0;
	}
}

/* Ends a connection, and notes whether it was given anything. */
static void drop(int fd)
{
	char byte;

	if (fd <= 0)
		return;
	count.answered += recv(fd, &byte, 1, MSG_DONTWAIT) > 0;
	close(fd);
}

/* Returns whether somebody listens there. */
static bool visit(uint32_t address, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = address, .sin_port = htons(port) };
	struct timeval patience = { .tv_usec = 50000 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint8_t said[4096];
	size_t bytes;
	bool refused;

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		refused = errno == ECONNREFUSED;
		close(fd);
		return !refused;
	}
	bytes = speech(count.connections, said);
	/* the other side may have closed already */
	if (bytes > 0 && send(fd, said, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EAGAIN)
		fprintf(stderr, "stranger: %zu bytes find no room\n", bytes);
	count.connections++;
	drop(kept[count.connections % KEPT]);
	kept[count.connections % KEPT] = fd;
	return true;
}

/* Notes a port. */
static void note(uint32_t address, uint16_t port)
{
	for (int i = 0; i < port_count; i++)
		if (ports[i].address == address && ports[i].port == port) {
			ports[i].shut = false;
			return;
		}
	if (port_count == MOST_PORTS)
		return;
	ports[port_count].address = address;
	ports[port_count++].port = port;
}

/* Notes what listens at an address of the host's own, whose sockets are in /proc of that process. */
static void look_around(pid_t host)
{
	unsigned int address, port, state;
	char line[512], path[64];
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/net/tcp", (int)host);
	in = fopen(path, "r");
	while (in && fgets(line, sizeof(line), in))
		if (sscanf(line, " %*d: %x:%x %*x:%*x %x", &address, &port, &state) == 3 && state == 10 &&
		    address != 0 && (ntohl(address) >> 24) != 127)
			note(address, (uint16_t)port);
	if (in)
		fclose(in);
}

/* Visits all ports where somebody listens. */
static void visit_all(void)
{
	for (int i = 0; i < port_count; i++)
		for (int k = 0; k < KINDS && !ports[i].shut; k++)
			ports[i].shut = !visit(ports[i].address, ports[i].port);
}

int main(int argc, char **argv)
{
	int64_t until_ns = pd_now_ns() + LIMIT_NS, looked_ns = 0;
	long most = argc > 3 ? atol(argv[1]) : 0;
	pid_t hosts[16];
	int self, wire;

	signal(SIGTERM, end);
	self = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (most == 0 || argc > 19)
		return 2;
	enter(argv[2]);
	wire = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
	for (int i = 3; i < argc; i++)
		hosts[i - 3] = live_at(argv[i]);
	setns(self, CLONE_NEWNET);
	while (!ended && pd_now_ns() < until_ns && count.connections < most) {
		listen_to(wire);
		/* to look around takes long */
		if (pd_now_ns() - looked_ns > LOOK_NS) {
			for (int i = 0; i < argc - 3; i++)
				look_around(hosts[i]);
			looked_ns = pd_now_ns();
		}
		visit_all();
		poll(NULL, 0, 1);
	}
	for (int i = 0; i < KEPT; i++)
		drop(kept[i]);
	printf("{\"ports\": %d, \"connections\": %ld, \"answered\": %ld, \"replayed\": %ld, \"words\": %d}\n",
	       port_count, count.connections, count.answered, count.replayed, word_count);
	return 0;
}
