/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own kernels, as C calls them: each call queues on the stream and returns.  Tensors are in
 * device memory and of type dtype, unless said otherwise.  No kernel uses atomics: every sum has
 * one order.
 */
#pragma once

#include "engine/device/chunks.h"
#include "engine/device/global_norm.h"
#include "engine/device/mixed_sum.h"
#include "engine/device/update.h"
#include "model/dtype.h"
#include "model/relative.h"
#include "run/device/cuda/arith.h"
#include "run/device/curve.h"
#include "run/device/resize.h"
#include "run/device/rotary.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- pass_numbers.cu: numbers that change while addresses stay, in device memory */
struct pd_kernel_loss {                 /* in pinned host memory */
	double sum;
	int64_t correct;
	int64_t rows;                   /* that count */
	int64_t bad_row, bad_label;     /* the first row with an invalid label; -1: none */
};
struct pd_kernel_choice {               /* numbers that an update reads from device memory */
	double factor;
	bool skip;
	double rate, weight_decay;      /* before they were rounded, for a tensor's own rate */
	struct pd_factors factors;
};
struct pd_pass_numbers {
	int64_t first_sample, valid;    /* as in struct pd_pass */
	struct pd_kernel_loss *loss;    /* where the first loss goes */
	struct pd_kernel_choice choice; /* for an update before the pass */
};
cudaError_t pd_kernel_set_numbers(cudaStream_t stream, struct pd_pass_numbers *numbers,
				  const struct pd_pass_numbers *value);

/* --- eltwise.cu: count elements; outputs may overwrite inputs */
/* a and b: the attributes of curves that have some (run/device/curve.def). */
cudaError_t pd_kernel_curve(cudaStream_t stream, enum pd_dtype dtype, enum pd_curve curve, float a,
			    float b, void *y, const void *x, size_t count);
/* kept: the output or the input, as pd_curve_from_output() says. */
cudaError_t pd_kernel_curve_back(cudaStream_t stream, enum pd_dtype dtype, enum pd_curve curve,
				 float a, float b, void *dx, const void *kept, const void *dy,
				 size_t count);
cudaError_t pd_kernel_mul(cudaStream_t stream, enum pd_dtype dtype, void *dst, const void *a,
			  const void *b, size_t count);
/*
 * --- broadcast.cu: an input is outer x inner elements, each repeated `extent` times to be outer x extent x
 * inner; extent 1: it is as it is
 */
struct pd_kernel_repeated {
	const void *values;
	int64_t extent, inner;
};
/* Computes dst = a b, or a + b, of count elements. */
cudaError_t pd_kernel_broadcast(cudaStream_t stream, enum pd_dtype dtype, bool product, void *dst,
				struct pd_kernel_repeated a, struct pd_kernel_repeated b, size_t count);
/*
 * Computes the gradient of an input of outer x inner elements, repeated `extent` times; other: the other one,
 * of a product; its values are NULL in a sum.
 */
cudaError_t pd_kernel_broadcast_back(cudaStream_t stream, enum pd_dtype dtype, void *dx,
				     const void *dy, struct pd_kernel_repeated other, int64_t outer,
				     int64_t extent, int64_t inner);

/* --- eltwise.cu, too */
/* Computes dst = src[0] + src[1] + ..., in that order, then relu; n is 1 to PD_KERNEL_SOURCES. */
#define PD_KERNEL_SOURCES 16
cudaError_t pd_kernel_sum(cudaStream_t stream, enum pd_dtype dtype, void *dst,
			  const void *const *src, int n, size_t count, bool relu);
/* Computes dst = a + b, or 0 where y, a relu's output, is 0. */
cudaError_t pd_kernel_sum_relu(cudaStream_t stream, enum pd_dtype dtype, void *dst, const void *a,
			       const void *b, const void *y, size_t count);
