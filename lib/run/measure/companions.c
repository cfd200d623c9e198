/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/companions.h"

#include "base/mem.h"
#include "base/shared_memory.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct seat {
	sem_t go;                       /* the one timed has come, and all others */
	struct pd_shared_place shown;
};

/* Memory that all of them see. */
struct meeting {
	atomic_bool called;
	atomic_bool unmapped;           /* somebody could not map what another has shown */
	sem_t here;                     /* posted once by each that has come, but the one timed */
	struct seat seats[];            /* by number */
};

struct pd_companions {
	int count, me;                  /* me: 0, the one that is timed, or 1 to count */
	int members;                    /* all, when they have been started */
	pid_t *pids;
	struct meeting *meeting;
	size_t meeting_bytes;
};

void pd_measure_pin(int worker, int threads)
{
	cpu_set_t all, mine;
	int first = worker * threads, n = 0;

	CPU_ZERO(&mine);
	if (sched_getaffinity(0, sizeof(all), &all) < 0)
		return;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &all))
			continue;
		if (n >= first && n < first + threads)
			CPU_SET(i, &mine);
		n++;
	}
	sched_setaffinity(0, sizeof(mine), &mine);
}

/* Reports that the process cannot run beside the one that is timed. */
static void out_of_memory(size_t bytes)
{
	(void)bytes;
	_exit(PD_EXIT_FAILED);
}

static int make_meeting(struct pd_companions *companions, int count, struct pd_error *err)
{
	struct meeting *meeting;

	companions->members = count + 1;
	companions->meeting_bytes = sizeof(*meeting) + (size_t)companions->members * sizeof(struct seat);
	meeting = mmap(NULL, companions->meeting_bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (meeting == MAP_FAILED)
		return pd_error_failed(err, "mmap: %s", strerror(errno));
	sem_init(&meeting->here, 1, 0);
	for (int i = 0; i < companions->members; i++)
		sem_init(&meeting->seats[i].go, 1, 0);
	companions->meeting = meeting;
	return 0;
}

static int ended_by_itself(struct pd_error *err)
{
	return pd_error_failed(err, "a worker beside the one that was timed has ended by itself: "
			       "out of memory, perhaps");
}

static bool all_live(const struct pd_companions *companions)
{
	for (int i = 0; i < companions->count; i++) {
		siginfo_t info = { .si_pid = 0 };

		waitid(P_PID, (id_t)companions->pids[i], &info, WEXITED | WNOHANG | WNOWAIT);
		if (info.si_pid)
			return false;
	}
	return true;
}

/* Waits for one more; nobody knows how long a step takes, so only the end of a process ends this. */
static int wait_here(const struct pd_companions *companions, struct pd_error *err)
{
	struct timespec until;

	while (sem_trywait(&companions->meeting->here) < 0) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		if (sem_timedwait(&companions->meeting->here, &until) == 0)
			break;
		if (!all_live(companions))
			return ended_by_itself(err);
	}
	return 0;
}

int pd_companions_meet(struct pd_companions *companions, struct pd_error *err)
{
	struct meeting *meeting = companions->meeting;

	if (companions->me > 0) {
		sem_post(&meeting->here);
		while (sem_wait(&meeting->seats[companions->me].go) < 0)
			;
		return 0;
	}
	for (int i = 0; i < companions->count; i++)
		if (wait_here(companions, err) < 0)
			return -1;
	/* Whoever goes on now comes back here before it looks at this again. */
	meeting->called = false;
	for (int i = 0; i < companions->count; i++)
		sem_post(&meeting->seats[i + 1].go);
	return 0;
}

int pd_companions_members(const struct pd_companions *companions, int *me_p)
{
	*me_p = companions->me;
	return companions->members;
}

void pd_companions_show(struct pd_companions *companions, const void *shared)
{
	companions->meeting->seats[companions->me].shown = pd_shared_place_of(shared);
}

void pd_companions_map(struct pd_companions *companions, size_t begin, size_t bytes, float **parts)
{
	for (int i = 0; i < companions->members; i++) {
		struct pd_shared_place place = companions->meeting->seats[i].shown;

		place.offset += begin;
		parts[i] = place.pid ? pd_shared_map(&place, bytes) : NULL;
		if (!parts[i])
			companions->meeting->unmapped = true;
	}
}

void pd_companions_unmap(const struct pd_companions *companions, size_t bytes, float **parts)
{
	for (int i = 0; i < companions->members; i++)
		if (parts[i])
			pd_shared_unmap(parts[i], bytes);
}

bool pd_companions_mapped(const struct pd_companions *companions)
{
	return !companions->meeting->unmapped;
}

int pd_companions_call(struct pd_companions *companions, struct pd_error *err)
{
	companions->meeting->called = true;
	return pd_companions_meet(companions, err);
}

bool pd_companions_called(const struct pd_companions *companions)
{
	return companions->meeting->called;
}

/* Takes steps until it is killed by the process that started it. */
static void neighbour(const struct pd_model *model, const struct pd_measure_options *options,
		      struct pd_companions *companions, pid_t parent)
{
	struct pd_measure_options endless = *options;
	struct pd_error err;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(PD_EXIT_FAILED);
	pd_mem_on_end(out_of_memory);
	pd_measure_pin(companions->me, options->threads);
	endless.endless = true;
	endless.companions = companions;
	endless.progress = NULL;
	pd_measure_layers(model, &endless, &err);
	_exit(PD_EXIT_FAILED);
}

struct pd_companions *pd_companions_start(const struct pd_model *model,
					  const struct pd_measure_options *options, int count,
					  struct pd_error *err)
{
	struct pd_companions *companions = pd_zalloc(sizeof(*companions));
	struct pd_error ignored;
	pid_t parent = getpid();

	if (make_meeting(companions, count, err) < 0) {
		free(companions);
		return NULL;
	}
	companions->pids = pd_calloc((size_t)count, sizeof(*companions->pids));
	while (companions->count < count) {
		pid_t pid = fork();

		if (pid == 0) {
			companions->me = companions->count + 1;
			neighbour(model, options, companions, parent);
		}
		if (pid < 0) {
			pd_error_failed(err, "fork: %s", strerror(errno));
			pd_companions_end(companions, &ignored);
			return NULL;
		}
		companions->pids[companions->count++] = pid;
	}
	return companions;
}

int pd_companions_end(struct pd_companions *companions, struct pd_error *err)
{
	int result = 0, status;

	for (int i = 0; i < companions->count; i++) {
		kill(companions->pids[i], SIGKILL);
		while (waitpid(companions->pids[i], &status, 0) < 0 && errno == EINTR)
			;
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			result = ended_by_itself(err);
	}
	munmap(companions->meeting, companions->meeting_bytes);
	free(companions->pids);
	free(companions);
	return result;
}
