/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each rank sends its part of the trace as a stream; the parts are merged at the end.  Parts are
 * files without names, so that nothing is left of them, whoever is killed.
 */
#include "run/supervisor/internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "run/launch/process.h"
#include "trace/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/*
 * Opens a part where the trace will be, which is the most likely place to have room; or with the
 * temporary files, if the trace is no regular file.
 */
int supervisor_open_trace(struct supervisor *s, int r, struct pd_error *err)
{
	const char *temporary = getenv("TMPDIR");
	char *name = NULL;
	struct stat st;

	if (!s->job->trace)
		return 0;
	if (stat(s->job->trace, &st) == 0 && !S_ISREG(st.st_mode))
		name = pd_format("%s/pd-trace", temporary && *temporary ? temporary : "/tmp");
	s->ranks[r].trace = pd_file_unnamed(name ? name : s->job->trace);
	if (s->ranks[r].trace < 0)
		pd_error_input(err, "%s: cannot create: %s", name ? name : s->job->trace,
			       strerror(errno));
	free(name);
	return s->ranks[r].trace < 0 ? -1 : 0;
}

static void keep(void *rank, const char *bytes, size_t count)
{
	struct watched *w = rank;

	while (count > 0 && !w->trace_lost) {
		ssize_t n = write(w->trace, bytes, count);

		if (n < 0 && errno != EINTR)
			w->trace_lost = errno;
		if (n < 0)
			continue;
		bytes += n;
		count -= (size_t)n;
	}
}

void supervisor_receive_trace(struct supervisor *s, int r)
{
	if (s->ranks[r].trace >= 0)
		pd_channel_on_bytes(supervisor_channel(s, r), keep, &s->ranks[r]);
}

/* Checks, once a rank's part has come, that all of it could be stored. */
int supervisor_has_trace(struct supervisor *s, int r, struct pd_error *err)
{
	char name[WHO_TEXT];

	if (!s->ranks[r].trace_lost)
		return 0;
	return pd_error_failed(err, "%s: %s: cannot write: %s",
			       supervisor_who(s, r, name), s->job->trace,
			       strerror(s->ranks[r].trace_lost));
}

void supervisor_measure_drift(struct supervisor *s)
{
	for (int r = 0; r < s->count; r++)
		s->ranks[r].drift = s->launcher->ops->drift(s->launcher, r);
}

/* Errors of `out` show when the file is committed. */
static int append(const struct supervisor *s, FILE *out, struct watched *w, struct pd_error *err)
{
	FILE *part = fdopen(w->trace, "r");
	int status;

	if (!part)
		return pd_error_failed(err, "%s: %s", s->job->trace, strerror(errno));
	w->trace = -1;
	rewind(part);
	status = pd_drift_remove(&w->drift, s->zero_ns, part, out, err);
	fclose(part);
	return status < 0 ? pd_error_prefix(err, "%s", s->job->trace) : 0;
}

void supervisor_processors(const struct supervisor *s, int64_t *processors_p, int64_t *threads_p)
{
	struct pd_error err;
	const struct pd_device_ops *device = pd_device_find(s->job->device, &err);
	bool shared = device && strcmp(device->name, "cpu") == 0;

	*processors_p = shared ? s->launcher->ops->processors(s->launcher) : 0;
	*threads_p = shared ? s->ranks[0].threads : 0;
}

int supervisor_merge_trace(struct supervisor *s, struct pd_error *err)
{
	const struct pd_device_ops *device = pd_device_find(s->job->device, err);
	struct pd_trace header = { .plan = s->job->plan };
	struct pd_file *file = &s->job->trace_file;
	struct timespec now;
	int status;

	if (!device)
		return -1;
	header.device = (char *)device->name;
	supervisor_processors(s, &header.processors, &header.threads);
	if (!s->job->lists)
		header.epoch_minibatches = s->job->epoch_minibatches;
	clock_gettime(CLOCK_REALTIME, &now);
	if (!file->stream && pd_file_create(file, s->job->trace, err) < 0)
		return -1;
	header.start_ns = now.tv_sec * SECOND_NS + now.tv_nsec - (pd_now_ns() - s->report.begun_ns);
	status = pd_trace_write_header(file->stream, &header, err);
	if (status < 0)
		pd_error_prefix(err, "%s", s->job->trace);
	for (int r = 0; r < s->count && status == 0; r++)
		status = append(s, file->stream, &s->ranks[r], err);
	if (status == 0)
		return pd_file_commit(file, err);
	pd_file_abandon(file);
	return -1;
}

void supervisor_close_trace(struct supervisor *s)
{
	for (int r = 0; r < s->count; r++)
		if (s->ranks[r].trace >= 0)
			close(s->ranks[r].trace);
}
