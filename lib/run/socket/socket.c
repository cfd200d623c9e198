/* SPDX-License-Identifier: Apache-2.0 */
#include "run/socket/socket.h"

#include "base/json.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_BACKLOG 4096
#define CONNECT_MS 3000

/* ---- addresses ---- */

/* Writes an address without its port; "" where it is none of a network. */
static void write_address(const struct sockaddr *a, char text[PD_SOCKET_ADDRESS])
{
	const void *number = a->sa_family == AF_INET
		? (const void *)&((const struct sockaddr_in *)a)->sin_addr
		: &((const struct sockaddr_in6 *)a)->sin6_addr;

	text[0] = 0;
	if (a->sa_family == AF_INET || a->sa_family == AF_INET6)
		inet_ntop(a->sa_family, number, text, PD_SOCKET_ADDRESS);
}

/* Reads a numeric address, to be freed; NULL with errno. */
static struct addrinfo *read_address(const char *address, int port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				  .ai_socktype = SOCK_STREAM }, *to;
	char service[16];

	snprintf(service, sizeof(service), "%d", port);
	if (getaddrinfo(address, service, &hints, &to) == 0)
		return to;
	errno = EINVAL;
	return NULL;
}

/* Tells whether other hosts may reach the address: one of a link alone needs more than a number. */
static bool is_usable(const struct ifaddrs *i)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)i->ifa_addr;

	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK)
		return false;
	return i->ifa_addr->sa_family == AF_INET ||
	       (i->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr));
}

json_t *pd_socket_addresses(const char *interface)
{
	json_t *list = json_array();
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all) < 0)
		return list;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		char text[PD_SOCKET_ADDRESS];

		if (!is_usable(i) || (interface && strcmp(i->ifa_name, interface) != 0))
			continue;
		write_address(i->ifa_addr, text);
		pd_json_add(list, json_string(text));
	}
	freeifaddrs(all);
	return list;
}

/* Adds an address to a list that has it not. */
static void add_once(json_t *list, const char *address)
{
	json_t *one;
	size_t i;

	json_array_foreach(list, i, one)
		if (strcmp(json_string_value(one), address) == 0)
			return;
	pd_json_add(list, json_string(address));
}

static bool is_loopback(const char *address)
{
	return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* Adds the address that packets to another would leave from, and says whether there is one. */
static bool add_source(const struct addrinfo *to, json_t *list)
{
	int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char text[PD_SOCKET_ADDRESS] = "";

	/* nothing is sent: the kernel chooses a route */
	if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0)
		pd_socket_own_address(fd, text);
	if (fd >= 0)
		close(fd);
	if (!text[0] || is_loopback(text))
		return false;
	add_once(list, text);
	return true;
}

int pd_socket_addresses_toward(const char *host, json_t *list)
{
	struct addrinfo hints = { .ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV }, *all;
	bool any = false;

	/* the port is of no consequence, but the system wants one */
	if (getaddrinfo(host, "9", &hints, &all) != 0)
		return -1;
	for (const struct addrinfo *to = all; to; to = to->ai_next)
		any |= add_source(to, list);
	freeaddrinfo(all);
	return any ? 0 : -1;
}

static void address_of(int fd, int (*name_of)(int, struct sockaddr *, socklen_t *),
		       char text[PD_SOCKET_ADDRESS])
{
	struct sockaddr_storage name = { .ss_family = AF_UNSPEC };
	socklen_t length = sizeof(name);

	if (name_of(fd, (struct sockaddr *)&name, &length) < 0)
		name.ss_family = AF_UNSPEC;
	write_address((struct sockaddr *)&name, text);
}

void pd_socket_own_address(int fd, char text[PD_SOCKET_ADDRESS])
{
	address_of(fd, getsockname, text);
}

void pd_socket_peer_address(int fd, char text[PD_SOCKET_ADDRESS])
{
	address_of(fd, getpeername, text);
}

void pd_socket_interface(const char *address, char name[IF_NAMESIZE])
{
	struct ifaddrs *all = NULL;

	name[0] = 0;
	if (getifaddrs(&all) < 0)
		return;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		char text[PD_SOCKET_ADDRESS];

		if (!is_usable(i))
			continue;
		write_address(i->ifa_addr, text);
		if (strcmp(text, address) == 0)
			snprintf(name, IF_NAMESIZE, "%s", i->ifa_name);
	}
	freeifaddrs(all);
}

/* ---- connections ---- */

/* Makes a socket for an address and has it begin; returns it, or -1 with errno. */
static int begin(const struct addrinfo *a, int (*act)(int, const struct addrinfo *))
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), why;

	if (fd < 0 || act(fd, a) == 0)
		return fd;
	why = errno;
	close(fd);
	errno = why;
	return -1;
}

static int listen_at(int fd, const struct addrinfo *a)
{
	return bind(fd, a->ai_addr, a->ai_addrlen) < 0 ? -1 : listen(fd, LISTEN_BACKLOG);
}

int pd_socket_listen(const char *address, int *port_p, struct pd_error *err)
{
	struct addrinfo *a = read_address(address, 0);
	struct sockaddr_storage name;
	socklen_t length = sizeof(name);
	int fd = a ? begin(a, listen_at) : -1;

	if (fd < 0 || getsockname(fd, (struct sockaddr *)&name, &length) < 0)
		pd_error_failed(err, "cannot listen at %s: %s", address, strerror(errno));
	else    /* both families have the port at the same place */
		*port_p = ntohs(((struct sockaddr_in *)&name)->sin_port);
	if (a)
		freeaddrinfo(a);
	return fd;
}

static int connect_to(int fd, const struct addrinfo *a)
{
	return connect(fd, a->ai_addr, a->ai_addrlen) < 0 && errno != EINPROGRESS ? -1 : 0;
}

int pd_socket_begin_connect(const char *address, int port)
{
	struct addrinfo *a = read_address(address, port);
	int fd = a ? begin(a, connect_to) : -1;

	if (a)
		freeaddrinfo(a);
	return fd;
}

int pd_socket_error(int fd)
{
	int error = 0;
	socklen_t length = sizeof(error);

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0 ? errno : error;
}

int pd_socket_connect(const char *address, int port)
{
	struct pollfd p = { .fd = pd_socket_begin_connect(address, port), .events = POLLOUT };
	int n, why;

	if (p.fd < 0)
		return -1;
	while ((n = poll(&p, 1, CONNECT_MS)) < 0 && errno == EINTR)
		;
	why = n == 0 ? ETIMEDOUT : n < 0 ? errno : pd_socket_error(p.fd);
	if (!why) {
		fcntl(p.fd, F_SETFL, fcntl(p.fd, F_GETFL) & ~O_NONBLOCK);
		return p.fd;
	}
	close(p.fd);
	errno = why;
	return -1;
}

void pd_socket_at_once(int fd)
{
	int yes = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

void pd_socket_watch(int fd)
{
	int yes = 1, idle_s = 2, between_s = 1, count = PD_SOCKET_SILENCE_S - idle_s;
	unsigned int silence_ms = PD_SOCKET_SILENCE_S * 1000;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof(between_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	/* where something was sent that is not acknowledged, there are no such probes */
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof(silence_ms));
}

void pd_socket_allow_many(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}
