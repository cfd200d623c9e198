/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators among threads, as strict as those of the real library may be: calls are matched by
 * order alone, all sides are needed for anything to happen, a lost side is not noticed, no call may begin
 * while another is in progress, and calls that do not match are an error (the real library hangs).
 * With no GPU there is no stream: the work of a call is done when it is no longer in progress.
 *
 * An abort ends when no transfer is in progress on its GPU any more, except for those of communicators
 * that are being aborted, too.  If that takes longer than STUCK_MS, the abort is counted as stuck (the
 * real one would never return) and goes on.
 */
#include "nccl.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STUCK_MS 3000

#define MOST 8

enum doing { NOTHING, JOINING, SENDING, RECEIVING, SUMMING };

struct ncclComm {
	struct ncclComm *next;          /* the next in `all` */
	struct room *room;
	int rank, device;
	bool aborting;
	enum doing doing;
	ncclResult_t status;
	void *buf;
	size_t bytes;
};

struct room {
	struct room *next;
	int id;
	struct ncclComm *sides[MOST];
	int size, joined;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct room *rooms;
static struct ncclComm *all;
static int ids, living, stuck, slow_ms, version = 22809;
static bool lost;
static size_t largest;                   /* bytes of a sum */
static __thread int device, depth;
static __thread ncclComm_t *group;      /* communicators to be aborted when the group ends */
static __thread int group_count;

void double_nccl_use_device(int number)
{
	device = number;
}

int double_nccl_stuck(void)
{
	return stuck;
}

void double_nccl_slow_aborts(int ms)
{
	slow_ms = ms;
}

void double_nccl_say_version(int number)
{
	version = number;
}

int double_nccl_living(void)
{
	return living;
}

void double_nccl_lose_all(void)
{
	pthread_mutex_lock(&lock);
	lost = true;
	pthread_mutex_unlock(&lock);
}

size_t double_nccl_largest_sum(void)
{
	size_t floats;

	pthread_mutex_lock(&lock);
	floats = largest / sizeof(float);
	pthread_mutex_unlock(&lock);
	return floats;
}

void double_nccl_reset(void)
{
	lost = false;
	largest = 0;
	stuck = slow_ms = 0;
	version = 22809;
	while (rooms) {
		struct room *room = rooms;

		rooms = room->next;
		free(room);
	}
}

ncclResult_t ncclGetVersion(int *number)
{
	*number = version;
	return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	memset(id, 0, sizeof(*id));
	pthread_mutex_lock(&lock);
	snprintf(id->internal, sizeof(id->internal), "%d", ++ids);
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}

static struct room *room_of(int id)
{
	struct room *room = rooms;

	while (room && room->id != id)
		room = room->next;
	if (!room) {
		room = calloc(1, sizeof(*room));
		room->id = id;
		room->next = rooms;
		rooms = room;
	}
	return room;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	int number = atoi(id.internal);
	struct room *room;

