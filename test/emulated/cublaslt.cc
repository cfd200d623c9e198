/* SPDX-License-Identifier: Apache-2.0 */
/* The part of cuBLASLt that lib/device/cuda uses, by definition; sums are taken in f32. */
#include "emulated.h"
#include "number.h"

#include <cublasLt.h>

#include <stdlib.h>
#include <string.h>

#define WORKSPACE 333           /* bytes of the first algorithm; twice that of the second, ... */

struct cublasLtContext {
	int unused;
};

/* What lies in the opaque structures; an algorithm's first word is its number, from 1. */
struct matrix {
	enum number type;
	int64_t rows, columns, step;
};
struct product {
	int32_t a, b;                   /* cublasOperation_t */
	uint32_t epilogue;
	const void *bias;
};

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
	*(matrix *)layout = { type == CUDA_R_16F ? F16 : type == CUDA_R_16BF ? BF16 : F32,
			      (int64_t)rows, (int64_t)columns, step };
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t how, size_t,
					       cublasComputeType_t, cudaDataType)
{
	*(product *)how = { CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL };
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t how,
					      cublasLtMatmulDescAttributes_t attribute,
					      const void *value, size_t bytes)
{
	product *p = (product *)how;

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

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t, size_t)
{
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
						    cublasLtMatmulPreferenceAttributes_t,
						    const void *, size_t)
{
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t how,
					      cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
					      cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
					      cublasLtMatmulPreference_t, int room,
					      cublasLtMatmulHeuristicResult_t found[], int *count)
{
	*count = 0;
	if (((product *)how)->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
	    getenv("PD_EMULATED_NO_FUSION"))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	for (; *count < 3 && *count < room; ++*count) {
		memset(&found[*count], 0, sizeof(found[*count]));
		found[*count].algo.data[0] = (uint64_t)*count + 1;
		found[*count].workspaceSize = WORKSPACE * ((size_t)*count + 1);
		found[*count].state = CUBLAS_STATUS_SUCCESS;
	}
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t how, const void *alpha,
			      const void *pa, cublasLtMatrixLayout_t la, const void *pb,
			      cublasLtMatrixLayout_t lb, const void *, const void *,
			      cublasLtMatrixLayout_t, void *pd, cublasLtMatrixLayout_t ld,
			      const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
			      cudaStream_t stream)
{
	const product p = *(product *)how;
	const matrix a = *(matrix *)la, b = *(matrix *)lb, d = *(matrix *)ld;
	bool ta = p.a == CUBLAS_OP_T, tb = p.b == CUBLAS_OP_T;
	int64_t inner = ta ? a.rows : a.columns;

	if (*(const float *)alpha != 1 || bytes != WORKSPACE * algorithm->data[0] ||
	    inner != (tb ? b.columns : b.rows) || d.rows != (ta ? a.columns : a.rows) ||
	    d.columns != (tb ? b.rows : b.columns))
		return CUBLAS_STATUS_INVALID_VALUE;
	emulated_queue(stream, [=]() {
		memset(workspace, 0xff, bytes);
		for (int64_t i = 0; i < d.rows * d.columns; i++) {
			int64_t row = i % d.rows, column = i / d.rows;
			float sum = 0;

			for (int64_t k = 0; k < inner; k++)
				sum += element(a, pa, ta, row, k) * element(b, pb, tb, k, column);
			if (p.epilogue & CUBLASLT_EPILOGUE_BIAS)
				sum += number_read(p.bias, row, d.type);
			if (p.epilogue & CUBLASLT_EPILOGUE_RELU && sum < 0)
				sum = 0;
			number_write(pd, row + column * d.step, d.type, sum);
		}
	});
	return CUBLAS_STATUS_SUCCESS;
}
}