/* Draws the mask, one bit per element; each sample begins with a new byte. */
struct pd_kernel_dropout {
	uint64_t seed, stream;
	int64_t samples, elements;      /* in one sample */
	int64_t extent, inner;          /* of the axes that share a mask; none: 1, 1 */
	/* of one sample: element k lies at k % area * channels + k / area; plain: elements, 1 */
	int64_t area, channels;
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

/* --- upsample.cu: planes, in which elements are `step` apart, rows and columns resized as said */
struct pd_kernel_resize {
	struct pd_resize rows, columns;
	int64_t planes, step;           /* step: 1, or the number of channels, that of planes of a sample */
};
cudaError_t pd_kernel_upsample(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_resize *r,
			       void *y, const void *x);
cudaError_t pd_kernel_upsample_back(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_kernel_resize *r, void *dx, const void *dy);

/* --- layout.cu: samples of (channels, area) to (area, channels), or back */
cudaError_t pd_kernel_turn(cudaStream_t stream, enum pd_dtype dtype, void *dst, const void *src,
			   int64_t samples, int64_t channels, int64_t area, bool to_last);

/* --- widen.cu: one kernel converts several arrays of dtype to f32; they may not overlap */
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
	int64_t rows, channels;         /* rows: samples times elements of a plane */
	int64_t area;                   /* elements of a plane; 1: channels are last */
	size_t half;                    /* floats from a mean to its inverse deviation */
	float eps, momentum;
	bool relu;                      /* a relu follows; backward does its part, too */
};
/* Returns how many floats of `room` forward and backward take. */
size_t pd_kernel_norm_scratch(int64_t rows, int64_t channels);
/*
 * Writes `kept`: mean and inverse deviation and, with a relu, the scale and bias that forward read,
 * each n->half floats behind the one before.  Moves `running` (mean and variance), unless NULL.
 */
cudaError_t pd_kernel_norm(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_norm *n,
			   void *y, const void *x, const void *scale, const void *bias, float *kept,
			   float *running, float *room);
cudaError_t pd_kernel_norm_evaluate(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_kernel_norm *n, void *y, const void *x,
				    const void *scale, const void *bias, const float *running);
/*
 * dx: NULL where nobody wants it.  before: added to it, or NULL. dx may overwrite before or dy.
 * dy: with a relu, the gradient of the relu's output.
 */
cudaError_t pd_kernel_norm_back(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_norm *n, void *dx, const void *before,
				const void *x, const void *dy, const void *scale,
				const float *kept, float *d_scale, float *d_bias, float *room);
/* Sums each channel over many rows; room as above. */
cudaError_t pd_kernel_columns(cudaStream_t stream, enum pd_dtype dtype, float *sums, float *room,
			      const void *dy, int64_t rows, int64_t channels);

/* --- channels.cuh: samples of channels of some places, channels last or first */
struct pd_kernel_channels {
	int64_t samples, channels, area;
	bool last;
};

/* --- groupnorm.cu; kept: the means of all groups, then their inverse deviations */
struct pd_kernel_groupnorm {
	struct pd_kernel_channels channels;
	int64_t groups;                 /* of a sample */
	float eps;
};
cudaError_t pd_kernel_groupnorm(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_groupnorm *g,
				void *y, const void *x, const void *weight, const void *bias, float *kept);
/* Writes two sums for each channel of each sample into room, which the next two read. */
cudaError_t pd_kernel_groupnorm_sums(cudaStream_t stream, enum pd_dtype dtype,
				     const struct pd_kernel_groupnorm *g, float *room, const void *x,
				     const void *dy, const float *kept);
cudaError_t pd_kernel_groupnorm_parameters(cudaStream_t stream, const struct pd_kernel_groupnorm *g,
					   float *d_weight, float *d_bias, const float *room);
cudaError_t pd_kernel_groupnorm_back(cudaStream_t stream, enum pd_dtype dtype,
				     const struct pd_kernel_groupnorm *g, void *dx, const void *x,
				     const void *dy, const void *weight, const float *kept,
				     const float *room);

/* --- prelu.cu: of all, or of each channel, whose slope is an element of the weight; its channels may be one */
cudaError_t pd_kernel_prelu(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_channels *s,
			    void *y, const void *x, const void *weight);
cudaError_t pd_kernel_prelu_back(cudaStream_t stream, enum pd_dtype dtype,
				 const struct pd_kernel_channels *s, void *dx, const void *x,
				 const void *dy, const void *weight);
/* room: two floats for each channel of each sample */
cudaError_t pd_kernel_prelu_weight(cudaStream_t stream, enum pd_dtype dtype,
				   const struct pd_kernel_channels *s, float *d_weight, float *room,
				   const void *x, const void *dy);

