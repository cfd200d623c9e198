/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear: products by cuBLASLt (product.h).  Samples of several dimensions are as many rows of their
 * last axis.
 *
 * The bias is added in the epilogue, where the library can.  A relu behind it is not done there, since
 * no manual says what becomes of a NaN.  In 16 bits the gradient of the weights is f32 nevertheless.
 */
#include "run/device/cuda/product.h"

struct linear {
	struct pd_cuda_own own;         /* nothing to release: the descriptors lie here */
	struct pd_cuda_product products[PD_PROPAGATIONS];
	bool fused;                     /* forward adds the bias */
	/*
	 * Elements from one row of the output to the next.  Our own kernels go over gaps, too: those of the
	 * gradient are zeros, and arrays of parameters have room for a bias of this length.
	 */
	int64_t row;
};

static int output_of(const struct pd_compiled_layer *l)
{
	return l->net->model->input_count + l->index;
}

/* A candidate, and the memory that it is timed in. */
struct trial {
	const struct pd_cuda_product *p;
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

/* Picks the fastest of n algorithms, or the first if there is no memory to time them in. */
static int pick(struct pd_cuda_product *p, struct pd_compiled_layer *l, int way,
		const cublasLtMatmulHeuristicResult_t *found, int n)
{
	size_t x = sizeof(float) * pd_cuda_batch_elements(l, l->in_shape[0]);
	size_t y = sizeof(float) * pd_cuda_elements(l->net, output_of(l));
	size_t w = sizeof(float) * (size_t)l->layer->parameters[0].elements;
	size_t a = way == PD_BACKWARD_WEIGHTS ? x : w, b = way == PD_FORWARD ? x : y;
	size_t d = way == PD_FORWARD ? y : way == PD_BACKWARD_DATA ? x : w;
	struct trial t = { .p = p, .found = found, .blas = pd_cuda_engine(l)->blas };
	enum pd_dtype type = l->net->dtype;
	int codes[PD_CHOICES], best = 0;
	size_t most = 0;

	for (int i = 0; i < n; i++) {
		codes[i] = 1 + i;
		most = found[i].workspaceSize > most ? found[i].workspaceSize : most;
	}
	/* the output may serve as the bias, which is one of its columns long */
	if (!pd_cuda_times(l, way) ||
	    (pd_cuda_trial_memory(&t.a, type, a) == 0 &&
	     pd_cuda_trial_memory(&t.b, type, b) == 0 &&
	     pd_cuda_trial_memory(&t.d, type, d) == 0 &&
	     pd_cuda_trial_memory(&t.workspace, type, pd_cuda_workspace_bytes(most)) == 0 &&
	     pd_cuda_product_bias(p, t.d, NULL) == 0))
		best = pd_cuda_choose(l, way, codes, n, &(struct pd_cuda_trial){ queue, &t });
	cudaFree(t.a);
	cudaFree(t.b);
	cudaFree(t.d);
	cudaFree(t.workspace);
	return best;
}

/* 1, or 0: there is none. */
static int find_product(struct pd_cuda_product *p, struct pd_compiled_layer *l, int way,
			struct pd_error *err)
{
	cublasLtMatmulHeuristicResult_t found[PD_CUDA_PRODUCTS];
	int good = pd_cuda_product_find(p, l, found, err), best;

	if (good <= 0)
		return good;
	best = pick(p, l, way, found, good);
	p->algorithm = found[best].algo;
	p->workspace = found[best].workspaceSize;
	return 1;
}

static int choose(struct pd_cuda_product *p, struct pd_compiled_layer *l, int way,
		  struct pd_error *err)
{
	int verdict = find_product(p, l, way, err);

	if (verdict == 0)
		return pd_cuda_product_none(l, err);
	return verdict < 0 ? -1 : 0;
}

/* Chooses forward's algorithm, with the bias if there is one. */
static int choose_forward(struct linear *linear, struct pd_compiled_layer *l,
			  struct pd_error *err)
{
	struct pd_cuda_product *p = &linear->products[PD_FORWARD];
	bool tf32 = pd_cuda_engine(l)->tf32 && l->net->dtype == PD_F32;
	cublasLtEpilogue_t epilogue = l->layer->bias ? CUBLASLT_EPILOGUE_BIAS
						     : CUBLASLT_EPILOGUE_DEFAULT;
	int verdict;

