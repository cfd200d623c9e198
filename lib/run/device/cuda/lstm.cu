/* SPDX-License-Identifier: Apache-2.0 */
/* The element-wise part of an LSTM (run/device/cpu/lstm_gates.c has the formulas): a thread computes an
 * element of the hidden state of a sample. */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

__device__ static float logistic(float x)
{
	return 1 / (1 + expf(-x));
}

__device__ static int64_t length_of(const struct pd_kernel_lstm &m, int64_t n)
{
	int64_t steps = m.lengths ? m.lengths[n] : m.steps;

	return steps < 0 ? 0 : steps > m.steps ? m.steps : steps;
}

/* The row of step s of a sample. */
__device__ static int64_t row_of(const struct pd_kernel_lstm &m, int64_t n, int64_t s)
{
	return n * m.steps + (m.reversed ? length_of(m, n) - 1 - s : s);
}

/* Cells before step s. */
__device__ static float before(const struct pd_kernel_lstm &m, const float *cells, int64_t n,
			       int64_t s, int64_t j)
{
	if (s > 0)
		return cells[row_of(m, n, s - 1) * m.hidden + j];
	return m.first_cells ? m.first_cells[n * m.hidden + j] : 0;
}

/* Returns the offset of the state of a sample's lane. */
__device__ static int64_t lane_of(const struct pd_kernel_lstm &m,
				  const struct pd_pass_numbers *numbers, int64_t n)
{
	return (numbers->first_sample + n) % m.lanes * m.hidden;
}

template <typename T>
__global__ static void begin(struct pd_kernel_lstm m, const struct pd_pass_numbers *numbers,
			     T *hidden, const float *lane_hidden, const float *lane_cells)
{
	PD_FOR_EACH(i, (size_t)(m.batch * m.hidden)) {
		int64_t n = (int64_t)i / m.hidden, j = (int64_t)i % m.hidden;
		bool fresh = numbers->first_sample + n < m.lanes;
		int64_t at = lane_of(m, numbers, n) + j;

		if (!m.again) {
			m.first_hidden[i] = fresh ? 0 : lane_hidden[at];
			m.first_cells[i] = fresh ? 0 : lane_cells[at];
		}
		hidden[i] = (T)m.first_hidden[i];
	}
}

