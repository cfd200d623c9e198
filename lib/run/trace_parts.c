/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank writes its part of the trace; they are put together at the end. */
#include "run/internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "trace/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int append(FILE *out, const char *part, struct pd_error *err)
{
	FILE *in = fopen(part, "re");
	char buffer[65536];
	int status = 0;
	size_t n;

	if (!in)
		return pd_error_failed(err, "%s: cannot open: %s", part, strerror(errno));
	while ((n = fread(buffer, 1, sizeof(buffer), in)) > 0)
		fwrite(buffer, 1, n, out);      /* whether it could is told when it is committed */
	if (ferror(in))
		status = pd_error_failed(err, "%s: cannot read: %s", part, strerror(errno));
	fclose(in);
	return status;
}

int supervisor_merge_trace(struct supervisor *s, struct pd_error *err)
{
	const struct pd_device_ops *device = pd_device_find(s->job->device, err);
	struct pd_trace header = { .plan = s->job->plan };
	struct timespec now;
	struct pd_file file;
	int status;

	if (!device)
		return -1;
	header.device = (char *)device->name;
	if (strcmp(device->name, "cpu") == 0) {
		header.processors = pd_process_processors();
		header.threads = supervisor_threads(s, 0);
	}
	clock_gettime(CLOCK_REALTIME, &now);
	if (pd_file_create(&file, s->job->trace, err) < 0)
		return -1;
	header.start_ns = now.tv_sec * SECOND_NS + now.tv_nsec - (pd_now_ns() - s->report.begun_ns);
	status = pd_trace_write_header(file.stream, &header, err);
	for (int r = 0; r < s->count && status == 0; r++) {
		char *part = pd_format("%s.rank-%d", s->job->trace, r);

		status = append(file.stream, part, err);
		free(part);
	}
	if (status == 0)
		return pd_file_commit(&file, err);
	pd_file_abandon(&file);
	return -1;
}

void supervisor_remove_trace_parts(struct supervisor *s)
{
	for (int r = 0; r < s->count && s->job->trace; r++) {
		char *part = pd_format("%s.rank-%d", s->job->trace, r);

		unlink(part);
		free(part);
	}
}
