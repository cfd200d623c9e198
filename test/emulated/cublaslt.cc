/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of cuBLASLt that lib/run/device/cuda uses, computed by definition with sums in f32.  It refuses
 * products that the library has no algorithm for, and ends the program if pointers or workspaces are not
 * as the caller promised.
 */
#include "emulated.h"
#include "number.h"

#include <cublasLt.h>

#include <stdlib.h>
#include <string.h>

#define WORKSPACE 333           /* bytes of the first algorithm; the second has twice as many, ... */

struct cublasLtContext {
	int unused;
};

/*
 * The contents of the opaque structures.  An algorithm's first word is its number, from 1, and the next
 * the alignment that the caller promised for all matrices.
 */
struct matrix {
	enum number type;
	int64_t rows, columns, step;
};
struct product {
	int32_t a, b;                   /* cublasOperation_t */
	uint32_t epilogue;
	const void *bias;
	cublasComputeType_t arithmetic;
};
struct preference {
	uint64_t workspace;
	uint32_t alignment;             /* the least of the four matrices' */
};

static size_t bytes_of(enum number type)
{
	return type == F32 ? 4 : 2;
}

static size_t bytes_of(const matrix &m)
{
	return (size_t)(m.step * (m.columns - 1) + m.rows) * bytes_of(m.type);
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
	return (const char *)a < (const char *)b + b_bytes && (const char *)b < (const char *)a + a_bytes;
}

/* Tells whether the table of types in cuBLASLt's manual has these three matrices with sums in f32. */
static bool is_known(const product &p, const matrix &a, const matrix &b, const matrix &d)
{
	return a.type == b.type && (d.type == a.type || d.type == F32) &&
	       (p.arithmetic == CUBLAS_COMPUTE_32F ||
		(p.arithmetic == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type == F32));
}

static float element(const matrix &m, const void *at, bool transposed, int64_t row, int64_t column)
{
	return number_read(at, transposed ? column + row * m.step : row + column * m.step, m.type);
}

