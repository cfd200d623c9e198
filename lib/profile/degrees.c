/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/profile.h"

#include "base/mem.h"
#include "base/opt.h"
#include "profile/layers.h"

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

#define IN(member) PD_MEMBER(struct pd_degrees, member)

const struct pd_key_row pd_degrees_rows[] = {
	{ "tensor", PD_ROW_INT, .always = true, IN(tensor), .least = 1, .most = PD_MOST_GROUP, .otherwise = 1 },
	{ "sequence", PD_ROW_BOOL, .always = true, IN(sequence) },
	{ "sharded", PD_ROW_INT, .always = true, IN(sharded), .least = 1, .most = PD_MOST_GROUP, .otherwise = 1 },
	{ "bandwidth_bytes_per_s", PD_ROW_INT, .always = true, IN(tensor_link.bandwidth_bytes_per_s), .least = 1 },
	{ "latency_ns", PD_ROW_INT, .always = true, IN(tensor_link.latency_ns), .most = PD_MAX_TIME_NS },
	{ "sharded_bandwidth_bytes_per_s", PD_ROW_INT, IN(sharded_link.bandwidth_bytes_per_s), .least = 1,
	  .otherwise = -1 },
	{ "sharded_latency_ns", PD_ROW_INT, IN(sharded_link.latency_ns), .most = PD_MAX_TIME_NS, .otherwise = -1 },
	{ NULL }
};

int pd_degrees_read(const struct pd_place *place, void *member, struct pd_error *err)
{
	struct pd_degrees *group = member;
	struct pd_group_link *tensor = &group->tensor_link, *sharded = &group->sharded_link;

	if (pd_rows_read(place, pd_degrees_rows, group, err) < 0)
		return -1;
	if (sharded->bandwidth_bytes_per_s < 0)
		sharded->bandwidth_bytes_per_s = tensor->bandwidth_bytes_per_s;
	if (sharded->latency_ns < 0)
		sharded->latency_ns = tensor->latency_ns;
	return 0;
}

json_t *pd_degrees_json(const struct pd_degrees *group)
{
	const struct pd_group_link *tensor = &group->tensor_link, *sharded = &group->sharded_link;
	struct pd_degrees told = *group;

	if (group->sharded <= 1 || (sharded->bandwidth_bytes_per_s == tensor->bandwidth_bytes_per_s &&
				    sharded->latency_ns == tensor->latency_ns))
		told.sharded_link = (struct pd_group_link){ -1, -1 };
	return pd_rows_json(pd_degrees_rows, &told);
}

json_t *pd_degrees_write(const void *member)
{
	return pd_degrees_devices(member) > 1 ? pd_degrees_json(member) : NULL;
}
