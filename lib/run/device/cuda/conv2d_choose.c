/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates are, in this order: the algorithms that cuDNN's heuristics propose, best first, if
 * they are deterministic, keep to the wanted arithmetic, and do with the workspace; and, where
 * candidates are timed or there is no algorithm, engines of the graph API under the same
 * conditions.  choice.h chooses among them.  A recorded engine is made from its name alone
 * (engine_name.h), before anything else is asked.
 *
 * There is no convolution of our own as a last resort.  The library has fallback engines for that,
 * and for every shape that was tried (test/unit/cudnn.c) one of them is deterministic, in every
 * type and with little workspace.
 */
#include "run/device/cuda/conv2d.h"

#include <stdlib.h>

struct candidates {
	int n;
	int algorithm[PD_CHOICES], codes[PD_CHOICES];
	cudnnMathType_t math[PD_CHOICES];
	struct pd_dnn_engine *engine[PD_CHOICES];       /* NULL: an algorithm */
	size_t workspace[PD_CHOICES], most;     /* most: the largest workspace */
};

/* Buffers for timing a candidate. */
struct trial {
	const struct pd_cuda_conv *c;
	const struct candidates *found;
	cudnnHandle_t dnn;
	int way;
	const struct pd_compiled_layer *l;
	void *x, *y, *w, *bias, *wide, *workspace;      /* wide: the gradient of w in f32 */
};

/* Returns whether a candidate may be used; *math_p is its arithmetic. */
static bool suits(const struct pd_compiled_layer *l, cudnnStatus_t status,
		  cudnnDeterminism_t determinism, cudnnMathType_t *math_p)
{
	if (status != CUDNN_STATUS_SUCCESS || determinism != CUDNN_DETERMINISTIC)
		return false;
	if (l->net->dtype != PD_F32)
		return true;
	/* with tf32, none that converts f32 to f16; without it, none but FMA */
	if (pd_cuda_engine(l)->tf32)
		return *math_p != CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
	if (*math_p != CUDNN_FMA_MATH && *math_p != CUDNN_DEFAULT_MATH)
		return false;
	*math_p = CUDNN_FMA_MATH;
	return true;
}

/*
 * Returns whether 16-bit outputs are rounded before the bias is added, too, since that is another
 * call.
 */
static bool rounds_twice(const struct pd_cuda_conv *c, const struct pd_compiled_layer *l, int way,
			 int algorithm)
{
	return way == PD_FORWARD && l->net->dtype != PD_F32 && pd_cuda_conv_biased(l) &&
	       !pd_cuda_conv_fuses(c, l, algorithm);
}

static void add(struct candidates *all, int algorithm, cudnnMathType_t math, size_t workspace)
{
	if (all->n == PD_CHOICES || workspace > PD_CUDA_WORKSPACE_MOST)
		return;
	all->algorithm[all->n] = algorithm;
	all->math[all->n] = math;
	all->codes[all->n] = 1 + 4 * algorithm + (int)math;
	all->workspace[all->n++] = workspace;
	if (workspace > all->most)
		all->most = workspace;
}

/*
 * Defines list_NAME() for a way.  Ways differ in names and in the order of arguments: proposed()
 * fills found and n, needs() returns an algorithm's workspace.  There may be no proposals.
 */
#define LIST(name, way, perf, most, proposed, needs) \
	static int list_##name(const struct pd_cuda_conv *c, const struct pd_compiled_layer *l, \
			       cudnnConvolutionDescriptor_t conv, struct candidates *all, \
			       struct pd_error *err) \
	{ \
		cudnnHandle_t dnn = pd_cuda_engine(l)->dnn; \
		perf found[2 * (most)]; \
		int n = 0; \
		cudnnStatus_t status = proposed; \
		\
		if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) \
			return 0; \
		if (pd_cudnn_check(status, "choosing an algorithm", err) < 0) \
			return -1; \
		for (int i = 0; i < n; i++) { \
			cudnnMathType_t math = found[i].mathType; \
			size_t bytes = 0; \
			\
			if (suits(l, found[i].status, found[i].determinism, &math) && \
			    !rounds_twice(c, l, way, (int)found[i].algo) && \
			    cudnnSetConvolutionMathType(conv, math) == CUDNN_STATUS_SUCCESS && \
			    (needs) == CUDNN_STATUS_SUCCESS) \
				add(all, (int)found[i].algo, math, bytes); \
		} \
		return 0; \
	}
