/* SPDX-License-Identifier: Apache-2.0 */
/* The provider NCCL decides which peers it reaches, and offers what they need to connect. */
#include "run/transport/nccl/nccl.h"
#include "run/transport/provider.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_NS INT64_C(120000000000)  /* time limit for NCCL to connect two ranks */

/* Returns whether some of the ranks that see this one's GPUs must share one. */
static bool shares_gpus(const struct pd_device_ops *device, const struct pd_seat *seat)
{
	struct pd_error err;

	return device->count(&err) < seat->device_sharers;
}

/* Ranks that share a GPU use NCCL only where the user asks for it. */
static void nccl_prepare(const struct pd_device_ops *device, int rank, int ranks,
			 const struct pd_seat *seat, bool asked)
{
	bool distinct;

	pd_nccl_first();
	distinct = asked && shares_gpus(device, seat);
	pd_nccl_environment(rank, seat->locals == ranks, distinct);
}

/* An offer is the process id, and then an id for the connection to each peer. */
static void *nccl_offer(const struct pd_transport_config *config, size_t *bytes_p,
			struct pd_error *err)
{
	size_t ids_bytes = (size_t)config->ranks * PD_NCCL_ID;
	pid_t pid = getpid();
	char *offer, *ids;

	if (!config->asked && shares_gpus(config->device->ops, config->seat)) {
		pd_error_failed(err, "there are more workers than GPUs");
		return NULL;
	}
	ids = pd_nccl_ids(config->rank, config->ranks, config->peers, err);
	if (!ids)
		return NULL;
	*bytes_p = sizeof(pid) + ids_bytes;
	offer = pd_zalloc(*bytes_p);
	memcpy(offer, &pid, sizeof(pid));
	memcpy(offer + sizeof(pid), ids, ids_bytes);
	free(ids);
	return offer;
}

static bool share_gpu(const struct pd_transport_end *a, const struct pd_transport_end *b)
{
	return a->rank != b->rank && a->place[0] && strcmp(a->place, b->place) == 0 &&
	       pd_seat_beside(&a->seat, &b->seat);
}

static bool nccl_reaches(const struct pd_transport_end *self, const struct pd_transport_end *peer,
			 bool asked)
{
	return self->offer && peer->offer && (asked || !share_gpu(self, peer));
}

static void nccl_explain(const struct pd_transport_end *ends, int count, bool asked, char *text,
			 size_t size)
{
	int lacking = 0;

	while (lacking < count && ends[lacking].offer)
		lacking++;
	text[0] = '\0';
	for (int a = 0; a < count && !text[0] && (!asked || lacking == count); a++)
		for (int b = a + 1; b < count && !text[0]; b++)
			if (share_gpu(&ends[a], &ends[b]))
				snprintf(text, size, "ranks %d and %d share GPU %.31s",
					 ends[a].rank, ends[b].rank, ends[a].place);
	if (!text[0] && lacking < count)
		snprintf(text, size, "%.*s", PD_LACKS_TEXT - 1, ends[lacking].lacks);
}

static struct pd_transport *nccl_open(const struct pd_transport_config *config,
				      struct pd_error *err)
{
	size_t ranks = (size_t)config->ranks;
	const char **ids = pd_calloc(ranks, sizeof(*ids));
	pid_t *pids = pd_calloc(ranks, sizeof(*pids));
	struct pd_nccl_config nccl = {
		.rank = config->rank, .ranks = config->ranks, .peers = config->peers,
		.host = config->host, .device = config->device, .gate = config->gate,
		.ids = ids, .pids = pids, .limit_ns = LIMIT_NS,
	};
	struct pd_transport *t;

	for (size_t r = 0; r < ranks; r++) {
		const char *offer = config->ends[r].offer;

		if (!offer)
			continue;
		ids[r] = offer + sizeof(pid_t);
		if (pd_seat_beside(&config->ends[r].seat, config->seat))
			memcpy(&pids[r], offer, sizeof(pid_t));
	}
	t = pd_nccl_open(&nccl, err);
	free(ids);
	free(pids);
	return t;
}

const struct pd_transport_provider pd_provider_nccl = {
	.name = "nccl",
	.sums = true,
	.prepare = nccl_prepare,
	.offer = nccl_offer,
	.reaches = nccl_reaches,
	.explain = nccl_explain,
	.before = "",
	.after = ": with NCCL each waits for the other's time slice, which is slow; --transport=staged is faster",
	.open = nccl_open,
};
