/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution as cuDNN knows it: conv2d.c, conv2d_choose.c. */
#ifndef PD_DEVICE_CUDA_CONV2D_H
#define PD_DEVICE_CUDA_CONV2D_H

#include "device/cuda/choice.h"
#include "device/cuda/conv2d_graph.h"
#include "device/cuda/cuda.h"

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
	size_t narrow_bytes;            /* of the weights' gradient as it is made; 0: f32 */
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

#endif
