/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A convolution as an operation graph of cuDNN's: forward is followed by the addition of the
 * bias and the relu, between which there are only virtual tensors, of f32; the gradient of the
 * weights is made in f32, whatever the net's type.  Engines are cuDNN's heuristics' (modes A and
 * B), and always made anew of their names, so that what is timed is what a run makes.
 */
#include "device/cuda/conv2d_graph.h"

#include <stdlib.h>

#define DIMS 4

/* ---- descriptors ---- */

static cudnnBackendDescriptor_t create(struct pd_dnn_bag *bag, cudnnBackendDescriptorType_t type)
{
	cudnnBackendDescriptor_t made = NULL;

	if (bag->count == (int)PD_COUNT(bag->all) ||
	    cudnnBackendCreateDescriptor(type, &made) != CUDNN_STATUS_SUCCESS)
		return NULL;
	bag->all[bag->count++] = made;
	return made;
}

static void empty(struct pd_dnn_bag *bag)
{
	while (bag->count > 0)
		cudnnBackendDestroyDescriptor(bag->all[--bag->count]);
}

static bool set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
	return d && cudnnBackendSetAttribute(d, name, type, count, values) == CUDNN_STATUS_SUCCESS;
}

static bool set_part(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		     cudnnBackendDescriptor_t part)
{
	return part && set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static bool set_int(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, int64_t value)
{
	return set(d, name, CUDNN_TYPE_INT64, 1, &value);
}

static bool set_float(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, float value)
{
	return set(d, name, CUDNN_TYPE_FLOAT, 1, &value);
}

static bool set_type(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		     cudnnDataType_t type)
{
	return set(d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

/* The descriptor, if all was well with it and it is whole now. */
static cudnnBackendDescriptor_t finish(cudnnBackendDescriptor_t d, bool good)
{
	return good && cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS ? d : NULL;
}

static bool get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t room, int64_t *count_p, void *values)
{
	return cudnnBackendGetAttribute(d, name, type, room, count_p, values) ==
	       CUDNN_STATUS_SUCCESS;
}

/* ---- the operations ---- */

struct builder {
	struct pd_dnn_bag *bag;
	const struct pd_compiled_layer *l;
	cudnnDataType_t type;           /* the net's */
	bool last;
};

/* size: samples, channels, rows, columns; virtual: it is nowhere in memory. */
static cudnnBackendDescriptor_t tensor(const struct builder *b, char id, cudnnDataType_t type,
				       const int64_t size[DIMS], bool virtual)
{
	cudnnBackendDescriptor_t d = create(b->bag, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	int64_t area = size[2] * size[3], channels = size[1];
	const int64_t last[DIMS] = { channels * area, 1, size[3] * channels, channels };
	const int64_t plain[DIMS] = { channels * area, area, size[3], 1 };

	return finish(d, set_type(d, CUDNN_ATTR_TENSOR_DATA_TYPE, type) &&
		      set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DIMS, size) &&
		      set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DIMS,
			  b->last ? last : plain) &&
		      set_int(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, id) &&
		      set_int(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16) &&
		      set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &virtual));
}

/* Groups follow from the channels of x and w. */
static cudnnBackendDescriptor_t convolution(const struct builder *b)
{
	cudnnBackendDescriptor_t d = create(b->bag, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	const struct pd_layer *a = b->l->layer;
	const int64_t padding[] = { a->padding[0], a->padding[1] };
	const int64_t stride[] = { a->stride[0], a->stride[1] };
	const int64_t dilation[] = { a->dilation[0], a->dilation[1] };

	return finish(d, set_int(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2) &&
		      set_type(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT) &&
		      set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
			  &mode) &&
		      set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding) &&
		      set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding) &&
		      set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride) &&
		      set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation));
}

