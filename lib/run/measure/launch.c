/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "engine/device/submit.h"
#include "run/measure/bench.h"

#include <time.h>

#define REST_NS 300000  /* the stream's thread sleeps, as it does while a rank waits for others */

int pd_bench_launch(struct pd_bench *bench, int64_t *ns_p, struct pd_error *err)
{
	const struct timespec rest = { .tv_nsec = REST_NS };
	struct pd_event arrived = { 0 }, done = { 0 };
	int64_t now_ns;

	pd_event_arm(&arrived);
	pd_event_arm(&done);
	if (pd_submit_wait(bench->stream, &arrived) != 0 ||
	    pd_bench_queue(bench, BENCH_FORWARD, 0, 1, &done) != 0)
		return pd_error_failed(err, "the device refused a step");
	nanosleep(&rest, NULL);
	now_ns = pd_now_ns();
	pd_event_complete(&arrived, now_ns, now_ns, &bench->gate);
	if (pd_bench_wait(bench, &done, err) < 0)
		return -1;
	*ns_p = done.start_ns > now_ns ? done.start_ns - now_ns : 0;
	return 0;
}
