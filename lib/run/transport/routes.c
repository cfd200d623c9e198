/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/routes.h"

#include "base/mem.h"
#include "run/transport/joint.h"

#include <stdlib.h>
#include <string.h>

/*
 * An address is this head, an offer for each provider of device memory, in the order of
 * pd_providers, and then the address of the host's transport.
 */
struct head {
	struct pd_seat seat;
	char place[32];
};

struct offer {
	uint32_t bytes;                 /* length of the offer, which follows */
	/* the reason why no offer follows, or "" where none is needed */
	char lacks[PD_LACKS_TEXT];
};

struct routes_group {
	struct pd_group base;
	struct routes_group *next;
	struct pd_group *over;          /* NULL until connected */
	int *ranks, count;
	struct pd_group_trial trial;    /* the largest of all that use it */
};

struct routes {
	struct pd_transport base;
	struct pd_routes_config config;
	bool *peers;
	char *address;
	size_t address_bytes;
	struct pd_provided host;
	int count;
	struct pd_provided *over;       /* transports of device memory, over the host's */
	struct pd_provided **by_peer;   /* NULL until connected */
	struct routes_group *groups;    /* in the order of the calls of group() */
	char why[256];
};

/* Returns the name of a provider that is asked for where it is one of devices' memory, or of the host's. */
static const char *asked_for(const char *how, bool of_devices)
{
	return how && pd_provider_of_devices(how) == of_devices ? how : NULL;
}

static bool is_allowed(const struct pd_transport_provider *provider, const char *how)
{
	return !provider->connector && (!how || strcmp(how, provider->name) == 0);
}

void pd_routes_prepare(const char *how, const struct pd_device_ops *device, int rank, int ranks,
		       const struct pd_seat *seat)
{
	how = asked_for(how, true);
	for (int i = 0; pd_providers[i]; i++)
		if (is_allowed(pd_providers[i], how) && pd_providers[i]->prepare)
			pd_providers[i]->prepare(device, rank, ranks, seat, how != NULL);
}

/* ---- addresses ---- */

static void append(struct routes *t, const void *bytes, size_t count)
{
	t->address = pd_regrow(t->address, t->address_bytes + count, 1);
	if (count > 0)
		memcpy(t->address + t->address_bytes, bytes, count);
	t->address_bytes += count;
}

static struct pd_transport_config over_host(const struct routes *t, const bool *peers,
					    const struct pd_transport_end *ends)
{
	return (struct pd_transport_config){
		.rank = t->config.rank, .ranks = t->config.ranks, .gate = t->config.gate,
		.host = &t->host, .device = t->config.device, .seat = &t->config.seat,
		.peers = peers, .asked = t->config.how != NULL, .ends = ends,
		.under_way_bytes = t->config.under_way_bytes,
	};
}

static void append_offer(struct routes *t, const struct pd_transport_provider *provider)
{
	struct pd_transport_config config = over_host(t, t->peers, NULL);
	struct pd_error err = { .text = "" };
	struct offer offer = { .lacks = "" };
	size_t bytes = 0;
	void *offered = NULL;

	if (t->config.device && is_allowed(provider, t->config.how) && provider->offer)
		offered = provider->offer(&config, &bytes, &err);
	offer.bytes = (uint32_t)bytes;
	snprintf(offer.lacks, sizeof(offer.lacks), "%.*s", PD_LACKS_TEXT - 1, err.text);
	append(t, &offer, sizeof(offer));
	append(t, offered, bytes);
	free(offered);
}

static void write_address(struct routes *t)
{
	struct head head = { .seat = t->config.seat };
	struct pd_device *device = t->config.device;
	struct pd_device_info info;
	const void *bytes;
	size_t length;

	if (device) {
		device->ops->describe(device, &info);
		memcpy(head.place, info.place, sizeof(head.place));
	}
	append(t, &head, sizeof(head));
	for (int i = 0; pd_providers[i]; i++)
		if (!pd_providers[i]->connector)
			append_offer(t, pd_providers[i]);
	t->host.by->connector->address(t->host.transport, &bytes, &length);
	append(t, bytes, length);
}

/*
 * Reads an address: the offer to a provider of device memory, if `provider` is not NULL. Returns
 * where the host transport's own address begins.
 */
static const char *read_address(const char *address, const struct pd_transport_provider *provider,
				struct pd_transport_end *end)
{
	struct head head;

