/* SPDX-License-Identifier: Apache-2.0 */
#include "sums/direct.h"

#include "sums/allreduce.h"

#define LEAST_FLOATS 65536      /* below this it is messages that take the time */

bool pd_direct_suits(int members, size_t floats, enum pd_dtype dtype)
{
	return dtype == PD_F32 && members > 1 && members <= PD_DIRECT_MEMBERS &&
	       floats >= LEAST_FLOATS;
}

bool pd_direct_may(const struct pd_members *members, int64_t bytes)
{
	return pd_direct_suits(members->count, (size_t)bytes / sizeof(float), members->dtype) &&
	       pd_allreduce_choose(members->topology, members->ranks, members->count, bytes).groups == 1;
}

static bool on_one_host(const struct pd_members *members)
{
	int low, high;

	pd_members_ends(members, &low, &high);
	return pd_topology_shares_memory(members->topology, low, high);
}

bool pd_direct_expected(const struct pd_members *members, int64_t bytes)
{
	return members->direct_bytes_per_s > 0 && members->count <= PD_DIRECT_MEMBERS && on_one_host(members) &&
	       pd_direct_may(members, bytes);
}

int64_t pd_direct_ns(const struct pd_members *members, int64_t bytes)
{
	return pd_saturate((__int128)bytes * 1000000000 / members->direct_bytes_per_s);
}