LIST(forward, PD_FORWARD, cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
     cudnnGetConvolutionForwardAlgorithm_v7(dnn, c->x, c->w, conv, c->y, (int)PD_COUNT(found), &n,
					    found),
     cudnnGetConvolutionForwardWorkspaceSize(dnn, c->x, c->w, conv, c->y, found[i].algo, &bytes))
LIST(data, PD_BACKWARD_DATA, cudnnConvolutionBwdDataAlgoPerf_t, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT,
     cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, c->w, c->y, conv, c->x,
						 (int)PD_COUNT(found), &n, found),
     cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, c->w, c->y, conv, c->x, found[i].algo,
						  &bytes))
LIST(weights, PD_BACKWARD_WEIGHTS, cudnnConvolutionBwdFilterAlgoPerf_t,
     CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT,
     cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, c->x, c->y, conv, c->w,
						   (int)PD_COUNT(found), &n, found),
     cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn, c->x, c->y, conv, c->w, found[i].algo,
						    &bytes))
#undef LIST

/* Appends engines to the candidates. */
static void list_engines(struct pd_cuda_conv *c, const struct pd_compiled_layer *l, int way,
			 struct candidates *all)
{
	struct pd_engine_name *names;
	int n;

	if (!c->graph[way].graph &&
	    pd_dnn_graph_open(&c->graph[way], l, way, c->relu) < 0)
		return;
	names = pd_calloc(PD_DNN_ENGINES, sizeof(*names));
	n = pd_dnn_propose(&c->graph[way], names);
	for (int i = 0; i < n && all->n < PD_CHOICES; i++) {
		struct pd_dnn_engine *e = pd_zalloc(sizeof(*e));

		if (pd_dnn_engine_open(e, &c->graph[way], pd_cuda_engine(l)->dnn, &names[i]) < 0) {
			free(e);
			continue;
		}
		all->codes[all->n] = 0;
		all->workspace[all->n] = e->workspace;
		all->engine[all->n++] = e;
		if (e->workspace > all->most)
			all->most = e->workspace;
	}
	free(names);
}

static void close_engines(struct candidates *all)
{
	for (int i = 0; i < all->n; i++)
		if (all->engine[i]) {
			pd_dnn_engine_close(all->engine[i]);
			free(all->engine[i]);
		}
}

/* Queues a call that includes bias and relu: 1; 0 where the library cannot. */
static int queue_fused(const struct trial *t, int algorithm, void *workspace, size_t bytes)
{
	const struct pd_cuda_conv *c = t->c;
	const float one = 1, zero = 0;

	return pd_cuda_conv_fuses(c, t->l, algorithm) &&
	       cudnnConvolutionBiasActivationForward(
			t->dnn, &one, c->x, t->x, c->w, t->w, c->conv[PD_FORWARD],
			(cudnnConvolutionFwdAlgo_t)algorithm, workspace, bytes, &zero, c->y, t->y,
			c->bias, t->bias, c->after, c->y, t->y) == CUDNN_STATUS_SUCCESS;
}

/* Queues the rest of forward. */
static int queue_rest(const struct trial *t, bool bias, bool relu)
{
	const struct pd_compiled_layer *l = t->l;
	const struct pd_shape *out = &l->layer->output;
	int64_t samples, area;

	if (!bias && !relu)
		return 0;
	pd_cuda_rows(l, l->out, out, &samples, &area);
	return pd_kernel_bias(0, l->net->dtype, t->y, bias ? t->bias : NULL, relu, samples,
			      out->size[0], area) == cudaSuccess ? 0 : -1;
}

/* Queues the rest of the gradient of the weights. */
static int queue_widening(const struct trial *t)
{
	const struct pd_compiled_layer *l = t->l;
	const struct pd_kernel_widen w = {
		.n = 1,
		.arrays = { { t->wide, t->w, (size_t)l->layer->parameters[0].elements } },
	};

	if (l->net->dtype == PD_F32)
		return 0;
	return pd_kernel_widen(0, l->net->dtype, &w) == cudaSuccess ? 0 : -1;
}

static int queue_engine(const struct trial *t, const struct pd_dnn_engine *engine)
{
	const struct pd_dnn_data data = {
		.x = t->x, .w = t->w, .y = t->y, .bias = t->bias,
		.workspace = pd_cuda_workspace(t->workspace),
	};

	if (pd_dnn_run(engine, t->dnn, &data) != CUDNN_STATUS_SUCCESS)
		return -1;
	return t->way == PD_FORWARD ? queue_rest(t, false, t->c->relu && !engine->relu) : 0;
}

