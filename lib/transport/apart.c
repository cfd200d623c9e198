/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/apart.h"

#include "base/mem.h"
#include "transport/nccl/nccl.h"
#include "transport/staged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_NS INT64_C(120000000000)  /* for NCCL to connect two ranks */

const char *const pd_apart_name[] = { "auto", "nccl", "staged", NULL };

/* The beginning of an address; then NCCL's ids, where there are any; then inner's. */
struct head {
	char place[32];
	char lacks[160];                /* why there are no ids; "" where there are */
	pid_t pid;
	uint32_t ids_bytes;
};

struct apart {
	struct pd_transport base;
	struct pd_apart_config config;
	bool *peers;
	struct pd_transport *chosen;    /* NULL until connected */
	char *address, *ids;
	size_t address_bytes;
	char why[256];
};

/* Must some ranks share a GPU? */
static bool is_crowded(const struct pd_device_ops *device, int ranks)
{
	struct pd_error err;

	return device->count(&err) < ranks;
}

void pd_apart_environment(enum pd_apart how, const struct pd_device_ops *device, int rank,
			  int ranks)
{
	/* where ranks share a GPU only who asks for NCCL gets it */
	if (how != PD_APART_STAGED)
		pd_nccl_environment(rank, how == PD_APART_NCCL && is_crowded(device, ranks));
}

static void write_address(struct apart *a)
{
	struct pd_transport *inner = a->config.inner;
	struct pd_device_info info;
	struct pd_error err = { .text = "" };
	struct head head = { .pid = getpid() };
	enum pd_apart how = a->config.how;
	const void *bytes;
	size_t length;

	a->config.device->ops->describe(a->config.device, &info);
	memcpy(head.place, info.place, sizeof(head.place));
	if (how == PD_APART_NCCL ||
	    (how == PD_APART_AUTO && !is_crowded(a->config.device->ops, a->config.ranks)))
		a->ids = pd_nccl_ids(a->config.rank, a->config.ranks, a->peers, &err);
	else
		pd_error_failed(&err, "there are more workers than GPUs");
	if (a->ids)
		head.ids_bytes = (uint32_t)(a->config.ranks * PD_NCCL_ID);
	else
		snprintf(head.lacks, sizeof(head.lacks), "%.159s", err.text);
	inner->ops->address(inner, &bytes, &length);
	a->address_bytes = sizeof(head) + head.ids_bytes + length;
	a->address = pd_zalloc(a->address_bytes);
	memcpy(a->address, &head, sizeof(head));
	if (a->ids)
		memcpy(a->address + sizeof(head), a->ids, head.ids_bytes);
	memcpy(a->address + sizeof(head) + head.ids_bytes, bytes, length);
}

/* ---- which ---- */

/* Two ranks with one place; false: there are none. */
static bool find_shared(const struct head *heads, int ranks, int *a_p, int *b_p)
{
	for (int a = 0; a < ranks; a++)
		for (int b = a + 1; b < ranks; b++)
			if (heads[a].place[0] && strcmp(heads[a].place, heads[b].place) == 0) {
				*a_p = a;
				*b_p = b;
				return true;
			}
	return false;
}

/* 1: NCCL; 0: staged; -1: NCCL was asked for, and cannot be. */
static int choose(struct apart *a, const struct head *heads, struct pd_error *err)
{
	int ranks = a->config.ranks, one, other;
	bool shared;

	if (a->config.how == PD_APART_STAGED || ranks == 1)
		return 0;
	shared = find_shared(heads, ranks, &one, &other);
	if (shared)
		snprintf(a->why, sizeof(a->why), "ranks %d and %d share GPU %.31s", one, other,
			 heads[one].place);
	if (shared && a->config.how == PD_APART_AUTO)
		return 0;
	for (int r = 0; r < ranks; r++) {
		if (heads[r].ids_bytes > 0)
			continue;
		if (a->config.how == PD_APART_NCCL)
			return pd_error_failed(err, "--transport=nccl: %.159s", heads[r].lacks);
		snprintf(a->why, sizeof(a->why), "%.159s", heads[r].lacks);
		return 0;
	}
	return 1;
}

static struct pd_transport *open_nccl(struct apart *a, const void *const *addresses,
				      const struct head *heads, struct pd_error *err)
{
	size_t ranks = (size_t)a->config.ranks;
	const char **ids = pd_calloc(ranks, sizeof(*ids));
	pid_t *pids = pd_calloc(ranks, sizeof(*pids));
	struct pd_nccl_config config = {
		.rank = a->config.rank, .ranks = a->config.ranks, .peers = a->peers,
		.inner = a->config.inner, .device = a->config.device, .gate = a->config.gate,
		.ids = ids, .pids = pids, .limit_ns = LIMIT_NS,
	};
	struct pd_transport *t;

	for (size_t r = 0; r < ranks; r++) {
		ids[r] = (const char *)addresses[r] + sizeof(struct head);
		pids[r] = heads[r].pid;
	}
	t = pd_nccl_open(&config, err);
	free(ids);
	free(pids);
	return t;
}

