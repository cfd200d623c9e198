/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/direct.h"

#include "topology/allreduce.h"

#define LEAST_FLOATS 65536      /* below this it is messages that take the time */

bool pd_direct_suits(int members, size_t floats, enum pd_dtype dtype)
{
	return dtype == PD_F32 && members > 1 && members <= PD_DIRECT_MEMBERS &&
	       floats >= LEAST_FLOATS;
}

static bool on_one_host(const struct pd_members *members)
{
	int low = members->ranks[0], high = low;

	for (int i = 1; i < members->count; i++) {
		low = members->ranks[i] < low ? members->ranks[i] : low;
		high = members->ranks[i] > high ? members->ranks[i] : high;
	}
	return pd_topology_shares_memory(members->topology, low, high);
}

bool pd_direct_expected(const struct pd_members *members, int64_t bytes)
{
	return members->direct_bytes_per_s > 0 &&
	       pd_direct_suits(members->count, (size_t)bytes / sizeof(float), members->dtype) &&
	       on_one_host(members) &&
	       pd_allreduce_choose(members->topology, members->ranks, members->count,
				   bytes).groups == 1;
}

int64_t pd_direct_ns(const struct pd_members *members, int64_t bytes)
{
	__int128 ns = (__int128)bytes * 1000000000 / members->direct_bytes_per_s;

	return ns > PD_REDUCER_MOST_NS ? PD_REDUCER_MOST_NS : (int64_t)ns;
}
