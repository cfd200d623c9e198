/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/profile.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"

#include <stdlib.h>
#include <string.h>

int pd_degrees_parse_tensor(const char *text, int most, int64_t *numbers, bool *sequence_p, struct pd_error *err)
{
	char *copy = pd_strdup(text), *rest = copy, *item;
	int count = 0, status = 0;

	*sequence_p = false;
	while (status == 0 && (item = strsep(&rest, ","))) {
		if (count > 0 && !rest && strcmp(item, "sequence") == 0)
			*sequence_p = true;
		else if (count == most)
			status = pd_error_input(err, "expected at most %d number%s, and \"sequence\" behind", most,
						most == 1 ? "" : "s");
		else
			status = pd_parse_count(item, 1, PD_MOST_GROUP, &numbers[count++], err);
	}
	free(copy);
	return status < 0 ? pd_error_prefix(err, "--tensor: \"%.60s\"", text) : count;
}

int64_t pd_profile_shared_ns(const struct pd_profile *profile, int64_t update_ns, int64_t replicas)
{
	return profile->memory.sharded && update_ns > 0 ? (update_ns - 1) / replicas + 1 : update_ns;
}

int64_t pd_profile_summed_bytes(const struct pd_profile *profile, enum pd_dtype gradient_dtype, int64_t bytes)
{
	int64_t gradient = (int64_t)pd_dtype_bytes(gradient_dtype), weight = (int64_t)pd_dtype_bytes(profile->dtype);
	int64_t floats = bytes / (int64_t)sizeof(float);

	if (!profile->memory.sharded || weight >= gradient)
		return bytes;
	return (floats * (gradient + weight) / (2 * gradient)) * (int64_t)sizeof(float);
}

json_t *pd_degrees_json(const struct pd_degrees *group)
{
	const struct pd_group_link *tensor = &group->tensor_link, *sharded = &group->sharded_link;
	json_t *json = json_pack("{sI sb sI sI sI}", "tensor", group->tensor, "sequence",
				 group->sequence, "sharded", group->sharded,
				 "bandwidth_bytes_per_s", tensor->bandwidth_bytes_per_s,
				 "latency_ns", tensor->latency_ns);

	if (group->sharded > 1 &&
	    (sharded->bandwidth_bytes_per_s != tensor->bandwidth_bytes_per_s ||
	     sharded->latency_ns != tensor->latency_ns)) {
		pd_json_set(json, "sharded_bandwidth_bytes_per_s",
			    json_integer(sharded->bandwidth_bytes_per_s));
		pd_json_set(json, "sharded_latency_ns", json_integer(sharded->latency_ns));
	}
	return json;
}