	memcpy(&head, address, sizeof(head));
	address += sizeof(head);
	end->seat = head.seat;
	memcpy(end->place, head.place, sizeof(end->place));
	for (int i = 0; pd_providers[i]; i++) {
		struct offer offer;

		if (pd_providers[i]->connector)
			continue;
		memcpy(&offer, address, sizeof(offer));
		address += sizeof(offer);
		if (pd_providers[i] == provider) {
			end->offer = offer.bytes ? address : NULL;
			memcpy(end->lacks, offer.lacks, sizeof(end->lacks));
		}
		address += offer.bytes;
	}
	return address;
}

static struct pd_transport_end *read_ends(const struct routes *t, const void *const *addresses,
					  const struct pd_transport_provider *provider)
{
	struct pd_transport_end *ends = pd_calloc((size_t)t->config.ranks, sizeof(*ends));

	for (int r = 0; r < t->config.ranks; r++) {
		ends[r].rank = r;
		if (addresses[r])
			read_address(addresses[r], provider, &ends[r]);
	}
	return ends;
}

/* ---- which provider reaches which peer ---- */

/* Finds the peers without a transport that the provider reaches; returns whether there are any. */
static bool find_reached(const struct routes *t, const struct pd_transport_provider *provider,
			const struct pd_transport_end *ends, bool *reached)
{
	bool any = false;

	for (int r = 0; r < t->config.ranks; r++) {
		reached[r] = t->peers[r] && !t->by_peer[r] &&
			     (!provider->reaches || provider->reaches(&ends[t->config.rank], &ends[r],
								      t->config.how != NULL));
		any |= reached[r];
	}
	return any;
}

static int open_over(struct routes *t, const struct pd_transport_provider *provider,
		     const struct pd_transport_end *ends, const bool *reached, struct pd_error *err)
{
	struct pd_transport_config config = over_host(t, reached, ends);
	struct pd_provided *over = &t->over[t->count];

	*over = (struct pd_provided){ provider, provider->open(&config, err) };
	if (!over->transport)
		return -1;
	t->count++;
	for (int r = 0; r < t->config.ranks; r++)
		if (reached[r])
			t->by_peer[r] = over;
	return 0;
}

/* Notes what the provider has to say of this rank and its peers: of others nothing is known here. */
static void explain(struct routes *t, const struct pd_transport_provider *provider,
		    const struct pd_transport_end *ends)
{
	struct pd_transport_end *known = pd_calloc((size_t)t->config.ranks, sizeof(*known));
	int count = 0;

	for (int r = 0; r < t->config.ranks; r++)
		if (t->peers[r] || r == t->config.rank)
			known[count++] = ends[r];
	provider->explain(known, count, t->config.how != NULL, t->why, sizeof(t->why));
	free(known);
}

/* Opens a provider of device memory, if it reaches any peer that is left. */
static int take(struct routes *t, const struct pd_transport_provider *provider,
		const void *const *addresses, bool *reached, struct pd_error *err)
{
	struct pd_transport_end *ends = read_ends(t, addresses, provider);
	bool asked = t->config.how != NULL, any;
	int status = 0;

	if (provider->explain && !t->why[0])
		explain(t, provider, ends);
	any = find_reached(t, provider, ends, reached);
	for (int r = 0; r < t->config.ranks && status == 0 && asked; r++)
		if (t->peers[r] && !reached[r]) {
			explain(t, provider, ends);
			status = pd_error_failed(err, "--transport=%s: %s", provider->name, t->why);
		}
	if (status == 0 && any)
		status = open_over(t, provider, ends, reached, err);
	free(ends);
	return status;
}

/* Chooses the providers between devices. */
static int route_devices(struct routes *t, const void *const *addresses, struct pd_error *err)
{
	bool *reached = pd_calloc((size_t)t->config.ranks, sizeof(*reached));
	bool alone = t->config.ranks == 1;
	int status = 0;

	for (int i = 0; pd_providers[i] && status == 0; i++)
		if (alone ? pd_providers[i]->alone : is_allowed(pd_providers[i], t->config.how))
			status = take(t, pd_providers[i], addresses, reached, err);
	free(reached);
	return status;
}

