/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of our own, as C calls them: each queues on the stream and returns.  All tensors
 * are plain, f32, in device memory.  No kernel uses atomics: what is summed is summed in
 * one order.
 */
#ifndef PD_DEVICE_CUDA_KERNELS_H
#define PD_DEVICE_CUDA_KERNELS_H

#include "device/agreed.h"
#include "device/cuda/arith.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- now.cu: what changes from pass to pass while the addresses stay, in device memory */
struct pd_kernel_loss {                 /* in pinned host memory */
	double sum;
	int64_t correct;
	int64_t bad_sample, bad_label;  /* the first sample whose label is none; -1: all are */
};
struct pd_kernel_now {
	int64_t first_sample, valid;    /* as struct pd_pass */
	struct pd_kernel_loss *loss;    /* where it is to go */
};
cudaError_t pd_kernel_set_now(cudaStream_t stream, struct pd_kernel_now *now,
			      const struct pd_kernel_now *value);

/* --- eltwise.cu: count elements; outputs may lie over inputs */
enum pd_kernel_curve { PD_KERNEL_RELU, PD_KERNEL_TANH, PD_KERNEL_SIGMOID };
cudaError_t pd_kernel_curve(cudaStream_t stream, enum pd_kernel_curve curve, float *y,
			    const float *x, size_t count);
/* From the output. */
cudaError_t pd_kernel_curve_back(cudaStream_t stream, enum pd_kernel_curve curve, float *dx,
				 const float *y, const float *dy, size_t count);
/* dst = src[0] + src[1] + ..., in that order; n of 1 to PD_KERNEL_SOURCES. */
#define PD_KERNEL_SOURCES 16
cudaError_t pd_kernel_sum(cudaStream_t stream, float *dst, const float *const *src, int n,
			  size_t count);
/* Draws the mask, one bit per element, each sample's from a byte of its own on. */
struct pd_kernel_dropout {
	uint64_t seed, stream;
	int64_t samples, elements;      /* of one sample */
	float p, scale;
};
cudaError_t pd_kernel_dropout(cudaStream_t stream, const struct pd_kernel_dropout *d,
			      const struct pd_kernel_now *now, float *y, unsigned char *keep,
			      const float *x);
cudaError_t pd_kernel_dropout_back(cudaStream_t stream, const struct pd_kernel_dropout *d,
				   float *dx, const unsigned char *keep, const float *dy);

/* --- pool.cu: planes of shape->in and shape->out */
cudaError_t pd_kernel_maxpool(cudaStream_t stream, const struct pd_pool_shape *shape,
			      int64_t planes, float *y, int32_t *chosen, const float *x);
cudaError_t pd_kernel_maxpool_back(cudaStream_t stream, const struct pd_pool_shape *shape,
				   int64_t planes, float *dx, const int32_t *chosen,
				   const float *dy);
cudaError_t pd_kernel_meanpool(cudaStream_t stream, const struct pd_pool_shape *shape,
			       int64_t planes, float *y, const float *x);
cudaError_t pd_kernel_meanpool_back(cudaStream_t stream, const struct pd_pool_shape *shape,
				    int64_t planes, float *dx, const float *dy);

/* --- loss.cu */
/* out: one float per sample; those from now->valid on become 0.  verdict: room for as many. */
cudaError_t pd_kernel_loss(cudaStream_t stream, const struct pd_kernel_now *now, float *out,
			   int32_t *verdict, const float *x, const int32_t *label, int64_t batch,
			   int64_t classes);
/* scale: in device memory; NULL: 1. */
cudaError_t pd_kernel_loss_back(cudaStream_t stream, const struct pd_kernel_now *now, float *dx,
				const float *x, const int32_t *label,
				const struct pd_scale *scale, int64_t batch, int64_t classes);

/* --- bias.cu: y[n][c][i] += bias[c]; and its gradient, the sum over n and i */
cudaError_t pd_kernel_bias(cudaStream_t stream, float *y, const float *bias, int64_t batch,
			   int64_t channels, int64_t area);
/* Floats of room that the gradient takes. */
size_t pd_kernel_bias_room(int64_t batch, int64_t channels);
cudaError_t pd_kernel_bias_back(cudaStream_t stream, float *db, float *room, const float *dy,
				int64_t batch, int64_t channels, int64_t area);

/* --- update.cu: elements begin to end - 1 of the arenas */
struct pd_kernel_choice {               /* in device memory: what was agreed on */
	double factor;
	bool skip;
	struct pd_adam_factors adam;
};
/* One thread of pd_agreed_factor, which also writes the scale that follows; adam->count is
 * that of all updates.  outcome: pinned host memory. */
cudaError_t pd_kernel_agree(cudaStream_t stream, const struct pd_agreed *agreed,
			    const struct pd_adam *adam, struct pd_kernel_choice *choice,
			    struct pd_outcome *outcome);
struct pd_kernel_correction {
	float *delta, *corrected;       /* delta: NULL where there is none */
	float keep, rest, delay;
};
struct pd_kernel_sgd {
	float *next, *velocity;         /* velocity: NULL without momentum */
	const float *weights, *gradients;
	float rate, keep, decay;
	const struct pd_kernel_choice *choice;  /* NULL: a factor of 1 */
	struct pd_kernel_correction correction;
};
cudaError_t pd_kernel_sgd(cudaStream_t stream, const struct pd_kernel_sgd *u, size_t begin,
			  size_t end);
struct pd_kernel_adam {
	float *next, *first, *second;
	const float *weights, *gradients;
	struct pd_adam_factors factors;         /* without a choice; with one, that has its own */
	const struct pd_kernel_choice *choice;
	struct pd_kernel_correction correction;
};
cudaError_t pd_kernel_adam(cudaStream_t stream, const struct pd_kernel_adam *u, size_t begin,
			   size_t end);

/* --- squares.cu */
#define PD_KERNEL_PIECES 64
/* *sum_p = the sum of the squares of count floats; room: PD_KERNEL_PIECES doubles. */
cudaError_t pd_kernel_squares(cudaStream_t stream, double *sum_p, double *room, const float *g,
			      size_t count);
/* vector[i] = value, count of them; vector[i] = other[i] where vector[i] is PD_ABSENT. */
cudaError_t pd_kernel_fill(cudaStream_t stream, double *vector, double value, size_t count);
cudaError_t pd_kernel_unite(cudaStream_t stream, double *vector, const double *other,
			    size_t count);

#ifdef __cplusplus
}
#endif

#endif
