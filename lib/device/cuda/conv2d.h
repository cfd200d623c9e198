/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution as cuDNN knows it: conv2d.c, conv2d_choose.c, conv2d_widen.c. */
#ifndef PD_DEVICE_CUDA_CONV2D_H
#define PD_DEVICE_CUDA_CONV2D_H

#include "device/cuda/choice.h"
#include "device/cuda/conv2d_graph.h"
#include "device/cuda/cuda.h"

#ifndef CUDNN_STATUS_CATEGORY         /* before cuDNN 9 a status was one */
#define CUDNN_STATUS_CATEGORY(status) (status)
#endif

struct pd_cuda_conv {
	struct pd_cuda_own own;
	cudnnTensorDescriptor_t x, y, bias;
	cudnnFilterDescriptor_t w;
	cudnnActivationDescriptor_t after;
	cudnnConvolutionDescriptor_t conv[PD_WAYS];        /* each with its own arithmetic */
	int algorithm[PD_WAYS];         /* as the library counts them, for each way */
	struct pd_dnn_graph graph[PD_WAYS];
	struct pd_dnn_engine engine[PD_WAYS];   /* where it has a plan, instead of the algorithm */
	size_t workspace[PD_WAYS];
	bool relu, fused;               /* fused: one call does all of forward */
	size_t turned_bytes;            /* of the input in the other layout; 0: it is as wanted */
	size_t narrow_bytes;            /* of the weights' gradient in 16 bits; 0: it is f32 */
	/* of conv2d_widen.c, in a pass over the whole stage: */
	bool waits;                     /* the narrow gradient does, to be widened with others */
	size_t waits_at;                /* in the arena of gradients */
	struct pd_compiled_layer *waiting;      /* of those widened together, the one before */
};

/* Can one call do what follows, with this algorithm? */
static inline bool pd_cuda_conv_fuses(const struct pd_cuda_conv *c,
				      const struct pd_compiled_layer *l, int algorithm)
{
	/* without a relu the library has it for this algorithm alone */
	return l->layer->bias &&
	       (c->relu || algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
}

/* Algorithms or engines, and workspaces, of what was described; that of the input's gradient only
 * where it is wanted. */
int pd_cuda_conv_choose(struct pd_cuda_conv *c, struct pd_compiled_layer *l,
			struct pd_error *err);

/* --- conv2d_widen.c */
/* Says which of a stage's convolutions have their gradients widened together.  Once all layers are
 * placed. */
void pd_cuda_conv_group(struct pd_compiled *net);
/* Where this layer's narrow gradient is to be made: `room`, or where it waits. */
void *pd_cuda_conv_narrow(const struct pd_compiled_layer *l, const struct pd_pass *pass,
			  void *room);
/* It is made: widens it and what waited for it, or leaves it there. */
int pd_cuda_conv_widen(struct pd_compiled_layer *l, const struct pd_pass *pass, void *narrow,
		       struct pd_error *err);

#endif
