/* SPDX-License-Identifier: Apache-2.0 */
/* The part of cuDNN that lib/run/device/cuda uses, computed by definition with sums in f32. */
#include "emulated.h"
#include "number.h"

#include <cudnn.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vector>

/* A tensor of samples, channels, rows, columns, or a kernel of outputs, inputs, rows, columns. */
struct array {
	enum number type;
	int size[4];
	int64_t step[4];
};

struct cudnnContext {
	cudaStream_t stream;
};
struct cudnnTensorStruct : array {
};
struct cudnnFilterStruct : array {
};
struct cudnnConvolutionStruct {
	int padding[2], stride[2], dilation[2], groups;
	cudnnMathType_t math;
};
struct cudnnActivationStruct {
	bool relu, keeps_nan;
	float most;
};

static void describe(array *a, cudnnTensorFormat_t format, cudnnDataType_t type, int n, int c,
		     int h, int w)
{
	*a = { type == CUDNN_DATA_HALF ? F16 : type == CUDNN_DATA_BFLOAT16 ? BF16 : F32,
	       { n, c, h, w }, {} };
	if (format == CUDNN_TENSOR_NHWC) {
		a->step[1] = 1;
		a->step[3] = c;
		a->step[2] = (int64_t)w * c;
	} else {
		a->step[3] = 1;
		a->step[2] = w;
		a->step[1] = (int64_t)h * w;
	}
	a->step[0] = (int64_t)c * h * w;
}

static int64_t place(const array &a, int n, int c, int h, int w)
{
	return n * a.step[0] + c * a.step[1] + h * a.step[2] + w * a.step[3];
}

static size_t elements(const array &a)
{
	return (size_t)a.size[0] * a.size[1] * a.size[2] * a.size[3];
}

/* Overwrites a workspace, since its contents may not be read afterwards. */
static void soil(void *workspace, size_t bytes)
{
	memset(workspace, 0xff, bytes);
}

/* Calls visit(channel, place) for each element of a tensor with the channels first. */
template <typename Visit> static void each_element(const array &x, Visit visit)
{
	int64_t area = (int64_t)x.size[2] * x.size[3];

	for (int64_t i = 0; i < (int64_t)elements(x); i++)
		visit(i / area % x.size[1], i);
}

/* ---- convolutions ---- */

/* Tells whether shapes and types fit together, and layouts if they differ at all. */
static bool fits(const array &x, const array &w, const cudnnConvolutionStruct &c, const array &y)
{
	bool flat = w.size[1] == 1 || w.size[2] * w.size[3] == 1 || x.size[1] == 1;

	if (x.type != w.type || x.type != y.type || x.size[0] != y.size[0] ||
	    w.size[0] != y.size[1] || w.size[1] * c.groups != x.size[1])
		return false;
	for (int i = 0; i < 2; i++) {
		int kernel = (w.size[2 + i] - 1) * c.dilation[i] + 1;

		if ((x.size[2 + i] + 2 * c.padding[i] - kernel) / c.stride[i] + 1 != y.size[2 + i])
			return false;
	}
	return flat || (x.step[1] == 1) == (w.step[1] == 1);
}

/* Calls visit(channel, row and column in w, row and column in x) for each product of an output. */
template <typename Visit>
static void each_input(const array &x, const array &w, const cudnnConvolutionStruct &c, int row,
		       int column, Visit visit)
{
	for (int channel = 0; channel < w.size[1]; channel++)
		for (int a = 0; a < w.size[2]; a++) {
			int p = row * c.stride[0] - c.padding[0] + a * c.dilation[0];

			for (int b = 0; b < w.size[3] && p >= 0 && p < x.size[2]; b++) {
				int q = column * c.stride[1] - c.padding[1] + b * c.dilation[1];

				if (q >= 0 && q < x.size[3])
					visit(channel, a, b, p, q);
			}
		}
}

