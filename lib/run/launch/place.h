/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the first process and the agents of a run on several hosts. */
#pragma once

#include "run/launch/pmix/pmix.h"

#include <jansson.h>

/* All that an agent does.  Returns its exit status, or -1. */
int pd_hosts_agent(struct pd_error *err);
/* After pd_hosts_begin(). */
const struct pd_pmix_job *pd_hosts_job(void);
/* Returns a new message that says where this process is: "place", host, boot, processors, devices. */
json_t *pd_hosts_place(void);
