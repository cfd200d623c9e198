/* SPDX-License-Identifier: Apache-2.0 */
/* A build without NCCL has these functions instead. */
#include "run/transport/nccl/nccl.h"

void pd_nccl_first(void)
{
}

void pd_nccl_environment(int rank, bool one_host, bool distinct)
{
}

char *pd_nccl_ids(int rank, int ranks, const bool *peers, struct pd_error *err)
{
	pd_error_failed(err, "this program was built without NCCL");
	return NULL;
}

struct pd_transport *pd_nccl_open(const struct pd_nccl_config *config, struct pd_error *err)
{
	pd_error_failed(err, "this program was built without NCCL");
	return NULL;
}
