/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a PMIx server, such as mpirun's or srun's, says to the processes that it has started; one
 * message of the first of them to all; and the address of each one's rank, for those who ask for it.
 * In a program that was built without PMIx there is no server.
 */
#pragma once

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
/* Returns the names of the hosts of all, with commas between them, to be freed; NULL: the server does not say. */
char *pd_pmix_hosts(void);
/* In the first process: gives the others a text.  Waits for all of them, a minute at most. */
int pd_pmix_tell(const char *text, struct pd_error *err);
/* In the others: that text, to be freed, or NULL.  Waits as long. */
char *pd_pmix_hear(struct pd_error *err);
/*
 * Leaves the address of this process's rank with the server of its host, where it stays after the
 * process has ended its use of that server.  Once in its life.
 */
int pd_pmix_put_address(const char *address, struct pd_error *err);
/*
 * Fetches the addresses of some ranks from the servers of their hosts, each to be freed.  All must have
 * been put.  Waits for a minute at most; where one does not come, its rank is the peer of the error.
 */
int pd_pmix_get_addresses(const int *ranks, int count, char **addresses, struct pd_error *err);
/* Whoever waits for an answer, in another thread, does so no longer. */
void pd_pmix_give_up(void);
/* Ends the use of the PMIx server, if it has begun. */
void pd_pmix_end(void);
