/* SPDX-License-Identifier: Apache-2.0 */
/* What the first process and the agents of a run on several hosts have in common. */
#ifndef PD_LAUNCH_PLACE_H
#define PD_LAUNCH_PLACE_H

#include "launch/pmix/pmix.h"

#include <jansson.h>

/* After pd_hosts_begin(). */
const struct pd_pmix_job *pd_hosts_job(void);
/* Where this process is: {"event": "place", host, boot, processors}; a new reference. */
json_t *pd_hosts_place(void);

#endif
