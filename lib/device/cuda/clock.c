/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU stamps its events on a clock of its own, of which CUDA gives only differences, as a
 * float of milliseconds: half a microsecond's grain, and worse from some seconds on.  So a
 * stream measures from an event of its own that is at most about a second old, and looks
 * for that event's time on the common clock anew each second, since the two clocks drift.
 */
#include "device/cuda/cuda.h"

#include "base/clock.h"

#define LOOKS 4
#define CLOSE_NS 100000         /* between the two looks at the host's clock */
#define LOOK_NS 1000000         /* for one that is not close, until it is given up */

int pd_cuda_clock_ns(const struct pd_cuda_clock *clock, cudaEvent_t event, int64_t *ns_p,
		     struct pd_error *err)
{
	float ms;

	if (pd_cuda_check(cudaEventElapsedTime(&ms, clock->base, event), "times of its events",
			  err) < 0)
		return -1;
	*ns_p = clock->base_ns + (int64_t)((double)ms * 1e6);
	return 0;
}

/* 1: the event is done; 0: it is not within LOOK_NS. */
static int await(cudaEvent_t event, int64_t before, struct pd_error *err)
{
	cudaError_t status;

	while ((status = cudaEventQuery(event)) == cudaErrorNotReady)
		if (pd_now_ns() - before > LOOK_NS)
			break;
	if (status != cudaErrorNotReady)
		return pd_cuda_check(status, "an event", err) < 0 ? -1 : 1;
	cudaGetLastError();
	return 0;
}

/*
 * An event on a stream that has nothing else to do is stamped between before and after.  It is
 * there within microseconds; unless the stream shares a queue of the GPU's with one that waits.
 */
static int look(const struct pd_cuda_look *with, cudaEvent_t past, int64_t *ns_p,
		int64_t *width_p, struct pd_error *err)
{
	int64_t before = pd_now_ns(), after;
	int verdict;
	float ms;

	if (pd_cuda_check(cudaEventRecord(with->now, with->side), "an event", err) < 0)
		return -1;
	verdict = await(with->now, before, err);
	if (verdict <= 0)
		return verdict;
	after = pd_now_ns();
	if (pd_cuda_check(cudaEventElapsedTime(&ms, past, with->now), "times of its events",
			  err) < 0)
		return -1;
	*ns_p = before + (after - before) / 2 - (int64_t)((double)ms * 1e6);
	*width_p = after - before;
	return 1;
}

int pd_cuda_look(const struct pd_cuda_look *with, cudaEvent_t past, int64_t *ns_p,
		 struct pd_error *err)
{
	int64_t narrowest = CLOSE_NS;
	int found = 0;

	for (int i = 0; i < LOOKS; i++) {
		int64_t ns, width;
		int verdict = look(with, past, &ns, &width, err);

		if (verdict <= 0)
			return verdict < 0 ? -1 : found;
		if (width < narrowest) {
			narrowest = width;
			*ns_p = ns;
			found = 1;
		}
	}
	return found;
}
