/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/provider.h"

const struct pd_transport_provider *const pd_providers[] = {
	&pd_provider_nccl,
	&pd_provider_staged,
	&pd_provider_ucx,
	NULL
};

const char *const pd_provider_names[] = { "auto", "nccl", "staged", NULL };
