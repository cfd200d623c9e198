/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/provider.h"

#include <string.h>

const struct pd_transport_provider *const pd_providers[] = {
#define PROVIDER(name) &pd_provider_##name,
#include "run/transport/provider.def"
#undef PROVIDER
	NULL
};

const char *const pd_provider_names[] = {
	"auto",
#define PROVIDER(name) #name,
#include "run/transport/provider.def"
#undef PROVIDER
	NULL
};

bool pd_provider_of_devices(const char *name)
{
	int i = 0;

	while (pd_providers[i] && strcmp(pd_providers[i]->name, name) != 0)
		i++;
	return pd_providers[i] && !pd_providers[i]->connector;
}
