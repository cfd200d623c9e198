/* SPDX-License-Identifier: Apache-2.0 */
/*
 * additive_attention: see the CPU's.  Products of matrices are cuBLASLt's, which takes both of one
 * type: in 16 bits the gradients of the projections are rounded for it.
 */
#include "run/device/cuda/cuda.h"
#include "run/device/cuda/product.h"

enum { QUERIES, KEYS, LENGTHS };        /* inputs */
enum { QUERY_WEIGHT, KEY_WEIGHT, WEIGHT, SCALE, BIAS, PARAMETERS };
/* Products of queries, and, each the next, of keys: projections, gradients of inputs and weights. */
enum { PROJECT = 0, INPUT = 2, WEIGHTS = 4, PRODUCTS = 6 };

struct additive {
	struct pd_cuda_own own;         /* has nothing to release */
	struct pd_kernel_additive shape;
	struct pd_cuda_product products[PRODUCTS];
	size_t a, b, p;                 /* in the slot */
	size_t u, forward_u;            /* in scratch, as the rest */
	size_t ds, da, du_rows, da_narrow, db_narrow, dk, room;
	size_t kept[PARAMETERS];        /* gradients between the parts of backward */
};

/* Prepares the products of the queries (which: 0) or the keys (1), of so many rows. */
static int prepare_products(struct pd_compiled_layer *l, int which, int64_t rows,
			    struct pd_error *err)
{
	struct additive *n = l->own;
	struct pd_cuda_product *project = &n->products[PROJECT + which];
	struct pd_cuda_product *input = &n->products[INPUT + which];
	struct pd_cuda_product *weights = &n->products[WEIGHTS + which];
	cudaDataType type = pd_cuda_product_type(l), of_input = which == KEYS ? CUDA_R_32F : type;
	int64_t width = n->shape.width;

	return pd_cuda_product_prepare(project, l, PD_FORWARD, rows, width, width, CUDA_R_32F,
				       err) < 0 ||
	       pd_cuda_product_prepare(input, l, PD_BACKWARD_DATA, rows, width, width, of_input, err) < 0 ||
	       pd_cuda_product_prepare(weights, l, PD_BACKWARD_WEIGHTS, rows, width, width, CUDA_R_32F,
				       err) < 0 ? -1 : 0;
}

static size_t workspace_bytes(const struct additive *n)
{
	size_t most = 0;

	for (int p = 0; p < PRODUCTS; p++)
		if (n->products[p].workspace > most)
			most = n->products[p].workspace;
	return pd_cuda_workspace_bytes(most);
}

static void lay_out(struct pd_compiled_layer *l, struct additive *n)
{
	size_t queries = pd_cuda_batch_elements(l, l->in_shape[QUERIES]), f = sizeof(float);
	size_t keys = pd_cuda_batch_elements(l, l->in_shape[KEYS]);
	size_t pairs = (size_t)(n->shape.batch * n->shape.queries * n->shape.keys);
	size_t u = f * (size_t)(n->shape.width + 1), *back = &l->backward_bytes;

	n->a = pd_take(&l->extra_bytes, f * queries);
	n->b = pd_take(&l->extra_bytes, f * keys);
	n->p = pd_take(&l->extra_bytes, f * pairs);
	l->forward_bytes = l->backward_bytes = workspace_bytes(n);
	n->forward_u = pd_take(&l->forward_bytes, u);
	n->u = pd_take(back, u);
	n->ds = pd_take(back, f * pairs);
	n->da = pd_take(back, f * queries);
	n->du_rows = pd_take(back, f * queries);
	n->da_narrow = pd_take(back, pd_cuda_batch_bytes(l, l->in_shape[QUERIES]));
	n->db_narrow = pd_take(back, pd_cuda_batch_bytes(l, l->in_shape[KEYS]));
	n->dk = pd_take(back, f * keys);
	n->room = pd_take(back, f * pd_kernel_norm_scratch(n->shape.batch * n->shape.queries,
							   n->shape.width));
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct additive *n;

	if (!l->inside)
		return 0;
	l->own = n = pd_zalloc(sizeof(*n));
	n->shape = (struct pd_kernel_additive){
		.batch = l->net->batch, .queries = l->in_shape[QUERIES]->size[0],
		.keys = l->in_shape[KEYS]->size[0], .width = l->in_shape[QUERIES]->size[1],
	};
	if (prepare_products(l, QUERIES, n->shape.batch * n->shape.queries, err) < 0 ||
	    prepare_products(l, KEYS, n->shape.batch * n->shape.keys, err) < 0)
		return -1;
	lay_out(l, n);
	for (int p = 0; p < PARAMETERS; p++) {
		n->kept[p] = l->split_bytes;
		l->split_bytes += pd_compiled_reserved(l->net, sizeof(float) *
						       (size_t)l->layer->parameters[p].elements);
	}
	return 0;
}

