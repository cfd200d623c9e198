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

/* An event on a stream that has nothing else to do is stamped between before and after. */
static int look(cudaStream_t side, cudaEvent_t now, cudaEvent_t past, int64_t *ns_p,
		int64_t *width_p, struct pd_error *err)
{
	int64_t before = pd_now_ns(), after;
	float ms;

	if (pd_cuda_check(cudaEventRecord(now, side), "an event", err) < 0 ||
	    pd_cuda_check(cudaEventSynchronize(now), "an event", err) < 0)
		return -1;
	after = pd_now_ns();
	if (pd_cuda_check(cudaEventElapsedTime(&ms, past, now), "times of its events", err) < 0)
		return -1;
	*ns_p = before + (after - before) / 2 - (int64_t)((double)ms * 1e6);
	*width_p = after - before;
	return 0;
}

int pd_cuda_look(cudaStream_t side, cudaEvent_t past, int64_t *ns_p, struct pd_error *err)
{
	int64_t narrowest = CLOSE_NS;
	cudaEvent_t now;
	int verdict = 0;

	/* not one that sleeps: it is there within microseconds */
	if (pd_cuda_check(cudaEventCreate(&now), "an event", err) < 0)
		return -1;
	for (int i = 0; i < LOOKS && verdict >= 0; i++) {
		int64_t ns, width;

		if (look(side, now, past, &ns, &width, err) < 0) {
			verdict = -1;
		} else if (width < narrowest) {
			narrowest = width;
			*ns_p = ns;
			verdict = 1;
		}
	}
	cudaEventDestroy(now);
	return verdict;
}
