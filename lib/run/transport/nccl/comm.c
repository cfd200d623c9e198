/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file makes all calls to NCCL for a communicator.
 *
 * The communicator does not block (ncclConfig_t.blocking = 0): a call may return ncclInProgress.
 * Its work may then not be on the stream yet, and the next call has to wait until
 * ncclCommGetAsyncError says otherwise.  The communicator's stream has a thread that can wait for
 * that.  Another thread may abort meanwhile, so each call to NCCL is under the communicator's lock,
 * but no wait is.
 */
#include "run/transport/nccl/connection.h"

#include "base/clock.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#define SPINS 100                       /* questions to NCCL before it sleeps between them */
#define NAP_NS 50000

/* Fails the transport with an error of NCCL's, which may mean that the peer is gone. */
static int refuse(const struct nccl_comm *comm, const char *what, ncclResult_t status,
		  struct pd_error *err)
{
	const char *more = comm->comm ? ncclGetLastError(comm->comm) : NULL;

	if (status == ncclRemoteError && comm->size == 2)
		return pd_error_peer(err, comm->peer, "rank %d: lost rank %d: NCCL: %s",
				     comm->owner->rank, comm->peer, ncclGetErrorString(status));
	return pd_error_peer(err, comm->peer, "rank %d: NCCL: %s %s rank %d%s: %s%s%.200s",
			     comm->owner->rank, what, comm->way, comm->peer,
			     comm->size > 2 ? " and others" : "", ncclGetErrorString(status),
			     more && *more ? ": " : "", more ? more : "");
}

static int given_up(const struct nccl_comm *comm, const char *what, struct pd_error *err)
{
	return pd_error_peer(err, comm->peer, "rank %d: NCCL: %s %s rank %d was given up",
			     comm->owner->rank, what, comm->way, comm->peer);
}

static void nap(int tries)
{
	const struct timespec while_ns = { .tv_nsec = NAP_NS };

	if (tries < SPINS)
		sched_yield();
	else
		nanosleep(&while_ns, NULL);
}

/* Waits until the work of the last call is on the stream. */
static int settle(struct nccl_comm *comm, const char *what, ncclResult_t status,
		  struct pd_error *err)
{
	int verdict = 0;

	for (int tries = 0; status == ncclInProgress; tries++) {
		ncclResult_t asked = ncclSuccess;

		nap(tries);
		pthread_mutex_lock(&comm->lock);
		if (comm->gone)
			verdict = given_up(comm, what, err);
		else
			asked = ncclCommGetAsyncError(comm->comm, &status);
		pthread_mutex_unlock(&comm->lock);
		if (verdict < 0)
			return -1;
		if (asked != ncclSuccess)
			status = asked;
	}
	if (status == ncclSuccess)
		return 0;
	pthread_mutex_lock(&comm->lock);
	verdict = comm->gone ? given_up(comm, what, err)
		: refuse(comm, what, status, err);
	pthread_mutex_unlock(&comm->lock);
	return verdict;
}

typedef ncclResult_t nccl_call(struct nccl_comm *comm, const void *context, cudaStream_t stream);

/* Makes a call to NCCL unless the communicator is given up, and waits until it is on the stream. */
static int make(struct nccl_comm *comm, const char *what, nccl_call *call, const void *context,
		void *native, struct pd_error *err)
{
	ncclResult_t status = ncclSuccess;
	int verdict = 0;

	pthread_mutex_lock(&comm->lock);
	if (comm->gone)
		verdict = given_up(comm, what, err);
	else
		status = call(comm, context, native);
	pthread_mutex_unlock(&comm->lock);
	return verdict < 0 ? -1 : settle(comm, what, status, err);
}

static ncclResult_t init(struct nccl_comm *comm, const void *context, cudaStream_t stream)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

	config.blocking = 0;
	config.minCTAs = 1;
	config.maxCTAs = comm->ctas;
	return ncclCommInitRankConfig(&comm->comm, comm->size, comm->id, comm->number, &config);
}

int pd_nccl_comm_init(void *comm, void *native, struct pd_error *err)
{
	return make(comm, "the connection", init, NULL, native, err);
}

static ncclResult_t move(struct nccl_comm *comm, const void *transfer, cudaStream_t stream)
{
	const struct nccl_transfer *x = transfer;

	if (x->bytes == 0)
		return ncclSuccess;
	return x->connection->receives
		? ncclRecv(x->buf, x->bytes, ncclUint8, 0, comm->comm, stream)
		: ncclSend(x->buf, x->bytes, ncclUint8, 1, comm->comm, stream);
}

