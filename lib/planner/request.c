/* SPDX-License-Identifier: Apache-2.0 */
/* What a user asks for, checked. */
#include "planner/planner.h"

#include <inttypes.h>
#include <string.h>

int pd_planner_known(const char *schedule, const char *weights, int64_t microbatches,
		     struct pd_error *err)
{
	if (strcmp(schedule, pd_schedule_kind_name[PD_SCHEDULE_1F1B]) != 0)
		return pd_error_input(err, "--schedule: \"%.60s\" is not yet planned by this version; "
				      "known: %s", schedule, pd_schedule_kind_name[PD_SCHEDULE_1F1B]);
	if (strcmp(weights, pd_weight_kind_name[PD_WEIGHTS_STASH]) != 0)
		return pd_error_input(err, "--weights: \"%.60s\" is not yet planned by this version; "
				      "known: %s", weights, pd_weight_kind_name[PD_WEIGHTS_STASH]);
	if (microbatches != 1)
		return pd_error_input(err, "--microbatches: %" PRId64 " is not yet planned by this "
				      "version; known: 1", microbatches);
	return 0;
}

int pd_planner_topology(const struct pd_profile *profile, int64_t gpus, const char *topology,
			struct pd_topology *out_p, struct pd_error *err)
{
	int64_t bandwidth = profile->link_bandwidth_bytes_per_s;

	if (topology && gpus)
		return pd_error_input(err, "--gpus and --topology both say how many devices there "
				      "are: give one of them");
	if (topology)
		return pd_topology_read(topology, out_p, err);
	if (!gpus)
		return pd_error_input(err, "nothing says how many devices there are: give --gpus=N "
				      "or --topology");
	if (gpus > 1 && !bandwidth)
		return pd_error_input(err, "profile \"%.60s\" has no measured link: give "
				      "--topology, such as --topology=%" PRId64 "@10Gbit/s",
				      profile->name, gpus);
	/* one device sends nothing: any bandwidth is true */
	return pd_topology_flat(gpus, bandwidth ? bandwidth : 1, profile->link_latency_ns, out_p, err);
}
