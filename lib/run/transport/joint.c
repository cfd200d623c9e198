/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/joint.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MOST 4                          /* providers of the host's memory */

/* An address is the seat and, for each part, these lengths, what it offers, and its own address. */
struct lengths { uint32_t offer, address; };

struct joint {
	struct pd_transport base;
	int rank, ranks, count, events; /* events: an epoll of all parts; -1: there is one */
	bool asked;
	struct pd_provided parts[MOST];        /* best first; the same at all ranks */
	char *address;
	size_t address_bytes;
	struct pd_provided **by_peer;          /* NULL until connected */
};

static struct joint *joint_of(struct pd_transport *t)
{
	return (struct joint *)t;
}

/* ---- addresses ---- */

static void append(struct joint *j, const void *bytes, size_t count)
{
	j->address = pd_regrow(j->address, j->address_bytes + count, 1);
	if (count > 0)
		memcpy(j->address + j->address_bytes, bytes, count);
	j->address_bytes += count;
}

static int append_part(struct joint *j, const struct pd_provided *part, const struct pd_transport_config *config,
		       struct pd_error *err)
{
	const void *address;
	size_t offered = 0, length;
	void *offer = NULL;

	if (part->by->offer && !(offer = part->by->offer(config, &offered, err)))
		return -1;
	part->by->connector->address(part->transport, &address, &length);
	append(j, &(struct lengths){ (uint32_t)offered, (uint32_t)length }, sizeof(struct lengths));
	append(j, offer, offered);
	append(j, address, length);
	free(offer);
	return 0;
}

/* Finds what part number n has in an address: *end, and its own address. */
static const char *read_part(const char *address, int n, struct pd_transport_end *end, size_t *length_p)
{
	struct lengths lengths;

	memcpy(&end->seat, address, sizeof(end->seat));
	address += sizeof(end->seat);
	for (int i = 0;; i++) {
		memcpy(&lengths, address, sizeof(lengths));
		address += sizeof(lengths);
		if (i == n)
			break;
		address += lengths.offer + lengths.address;
	}
	end->offer = lengths.offer ? address : NULL;
	*length_p = lengths.address;
	return address + lengths.offer;
}

static void joint_address(struct pd_transport *t, const void **bytes_p, size_t *length_p)
{
	*bytes_p = joint_of(t)->address;
	*length_p = joint_of(t)->address_bytes;
}

/* ---- which part reaches which peer ---- */

static struct pd_provided *part_for(struct joint *j, int peer, const void *const *addresses)
{
	for (int n = 0; n < j->count; n++) {
		struct pd_transport_end self = { .rank = j->rank }, other = { .rank = peer };
		size_t length;

		read_part(j->address, n, &self, &length);
		read_part(addresses[peer], n, &other, &length);
		if (j->parts[n].by->reaches(&self, &other, j->asked))
			return &j->parts[n];
	}
	return NULL;
}

static int choose(struct joint *j, const void *const *addresses, struct pd_error *err)
{
	for (int r = 0; r < j->ranks; r++) {
		struct pd_transport_end self, other;
		char names[64] = "";
		size_t length;

		if (!addresses[r])
			continue;
		j->by_peer[r] = part_for(j, r, addresses);
		if (j->by_peer[r])
			continue;
		for (int n = 0; n < j->count; n++)
			pd_list_name(names, sizeof(names), j->parts[n].by->name, "");
		read_part(j->address, 0, &self, &length);
		read_part(addresses[r], 0, &other, &length);
		return pd_error_failed(err, "rank %d is on host %s, rank %d on host %s: %s does not reach "
				       "from one to the other", j->rank, self.seat.host, r,
				       other.seat.host, names);
	}
	return 0;
}

static int connect_part(struct joint *j, int n, const void *const *addresses, struct pd_error *err)
{
	size_t *lengths = pd_calloc((size_t)j->ranks, sizeof(*lengths));
	const void **own = pd_calloc((size_t)j->ranks, sizeof(*own));
	struct pd_transport *transport = j->parts[n].transport;
	int status;

	for (int r = 0; r < j->ranks; r++) {
		struct pd_transport_end end;

		if (j->by_peer[r] == &j->parts[n])
			own[r] = read_part(addresses[r], n, &end, &lengths[r]);
	}
	status = j->parts[n].by->connector->connect(transport, own, lengths, err);
	free(own);
	free(lengths);
	return status;
}

static int joint_connect(struct pd_transport *t, const void *const *addresses, const size_t *lengths,
			 struct pd_error *err)
{
	struct joint *j = joint_of(t);
	int status;

	j->by_peer = pd_calloc((size_t)j->ranks, sizeof(struct pd_provided *));
	status = choose(j, addresses, err);
	for (int n = 0; n < j->count && status == 0; n++)
		status = connect_part(j, n, addresses, err);
	return status;
}

/* ---- the seam ---- */

static struct pd_transport *toward(struct pd_transport *t, int peer)
{
	const struct joint *j = joint_of(t);

