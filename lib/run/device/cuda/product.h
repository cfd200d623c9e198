/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A product of matrices by cuBLASLt, which counts matrices by columns: what we have by rows, N
 * samples of F features, is to it a matrix of F rows and N columns, leading dimension F.  With x
 * (I, N), y (O, N) and weights, O rows of I, as W (I, O):
 *
 *     forward    y = W' x        gradients    dx = W dy,  dW = x dy'
 *
 * No algorithm that adds up in place: of those that split the sum only the ones that put the parts
 * apart and add them in a second step.
 */
#pragma once

#include "run/device/cuda/choice.h"
#include "run/device/cuda/cuda.h"

#define PD_CUDA_PRODUCTS 16             /* that the library is asked for; PD_CHOICES at most */

struct pd_cuda_product {
	cublasLtMatmulDescOpaque_t how;
	cublasLtMatrixLayoutOpaque_t a, b, d;
	cublasLtMatmulAlgo_t algorithm;
	size_t workspace;
};

/* cuBLAS's name of the net's type. */
cudaDataType pd_cuda_product_type(const struct pd_compiled_layer *l);
int pd_cuda_product_how(struct pd_cuda_product *p, bool tf32, bool a_transposed, bool b_transposed,
			cublasLtEpilogue_t epilogue, struct pd_error *err);
int pd_cuda_product_bias(struct pd_cuda_product *p, const void *bias, struct pd_error *err);
/* apart: from one column to the next. */
int pd_cuda_product_matrix(cublasLtMatrixLayoutOpaque_t *m, cudaDataType type, int64_t rows,
			   int64_t columns, int64_t apart, struct pd_error *err);
/* Algorithms, best first, into found, at most PD_CUDA_PRODUCTS: how many; -1 with *err. */
int pd_cuda_product_find(struct pd_cuda_product *p, const struct pd_compiled_layer *l,
			 cublasLtMatmulHeuristicResult_t *found, struct pd_error *err);
/* Says that none was found: -1. */
int pd_cuda_product_none(const struct pd_compiled_layer *l, struct pd_error *err);
/*
 * One of the three above, with `in` as I and `out` as O, of the net's type but for what comes out;
 * by the library's first algorithm.
 */
int pd_cuda_product_prepare(struct pd_cuda_product *p, const struct pd_compiled_layer *l, int way,
			    int64_t samples, int64_t in, int64_t out, cudaDataType type,
			    struct pd_error *err);
/* Queues it; room: for the workspace. */
int pd_cuda_product_run(struct pd_cuda_product *p, const struct pd_compiled_layer *l,
			const void *a, const void *b, void *d, void *room, struct pd_error *err);