/* Calls visit(place in x, place in w, place in y) for each product of the convolution. */
template <typename Visit>
static void each(const array &x, const array &w, const cudnnConvolutionStruct &c, const array &y,
		 Visit visit)
{
	int outputs = w.size[0] / c.groups;

	for (int n = 0; n < y.size[0]; n++)
		for (int k = 0; k < y.size[1]; k++)
			for (int row = 0; row < y.size[2]; row++)
				for (int column = 0; column < y.size[3]; column++) {
					int first = k / outputs * w.size[1];
					int64_t out = place(y, n, k, row, column);

					each_input(x, w, c, row, column, [&](int channel, int a, int b, int p, int q) {
						visit(place(x, n, first + channel, p, q),
						      place(w, k, channel, a, b), out);
					});
				}
}

static std::vector<float> numbers(const void *from, const array &a)
{
	std::vector<float> list(from ? elements(a) : 0);

	for (size_t i = 0; i < list.size(); i++)
		list[i] = number_read(from, i, a.type);
	return list;
}

enum way { FORWARD, DATA, WEIGHTS };

/* A convolution, of whose tensors x, w, y one is computed from the other two. */
struct convolution {
	array x, w, y;
	cudnnConvolutionStruct how;
	const void *px, *pw, *py, *bias;
	bool relu;
	float old = 0;                  /* what the old contents of the result are multiplied by */
	float most = INFINITY;          /* the largest number that the relu lets through */
	bool keeps_nan = false;
};

static float rectified(const convolution &c, float v)
{
	return isnan(v) ? (c.keeps_nan ? v : 0) : v < 0 ? 0 : v > c.most ? c.most : v;
}

static void compute(const convolution &c, enum way way, void *out)
{
	const array &made = way == FORWARD ? c.y : way == DATA ? c.x : c.w;
	std::vector<float> sums(elements(made)), xs = numbers(way == DATA ? NULL : c.px, c.x);
	std::vector<float> ws = numbers(way == WEIGHTS ? NULL : c.pw, c.w);
	std::vector<float> ys = numbers(way == FORWARD ? NULL : c.py, c.y);

	if (way == FORWARD)
		each(c.x, c.w, c.how, c.y, [&](int64_t x, int64_t w, int64_t y) {
			sums[y] += xs[x] * ws[w];
		});
	else if (way == DATA)
		each(c.x, c.w, c.how, c.y, [&](int64_t x, int64_t w, int64_t y) {
			sums[x] += ys[y] * ws[w];
		});
	else
		each(c.x, c.w, c.how, c.y, [&](int64_t x, int64_t w, int64_t y) {
			sums[w] += xs[x] * ys[y];
		});
	for (size_t i = 0; i < sums.size(); i++) {
		size_t channel = i / made.step[1] % made.size[1];
		float v = sums[i] + (c.bias ? number_read(c.bias, channel, c.y.type) : 0);

		if (c.old != 0)         /* with 0 the old contents are not read */
			v += c.old * number_read(out, i, made.type);

		number_write(out, i, made.type, c.relu ? rectified(c, v) : v);
	}
}

static void check_places(const convolution &c, const void *out, const void *workspace, size_t bytes)
{
	for (const void *array : { c.px, c.pw, c.py, c.bias, out })
		if (array)
			emulated_check_array(array, 2, "a convolution's tensor");
	if (bytes > 0)
		emulated_check_array(workspace, 16, "a convolution's workspace");
}

static cudnnStatus_t queue(cudnnHandle_t handle, const convolution &c, enum way way, void *out,
			   void *workspace, size_t bytes)
{
	if (!fits(c.x, c.w, c.how, c.y))
		return CUDNN_STATUS_BAD_PARAM;
	check_places(c, out, workspace, bytes);
	emulated_queue(handle->stream, [=]() {
		if (getenv("PD_EMULATED_SLOW_CALLS"))
			usleep(500);
		soil(workspace, bytes);
		compute(c, way, out);
	});
	return CUDNN_STATUS_SUCCESS;
}

