/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's transport makes its connections, advances, watches and ends them. */
#include "run/transport/nccl/nccl.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/device/submit.h"
#include "run/transport/nccl/connection.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ASK_NS INT64_C(100000000)       /* time between two checks of peers and of NCCL */
#define LEAVE_NS INT64_C(1000000000)
#define NAP_MS 5
/*
 * A connection may hold so many blocks of threads on the GPU. A kernel that waits for its peer
 * holds them, and those of all connections must fit at once: 64 is half of a large GPU.
 */
#define CTAS 4
#define CTAS_ALL 64

int pd_nccl_give_up(struct nccl *n, const struct pd_error *why)
{
	struct pd_event none = { .state = PD_EVENT_PENDING };

	if (!n->broken)
		pd_event_fail(&none, why, n->gate);
	n->broken = true;
	pd_nccl_abort(n);
	return -1;
}

/* ---- watching ---- */

static int look_at_processes(struct nccl *n)
{
	struct pd_error err;

	for (int r = 0; r < n->ranks; r++) {
		struct pollfd p = { .fd = n->processes[r], .events = POLLIN };

		if (p.fd < 0 || poll(&p, 1, 0) != 1)
			continue;
		pd_error_peer(&err, r, "rank %d: lost rank %d: its process has ended", n->rank, r);
		return pd_nccl_give_up(n, &err);
	}
	return 0;
}

/* Checks now and then whether every peer's process runs and NCCL has reported no error. */
static int watch(struct nccl *n)
{
	int64_t now_ns = pd_now_ns();
	struct pd_error err;

	if (now_ns - n->asked_ns < ASK_NS)
		return 0;
	n->asked_ns = now_ns;
	for (struct nccl_comm *comm = n->comms; comm; comm = comm->next)
		if (pd_nccl_ask(comm, &err) < 0)
			return pd_nccl_give_up(n, &err);
	return look_at_processes(n);
}

/* ---- the seam ---- */

static int transfer(struct nccl *n, struct nccl_connection *connection, bool receives, int peer,
		    uint64_t tag, void *buf, size_t bytes, const struct pd_event *after,
		    struct pd_event *done)
{
	if (peer < 0 || peer >= n->ranks || tag >> PD_TRANSPORT_TAG_BITS ||
	    (!connection && !(peer == n->rank && n->loopback.stream)))
		pd_bug("rank %d: transfer with rank %d (of %d), with which it has no business",
		       n->rank, peer, n->ranks);
	if (n->broken) {
		struct pd_error err;

		pd_error_failed(&err, "rank %d: NCCL's transfers have ended", n->rank);
		pd_event_fail(done, &err, n->gate);
		return -1;
	}
	return connection ? pd_nccl_connection_add(connection, tag, buf, bytes, after, done)
		    : pd_nccl_loopback_add(n, receives, tag, buf, bytes, after, done);
}

static int nccl_send(struct pd_transport *base, int peer, uint64_t tag, const void *buf,
		     size_t bytes, const struct pd_event *after, struct pd_event *done)
{
	struct nccl *n = (struct nccl *)base;

	return transfer(n, peer >= 0 && peer < n->ranks ? n->out[peer] : NULL, false, peer, tag,
			(void *)buf, bytes, after, done);
}

static int nccl_recv(struct pd_transport *base, int peer, uint64_t tag, void *buf, size_t bytes,
		     const struct pd_event *after, struct pd_event *done)
{
	struct nccl *n = (struct nccl *)base;

	return transfer(n, peer >= 0 && peer < n->ranks ? n->in[peer] : NULL, true, peer, tag, buf,
			bytes, after, done);
}

static int nccl_progress(struct pd_transport *base)
{
	struct nccl *n = (struct nccl *)base;
	int moved, more;

	if (n->broken || watch(n) < 0)
		return -1;
	moved = n->host->ops->progress(n->host);
	for (int r = 0; r < n->ranks && moved >= 0; r++) {
		struct nccl_connection *both[2] = { n->out[r], n->in[r] };

		for (int k = 0; k < 2 && moved >= 0; k++) {
			more = both[k] ? pd_nccl_connection_move(both[k]) : 0;
			moved = more < 0 ? -1 : moved + more;
		}
	}
	more = moved < 0 ? -1 : pd_nccl_loopback_move(n);
	return more < 0 ? -1 : moved + more;
}

static int nccl_fd(struct pd_transport *base)
{
	struct nccl *n = (struct nccl *)base;

	return n->host->ops->fd(n->host);
}

/* Streams complete their work at the gate. */
static int nccl_arm(struct pd_transport *base)
{
	struct nccl *n = (struct nccl *)base;

	for (int r = 0; r < n->ranks; r++)
		if (n->in[r] && pd_nccl_connection_can_move(n->in[r]))
			return 1;
	return n->broken ? 1 : n->host->ops->arm(n->host);
}