int pd_nccl_post(void *transfer, void *native, struct pd_error *err)
{
	const struct nccl_transfer *x = transfer;

	return make(&x->connection->comm, "a transfer", move, x, native, err);
}

static ncclResult_t sum(struct nccl_comm *comm, const void *group_sum, cudaStream_t stream)
{
	const struct pd_group_sum *s = group_sum;

	return ncclAllReduce(s->buf, s->buf, s->floats, ncclFloat32, ncclSum, comm->comm, stream);
}

int pd_nccl_post_sum(void *group_sum, void *native, struct pd_error *err)
{
	const struct pd_group_sum *s = group_sum;

	return make(&((struct nccl_group *)s->group)->comm, "an all-reduce", sum, s, native, err);
}

int pd_nccl_ask(struct nccl_comm *comm, struct pd_error *err)
{
	ncclResult_t status = ncclSuccess, asked;
	int verdict = 0;

	pthread_mutex_lock(&comm->lock);
	if (comm->comm && !comm->gone) {
		asked = ncclCommGetAsyncError(comm->comm, &status);
		if (asked != ncclSuccess)
			status = asked;
		if (status != ncclSuccess && status != ncclInProgress)
			verdict = refuse(comm, "transfers", status, err);
	}
	pthread_mutex_unlock(&comm->lock);
	return verdict;
}

int pd_nccl_comm_ready(void *comm, struct pd_error *err)
{
	return pd_nccl_ask(comm, err);
}

/*
 * Is called when the work is done on the GPU, or was ended there by an abort, which looks the same.
 */
static int check(struct nccl_comm *comm, const char *what, struct pd_error *err)
{
	bool gone;

	pthread_mutex_lock(&comm->lock);
	gone = comm->gone;
	pthread_mutex_unlock(&comm->lock);
	return gone ? given_up(comm, what, err) : pd_nccl_ask(comm, err);
}

int pd_nccl_check(void *transfer, struct pd_error *err)
{
	struct nccl_transfer *x = transfer;

	if (check(&x->connection->comm, "a transfer", err) < 0)
		return -1;
	atomic_store(&x->over, true);
	return 0;
}

int pd_nccl_check_sum(void *group_sum, struct pd_error *err)
{
	const struct pd_group_sum *s = group_sum;

	return check(&((struct nccl_group *)s->group)->comm, "an all-reduce", err);
}

ncclComm_t pd_nccl_take(struct nccl_comm *comm)
{
	ncclComm_t taken;

	pthread_mutex_lock(&comm->lock);
	taken = comm->comm;
	comm->gone = true;
	comm->comm = NULL;
	pthread_mutex_unlock(&comm->lock);
	return taken;
}

void pd_nccl_finalize(struct nccl_comm *comm)
{
	pthread_mutex_lock(&comm->lock);
	if (comm->comm && !comm->gone)
		comm->finishing = ncclCommFinalize(comm->comm);
	pthread_mutex_unlock(&comm->lock);
}

void pd_nccl_leave(struct nccl_comm *comm, int64_t end_ns)
{
	ncclResult_t status = comm->finishing;

	pthread_mutex_lock(&comm->lock);
	for (int tries = 0; comm->comm && status == ncclInProgress &&
	     pd_now_ns() < end_ns; tries++) {
		nap(tries);
		if (ncclCommGetAsyncError(comm->comm, &status) != ncclSuccess)
			status = ncclInternalError;
	}
	comm->gone = true;
	if (comm->comm && status == ncclSuccess) {
		ncclCommDestroy(comm->comm);
		comm->comm = NULL;
	}
	pthread_mutex_unlock(&comm->lock);
}

int pd_nccl_id(ncclUniqueId *id, struct pd_error *err)
{
	ncclResult_t status = ncclGetUniqueId(id);

	return status == ncclSuccess ? 0
		: pd_error_failed(err, "NCCL does not start: %s: %.200s",
				  ncclGetErrorString(status), ncclGetLastError(NULL));
}

int pd_nccl_comm_open(struct nccl_comm *comm, struct nccl *owner, struct pd_error *err)
{
	struct nccl_comm **last = &owner->comms;

	comm->stream = owner->device->ops->stream.open(owner->device, err);
	if (!comm->stream)
		return -1;
	comm->owner = owner;
	pthread_mutex_init(&comm->lock, NULL);
	while (*last)
		last = &(*last)->next;
	*last = comm;
	return 0;
}

void pd_nccl_comm_close(struct nccl_comm *comm)
{
	if (comm->stream)
		comm->owner->device->ops->stream.close(comm->stream);
	comm->stream = NULL;
}
