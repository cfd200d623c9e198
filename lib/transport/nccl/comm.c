/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane's communicator: everything that is asked of NCCL.
 *
 * It does not block (ncclConfig_t.blocking = 0): a call may return ncclInProgress, and then the
 * next one has to wait until ncclCommGetAsyncError says otherwise; until then the work may not
 * be on the stream.  The lane's stream has a thread that can wait for that.  Another thread may
 * abort meanwhile, so each single call is under the lane's lock, and no wait is.
 */
#include "transport/nccl/lane.h"

#include "base/clock.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#define SPINS 100                       /* before it sleeps between two questions */
#define NAP_NS 50000

static const char *towards(const struct lane *lane)
{
	return lane->receives ? "from" : "to";
}

/* The peer is gone, or it is something else. */
static int refuse(const struct lane *lane, const char *what, ncclResult_t status,
		  struct pd_error *err)
{
	const char *more = lane->comm ? ncclGetLastError(lane->comm) : NULL;

	if (status == ncclRemoteError)
		return pd_error_peer(err, lane->peer, "rank %d: lost rank %d: NCCL: %s",
				     lane->owner->rank, lane->peer, ncclGetErrorString(status));
	return pd_error_peer(err, lane->peer, "rank %d: NCCL: %s %s rank %d: %s%s%.200s",
			     lane->owner->rank, what, towards(lane), lane->peer,
			     ncclGetErrorString(status), more && *more ? ": " : "",
			     more ? more : "");
}

static int given_up(const struct lane *lane, const char *what, struct pd_error *err)
{
	return pd_error_peer(err, lane->peer, "rank %d: NCCL: %s %s rank %d was given up",
			     lane->owner->rank, what, towards(lane), lane->peer);
}

static void nap(int tries)
{
	const struct timespec while_ns = { .tv_nsec = NAP_NS };

	if (tries < SPINS)
		sched_yield();
	else
		nanosleep(&while_ns, NULL);
}

/* Until what a call has begun is on the stream. */
static int settle(struct lane *lane, const char *what, ncclResult_t status, struct pd_error *err)
{
	int verdict = 0;

	for (int tries = 0; status == ncclInProgress; tries++) {
		ncclResult_t asked = ncclSuccess;

		nap(tries);
		pthread_mutex_lock(&lane->lock);
		if (lane->gone)
			verdict = given_up(lane, what, err);
		else
			asked = ncclCommGetAsyncError(lane->comm, &status);
		pthread_mutex_unlock(&lane->lock);
		if (verdict < 0)
			return -1;
		if (asked != ncclSuccess)
			status = asked;
	}
	if (status == ncclSuccess)
		return 0;
	pthread_mutex_lock(&lane->lock);
	verdict = lane->gone ? given_up(lane, what, err) : refuse(lane, what, status, err);
	pthread_mutex_unlock(&lane->lock);
	return verdict;
}

int pd_nccl_join(void *context, void *native, struct pd_error *err)
{
	struct lane *lane = context;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclResult_t status = ncclSuccess;
	int verdict = 0;

	config.blocking = 0;
	config.minCTAs = 1;
	config.maxCTAs = lane->owner->ctas;
	pthread_mutex_lock(&lane->lock);
	if (lane->gone)
		verdict = given_up(lane, "the connection", err);
	else
		status = ncclCommInitRankConfig(&lane->comm, 2, lane->id, lane->receives, &config);
	pthread_mutex_unlock(&lane->lock);
	return verdict < 0 ? -1 : settle(lane, "the connection", status, err);
}

int pd_nccl_post(void *context, void *native, struct pd_error *err)
{
	const struct transfer *x = context;
	struct lane *lane = x->lane;
	cudaStream_t stream = native;
	ncclResult_t status = ncclSuccess;
	int verdict = 0;

	pthread_mutex_lock(&lane->lock);
	if (lane->gone)
		verdict = given_up(lane, "a transfer", err);
	else if (x->bytes > 0 && lane->receives)
		status = ncclRecv(x->buf, x->bytes, ncclUint8, 0, lane->comm, stream);
	else if (x->bytes > 0)
		status = ncclSend(x->buf, x->bytes, ncclUint8, 1, lane->comm, stream);
	pthread_mutex_unlock(&lane->lock);
	return verdict < 0 ? -1 : settle(lane, "a transfer", status, err);
}

int pd_nccl_ask(struct lane *lane, struct pd_error *err)
{
	ncclResult_t status = ncclSuccess, asked;
	int verdict = 0;

	pthread_mutex_lock(&lane->lock);
	if (lane->comm && !lane->gone) {
		asked = ncclCommGetAsyncError(lane->comm, &status);
		if (asked != ncclSuccess)
			status = asked;
		if (status != ncclSuccess && status != ncclInProgress)
			verdict = refuse(lane, "transfers", status, err);
	}
	pthread_mutex_unlock(&lane->lock);
	return verdict;
}

int pd_nccl_joined(void *lane, struct pd_error *err)
{
	return pd_nccl_ask(lane, err);
}

/* The work is done on the GPU; or it was ended there by an abort, which looks the same. */
int pd_nccl_check(void *context, struct pd_error *err)
{
	struct transfer *x = context;
	struct lane *lane = x->lane;
	bool gone;

	pthread_mutex_lock(&lane->lock);
	gone = lane->gone;
	pthread_mutex_unlock(&lane->lock);
	if (gone)
		return given_up(lane, "a transfer", err);
	if (pd_nccl_ask(lane, err) < 0)
		return -1;
	atomic_store(&x->over, true);
	return 0;
}

ncclComm_t pd_nccl_take(struct lane *lane)
{
	ncclComm_t comm;

	pthread_mutex_lock(&lane->lock);
	comm = lane->comm;
	lane->gone = true;
	lane->comm = NULL;
	pthread_mutex_unlock(&lane->lock);
	return comm;
}

void pd_nccl_finish(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	if (lane->comm && !lane->gone)
		lane->finishing = ncclCommFinalize(lane->comm);
	pthread_mutex_unlock(&lane->lock);
}

void pd_nccl_leave(struct lane *lane, int64_t end_ns)
{
	ncclResult_t status = lane->finishing;

	pthread_mutex_lock(&lane->lock);
	for (int tries = 0; lane->comm && status == ncclInProgress && pd_now_ns() < end_ns; tries++) {
		nap(tries);
		if (ncclCommGetAsyncError(lane->comm, &status) != ncclSuccess)
			status = ncclInternalError;
	}
	lane->gone = true;
	if (lane->comm && status == ncclSuccess) {
		ncclCommDestroy(lane->comm);
		lane->comm = NULL;
	}
	pthread_mutex_unlock(&lane->lock);
}
