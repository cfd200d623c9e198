/* SPDX-License-Identifier: Apache-2.0 */
#include "sums/reducer.h"

const char *const pd_reducer_kind_name[] = {
#define REDUCER_KIND(symbol, name, what) name,
#include "sums/reducer_kind.def"
#undef REDUCER_KIND
	NULL
};

void pd_members_ends(const struct pd_members *members, int *low_p, int *high_p)
{
	*low_p = *high_p = members->ranks[0];
	for (int i = 1; i < members->count; i++) {
		*low_p = members->ranks[i] < *low_p ? members->ranks[i] : *low_p;
		*high_p = members->ranks[i] > *high_p ? members->ranks[i] : *high_p;
	}
}

struct pd_slowest pd_members_slowest(const struct pd_members *members, int64_t bytes)
{
	struct pd_slowest way = { 0, 0 };
	int low, high;

	pd_members_ends(members, &low, &high);
	if (low == high)
		return way;
	way.latency_ns = pd_topology_transfer_ns(members->topology, low, high, 0);
	way.whole_ns = pd_topology_transfer_ns(members->topology, low, high, bytes) - way.latency_ns;
	for (int i = 0; i < members->count && members->topology->link_runs > 0; i++)
		if (members->ranks[i] != low) {
			int64_t own_ns = pd_topology_transfer_ns(members->topology, low, members->ranks[i], 0);
			int64_t all_ns = pd_topology_transfer_ns(members->topology, low, members->ranks[i], bytes);

			way.latency_ns = own_ns > way.latency_ns ? own_ns : way.latency_ns;
			way.whole_ns = all_ns - own_ns > way.whole_ns ? all_ns - own_ns : way.whole_ns;
		}
	return way;
}

const struct pd_reducer *const pd_reducers[] = {
#define REDUCER_KIND(symbol, name, what) [PD_REDUCER_##symbol] = &pd_reducer_##symbol,
#include "sums/reducer_kind.def"
#undef REDUCER_KIND
};

int pd_reducer_check(enum pd_reducer_kind kind, enum pd_dtype dtype, struct pd_error *err)
{
	if (dtype == PD_F32 || !pd_reducers[kind]->of_transport)
		return 0;
	return pd_error_input(err, "--gradient-dtype: expected f32 with --all-reduce=%s, found %s",
			      pd_reducer_kind_name[kind], pd_dtype_name[dtype]);
}

void pd_reducer_meets(enum pd_reducer_kind kind, const struct pd_members *members, int me, int64_t bytes,
		      bool *met)
{
	struct pd_script script = { .floats = (size_t)bytes / sizeof(float), .dtype = members->dtype,
				    .coarse = true };

	pd_reducers[kind]->write(members, me, &script);
	for (size_t i = 0; i < script.transfer_count; i++)
		met[script.transfers[i].peer] = true;
	for (int i = 0; i < members->count && pd_reducers[kind]->of_transport; i++)
		met[i] = i != me;
	pd_script_release(&script);
}
