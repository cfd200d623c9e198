/* SPDX-License-Identifier: Apache-2.0 */
#include "measure/beside.h"

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

struct pd_beside {
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

static int make_meeting(struct pd_beside *beside, int count, struct pd_error *err)
{
	struct meeting *meeting;

	beside->members = count + 1;
	beside->meeting_bytes = sizeof(*meeting) + (size_t)beside->members * sizeof(struct seat);
	meeting = mmap(NULL, beside->meeting_bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (meeting == MAP_FAILED)
		return pd_error_failed(err, "mmap: %s", strerror(errno));
	sem_init(&meeting->here, 1, 0);
	for (int i = 0; i < beside->members; i++)
		sem_init(&meeting->seats[i].go, 1, 0);
	beside->meeting = meeting;
	return 0;
}

static int ended_by_itself(struct pd_error *err)
{
	return pd_error_failed(err, "a worker beside the one that was timed has ended by itself: "
			       "out of memory, perhaps");
}

static bool all_live(const struct pd_beside *beside)
{
	for (int i = 0; i < beside->count; i++) {
		siginfo_t info = { .si_pid = 0 };

		waitid(P_PID, (id_t)beside->pids[i], &info, WEXITED | WNOHANG | WNOWAIT);
		if (info.si_pid)
			return false;
	}
	return true;
}

/* Waits for one more; nobody knows how long a step takes, so only the end of a process ends this. */
static int wait_here(const struct pd_beside *beside, struct pd_error *err)
{
	struct timespec until;

	while (sem_trywait(&beside->meeting->here) < 0) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		if (sem_timedwait(&beside->meeting->here, &until) == 0)
			break;
		if (!all_live(beside))
			return ended_by_itself(err);
	}
	return 0;
}

int pd_beside_meet(struct pd_beside *beside, struct pd_error *err)
{
	struct meeting *meeting = beside->meeting;

	if (beside->me > 0) {
		sem_post(&meeting->here);
		while (sem_wait(&meeting->seats[beside->me].go) < 0)
			;
		return 0;
	}
	for (int i = 0; i < beside->count; i++)
		if (wait_here(beside, err) < 0)
			return -1;
	/* Whoever goes on now comes back here before it looks at this again. */
	meeting->called = false;
	for (int i = 0; i < beside->count; i++)
		sem_post(&meeting->seats[i + 1].go);
	return 0;
}

int pd_beside_members(const struct pd_beside *beside, int *me_p)
{
	*me_p = beside->me;
	return beside->members;
}

void pd_beside_show(struct pd_beside *beside, const void *shared)
{
	beside->meeting->seats[beside->me].shown = pd_shared_place_of(shared);
}

void pd_beside_map(struct pd_beside *beside, size_t begin, size_t bytes, float **parts)
{
	for (int i = 0; i < beside->members; i++) {
		struct pd_shared_place place = beside->meeting->seats[i].shown;

		place.offset += begin;
		parts[i] = place.pid ? pd_shared_map(&place, bytes) : NULL;
		if (!parts[i])
			beside->meeting->unmapped = true;
	}
}

void pd_beside_unmap(const struct pd_beside *beside, size_t bytes, float **parts)
{
	for (int i = 0; i < beside->members; i++)
		if (parts[i])
			pd_shared_unmap(parts[i], bytes);
}

bool pd_beside_mapped(const struct pd_beside *beside)
{
	return !beside->meeting->unmapped;
}

int pd_beside_call(struct pd_beside *beside, struct pd_error *err)
{
	beside->meeting->called = true;
	return pd_beside_meet(beside, err);
}

bool pd_beside_called(const struct pd_beside *beside)
{
	return beside->meeting->called;
}

/* Takes steps until it is killed by the process that started it. */
static void neighbour(const struct pd_model *model, const struct pd_measure_options *options,
		      struct pd_beside *beside, pid_t parent)
{
	struct pd_measure_options endless = *options;
	struct pd_error err;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(PD_EXIT_FAILED);
	pd_mem_on_end(out_of_memory);
	pd_measure_pin(beside->me, options->threads);
	endless.endless = true;
	endless.beside = beside;
	endless.progress = NULL;
	pd_measure_layers(model, &endless, &err);
	_exit(PD_EXIT_FAILED);
}

struct pd_beside *pd_beside_start(const struct pd_model *model,
				  const struct pd_measure_options *options, int count,
				  struct pd_error *err)
{
	struct pd_beside *beside = pd_zalloc(sizeof(*beside));
	struct pd_error ignored;
	pid_t parent = getpid();

	if (make_meeting(beside, count, err) < 0) {
		free(beside);
		return NULL;
	}
	beside->pids = pd_calloc((size_t)count, sizeof(*beside->pids));
	while (beside->count < count) {
		pid_t pid = fork();

		if (pid == 0) {
			beside->me = beside->count + 1;
			neighbour(model, options, beside, parent);
		}
		if (pid < 0) {
			pd_error_failed(err, "fork: %s", strerror(errno));
			pd_beside_end(beside, &ignored);
			return NULL;
		}
		beside->pids[beside->count++] = pid;
	}
	return beside;
}

int pd_beside_end(struct pd_beside *beside, struct pd_error *err)
{
	int result = 0, status;

	for (int i = 0; i < beside->count; i++) {
		kill(beside->pids[i], SIGKILL);
		while (waitpid(beside->pids[i], &status, 0) < 0 && errno == EINTR)
			;
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			result = ended_by_itself(err);
	}
	munmap(beside->meeting, beside->meeting_bytes);
	free(beside->pids);
	free(beside);
	return result;
}
