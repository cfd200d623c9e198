/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear by cuBLASLt, which stores matrices by columns.  N samples of F features, which we store by
 * rows, are to it a matrix of F rows and N columns with leading dimension F. With x (I, N), y (O,
 * N) and the weight, O rows of I, as W (I, O):
 *
 *    forward    y = W' x        gradients    dx = W dy,  dW = x dy'
 *
 * A sample of several dimensions counts as several rows along its last axis.
 *
 * The epilogue adds the bias, and does the relu behind it, where the library can.  In 16 bits the
 * gradient of the weights is f32 nevertheless.  Algorithms that sum in place are not used: of those
 * that split a sum, only the ones that store the parts and add them in a second step.
 */
#include "device/cuda/choice.h"
#include "device/cuda/cuda.h"

#define WORKSPACE_MOST ((size_t)32 << 20)
#define PRODUCTS 16	/* proposals that the library is asked for, at most PD_CHOICES */

struct product {
	cublasLtMatmulDescOpaque_t how;
	cublasLtMatrixLayoutOpaque_t a, b, d;
	cublasLtMatmulAlgo_t algorithm;
	size_t workspace;
};

struct linear {
	struct pd_cuda_own own;         /* has nothing to release, since the descriptors lie here */
	struct product products[PD_WAYS];
	bool fused;                     /* forward adds bias and relu */
	bool relu;
};

static cudaDataType type_of(const struct pd_compiled_layer *l)
{
	return l->net->dtype == PD_BF16 ? CUDA_R_16BF : l->net->dtype == PD_F16 ? CUDA_R_16F
										 : CUDA_R_32F;
}

static int set_bias(struct product *p, const void *bias, struct pd_error *err)
{
	return pd_cublas_check(cublasLtMatmulDescSetAttribute(&p->how,
							      CUBLASLT_MATMUL_DESC_BIAS_POINTER,
							      &bias, sizeof(bias)), "a bias", err);
}

static int set_how(struct product *p, bool tf32, bool a_transposed, bool b_transposed,
		   cublasLtEpilogue_t epilogue, struct pd_error *err)
{
	cublasOperation_t a = a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasOperation_t b = b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
	/* aligned as the bias will be */
	const void *aligned = (const void *)(uintptr_t)PD_ALIGN;
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
	return epilogue & CUBLASLT_EPILOGUE_BIAS ? set_bias(p, aligned, err) : 0;
}

