/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/kinds.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/sort.h"
#include "planner/search/candidate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct joining {
	struct pd_profile **profiles;
	const char **files;
	int count;
	struct pd_topology *topology;
};

static bool is_part(const char *all, const char *part)
{
	size_t length = strlen(part);

	for (; *all; all++)
		if (strncasecmp(all, part, length) == 0)
			return true;
	return false;
}

/* Finds the only device whose name is this or, where none is, has this in it; NULL: none, or several. */
static const struct pd_profile *find_device(const struct joining *joining, const char *name)
{
	const struct pd_profile *found = NULL;

	for (int i = 0; i < joining->count; i++)
		if (strcmp(joining->profiles[i]->device_name, name) == 0)
			return joining->profiles[i];
	for (int i = 0; i < joining->count; i++) {
		const struct pd_profile *profile = joining->profiles[i];

		if (!is_part(profile->device_name, name))
			continue;
		if (found && strcmp(found->device_name, profile->device_name) != 0)
			return NULL;
		found = profile;
	}
	return found;
}

/* Gives each kind the name of a profile's device. */
static int name_kinds(const struct joining *joining, struct pd_error *err)
{
	struct pd_topology *topology = joining->topology;

	for (int k = 0; k < topology->kinds; k++) {
		struct pd_device_kind *kind = &topology->kind[k];
		const struct pd_profile *profile = find_device(joining, kind->name);

		if (!profile)
			return pd_error_input(err, "%s: device.name: found \"%.90s\": expected one profile for each kind "
					      "of device of the topology, and of \"%.90s\" there is none, or more than "
					      "one may be meant", pd_document_name(joining->files[0]),
					      joining->profiles[0]->device_name, kind->name);
		if (strlen(profile->device_name) >= PD_DEVICE_NAME)
			return pd_error_input(err, "%s: device.name: expected at most %d bytes",
					      pd_document_name(joining->files[0]), PD_DEVICE_NAME - 1);
		strcpy(kind->name, profile->device_name);
		if (kind->memory_bytes == 0)
			kind->memory_bytes = profile->device_memory_bytes;
		for (int other = 0; other < k; other++)
			if (strcmp(topology->kind[other].name, kind->name) == 0)
				return pd_error_input(err, "%s: device.name: two kinds of the topology mean \"%.90s\"",
						      pd_document_name(joining->files[0]), kind->name);
	}
	return 0;
}

/* Returns the kind of a profile's device; -1: the topology has none. */
static int kind_of(const struct pd_topology *topology, const struct pd_profile *profile)
{
	for (int k = 0; k < topology->kinds; k++)
		if (strcmp(topology->kind[k].name, profile->device_name) == 0)
			return k;
	return -1;
}

static int check_devices(const struct joining *joining, struct pd_error *err)
{
	const struct pd_topology *topology = joining->topology;

	for (int i = 0; i < joining->count; i++) {
		const struct pd_profile *profile = joining->profiles[i];

		if (topology->kinds == 0 && strcmp(profile->device_name, joining->profiles[0]->device_name) != 0)
			return pd_error_input(err, "%s: device.name: found \"%.60s\", and \"%.60s\" in %s: expected "
					      "--devices, such as A100x16,V100x16, or \"devices\" in the topology, "
					      "which say what ranks have", pd_document_name(joining->files[i]),
					      profile->device_name, joining->profiles[0]->device_name,
					      pd_document_name(joining->files[0]));
		if (topology->kinds > 0 && kind_of(topology, profile) < 0)
			return pd_error_input(err, "%s: device.name: the topology has no device \"%.90s\"",
					      pd_document_name(joining->files[i]), profile->device_name);
	}
	return 0;
}

/* Gives a profile of the first kind those of all others with its batch size. */
static int join_one(struct joining *joining, int first, struct pd_error *err)
{
	const struct pd_topology *topology = joining->topology;
	struct pd_profile *profile = joining->profiles[first];

	for (int k = 1; k < topology->kinds; k++) {
		int i = 0;

		while (i < joining->count && !(joining->profiles[i] &&
					       joining->profiles[i]->batch_size == profile->batch_size &&
					       kind_of(topology, joining->profiles[i]) == k))
			i++;
		if (i == joining->count)
			return pd_error_input(err, "%s: batch_size: found %" PRId64 ", of which there is no profile "
					      "of \"%.90s\"", pd_document_name(joining->files[first]),
					      profile->batch_size, topology->kind[k].name);
		if (pd_profile_same_tensors(profile, pd_document_name(joining->files[first]), joining->profiles[i],
					    pd_document_name(joining->files[i]), err) < 0)
			return -1;
		pd_profile_add_kind(profile, joining->profiles[i]);
		joining->profiles[i] = NULL;
	}
	return 0;
}

int pd_planner_join_kinds(struct pd_profile **profiles, const char **files, int *count_p,
			  struct pd_topology *topology, struct pd_error *err)
{
	struct joining joining = { profiles, files, *count_p, topology };
	int left = 0;