extern "C" {

EMULATED_LIBRARY(cublasStatus_t, CUBLAS_STATUS_SUCCESS, cublasLtGetStatusString, cublasLtCreate,
		 cublasLtDestroy, cublasLtHandle_t, cublasLtContext)

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t,
						 cudaDataType type, uint64_t rows,
						 uint64_t columns, int64_t step)
{
	if ((type != CUDA_R_16F && type != CUDA_R_16BF && type != CUDA_R_32F) || rows == 0 ||
	    columns == 0 || step < (int64_t)rows)
		return CUBLAS_STATUS_INVALID_VALUE;
	*(matrix *)layout = { type == CUDA_R_16F ? F16 : type == CUDA_R_16BF ? BF16 : F32,
			      (int64_t)rows, (int64_t)columns, step };
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t how, size_t,
					       cublasComputeType_t arithmetic, cudaDataType scale)
{
	if (scale != CUDA_R_32F)
		return CUBLAS_STATUS_INVALID_VALUE;
	*(product *)how = { CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL, arithmetic };
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t how,
					      cublasLtMatmulDescAttributes_t attribute,
					      const void *value, size_t bytes)
{
	product *p = (product *)how;

	if (bytes != (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof(void *) : sizeof(int32_t)))
		return CUBLAS_STATUS_INVALID_VALUE;
	switch (attribute) {
	case CUBLASLT_MATMUL_DESC_TRANSA:
		memcpy(&p->a, value, bytes);
		break;
	case CUBLASLT_MATMUL_DESC_TRANSB:
		memcpy(&p->b, value, bytes);
		break;
	case CUBLASLT_MATMUL_DESC_EPILOGUE:
		memcpy(&p->epilogue, value, bytes);
		break;
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
		memcpy(&p->bias, value, bytes);
		break;
	default:
		return CUBLAS_STATUS_NOT_SUPPORTED;
	}
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t p, size_t)
{
	*(preference *)p = { 0, 256 };
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t to,
						    cublasLtMatmulPreferenceAttributes_t attribute,
						    const void *value, size_t bytes)
{
	preference *p = (preference *)to;
	bool workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
	uint32_t alignment;

	if (bytes != (workspace ? sizeof(uint64_t) : sizeof(uint32_t)))
		return CUBLAS_STATUS_INVALID_VALUE;
	if (workspace) {
		memcpy(&p->workspace, value, bytes);
	} else if (attribute != CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
		memcpy(&alignment, value, bytes);
		if (alignment == 0 || (alignment & (alignment - 1)))
			return CUBLAS_STATUS_INVALID_VALUE;
		if (alignment < p->alignment)
			p->alignment = alignment;
	}
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t how,
					      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
					      cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
					      cublasLtMatmulPreference_t wish, int room,
					      cublasLtMatmulHeuristicResult_t found[], int *count)
{
	const preference *p = (preference *)wish;

	*count = 0;
	if (((product *)how)->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
	    getenv("PD_EMULATED_NO_FUSION"))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (!is_known(*(product *)how, *(matrix *)a, *(matrix *)b, *(matrix *)d))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	for (; *count < 3 && *count < room && WORKSPACE * ((size_t)*count + 1) <= p->workspace;
	     ++*count) {
		memset(&found[*count], 0, sizeof(found[*count]));
		found[*count].algo.data[1] = p->alignment;
		found[*count].algo.data[0] = (uint64_t)*count + 1;
		found[*count].workspaceSize = WORKSPACE * ((size_t)*count + 1);
		found[*count].state = CUBLAS_STATUS_SUCCESS;
	}
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t how, const void *alpha,
			      const void *pa, cublasLtMatrixLayout_t la, const void *pb,
			      cublasLtMatrixLayout_t lb, const void *beta, const void *pc,
			      cublasLtMatrixLayout_t, void *pd, cublasLtMatrixLayout_t ld,
			      const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
			      cudaStream_t stream)
{
	const product p = *(product *)how;
	const matrix a = *(matrix *)la, b = *(matrix *)lb, d = *(matrix *)ld;
	bool ta = p.a == CUBLAS_OP_T, tb = p.b == CUBLAS_OP_T;
	int64_t inner = ta ? a.rows : a.columns;

	if (*(const float *)alpha != 1 || *(const float *)beta != 0 || pc != pd || bytes != WORKSPACE * algorithm->data[0] ||
	    inner != (tb ? b.columns : b.rows) || d.rows != (ta ? a.columns : a.rows) ||
	    d.columns != (tb ? b.rows : b.columns))
		return CUBLAS_STATUS_INVALID_VALUE;
	if (!is_known(p, a, b, d))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	for (const void *array : { pa, pb, (const void *)pd })
		emulated_check_array(array, algorithm->data[1], "a matrix of a product");
	emulated_check_array(workspace, 256, "a product's workspace");
	if (p.epilogue & CUBLASLT_EPILOGUE_BIAS)
		emulated_check_array(p.bias, 16, "a product's bias");
	if (overlap(pd, bytes_of(d), pa, bytes_of(a)) || overlap(pd, bytes_of(d), pb, bytes_of(b)) ||
	    overlap(workspace, bytes, pa, bytes_of(a)) || overlap(workspace, bytes, pb, bytes_of(b)) ||
	    overlap(workspace, bytes, pd, bytes_of(d)))
		emulated_bug("a product's result or workspace lies where another of its matrices does");
	emulated_queue(stream, [=]() {
		memset(workspace, 0xff, bytes);
		for (int64_t i = 0; i < d.rows * d.columns; i++) {
			int64_t row = i % d.rows, column = i / d.rows;
			float sum = 0;

			for (int64_t k = 0; k < inner; k++)
				sum += element(a, pa, ta, row, k) * element(b, pb, tb, k, column);
			if (p.epilogue & CUBLASLT_EPILOGUE_BIAS)
				sum += number_read(p.bias, row, d.type);
			if (p.epilogue & CUBLASLT_EPILOGUE_RELU && !(sum > 0))  /* nobody promises NaN */
				sum = 0;
			number_write(pd, row + column * d.step, d.type, sum);
		}
	});
	return CUBLAS_STATUS_SUCCESS;
}
}
