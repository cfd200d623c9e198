/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file makes all calls to NCCL for the communicator of a connection.
 *
 * The communicator does not block (ncclConfig_t.blocking = 0): a call may return ncclInProgress.
 * Its work may then not be on the stream yet, and the next call has to wait until
 * ncclCommGetAsyncError says otherwise.  The connection's stream has a thread that can wait for
 * that.  Another thread may abort meanwhile, so each call to NCCL is under the connection's lock,
 * but no wait is.
 */
#include "transport/nccl/connection.h"

#include "base/clock.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#define SPINS 100                       /* questions to NCCL before it sleeps between them */
#define NAP_NS 50000

static const char *towards(const struct nccl_connection *connection)
{
	return connection->receives ? "from" : "to";
}

/* Fails the transport with an error of NCCL's, which may mean that the peer is gone. */
static int refuse(const struct nccl_connection *connection, const char *what, ncclResult_t status,
		  struct pd_error *err)
{
	const char *more = connection->comm ? ncclGetLastError(connection->comm) : NULL;

	if (status == ncclRemoteError)
		return pd_error_peer(err, connection->peer, "rank %d: lost rank %d: NCCL: %s",
				     connection->owner->rank, connection->peer,
				     ncclGetErrorString(status));
	return pd_error_peer(err, connection->peer, "rank %d: NCCL: %s %s rank %d: %s%s%.200s",
			     connection->owner->rank, what, towards(connection), connection->peer,
			     ncclGetErrorString(status), more && *more ? ": " : "",
			     more ? more : "");
}

static int given_up(const struct nccl_connection *connection, const char *what,
		    struct pd_error *err)
{
	return pd_error_peer(err, connection->peer, "rank %d: NCCL: %s %s rank %d was given up",
			     connection->owner->rank, what, towards(connection), connection->peer);
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
static int settle(struct nccl_connection *connection, const char *what, ncclResult_t status,
		  struct pd_error *err)
{
	int verdict = 0;

	for (int tries = 0; status == ncclInProgress; tries++) {
		ncclResult_t asked = ncclSuccess;

		nap(tries);
		pthread_mutex_lock(&connection->lock);
		if (connection->gone)
			verdict = given_up(connection, what, err);
		else
			asked = ncclCommGetAsyncError(connection->comm, &status);
		pthread_mutex_unlock(&connection->lock);
		if (verdict < 0)
			return -1;
		if (asked != ncclSuccess)
			status = asked;
	}
	if (status == ncclSuccess)
		return 0;
	pthread_mutex_lock(&connection->lock);
	verdict = connection->gone ? given_up(connection, what, err)
		: refuse(connection, what, status, err);
	pthread_mutex_unlock(&connection->lock);
	return verdict;
}

int pd_nccl_comm_init(void *context, void *native, struct pd_error *err)
{
	struct nccl_connection *connection = context;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclResult_t status = ncclSuccess;
	int verdict = 0;

	config.blocking = 0;
	config.minCTAs = 1;
	config.maxCTAs = connection->owner->ctas;
	pthread_mutex_lock(&connection->lock);
	if (connection->gone)
		verdict = given_up(connection, "the connection", err);
	else
		status = ncclCommInitRankConfig(&connection->comm, 2, connection->id,
						connection->receives, &config);
	pthread_mutex_unlock(&connection->lock);
	return verdict < 0 ? -1 : settle(connection, "the connection", status, err);
}

int pd_nccl_post(void *context, void *native, struct pd_error *err)
{
	const struct nccl_transfer *x = context;
	struct nccl_connection *connection = x->connection;
	cudaStream_t stream = native;
	ncclResult_t status = ncclSuccess;
	int verdict = 0;

	pthread_mutex_lock(&connection->lock);
	if (connection->gone)
		verdict = given_up(connection, "a transfer", err);
	else if (x->bytes > 0 && connection->receives)
		status = ncclRecv(x->buf, x->bytes, ncclUint8, 0, connection->comm, stream);
	else if (x->bytes > 0)
		status = ncclSend(x->buf, x->bytes, ncclUint8, 1, connection->comm, stream);
	pthread_mutex_unlock(&connection->lock);
	return verdict < 0 ? -1 : settle(connection, "a transfer", status, err);
}

int pd_nccl_ask(struct nccl_connection *connection, struct pd_error *err)
{
	ncclResult_t status = ncclSuccess, asked;
	int verdict = 0;

	pthread_mutex_lock(&connection->lock);
	if (connection->comm && !connection->gone) {
		asked = ncclCommGetAsyncError(connection->comm, &status);
		if (asked != ncclSuccess)
			status = asked;
		if (status != ncclSuccess && status != ncclInProgress)
			verdict = refuse(connection, "transfers", status, err);
	}
	pthread_mutex_unlock(&connection->lock);
	return verdict;
}

int pd_nccl_comm_ready(void *connection, struct pd_error *err)
{
	return pd_nccl_ask(connection, err);
}

/*
 * Is called when the work is done on the GPU, or was ended there by an abort, which looks the same.
 */
int pd_nccl_check(void *context, struct pd_error *err)
{
	struct nccl_transfer *x = context;
	struct nccl_connection *connection = x->connection;
	bool gone;

	pthread_mutex_lock(&connection->lock);
	gone = connection->gone;
	pthread_mutex_unlock(&connection->lock);
	if (gone)
		return given_up(connection, "a transfer", err);
	if (pd_nccl_ask(connection, err) < 0)
		return -1;
	atomic_store(&x->over, true);
	return 0;
}

ncclComm_t pd_nccl_take(struct nccl_connection *connection)
{
	ncclComm_t comm;

	pthread_mutex_lock(&connection->lock);
	comm = connection->comm;
	connection->gone = true;
	connection->comm = NULL;
	pthread_mutex_unlock(&connection->lock);
	return comm;
}

void pd_nccl_finalize(struct nccl_connection *connection)
{
	pthread_mutex_lock(&connection->lock);
	if (connection->comm && !connection->gone)
		connection->finishing = ncclCommFinalize(connection->comm);
	pthread_mutex_unlock(&connection->lock);
}

void pd_nccl_leave(struct nccl_connection *connection, int64_t end_ns)
{
	ncclResult_t status = connection->finishing;

	pthread_mutex_lock(&connection->lock);
	for (int tries = 0; connection->comm && status == ncclInProgress &&
	     pd_now_ns() < end_ns; tries++) {
		nap(tries);
		if (ncclCommGetAsyncError(connection->comm, &status) != ncclSuccess)
			status = ncclInternalError;
	}
	connection->gone = true;
	if (connection->comm && status == ncclSuccess) {
		ncclCommDestroy(connection->comm);
		connection->comm = NULL;
	}
	pthread_mutex_unlock(&connection->lock);
}
