/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch normalisation backward, and the sum over rows that is the gradient of a bias.
 *
 * Where forward did the relu behind it, the gradient that arrives is that of the relu's output.  It
 * is zeroed where that output was 0, which is computed again from what forward kept, in
 * forward's order of operations and rounded as the output was.  So it is the same, whatever weights
 * backward reads.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/columns.cuh"

/* Numbers that forward kept of each channel, n.half floats apart. */
template <int n, bool RELU>
struct remembered {
	float middle[n], deviation[n], times[RELU ? n : 1], plus[RELU ? n : 1];

	__device__ remembered(const float *kept, size_t half, int64_t channel)
	{
		pd_read_floats<n>(middle, &kept[channel]);
		pd_read_floats<n>(deviation, &kept[half + channel]);
		if (RELU) {
			pd_read_floats<n>(times, &kept[2 * half + channel]);
			pd_read_floats<n>(plus, &kept[3 * half + channel]);
		}
	}

	/* the normalised element of the thread's channel c */
	__device__ float hat(int c, float x) const
	{
		return (x - middle[c]) * deviation[c];
	}

	/* g, or zero where relu's output was. */
	template <typename T>
	__device__ float gradient(int c, float hat, float g) const
	{
		int at = RELU ? c : 0;

		return RELU && (float)(T)(hat * times[at] + plus[at]) <= 0 ? 0 : g;
	}
};

template <typename T, int N>
struct two_units {
	struct pd_pack<T, N> x, dy;
};

template <typename T, int N, bool LAST, bool RELU>
__global__ static void norm_back_parts(struct pd_kernel_norm n, const T *__restrict__ x,
				       const T *__restrict__ dy, const float *__restrict__ kept,
				       struct pd_two *__restrict__ room)
{
	const pd_column<N, LAST> here(n);
	constexpr int channels = pd_column<N, LAST>::channels_here;
	float first[channels] = { 0 }, second[channels] = { 0 };

	if (here.exists()) {
		const remembered<channels, RELU> r(kept, n.half, here.channel());

		pd_for_part<2>(LAST ? n.rows : n.rows / N, [&](int64_t unit) {
			size_t at = here.place(unit);
			const two_units<T, N> u = { *(const struct pd_pack<T, N> *)&x[at],
						    *(const struct pd_pack<T, N> *)&dy[at] };

			return u;
		}, [&](int64_t, const two_units<T, N> &u) {
#pragma unroll
			for (int k = 0; k < N; k++) {
				int c = pd_column_of_lane<N, LAST>(k);
				float hat = r.hat(c, (float)u.x.v[k]);
				float g = r.template gradient<T>(c, hat, (float)u.dy.v[k]);

				first[c] += g;
				second[c] += g * hat;
			}
		});
	}
	pd_put_part<channels>(room, n.channels, here.channel(), first, second);
}

/* means: the means of both sums over rows, n.channels each, behind the parts. */
__global__ static void norm_back_total(struct pd_kernel_norm n, const struct pd_two *room,
				       int parts, float *means, float *d_scale, float *d_bias)
{
	int64_t c = pd_total_channel();
	double first, second;

	if (!pd_total(room, parts, n.channels, &first, &second))
		return;
	d_bias[c] = (float)first;
	d_scale[c] = (float)second;
	means[c] = (float)(first / (double)n.rows);
	means[n.channels + c] = (float)(second / (double)n.rows);
}

template <typename T, int N>
struct three_units {
	struct pd_pack<T, N> x, dy, before;
};

/* before: NULL, or added to the gradient; dx may overwrite it, or dy. */
template <typename T, int N, bool LAST, bool RELU>
__global__ static void norm_back_apply(struct pd_kernel_norm n, T *dx, const T *__restrict__ x,
				       const T *dy, const T *before,
				       const T *__restrict__ scale, const float *__restrict__ kept,
				       const float *__restrict__ means)
{
	const pd_column<N, LAST> here(n);
	constexpr int channels = pd_column<N, LAST>::channels_here;
	float factor[channels], first[channels], second[channels];
	int64_t c0 = here.channel();

	if (!here.exists())
		return;
	const remembered<channels, RELU> r(kept, n.half, c0);
	pd_read_lanes<channels>(factor, &scale[c0]);
	for (int c = 0; c < channels; c++)
		factor[c] *= r.deviation[c];
	pd_read_floats<channels>(first, &means[c0]);
	pd_read_floats<channels>(second, &means[n.channels + c0]);
	pd_for_all<2>(LAST ? n.rows : n.rows / N, [&](int64_t unit) {
		size_t at = here.place(unit);
		three_units<T, N> u;

		u.x = *(const struct pd_pack<T, N> *)&x[at];
		u.dy = *(const struct pd_pack<T, N> *)&dy[at];
		if (before)
			u.before = *(const struct pd_pack<T, N> *)&before[at];
		return u;
	}, [&](int64_t unit, three_units<T, N> u) {
#pragma unroll
		for (int k = 0; k < N; k++) {
			int c = pd_column_of_lane<N, LAST>(k);
			float hat = r.hat(c, (float)u.x.v[k]);
			float g = r.template gradient<T>(c, hat, (float)u.dy.v[k]);
			T d = (T)(factor[c] * (g - first[c] - hat * second[c]));

			/* rounded twice, as a separate sum would */
			u.x.v[k] = before ? (T)((float)u.before.v[k] + (float)d) : d;
		}
		*(struct pd_pack<T, N> *)&dx[here.place(unit)] = u.x;
	});
}