/*
 * Proposes three algorithms, of which the first is not deterministic unless `deterministic`, or none with
 * PD_EMULATED_NO_ALGORITHMS.
 */
template <typename Perf>
static cudnnStatus_t propose(Perf *found, int room, int *count, cudnnConvolutionDescriptor_t conv,
			     bool deterministic)
{
	if (getenv("PD_EMULATED_NO_ALGORITHMS"))
		return CUDNN_STATUS_NOT_SUPPORTED;
	for (*count = 0; *count < 3 && *count < room; ++*count) {
		Perf *p = &found[*count];

		memset(p, 0, sizeof(*p));
		p->algo = (decltype(p->algo))*count;
		p->status = CUDNN_STATUS_SUCCESS;
		p->determinism = *count == 0 && !deterministic ? CUDNN_NON_DETERMINISTIC
							       : CUDNN_DETERMINISTIC;
		p->mathType = conv->math;
	}
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t needs(int algorithm, size_t *bytes, bool possible)
{
	*bytes = 100 + 500 * (size_t)algorithm;
	return possible ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

/* ---- the functions, as in cudnn.h ---- */

extern "C" {

EMULATED_LIBRARY(cudnnStatus_t, CUDNN_STATUS_SUCCESS, cudnnGetErrorString, cudnnCreate, cudnnDestroy,
		 cudnnHandle_t, cudnnContext)

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
	handle->stream = stream;
	return CUDNN_STATUS_SUCCESS;
}

#define DESCRIPTOR(Name, Struct) \
	cudnnStatus_t cudnnCreate##Name##Descriptor(struct Struct **p) \
	{ \
		*p = new Struct(); \
		return CUDNN_STATUS_SUCCESS; \
	} \
	cudnnStatus_t cudnnDestroy##Name##Descriptor(struct Struct *p) \
	{ \
		delete p; \
		return CUDNN_STATUS_SUCCESS; \
	}
DESCRIPTOR(Tensor, cudnnTensorStruct)
DESCRIPTOR(Filter, cudnnFilterStruct)
DESCRIPTOR(Convolution, cudnnConvolutionStruct)
DESCRIPTOR(Activation, cudnnActivationStruct)
#undef DESCRIPTOR

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t x, cudnnTensorFormat_t format,
					 cudnnDataType_t type, int n, int c, int h, int w)
{
	describe(x, format, type, n, c, h, w);
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t x, cudnnDataType_t type,
					 cudnnTensorFormat_t format, int k, int c, int h, int w)
{
	describe(x, format, type, k, c, h, w);
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv, int pad_h,
					      int pad_w, int u, int v, int dilation_h,
					      int dilation_w, cudnnConvolutionMode_t mode,
					      cudnnDataType_t type)
{
	*conv = { { pad_h, pad_w }, { u, v }, { dilation_h, dilation_w }, 1, CUDNN_DEFAULT_MATH };
	return mode == CUDNN_CROSS_CORRELATION && type == CUDNN_DATA_FLOAT
		? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv, int groups)
{
	conv->groups = groups;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math)
{
	conv->math = math;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation,
					   cudnnActivationMode_t mode,
					   cudnnNanPropagation_t propagation,
					   double coefficient)
{
	*activation = { mode == CUDNN_ACTIVATION_RELU, propagation == CUDNN_PROPAGATE_NAN,
			(float)coefficient };
	return CUDNN_STATUS_SUCCESS;
}

/*
 * Defines the functions that propose algorithms for one pass and tell their workspaces; A, B, C declare
 * x, w, y in the library's order.
 */
#define WAY(name, Algo, A, B, C, deterministic) \
	cudnnStatus_t cudnnGetConvolution##name##Algorithm_v7( \
		cudnnHandle_t, const A, const B, const cudnnConvolutionDescriptor_t conv, const C, \
		const int room, int *count, cudnnConvolution##Algo##AlgoPerf_t *found) \
	{ \
		return propose(found, room, count, conv, deterministic); \
	} \
	cudnnStatus_t cudnnGetConvolution##name##WorkspaceSize( \
		cudnnHandle_t, const A, const B, const cudnnConvolutionDescriptor_t conv, const C, \
		cudnnConvolution##Algo##Algo_t algorithm, size_t *bytes) \
	{ \
		return needs(algorithm, bytes, fits(*x, *w, *conv, *y)); \
	}
WAY(Forward, Fwd, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y, true)
WAY(BackwardData, BwdData, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y,
    cudnnTensorDescriptor_t x, false)
WAY(BackwardFilter, BwdFilter, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
    cudnnFilterDescriptor_t w, false)
#undef WAY

cudnnStatus_t cudnnConvolutionForward(
	cudnnHandle_t handle, const void *, const cudnnTensorDescriptor_t x, const void *px,
	const cudnnFilterDescriptor_t w, const void *pw, const cudnnConvolutionDescriptor_t conv,
	cudnnConvolutionFwdAlgo_t, void *workspace, size_t bytes, const void *beta,
	const cudnnTensorDescriptor_t y, void *py)
{
	return queue(handle, { *x, *w, *y, *conv, px, pw, NULL, NULL, false, *(const float *)beta },
		     FORWARD, py, workspace, bytes);
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
	cudnnHandle_t handle, const void *, const cudnnTensorDescriptor_t x, const void *px,
	const cudnnFilterDescriptor_t w, const void *pw, const cudnnConvolutionDescriptor_t conv,
	cudnnConvolutionFwdAlgo_t algorithm, void *workspace, size_t bytes, const void *,
	const cudnnTensorDescriptor_t, const void *, const cudnnTensorDescriptor_t bias,
	const void *pb, const cudnnActivationDescriptor_t activation,
	const cudnnTensorDescriptor_t y, void *py)
{
	if (getenv("PD_EMULATED_NO_FUSION") ||
	    (!activation->relu && algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM))
		return CUDNN_STATUS_NOT_SUPPORTED;
	if (elements(*bias) != (size_t)y->size[1] || bias->size[1] != y->size[1])
		return CUDNN_STATUS_BAD_PARAM;
	return queue(handle, { *x, *w, *y, *conv, px, pw, NULL, pb, activation->relu, 0,
			       activation->most, activation->keeps_nan }, FORWARD, py, workspace, bytes);
}

cudnnStatus_t cudnnConvolutionBackwardData(
	cudnnHandle_t handle, const void *, const cudnnFilterDescriptor_t w, const void *pw,
	const cudnnTensorDescriptor_t y, const void *py, const cudnnConvolutionDescriptor_t conv,
	cudnnConvolutionBwdDataAlgo_t, void *workspace, size_t bytes, const void *beta,
	const cudnnTensorDescriptor_t x, void *px)
{
	return queue(handle, { *x, *w, *y, *conv, NULL, pw, py, NULL, false, *(const float *)beta },
		     DATA, px, workspace, bytes);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(
	cudnnHandle_t handle, const void *, const cudnnTensorDescriptor_t x, const void *px,
	const cudnnTensorDescriptor_t y, const void *py, const cudnnConvolutionDescriptor_t conv,
	cudnnConvolutionBwdFilterAlgo_t, void *workspace, size_t bytes, const void *beta,
	const cudnnFilterDescriptor_t w, void *pw)
{
	return queue(handle, { *x, *w, *y, *conv, px, NULL, py, NULL, false, *(const float *)beta },
		     WEIGHTS, pw, workspace, bytes);
}

/* ---- batch normalisation, of f32 and channels first ---- */

cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t derived,
					    const cudnnTensorDescriptor_t x, cudnnBatchNormMode_t)
{
	describe(derived, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, x->size[1], 1, 1);
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
	cudnnHandle_t handle, cudnnBatchNormMode_t, const void *, const void *,
	const cudnnTensorDescriptor_t desc, const void *px, const cudnnTensorDescriptor_t,
	void *py, const cudnnTensorDescriptor_t, const void *scale, const void *bias,
	const void *mean, const void *variance, double eps)
{
	const float *x = (const float *)px, *g = (const float *)scale, *b = (const float *)bias;
	const float *m = (const float *)mean, *v = (const float *)variance;
	float *y = (float *)py;
	array shape = *desc;

	emulated_queue(handle->stream, [=]() {
		each_element(shape, [&](int64_t c, int64_t i) {
			y[i] = (x[i] - m[c]) / sqrtf(v[c] + (float)eps) * g[c] + b[c];
		});
	});
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(
	cudnnHandle_t handle, cudnnBatchNormMode_t, const void *, const void *,
	const cudnnTensorDescriptor_t desc, const void *px, const cudnnTensorDescriptor_t,
	void *py, const cudnnTensorDescriptor_t, const void *scale, const void *bias,
	double factor, void *running_mean, void *running_variance, double eps, void *saved_mean,
	void *saved_inverse)
{
	const float *x = (const float *)px, *g = (const float *)scale, *b = (const float *)bias;
	float *y = (float *)py, *rm = (float *)running_mean, *rv = (float *)running_variance;
	float *m = (float *)saved_mean, *k = (float *)saved_inverse;
	array shape = *desc;

	emulated_queue(handle->stream, [=]() {
		std::vector<double> sum(shape.size[1]), squares(shape.size[1]);
		double n = (double)elements(shape) / shape.size[1];

		each_element(shape, [&](int64_t c, int64_t i) { sum[c] += x[i]; });
		each_element(shape, [&](int64_t c, int64_t i) {
			squares[c] += (x[i] - sum[c] / n) * (x[i] - sum[c] / n);
		});
		for (int c = 0; c < shape.size[1]; c++) {
			double spread = n > 1 ? squares[c] / (n - 1) : squares[c] / n;

			m[c] = (float)(sum[c] / n);
			k[c] = (float)(1 / sqrt(squares[c] / n + eps));
			if (!rm)
				continue;
			rm[c] = (float)((1 - factor) * rm[c] + factor * sum[c] / n);
			rv[c] = (float)((1 - factor) * rv[c] + factor * spread);
		}
		each_element(shape, [&](int64_t c, int64_t i) {
			y[i] = (x[i] - m[c]) * k[c] * g[c] + b[c];
		});
	});
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBatchNormalizationBackward(
	cudnnHandle_t handle, cudnnBatchNormMode_t, const void *, const void *, const void *,
	const void *, const cudnnTensorDescriptor_t desc, const void *px,
	const cudnnTensorDescriptor_t, const void *pdy, const cudnnTensorDescriptor_t, void *pdx,
	const cudnnTensorDescriptor_t, const void *scale, void *d_scale, void *d_bias, double,
	const void *saved_mean, const void *saved_inverse)
{
	const float *x = (const float *)px, *dy = (const float *)pdy, *g = (const float *)scale;
	const float *m = (const float *)saved_mean, *k = (const float *)saved_inverse;
	float *dx = (float *)pdx, *dg = (float *)d_scale, *db = (float *)d_bias;
	array shape = *desc;

	emulated_queue(handle->stream, [=]() {
		std::vector<double> sum(shape.size[1]), product(shape.size[1]);
		double n = (double)elements(shape) / shape.size[1];

		each_element(shape, [&](int64_t c, int64_t i) {
			sum[c] += dy[i];
			product[c] += (double)dy[i] * ((x[i] - m[c]) * k[c]);
		});
		each_element(shape, [&](int64_t c, int64_t i) {
			double hat = (x[i] - m[c]) * k[c];

			dx[i] = (float)(g[c] * k[c] *
					(dy[i] - sum[c] / n - hat * product[c] / n));
		});
		for (int c = 0; c < shape.size[1]; c++) {
			dg[c] = (float)product[c];
			db[c] = (float)sum[c];
		}
	});
	return CUDNN_STATUS_SUCCESS;
}
}

#include "graph.h"