static int set_matrix(cublasLtMatrixLayoutOpaque_t *m, cudaDataType type, int64_t rows,
		      int64_t columns, struct pd_error *err)
{
	return pd_cublas_check(cublasLtMatrixLayoutInit(m, type, (uint64_t)rows,
							(uint64_t)columns, rows), "a matrix", err);
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

/* Buffers for timing a candidate. */
struct trial {
	const struct product *p;
	const cublasLtMatmulHeuristicResult_t *found;
	cublasLtHandle_t blas;
	void *a, *b, *d, *workspace;
};

static int queue(void *context, int candidate)
{
	const struct trial *t = context;
	const cublasLtMatmulHeuristicResult_t *found = &t->found[candidate];
	cublasLtMatmulDescOpaque_t how = t->p->how;
	cublasLtMatrixLayoutOpaque_t a = t->p->a, b = t->p->b, d = t->p->d;
	const float one = 1, zero = 0;

	return cublasLtMatmul(t->blas, &how, &one, t->a, &a, t->b, &b, &zero, t->d, &d, t->d, &d,
			      &found->algo, pd_cuda_workspace(t->workspace), found->workspaceSize,
			      0) == CUBLAS_STATUS_SUCCESS ? 0 : -1;
}

/* Chooses one of n algorithms; the first where memory is too short to time them. */
static int pick(struct product *p, struct pd_compiled_layer *l, int way,
		const cublasLtMatmulHeuristicResult_t *found, int n)
{
	size_t x = sizeof(float) * pd_cuda_batch_elements(l, l->in_shape[0]);
	size_t y = sizeof(float) * pd_cuda_batch_elements(l, &l->layer->output);
	size_t w = sizeof(float) * (size_t)l->layer->parameters[0].elements;
	size_t a = way == PD_WAY_WEIGHTS ? x : w, b = way == PD_WAY_FORWARD ? x : y;
	size_t d = way == PD_WAY_FORWARD ? y : way == PD_WAY_DATA ? x : w;
	struct trial t = { .p = p, .found = found, .blas = pd_cuda_engine(l)->blas };
	enum pd_dtype type = l->net->dtype;
	int codes[PD_CHOICES], best = 0;
	size_t most = 0;

	for (int i = 0; i < n; i++) {
		codes[i] = 1 + i;
		most = found[i].workspaceSize > most ? found[i].workspaceSize : most;
	}
	/* the output may serve as the bias, which is one of its columns long */
	if (!l->net->measure ||
	    (pd_cuda_trial_memory(&t.a, type, a) == 0 &&
	     pd_cuda_trial_memory(&t.b, type, b) == 0 &&
	     pd_cuda_trial_memory(&t.d, type, d) == 0 &&
	     pd_cuda_trial_memory(&t.workspace, type, pd_cuda_workspace_bytes(most)) == 0 &&
	     set_bias(p, t.d, NULL) == 0))
		best = pd_cuda_choose(l, way, codes, n, &(struct pd_cuda_trial){ queue, &t });
	cudaFree(t.a);
	cudaFree(t.b);
	cudaFree(t.d);
	cudaFree(t.workspace);
	return best;
}

/* Finds an algorithm: 1, or 0 where there is none. */
static int find(struct product *p, struct pd_compiled_layer *l, int way, struct pd_error *err)
{
	cublasLtMatmulPreferenceOpaque_t preference;
	cublasLtMatmulHeuristicResult_t found[PRODUCTS];
	cublasStatus_t status;
	int n = 0, good = 0, best;

	if (prefer(&preference, err) < 0)
		return -1;
	status = cublasLtMatmulAlgoGetHeuristic(pd_cuda_engine(l)->blas, &p->how, &p->a, &p->b,
						&p->d, &p->d, &preference, PRODUCTS, found, &n);
	if (status == CUBLAS_STATUS_NOT_SUPPORTED)
		return 0;
	if (pd_cublas_check(status, "choosing an algorithm", err) < 0)
		return -1;
	while (good < n && found[good].state == CUBLAS_STATUS_SUCCESS)
		good++;
	if (good == 0)
		return 0;
	best = pick(p, l, way, found, good);
	p->algorithm = found[best].algo;
	p->workspace = found[best].workspaceSize;
	return 1;
}

static int choose(struct product *p, struct pd_compiled_layer *l, int way, struct pd_error *err)
{
	int verdict = find(p, l, way, err);

	if (verdict == 0)
		return pd_error_failed(err, "layer \"%s\": cuBLAS knows no way to multiply its "
				       "matrices", l->layer->name);
	return verdict < 0 ? -1 : 0;
}

/* Chooses forward's algorithm, with bias and relu if there is one. */
static int choose_forward(struct linear *linear, struct pd_compiled_layer *l,
			  struct pd_error *err)
{
	struct product *p = &linear->products[PD_WAY_FORWARD];
	bool tf32 = pd_cuda_engine(l)->tf32 && l->net->dtype == PD_F32;
	cublasLtEpilogue_t epilogue = linear->relu
		? l->layer->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU
		: l->layer->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
	int verdict;

	if (set_how(p, tf32, true, false, epilogue, err) < 0)
		return -1;
	verdict = find(p, l, PD_WAY_FORWARD, err);
	linear->fused = verdict > 0;
	if (verdict != 0)
		return verdict < 0 ? -1 : 0;
	return set_how(p, tf32, true, false, CUBLASLT_EPILOGUE_DEFAULT, err) < 0
		? -1 : choose(p, l, PD_WAY_FORWARD, err);
}

static int prepare_ways(struct pd_compiled_layer *l, struct linear *linear, struct pd_error *err)
{
	int64_t n = pd_cuda_matrix_rows(l, l->in_shape[0]), in = pd_shape_width(l->in_shape[0]);
	int64_t out = pd_shape_width(&l->layer->output);
	struct product *forward = &linear->products[PD_WAY_FORWARD];
	struct product *data = &linear->products[PD_WAY_DATA];
	struct product *weights = &linear->products[PD_WAY_WEIGHTS];
	bool tf32 = pd_cuda_engine(l)->tf32 && l->net->dtype == PD_F32;
	cudaDataType type = type_of(l);

	if (set_matrix(&forward->a, type, in, out, err) < 0 ||
	    set_matrix(&forward->b, type, in, n, err) < 0 ||
	    set_matrix(&forward->d, type, out, n, err) < 0 || choose_forward(linear, l, err) < 0)
		return -1;
	if (set_how(data, tf32, false, false, CUBLASLT_EPILOGUE_DEFAULT, err) < 0 ||
	    set_matrix(&data->a, type, in, out, err) < 0 ||
	    set_matrix(&data->b, type, out, n, err) < 0 ||
	    set_matrix(&data->d, type, in, n, err) < 0 ||
	    (l->wants[0] && choose(data, l, PD_WAY_DATA, err) < 0))
		return -1;
	if (set_how(weights, tf32, false, true, CUBLASLT_EPILOGUE_DEFAULT, err) < 0 ||
	    set_matrix(&weights->a, type, in, n, err) < 0 ||
	    set_matrix(&weights->b, type, out, n, err) < 0 ||
	    set_matrix(&weights->d, CUDA_R_32F, in, out, err) < 0)
		return -1;
	return choose(weights, l, PD_WAY_WEIGHTS, err);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct linear *linear;
	size_t back, sums;
	int64_t rows;

	if (!l->inside)
		return 0;
	l->own = linear = pd_zalloc(sizeof(*linear));
	linear->relu = pd_cuda_does_relu(l->net, l->index);
	if (prepare_ways(l, linear, err) < 0)
		return -1;
	rows = pd_cuda_matrix_rows(l, l->in_shape[0]);
	back = linear->products[PD_WAY_WEIGHTS].workspace;
	if (linear->products[PD_WAY_DATA].workspace > back)
		back = linear->products[PD_WAY_DATA].workspace;
	l->forward_bytes = pd_cuda_workspace_bytes(linear->products[PD_WAY_FORWARD].workspace);
	l->backward_bytes = pd_cuda_workspace_bytes(back);
	sums = sizeof(float) * pd_kernel_norm_scratch(rows, pd_shape_width(&l->layer->output));
	if (l->layer->bias && sums > l->backward_bytes)
		l->backward_bytes = sums;
	l->split_bytes = pd_cuda_batch_bytes(l, &l->layer->output);
	return 0;
}

static int multiply(struct pd_compiled_layer *l, struct product *p, const void *a, const void *b,
		    void *d, struct pd_error *err)
{
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	const float one = 1, zero = 0;
	cublasStatus_t status;

	status = cublasLtMatmul(engine->blas, &p->how, &one, a, &p->a, b, &p->b, &zero, d, &p->d, d,
				&p->d, &p->algorithm, pd_cuda_workspace(l->temporary),
				p->workspace, engine->stream);
	if (status == CUBLAS_STATUS_SUCCESS)
		return 0;
	return pd_error_failed(err, "layer \"%s\": cuBLAS: %s", l->layer->name,
			       cublasLtGetStatusString(status));
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct linear *linear = l->own;
	struct product *p = &linear->products[PD_WAY_FORWARD];

	if ((linear->fused && l->layer->bias && set_bias(p, l->parameters[1], err) < 0) ||
	    multiply(l, p, l->parameters[0], l->src[0], l->dst, err) < 0)
		return -1;
	if (linear->fused || (!l->layer->bias && !linear->relu))
		return 0;
	return pd_cuda_queued(l, pd_kernel_bias(pd_cuda_engine(l)->stream, l->net->dtype, l->dst,
						l->layer->bias ? l->parameters[1] : NULL,
						linear->relu,
						pd_cuda_matrix_rows(l, l->in_shape[0]),
						pd_shape_width(&l->layer->output), 1), err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct linear *linear = l->own;

	if (pass->part != PD_BACKWARD_INPUT) {
		if (multiply(l, &linear->products[PD_WAY_WEIGHTS], l->src[0], l->diff_dst,
			     l->diff_parameters[0], err) < 0)
			return -1;
		if (l->layer->bias &&
		    pd_cuda_queued(l, pd_kernel_columns(pd_cuda_engine(l)->stream, l->net->dtype,
							l->diff_parameters[1], l->temporary,
							l->diff_dst,
							pd_cuda_matrix_rows(l, l->in_shape[0]),
							pd_shape_width(&l->layer->output)),
				   err) < 0)
			return -1;
	}
	if (pass->part == PD_BACKWARD_WEIGHT || !l->diff_src[0])
		return 0;
	return multiply(l, &linear->products[PD_WAY_DATA], l->parameters[0], l->diff_dst,
			l->diff_src[0], err);
}

const struct pd_compiled_kind pd_cuda_linear = {
	.does_relu = true,
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