static struct pd_kernel_additive kernel_of(const struct pd_compiled_layer *l, bool back)
{
	const struct additive *n = l->own;
	char *slot = l->extra, *scratch = l->temporary;
	struct pd_kernel_additive a = n->shape;

	a.lengths = l->layer->input_count > LENGTHS ? l->src[LENGTHS] : NULL;
	a.k = l->src[KEYS];
	a.weight = l->parameters[WEIGHT];
	a.scale = l->parameters[SCALE];
	a.bias = l->parameters[BIAS];
	a.o = l->dst;
	a.a = (float *)(slot + n->a);
	a.b = (float *)(slot + n->b);
	a.p = (float *)(slot + n->p);
	a.u = (float *)(scratch + (back ? n->u : n->forward_u));
	if (!back)
		return a;
	a.d_o = l->diff_dst;
	a.ds = (float *)(scratch + n->ds);
	a.da = (float *)(scratch + n->da);
	a.du_rows = (float *)(scratch + n->du_rows);
	a.da_narrow = scratch + n->da_narrow;
	a.db_narrow = scratch + n->db_narrow;
	return a;
}

static int multiply(struct pd_compiled_layer *l, int product, const void *a, const void *b, void *d,
		    struct pd_error *err)
{
	return pd_cuda_product_run(&((struct additive *)l->own)->products[product], l, a, b, d,
				   l->temporary, err);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_kernel_additive a = kernel_of(l, false);

	if (multiply(l, PROJECT + QUERIES, l->parameters[QUERY_WEIGHT], l->src[QUERIES],
		     (void *)a.a, err) < 0 ||
	    multiply(l, PROJECT + KEYS, l->parameters[KEY_WEIGHT], l->src[KEYS], (void *)a.b,
		     err) < 0)
		return -1;
	return pd_cuda_queued(l, pd_kernel_additive(pd_cuda_engine(l)->stream, l->net->dtype, &a),
			      err);
}

/* Copies the gradients that the first part of backward kept. */
static int take_kept(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct additive *n = l->own;

	for (int p = 0; p < PARAMETERS; p++)
		if (l->net->device->copy(l->net, l->diff_parameters[p],
					 (char *)l->split + n->kept[p], sizeof(float) *
					 (size_t)l->layer->parameters[p].elements, err) < 0)
			return -1;
	return 0;
}

static int inputs_back(struct pd_compiled_layer *l, const struct pd_kernel_additive *a,
		       struct pd_error *err)
{
	float *dk = (float *)((char *)l->temporary + ((const struct additive *)l->own)->dk);

	if (l->diff_src[QUERIES] &&
	    multiply(l, INPUT + QUERIES, l->parameters[QUERY_WEIGHT], a->da_narrow,
		     l->diff_src[QUERIES], err) < 0)
		return -1;
	if (!l->diff_src[KEYS])
		return 0;
	if (multiply(l, INPUT + KEYS, l->parameters[KEY_WEIGHT], a->db_narrow, dk, err) < 0)
		return -1;
	return pd_cuda_queued(l, pd_kernel_additive_values(pd_cuda_engine(l)->stream, l->net->dtype,
							   a, l->diff_src[KEYS], dk), err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_kernel_additive a = kernel_of(l, true);
	const struct additive *n = l->own;
	float *room = (float *)((char *)l->temporary + n->room), *d[PARAMETERS];

	if (pass->part == PD_BACKWARD_WEIGHT)
		return take_kept(l, err);
	for (int p = 0; p < PARAMETERS; p++)
		d[p] = pass->part == PD_BACKWARD_INPUT ? (float *)((char *)l->split + n->kept[p])
						       : l->diff_parameters[p];
	if (pd_cuda_queued(l, pd_kernel_additive_back(pd_cuda_engine(l)->stream, l->net->dtype, &a,
						      d[BIAS], d[WEIGHT], d[SCALE], room),
			   err) < 0 ||
	    multiply(l, WEIGHTS + QUERIES, l->src[QUERIES], a.da_narrow, d[QUERY_WEIGHT], err) < 0 ||
	    multiply(l, WEIGHTS + KEYS, l->src[KEYS], a.db_narrow, d[KEY_WEIGHT], err) < 0)
		return -1;
	return inputs_back(l, &a, err);
}

const struct pd_compiled_kind pd_cuda_additive_attention = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
