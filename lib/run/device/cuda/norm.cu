/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch normalisation forward, for types and layouts that cuDNN's plain calls lack; columns.cuh
 * divides the work.  Differences to the channel's first element are squared, so that a large mean
 * costs no digits.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/columns.cuh"

size_t pd_kernel_norm_scratch(int64_t rows, int64_t channels)
{
	return 2 * (size_t)channels * (size_t)(pd_parts_most(rows, channels) + 1);
}

template <typename T, int N, bool LAST>
__global__ static void norm_parts(struct pd_kernel_norm n, const T *__restrict__ x,
				  struct pd_two *__restrict__ room)
{
	const pd_column<N, LAST> here(n);
	constexpr int channels = pd_column<N, LAST>::channels_here;
	float origin[channels], first[channels] = { 0 }, second[channels] = { 0 };

	if (here.exists()) {
		pd_read_lanes<channels>(origin, &x[here.place(0)]);
		pd_for_part<1>(LAST ? n.rows : n.rows / N, [&](int64_t unit) {
			return *(const struct pd_pack<T, N> *)&x[here.place(unit)];
		}, [&](int64_t, const struct pd_pack<T, N> &p) {
#pragma unroll
			for (int k = 0; k < N; k++) {
				int c = pd_column_of_lane<N, LAST>(k);
				float d = (float)p.v[k] - origin[c];

				first[c] += d;
				second[c] += d * d;
			}
		});
	}
	pd_put_part<channels>(room, n.channels, here.channel(), first, second);
}

/* A pass keeps these numbers of each channel for backward, n.half floats apart. */
struct kept {
	float *mean, *inverse;
	float *scale, *bias;            /* forward's; NULL without a relu */
};

static struct kept kept_of(const struct pd_kernel_norm *n, float *at)
{
	struct kept kept = { at, at + n->half, NULL, NULL };

	if (n->relu) {
		kept.scale = at + 2 * n->half;
		kept.bias = at + 3 * n->half;
	}
	return kept;
}

template <typename T>
__global__ static void norm_total(struct pd_kernel_norm n, const T *x, const T *scale,
				  const T *bias, const struct pd_two *room, int parts,
				  struct kept kept, float *running_mean, float *running_variance)
{
	double first, second, shift, variance, count = (double)n.rows;
	int64_t c = pd_total_channel();

	if (!pd_total(room, parts, n.channels, &first, &second))
		return;
	shift = first / count;
	variance = second / count - shift * shift;
	if (variance < 0)
		variance = 0;
	shift += (float)x[c * n.area];
	kept.mean[c] = (float)shift;
	kept.inverse[c] = (float)(1 / sqrt(variance + n.eps));
	if (n.relu) {
		kept.scale[c] = (float)scale[c];
		kept.bias[c] = (float)bias[c];
	}
	if (!running_mean)
		return;
	if (n.rows > 1)
		variance *= count / (count - 1);
	running_mean[c] = (float)((1 - n.momentum) * running_mean[c] + n.momentum * shift);
	running_variance[c] = (float)((1 - n.momentum) * running_variance[c] +
				      n.momentum * variance);
}

/* variance: NULL where an inverse is given; an evaluation cannot keep one. */
template <typename T, int N, bool LAST>
__global__ static void norm_apply(struct pd_kernel_norm n, T *__restrict__ y,
				  const T *__restrict__ x, const T *__restrict__ scale,
				  const T *__restrict__ bias, const float *__restrict__ mean,
				  const float *__restrict__ inverse,
				  const float *__restrict__ variance)
{
	const pd_column<N, LAST> here(n);
	constexpr int channels = pd_column<N, LAST>::channels_here;
	float middle[channels], deviation[channels], times[channels], plus[channels];
	int64_t c0 = here.channel();

	if (!here.exists())
		return;
	pd_read_floats<channels>(middle, &mean[c0]);
	pd_read_floats<channels>(deviation, variance ? &variance[c0] : &inverse[c0]);
	for (int k = 0; k < channels && variance; k++)
		deviation[k] = 1 / sqrtf(deviation[k] + n.eps);
	pd_read_lanes<channels>(times, &scale[c0]);
	pd_read_lanes<channels>(plus, &bias[c0]);
	pd_for_all<1>(LAST ? n.rows : n.rows / N, [&](int64_t unit) {
		return *(const struct pd_pack<T, N> *)&x[here.place(unit)];
	}, [&](int64_t unit, struct pd_pack<T, N> p) {
#pragma unroll
		for (int k = 0; k < N; k++) {
			int c = pd_column_of_lane<N, LAST>(k);
			float v = ((float)p.v[k] - middle[c]) * deviation[c] * times[c] + plus[c];

			p.v[k] = (T)(n.relu && v < 0 ? 0 : v);
		}
		*(struct pd_pack<T, N> *)&y[here.place(unit)] = p;
	});
}

/* Returns whether all of these begin at multiples of 16 bytes. */
static bool aligned(const struct pd_kernel_norm *n, const void *y, const void *x,
		    const void *scale, const void *bias, const float *numbers)
{
	return pd_packs(y) && pd_packs(x) && pd_packs(scale) && pd_packs(bias) &&
	       pd_packs(numbers) && pd_packs(numbers + n->half);
}

cudaError_t pd_kernel_norm(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_norm *n,
			   void *y, const void *x, const void *scale, const void *bias, float *kept,
			   float *running, float *room)
{
	const struct kept numbers = kept_of(n, kept);
	float *variance = running ? running + n->half : NULL;
	struct pd_two *sums = (struct pd_two *)room;
	int unit = pd_norm_unit(dtype, n, aligned(n, y, x, scale, bias, kept));
	const float *none = NULL;

	PD_BY_TYPE(dtype, T, PD_BY_UNIT(T, n, unit, N, LAST, (
		norm_parts<T, N, LAST><<<pd_sum_grid(n, N), pd_column_block(n, N), 0, stream>>>(
			*n, (const T *)x, sums))));
	PD_BY_TYPE(dtype, T, (
		norm_total<T><<<pd_total_grid(n->channels), pd_total_block(), 0, stream>>>(
			*n, (const T *)x, (const T *)scale, (const T *)bias, sums,
			pd_parts(n, unit), numbers, running, variance)));
	PD_BY_TYPE(dtype, T, PD_BY_UNIT(T, n, unit, N, LAST, (
		norm_apply<T, N, LAST><<<pd_pass_grid(n, N), pd_column_block(n, N), 0, stream>>>(
			*n, (T *)y, (const T *)x, (const T *)scale, (const T *)bias,
			numbers.mean, numbers.inverse, none))));
	return cudaGetLastError();
}

cudaError_t pd_kernel_norm_evaluate(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_kernel_norm *n, void *y, const void *x,
				    const void *scale, const void *bias, const float *running)
{
	int unit = pd_norm_unit(dtype, n, aligned(n, y, x, scale, bias, running));
	const float *none = NULL;

	PD_BY_TYPE(dtype, T, PD_BY_UNIT(T, n, unit, N, LAST, (
		norm_apply<T, N, LAST><<<pd_pass_grid(n, N), pd_column_block(n, N), 0, stream>>>(
			*n, (T *)y, (const T *)x, (const T *)scale, (const T *)bias, running,
			none, running + n->half))));
	return cudaGetLastError();
}
