/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A convolution as an operation graph of cuDNN. Forward is followed by the bias and the relu, with
 * virtual f32 tensors between them; no engine does a relu without a bias.  Everything in memory has
 * the net's type, the gradient of the weights, too: cuDNN sums it in f32, but has no engine that
 * writes it in f32 for 16-bit inputs, not even with a conversion behind it.
 */
#include "run/device/cuda/descriptor.h"

#include <stdlib.h>

#define DIMS 4

struct builder {
	struct pd_dnn_bag *bag;
	const struct pd_compiled_layer *l;
	cudnnDataType_t type;           /* the net's */
	bool last;
};

/* Makes a tensor's descriptor. size: samples, channels, rows, columns; virtual: not in memory. */
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

/* Makes the descriptor of the convolution; groups follow from the channels of x and w. */
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

/* The names of operations and attributes for each way. */
static const struct {
	cudnnBackendDescriptorType_t type;
	cudnnBackendAttributeName_t how, x, w, y, alpha, beta;
} operations[PD_PROPAGATIONS] = {
	[PD_FORWARD] = {
		CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
		CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
	},
	[PD_BACKWARD_DATA] = {
		CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
		CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
	},
	[PD_BACKWARD_WEIGHTS] = {
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
		      set_float(d, operations[way].beta, pd_cuda_conv_adds(b->l, way)));
}

/* Makes the operation y = mode(x, second), element by element; or mode(x) where second is NULL. */
static cudnnBackendDescriptor_t pointwise(const struct builder *b, cudnnPointwiseMode_t mode,
					  cudnnBackendDescriptor_t x,
					  cudnnBackendDescriptor_t second,
					  cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t how = create(b->bag, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
	cudnnBackendDescriptor_t d = create(b->bag, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	const cudnnNanPropagation_t keep = CUDNN_PROPAGATE_NAN;

	how = finish(how, set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
			      &mode) &&
		     set(how, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1,
			 &keep) &&
		     set_type(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT));
	return finish(d, set_part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how) &&
		      set_part(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x) &&
		      (!second || set_part(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, second)) &&
		      set_part(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
}

/* Fills `operations`, and returns how many, or 0. */
static int forward(const struct builder *b, cudnnBackendDescriptor_t x,
		   cudnnBackendDescriptor_t w, const int64_t size[DIMS], bool relu,
		   cudnnBackendDescriptor_t made[3])
{
	cudnnBackendDescriptor_t y = tensor(b, 'y', b->type, size, false), sum, biased;
	const int64_t channels[DIMS] = { 1, size[1], 1, 1 };
	int n = 0;

	if (!pd_cuda_conv_biased(b->l)) {
		made[0] = convolve(b, PD_FORWARD, x, w, y);
		return made[0] ? 1 : 0;
	}
	sum = tensor(b, 'c', CUDNN_DATA_FLOAT, size, true);
	biased = relu ? tensor(b, 'a', CUDNN_DATA_FLOAT, size, true) : y;
	made[n++] = convolve(b, PD_FORWARD, x, w, sum);
	made[n++] = pointwise(b, CUDNN_POINTWISE_ADD, sum,
			      tensor(b, 'b', b->type, channels, false), biased);
	if (relu)
		made[n++] = pointwise(b, CUDNN_POINTWISE_RELU_FWD, biased, NULL, y);
	for (int i = 0; i < n; i++)
		if (!made[i])
			return 0;
	return n;
}

static int build(const struct builder *b, int way, bool relu, cudnnBackendDescriptor_t made[3])
{
	const struct pd_shape in = pd_shape_plane(pd_cuda_conv_x(b->l)), out = pd_shape_plane(pd_cuda_conv_y(b->l));
	const int64_t *kernel = b->l->layer->kernel, *channels = b->l->layer->parameters[0].size;
	const int64_t x_size[DIMS] = { b->l->net->batch, in.size[0], in.size[1], in.size[2] };
	const int64_t y_size[DIMS] = { b->l->net->batch, out.size[0], out.size[1], out.size[2] };
	const int64_t w_size[DIMS] = { channels[0], channels[1], kernel[0], kernel[1] };
	cudnnBackendDescriptor_t x = tensor(b, 'x', b->type, x_size, false);
	cudnnBackendDescriptor_t w = tensor(b, 'w', b->type, w_size, false);

	if (way == PD_FORWARD)
		return forward(b, x, w, y_size, relu, made);
	made[0] = convolve(b, way, x, w, tensor(b, 'y', b->type, y_size, false));
	return made[0] ? 1 : 0;
}

bool pd_dnn_allowed(void)
{
	const char *wish = getenv("PD_CUDA_ENGINES");

	return !wish || strcmp(wish, "no") != 0;
}

bool pd_dnn_worth_timing(const struct pd_compiled_layer *l)
{
	return l->net->dtype != PD_F32 || pd_cuda_engine(l)->tf32;
}

int pd_dnn_graph_open(struct pd_dnn_graph *g, const struct pd_compiled_layer *l, int way,
		      bool relu)
{
	const struct builder b = {
		.bag = &g->bag, .l = l, .last = pd_cuda_conv_last(l),
		.type = l->net->dtype == PD_BF16 ? CUDNN_DATA_BFLOAT16
			: l->net->dtype == PD_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT,
	};
	cudnnBackendDescriptor_t made[3], d;
	cudnnHandle_t dnn = pd_cuda_engine(l)->dnn;
	int n;

	g->bias = way == PD_FORWARD && pd_cuda_conv_biased(l);
	g->relu = g->bias && relu;
	g->exact = l->net->dtype == PD_F32 && !pd_cuda_engine(l)->tf32;
	n = build(&b, way, g->relu, made);
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
