/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution by cuDNN, for conv2d.c, conv2d_choose.c and conv2d_widen.c. */
#pragma once

#include "run/device/cuda/choice.h"
#include "run/device/cuda/conv2d_graph.h"
#include "run/device/cuda/cuda.h"

#ifndef CUDNN_STATUS_CATEGORY         /* until cuDNN 9 a status was its category */
#define CUDNN_STATUS_CATEGORY(status) (status)
#endif

struct pd_cuda_conv {
	struct pd_cuda_own own;
	cudnnTensorDescriptor_t x, y, bias;
	cudnnFilterDescriptor_t w;
	cudnnActivationDescriptor_t after;
	cudnnConvolutionDescriptor_t conv[PD_PROPAGATIONS];        /* one per way, with its own arithmetic */
	int algorithm[PD_PROPAGATIONS];         /* the library's number, for each way */
	struct pd_dnn_graph graph[PD_PROPAGATIONS];
	/* replaces the algorithm of a way where it has a plan */
	struct pd_dnn_engine engine[PD_PROPAGATIONS];
	size_t workspace[PD_PROPAGATIONS];
	bool relu, fused;               /* fused: one call does the whole forward */
	size_t turned_bytes;	/* bytes of the input in the other layout; 0: it need not be turned */
	size_t narrow_bytes;            /* bytes of the weights' gradient in 16 bits; 0: it is f32 */
	/* for conv2d_widen.c, in a pass over the whole stage: */
	bool waits;                     /* the narrow gradient waits to be widened with others */
	size_t waits_at;                /* where it waits, in the arena of gradients */
	struct pd_compiled_layer *waiting;      /* the one before among those widened together */
};

/* Returns whether one call with this algorithm can do the bias and relu, too. */
static inline bool pd_cuda_conv_fuses(const struct pd_cuda_conv *c,
				      const struct pd_compiled_layer *l, int algorithm)
{
	/* without a relu the library fuses only this algorithm */
	return pd_cuda_conv_biased(l) &&
	       (c->relu || algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
}

/*
 * Chooses algorithms or engines, and their workspaces; that of the input's gradient only where it
 * is wanted.
 */
int pd_cuda_conv_choose(struct pd_cuda_conv *c, struct pd_compiled_layer *l,
			struct pd_error *err);

/*
 * Queues what the layer's output y must hold before the convolution runs forward: the bias, where that is
 * added to it (pd_cuda_conv_adds).
 */
int pd_cuda_conv_begin(const struct pd_compiled_layer *l, cudaStream_t stream, void *y,
		       const void *bias, struct pd_error *err);

/* --- conv2d_widen.c */
/*
 * Decides which convolutions of a stage have their gradients widened together, once all layers are
 * placed.
 */
void pd_cuda_conv_group(struct pd_compiled *net);
/* Returns where this layer's narrow gradient is to be made: `room`, or where it waits. */
void *pd_cuda_conv_narrow(const struct pd_compiled_layer *l, const struct pd_pass *pass,
			  void *room);
/* Widens the finished gradient and those that wait for it, or leaves it to wait. */
int pd_cuda_conv_widen(struct pd_compiled_layer *l, const struct pd_pass *pass, void *narrow,
		       struct pd_error *err);