/* Connects the host's transport to all peers. */
static int connect_host(struct routes *t, const void *const *addresses, const size_t *lengths,
			struct pd_error *err)
{
	size_t ranks = (size_t)t->config.ranks, *rest = pd_calloc(ranks, sizeof(*rest));
	const void **at = pd_calloc(ranks, sizeof(*at));
	int status;

	for (size_t r = 0; r < ranks; r++) {
		struct pd_transport_end end;

		if (!addresses[r] || !t->peers[r])
			continue;
		at[r] = read_address(addresses[r], NULL, &end);
		rest[r] = lengths[r] - (size_t)((const char *)at[r] - (const char *)addresses[r]);
	}
	status = t->host.by->connector->connect(t->host.transport, at, rest, err);
	free(at);
	free(rest);
	return status;
}

/* ---- groups ---- */

static int connect_group(struct routes *t, struct routes_group *group, struct pd_error *err)
{
	const struct pd_provided *over = NULL;

	for (int i = 0; i < group->count; i++) {
		int r = group->ranks[i];

		if (r == t->config.rank)
			continue;
		over = t->by_peer[r];
		if (!over->by->sums)
			return pd_error_input(err, "the plan's reducer \"nccl\" needs NCCL between "
					      "replicas: ranks %d and %d are joined by %s%s%s",
					      t->config.rank, r, over->by->name,
					      t->why[0] ? ", since " : "", t->why);
	}
	group->over = over->transport->ops->group(over->transport, group->ranks, group->count,
						    &group->trial, err);
	return group->over ? 0 : -1;
}

static int group_all_reduce(struct pd_group *base, struct pd_group_sum *sum, struct pd_event *done)
{
	struct pd_group *over = ((struct routes_group *)base)->over;

	return over->all_reduce(over, sum, done);
}

static bool can_sum(const struct routes *t)
{
	bool any = false;

	for (int i = 0; pd_providers[i] && t->config.device; i++)
		any |= is_allowed(pd_providers[i], t->config.how) && pd_providers[i]->sums;
	return any;
}

static struct pd_group *group_with(struct routes_group *group, const struct pd_group_trial *trial)
{
	if (trial->room && trial->floats > group->trial.floats)
		group->trial = *trial;
	return &group->base;
}

static struct pd_group *routes_group(struct pd_transport *base, const int *ranks, int count,
				     const struct pd_group_trial *trial, struct pd_error *err)
{
	struct routes *t = (struct routes *)base;
	struct routes_group **at = &t->groups, *group;
	size_t bytes = (size_t)count * sizeof(*ranks);

	for (; *at; at = &(*at)->next)
		if ((*at)->count == count && memcmp((*at)->ranks, ranks, bytes) == 0)
			return group_with(*at, trial);
	if (!can_sum(t)) {
		pd_error_input(err, "the plan's reducer \"nccl\" needs GPUs that NCCL joins: expected "
			       "--device=cuda and --transport=auto or nccl, or a plan with another "
			       "--all-reduce");
		return NULL;
	}
	if (t->by_peer)
		pd_bug("rank %d: a group of ranks is new after they have connected", t->config.rank);
	group = *at = pd_zalloc(sizeof(*group));
	group->base.all_reduce = group_all_reduce;
	group->count = count;
	group->ranks = pd_calloc((size_t)count, sizeof(*ranks));
	memcpy(group->ranks, ranks, bytes);
	return group_with(group, trial);
}

/* ---- the seam ---- */

int pd_routes_connect(struct pd_transport *base, const void *const *addresses, const size_t *lengths,
		      struct pd_error *err)
{
	struct routes *t = (struct routes *)base;

	t->by_peer = pd_calloc((size_t)t->config.ranks, sizeof(struct pd_provided *));
	for (int r = 0; r < t->config.ranks; r++)
		t->by_peer[r] = t->peers[r] && !t->config.device ? &t->host : NULL;
	if (connect_host(t, addresses, lengths, err) < 0 ||
	    (t->config.device && route_devices(t, addresses, err) < 0))
		return -1;
	for (struct routes_group *group = t->groups; group; group = group->next)
		if (connect_group(t, group, err) < 0)
			return -1;
	return 0;
}

void pd_routes_address(struct pd_transport *base, const void **bytes_p, size_t *length_p)
{
	struct routes *t = (struct routes *)base;

	*bytes_p = t->address;
	*length_p = t->address_bytes;
}

static struct pd_transport *towards(struct pd_transport *base, int peer)
{
	struct routes *t = (struct routes *)base;

