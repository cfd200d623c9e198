/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA device, inside.  Tensors of f32 are plain (samples, channels, rows, columns).  Where
 * tensor cores do the work (16 bits, TF32) what convolutions make, and what is made of that, has
 * its channels last (layout.c): the same on both sides of a stage's boundary.
 * Convolution and batch normalisation are cuDNN's, products of matrices cuBLASLt's, the rest
 * kernels of our own (kernels.h).  A stream is a thread that queues work on a CUDA stream
 * (stream.c); one thread of the device completes the events of all streams (poller.c).
 *
 * The same bits every time: of the libraries' algorithms only those are taken that promise
 * it, and what is chosen is a function of the shapes (the libraries' own heuristics) and of the
 * plan, in which a measurement of pd-profile's is written down (choice.h): so every rank and
 * every run chooses alike, and a profile's bytes are a run's.
 */
#ifndef PD_DEVICE_CUDA_CUDA_H
#define PD_DEVICE_CUDA_CUDA_H

#include "base/mem.h"
#include "device/compiled.h"
#include "device/cuda/kernels.h"
#include "device/queue.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <pthread.h>

#define PD_CUDA_WORKSPACE_MOST ((size_t)1 << 30)        /* of one layer */
#define PD_CUDA_ALIGN 256                               /* that libraries ask of a workspace */

/* When an event was on the common clock: so long after an event of which that is known. */
struct pd_cuda_clock {
	cudaEvent_t base;
	int64_t base_ns;
};

/* What the clock is looked at with. */
struct pd_cuda_look {
	cudaStream_t side;              /* without work; nobody else's meanwhile */
	cudaEvent_t now;                /* made once: to make one may wait for the GPU */
};

struct pd_cuda_stream;
struct pd_cuda_graphs;

/* Of a tensor with planes, or of a kernel: channels last.  NULL: plain. */
struct pd_layout {
	bool last;
};

struct pd_cuda_device {
	struct pd_device base;
	int number;                     /* CUDA's */
	bool tf32, untimed;
	struct pd_gate *gate;
	struct pd_cuda_look look;       /* side also has copies and clearing that the caller waits for */
	struct pd_cuda_clock origin;
	pthread_mutex_t lock;           /* of the list, streams' heads and tails */
	pthread_mutex_t side_lock;      /* held long, while a checkpoint is copied; never with lock */
	struct pd_cuda_stream *streams; /* a list */
	/* --- of poller.c, with lock */
	pthread_t poller;
	bool has_poller, closing;
	pthread_cond_t work;            /* something is in flight, or closing is true */
	struct pd_cuda_stream *completing;	/* of which work is being completed, or NULL */
	struct pd_cuda_stream *served;  /* the last of which work was completed, or NULL */
	_Atomic int waiting;            /* threads that look for an event to be in flight */
};

/* Of a net: a stream's thread runs it at a time. */
struct pd_cuda_engine {
	int device;
	bool tf32;
	bool last;                      /* convolutions want channels last */
	cudnnHandle_t dnn;
	cublasLtHandle_t blas;
	cudaStream_t stream;            /* of the pass being queued */
	bool whole;                     /* it is over all of the stage's layers */
	uint64_t stream_serial;         /* the stream's that dnn was told of; 0: none */
	struct pd_kernel_loss *losses;  /* of all passes in flight, in pinned memory: one for each
					   loss layer of each; NULL where there is none */
	struct pd_kernel_loss *loss;    /* where the pass's first is to be put */
	struct pd_pass_numbers *numbers; /* the pass's numbers, in device memory; see graph.h */
	struct pd_cuda_graphs *graphs;  /* NULL: none */
	bool loses;                     /* set by a layer that puts one there */
};

/* What a kind keeps in l->own begins with this. */
struct pd_cuda_own {
	void (*release)(void *own);     /* all but the memory itself; may be NULL */
};

static inline struct pd_cuda_engine *pd_cuda_engine(const struct pd_compiled_layer *l)
{
	return l->net->engine;
}

/* --- choice.c */
/* How a candidate is put on the default stream, to be timed: 0, or -1. */
struct pd_cuda_trial {
	int (*queue)(void *context, int candidate);
	void *context;
};
/*
 * Which of n candidates, best first, each with its code: the recorded one; where the net
 * measures, the fastest, which is put into l->algorithms; else the first.
 */
int pd_cuda_choose(struct pd_compiled_layer *l, int way, const int *codes, int n,
		   const struct pd_cuda_trial *trial);
/* Device memory for a trial, full of random numbers of that type: 0, or -1. */
int pd_cuda_trial_memory(void *out_p, enum pd_dtype dtype, size_t bytes);

/* --- layout.c */
extern const struct pd_layout pd_cuda_last;
/* How many rows, of its last axis, a batch of a shape has. */
int64_t pd_cuda_matrix_rows(const struct pd_compiled_layer *l, const struct pd_shape *shape);
/* Do this net's convolutions want channels last?  A matter of its type and of the whole model. */
bool pd_cuda_wants_last(const struct pd_compiled *net, bool tf32);
/* Is it the same in both layouts? */
bool pd_cuda_flat(const struct pd_shape *shape);
/* Is a tensor of that shape, in one layout, something else in the other? */
bool pd_cuda_unlike(const struct pd_layout *a, const struct pd_layout *b,
		    const struct pd_shape *shape);
/* One batch of a shape, from the other layout into this one. */
int pd_cuda_turn(struct pd_compiled_layer *l, void *dst, const struct pd_layout *to,
		 const void *src, const struct pd_shape *shape, struct pd_error *err);
/* Rows, and elements from one row of channels to the next plane: what kernels by channel want. */
void pd_cuda_rows(const struct pd_compiled_layer *l, const struct pd_layout *layout,
		  const struct pd_shape *shape, int64_t *samples_p, int64_t *area_p);
/* Is the only layer that uses this layer's output a relu, which this layer then does?  Asked of
 * the whole model, so that the answer is the same whatever the stage. */
bool pd_cuda_does_relu(const struct pd_compiled *net, int layer);

/* --- plain.c: as struct pd_compiled_device has them */
int pd_cuda_plain_prepare(struct pd_compiled_layer *l, struct pd_error *err);
const void *pd_cuda_plain_input(struct pd_compiled_layer *l, int i, bool back,
				struct pd_error *err);
void *pd_cuda_plain_room(struct pd_compiled_layer *l, int i);
int pd_cuda_plain_gradient(struct pd_compiled_layer *l, int i, void *gradient,
			   struct pd_error *err);

/* --- cuda.c: 0, or -1 with *err saying what could not be done and why */
int pd_cuda_check(cudaError_t status, const char *what, struct pd_error *err);
int pd_cudnn_check(cudnnStatus_t status, const char *what, struct pd_error *err);
int pd_cublas_check(cublasStatus_t status, const char *what, struct pd_error *err);
/* A layer's kernel was queued. */
int pd_cuda_queued(const struct pd_compiled_layer *l, cudaError_t status, struct pd_error *err);
/* Between device and host memory; done when it returns. */
int pd_cuda_copy_blocking(struct pd_cuda_device *cuda, void *dst, const void *src, size_t bytes,
			  struct pd_error *err);

/* --- clock.c */
/* event: done, and not before the clock's own. */
int pd_cuda_clock_ns(const struct pd_cuda_clock *clock, cudaEvent_t event, int64_t *ns_p,
		     struct pd_error *err);
/*
 * The time of an event that has happened, as exactly as two looks at the host's clock allow:
 * 1; 0: no two were close enough.  Takes a few milliseconds at most.
 */
int pd_cuda_look(const struct pd_cuda_look *with, cudaEvent_t past, int64_t *ns_p,
		 struct pd_error *err);

/* --- stream.c */
struct pd_stream *pd_cuda_stream_open(struct pd_device *device, struct pd_error *err);
void pd_cuda_stream_close(struct pd_stream *stream);
int pd_cuda_iterate(struct pd_stream *stream, struct pd_net *net,
		    const struct pd_iteration *iteration, int from, int count);

/* --- poller.c: the device's thread that completes events begins, or ends; all streams closed */
int pd_cuda_poller_open(struct pd_cuda_device *cuda, struct pd_error *err);
void pd_cuda_poller_close(struct pd_cuda_device *cuda);

/* --- net.c */
struct pd_net *pd_cuda_net_open(struct pd_device *device, const struct pd_net_config *config,
				struct pd_error *err);
void pd_cuda_net_close(struct pd_net *net);
int pd_cuda_net_settle(struct pd_net *net, struct pd_error *err);
int pd_cuda_net_export(struct pd_net *net, int named, enum pd_form form, const void *arena,
		       float *host);
int pd_cuda_net_import(struct pd_net *net, int named, enum pd_form form, void *arena,
		       const float *host);
/* Device memory for sums of squares; LARS's updates leave a tensor's norms there. */
struct pd_cuda_norms {
	struct pd_kernel_norms norms;
	double pieces[PD_KERNEL_PIECES];
};
/*
 * Queue an update of a stage's layers, sums of squares.  choice and room are in device memory.  An
 * agreed update writes choice, and outcome, which is pinned; any other reads choice in place of its
 * own numbers if it is not NULL.  room may be NULL but for LARS.
 */
int pd_cuda_update(cudaStream_t stream, const struct pd_compiled *net,
		   const struct pd_update *update, int from, int count,
		   struct pd_kernel_choice *choice, struct pd_cuda_norms *room,
		   struct pd_outcome *outcome, struct pd_error *err);
/* Returns what an update that is not agreed on reads there. */
struct pd_kernel_choice pd_cuda_choice_of(const struct pd_update *update);
int pd_cuda_squares(cudaStream_t stream, const struct pd_compiled *net,
		    const struct pd_squares *what, double *room, struct pd_error *err);

/* Room for a workspace that begins where the libraries want it, and where that is. */
static inline size_t pd_cuda_workspace_bytes(size_t bytes)
{
	return bytes ? bytes + PD_CUDA_ALIGN - PD_ALIGN : 0;
}

static inline void *pd_cuda_workspace(void *room)
{
	return (void *)(((uintptr_t)room + PD_CUDA_ALIGN - 1) & ~(uintptr_t)(PD_CUDA_ALIGN - 1));
}

static inline size_t pd_cuda_batch_elements(const struct pd_compiled_layer *l,
					    const struct pd_shape *shape)
{
	return (size_t)l->net->batch * (size_t)pd_shape_elements(shape);
}

static inline size_t pd_cuda_batch_bytes(const struct pd_compiled_layer *l,
					 const struct pd_shape *shape)
{
	return pd_dtype_bytes(l->net->dtype) * pd_cuda_batch_elements(l, shape);
}

#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	extern const struct pd_compiled_kind pd_cuda_##name;
#include "model/layer_kind.def"
#undef LAYER_KIND

#endif