static int queue_algorithm(const struct trial *t, int candidate)
{
	const struct pd_cuda_conv *c = t->c;
	cudnnConvolutionDescriptor_t conv = c->conv[t->way];
	int algorithm = t->found->algorithm[candidate];
	size_t bytes = t->found->workspace[candidate];
	void *workspace = pd_cuda_workspace(t->workspace);
	const float one = 1, zero = 0, old = pd_cuda_conv_adds(t->l, t->way);
	cudnnStatus_t status;

	if (cudnnSetConvolutionMathType(conv, t->found->math[candidate]) != CUDNN_STATUS_SUCCESS)
		return -1;
	if (t->way == PD_FORWARD) {
		if (queue_fused(t, algorithm, workspace, bytes))
			return 0;
		status = cudnnConvolutionForward(t->dnn, &one, c->x, t->x, c->w, t->w, conv,
						 (cudnnConvolutionFwdAlgo_t)algorithm, workspace,
						 bytes, &zero, c->y, t->y);
		return status == CUDNN_STATUS_SUCCESS ? queue_rest(t, pd_cuda_conv_biased(t->l),
									   c->relu) : -1;
	}
	if (t->way == PD_BACKWARD_DATA)
		status = cudnnConvolutionBackwardData(t->dnn, &one, c->w, t->w, c->y, t->y, conv,
						      (cudnnConvolutionBwdDataAlgo_t)algorithm,
						      workspace, bytes, &old, c->x, t->x);
	else
		status = cudnnConvolutionBackwardFilter(t->dnn, &one, c->x, t->x, c->y, t->y, conv,
							(cudnnConvolutionBwdFilterAlgo_t)algorithm,
							workspace, bytes, &zero, c->w, t->w);
	return status == CUDNN_STATUS_SUCCESS ? 0 : -1;
}

static int queue(void *context, int candidate)
{
	const struct trial *t = context;
	const struct pd_dnn_engine *engine = t->found->engine[candidate];

	if (pd_cuda_conv_adds(t->l, t->way) &&
	    pd_cuda_conv_begin(t->l, 0, t->x, t->bias, NULL) < 0)
		return -1;
	if ((engine ? queue_engine(t, engine) : queue_algorithm(t, candidate)) < 0)
		return -1;
	return t->way == PD_BACKWARD_WEIGHTS ? queue_widening(t) : 0;
}

/* Chooses a candidate; the first where memory is too short to time them. */
static int choose(const struct pd_cuda_conv *c, struct pd_compiled_layer *l, int way,
		  const struct candidates *found)
{
	size_t elements = (size_t)l->layer->parameters[0].elements;
	size_t channels = (size_t)l->layer->output.size[0];
	enum pd_dtype type = l->net->dtype;
	size_t bytes = pd_dtype_bytes(type);
	struct trial t = {
		.c = c, .found = found, .dnn = pd_cuda_engine(l)->dnn, .way = way, .l = l,
	};
	int best = 0;

	if (!pd_cuda_times(l, way) ||
	    (pd_cuda_trial_memory(&t.x, type, pd_cuda_batch_bytes(l, pd_cuda_conv_x(l))) == 0 &&
	     pd_cuda_trial_memory(&t.y, type, pd_cuda_batch_bytes(l, pd_cuda_conv_y(l))) == 0 &&
	     pd_cuda_trial_memory(&t.w, type, bytes * elements) == 0 &&
	     pd_cuda_trial_memory(&t.bias, type, bytes * channels) == 0 &&
	     pd_cuda_trial_memory(&t.wide, PD_F32, sizeof(float) * elements) == 0 &&
	     pd_cuda_trial_memory(&t.workspace, type, pd_cuda_workspace_bytes(found->most)) == 0))
		best = pd_cuda_choose(l, way, found->codes, found->n,
				      &(struct pd_cuda_trial){ queue, &t });
	cudaFree(t.x);
	cudaFree(t.y);
	cudaFree(t.w);
	cudaFree(t.bias);
	cudaFree(t.wide);
	cudaFree(t.workspace);
	return best;
}