/* ---- ending ---- */

static bool is_idle(struct nccl *n)
{
	for (int r = 0; r < n->ranks; r++)
		if ((n->out[r] && !pd_nccl_connection_is_idle(n->out[r])) ||
		    (n->in[r] && !pd_nccl_connection_is_idle(n->in[r])))
			return false;
	return !n->loopback.halves;
}

static void leave(struct nccl *n)
{
	int64_t end_ns = pd_now_ns() + LEAVE_NS;

	for (struct nccl_comm *comm = n->comms; comm; comm = comm->next)
		pd_nccl_finalize(comm);
	for (struct nccl_comm *comm = n->comms; comm; comm = comm->next)
		pd_nccl_leave(comm, end_ns);
	pd_nccl_abort(n);
}

static void nccl_close(struct pd_transport *base)
{
	struct nccl *n = (struct nccl *)base;
	struct pd_error err;

	if (!n->broken && is_idle(n)) {
		leave(n);
	} else {
		pd_error_failed(&err, "rank %d: what is not finished is cancelled", n->rank);
		pd_nccl_give_up(n, &err);
	}
	pd_nccl_aborted(n);
	for (int r = 0; r < n->ranks; r++) {
		if (n->out[r])
			pd_nccl_connection_close(n->out[r]);
		if (n->in[r])
			pd_nccl_connection_close(n->in[r]);
		if (n->processes[r] >= 0)
			close(n->processes[r]);
	}
	pd_nccl_groups_close(n);
	pd_nccl_loopback_close(n);
	n->connector->cancel(n->host);  /* the host's transport still has receives into `words` */
	for (int r = 0; r < n->ranks; r++) {
		if (n->out[r])
			pd_nccl_connection_free(n->out[r]);
		if (n->in[r])
			pd_nccl_connection_free(n->in[r]);
	}
	pd_nccl_groups_free(n);
	free(n->processes);
	free(n->out);
	free(n->in);
	free(n);
}

static const struct pd_transport_ops nccl_ops = {
	.close = nccl_close,
	.send = nccl_send,
	.recv = nccl_recv,
	.progress = nccl_progress,
	.fd = nccl_fd,
	.arm = nccl_arm,
	.group = pd_nccl_group,
};

/* ---- set-up ---- */

/*
 * Each connection's stream gets a queue of the GPU to itself, while they last.  CUDA reads this once, when it is
 * called for the first time.
 */
void pd_nccl_first(void)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

void pd_nccl_environment(int rank, bool one_host, bool distinct)
{
	char name[32];

	/* variables that are set stay */
	if (one_host)
		setenv("NCCL_SOCKET_IFNAME", "lo", 0);
	/* the launcher watches the health of ranks: NCCL needs no thread for that */
	setenv("NCCL_RAS_ENABLE", "0", 0);
	if (!distinct)
		return;
	snprintf(name, sizeof(name), "pd-rank-%d", rank);
	setenv("NCCL_HOSTID", name, 0);
	setenv("NCCL_NET", "Socket", 0);
}

char *pd_nccl_ids(int rank, int ranks, const bool *peers, struct pd_error *err)
{
	char *ids;

	if (pd_nccl_can_abort(err) < 0)
		return NULL;
	ids = pd_calloc((size_t)ranks, PD_NCCL_ID);
	for (int r = 0; r < ranks; r++) {
		ncclUniqueId id;

		if (r == rank || !peers[r])
			continue;
		if (pd_nccl_id(&id, err) < 0) {
			free(ids);
			return NULL;
		}
		memcpy(ids + (size_t)r * PD_NCCL_ID, &id, sizeof(id));
	}
	return ids;
}

int pd_nccl_await(struct nccl *n, int peer, struct pd_event *ev, struct pd_error *err)
{
	int64_t end_ns = pd_now_ns() + n->limit_ns;

	while (!pd_event_done(ev)) {
		if (pd_now_ns() > end_ns) {
			pd_error_peer(err, peer, "rank %d: NCCL: no connection with rank %d "
				      "within %.1f s; --transport=staged does without", n->rank,
				      peer, (double)n->limit_ns / 1e9);
			return pd_nccl_give_up(n, err);
		}
		if (n->host->ops->progress(n->host) < 0 || look_at_processes(n) < 0) {
			*err = n->gate->err;
			return pd_nccl_give_up(n, err);
		}
		poll(NULL, 0, NAP_MS);
	}
	if (!pd_event_failed(ev))
		return 0;
	*err = n->gate->err;
	return -1;
}

