/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of our own, as C calls them: each queues on the stream and returns.  Tensors are in
 * device memory, of the type that dtype names where that is given, else as said.  No kernel
 * uses atomics: what is summed is summed in one order.
 */
#ifndef PD_DEVICE_CUDA_KERNELS_H
#define PD_DEVICE_CUDA_KERNELS_H

#include "device/cuda/arith.h"
#include "device/global_norm.h"
#include "model/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- pass_numbers.cu: what changes from pass to pass while the addresses stay, in device memory */
struct pd_kernel_loss {                 /* in pinned host memory */
	double sum;
	int64_t correct;
	int64_t bad_row, bad_label;     /* the first row whose label is none; -1: all are */
};
struct pd_kernel_rates {                /* of SGD */
	float rate, keep, decay;
	double exact_rate, exact_decay;         /* before they were rounded, for LARS */
};
struct pd_kernel_choice {               /* numbers that an update reads from device memory */
	double factor;
	bool skip;
	struct pd_adam_factors adam;
	struct pd_kernel_rates sgd;
};
struct pd_pass_numbers {
	int64_t first_sample, valid;    /* as struct pd_pass */
	struct pd_kernel_loss *loss;    /* where the first is to go */
	struct pd_kernel_choice choice; /* of an update before the pass */
};
cudaError_t pd_kernel_set_numbers(cudaStream_t stream, struct pd_pass_numbers *numbers,
				  const struct pd_pass_numbers *value);

/* --- eltwise.cu: count elements; outputs may lie over inputs */
enum pd_kernel_curve { PD_KERNEL_RELU, PD_KERNEL_TANH, PD_KERNEL_SIGMOID };
cudaError_t pd_kernel_curve(cudaStream_t stream, enum pd_dtype dtype, enum pd_kernel_curve curve,
			    void *y, const void *x, size_t count);
/* From the output. */
cudaError_t pd_kernel_curve_back(cudaStream_t stream, enum pd_dtype dtype,
				 enum pd_kernel_curve curve, void *dx, const void *y,
				 const void *dy, size_t count);
/* dst = src[0] + src[1] + ..., in that order, then relu; n of 1 to PD_KERNEL_SOURCES. */
#define PD_KERNEL_SOURCES 16
cudaError_t pd_kernel_sum(cudaStream_t stream, enum pd_dtype dtype, void *dst,
			  const void *const *src, int n, size_t count, bool relu);
/* dst = a + b, but 0 where y, a relu's output, is not positive. */
cudaError_t pd_kernel_sum_relu(cudaStream_t stream, enum pd_dtype dtype, void *dst, const void *a,
			       const void *b, const void *y, size_t count);
/* Draws the mask, one bit per element, each sample's from a byte of its own on. */
struct pd_kernel_dropout {
	uint64_t seed, stream;
	int64_t samples, elements;      /* of one sample */
	int64_t area, channels;         /* of one sample: element k lies at k % area * channels +
					   k / area; plain: elements, 1 */
	float p, scale;
};
cudaError_t pd_kernel_dropout(cudaStream_t stream, enum pd_dtype dtype,
			      const struct pd_kernel_dropout *d,
			      const struct pd_pass_numbers *numbers, void *y, unsigned char *keep,
			      const void *x);
cudaError_t pd_kernel_dropout_back(cudaStream_t stream, enum pd_dtype dtype,
				   const struct pd_kernel_dropout *d, void *dx,
				   const unsigned char *keep, const void *dy);

/* --- pool.cu: planes of shape->in and shape->out */
cudaError_t pd_kernel_maxpool(cudaStream_t stream, enum pd_dtype dtype,
			      const struct pd_pool_shape *shape, int64_t planes, void *y,
			      int32_t *chosen, const void *x);
cudaError_t pd_kernel_maxpool_back(cudaStream_t stream, enum pd_dtype dtype,
				   const struct pd_pool_shape *shape, int64_t planes, void *dx,
				   const int32_t *chosen, const void *dy);
cudaError_t pd_kernel_meanpool(cudaStream_t stream, enum pd_dtype dtype,
			       const struct pd_pool_shape *shape, int64_t planes, void *y,
			       const void *x);
cudaError_t pd_kernel_meanpool_back(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_pool_shape *shape, int64_t planes, void *dx,
				    const void *dy);

/* --- layout.cu: samples of (channels, area) to (area, channels), or back */
cudaError_t pd_kernel_turn(cudaStream_t stream, enum pd_dtype dtype, void *dst, const void *src,
			   int64_t samples, int64_t channels, int64_t area, bool to_last);

/* --- widen.cu: arrays of dtype to f32, all of them by one kernel; none lies over another */
#define PD_KERNEL_WIDENED 64
struct pd_kernel_widened {
	float *dst;
	const void *src;
	size_t count;
};
struct pd_kernel_widen {
	int n;                          /* 1 to PD_KERNEL_WIDENED */
	struct pd_kernel_widened arrays[PD_KERNEL_WIDENED];
};
cudaError_t pd_kernel_widen(cudaStream_t stream, enum pd_dtype dtype,
			    const struct pd_kernel_widen *w);

/* --- norm.cu, norm_back.cu: batch normalisation */
struct pd_kernel_norm {
	int64_t rows, channels;         /* rows: samples times their area */
	int64_t area;                   /* of a plane; 1: the channels are next to one another */
	size_t half;                    /* floats from a mean to what belongs to it */
	float eps, momentum;
	bool relu;                      /* of what comes out; backward does its part, too */
};
/* Floats of room that forward and backward take. */
size_t pd_kernel_norm_scratch(int64_t rows, int64_t channels);
/*
 * kept: mean and inverse deviation, and with a relu the scale and the bias that forward read,
 * each n->half floats behind the one before; written.  running: mean and variance, moved; or NULL.
 */