	if (peer < 0 || peer >= t->config.ranks || !t->by_peer || !t->by_peer[peer])
		pd_bug("rank %d: transfer with rank %d (of %d), with which it has no business",
		       t->config.rank, peer, t->config.ranks);
	return t->by_peer[peer]->transport;
}

static int routes_send(struct pd_transport *base, int peer, uint64_t tag, const void *buf,
		       size_t bytes, const struct pd_event *after, struct pd_event *done)
{
	struct pd_transport *t = towards(base, peer);

	return t->ops->send(t, peer, tag, buf, bytes, after, done);
}

static int routes_recv(struct pd_transport *base, int peer, uint64_t tag, void *buf, size_t bytes,
		       const struct pd_event *after, struct pd_event *done)
{
	struct pd_transport *t = towards(base, peer);

	return t->ops->recv(t, peer, tag, buf, bytes, after, done);
}

/* The transports over the host's call its progress() themselves. */
static int routes_progress(struct pd_transport *base)
{
	struct routes *t = (struct routes *)base;
	int moved = 0;

	if (t->count == 0)
		return t->host.transport->ops->progress(t->host.transport);
	for (int i = 0; i < t->count; i++) {
		int more = t->over[i].transport->ops->progress(t->over[i].transport);

		if (more < 0)
			return -1;
		moved += more;
	}
	return moved;
}

static int routes_fd(struct pd_transport *base)
{
	struct routes *t = (struct routes *)base;

	return t->host.transport->ops->fd(t->host.transport);
}

/* The transports over the host's arm it themselves. */
static int routes_arm(struct pd_transport *base)
{
	struct routes *t = (struct routes *)base;

	if (t->count == 0)
		return t->host.transport->ops->arm(t->host.transport);
	for (int i = 0; i < t->count; i++)
		if (t->over[i].transport->ops->arm(t->over[i].transport) != 0)
			return 1;
	return 0;
}

static void routes_close(struct pd_transport *base)
{
	struct routes *t = (struct routes *)base;

	for (int i = 0; i < t->count; i++)
		t->over[i].transport->ops->close(t->over[i].transport);
	if (t->host.transport)
		t->host.transport->ops->close(t->host.transport);
	while (t->groups) {
		struct routes_group *group = t->groups;

		t->groups = group->next;
		free(group->ranks);
		free(group);
	}
	free(t->address);
	free(t->peers);
	free(t->over);
	free(t->by_peer);
	free(t);
}

static const struct pd_transport_ops routes_ops = {
	.close = routes_close,
	.send = routes_send,
	.recv = routes_recv,
	.progress = routes_progress,
	.fd = routes_fd,
	.arm = routes_arm,
	.group = routes_group,
};

struct pd_transport *pd_routes_open(const struct pd_routes_config *config, struct pd_error *err)
{
	struct pd_transport_config ends = { .rank = config->rank, .ranks = config->ranks,
					    .gate = config->gate, .seat = &config->seat,
					    .how = asked_for(config->how, false) };
	struct routes *t = pd_zalloc(sizeof(*t));
	int providers = 0;

	while (pd_providers[providers])
		providers++;
	t->base.ops = &routes_ops;
	t->config = *config;
	t->config.how = asked_for(config->how, true);
	t->host.by = config->host ? config->host : &pd_provider_joint;
	t->over = pd_calloc((size_t)providers, sizeof(*t->over));
	t->peers = pd_calloc((size_t)config->ranks, sizeof(*t->peers));
	for (int r = 0; r < config->ranks; r++)
		t->peers[r] = !config->peers || config->peers[r];
	t->config.peers = NULL;
	ends.peers = t->peers;
	t->host.transport = t->host.by->open(&ends, err);
	if (!t->host.transport) {
		routes_close(&t->base);
		return NULL;
	}
	write_address(t);
	return &t->base;
}

void pd_routes_expect(struct pd_transport *base, int64_t bytes)
{
	((struct routes *)base)->config.under_way_bytes = bytes;
}

const struct pd_transport_provider *pd_routes_chosen(const struct pd_transport *base, const char **why_p)
{
	const struct routes *t = (const struct routes *)base;

	*why_p = t->why[0] ? t->why : NULL;
	return t->count > 0 ? t->over[t->count - 1].by : t->host.by;
}
