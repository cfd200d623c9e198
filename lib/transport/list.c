/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/provider.h"

#include <string.h>

const struct pd_transport_provider *const pd_providers[] = {
	&pd_provider_nccl,
	&pd_provider_staged,
	&pd_provider_ucx,
	&pd_provider_tcp,
	NULL
};

const char *const pd_provider_names[] = { "auto", "nccl", "staged", "tcp", "ucx", NULL };

bool pd_provider_of_devices(const char *name)
{
	int i = 0;

	while (pd_providers[i] && strcmp(pd_providers[i]->name, name) != 0)
		i++;
	return pd_providers[i] && pd_providers[i]->of_devices;
}