	if (ranks < 2 || ranks > MOST || rank < 0 || rank >= ranks || number < 1 || config->blocking != 0 ||
	    config->minCTAs != 1 || config->maxCTAs < 1)
		return ncclInvalidArgument;
	pthread_mutex_lock(&lock);
	room = room_of(number);
	room->size = ranks;
	*comm = calloc(1, sizeof(**comm));
	**comm = (struct ncclComm){ .room = room, .rank = rank, .device = device,
				    .doing = JOINING, .next = all,
				    .status = room->sides[rank] ? ncclInvalidUsage : ncclInProgress };
	all = *comm;
	room->sides[rank] = *comm;
	room->joined++;
	living++;
	pthread_mutex_unlock(&lock);
	return ncclInProgress;
}

static void finish(struct ncclComm *comm, ncclResult_t status)
{
	comm->doing = NOTHING;
	comm->status = status;
}

/* Does a transfer that both sides have begun, or fails both if they do not match. */
static void match_calls(struct ncclComm *a, struct ncclComm *b)
{
	bool fits = a->bytes == b->bytes && ((a->doing == SENDING && b->doing == RECEIVING) ||
					     (a->doing == RECEIVING && b->doing == SENDING));
	struct ncclComm *to = a->doing == RECEIVING ? a : b, *from = to == a ? b : a;

	if (fits)
		memcpy(to->buf, from->buf, to->bytes);
	finish(a, fits ? ncclSuccess : ncclInternalError);
	finish(b, fits ? ncclSuccess : ncclInternalError);
}

/* Does a sum that all sides have begun, added up from the last side on, or fails all on other sizes. */
static void match_sums(struct room *room)
{
	const struct ncclComm *last = room->sides[room->size - 1];
	bool fits = true;

	for (int i = 0; i < room->size; i++)
		fits = fits && room->sides[i]->bytes == last->bytes;
	for (size_t k = 0; fits && k < last->bytes / sizeof(float); k++) {
		float sum = ((float *)last->buf)[k];

		for (int i = room->size - 2; i >= 0; i--)
			sum += ((float *)room->sides[i]->buf)[k];
		for (int i = 0; i < room->size; i++)
			((float *)room->sides[i]->buf)[k] = sum;
	}
	for (int i = 0; i < room->size; i++)
		finish(room->sides[i], fits ? ncclSuccess : ncclInternalError);
}

static bool all_sum(const struct room *room)
{
	for (int i = 0; i < room->size; i++)
		if (!room->sides[i] || room->sides[i]->doing != SUMMING)
			return false;
	return true;
}

static void move(struct ncclComm *comm)
{
	struct ncclComm *other = comm->room->sides[comm->rank == 0];

	if (lost)
		finish(comm, ncclRemoteError);
	else if (comm->doing == JOINING && comm->room->joined == comm->room->size)
		finish(comm, ncclSuccess);
	else if ((comm->doing == SENDING || comm->doing == RECEIVING) && other &&
		 (other->doing == SENDING || other->doing == RECEIVING))
		match_calls(comm, other);
	else if (comm->doing == SUMMING && all_sum(comm->room))
		match_sums(comm->room);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *status)
{
	pthread_mutex_lock(&lock);
	move(comm);
	*status = comm->status;
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}

static ncclResult_t begin(ncclComm_t comm, enum doing doing, void *buf, size_t bytes, int peer)
{
	ncclResult_t status = ncclInProgress;

	pthread_mutex_lock(&lock);
	if (comm->status != ncclSuccess ||
	    (doing != SUMMING && (comm->room->size != 2 || peer != 1 - comm->rank ||
				  (doing == SENDING) != (comm->rank == 0)))) {
		status = ncclInvalidUsage;
	} else {
		comm->doing = doing;
		comm->status = ncclInProgress;
		comm->buf = buf;
		comm->bytes = bytes;
		if (doing == SUMMING && bytes > largest)
			largest = bytes;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

ncclResult_t ncclSend(const void *buf, size_t count, ncclDataType_t type, int peer,
		      ncclComm_t comm, cudaStream_t stream)
{
	return begin(comm, SENDING, (void *)buf, count, peer);
}

ncclResult_t ncclRecv(void *buf, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream)
{
	return begin(comm, RECEIVING, buf, count, peer);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	return from == to && type == ncclFloat32 && op == ncclSum
		? begin(comm, SUMMING, to, count * sizeof(float), 0) : ncclInvalidArgument;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	return comm->status == ncclSuccess ? ncclSuccess : ncclInvalidUsage;
}

/* Frees a communicator; the caller holds the lock. */
static void end(ncclComm_t comm)
{
	struct ncclComm **at = &all;

	while (*at != comm)
		at = &(*at)->next;
	*at = comm->next;
	comm->room->sides[comm->rank] = NULL;
	living--;
	free(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	pthread_mutex_lock(&lock);
	end(comm);
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}

/* Tells whether a transfer of another communicator is in progress on the GPU. */
static bool is_held(const struct ncclComm *comm)
{
	for (const struct ncclComm *other = all; other; other = other->next)
		if (other->device == comm->device && !other->aborting &&
		    (other->doing == SENDING || other->doing == RECEIVING ||
		     other->doing == SUMMING))
			return true;
	return false;
}

/* Frees an aborted communicator, which waits for the whole GPU. */
static void reclaim(ncclComm_t comm)
{
	const struct timespec ms = { .tv_nsec = 1000000 };

	pthread_mutex_lock(&lock);
	for (int waited = 0; is_held(comm); waited++) {
		if (waited == STUCK_MS) {
			stuck++;
			break;
		}
		pthread_mutex_unlock(&lock);
		nanosleep(&ms, NULL);
		pthread_mutex_lock(&lock);
	}
	end(comm);
	pthread_mutex_unlock(&lock);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	pthread_mutex_lock(&lock);
	comm->aborting = true;
	pthread_mutex_unlock(&lock);
	usleep((useconds_t)slow_ms * 1000);
	if (depth == 0) {
		reclaim(comm);
		return ncclSuccess;
	}
	group = realloc(group, (size_t)(group_count + 1) * sizeof(ncclComm_t));
	group[group_count++] = comm;
	return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
	depth++;
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
	if (depth == 0)
		return ncclInvalidUsage;
	if (--depth > 0)
		return ncclSuccess;
	for (int i = 0; i < group_count; i++)
		reclaim(group[i]);
	free(group);
	group = NULL;
	group_count = 0;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t status)
{
	return status == ncclRemoteError ? "remote process exited" : "it does not fit";
}

const char *ncclGetLastError(ncclComm_t comm)
{
	return "";
}
