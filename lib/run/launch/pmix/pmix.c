/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/pmix/pmix.h"

#include "base/mem.h"

#include <errno.h>
#include <pmix.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define INVITATION "pipedream.invitation"
#define ADDRESS "pipedream.address"
#define PATIENCE_S 60

static pmix_proc_t self;
static atomic_bool begun;

static int failed(struct pd_error *err, const char *what, pmix_status_t status)
{
	return pd_error_failed(err, "PMIx: %s: %s; without PMIX_NAMESPACE in the environment this "
			       "program runs on this machine alone", what, PMIx_Error_string(status));
}

/* Asks what the server has about the job, to be released; NULL: it does not say. */
static pmix_value_t *about_job(const char *key)
{
	pmix_proc_t job = self;
	pmix_value_t *value = NULL;

	job.rank = PMIX_RANK_WILDCARD;
	return PMIx_Get(&job, key, NULL, 0, &value) == PMIX_SUCCESS ? value : NULL;
}

/* Returns a number; 0: the server does not say. */
static int number_of(const char *key)
{
	pmix_value_t *value = about_job(key);
	int number = value && value->type == PMIX_UINT32 ? (int)value->data.uint32 : 0;

	if (value)
		PMIX_VALUE_RELEASE(value);
	return number;
}

char *pd_pmix_hosts(void)
{
	pmix_value_t *value = about_job(PMIX_NODE_LIST);
	char *names = value && value->type == PMIX_STRING ? pd_strdup(value->data.string) : NULL;

	if (value)
		PMIX_VALUE_RELEASE(value);
	return names;
}

/* The library's threads take no signals: those are for descriptors of this program's own. */
static pmix_status_t init(void)
{
	sigset_t all, before;
	pmix_status_t status;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	status = PMIx_Init(&self, NULL, 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	begun = status == PMIX_SUCCESS;
	return status;
}

int pd_pmix_begin(struct pd_pmix_job *job, struct pd_error *err)
{
	pmix_status_t status;

	if (!getenv("PMIX_NAMESPACE"))
		return 0;
	status = init();
	if (status != PMIX_SUCCESS)
		return failed(err, "the server that started this process does not answer", status);
	job->rank = (int)self.rank;
	job->size = number_of(PMIX_JOB_SIZE);
	job->one_host = number_of(PMIX_LOCAL_SIZE) == job->size;
	return job->size > 0 ? 1 : failed(err, "the server does not say how many processes it has "
					  "started", PMIX_ERR_NOT_FOUND);
}

/* ---- answers ---- */

/* The questions that the server has not answered; the library's thread takes the answers. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t one_came;
	int due;
	bool given_up;
} answers = { .lock = PTHREAD_MUTEX_INITIALIZER, .one_came = PTHREAD_COND_INITIALIZER };

struct answer {
	bool came;
	pmix_status_t status;
	char *text;
};

static void take_answer(struct answer *answer, pmix_status_t status, const char *text)
{
	pthread_mutex_lock(&answers.lock);
	answer->came = true;
	answer->status = status;
	answer->text = text ? pd_strdup(text) : NULL;
	answers.due--;
	pthread_cond_signal(&answers.one_came);
	pthread_mutex_unlock(&answers.lock);
}

static void expect_answer(void)
{
	pthread_mutex_lock(&answers.lock);
	answers.due++;
	pthread_mutex_unlock(&answers.lock);
}

/* The server's own limits of time are without effect where a process is gone. */
static void wait_for_answers(void)
{
	struct timespec until;
	int late = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&answers.lock);
	while (answers.due > 0 && !answers.given_up && late != ETIMEDOUT)
		late = pthread_cond_clockwait(&answers.one_came, &answers.lock, CLOCK_MONOTONIC, &until);
	pthread_mutex_unlock(&answers.lock);
}

/* Its status, and its text, which the caller frees; one that has not come stays to be written to. */
static pmix_status_t end_answer(struct answer *answer, char **text_p)
{
	pmix_status_t status = PMIX_ERR_TIMEOUT;
	bool came;

	pthread_mutex_lock(&answers.lock);
	came = answer->came;
	pthread_mutex_unlock(&answers.lock);
	if (!came)
		return status;
	status = answer->status;
	*text_p = answer->text;
	free(answer);
	return status;
}

