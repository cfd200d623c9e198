/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators are aborted together.
 *
 * ncclCommAbort tells the kernels of its communicator to end, and then frees memory, for which CUDA
 * waits until every kernel on the GPU has ended.  Kernels of other connections that wait for a lost
 * peer end only when their own communicators are aborted.  So calls one after the other would never
 * return from the first.  Between ncclGroupStart and ncclGroupEnd every call only tells its kernels
 * to end, and the end of the group frees the memory.
 *
 * The end of the group still blocks until the kernels have ended.  So a thread of its own does all
 * this, while the thread that owns the transport goes on, and can tell why it failed.
 */
#include "run/transport/nccl/connection.h"

#include "base/mem.h"

#include <stdlib.h>

#define VERSION_LEAST 22200             /* a group takes ncclCommAbort since this version */

int pd_nccl_can_abort(struct pd_error *err)
{
	int version = 0;

	if (ncclGetVersion(&version) == ncclSuccess && version >= VERSION_LEAST)
		return 0;
	/* until 2.8 version numbers had four digits (2800), since 2.9 five (20900) */
	return pd_error_failed(err, "NCCL %d.%d is too old: from 2.22 on several connections can be "
			       "ended together", version / (version < 10000 ? 1000 : 10000),
			       version / 100 % (version < 10000 ? 10 : 100));
}

static void *abort_main(void *argument)
{
	struct nccl *n = argument;

	ncclGroupStart();
	for (int i = 0; i < n->abort.count; i++)
		ncclCommAbort(n->abort.comms[i]);
	ncclGroupEnd();
	return NULL;
}

void pd_nccl_abort(struct nccl *n)
{
	size_t count = 0;

	if (n->abort.begun)
		return;
	n->abort.begun = true;
	for (struct nccl_comm *comm = n->comms; comm; comm = comm->next)
		count++;
	n->abort.comms = pd_calloc(count + 1, sizeof(*n->abort.comms));
	for (struct nccl_comm *comm = n->comms; comm; comm = comm->next) {
		n->abort.comms[n->abort.count] = pd_nccl_take(comm);
		n->abort.count += n->abort.comms[n->abort.count] != NULL;
	}
	if (n->abort.count == 0)
		return;
	n->abort.threaded = pthread_create(&n->abort.thread, NULL, abort_main, n) == 0;
	if (!n->abort.threaded)
		abort_main(n);
}

void pd_nccl_aborted(struct nccl *n)
{
	if (n->abort.threaded)
		pthread_join(n->abort.thread, NULL);
	n->abort.threaded = false;
	free(n->abort.comms);
	n->abort.comms = NULL;
}