/* Records the engine of a way. */
static void record(const struct pd_cuda_conv *c, struct pd_compiled_layer *l, int way)
{
	char text[PD_ENGINE_TEXT];
	size_t before = l->engines ? strlen(l->engines) : 0, room = before + sizeof(text) + 2;
	char *joined = pd_calloc(1, room);

	pd_engine_print(text, way, &c->engine[way].name);
	snprintf(joined, room, "%s%s%s", before ? l->engines : "", before ? "; " : "", text);
	free(l->engines);
	l->engines = joined;
}

/* Opens the recorded engine of a way; returns whether there is one and it could be opened. */
static bool recorded(struct pd_cuda_conv *c, struct pd_compiled_layer *l, int way)
{
	struct pd_engine_name name;

	if (!pd_engine_find(l->recorded_engines, way, &name) ||
	    pd_dnn_graph_open(&c->graph[way], l, way, c->relu) < 0 ||
	    pd_dnn_engine_open(&c->engine[way], &c->graph[way], pd_cuda_engine(l)->dnn, &name) < 0)
		return false;
	c->workspace[way] = c->engine[way].workspace;
	record(c, l, way);
	return true;
}

/* Makes a candidate the algorithm or engine of the way. */
static int use_candidate(struct pd_cuda_conv *c, struct pd_compiled_layer *l, int way,
			 struct candidates *found, int best, struct pd_error *err)
{
	c->workspace[way] = found->workspace[best];
	if (found->engine[best]) {
		c->engine[way] = *found->engine[best];
		free(found->engine[best]);
		found->engine[best] = NULL;
		record(c, l, way);
		return 0;
	}
	c->algorithm[way] = found->algorithm[best];
	return pd_cudnn_check(cudnnSetConvolutionMathType(c->conv[way], found->math[best]),
			      "the arithmetic", err);
}

static int choose_way(struct pd_cuda_conv *c, struct pd_compiled_layer *l, int way,
		      struct pd_error *err)
{
	static int (*const list[PD_PROPAGATIONS])(const struct pd_cuda_conv *,
						  const struct pd_compiled_layer *,
						  cudnnConvolutionDescriptor_t, struct candidates *,
						  struct pd_error *) = {
		list_forward, list_data, list_weights
	};
	static const char *const what[PD_PROPAGATIONS] = {
		"forward", "gradient of the input", "gradient of the weights"
	};
	bool engines = pd_dnn_allowed();
	struct candidates found = { 0 };
	int status;

	if (engines && recorded(c, l, way))
		return 0;
	if (list[way](c, l, c->conv[way], &found, err) < 0)
		return -1;
	if (engines && (found.n == 0 || (pd_cuda_times(l, way) && pd_dnn_worth_timing(l))))
		list_engines(c, l, way, &found);
	if (found.n == 0)
		return pd_error_failed(err, "layer \"%s\": cuDNN has no %s for its %s in %s, %lld "
				       "samples, that is deterministic and needs at most %zu bytes "
				       "of workspace", l->layer->name,
				       engines ? "algorithm or engine"
					       : "algorithm (and PD_CUDA_ENGINES=no)",
				       what[pd_cuda_conv_way(l, way)],
				       pd_dtype_name[l->net->dtype], (long long)l->net->batch,
				       PD_CUDA_WORKSPACE_MOST);
	status = use_candidate(c, l, way, &found, choose(c, l, way, &found), err);
	close_engines(&found);
	return status;
}

/* Takes the choice of an earlier layer of the same convolutions. */
static void recall_convolutions(const struct pd_cuda_conv *c, struct pd_compiled_layer *l)
{
	const struct pd_shape x = pd_shape_plane(pd_cuda_conv_x(l)), y = pd_shape_plane(pd_cuda_conv_y(l));
	const struct pd_layer *a = l->layer;
	const int64_t what[] = {
		a->kind, x.size[0], x.size[1], x.size[2], y.size[0], y.size[1], y.size[2],
		a->kernel[0], a->kernel[1], a->stride[0], a->stride[1], a->padding[0], a->padding[1],
		a->dilation[0], a->dilation[1], a->groups, a->bias, c->relu, pd_cuda_conv_last(l),
	};

	pd_cuda_recall(l, what, (int)PD_COUNT(what));
}

int pd_cuda_conv_choose(struct pd_cuda_conv *c, struct pd_compiled_layer *l, struct pd_error *err)
{
	recall_convolutions(c, l);
	for (int way = 0; way < PD_PROPAGATIONS; way++)
		if ((way != pd_cuda_conv_way(l, PD_BACKWARD_DATA) || l->wants[0]) &&
		    choose_way(c, l, way, err) < 0)
			return -1;
	return 0;
}
