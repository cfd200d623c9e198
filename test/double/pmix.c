/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that is preloaded between pd-run and PMIx.  For each address that a process puts or asks for
 * it adds a line to the file PD_PMIX_NOTES: "put 2", or "get 2 1" if process 2 asks for that of rank 1.
 * In the process whose rank is PD_PMIX_VICTIM it then kills, after the call that PD_PMIX_AFTER names
 * ("put" or "get"), the rank's process, which is its child.  Process PD_PMIX_DEAF never gets an address
 * that it asks for.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pmix.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char *text)
{
	int file = open(getenv("PD_PMIX_NOTES"), O_WRONLY | O_CREAT | O_APPEND, 0666);

	if (file < 0 || write(file, text, strlen(text)) < 0)
		abort();
	close(file);
}

static void kill_children(void)
{
	char name[64];
	FILE *file;
	int child;

	snprintf(name, sizeof(name), "/proc/self/task/%d/children", (int)getpid());
	file = fopen(name, "r");
	while (file && fscanf(file, "%d", &child) == 1)
		kill(child, SIGKILL);
	if (file)
		fclose(file);
}

static void after(const char *call)
{
	const char *victim = getenv("PD_PMIX_VICTIM"), *when = getenv("PD_PMIX_AFTER");

	if (victim && when && strcmp(victim, getenv("PMIX_RANK")) == 0 && strcmp(when, call) == 0)
		kill_children();
}

static int is_deaf(void)
{
	const char *deaf = getenv("PD_PMIX_DEAF");

	return deaf && strcmp(deaf, getenv("PMIX_RANK")) == 0;
}

static int is_address(const char *key)
{
	return strcmp(key, "pipedream.address") == 0;
}

pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t *value)
{
	pmix_status_t (*put)(pmix_scope_t, const char [], pmix_value_t *) = dlsym(RTLD_NEXT, "PMIx_Put");
	pmix_status_t status = put(scope, key, value);
	char line[64];

	if (is_address(key)) {
		snprintf(line, sizeof(line), "put %s\n", getenv("PMIX_RANK"));
		note(line);
		after("put");
	}
	return status;
}

pmix_status_t PMIx_Get_nb(const pmix_proc_t *process, const char key[], const pmix_info_t *info,
			  size_t count, pmix_value_cbfunc_t take, void *context)
{
	pmix_status_t (*get)(const pmix_proc_t *, const char [], const pmix_info_t *, size_t,
			     pmix_value_cbfunc_t, void *) = dlsym(RTLD_NEXT, "PMIx_Get_nb");
	char line[64];

	if (is_address(key)) {
		snprintf(line, sizeof(line), "get %s %u\n", getenv("PMIX_RANK"), process->rank);
		note(line);
		after("get");
		if (is_deaf())
			return PMIX_SUCCESS;
	}
	return get(process, key, info, count, take, context);
}
