/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cuda/product.h"

#define WORKSPACE_MOST ((size_t)32 << 20)

cudaDataType pd_cuda_product_type(const struct pd_compiled_layer *l)
{
	return l->net->dtype == PD_BF16 ? CUDA_R_16BF : l->net->dtype == PD_F16 ? CUDA_R_16F
										 : CUDA_R_32F;
}

int pd_cuda_product_bias(struct pd_cuda_product *p, const void *bias, struct pd_error *err)
{
	return pd_cublas_check(cublasLtMatmulDescSetAttribute(&p->how,
							      CUBLASLT_MATMUL_DESC_BIAS_POINTER,
							      &bias, sizeof(bias)), "a bias", err);
}

int pd_cuda_product_how(struct pd_cuda_product *p, bool tf32, bool a_transposed, bool b_transposed,
			cublasLtEpilogue_t epilogue, struct pd_error *err)
{
	cublasOperation_t a = a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasOperation_t b = b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
	const void *aligned = (const void *)(uintptr_t)PD_ALIGN;        /* as the bias will be */
	cublasLtMatmulDesc_t how = &p->how;

	if (pd_cublas_check(cublasLtMatmulDescInit(how, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
							     : CUBLAS_COMPUTE_32F, CUDA_R_32F),
			    "a product", err) < 0 ||
	    pd_cublas_check(cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSA, &a,
							   sizeof(a)), "a product", err) < 0 ||
	    pd_cublas_check(cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSB, &b,
							   sizeof(b)), "a product", err) < 0)
		return -1;
	if (pd_cublas_check(cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_EPILOGUE,
							   &epilogue, sizeof(epilogue)),
			    "a bias", err) < 0)
		return -1;
	return epilogue & CUBLASLT_EPILOGUE_BIAS ? pd_cuda_product_bias(p, aligned, err) : 0;
}

int pd_cuda_product_matrix(cublasLtMatrixLayoutOpaque_t *m, cudaDataType type, int64_t rows,
			   int64_t columns, int64_t apart, struct pd_error *err)
{
	return pd_cublas_check(cublasLtMatrixLayoutInit(m, type, (uint64_t)rows,
							(uint64_t)columns, apart), "a matrix", err);
}

static int prefer(cublasLtMatmulPreferenceOpaque_t *p, struct pd_error *err)
{
	static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
	};
	const uint32_t apart = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, alignment = PD_ALIGN;
	const uint64_t workspace = WORKSPACE_MOST;

	if (pd_cublas_check(cublasLtMatmulPreferenceInit(p), "a choice", err) < 0 ||
	    pd_cublas_check(cublasLtMatmulPreferenceSetAttribute(
				p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
				sizeof(workspace)), "a choice", err) < 0 ||
	    pd_cublas_check(cublasLtMatmulPreferenceSetAttribute(
				p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &apart,
				sizeof(apart)), "a choice", err) < 0)
		return -1;
	for (size_t i = 0; i < PD_COUNT(aligned); i++)
		if (pd_cublas_check(cublasLtMatmulPreferenceSetAttribute(p, aligned[i], &alignment,
									 sizeof(alignment)),
				    "a choice", err) < 0)
			return -1;
	return 0;
}

int pd_cuda_product_find(struct pd_cuda_product *p, const struct pd_compiled_layer *l,
			 cublasLtMatmulHeuristicResult_t *found, struct pd_error *err)
{
	cublasLtMatmulPreferenceOpaque_t preference;
	cublasStatus_t status;
	int n = 0, good = 0;

	if (prefer(&preference, err) < 0)
		return -1;
	status = cublasLtMatmulAlgoGetHeuristic(pd_cuda_engine(l)->blas, &p->how, &p->a, &p->b,
						&p->d, &p->d, &preference, PD_CUDA_PRODUCTS, found,
						&n);
	if (status == CUBLAS_STATUS_NOT_SUPPORTED)
		return 0;
	if (pd_cublas_check(status, "choosing an algorithm", err) < 0)
		return -1;
	while (good < n && found[good].state == CUBLAS_STATUS_SUCCESS)
		good++;
	return good;
}

int pd_cuda_product_none(const struct pd_compiled_layer *l, struct pd_error *err)
{
	return pd_error_failed(err, "layer \"%s\": cuBLAS knows no way to multiply its matrices",
			       l->layer->name);
}

/* Describes the matrices that the way multiplies, and the one that it makes. */
static int set_ways(struct pd_cuda_product *p, const struct pd_compiled_layer *l, int way,
		    int64_t samples, int64_t in, int64_t out, cudaDataType made,
		    struct pd_error *err)
{
	cudaDataType type = pd_cuda_product_type(l);
	bool weights = way == PD_BACKWARD_WEIGHTS, forward = way == PD_FORWARD;
	int64_t b = forward ? in : out, d = forward ? out : in;

	return pd_cuda_product_matrix(&p->a, type, in, weights ? samples : out, in, err) < 0 ||
	       pd_cuda_product_matrix(&p->b, type, b, samples, b, err) < 0 ||
	       pd_cuda_product_matrix(&p->d, made, d, weights ? out : samples, d, err) < 0 ? -1 : 0;
}

int pd_cuda_product_prepare(struct pd_cuda_product *p, const struct pd_compiled_layer *l, int way,
			    int64_t samples, int64_t in, int64_t out, cudaDataType type,
			    struct pd_error *err)
{
	cublasLtMatmulHeuristicResult_t found[PD_CUDA_PRODUCTS];
	bool tf32 = pd_cuda_engine(l)->tf32 && l->net->dtype == PD_F32;
	int good;

	if (pd_cuda_product_how(p, tf32, way == PD_FORWARD, way == PD_BACKWARD_WEIGHTS,
				CUBLASLT_EPILOGUE_DEFAULT, err) < 0 ||
	    set_ways(p, l, way, samples, in, out, type, err) < 0)
		return -1;
	good = pd_cuda_product_find(p, l, found, err);
	if (good <= 0)
		return good < 0 ? -1 : pd_cuda_product_none(l, err);
	p->algorithm = found[0].algo;
	p->workspace = found[0].workspaceSize;
	return 0;
}

int pd_cuda_product_run(struct pd_cuda_product *p, const struct pd_compiled_layer *l,
			const void *a, const void *b, void *d, void *room, struct pd_error *err)
{
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	const float one = 1, zero = 0;
	cublasStatus_t status;

	status = cublasLtMatmul(engine->blas, &p->how, &one, a, &p->a, b, &p->b, &zero, d, &p->d, d,
				&p->d, &p->algorithm, pd_cuda_workspace(room), p->workspace,
				engine->stream);
	if (status == CUBLAS_STATUS_SUCCESS)
		return 0;
	return pd_error_failed(err, "layer \"%s\": cuBLAS: %s", l->layer->name,
			       cublasLtGetStatusString(status));
}