	if (name_kinds(&joining, err) < 0 || check_devices(&joining, err) < 0)
		return -1;
	for (int i = 0; i < joining.count && pd_topology_mixed(topology); i++)
		if (profiles[i] && kind_of(topology, profiles[i]) == 0 && join_one(&joining, i, err) < 0)
			return -1;
	for (int i = 0; i < joining.count && pd_topology_mixed(topology); i++)
		if (profiles[i] && kind_of(topology, profiles[i]) != 0)
			return pd_error_input(err, "%s: batch_size: found %" PRId64 ", of which there is no profile of "
					      "\"%.90s\"", pd_document_name(files[i]), profiles[i]->batch_size,
					      topology->kind[0].name);
	for (int i = 0; i < joining.count; i++)
		if (profiles[i]) {
			struct pd_profile *profile = profiles[i];

			profiles[i] = NULL;
			profiles[left++] = profile;
		}
	*count_p = left;
	return 0;
}

#define MOST_PERMUTED 3         /* kinds that are tried in every order */

static void add_order(struct pd_kinds_orders *orders, const struct pd_topology *machine, const int *kinds)
{
	struct pd_kinds_order *order = &orders->list[orders->count];
	bool same = true;

	if (!pd_topology_reorder(machine, kinds, &order->topology, &order->was))
		return;
	for (int64_t d = 0; d < machine->devices; d++)
		same &= order->was[d] == d;
	if (same)
		free(order->was);
	else
		orders->count++;
}

/* Adds every order of the kinds from number `from` on. */
static void permute(struct pd_kinds_orders *orders, const struct pd_topology *machine, int *kinds, int from)
{
	if (from == machine->kinds)
		add_order(orders, machine, kinds);
	for (int i = from; i < machine->kinds; i++) {
		int kind = kinds[i];

		kinds[i] = kinds[from];
		kinds[from] = kind;
		permute(orders, machine, kinds, from + 1);
		kinds[from] = kinds[i];
		kinds[i] = kind;
	}
}

void pd_kinds_orders_init(struct pd_kinds_orders *orders, const struct pd_topology *machine, bool all)
{
	int kinds[PD_MAX_KINDS], count = 1;

	for (int k = 0; k < PD_MAX_KINDS; k++)
		kinds[k] = k;
	for (int k = 2; k <= machine->kinds && k <= MOST_PERMUTED; k++)
		count *= k;
	*orders = (struct pd_kinds_orders){ .count = 1 };
	orders->list = pd_calloc((size_t)count + 1, sizeof(*orders->list));
	orders->list[0].topology = *machine;
	if (!all || !pd_topology_mixed(machine))
		return;
	if (machine->kinds <= MOST_PERMUTED) {
		permute(orders, machine, kinds, 0);
		return;
	}
	add_order(orders, machine, kinds);
	for (int k = 0; k < machine->kinds; k++)
		kinds[k] = machine->kinds - 1 - k;
	add_order(orders, machine, kinds);
}

void pd_kinds_orders_release(struct pd_kinds_orders *orders)
{
	for (int i = 0; i < orders->count; i++)
		free(orders->list[i].was);
	free(orders->list);
	*orders = (struct pd_kinds_orders){ 0 };
}

static int ascending(const void *a, const void *b)
{
	PD_ORDER(*(const int *)a, *(const int *)b);
	return 0;
}

struct pd_plan *pd_kinds_restore(const struct pd_plan *plan, const struct pd_kinds_order *order,
				 const struct pd_topology *machine)
{
	struct pd_plan *restored = pd_candidate_copy(plan);

	restored->topology = *machine;
	for (int s = 0; s < restored->stage_count; s++) {
		struct pd_stage *stage = &restored->stages[s];

		for (int r = 0; r < stage->replicas; r++) {
			stage->ranks[r] = order->was[stage->ranks[r]];
			if (stage->ranks[r] >= plan->rank_count) {
				pd_candidate_drop(restored);
				return NULL;
			}
		}
		qsort(stage->ranks, (size_t)stage->replicas, sizeof(*stage->ranks), ascending);
	}
	return restored;
}

double pd_kinds_worth(const struct pd_profile *profile, const struct pd_profile *fastest,
		      const struct pd_topology *topology)
{
	double worth = 0, most[PD_MAX_KINDS] = { 0 };

	if (!pd_topology_mixed(topology))
		return 0;
	for (int k = 0; k < topology->kinds; k++)
		for (int l = 0; l < profile->layer_count; l++) {
			const struct pd_profile_layer *own = &pd_profile_of_kind(profile, k)->layers[l];
			const struct pd_profile_layer *best = &fastest->layers[l];
			int64_t own_ns = own->forward_ns + own->backward_ns;

			if (own_ns > 0)
				most[k] = fmax(most[k], (double)(best->forward_ns + best->backward_ns) / (double)own_ns);
		}
	for (int64_t d = 0, end, k; d < topology->devices; d = end) {
		k = pd_topology_run(topology, d, &end);
		worth += (double)(end - d) * most[k];
	}
	return worth;
}
