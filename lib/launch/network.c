/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/network.h"

#include "base/json.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_BACKLOG 1024
#define CONNECT_MS 3000
#define SILENCE_MS 7000                 /* of the other host */

/* The number that has to be compared, without the port. */
static const void *number_of(const struct sockaddr *a, size_t *size_p)
{
	if (a->sa_family == AF_INET) {
		*size_p = sizeof(struct in_addr);
		return &((const struct sockaddr_in *)a)->sin_addr;
	}
	*size_p = sizeof(struct in6_addr);
	return &((const struct sockaddr_in6 *)a)->sin6_addr;
}

static int bind_any(int fd, int family, bool loopback)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr.s_addr =
				    htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY) };
	int no = 0;

	if (family == AF_INET)
		return bind(fd, (struct sockaddr *)&four, sizeof(four));
	/* IPv4 comes here, too */
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
	return bind(fd, (struct sockaddr *)&six, sizeof(six));
}

/* Returns a socket that listens, or -1 with errno. */
static int listen_on(int family, bool loopback)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && (bind_any(fd, family, loopback) < 0 || listen(fd, LISTEN_BACKLOG) < 0)) {
		int why = errno;

		close(fd);
		errno = why;
		return -1;
	}
	return fd;
}

int pd_network_listen(bool loopback, int *port_p, struct pd_error *err)
{
	struct sockaddr_storage name;
	socklen_t length = sizeof(name);
	int fd = loopback ? -1 : listen_on(AF_INET6, false);

	if (fd < 0)                     /* this kernel may know IPv4 alone */
		fd = listen_on(AF_INET, loopback);
	if (fd < 0 || getsockname(fd, (struct sockaddr *)&name, &length) < 0)
		return pd_error_failed(err, "cannot listen on a port: %s", strerror(errno));
	/* both have the port at the same place */
	*port_p = ntohs(((struct sockaddr_in *)&name)->sin_port);
	return fd;
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

json_t *pd_network_addresses(bool loopback)
{
	json_t *list = json_array();
	struct ifaddrs *all = NULL;

	if (loopback) {
		pd_json_add(list, json_string("127.0.0.1"));
		return list;
	}
	if (getifaddrs(&all) < 0)
		return list;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		char text[INET6_ADDRSTRLEN];
		size_t size;

		if (is_usable(i) && inet_ntop(i->ifa_addr->sa_family, number_of(i->ifa_addr, &size),
					      text, sizeof(text)))
			pd_json_add(list, json_string(text));
	}
	freeifaddrs(all);
	return list;
}

/* Waits until a connection is there or refused; -1 with errno. */
static int wait_connected(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t length = sizeof(errno);
	int n;

	while ((n = poll(&p, 1, CONNECT_MS)) < 0 && errno == EINTR)
		;
	if (n == 0)
		errno = ETIMEDOUT;
	if (n <= 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &errno, &length) < 0)
		return -1;
	return errno ? -1 : 0;
}

int pd_network_connect(const char *address, int port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				  .ai_socktype = SOCK_STREAM }, *to;
	char service[16];
	int fd;

	snprintf(service, sizeof(service), "%d", port);
	if (getaddrinfo(address, service, &hints, &to) != 0) {
		errno = EINVAL;
		return -1;
	}
	fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && ((connect(fd, to->ai_addr, to->ai_addrlen) < 0 && errno != EINPROGRESS) ||
			wait_connected(fd) < 0)) {
		int why = errno;

		close(fd);
		errno = why;
		fd = -1;
	}
	freeaddrinfo(to);
	return fd;
}

void pd_network_watch(int fd)
{
	int yes = 1, idle_s = 2, between_s = 1, count = SILENCE_MS / 1000 - idle_s;
	unsigned int silence_ms = SILENCE_MS;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof(between_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	/* where something was sent that is not acknowledged, there are no such probes */
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof(silence_ms));
}

/* IPv4 in the form of IPv6 becomes plain. */
static void plain(struct sockaddr_storage *a)
{
	struct sockaddr_in6 six;
	struct sockaddr_in four = { .sin_family = AF_INET };

	memcpy(&six, a, sizeof(six));
	if (a->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
		return;
	memcpy(&four.sin_addr, &six.sin6_addr.s6_addr[12], sizeof(four.sin_addr));
	memcpy(a, &four, sizeof(four));
}

void pd_network_interface(int fd, char name[IF_NAMESIZE])
{
	struct sockaddr_storage own;
	socklen_t length = sizeof(own);
	struct ifaddrs *all = NULL;
	const void *number;
	size_t size, other;

	name[0] = 0;
	if (getsockname(fd, (struct sockaddr *)&own, &length) < 0 || getifaddrs(&all) < 0)
		return;
	plain(&own);
	number = number_of((struct sockaddr *)&own, &size);
	for (const struct ifaddrs *i = all; i; i = i->ifa_next)
		if (is_usable(i) && i->ifa_addr->sa_family == own.ss_family &&
		    memcmp(number_of(i->ifa_addr, &other), number, size) == 0)
			snprintf(name, IF_NAMESIZE, "%s", i->ifa_name);
	freeifaddrs(all);
}