int pd_nccl_try(struct nccl_comm *comm, const struct pd_call *call, struct pd_error *err)
{
	struct nccl *n = comm->owner;
	struct pd_event done;
	int status;

	pd_event_arm(&done);
	if (pd_submit_call(comm->stream, call, &done) != 0)
		return pd_error_failed(err, "rank %d: the device refused a call", n->rank);
	status = pd_nccl_await(n, comm->peer, &done, err);
	/* what the call uses may not be used after the return */
	if (status < 0) {
		pd_nccl_give_up(n, err);
		pd_nccl_aborted(n);
		pd_nccl_comm_close(comm);
	}
	return status;
}

int pd_nccl_join(struct nccl_comm *comm, struct pd_error *err)
{
	return pd_nccl_try(comm, &(struct pd_call){ .post = pd_nccl_comm_init,
						    .check = pd_nccl_comm_ready, .context = comm }, err);
}

/* Makes the communicator, and then sends a byte, so that NCCL connects. */
static int connect_connection(struct nccl_connection *connection, char *byte, struct pd_error *err)
{
	struct nccl_transfer first = { .connection = connection, .buf = byte, .bytes = 1 };
	const struct pd_call post = { .post = pd_nccl_post, .check = pd_nccl_check,
				      .context = &first };

	return pd_nccl_join(&connection->comm, err) < 0 ? -1
		: pd_nccl_try(&connection->comm, &post, err);
}

static int make_connection(struct nccl *n, const struct pd_nccl_config *config, int from, int to,
			   char *byte, struct pd_error *err)
{
	bool receives = to == n->rank;
	int peer = receives ? from : to;
	struct nccl_connection **at = receives ? &n->in[peer] : &n->out[peer];

	*at = pd_nccl_connection_new(n, peer, receives, config->ids[from] + (size_t)to * PD_NCCL_ID,
				     err);
	if (!*at || connect_connection(*at, byte, err) < 0)
		return -1;
	if (!receives || pd_nccl_connection_listen(*at) == 0)
		return 0;
	*err = n->gate->err;
	return -1;
}

/* Connects with all peers, pair by pair: by the lower rank, then the higher, as all ranks do. */
static int make_connections(struct nccl *n, const struct pd_nccl_config *config, char *byte,
			    struct pd_error *err)
{
	for (int low = 0; low <= n->rank; low++)
		for (int high = low + 1; high < n->ranks; high++) {
			int peer = low == n->rank ? high : low;

			if ((low != n->rank && high != n->rank) || !config->peers[peer])
				continue;
			if (make_connection(n, config, low, high, byte, err) < 0 ||
			    make_connection(n, config, high, low, byte, err) < 0)
				return -1;
		}
	return 0;
}

static void note_processes(struct nccl *n, const struct pd_nccl_config *config)
{
	for (int r = 0; r < n->ranks; r++) {
		bool other = r != n->rank && config->peers[r] && config->pids[r] > 0;

		/* an old kernel has no pidfd: the launcher notices a peer's end */
		n->processes[r] = other ? (int)syscall(SYS_pidfd_open, config->pids[r], 0) : -1;
	}
}

static int share_ctas(const struct pd_nccl_config *config)
{
	int connections = 0, each;

	for (int r = 0; r < config->ranks; r++)
		connections += r != config->rank && config->peers[r] ? 2 : 0;
	each = connections > 0 ? CTAS_ALL / connections : CTAS;
	return each > CTAS ? CTAS : each < 1 ? 1 : each;
}

struct pd_transport *pd_nccl_open(const struct pd_nccl_config *config, struct pd_error *err)
{
	struct nccl *n = pd_zalloc(sizeof(*n));
	char *byte;
	int status;

	n->base.ops = &nccl_ops;
	n->rank = config->rank;
	n->ranks = config->ranks;
	n->ctas = share_ctas(config);
	n->host = config->host->transport;
	n->connector = config->host->by->connector;
	n->device = config->device;
	n->gate = config->gate;
	n->limit_ns = config->limit_ns;
	n->out = pd_calloc((size_t)n->ranks, sizeof(struct nccl_connection *));
	n->in = pd_calloc((size_t)n->ranks, sizeof(struct nccl_connection *));
	n->processes = pd_calloc((size_t)n->ranks, sizeof(*n->processes));
	note_processes(n, config);
	byte = n->device->ops->memory.alloc(n->device, 1, err);
	status = byte ? make_connections(n, config, byte, err) : -1;
	if (status == 0 && config->peers[n->rank])
		status = pd_nccl_loopback_open(n, err);
	if (status == 0) {
		n->device->ops->memory.free(n->device, byte);
		return &n->base;
	}
	/* kernels end before the memory that they write is freed */
	pd_nccl_give_up(n, err);
	nccl_close(&n->base);
	if (byte)
		config->device->ops->memory.free(config->device, byte);
	return NULL;
}