/* --- layernorm.cu */
struct pd_kernel_layernorm {
	int64_t rows, width;
	size_t half;                    /* floats from a row's mean to its inverse deviation */
	float eps;
	bool centred;                   /* else the mean counts as 0: rmsnorm */
};
/* weight, bias: NULL where there is none; so d_weight, d_bias.  kept: means and inverse deviations, written. */
cudaError_t pd_kernel_layernorm(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_layernorm *n, void *y, const void *x,
				const void *weight, const void *bias, float *kept);
cudaError_t pd_kernel_layernorm_back(cudaStream_t stream, enum pd_dtype dtype,
				     const struct pd_kernel_layernorm *n, void *dx, const void *x,
				     const void *dy, const void *weight, const float *kept);
/*
 * Returns how many floats of `room` the parameters' gradients take; d_bias: NULL where there is
 * none.
 */
size_t pd_kernel_layernorm_room(int64_t rows, int64_t width);
cudaError_t pd_kernel_layernorm_parameters(cudaStream_t stream, enum pd_dtype dtype,
					   const struct pd_kernel_layernorm *n, float *d_weight,
					   float *d_bias, const void *x, const void *dy,
					   const float *kept, float *room);

/* --- attention.cu */
struct pd_kernel_attention {
	int64_t batch, heads, kv_heads;
	int64_t queries, keys;          /* rows of a sample */
	int64_t width, value_width;     /* of one head's queries and keys; of its values */
	bool causal, drops;
	int64_t window;                 /* query i sees keys after i - window; 0: all before */
	bool tensor_cores;              /* what pd_kernel_attention_mma_suits() says */
	float scale, p;
	uint64_t seed, stream;
	const struct pd_pass_numbers *numbers;
	const int32_t *lengths;         /* by sample; NULL: all keys are seen */
	const void *q, *k, *v;
	void *o;
	float *logs;                    /* by sample, head and query; forward writes it */
	/* by head and place of a key less that of a query, in units of log 2; NULL: there is no bias */
	float *bias;
	int64_t diagonals;              /* of a head, padded */
	struct pd_relative_range *ranges;       /* by bucket */
	int64_t buckets;
	/* Backward also reads d_o, writes delta, alike logs, and those gradients that are not NULL. */
	const void *d_o;
	float *delta;
	void *dq, *dk, *dv;
	float *d_bias;                  /* by sample, head, tile of queries and bucket; with a bias only */
};
cudaError_t pd_kernel_attention(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_attention *a);
cudaError_t pd_kernel_attention_back(cudaStream_t stream, enum pd_dtype dtype,
				     const struct pd_kernel_attention *a);

/* --- attention_bias.cu: by how far keys are from queries */
/* These count the diagonals, and what bias and d_bias have room for. */
int64_t pd_kernel_attention_diagonals(const struct pd_kernel_attention *a);
size_t pd_kernel_attention_bias_floats(const struct pd_kernel_attention *a);
size_t pd_kernel_attention_parts_floats(const struct pd_kernel_attention *a);
/* Writes bias and ranges; weight: by bucket and head. */
cudaError_t pd_kernel_attention_bias(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_attention *a,
				     const struct pd_relative *relative, const void *weight);
/* Adds up d_bias. */
cudaError_t pd_kernel_attention_bias_back(cudaStream_t stream, const struct pd_kernel_attention *a,
					  float *d_weight);

/* --- attention_mma.cu: the same on tensor cores, without deltas, which are there already */
/* Tells whether the current GPU has them, and the shape suits them. */
bool pd_kernel_attention_mma_suits(enum pd_dtype dtype, const struct pd_kernel_attention *a);
cudaError_t pd_kernel_attention_mma(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_kernel_attention *a);
cudaError_t pd_kernel_attention_mma_back(cudaStream_t stream, enum pd_dtype dtype,
					 const struct pd_kernel_attention *a);

/* The random numbers of weight_dropout for `count` elements of a weight, from element `first` on. */
struct pd_kernel_drop {
	uint64_t seed, stream;
	int64_t first, count;
	float p, scale;                 /* p 0: none is dropped */
};

