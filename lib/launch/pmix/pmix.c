/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/pmix/pmix.h"

#include "base/mem.h"

#include <errno.h>
#include <pmix.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY "pipedream"
#define PATIENCE_S 60

static pmix_proc_t self;

static int failed(struct pd_error *err, const char *what, pmix_status_t status)
{
	return pd_error_failed(err, "PMIx: %s: %s; without PMIX_NAMESPACE in the environment this "
			       "program runs on this machine alone", what, PMIx_Error_string(status));
}

/* A number that the server has about the job; 0: it does not say. */
static int number_of(const char *key)
{
	pmix_proc_t job = self;
	pmix_value_t *value = NULL;
	int number = 0;

	job.rank = PMIX_RANK_WILDCARD;
	if (PMIx_Get(&job, key, NULL, 0, &value) != PMIX_SUCCESS)
		return 0;
	if (value->type == PMIX_UINT32)
		number = (int)value->data.uint32;
	PMIX_VALUE_RELEASE(value);
	return number;
}

int pd_pmix_begin(struct pd_pmix_job *job, struct pd_error *err)
{
	pmix_status_t status;

	if (!getenv("PMIX_NAMESPACE"))
		return 0;
	status = PMIx_Init(&self, NULL, 0);
	if (status != PMIX_SUCCESS)
		return failed(err, "the server that started this process does not answer", status);
	job->rank = (int)self.rank;
	job->size = number_of(PMIX_JOB_SIZE);
	job->one_host = number_of(PMIX_LOCAL_SIZE) == job->size;
	return job->size > 0 ? 1 : failed(err, "the server does not say how many processes it has "
					  "started", PMIX_ERR_NOT_FOUND);
}

/* ---- a barrier that brings along what has been put ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
	pmix_status_t status;
} fence = { .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER };

static void on_fence(pmix_status_t status, void *context)
{
	pthread_mutex_lock(&fence.lock);
	fence.done = true;
	fence.status = status;
	pthread_cond_signal(&fence.ended);
	pthread_mutex_unlock(&fence.lock);
}

/*
 * One that does not collect is no barrier under Slurm; and the server's own limit of time is without
 * effect where a process is gone.
 */
static int meet_all(struct pd_error *err)
{
	static pmix_info_t collect;
	struct timespec until;
	pmix_status_t status;
	int late = 0;

	PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, NULL, PMIX_BOOL);
	collect.value.data.flag = true;
	status = PMIx_Fence_nb(NULL, 0, &collect, 1, on_fence, NULL);
	if (status == PMIX_OPERATION_SUCCEEDED)
		return 0;
	if (status != PMIX_SUCCESS)
		return failed(err, "cannot meet the other processes", status);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&fence.lock);
	while (!fence.done && late != ETIMEDOUT)
		late = pthread_cond_timedwait(&fence.ended, &fence.lock, &until);
	status = fence.done ? fence.status : PMIX_ERR_TIMEOUT;
	pthread_mutex_unlock(&fence.lock);
	return status == PMIX_SUCCESS ? 0 : failed(err, "waited for the other processes", status);
}

int pd_pmix_tell(const char *text, struct pd_error *err)
{
	pmix_value_t value = { .type = PMIX_STRING, .data.string = (char *)text };
	pmix_status_t status = PMIx_Put(PMIX_GLOBAL, KEY, &value);

	if (status == PMIX_SUCCESS)
		status = PMIx_Commit();
	return status == PMIX_SUCCESS ? meet_all(err)
				      : failed(err, "the server takes no message", status);
}

char *pd_pmix_hear(struct pd_error *err)
{
	pmix_proc_t first = self;
	pmix_value_t *value = NULL;
	pmix_status_t status;
	char *text = NULL;

	if (meet_all(err) < 0)
		return NULL;
	first.rank = 0;
	status = PMIx_Get(&first, KEY, NULL, 0, &value);
	if (status == PMIX_SUCCESS && value->type == PMIX_STRING)
		text = pd_strdup(value->data.string);
	else
		failed(err, "the server has no message of the first process", status);
	if (value)
		PMIX_VALUE_RELEASE(value);
	return text;
}

void pd_pmix_end(void)
{
	PMIx_Finalize(NULL, 0);
}
