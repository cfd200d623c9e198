/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU stamps events on a clock of its own, of which CUDA gives only differences, as a float of
 * milliseconds: with a grain of half a microsecond, which grows after some seconds.  So a stream
 * measures from an event of its own that is at most about a second old, and finds that event's time
 * on the common clock anew each second, since the two clocks drift.
 */
#include "run/device/cuda/cuda.h"

#include "base/clock.h"

#define LOOKS 4
#define CLOSE_NS 100000         /* the most between two readings of the host's clock */
#define LOOK_NS 1000000         /* time after which it gives up */

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

/* Returns 1: the event is done; 0: it is not within LOOK_NS. */
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
 * An event on a stream without other work is stamped between two readings of the host's clock.  It
 * is done within microseconds, unless the stream shares a queue of the GPU's with one that waits.
 */
static int read_clocks(const struct pd_cuda_look *with, cudaEvent_t past, int64_t *ns_p,
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
		int verdict = read_clocks(with, past, &ns, &width, err);

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
