/* SPDX-License-Identifier: Apache-2.0 */
#include "base/drift.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns by how much farther ahead than in the first sample it is when it shows a time by that sample. */
static int64_t drift_ns(const struct pd_drift *drift, int64_t shown_ns)
{
	double gained = (double)(drift->last.ahead_ns - drift->first.ahead_ns);
	double shown = (double)(drift->last.at_ns - drift->first.at_ns) + gained;

	return shown > 0 ? (int64_t)(gained * ((double)(shown_ns - drift->first.at_ns) / shown)) : 0;
}

int pd_drift_remove(const struct pd_drift *drift, int64_t zero_ns, FILE *records, FILE *out,
		    struct pd_error *err)
{
	static const char times[] = ",\"start_ns\":%" SCNd64 ",\"end_ns\":%" SCNd64 "}";
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, records) > 0) {
		char *at = strstr(line, ",\"start_ns\":");
		int64_t start, end;

		if (!at || sscanf(at, times, &start, &end) != 2)
			pd_bug("trace: a record without times: %s", line);
		*at = 0;
		fprintf(out, "%s,\"start_ns\":%" PRId64 ",\"end_ns\":%" PRId64 "}\n", line,
			start - drift_ns(drift, zero_ns + start),
			end - drift_ns(drift, zero_ns + end));
	}
	free(line);
	return ferror(records) ? pd_error_failed(err, "cannot read what was written: %s",
						 strerror(errno)) : 0;
}
