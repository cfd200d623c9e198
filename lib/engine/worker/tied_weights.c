/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers that share parameters, each with a copy of its own.  Before an update the gradients of all
 * copies are summed, from the last layer to the first as everywhere, and each copy takes the sum. 
 * The copies begin equal, and so they stay equal.  It does not matter which of them are in one
 * stage, so the bits do not depend on the partition.
 *
 * memory/shared_gradients.h says which rank sends which gradients to which.
 */
#include "engine/worker/internal.h"

#include "base/mem.h"
#include "engine/device/submit.h"
#include "memory/shared_gradients.h"

#include <stdlib.h>

#define TAG_TIED 32		/* tags of an agree's rounds are below, an all-reduce's above */
#define MOST_LAYERS ((int)TAG_ALLREDUCE - TAG_TIED)

struct member {
	int layer, chunk;               /* chunk of this rank, or -1 */
	size_t offset;                  /* in the chunk's gradients, or in what arrives */
	int peer;                       /* the rank that sends it */
	struct pd_event got;
};

struct group {
	size_t bytes;
	int count, local;               /* local: the first member on this rank */
	struct member members[PD_SUM_SOURCES];
};

struct leaving {
	int layer, chunk, peer;
	size_t offset, bytes;
	struct pd_event sent;
};

struct tied_weights {
	struct pd_copy_transfer *transfers;     /* of all ranks */
	size_t transfer_count;
	struct group *groups;
	int group_count;
	struct leaving *leaving;
	size_t leaving_count, leaving_capacity;
	char *memory;
	int arrivals, sums;
};

static const struct pd_profile *profile_of(const struct pd_worker *w)
{
	return w->config.schedule->plan->profile;
}

static int chunk_of(const struct pd_worker *w, int stage)
{
	for (int i = 0; i < w->chunk_count; i++)
		if (w->chunks[i].index == stage)
			return i;
	return -1;
}

static struct group *group_of(struct tied_weights *tied, const struct pd_profile *profile, int owner)
{
	for (int g = 0; g < tied->group_count; g++)
		if (pd_profile_owner(profile, tied->groups[g].members[0].layer) == owner)
			return &tied->groups[g];
	return NULL;
}

/* Adds all layers with one owner, from the last to the first in the model. */
static int add_group(struct pd_worker *w, struct tied_weights *tied, int owner,
		     struct pd_error *err)
{
	const struct pd_profile *profile = profile_of(w);
	struct group *group = &tied->groups[tied->group_count++];

	for (int l = 0; l < profile->layer_count; l++) {
		int at = group->count;

		if (pd_profile_owner(profile, l) != owner)
			continue;
		if (group->count++ == PD_SUM_SOURCES)
			return pd_error_input(err, "more than %d layers share the parameters of "
					      "\"%.60s\"", PD_SUM_SOURCES, profile->layers[owner].name);
		for (; at > 0 && pd_profile_number(profile, group->members[at - 1].layer) <
				 pd_profile_number(profile, l); at--)
			group->members[at] = group->members[at - 1];
		group->members[at] = (struct member){ .layer = l, .chunk = -1 };
	}
	return 0;
}

/* Finds the ranks to which the gradients of a layer here are sent. */
static void find_readers(const struct pd_worker *w, struct tied_weights *tied,
			 const struct group *group, const struct member *mine)
{
	for (size_t i = 0; i < tied->transfer_count; i++) {
		const struct pd_copy_transfer *transfer = &tied->transfers[i];

		if (transfer->layer != mine->layer || transfer->from != w->config.rank)
			continue;
		tied->leaving = pd_grow(tied->leaving, &tied->leaving_capacity, tied->leaving_count + 1,
					sizeof(*tied->leaving));
		tied->leaving[tied->leaving_count++] = (struct leaving){
			.layer = mine->layer, .chunk = mine->chunk, .peer = transfer->to,
			.offset = mine->offset, .bytes = group->bytes };
	}
}

/* Returns the rank that sends a layer's gradients here. */
static int sender_of(const struct pd_worker *w, const struct tied_weights *tied, int layer)
{
	for (size_t i = 0; i < tied->transfer_count; i++)
		if (tied->transfers[i].layer == layer && tied->transfers[i].to == w->config.rank)
			return tied->transfers[i].from;
	pd_bug("worker: nobody sends the gradients of a copy");
}

/* Finds where the members are: in this rank's gradients, or in memory for what arrives. */
static void place_group(struct pd_worker *w, struct tied_weights *tied, struct group *group,
			size_t *bytes_p)
{
	const struct pd_plan *plan = w->config.schedule->plan;
	int locals = 0;

	for (int m = 0; m < group->count; m++) {
		struct member *member = &group->members[m];

		if (chunk_of(w, pd_plan_stage_of_layer(plan, member->layer)) >= 0) {
			group->local = locals++ > 0 ? group->local : m;
			continue;
		}
		member->peer = sender_of(w, tied, member->layer);
		member->offset = *bytes_p;
		*bytes_p += pd_align(group->bytes);
		tied->arrivals++;
	}
	tied->sums += locals;
}