/* How the attributes of the three ways' operations are called. */
static const struct {
	cudnnBackendDescriptorType_t type;
	cudnnBackendAttributeName_t how, x, w, y, alpha, beta;
} operations[PD_WAYS] = {
	[PD_WAY_FORWARD] = {
		CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
	},
	[PD_WAY_DATA] = {
		CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
	},
	[PD_WAY_WEIGHTS] = {
		CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
	},
};

static cudnnBackendDescriptor_t convolve(const struct builder *b, int way,
					 cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t w,
					 cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t d = create(b->bag, operations[way].type);

	return finish(d, set_part(d, operations[way].how, convolution(b)) &&
		      set_part(d, operations[way].x, x) && set_part(d, operations[way].w, w) &&
		      set_part(d, operations[way].y, y) &&
		      set_float(d, operations[way].alpha, 1) &&
		      set_float(d, operations[way].beta, 0));
}

/* y = mode(x, second), element by element; second NULL: of x alone. */
static cudnnBackendDescriptor_t pointwise(const struct builder *b, cudnnPointwiseMode_t mode,
					  cudnnBackendDescriptor_t x,
					  cudnnBackendDescriptor_t second,
					  cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t how = create(b->bag, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
	cudnnBackendDescriptor_t d = create(b->bag, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

	how = finish(how, set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
			      &mode) &&
		     set_type(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT));
	return finish(d, set_part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how) &&
		      set_part(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x) &&
		      (!second || set_part(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, second)) &&
		      set_part(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
}

/* Fills operations; how many, or 0. */
static int forward(const struct builder *b, cudnnBackendDescriptor_t x,
		   cudnnBackendDescriptor_t w, const int64_t size[DIMS], bool relu,
		   cudnnBackendDescriptor_t made[3])
{
	cudnnBackendDescriptor_t y = tensor(b, 'y', b->type, size, false), from, to;
	bool bias = b->l->layer->bias;
	int n = 0;

	to = bias || relu ? tensor(b, 'c', CUDNN_DATA_FLOAT, size, true) : y;
	made[n++] = convolve(b, PD_WAY_FORWARD, x, w, to);
	if (bias) {
		const int64_t channels[DIMS] = { 1, size[1], 1, 1 };

		from = to;
		to = relu ? tensor(b, 'a', CUDNN_DATA_FLOAT, size, true) : y;
		made[n++] = pointwise(b, CUDNN_POINTWISE_ADD, from,
				      tensor(b, 'b', b->type, channels, false), to);
	}
	if (relu)
		made[n++] = pointwise(b, CUDNN_POINTWISE_RELU_FWD, to, NULL, y);
	for (int i = 0; i < n; i++)
		if (!made[i])
			return 0;
	return n;
}

static int build(const struct builder *b, int way, bool relu, cudnnBackendDescriptor_t made[3])
{
	const struct pd_layer *layer = b->l->layer;
	const int64_t *in = b->l->in_shape[0]->size, *out = layer->output.size;
	const int64_t *kernel = layer->parameters[0].size;
	const int64_t x_size[DIMS] = { b->l->net->batch, in[0], in[1], in[2] };
	const int64_t y_size[DIMS] = { b->l->net->batch, out[0], out[1], out[2] };
	const int64_t w_size[DIMS] = { kernel[0], kernel[1], kernel[2], kernel[3] };
	cudnnBackendDescriptor_t x = tensor(b, 'x', b->type, x_size, false);
	cudnnBackendDescriptor_t w = tensor(b, 'w', way == PD_WAY_WEIGHTS ? CUDNN_DATA_FLOAT
								     : b->type, w_size, false);

	if (way == PD_WAY_FORWARD)
		return forward(b, x, w, y_size, relu, made);
	made[0] = convolve(b, way, x, w, tensor(b, 'y', b->type, y_size, false));
	return made[0] ? 1 : 0;
}

/* PD_CUDA_ENGINES=no, for comparisons: none. */
bool pd_dnn_wanted(const struct pd_compiled_layer *l)
{
	const char *wish = getenv("PD_CUDA_ENGINES");

	if (wish && strcmp(wish, "no") == 0)
		return false;
	return l->net->dtype != PD_F32 || pd_cuda_engine(l)->tf32;
}

int pd_dnn_graph_open(struct pd_dnn_graph *g, const struct pd_compiled_layer *l, int way,
		      bool relu)
{
	const struct builder b = {
		.bag = &g->bag, .l = l, .last = pd_cuda_engine(l)->last,
		.type = l->net->dtype == PD_BF16 ? CUDNN_DATA_BFLOAT16
			: l->net->dtype == PD_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT,
	};
	cudnnBackendDescriptor_t made[3], d;
	cudnnHandle_t dnn = pd_cuda_engine(l)->dnn;
	int n = build(&b, way, relu, made);

	g->bias = way == PD_WAY_FORWARD && l->layer->bias;
	if (n > 0) {
		d = create(&g->bag, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
		g->graph = finish(d, set(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
					 1, &dnn) &&
				  set(d, CUDNN_ATTR_OPERATIONGRAPH_OPS,
				      CUDNN_TYPE_BACKEND_DESCRIPTOR, n, made));
	}
	if (g->graph)
		return 0;
	pd_dnn_graph_close(g);
	return -1;
}

void pd_dnn_graph_close(struct pd_dnn_graph *g)
{
	empty(&g->bag);
	g->graph = NULL;
}

/* ---- engines ---- */

/* What a configuration of the heuristics' consists of.  -1: it does not say. */
static int read_name(cudnnBackendDescriptor_t config, struct pd_engine_name *name)
{
	struct pd_dnn_bag bag = { .count = 0 };
	cudnnBackendDescriptor_t engine = create(&bag, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	cudnnBackendDescriptor_t knobs[PD_ENGINE_KNOBS];
	int64_t n = 0, got = 0;
	bool good = engine && get(config, CUDNN_ATTR_ENGINECFG_ENGINE,
				  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got, &engine) &&
		    get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got,
			&name->index);

	for (int k = 0; k < PD_ENGINE_KNOBS && good; k++) {
		knobs[k] = create(&bag, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
		good = knobs[k] != NULL;
	}
	good = good && get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
			   CUDNN_TYPE_BACKEND_DESCRIPTOR, PD_ENGINE_KNOBS, &n, knobs);
	good = good && n <= PD_ENGINE_KNOBS && name->index >= 0;
	for (int k = 0; k < n && good; k++) {
		cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;

		good = get(knobs[k], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
			   &got, &type) &&
		       get(knobs[k], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got,
			   &name->knobs[k].value) && name->knobs[k].value >= 0;
		name->knobs[k].type = (int)type;
	}
	name->knob_count = (int)n;
	empty(&bag);
	return good ? 0 : -1;
}

static bool same_name(const struct pd_engine_name *a, const struct pd_engine_name *b)
{
	bool same = a->index == b->index && a->knob_count == b->knob_count;

	for (int k = 0; k < a->knob_count && same; k++)
		same = a->knobs[k].type == b->knobs[k].type &&
		       a->knobs[k].value == b->knobs[k].value;
	return same;
}

/* Adds up to half of what there is room for. */
static int propose(const struct pd_dnn_graph *g, cudnnBackendHeurMode_t mode,
		   struct pd_engine_name *names, int n)
{
	struct pd_dnn_bag bag = { .count = 0 };
	cudnnBackendDescriptor_t found[PD_DNN_ENGINES / 2], d;
	int64_t count = 0;
	bool good;

	d = create(&bag, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	d = finish(d, set_part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph) &&
		   set(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
	good = d != NULL;
	for (size_t i = 0; i < PD_COUNT(found) && good; i++) {
		found[i] = create(&bag, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
		good = found[i] != NULL;
	}
	if (!good || !get(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
			  (int64_t)PD_COUNT(found), &count, found))
		count = 0;
	for (int64_t i = 0; i < count && i < (int64_t)PD_COUNT(found); i++) {
		bool known = read_name(found[i], &names[n]) < 0;

		for (int k = 0; k < n && !known; k++)
			known = same_name(&names[k], &names[n]);
		n += !known;
	}
	empty(&bag);
	return n;
}

int pd_dnn_propose(const struct pd_dnn_graph *g, struct pd_engine_name names[PD_DNN_ENGINES])
{
	return propose(g, CUDNN_HEUR_MODE_B, names, propose(g, CUDNN_HEUR_MODE_A, names, 0));
}

/* Does it promise the same bits every time, of the arithmetic that was asked for? */
static bool keeps(cudnnBackendDescriptor_t engine)
{
	cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	int64_t n = 0;

	if (!get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
		 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes))
		return false;
	for (int64_t i = 0; i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
		if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
		    notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
		    notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
			return false;
	return true;
}

static cudnnBackendDescriptor_t configure(struct pd_dnn_bag *bag, cudnnBackendDescriptor_t engine,
					  const struct pd_engine_name *name)
{
	cudnnBackendDescriptor_t knobs[PD_ENGINE_KNOBS], d;
	bool good = true;

	for (int k = 0; k < name->knob_count && good; k++) {
		cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)name->knobs[k].type;

		d = create(bag, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
		knobs[k] = finish(d, set(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
					 CUDNN_TYPE_KNOB_TYPE, 1, &type) &&
				  set_int(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
					  name->knobs[k].value));
		good = knobs[k] != NULL;
	}
	d = create(bag, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	return finish(d, good && set_part(d, CUDNN_ATTR_ENGINECFG_ENGINE, engine) &&
		      (name->knob_count == 0 ||
		       set(d, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
			   name->knob_count, knobs)));
}

int pd_dnn_engine_open(struct pd_dnn_engine *e, const struct pd_dnn_graph *g, cudnnHandle_t dnn,
		       const struct pd_engine_name *name)
{
	cudnnBackendDescriptor_t engine = create(&e->bag, CUDNN_BACKEND_ENGINE_DESCRIPTOR), d;
	int64_t bytes = -1, n = 0;

	e->bias = g->bias;
	e->name = *name;
	engine = finish(engine, set_part(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, g->graph) &&
			set_int(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, name->index));
	if (engine && keeps(engine)) {
		cudnnBackendDescriptor_t config = configure(&e->bag, engine, name);

		d = create(&e->bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
		e->plan = finish(d, set(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
					&dnn) &&
				 set_part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
	}
	if (e->plan && get(e->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
			   &n, &bytes) &&
	    bytes >= 0 && (uint64_t)bytes <= PD_CUDA_WORKSPACE_MOST) {
		e->workspace = (size_t)bytes;
		return 0;
	}
	pd_dnn_engine_close(e);
	return -1;
}

void pd_dnn_engine_close(struct pd_dnn_engine *e)
{
	empty(&e->bag);
	e->plan = NULL;
	e->workspace = 0;
}

cudnnStatus_t pd_dnn_run(const struct pd_dnn_engine *e, cudnnHandle_t dnn,
			 const struct pd_dnn_data *data)
{
	static const int64_t ids[] = { 'x', 'w', 'y', 'b' };
	const void *const at[] = { data->x, data->w, data->y, data->bias };
	struct pd_dnn_bag bag = { .count = 0 };
	cudnnBackendDescriptor_t d = create(&bag, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
	int64_t n = e->bias ? 4 : 3;
	cudnnStatus_t status = CUDNN_STATUS_INTERNAL_ERROR;

	d = finish(d, set(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids) &&
		   set(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at) &&
		   set(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
		       &data->workspace));
	if (d)
		status = cudnnBackendExecute(dnn, e->plan, d);
	empty(&bag);
	return status;
}