/* --- lstm.cu: one direction of it; a row is a step of a sample, samples first */
struct pd_kernel_lstm {
	int64_t batch, steps, hidden;
	int64_t output;                 /* numbers of a row of what the layer gives */
	bool reversed;
	const int32_t *lengths;         /* NULL: all steps */
	/* of the lanes; 0: none */
	int64_t lanes;
	/* (batch, hidden): what the first step begins with; NULL without lanes.  again: is there */
	bool again;
	float *first_hidden, *first_cells;
};
/* The hidden state, of dtype, and first_hidden and first_cells, out of the lanes'. */
cudaError_t pd_kernel_lstm_begin(cudaStream_t stream, enum pd_dtype dtype,
				 const struct pd_kernel_lstm *m,
				 const struct pd_pass_numbers *numbers, void *hidden,
				 const float *lane_hidden, const float *lane_cells);
/* Copies the state back to the lanes, from the hidden state and the cells of all rows. */
cudaError_t pd_kernel_lstm_end(cudaStream_t stream, enum pd_dtype dtype,
			       const struct pd_kernel_lstm *m,
			       const struct pd_pass_numbers *numbers, const void *hidden,
			       const float *cells, float *lane_hidden, float *lane_cells);
/*
 * One step: sums, gates (which may be sums) and cells of all rows; product (batch, 4 hidden), or
 * NULL; biases: NULL, or both; hidden (batch, hidden) and y are written.
 */
cudaError_t pd_kernel_lstm(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_lstm *m,
			   int64_t step, const float *sums, const float *product,
			   const void *const biases[2], void *gates, float *cells, void *hidden,
			   void *y);
/*
 * The same backward.  d_hidden: what the step behind gives, or NULL at the last step, where d_cells is not
 * read.  Writes d_cells, and the gradients of the gates' sums into kept, rows of all, and d_sums
 * (batch, 4 hidden).
 */
cudaError_t pd_kernel_lstm_back(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_lstm *m, int64_t step, const void *gates,
				const float *cells, const void *dy, const float *d_hidden,
				float *d_cells, void *kept, void *d_sums);
/* The hidden states that rows were made from. */
cudaError_t pd_kernel_lstm_before(cudaStream_t stream, enum pd_dtype dtype,
				  const struct pd_kernel_lstm *m, void *before, const void *y);
/* DropConnect; drop's first and count are multiples of 4. */
cudaError_t pd_kernel_lstm_drop(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_drop *d,
				const struct pd_pass_numbers *numbers, void *y, const void *x);
/* dst = a + b, rounded once. */
cudaError_t pd_kernel_lstm_add(cudaStream_t stream, enum pd_dtype dtype, void *dst, const float *a,
			       const float *b, size_t count);

/* --- additive_attention.cu: by sample, query or key, and column */
struct pd_kernel_additive {
	int64_t batch, queries, keys, width;
	const int32_t *lengths;         /* by sample; NULL: all keys are seen */
	const void *k, *weight, *scale, *bias;
	const float *a, *b;             /* queries and keys, projected */
	float *u;                       /* room for width + 1 */
	float *p;                       /* by query and key; forward writes it, backward reads it */
	void *o;
	/* Backward reads the first and writes the others: gradients of the scores, of a, twice, and of
	 * b; and of each query its part of that of u. */
	const void *d_o;
	float *ds, *da, *du_rows;
	void *da_narrow, *db_narrow;    /* of the net's type */
};
cudaError_t pd_kernel_additive(cudaStream_t stream, enum pd_dtype dtype,
			       const struct pd_kernel_additive *a);
/* room: as for pd_kernel_columns. */
cudaError_t pd_kernel_additive_back(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_kernel_additive *a, float *d_bias,
				    float *d_weight, float *d_scale, float *room);
/* dk = part + P' dO */
cudaError_t pd_kernel_additive_values(cudaStream_t stream, enum pd_dtype dtype,
				      const struct pd_kernel_additive *a, void *dk,
				      const float *part);

/* --- loss.cu */
struct pd_kernel_logits {
	int64_t batch, rows, classes;   /* samples, rows of one, logits of a row */
	int64_t apart;                  /* elements from one row to the next; gradients have zeros in gaps */
	int64_t microbatches;           /* of a minibatch, over which the mean is taken */
	int32_t ignored;                /* a label */
	float smooth;
};
/*
 * out: one float per row; rows of samples from numbers->valid on and ignored rows become 0.
 * verdicts: one more int than rows.  number: which loss layer of the stage.
 */