cudaError_t pd_kernel_norm(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_norm *n,
			   void *y, const void *x, const void *scale, const void *bias, float *kept,
			   float *running, float *room);
cudaError_t pd_kernel_norm_evaluate(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_kernel_norm *n, void *y, const void *x,
				    const void *scale, const void *bias, const float *running);
/*
 * dx: NULL where nobody wants it; before: what it is added to, or NULL.  dx may lie over before or
 * dy.  dy: with a relu the gradient of what comes out of that.
 */
cudaError_t pd_kernel_norm_back(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_norm *n, void *dx, const void *before,
				const void *x, const void *dy, const void *scale,
				const float *kept, float *d_scale, float *d_bias, float *room);
/* The sum over many rows of each channel; room as for these. */
cudaError_t pd_kernel_columns(cudaStream_t stream, enum pd_dtype dtype, float *sums, float *room,
			      const void *dy, int64_t rows, int64_t channels);

/* --- layernorm.cu */
struct pd_kernel_layernorm {
	int64_t rows, width;
	size_t half;                    /* floats from a row's mean to its inverse deviation */
	float eps;
};
/* weight, bias: NULL where there is none.  kept: means and inverse deviations, written. */
cudaError_t pd_kernel_layernorm(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_layernorm *n, void *y, const void *x,
				const void *weight, const void *bias, float *kept);
cudaError_t pd_kernel_layernorm_back(cudaStream_t stream, enum pd_dtype dtype,
				     const struct pd_kernel_layernorm *n, void *dx, const void *x,
				     const void *dy, const void *weight, const float *kept);
/* Floats of room that the gradients of the parameters take; d_bias: NULL where there is none. */
size_t pd_kernel_layernorm_room(int64_t rows, int64_t width);
cudaError_t pd_kernel_layernorm_parameters(cudaStream_t stream, enum pd_dtype dtype,
					   const struct pd_kernel_layernorm *n, float *d_weight,
					   float *d_bias, const void *x, const void *dy,
					   const float *kept, float *room);

/* --- loss.cu */
/* A sample has so many rows of logits.  out: one float per row; those of samples from
 * numbers->valid on become 0.  verdict: room for as many.  number: which of the stage's losses. */
cudaError_t pd_kernel_loss(cudaStream_t stream, enum pd_dtype dtype,
			   const struct pd_pass_numbers *numbers, int number, float *out,
			   int32_t *verdict, const void *x, const int32_t *label, int64_t batch,
			   int64_t rows, int64_t classes);
/* scale: in device memory; NULL: 1.  minibatch: over so many samples the mean is taken. */
cudaError_t pd_kernel_loss_back(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_pass_numbers *numbers, void *dx, const void *x,
				const int32_t *label, const struct pd_scale *scale,
				int64_t minibatch, int64_t batch, int64_t rows,
				int64_t classes);

/* --- bias.cu: y[n][c][i] += bias[c], then relu; and its gradient, the sum over n and i */
/* bias: NULL where there is none. */
cudaError_t pd_kernel_bias(cudaStream_t stream, enum pd_dtype dtype, void *y, const void *bias,
			   bool relu, int64_t batch, int64_t channels, int64_t area);
/* Floats of room that the gradient takes. */
size_t pd_kernel_bias_scratch(int64_t batch, int64_t channels);
/* room: not needed where area is 1, which is for few samples. */
cudaError_t pd_kernel_bias_back(cudaStream_t stream, enum pd_dtype dtype, float *db, float *room,
				const void *dy, int64_t batch, int64_t channels, int64_t area);

/* --- update.cu: elements begin to end - 1 of the arenas; dtype: of next and corrected */
/* One thread of pd_global_norm_factor, which also writes the scale that follows; adam->count is
 * that of all updates.  choice: device memory; outcome: pinned host memory. */
cudaError_t pd_kernel_global_norm(cudaStream_t stream, const struct pd_global_norm *norm,
				  const struct pd_adam *adam, const struct pd_kernel_rates *sgd,
				  struct pd_kernel_choice *choice, struct pd_outcome *outcome);
struct pd_kernel_correction {
	float *delta;                   /* NULL where there is none */
	void *corrected;
	float keep, rest, delay;
};
/* LARS's sums of squares of a tensor's weights and gradient, in device memory. */
struct pd_kernel_norms {
	double weights, gradient;
};
struct pd_kernel_sgd {
	void *next;
	float *velocity, *master;       /* NULL without momentum; in f32 */
	const void *weights;            /* not read where there is a master */
	const float *gradients;
	struct pd_kernel_rates rates;           /* without a choice; with one, that has its own */
	const struct pd_kernel_choice *choice;  /* device memory; NULL: a factor of 1 */
	bool spared;                            /* no weight decay, whatever the rates say */
	bool lars;
	double trust;
	const struct pd_kernel_norms *norms;    /* device memory; NULL: LARS's own rate is 1 */
	struct pd_kernel_correction correction;
};
cudaError_t pd_kernel_sgd(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_sgd *u,
			  size_t begin, size_t end);
struct pd_kernel_adam {
	void *next;
	float *first, *second, *master;
	const void *weights;
	const float *gradients;
	struct pd_adam_factors factors;         /* without a choice; with one, that has its own */
	const struct pd_kernel_choice *choice;
	bool spared;
	struct pd_kernel_correction correction;
};
cudaError_t pd_kernel_adam(cudaStream_t stream, enum pd_dtype dtype,
			   const struct pd_kernel_adam *u, size_t begin, size_t end);

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