cudaError_t pd_kernel_lstm_begin(cudaStream_t stream, enum pd_dtype dtype,
				 const struct pd_kernel_lstm *m,
				 const struct pd_pass_numbers *numbers, void *hidden,
				 const float *lane_hidden, const float *lane_cells)
{
	PD_BY_TYPE(dtype, T,
		   (begin<T><<<pd_grid_blocks((size_t)(m->batch * m->hidden)), PD_THREADS, 0, stream>>>(
			*m, numbers, (T *)hidden, lane_hidden, lane_cells)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void end(struct pd_kernel_lstm m, const struct pd_pass_numbers *numbers,
			   const T *hidden, const float *cells, float *lane_hidden,
			   float *lane_cells)
{
	PD_FOR_EACH(i, (size_t)(m.batch * m.hidden)) {
		int64_t n = (int64_t)i / m.hidden, j = (int64_t)i % m.hidden;
		int64_t at = lane_of(m, numbers, n) + j;

		lane_hidden[at] = (float)hidden[i];
		lane_cells[at] = before(m, cells, n, length_of(m, n), j);
	}
}

cudaError_t pd_kernel_lstm_end(cudaStream_t stream, enum pd_dtype dtype,
			       const struct pd_kernel_lstm *m,
			       const struct pd_pass_numbers *numbers, const void *hidden,
			       const float *cells, float *lane_hidden, float *lane_cells)
{
	PD_BY_TYPE(dtype, T,
		   (end<T><<<pd_grid_blocks((size_t)(m->batch * m->hidden)), PD_THREADS, 0, stream>>>(
			*m, numbers, (const T *)hidden, cells, lane_hidden, lane_cells)));
	return cudaGetLastError();
}

template <typename T>
struct biases_of {
	const T *input, *hidden;
};

template <typename T>
__global__ static void forward(struct pd_kernel_lstm m, int64_t step, const float *sums,
			       const float *product, biases_of<T> biases, T *gates, float *cells,
			       T *hidden, T *y)
{
	PD_FOR_EACH(i, (size_t)(m.batch * m.hidden)) {
		int64_t n = (int64_t)i / m.hidden, j = (int64_t)i % m.hidden, row;
		float gate[4], cell;

		if (step >= length_of(m, n)) {
			y[(n * m.steps + step) * m.output + j] = (T)0.f;
			continue;
		}
		row = row_of(m, n, step);
		for (int g = 0; g < 4; g++) {
			float sum = sums[(row * 4 + g) * m.hidden + j];

			if (biases.input && biases.hidden)
				sum += (float)biases.input[g * m.hidden + j] +
				       (float)biases.hidden[g * m.hidden + j];
			else if (biases.input)
				sum += (float)biases.input[g * m.hidden + j];
			if (product)
				sum += product[(n * 4 + g) * m.hidden + j];
			gate[g] = g == 2 ? tanhf(sum) : logistic(sum);
			gates[(row * 4 + g) * m.hidden + j] = (T)gate[g];
		}
		cell = gate[1] * before(m, cells, n, step, j) + gate[0] * gate[2];
		cells[row * m.hidden + j] = cell;
		hidden[i] = y[row * m.output + j] = (T)(gate[3] * tanhf(cell));
	}
}

cudaError_t pd_kernel_lstm(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_lstm *m,
			   int64_t step, const float *sums, const float *product,
			   const void *const biases[2], void *gates, float *cells, void *hidden,
			   void *y)
{
	size_t count = (size_t)(m->batch * m->hidden);

	PD_BY_TYPE(dtype, T, (forward<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		*m, step, sums, product,
		biases_of<T>{ (const T *)biases[0], (const T *)biases[1] }, (T *)gates, cells,
		(T *)hidden, (T *)y)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void back(struct pd_kernel_lstm m, int64_t step, const T *gates,
			    const float *cells, const T *dy, const float *d_hidden, float *d_cells,
			    T *kept, T *d_sums)
{
	PD_FOR_EACH(i, (size_t)(m.batch * m.hidden)) {
		int64_t n = (int64_t)i / m.hidden, j = (int64_t)i % m.hidden;
		bool here = step < length_of(m, n);
		int64_t row = here ? row_of(m, n, step) : n * m.steps + step;
		float gate[4], slope[4] = { 0, 0, 0, 0 };

		if (here) {
			float t = tanhf(cells[row * m.hidden + j]);
			float dh = (d_hidden ? d_hidden[i] : 0) + (float)dy[row * m.output + j], dc;

			for (int g = 0; g < 4; g++)
				gate[g] = (float)gates[(row * 4 + g) * m.hidden + j];
			dc = (d_hidden ? d_cells[i] : 0) + dh * gate[3] * (1 - t * t);
			slope[0] = dc * gate[2] * (gate[0] * (1 - gate[0]));
			slope[1] = dc * before(m, cells, n, step, j) * (gate[1] * (1 - gate[1]));
			slope[2] = dc * gate[0] * (1 - gate[2] * gate[2]);
			slope[3] = dh * t * (gate[3] * (1 - gate[3]));
			d_cells[i] = dc * gate[1];
		} else if (!d_hidden) {
			d_cells[i] = 0;
		}
		for (int g = 0; g < 4; g++) {
			kept[(row * 4 + g) * m.hidden + j] = (T)slope[g];
			d_sums[(n * 4 + g) * m.hidden + j] = (T)slope[g];
		}
	}
}

cudaError_t pd_kernel_lstm_back(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_lstm *m, int64_t step, const void *gates,
				const float *cells, const void *dy, const float *d_hidden,
				float *d_cells, void *kept, void *d_sums)
{
	size_t count = (size_t)(m->batch * m->hidden);

	PD_BY_TYPE(dtype, T, (back<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		*m, step, (const T *)gates, cells, (const T *)dy, d_hidden, d_cells, (T *)kept,
		(T *)d_sums)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void gather(struct pd_kernel_lstm m, T *out, const T *y)
{
	PD_FOR_EACH(i, (size_t)(m.batch * m.steps * m.hidden)) {
		int64_t sample = (int64_t)i / m.hidden / m.steps, j = (int64_t)i % m.hidden;
		int64_t s = (int64_t)i / m.hidden % m.steps, row = sample * m.steps + s;
		bool here = s < length_of(m, sample);
		T value = (T)0.f;

		if (here)
			row = row_of(m, sample, s);
		if (here && s > 0)
			value = y[row_of(m, sample, s - 1) * m.output + j];
		else if (here && m.first_hidden)
			value = (T)m.first_hidden[sample * m.hidden + j];
		out[row * m.hidden + j] = value;
	}
}

cudaError_t pd_kernel_lstm_before(cudaStream_t stream, enum pd_dtype dtype,
				  const struct pd_kernel_lstm *m, void *before, const void *y)
{
	size_t count = (size_t)(m->batch * m->steps * m->hidden);

	PD_BY_TYPE(dtype, T, (gather<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		*m, (T *)before, (const T *)y)));
	return cudaGetLastError();
}

/* A thread for four elements, which one draw is for. */
template <typename T>
__global__ static void drop(struct pd_kernel_drop d, const struct pd_pass_numbers *numbers, T *y,
			    const T *x)
{
	uint32_t sample = (uint32_t)numbers->first_sample;

	PD_FOR_EACH(i, (size_t)(d.count / 4)) {
		struct pd_random4 r = pd_random(d.seed, d.stream, sample,
						(uint32_t)(d.first / 4 + (int64_t)i));

		for (int k = 0; k < 4; k++)
			y[4 * i + k] = (T)pd_dropped((float)x[4 * i + k], pd_unit(r.v[k]) >= d.p,
						     d.scale);
	}
}

cudaError_t pd_kernel_lstm_drop(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_drop *d,
				const struct pd_pass_numbers *numbers, void *y, const void *x)
{
	PD_BY_TYPE(dtype, T,
		   (drop<T><<<pd_grid_blocks((size_t)(d->count / 4)), PD_THREADS, 0, stream>>>(
			*d, numbers, (T *)y, (const T *)x)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void add(T *dst, const float *a, const float *b, size_t count)
{
	PD_FOR_EACH(i, count)
		dst[i] = (T)(a[i] + b[i]);
}

cudaError_t pd_kernel_lstm_add(cudaStream_t stream, enum pd_dtype dtype, void *dst, const float *a,
			       const float *b, size_t count)
{
	PD_BY_TYPE(dtype, T, (add<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		(T *)dst, a, b, count)));
	return cudaGetLastError();
}