static void on_value(pmix_status_t status, pmix_value_t *value, void *answer)
{
	bool text = status == PMIX_SUCCESS && value && value->type == PMIX_STRING;

	take_answer(answer, status == PMIX_SUCCESS && !text ? PMIX_ERR_TYPE_MISMATCH : status,
		    text ? value->data.string : NULL);
}

/* Asks for a text of a process. */
static struct answer *ask(int rank, const char *key)
{
	struct answer *answer = pd_zalloc(sizeof(*answer));
	pmix_proc_t process = self;
	pmix_status_t status;

	process.rank = (pmix_rank_t)rank;
	expect_answer();
	status = PMIx_Get_nb(&process, key, NULL, 0, on_value, answer);
	if (status != PMIX_SUCCESS)
		take_answer(answer, status, NULL);
	return answer;
}

/* ---- texts of processes ---- */

static int put(const char *key, const char *text, struct pd_error *err)
{
	pmix_value_t value = { .type = PMIX_STRING, .data.string = (char *)text };
	pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key, &value);

	if (status == PMIX_SUCCESS)
		status = PMIx_Commit();
	return status == PMIX_SUCCESS ? 0 : failed(err, "the server takes no message", status);
}

static void on_fence(pmix_status_t status, void *answer)
{
	take_answer(answer, status, NULL);
}

/* A barrier that brings along what has been put: one that does not is no barrier under Slurm. */
static int meet_all(struct pd_error *err)
{
	struct answer *answer = pd_zalloc(sizeof(*answer));
	static pmix_info_t collect;
	pmix_status_t status;
	char *none;

	PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, NULL, PMIX_BOOL);
	collect.value.data.flag = true;
	expect_answer();
	status = PMIx_Fence_nb(NULL, 0, &collect, 1, on_fence, answer);
	if (status != PMIX_SUCCESS)
		take_answer(answer, status == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : status, NULL);
	wait_for_answers();
	status = end_answer(answer, &none);
	return status == PMIX_SUCCESS ? 0 : failed(err, "waited for the other processes", status);
}

int pd_pmix_tell(const char *text, struct pd_error *err)
{
	return put(INVITATION, text, err) < 0 ? -1 : meet_all(err);
}

char *pd_pmix_hear(struct pd_error *err)
{
	pmix_status_t status;
	struct answer *answer;
	char *text = NULL;

	if (meet_all(err) < 0)
		return NULL;
	answer = ask(0, INVITATION);
	wait_for_answers();
	status = end_answer(answer, &text);
	if (status != PMIX_SUCCESS)
		failed(err, "the server has no message of the first process", status);
	return text;
}

int pd_pmix_put_address(const char *address, struct pd_error *err)
{
	return put(ADDRESS, address, err);
}

int pd_pmix_get_addresses(const int *ranks, int count, char **addresses, struct pd_error *err)
{
	struct answer **asked = pd_calloc((size_t)count, sizeof(struct answer *));
	int failed_at = -1;
	pmix_status_t status, first = PMIX_SUCCESS;

	for (int i = 0; i < count; i++)
		asked[i] = ask(ranks[i], ADDRESS);
	wait_for_answers();
	for (int i = 0; i < count; i++) {
		status = end_answer(asked[i], &addresses[i]);
		if (status != PMIX_SUCCESS && failed_at < 0) {
			failed_at = i;
			first = status;
		}
	}
	free(asked);
	return failed_at < 0 ? 0 : pd_error_peer(err, ranks[failed_at], "PMIx: the address of rank %d: %s",
						 ranks[failed_at], PMIx_Error_string(first));
}

void pd_pmix_give_up(void)
{
	pthread_mutex_lock(&answers.lock);
	answers.given_up = true;
	pthread_cond_signal(&answers.one_came);
	pthread_mutex_unlock(&answers.lock);
}

void pd_pmix_end(void)
{
	if (atomic_exchange(&begun, false))
		PMIx_Finalize(NULL, 0);
}
