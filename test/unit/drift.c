/* SPDX-License-Identifier: Apache-2.0 */
/* Tests an hour's trace of a clock that is 1000 s ahead and gains 30 us a second. */
#include "base/drift.h"
#include "trace/trace.h"

#include "tap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS INT64_C(1000000000)
#define ZERO_NS (50 * SECOND_NS)        /* the trace begins 50 s after the first measurement of the clock */
#define RECORDS 3600

static int64_t ahead_ns(int64_t at_ns)
{
	return 1000 * SECOND_NS + at_ns / 1000000 * 30;
}

/* Returns the time that the rank writes, which knows how far its clock was ahead at 0. */
static int64_t written_ns(int64_t at_ns)
{
	return at_ns + ahead_ns(at_ns) - ahead_ns(0) - ZERO_NS;
}

/* Writes a forward of a millisecond every second. */
static void write_records(FILE *out)
{
	for (int i = 0; i < RECORDS; i++) {
		int64_t at_ns = ZERO_NS + i * SECOND_NS;
		struct pd_record record = {
			.op = { .kind = PD_OP_forward, .rank = 1, .stage = 1, .microbatch = i, .peer = -1,
				.version = i, .seq = -1 },
			.start_ns = written_ns(at_ns), .end_ns = written_ns(at_ns + SECOND_NS / 1000),
		};

		pd_trace_write_record(out, &record);
	}
	rewind(out);
}

/* Returns the largest error of a copy's times, or -1 if a record is otherwise changed. */
static int64_t worst(FILE *copy)
{
	int64_t most = 0;

	rewind(copy);
	for (int i = 0; i < RECORDS; i++) {
		int64_t microbatch, version, start, end;

		if (fscanf(copy, "{\"rank\":1,\"op\":\"forward\",\"stage\":1,\"microbatch\":%" SCNd64
			   ",\"weight_version\":%" SCNd64 ",\"start_ns\":%" SCNd64 ",\"end_ns\":%" SCNd64
			   "}\n", &microbatch, &version, &start, &end) != 4 ||
		    microbatch != i || version != i)
			return -1;
		start = llabs(start - i * SECOND_NS);
		end = llabs(end - i * SECOND_NS - SECOND_NS / 1000);
		most = start > most ? start : most;
		most = end > most ? end : most;
	}
	return fgetc(copy) == EOF ? most : -1;
}

static int64_t worst_with(const struct pd_drift *drift)
{
	FILE *records = tmpfile(), *copy = tmpfile();
	struct pd_error err;
	int64_t most = -1;

	write_records(records);
	if (ok(pd_drift_remove(drift, ZERO_NS, records, copy, &err) == 0, "a copy"))
		most = worst(copy);
	fclose(records);
	fclose(copy);
	return most;
}

int main(void)
{
	const int64_t end_ns = ZERO_NS + RECORDS * SECOND_NS;
	struct pd_drift drift = { { 0, ahead_ns(0) }, { end_ns, ahead_ns(end_ns) } }, none = { { 0 } };
	int64_t most = worst_with(&none);

	ok(most > SECOND_NS / 10, "measured once: off by %" PRId64 " ns", most);
	most = worst_with(&drift);
	ok(most >= 0 && most <= 100, "measured again at the end: off by %" PRId64 " ns", most);
	drift.first.ahead_ns += 10000;
	drift.last.ahead_ns -= 10000;
	most = worst_with(&drift);
	ok(most >= 0 && most <= 20100, "each time 10 us wrong: off by %" PRId64 " ns", most);
	return done_testing();
}
