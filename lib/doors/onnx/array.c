/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/onnx/array.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct array *array_new(struct constants *constants, const struct array *like, int dims,
			const int64_t *size)
{
	struct array *array;
	int64_t elements = 1;

	if (dims > PD_ONNX_DIMS)
		return NULL;
	for (int d = 0; d < dims; d++)
		if (size[d] < 0 || !pd_mul(elements, size[d], &elements) || elements > MOST_ARRAY_ELEMENTS)
			return NULL;
	constants->full |= constants->bytes + elements * array_width(like) > constants->most;
	if (constants->bytes + elements * array_width(like) > constants->most)
		return NULL;
	constants->bytes += elements * array_width(like);
	array = pd_arena_take(&constants->arena, 1, sizeof(*array));
	array->whole = like->whole;
	array->truth = like->truth;
	array->dims = dims;
	if (dims > 0)
		memcpy(array->size, size, (size_t)dims * sizeof(*size));
	array->elements = elements;
	array->data = pd_calloc(elements ? (size_t)elements : 1, (size_t)array_width(like));
	array->next = constants->first;
	constants->first = array;
	return array;
}

void array_drop(struct constants *constants, struct array *array)
{
	if (array->data)
		constants->bytes -= array->elements * array_width(array);
	free(array->data);
	array->data = NULL;
}

void constants_release(struct constants *constants)
{
	for (struct array *array = constants->first; array; array = array->next)
		array_drop(constants, array);
	pd_arena_release(&constants->arena);
}

struct array *array_integers(struct constants *constants, int dims, const int64_t *size)
{
	return array_new(constants, &(struct array){ .whole = true }, dims, size);
}

double array_real(const struct array *array, int64_t i)
{
	return array->truth ? array->truths[i] : array->whole ? (double)array->integers[i] : array->reals[i];
}

int64_t array_cut(double real)
{
	return real >= 9e18 ? INT64_MAX : real <= -9e18 ? INT64_MIN : real != real ? 0 : (int64_t)real;
}

int64_t array_integer(const struct array *array, int64_t i)
{
	if (array->whole)
		return array->truth ? array->truths[i] : array->integers[i];
	return array_cut(array->reals[i]);
}

void array_copy(struct array *array, int64_t n, const struct array *from, int64_t i)
{
	if (array->truth)
		array->truths[n] = from->truths[i];
	else
		array->integers[n] = from->integers[i];         /* eight bytes, whatever they mean */
}

void array_set(struct array *array, int64_t n, double real, int64_t integer)
{
	if (array->truth)
		array->truths[n] = integer != 0;
	else if (array->whole)
		array->integers[n] = integer;
	else
		array->reals[n] = real;
}

int64_t array_part(const struct array *array, int from, int to)
{
	int64_t elements = 1;

	for (int d = from; d < to; d++)
		elements *= array->size[d];
	return elements;
}

bool array_scalar(const struct array *array, double *number_p)
{
	if (!array || array->elements != 1)
		return false;
	*number_p = array_real(array, 0);
	return true;
}

bool array_all(const struct array *array, double number)
{
	for (int64_t i = 0; i < array->elements; i++)
		if (array_real(array, i) != number)
			return false;
	return true;
}

int array_axis(int64_t axis, int dims)
{
	return axis < -dims || axis >= dims ? -1 : (int)(axis < 0 ? axis + dims : axis);
}

bool array_broadcast(int dims_a, const int64_t *a, int dims_b, const int64_t *b, int *dims_p,
		     int64_t *size)
{
	int dims = dims_a > dims_b ? dims_a : dims_b;

	for (int d = 0; d < dims; d++) {
		int64_t x = d < dims - dims_a ? 1 : a[d - (dims - dims_a)];
		int64_t y = d < dims - dims_b ? 1 : b[d - (dims - dims_b)];

		if (x != y && x != 1 && y != 1)
			return false;
		size[d] = x == 1 ? y : x;
	}
	*dims_p = dims;
	return true;
}

int64_t array_broadcast_index(const struct array *array, int dims, const int64_t *size, int64_t n)
{
	int64_t index = 0, step = 1;

	for (int d = dims - 1; d >= dims - array->dims; d--) {
		int64_t own = array->size[d - (dims - array->dims)];

		index += own == 1 ? 0 : n % size[d] * step;
		step *= own;
		n /= size[d];
	}
	return index;
}
