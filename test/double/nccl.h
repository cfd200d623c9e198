/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NCCL that lib/run/transport/nccl uses, under the same names, for tests without a GPU:
 * double/nccl.c does it among the threads of one process.  It is never part of a program.
 */
#pragma once

#include <stddef.h>

typedef struct CUstream_st *cudaStream_t;
typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;

typedef enum {
	ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError,
	ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError, ncclInProgress, ncclNumResults
} ncclResult_t;

typedef enum { ncclUint8 = 1, ncclFloat32 = 7 } ncclDataType_t;
typedef enum { ncclSum } ncclRedOp_t;

typedef struct { int blocking, minCTAs, maxCTAs; } ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER { -1, -1, -1 }

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *status);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclSend(const void *buf, size_t count, ncclDataType_t type, int peer,
		      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *buf, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		      cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
const char *ncclGetErrorString(ncclResult_t status);
const char *ncclGetLastError(ncclComm_t comm);

/* --- the double's own */

/* Returns how many communicators were made and neither destroyed nor aborted. */
int double_nccl_living(void);
/* Makes every communicator report from now on that its other side is lost. */
void double_nccl_lose_all(void);
/* Sets the GPU of communicators that the calling thread makes from now on, as cudaSetDevice() does. */
void double_nccl_use_device(int device);
/* Returns how many aborts could not end since a transfer of another communicator on the GPU waited. */
int double_nccl_stuck(void);
/* Makes aborts take so long from now on. */
void double_nccl_slow_aborts(int ms);
/* Sets the version that ncclGetVersion() returns from now on. */
void double_nccl_say_version(int version);
/* Returns the most floats that a rank has begun to sum. */
size_t double_nccl_largest_sum(void);
/* Restores the state of the start. */
void double_nccl_reset(void);