cudaError_t pd_kernel_loss(cudaStream_t stream, enum pd_dtype dtype,
			   const struct pd_kernel_logits *s, const struct pd_pass_numbers *numbers,
			   int number, float *out, int32_t *verdicts, const void *x,
			   const int32_t *label);
/* scale: in device memory; NULL: 1.  verdicts: as forward wrote them. */
cudaError_t pd_kernel_loss_back(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_logits *s,
				const struct pd_pass_numbers *numbers, void *dx, const void *x,
				const int32_t *label, const int32_t *verdicts,
				const struct pd_scale *scale);
/* out: one float per sample; as above.  b: NULL: zeros. */
cudaError_t pd_kernel_mse(cudaStream_t stream, enum pd_dtype dtype,
			  const struct pd_pass_numbers *numbers, int number, float *out,
			  const void *a, const void *b, float weight, int64_t batch,
			  int64_t elements);
/* The gradient of a; factor: 2 times the weight over all elements of a minibatch. */
cudaError_t pd_kernel_mse_back(cudaStream_t stream, enum pd_dtype dtype,
			       const struct pd_pass_numbers *numbers, void *da, const void *a,
			       const void *b, const struct pd_scale *scale, float factor,
			       int64_t batch, int64_t elements);

/* --- axes.cu */
/* outer x first x between x second x inner elements; the second and the fourth axis change places */
struct pd_kernel_swap {
	int64_t outer, first, between, second, inner;
};
cudaError_t pd_kernel_swap(cudaStream_t stream, enum pd_dtype dtype,
			   const struct pd_kernel_swap *s, void *dst, const void *src);
/* outer x extent x inner elements to outer x inner, and back. */
cudaError_t pd_kernel_mean(cudaStream_t stream, enum pd_dtype dtype, void *y, const void *x,
			   int64_t outer, int64_t extent, int64_t inner);
cudaError_t pd_kernel_mean_back(cudaStream_t stream, enum pd_dtype dtype, void *dx,
				const void *dy, int64_t outer, int64_t extent, int64_t inner);

/* --- softmax.cu: along the middle one of three axes */
cudaError_t pd_kernel_softmax(cudaStream_t stream, enum pd_dtype dtype, void *y, const void *x,
			      int64_t outer, int64_t extent, int64_t inner);
cudaError_t pd_kernel_softmax_back(cudaStream_t stream, enum pd_dtype dtype, void *dx, const void *y,
				   const void *dy, int64_t outer, int64_t extent, int64_t inner);

/* --- axes.cu, too */
struct pd_kernel_rope {
	int64_t samples, positions;
	int64_t rows;                   /* heads of a position */
	int64_t pairs;                  /* of a head; those behind the rotary's stay as they are */
	struct pd_rotary rotary;
	bool interleaved, back;
};
cudaError_t pd_kernel_rope(cudaStream_t stream, enum pd_dtype dtype,
			   const struct pd_kernel_rope *r, void *dst, const void *src);

/* --- embedding.cu */
/*
 * row[i] = padding where number[i] is, else that plus how many of a sample's numbers up to this
 * one are
 * not.
 */
cudaError_t pd_kernel_numbered(cudaStream_t stream, int32_t *row, const int32_t *number,
			       int64_t samples,
			       int64_t positions, int32_t padding);
/*
 * y[i] = row id[i] of the weight, of width elements; zeros where there is no such row.  drop: its
 * elements are rows.
 */
cudaError_t pd_kernel_embedding(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_drop *drop,
				const struct pd_pass_numbers *numbers, void *y,
				const void *weight, const int32_t *id, int64_t places,
				int64_t rows, int64_t width);
/* The gradient of all rows; that of row `padding` is 0.  order: room for twice the places. */
cudaError_t pd_kernel_embedding_back(cudaStream_t stream, enum pd_dtype dtype,
				     const struct pd_kernel_drop *drop,
				     const struct pd_pass_numbers *numbers, float *d_weight,
				     int32_t *order, const void *dy, const int32_t *id,
				     int64_t places, int64_t rows, int64_t width, int64_t padding);