	if (pd_cuda_product_how(p, tf32, true, false, epilogue, err) < 0)
		return -1;
	verdict = find_product(p, l, PD_FORWARD, err);
	linear->fused = verdict > 0;
	if (verdict != 0)
		return verdict < 0 ? -1 : 0;
	return pd_cuda_product_how(p, tf32, true, false, CUBLASLT_EPILOGUE_DEFAULT, err) < 0
		? -1 : choose(p, l, PD_FORWARD, err);
}

/* Takes the choice of an earlier layer of the same products. */
static void recall_products(struct pd_compiled_layer *l, const struct linear *linear)
{
	const int64_t what[] = {
		l->layer->kind, pd_cuda_matrix_rows(l, l->in_shape[0]), pd_shape_width(l->in_shape[0]),
		pd_shape_width(&l->layer->output), linear->row, l->layer->bias,
	};

	pd_cuda_recall(l, what, (int)PD_COUNT(what));
}

static int prepare_ways(struct pd_compiled_layer *l, struct linear *linear, struct pd_error *err)
{
	int64_t n = pd_cuda_matrix_rows(l, l->in_shape[0]), in = pd_shape_width(l->in_shape[0]);
	int64_t out = pd_shape_width(&l->layer->output), row = linear->row;
	struct pd_cuda_product *forward = &linear->products[PD_FORWARD];
	struct pd_cuda_product *data = &linear->products[PD_BACKWARD_DATA];
	struct pd_cuda_product *weights = &linear->products[PD_BACKWARD_WEIGHTS];
	bool tf32 = pd_cuda_engine(l)->tf32 && l->net->dtype == PD_F32;
	cudaDataType type = pd_cuda_product_type(l);

	if (pd_cuda_product_matrix(&forward->a, type, in, out, in, err) < 0 ||
	    pd_cuda_product_matrix(&forward->b, type, in, n, in, err) < 0 ||
	    pd_cuda_product_matrix(&forward->d, type, out, n, row, err) < 0 ||
	    choose_forward(linear, l, err) < 0)
		return -1;
	if (pd_cuda_product_how(data, tf32, false, false, CUBLASLT_EPILOGUE_DEFAULT, err) < 0 ||
	    pd_cuda_product_matrix(&data->a, type, in, out, in, err) < 0 ||
	    pd_cuda_product_matrix(&data->b, type, out, n, row, err) < 0 ||
	    pd_cuda_product_matrix(&data->d, type, in, n, in, err) < 0 ||
	    (l->wants[0] && choose(data, l, PD_BACKWARD_DATA, err) < 0))
		return -1;
	if (pd_cuda_product_how(weights, tf32, false, true, CUBLASLT_EPILOGUE_DEFAULT, err) < 0 ||
	    pd_cuda_product_matrix(&weights->a, type, in, n, in, err) < 0 ||
	    pd_cuda_product_matrix(&weights->b, type, out, n, row, err) < 0 ||
	    pd_cuda_product_matrix(&weights->d, CUDA_R_32F, in, out, in, err) < 0)
		return -1;
	return choose(weights, l, PD_BACKWARD_WEIGHTS, err);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct linear *linear;
	size_t back, sums;
	int64_t rows;

	if (!l->inside)
		return 0;
	l->own = linear = pd_zalloc(sizeof(*linear));
	linear->row = pd_cuda_row(l->net, output_of(l));
	recall_products(l, linear);
	if (prepare_ways(l, linear, err) < 0)
		return -1;
	rows = pd_cuda_matrix_rows(l, l->in_shape[0]);
	back = linear->products[PD_BACKWARD_WEIGHTS].workspace;
	if (linear->products[PD_BACKWARD_DATA].workspace > back)
		back = linear->products[PD_BACKWARD_DATA].workspace;
	l->forward_bytes = pd_cuda_workspace_bytes(linear->products[PD_FORWARD].workspace);
	l->backward_bytes = pd_cuda_workspace_bytes(back);
	sums = sizeof(float) * pd_kernel_norm_scratch(rows, linear->row);
	if (l->layer->bias && sums > l->backward_bytes)
		l->backward_bytes = sums;
	l->split_bytes = pd_dtype_bytes(l->net->dtype) * pd_cuda_elements(l->net, output_of(l));
	return 0;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct linear *linear = l->own;
	struct pd_cuda_product *p = &linear->products[PD_FORWARD];

	if ((linear->fused && l->layer->bias &&
	     pd_cuda_product_bias(p, l->parameters[1], err) < 0) ||
	    pd_cuda_product_run(p, l, l->parameters[0], l->src[0], l->dst, l->temporary, err) < 0)
		return -1;
	if (linear->fused || !l->layer->bias)
		return 0;
	return pd_cuda_queued(l, pd_kernel_bias(pd_cuda_engine(l)->stream, l->net->dtype, l->dst,
						l->parameters[1], false,
						pd_cuda_matrix_rows(l, l->in_shape[0]),
						linear->row, 1), err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct linear *linear = l->own;

	if (pass->part != PD_BACKWARD_INPUT) {
		if (pd_cuda_product_run(&linear->products[PD_BACKWARD_WEIGHTS], l, l->src[0],
					l->diff_dst, l->diff_parameters[0], l->temporary, err) < 0)
			return -1;
		if (l->layer->bias &&
		    pd_cuda_queued(l, pd_kernel_columns(pd_cuda_engine(l)->stream, l->net->dtype,
							l->diff_parameters[1], l->temporary,
							l->diff_dst,
							pd_cuda_matrix_rows(l, l->in_shape[0]),
							linear->row), err) < 0)
			return -1;
	}
	if (pass->part == PD_BACKWARD_WEIGHT || !l->diff_src[0])
		return 0;
	return pd_cuda_product_run(&linear->products[PD_BACKWARD_DATA], l, l->parameters[0],
				   l->diff_dst, l->diff_src[0], l->temporary, err);
}

const struct pd_compiled_kind pd_cuda_linear = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
