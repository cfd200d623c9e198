/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a PMIx server, such as mpirun's or srun's, says to the processes that it has started; and one
 * message of the first of them to all.  In a program that was built without PMIx there is no server.
 */
#ifndef PD_LAUNCH_PMIX_PMIX_H
#define PD_LAUNCH_PMIX_PMIX_H

#include "base/error.h"

#include <stdbool.h>

struct pd_pmix_job {
	int rank, size;                 /* this process among those started together */
	bool one_host;                  /* all of them are on this host */
};

/*
 * Asks the server: 1: there is one, and *job is filled; 0: there is none.  Environment variables of
 * servers tell that there is one.
 */
int pd_pmix_begin(struct pd_pmix_job *job, struct pd_error *err);
/* In the first process: gives the others a text.  Waits for all of them, a minute at most. */
int pd_pmix_tell(const char *text, struct pd_error *err);
/* In the others: that text, to be freed, or NULL.  Waits as long. */
char *pd_pmix_hear(struct pd_error *err);
/* Ends the use of the PMIx server. */
void pd_pmix_end(void);

#endif
