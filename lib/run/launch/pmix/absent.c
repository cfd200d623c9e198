/* SPDX-License-Identifier: Apache-2.0 */
/* The build has no PMIx. */
#include "run/launch/pmix/pmix.h"

#include <stdlib.h>

int pd_pmix_begin(struct pd_pmix_job *job, struct pd_error *err)
{
	if (!getenv("PMIX_NAMESPACE"))
		return 0;
	return pd_error_input(err, "started by a PMIx server (PMIX_NAMESPACE is set), and this build has"
			      " no PMIx: expected one configured with --with-pmix");
}

char *pd_pmix_hosts(void)
{
	return NULL;
}

int pd_pmix_tell(const char *text, struct pd_error *err)
{
	pd_bug("pmix: nobody to tell");
}

char *pd_pmix_hear(struct pd_error *err)
{
	pd_bug("pmix: nobody to hear");
}

int pd_pmix_put_address(const char *address, struct pd_error *err)
{
	pd_bug("pmix: nobody takes an address");
}

int pd_pmix_get_addresses(const int *ranks, int count, char **addresses, struct pd_error *err)
{
	pd_bug("pmix: nobody has addresses");
}

void pd_pmix_give_up(void)
{
}

void pd_pmix_end(void)
{
}
