/* SPDX-License-Identifier: Apache-2.0 */
/* Reads plans given by hand. */
#include "planner/cut/partition.h"

#include "base/mem.h"
#include "base/opt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Parses "8x1" or "8", in place. */
static int parse_stage(char *text, int at, int64_t *layers_p, int64_t *replicas_p,
		       struct pd_error *err)
{
	char *times = strchr(text, 'x');

	*replicas_p = 1;
	if (times)
		*times++ = '\0';
	if (pd_parse_count(text, 1, INT32_MAX, layers_p, err) < 0)
		return pd_error_prefix(err, "--stages: layers of stage %d", at);
	if (times && pd_parse_count(times, 1, PD_MAX_RANKS, replicas_p, err) < 0)
		return pd_error_prefix(err, "--stages: replicas of stage %d", at);
	return 0;
}

static int parse_list(struct pd_partition *partition, char *text, struct pd_error *err)
{
	char *next;

	for (int s = 0; text; s++, text = next) {
		int64_t layers, replicas;

		next = strchr(text, ',');
		if (next)
			*next++ = '\0';
		if (parse_stage(text, s, &layers, &replicas, err) < 0)
			return -1;
		partition->layers[s] = (int)layers;
		partition->replicas[s] = (int)replicas;
		partition->stage_count = s + 1;
	}
	return 0;
}

/* Tells whether the layer begins a unit. */
static bool may_cut(const struct pd_costs *costs, int layer)
{
	int low = 0, high = costs->unit_count;

	while (low < high) {
		int middle = low + (high - low) / 2;

		if (costs->first[middle] < layer)
			low = middle + 1;
		else
			high = middle;
	}
	return costs->first[low] == layer;
}

static int check(const struct pd_partition *partition, const struct pd_costs *costs,
		 enum pd_weight_kind weights, int64_t devices, struct pd_error *err)
{
	const struct pd_profile *profile = costs->profile;
	int64_t layers = 0, ranks = 0;

	for (int s = 0; s < partition->stage_count; s++) {
		layers += partition->layers[s];
		ranks += partition->replicas[s];
	}
	if (layers != profile->layer_count)
		return pd_error_input(err, "--stages: the stages have %" PRId64 " layers, %" PRId64
				      " %s than the %d of profile \"%.60s\"", layers,
				      layers > profile->layer_count
				      ? layers - profile->layer_count
				      : profile->layer_count - layers,
				      layers > profile->layer_count ? "more" : "fewer",
				      profile->layer_count, profile->name);
	if (ranks > devices)
		return pd_error_input(err, "--stages: the stages take %" PRId64 " ranks, but the "
				      "topology has %" PRId64 " devices", ranks, devices);
	layers = 0;
	for (int s = 0; s + 1 < partition->stage_count && !pd_weights_copy_shared(weights); s++) {
		layers += partition->layers[s];
		if (!may_cut(costs, (int)layers))
			return pd_error_input(err, "--stages: a cut before layer \"%.60s\" would "
					      "separate layers that share parameters: expected "
					      "--weights=2bw or flush",
					      profile->layers[layers].name);
	}
	return 0;
}

struct pd_partition *pd_fixed_partition(const struct pd_costs *costs, const char *list,
					enum pd_weight_kind weights, int64_t devices,
					struct pd_error *err)
{
	struct pd_partition *partition = pd_zalloc(sizeof(*partition));
	char *text = pd_strdup(list);
	size_t most = strlen(list) + 1;         /* limit of the stages it can name */
	int status;

	partition->layers = pd_calloc(most, sizeof(*partition->layers));
	partition->replicas = pd_calloc(most, sizeof(*partition->replicas));
	partition->cost_ns = PD_NEVER;
	status = parse_list(partition, text, err);
	free(text);
	if (status == 0 && check(partition, costs, weights, devices, err) == 0)
		return partition;
	pd_partition_free(partition);
	return NULL;
}
