/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the CUDA device.  Tensors of f32 are plain (samples, channels, rows, columns).  Where
 * tensor cores do the work (16 bits, TF32), the outputs of convolutions, and tensors made of them,
 * have their channels last (layout.c), on both sides of a stage's boundary.  Convolution and batch
 * normalisation are cuDNN's, matrix products cuBLASLt's, the rest are kernels of our own
 * (kernels.h).  A stream is a thread that queues work on a CUDA stream (stream.c); one thread of
 * the device completes the events of all streams (poller.c).
 *
 * The bits are the same every time.  Only algorithms that promise this are used, and the choice is
 * a function of the shapes (the libraries' heuristics) and of the plan, which has pd-profile's
 * measured choice (choice.h).  So every rank and every run chooses alike, and needs the bytes that
 * the profile says.
 */
#pragma once

#include "base/mem.h"
#include "run/device/compiled_net.h"
#include "run/device/cuda/choice.h"
#include "run/device/cuda/kernels.h"
#include "run/device/queue.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <pthread.h>

#define PD_CUDA_WORKSPACE_MOST ((size_t)1 << 30)        /* the most for one layer */
#define PD_CUDA_ALIGN 256	/* the alignment that libraries ask of a workspace */

/*
 * Converts an event's time to the common clock: by its distance from an event whose time is known.
 */
struct pd_cuda_clock {
	cudaEvent_t base;
	int64_t base_ns;
};

/* The means to compare the GPU's clock with the host's. */
struct pd_cuda_look {
	cudaStream_t side;              /* has no work and no other user meanwhile */
	cudaEvent_t now;                /* made once, since making one may wait for the GPU */
};

struct pd_cuda_stream;
struct pd_cuda_graphs;

/* A tensor with planes, or a kernel, has its channels last, or is plain (NULL). */
struct pd_layout {
	bool last;
};

struct pd_cuda_device {
	struct pd_device base;
	int number;                     /* CUDA's number of the device */
	bool tf32, untimed;
	struct pd_gate *gate;
	/* `side` also has the copies and clearing for which callers wait */
	struct pd_cuda_look look;
	struct pd_cuda_clock origin;
	pthread_mutex_t lock;           /* protects the list, and streams' heads and tails */
	/* held long, while a checkpoint is copied; never together with lock */
	pthread_mutex_t side_lock;
	struct pd_cuda_stream *streams; /* a list */
	/* --- for poller.c, under lock */
	pthread_t poller;
	bool has_poller, closing;
	pthread_cond_t work;            /* signalled when work is in flight or closing is set */
	/* the stream of which work is being completed, or NULL */
	struct pd_cuda_stream *completing;
	struct pd_cuda_stream *served;  /* the stream of which work was completed last, or NULL */
	_Atomic int waiting;            /* threads that wait for an event to be in flight */
};

/* A net's libraries and buffers; one thread of a stream at a time uses them. */
struct pd_cuda_engine {
	int device;
	bool tf32;
	bool last;                      /* convolutions want channels last */
	cudnnHandle_t dnn;
	cublasLtHandle_t blas;
	cudaStream_t stream;            /* the stream of the pass that is being queued */
	bool whole;                     /* the pass covers all layers of the stage */
	uint64_t stream_serial;         /* number of the stream that dnn uses; 0: none */
	/*
	 * of all passes in flight, in pinned memory: one for each loss layer; NULL: no loss layer
	 */
	struct pd_kernel_loss *losses;
	struct pd_kernel_loss *loss;    /* where the first loss of the pass goes */
	struct pd_pass_numbers *numbers; /* of the pass, in device memory (graph.h) */
	struct pd_cuda_graphs *graphs;  /* NULL: none */
	bool loses;                     /* set by a layer that writes a loss */
	struct pd_choice_maker makers[PD_CHOICE_MAKERS];        /* layers whose choice others take */
	int maker_count;
};

/* A kind's l->own begins with this. */
struct pd_cuda_own {
	void (*release)(void *own);     /* frees all but the memory itself; may be NULL */
};

static inline struct pd_cuda_engine *pd_cuda_engine(const struct pd_compiled_layer *l)
{
	return l->net->engine;
}

/* --- choice.c */
/*
 * Where the net measures, gives the layer the choice of an earlier one of which these n numbers are the same,
 * as if a plan had recorded it, or remembers this layer for later ones.  The numbers must decide the choice:
 * sizes, layouts, types of matrices, what is fused.
 */
void pd_cuda_recall(struct pd_compiled_layer *l, const int64_t *what, int n);
/* Tells whether candidates of this way are timed. */
bool pd_cuda_times(const struct pd_compiled_layer *l, int way);
/* Queues a candidate on the default stream, to be timed: 0, or -1. */
struct pd_cuda_trial {
	int (*queue)(void *context, int candidate);
	void *context;
};
/*
 * Chooses one of n candidates, which are best first, each with its code: the recorded one; where
 * the net measures, the fastest, which is recorded in l->algorithms; else the first.
 */
int pd_cuda_choose(struct pd_compiled_layer *l, int way, const int *codes, int n,
		   const struct pd_cuda_trial *trial);
/* Allocates device memory for a trial and fills it with random numbers of that type: 0, or -1. */
int pd_cuda_trial_memory(void *out_p, enum pd_dtype dtype, size_t bytes);

/* --- layout.c */
extern const struct pd_layout pd_cuda_last;
/*
 * Returns the elements from one row (along the last axis) of a tensor of the model to the next.  They follow
 * one another, but for logits in 16 bits that a linear layer makes and the loss alone reads: these begin
 * at multiples of 16 bytes, without which a vocabulary of 50,257 would take the time of several.
 */
int64_t pd_cuda_row(const struct pd_compiled *net, int tensor);
/* Returns the elements of a batch of that tensor, gaps included. */
size_t pd_cuda_elements(const struct pd_compiled *net, int tensor);
/* Returns how many rows a batch of a shape has. */
int64_t pd_cuda_matrix_rows(const struct pd_compiled_layer *l, const struct pd_shape *shape);
/* Returns whether this net's convolutions want channels last, by its dtype and the whole model. */
bool pd_cuda_wants_last(const struct pd_compiled *net, bool tf32);
/* Returns whether a tensor of that shape is the same in both layouts. */
bool pd_cuda_flat(const struct pd_shape *shape);
/* Returns whether a tensor of that shape differs between the two layouts. */
bool pd_cuda_unlike(const struct pd_layout *a, const struct pd_layout *b,
		    const struct pd_shape *shape);
/* Converts a batch of a shape from the other layout into this one. */
int pd_cuda_turn(struct pd_compiled_layer *l, void *dst, const struct pd_layout *to,
		 const void *src, const struct pd_shape *shape, struct pd_error *err);
/*
 * Returns the rows, and the elements from one channel to the next, for kernels that work by
 * channel.
 */
void pd_cuda_rows(const struct pd_compiled_layer *l, const struct pd_layout *layout,
		  const struct pd_shape *shape, int64_t *samples_p, int64_t *area_p);
/* Returns the channels of a layer's first input, as its layout has them. */
struct pd_kernel_channels pd_cuda_channels(const struct pd_compiled_layer *l);
/*
 * Returns whether this layer does the relu behind it, which is then its output's only user.  The
 * answer depends on the whole model, so that it is the same whatever the stage.
 */
bool pd_cuda_does_relu(const struct pd_compiled *net, int layer);

/* --- plain.c: functions of struct pd_compiled_device */
int pd_cuda_plain_prepare(struct pd_compiled_layer *l, struct pd_error *err);
const void *pd_cuda_plain_input(struct pd_compiled_layer *l, int i, bool back,
				struct pd_error *err);
void *pd_cuda_plain_room(struct pd_compiled_layer *l, int i);
int pd_cuda_plain_gradient(struct pd_compiled_layer *l, int i, void *gradient,
			   struct pd_error *err);

/* --- cuda.c: these return 0, or -1 with *err that says what failed and why */
int pd_cuda_check(cudaError_t status, const char *what, struct pd_error *err);
int pd_cudnn_check(cudnnStatus_t status, const char *what, struct pd_error *err);
int pd_cublas_check(cublasStatus_t status, const char *what, struct pd_error *err);
/* Checks the status of queueing a layer's kernel. */
int pd_cuda_queued(const struct pd_compiled_layer *l, cudaError_t status, struct pd_error *err);
/* Copies between device and host memory, and waits. */
int pd_cuda_copy_blocking(struct pd_cuda_device *cuda, void *dst, const void *src, size_t bytes,
			  struct pd_error *err);

/* --- clock.c */
/* Returns the time of an event that is done, and was not before the clock's own. */
int pd_cuda_clock_ns(const struct pd_cuda_clock *clock, cudaEvent_t event, int64_t *ns_p,
		     struct pd_error *err);
/*
 * Finds the time of an event that has happened, as exactly as two readings of the host's clock
 * allow: 1, or 0 where no two readings were close enough.  Takes a few milliseconds at most.
 */
int pd_cuda_look(const struct pd_cuda_look *with, cudaEvent_t past, int64_t *ns_p,
		 struct pd_error *err);

/* --- stream.c */
struct pd_stream *pd_cuda_stream_open(struct pd_device *device, struct pd_error *err);
void pd_cuda_stream_close(struct pd_stream *stream);

/* --- poller.c: begins and ends the thread that completes events; all streams are closed */
int pd_cuda_poller_open(struct pd_cuda_device *cuda, struct pd_error *err);
void pd_cuda_poller_close(struct pd_cuda_device *cuda);

/* --- net.c */
struct pd_net *pd_cuda_net_open(struct pd_device *device, const struct pd_net_config *config,
				struct pd_error *err);
void pd_cuda_net_close(struct pd_net *net);
int pd_cuda_net_settle(struct pd_net *net, int64_t turns, struct pd_error *err);
int pd_cuda_net_export(struct pd_net *net, int named, enum pd_form form, const void *arena,
		       float *host);
int pd_cuda_net_import(struct pd_net *net, int named, enum pd_form form, void *arena,
		       const float *host);
/* Device memory for sums of squares; updates by tensors' norms leave these there. */
struct pd_cuda_norms {
	struct pd_kernel_norms norms;
	double pieces[PD_KERNEL_PIECES];
};
/*
 * Queue an update of a stage's layers, sums of squares.  choice and room are in device memory.  An
 * agreed update writes choice, and outcome, which is pinned; any other reads choice in place of its
 * own numbers if it is not NULL.  room may be NULL but where PD_OPTIMIZER_NORMS is true.
 */
int pd_cuda_update(cudaStream_t stream, const struct pd_compiled *net,
		   const struct pd_update *update, int from, int count,
		   struct pd_kernel_choice *choice, struct pd_cuda_norms *room,
		   struct pd_outcome *outcome, struct pd_error *err);
/* Returns what an update that is not agreed on reads there. */
struct pd_kernel_choice pd_cuda_choice_of(const struct pd_update *update);
int pd_cuda_squares(cudaStream_t stream, const struct pd_compiled *net,
		    const struct pd_squares *what, double *room, struct pd_error *err);

/* Returns the bytes for a workspace that begins where the libraries want it, and where that is. */
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

/* --- broadcast.c: sums and products of two inputs whose shapes differ */
extern const struct pd_compiled_kind pd_cuda_broadcast;

#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	extern const struct pd_compiled_kind pd_cuda_##name;
#include "model/layer_kind.def"
#undef LAYER_KIND