template <typename T, int N, bool LAST>
static void queue_parts(cudaStream_t stream, const struct pd_kernel_norm *n, const T *x,
			const T *dy, const float *kept, struct pd_two *room)
{
	dim3 grid = pd_sum_grid(n, N), block = pd_column_block(n, N);

	if (n->relu)
		norm_back_parts<T, N, LAST, true><<<grid, block, 0, stream>>>(*n, x, dy, kept,
									      room);
	else
		norm_back_parts<T, N, LAST, false><<<grid, block, 0, stream>>>(*n, x, dy, kept,
									       room);
}

template <typename T, int N, bool LAST>
static void queue_apply(cudaStream_t stream, const struct pd_kernel_norm *n, T *dx, const T *x,
			const T *dy, const T *before, const T *scale, const float *kept,
			const float *means)
{
	dim3 grid = pd_pass_grid(n, N), block = pd_column_block(n, N);

	if (n->relu)
		norm_back_apply<T, N, LAST, true><<<grid, block, 0, stream>>>(
			*n, dx, x, dy, before, scale, kept, means);
	else
		norm_back_apply<T, N, LAST, false><<<grid, block, 0, stream>>>(
			*n, dx, x, dy, before, scale, kept, means);
}

cudaError_t pd_kernel_norm_back(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_norm *n, void *dx, const void *before,
				const void *x, const void *dy, const void *scale,
				const float *kept, float *d_scale, float *d_bias, float *room)
{
	int unit = pd_norm_unit(dtype, n, pd_packs(x) && pd_packs(dy) && pd_packs(dx) &&
				     pd_packs(before) && pd_packs(scale) && pd_packs(kept) &&
				     pd_packs(kept + n->half) && pd_packs(room));
	int parts = pd_parts(n, unit);
	struct pd_two *sums = (struct pd_two *)room;
	float *means = room + 2 * (size_t)parts * (size_t)n->channels;

	PD_BY_TYPE(dtype, T, PD_BY_UNIT(T, n, unit, N, LAST, (
		queue_parts<T, N, LAST>(stream, n, (const T *)x, (const T *)dy, kept, sums))));
	norm_back_total<<<pd_total_grid(n->channels), pd_total_block(), 0, stream>>>(
		*n, sums, parts, means, d_scale, d_bias);
	if (dx)
		PD_BY_TYPE(dtype, T, PD_BY_UNIT(T, n, unit, N, LAST, (
			queue_apply<T, N, LAST>(stream, n, (T *)dx, (const T *)x, (const T *)dy,
						(const T *)before, (const T *)scale, kept,
						means))));
	return cudaGetLastError();
}

/* The gradient of a bias sums adjacent rows. */
template <typename T, int N>
__global__ static void column_parts(struct pd_kernel_norm n, const T *__restrict__ dy,
				    struct pd_two *__restrict__ room)
{
	const pd_column<N, true> here(n);
	float first[N] = { 0 }, second[N] = { 0 };

	if (here.exists())
		pd_for_part<1>(n.rows, [&](int64_t unit) {
			return *(const struct pd_pack<T, N> *)&dy[here.place(unit)];
		}, [&](int64_t, const struct pd_pack<T, N> &p) {
#pragma unroll
			for (int k = 0; k < N; k++)
				first[k] += (float)p.v[k];
		});
	pd_put_part<N>(room, n.channels, here.channel(), first, second);
}

__global__ static void column_total(struct pd_kernel_norm n, const struct pd_two *room, int parts,
				    float *sums)
{
	double first, second;

	if (pd_total(room, parts, n.channels, &first, &second))
		sums[pd_total_channel()] = (float)first;
}

cudaError_t pd_kernel_columns(cudaStream_t stream, enum pd_dtype dtype, float *sums, float *room,
			      const void *dy, int64_t rows, int64_t channels)
{
	const struct pd_kernel_norm n = { rows, channels, 1 };
	struct pd_two *parts = (struct pd_two *)room;
	int unit = pd_norm_unit(dtype, &n, pd_packs(dy));

	PD_BY_TYPE(dtype, T, PD_BY_PACK(T, unit == N, N, (
		column_parts<T, N><<<pd_sum_grid(&n, N), pd_column_block(&n, N), 0, stream>>>(
			n, (const T *)dy, parts))));
	column_total<<<pd_total_grid(channels), pd_total_block(), 0, stream>>>(
		n, parts, pd_parts(&n, unit), sums);
	return cudaGetLastError();
}