	if (peer < 0 || peer >= j->ranks || !j->by_peer || !j->by_peer[peer])
		pd_bug("rank %d: transfer with rank %d (of %d%s)", j->rank, peer, j->ranks,
		       j->by_peer ? "" : ", not connected");
	return j->by_peer[peer]->transport;
}

static int joint_send(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		      const struct pd_event *after, struct pd_event *done)
{
	t = toward(t, peer);
	return t->ops->send(t, peer, tag, buf, bytes, after, done);
}

static int joint_recv(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		      const struct pd_event *after, struct pd_event *done)
{
	t = toward(t, peer);
	return t->ops->recv(t, peer, tag, buf, bytes, after, done);
}

static int joint_progress(struct pd_transport *t)
{
	const struct joint *j = joint_of(t);
	int moved = 0;
	bool broken = false;

	for (int n = 0; n < j->count; n++) {
		struct pd_transport *part = j->parts[n].transport;
		int more = part->ops->progress(part);

		broken |= more < 0;
		moved += more;
	}
	return broken ? -1 : moved;
}

static int joint_fd(struct pd_transport *t)
{
	const struct joint *j = joint_of(t);
	struct pd_transport *only = j->parts[0].transport;

	return j->events >= 0 ? j->events : only->ops->fd(only);
}

static int joint_arm(struct pd_transport *t)
{
	const struct joint *j = joint_of(t);

	for (int n = 0; n < j->count; n++)
		if (j->parts[n].transport->ops->arm(j->parts[n].transport) != 0)
			return 1;
	return 0;
}

static void joint_cancel(struct pd_transport *t)
{
	const struct joint *j = joint_of(t);

	for (int n = 0; n < j->count; n++)
		j->parts[n].by->connector->cancel(j->parts[n].transport);
}

static void joint_close(struct pd_transport *t)
{
	struct joint *j = joint_of(t);

	for (int n = 0; n < j->count; n++)
		j->parts[n].transport->ops->close(j->parts[n].transport);
	if (j->events >= 0)
		close(j->events);
	free(j->address);
	free(j->by_peer);
	free(j);
}

static const struct pd_transport_ops joint_ops = {
	.close = joint_close,
	.send = joint_send,
	.recv = joint_recv,
	.progress = joint_progress,
	.fd = joint_fd,
	.arm = joint_arm,
};

/* ---- the provider ---- */

/*
 * Returns whether the provider may be needed.  Where there is one host, that is whether it reaches a rank
 * beside this one.
 */
static bool is_needed(const struct pd_transport_provider *provider, const struct pd_transport_config *config)
{
	struct pd_transport_end end = { .rank = config->rank };

	if (config->how)
		return strcmp(config->how, provider->name) == 0;
	if (!config->seat || config->seat->hosts > 1)
		return true;
	end.seat = *config->seat;
	return provider->reaches(&end, &end, false);
}

static int open_parts(struct joint *j, const struct pd_transport_config *config, struct pd_error *err)
{
	for (int i = 0; pd_providers[i]; i++) {
		struct pd_provided *part = &j->parts[j->count];

		if (!pd_providers[i]->connector || !is_needed(pd_providers[i], config))
			continue;
		*part = (struct pd_provided){ pd_providers[i], pd_providers[i]->open(config, err) };
		if (!part->transport)
			return -1;
		j->count++;
		if (append_part(j, part, config, err) < 0)
			return -1;
	}
	return 0;
}

static int join_descriptors(struct joint *j, struct pd_error *err)
{
	j->events = epoll_create1(EPOLL_CLOEXEC);
	if (j->events < 0)
		return pd_error_failed(err, "epoll: %s", strerror(errno));
	for (int n = 0; n < j->count; n++) {
		struct pd_transport *part = j->parts[n].transport;
		struct epoll_event event = { .events = EPOLLIN };

		if (epoll_ctl(j->events, EPOLL_CTL_ADD, part->ops->fd(part), &event) < 0)
			return pd_error_failed(err, "epoll: %s", strerror(errno));
	}
	return 0;
}

static struct pd_transport *joint_open(const struct pd_transport_config *config, struct pd_error *err)
{
	struct pd_transport_config own = *config;
	struct joint *j = pd_zalloc(sizeof(*j));
	struct pd_seat seat = { 0 };

	j->base.ops = &joint_ops;
	j->rank = config->rank;
	j->ranks = config->ranks;
	j->events = -1;
	own.asked = j->asked = config->how != NULL;
	if (config->seat)
		seat = *config->seat;
	append(j, &seat, sizeof(seat));
	if (open_parts(j, &own, err) == 0 && (j->count == 1 || join_descriptors(j, err) == 0))
		return &j->base;
	joint_close(&j->base);
	return NULL;
}

static const struct pd_connector connector = {
	.address = joint_address,
	.connect = joint_connect,
	.cancel = joint_cancel,
};

const struct pd_transport_provider pd_provider_joint = {
	.name = "joint",
	.connector = &connector,
	.open = joint_open,
};
