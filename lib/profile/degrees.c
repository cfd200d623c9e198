/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/profile.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"

#include <stdlib.h>
#include <string.h>

#define SEQUENCE ",sequence"

int pd_degrees_parse_tensor(const char *text, struct pd_degrees *group, struct pd_error *err)
{
	size_t length = strlen(text), tail = strlen(SEQUENCE);
	bool sequence = length > tail && strcmp(text + length - tail, SEQUENCE) == 0;
	char *number = pd_format("%.*s", (int)(sequence ? length - tail : length), text);
	int status = pd_parse_count(number, 1, PD_MOST_GROUP, &group->tensor, err);

	free(number);
	group->sequence = sequence;
	return status < 0 ? pd_error_prefix(err, "--tensor: \"%.60s\"", text) : 0;
}

json_t *pd_degrees_json(const struct pd_degrees *group)
{
	return json_pack("{sI sb sI sI sI}", "tensor", group->tensor, "sequence", group->sequence, "sharded",
			 group->sharded, "bandwidth_bytes_per_s", group->bandwidth_bytes_per_s, "latency_ns",
			 group->latency_ns);
}