/* ---- the seam ---- */

static int connect_inner(struct apart *a, const void *const *addresses, const size_t *lengths,
			 const struct head *heads, struct pd_error *err)
{
	size_t ranks = (size_t)a->config.ranks, *rest = pd_calloc(ranks, sizeof(*rest));
	const void **at = pd_calloc(ranks, sizeof(*at));
	int status;

	for (size_t r = 0; r < ranks; r++) {
		size_t before = sizeof(struct head) + heads[r].ids_bytes;

		at[r] = (const char *)addresses[r] + before;
		rest[r] = lengths[r] - before;
	}
	status = a->config.inner->ops->connect(a->config.inner, at, rest, err);
	free(at);
	free(rest);
	return status;
}

static int apart_connect(struct pd_transport *base, const void *const *addresses,
			 const size_t *lengths, struct pd_error *err)
{
	struct apart *a = (struct apart *)base;
	struct head *heads = pd_calloc((size_t)a->config.ranks, sizeof(*heads));
	int which = -1;

	for (int r = 0; r < a->config.ranks; r++)
		memcpy(&heads[r], addresses[r], sizeof(heads[r]));
	if (connect_inner(a, addresses, lengths, heads, err) == 0)
		which = choose(a, heads, err);
	if (which >= 0) {
		a->chosen = which ? open_nccl(a, addresses, heads, err)
				  : pd_staged_open(a->config.inner, a->config.device,
						   a->config.gate, err);
		a->config.inner = NULL;
	}
	free(heads);
	return a->chosen ? 0 : -1;
}

static void apart_address(struct pd_transport *base, const void **bytes_p, size_t *length_p)
{
	struct apart *a = (struct apart *)base;

	*bytes_p = a->address;
	*length_p = a->address_bytes;
}

static int apart_send(struct pd_transport *base, int peer, uint64_t tag, const void *buf,
		      size_t bytes, const struct pd_event *after, struct pd_event *done)
{
	struct pd_transport *t = ((struct apart *)base)->chosen;

	return t->ops->send(t, peer, tag, buf, bytes, after, done);
}

static int apart_recv(struct pd_transport *base, int peer, uint64_t tag, void *buf, size_t bytes,
		      const struct pd_event *after, struct pd_event *done)
{
	struct pd_transport *t = ((struct apart *)base)->chosen;

	return t->ops->recv(t, peer, tag, buf, bytes, after, done);
}

static struct pd_transport *current(const struct apart *a)
{
	return a->chosen ? a->chosen : a->config.inner;
}

static int apart_progress(struct pd_transport *base)
{
	struct pd_transport *t = current((struct apart *)base);

	return t->ops->progress(t);
}

static int apart_fd(struct pd_transport *base)
{
	struct pd_transport *t = current((struct apart *)base);

	return t->ops->fd(t);
}

static int apart_arm(struct pd_transport *base)
{
	struct pd_transport *t = current((struct apart *)base);

	return t->ops->arm(t);
}

static void apart_close(struct pd_transport *base)
{
	struct apart *a = (struct apart *)base;
	struct pd_transport *t = current(a);

	if (t)
		t->ops->close(t);
	free(a->address);
	free(a->ids);
	free(a->peers);
	free(a);
}

static const struct pd_transport_ops apart_ops = {
	.name = "apart",
	.close = apart_close,
	.address = apart_address,
	.connect = apart_connect,
	.send = apart_send,
	.recv = apart_recv,
	.progress = apart_progress,
	.fd = apart_fd,
	.arm = apart_arm,
};

struct pd_transport *pd_apart_open(const struct pd_apart_config *config)
{
	struct apart *a = pd_zalloc(sizeof(*a));

	a->base.ops = &apart_ops;
	a->config = *config;
	a->peers = pd_calloc((size_t)config->ranks, sizeof(*a->peers));
	for (int r = 0; r < config->ranks; r++)
		a->peers[r] = !config->peers || config->peers[r];
	a->config.peers = NULL;
	write_address(a);
	return &a->base;
}

const char *pd_apart_chosen(const struct pd_transport *t, const char **why_p)
{
	const struct apart *a = (const struct apart *)t;

	*why_p = a->why[0] ? a->why : NULL;
	return a->chosen->ops->name;
}