/* Adds the weight to each sample of `count` elements; backward sums over the samples. */
cudaError_t pd_kernel_positions(cudaStream_t stream, enum pd_dtype dtype, void *y, const void *x,
				const void *weight, int64_t samples, int64_t count);
/* Each of `samples` parts of y becomes the weight, each of whose count elements fills an area. */
cudaError_t pd_kernel_copies(cudaStream_t stream, enum pd_dtype dtype, void *y, const void *weight,
			     int64_t samples, int64_t count, int64_t area);
cudaError_t pd_kernel_positions_back(cudaStream_t stream, enum pd_dtype dtype, float *d_weight,
				     const void *dy, int64_t samples, int64_t count);

/* --- bias.cu: y[n][c][i] += bias[c], then relu; the gradient is the sum over n and i */
/* bias: NULL where there is none. */
cudaError_t pd_kernel_bias(cudaStream_t stream, enum pd_dtype dtype, void *y, const void *bias,
			   bool relu, int64_t batch, int64_t channels, int64_t area);
/* Returns how many floats of `room` the gradient takes. */
size_t pd_kernel_bias_scratch(int64_t batch, int64_t channels);
/* room: unused where area is 1, which is for few samples (else pd_kernel_columns). */
cudaError_t pd_kernel_bias_back(cudaStream_t stream, enum pd_dtype dtype, float *db, float *room,
				const void *dy, int64_t batch, int64_t channels, int64_t area);

/* --- update.cu: elements begin to end - 1 of the arenas; dtype: that of next and corrected */
/*
 * Runs pd_global_norm_factor in one thread, and writes the scale of the version made.  update->count
 * counts all updates.  choice: device memory; outcome: pinned host memory.
 */
cudaError_t pd_kernel_global_norm(cudaStream_t stream, const struct pd_update *update,
				  struct pd_kernel_choice *choice, struct pd_outcome *outcome);
/* The sums of squares of a tensor's weights and gradient, in device memory. */
struct pd_kernel_norms {
	double weights, gradient;
};
#define PD_KERNEL_ENDS 256              /* parameters of a kernel have some 4 KB */
struct pd_kernel_update {
	struct pd_update how;           /* not its norm */
	struct pd_kernel_choice chosen;         /* used where choice is NULL */
	const struct pd_kernel_choice *choice;  /* device memory */
	/*
	 * Elements that are spared have no weight decay, whatever the factors say.  Those before
	 * end[0] are as `spared` says, and at each end it turns.
	 */
	bool spared;
	int ends;
	size_t end[PD_KERNEL_ENDS];             /* ascending, in the arenas */
	/* Device memory: the tensor's, which has a rate of its own, and no ends.  Else NULL. */
	const struct pd_kernel_norms *norms;
};
cudaError_t pd_kernel_update(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_update *u,
			     size_t begin, size_t end);

/* --- mixed_sum.cu */
cudaError_t pd_kernel_mixed_sum(cudaStream_t stream, const struct pd_mixed_sum *what);

/* --- squares.cu */
#define PD_KERNEL_SQUARED 48            /* arrays of one launch */
#define PD_KERNEL_PIECES (1024 * PD_KERNEL_SQUARED)
struct pd_kernel_squared {
	double *sum_p;                  /* where the sum of the squares of `count` floats goes */
	const float *from;
	size_t count;
};
/* Computes the sums of squares of 1 to PD_KERNEL_SQUARED arrays; room: PD_KERNEL_PIECES doubles. */
cudaError_t pd_kernel_squares(cudaStream_t stream, double *room, const struct pd_kernel_squared *arrays,
			      int n);
/*
 * These set count elements: vector[i] = value; vector[i] = other[i] where vector[i] is PD_ABSENT.
 */
cudaError_t pd_kernel_fill(cudaStream_t stream, double *vector, double value, size_t count);
cudaError_t pd_kernel_unite(cudaStream_t stream, double *vector, const double *other,
			    size_t count);

/* --- chunks.cu */
cudaError_t pd_kernel_chunks(cudaStream_t stream, const struct pd_chunks *what);

#ifdef __cplusplus
}
#endif