static int find_local(struct pd_worker *w, struct tied_weights *tied, int i, struct pd_error *err)
{
	const struct pd_profile *profile = profile_of(w);
	const struct pd_tied_layer *list;
	int count = w->config.device->ops->net.tied_layers(w->chunks[i].net, &list);

	for (int t = 0; t < count; t++) {
		struct group *group = group_of(tied, profile, list[t].owner);

		if (!group && add_group(w, tied, list[t].owner, err) < 0)
			return -1;
		group = group_of(tied, profile, list[t].owner);
		group->bytes = list[t].bytes;
		for (int m = 0; m < group->count; m++)
			if (group->members[m].layer == list[t].layer) {
				group->members[m].chunk = i;
				group->members[m].offset = list[t].offset;
			}
	}
	return 0;
}

int worker_tied_new(struct pd_worker *w, struct pd_error *err)
{
	struct tied_weights *tied;
	size_t bytes = 0;

	if (!pd_plan_has_tied_weights(w->config.schedule->plan))
		return 0;
	if (profile_of(w)->layer_count > MOST_LAYERS)
		return pd_error_input(err, "a model of %d layers, some of which share parameters: this "
				      "version can sum their gradients in models of at most %d",
				      profile_of(w)->layer_count, MOST_LAYERS);
	tied = w->tied = pd_zalloc(sizeof(*tied));
	tied->transfer_count = pd_plan_copy_transfers(w->config.schedule->plan, &tied->transfers);
	tied->groups = pd_calloc((size_t)profile_of(w)->layer_count, sizeof(*tied->groups));
	for (int i = 0; i < w->chunk_count; i++)
		if (find_local(w, tied, i, err) < 0)
			return -1;
	for (int g = 0; g < tied->group_count; g++) {
		struct group *group = &tied->groups[g];

		place_group(w, tied, group, &bytes);
		for (int m = 0; m < group->count; m++)
			if (group->members[m].chunk >= 0)
				find_readers(w, tied, group, &group->members[m]);
	}
	return worker_take(w, bytes, &tied->memory, err);
}

void worker_tied_free(struct pd_worker *w)
{
	struct tied_weights *tied = w->tied;

	if (!tied)
		return;
	if (tied->memory)
		w->config.device->ops->memory.free(w->config.device, tied->memory);
	free(tied->transfers);
	free(tied->groups);
	free(tied->leaving);
	free(tied);
}

int worker_tied_post(struct pd_worker *w, struct sum **sums, uint64_t tag,
		     const struct pd_event *ready)
{
	const struct pd_transport_ops *ops = w->config.transport->ops;
	struct tied_weights *tied = w->tied;

	for (int g = 0; tied && g < tied->group_count; g++)
		for (int m = 0; m < tied->groups[g].count; m++) {
			struct member *member = &tied->groups[g].members[m];

			if (member->chunk >= 0)
				continue;
			pd_event_arm(&member->got);
			if (ops->recv(w->config.transport, member->peer,
				      tag | (uint64_t)(TAG_TIED + member->layer),
				      tied->memory + member->offset, tied->groups[g].bytes, NULL,
				      &member->got) < 0)
				return -1;
		}
	for (size_t i = 0; tied && i < tied->leaving_count; i++) {
		struct leaving *one = &tied->leaving[i];

		pd_event_arm(&one->sent);
		if (ops->send(w->config.transport, one->peer,
			      tag | (uint64_t)(TAG_TIED + one->layer),
			      (char *)sums[one->chunk]->gradients + one->offset, one->bytes, ready,
			      &one->sent) < 0)
			return -1;
	}
	return 0;
}

int worker_tied_steps(const struct pd_worker *w)
{
	const struct tied_weights *tied = w->tied;

	return tied ? tied->arrivals + (int)tied->leaving_count + tied->sums : 0;
}

static float *gradients_of(const struct tied_weights *tied, struct sum **sums,
			   const struct member *member)
{
	return (float *)(member->chunk >= 0
			 ? (char *)sums[member->chunk]->gradients + member->offset
			 : tied->memory + member->offset);
}

static int wait_arrival(struct pd_worker *w, int n)
{
	for (int g = 0; g < w->tied->group_count; g++)
		for (int m = 0; m < w->tied->groups[g].count; m++) {
			struct member *member = &w->tied->groups[g].members[m];

			if (member->chunk < 0 && n-- == 0)
				return pd_submit_wait(w->reduce, &member->got);
		}
	pd_bug("worker: no such arrival");
}

/* Makes the sum in the first member here, and copies it to the others. */
static int make_sum(struct pd_worker *w, struct sum **sums, struct group *group, int m)
{
	const float *sources[PD_SUM_SOURCES];
	int count = 0;

	if (m != group->local)
		sources[count++] = gradients_of(w->tied, sums, &group->members[group->local]);
	for (int k = 0; m == group->local && k < group->count; k++)
		sources[count++] = gradients_of(w->tied, sums, &group->members[k]);
	return pd_submit_sum(w->reduce,
					       gradients_of(w->tied, sums, &group->members[m]),
					       sources, count, group->bytes / sizeof(float), NULL);
}

int worker_tied_issue(struct pd_worker *w, struct sum **sums, int n)
{
	struct tied_weights *tied = w->tied;

	if (n < tied->arrivals)
		return wait_arrival(w, n);
	n -= tied->arrivals;
	if (n < (int)tied->leaving_count)
		return pd_submit_wait(w->reduce, &tied->leaving[n].sent);
	n -= (int)tied->leaving_count;
	for (int g = 0; g < tied->group_count; g++)
		for (int m = 0; m < tied->groups[g].count; m++)
			if (tied->groups[g].members[m].chunk >= 0 && n-- == 0)
				return make_sum(w, sums, &tied->groups[g], m);
	pd_bug("worker: no such sum");
}
