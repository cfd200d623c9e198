/* SPDX-License-Identifier: Apache-2.0 */
/* Constants that are computed number by number. */
#include "doors/onnx/fold_rows.h"

#include <math.h>

/* As ONNX has it: sums that end at a whole number depend on it. */
static double rounded(const struct fold *f, double real)
{
	return f->single ? (double)(float)real : real;
}

static double unary_real(int what, double x)
{
	switch (what) {
	case '-': return -x;
	case 'a': return fabs(x);
	case 'q': return sqrt(x);
	case '/': return 1 / x;
	case 'c': return cos(x);
	case 's': return sin(x);
	case 'e': return exp(x);
	case 'l': return log(x);
	case 'f': return floor(x);
	case 'u': return ceil(x);
	case 'g': return x > 0 ? 1 : x < 0 ? -1 : x;
	default: return x;
	}
}

struct array *fold_unary(const struct fold *f, int what)
{
	const struct array *from = in(f, 0);
	struct array *out = take(f, from, from->dims, from->size);

	for (int64_t i = 0; out && i < out->elements; i++) {
		int64_t x = array_integer(from, i);
		int64_t whole = what == '!' ? !x : what == 'g' ? (x > 0) - (x < 0) : what == '-' || (what == 'a' && x < 0) ? (int64_t)-(uint64_t)x : x;

		array_set(out, i, rounded(f, unary_real(what, array_real(from, i))), whole);
	}
	return out;
}

static double binary_real(int what, double x, double y)
{
	switch (what) {
	case '+': return x + y;
	case '-': return x - y;
	case '*': return x * y;
	case '/': return x / y;
	case '%': return fmod(x, y);
	case '^': return pow(x, y);
	case 'M': return x > y ? x : y;
	default: return x < y ? x : y;
	}
}

static int64_t binary_whole(int what, int64_t x, int64_t y)
{
	uint64_t a = (uint64_t)x, b = (uint64_t)y;

	switch (what) {
	case '+': return (int64_t)(a + b);
	case '-': return (int64_t)(a - b);
	case '*': return (int64_t)(a * b);
	case '/': return y == 0 || y == -1 ? (int64_t)(0 - a) * (y != 0) : x / y;
	case '%': return y == 0 || y == -1 ? 0 : (x % y + y) % y;
	case '^': return y < 0 ? 0 : (int64_t)pow((double)(x % 1000), (double)(y % 6));
	case 'M': return x > y ? x : y;
	default: return x < y ? x : y;
	}
}

static bool compared(int what, double x, double y)
{
	switch (what) {
	case '=': return x == y;
	case '<': return x < y;
	case 'l': return x <= y;
	case '>': return x > y;
	case 'g': return x >= y;
	case '&': return x != 0 && y != 0;
	default: return x != 0 || y != 0;
	}
}

/* An array of the shape to which both inputs broadcast. */
static struct array *pair(const struct fold *f, const struct array *like, const struct array *a,
			  const struct array *b)
{
	int64_t size[PD_ONNX_DIMS];
	int dims;

	if (!a || !b || !array_broadcast(a->dims, a->size, b->dims, b->size, &dims, size))
		return NULL;
	return take(f, like, dims, size);
}

struct array *fold_binary(const struct fold *f, int what)
{
	const struct array *a = in(f, 0), *b = in(f, 1);
	struct array *out = f->inputs == 2 ? pair(f, a, a, b) : NULL;

	if (!out || a->whole != b->whole || a->truth != b->truth)
		return NULL;
	for (int64_t n = 0; n < out->elements; n++) {
		int64_t i = array_broadcast_index(a, out->dims, out->size, n);
		int64_t j = array_broadcast_index(b, out->dims, out->size, n);

		if (out->whole)
			array_set(out, n, 0, binary_whole(what, array_integer(a, i), array_integer(b, j)));
		else
			out->reals[n] = rounded(f, binary_real(what, a->reals[i], b->reals[j]));
	}
	return out;
}

struct array *fold_compared(const struct fold *f, int what)
{
	static const struct array truth = { .whole = true, .truth = true };
	const struct array *a = in(f, 0), *b = in(f, 1);
	struct array *out = pair(f, &truth, a, b);

	for (int64_t n = 0; out && n < out->elements; n++)
		out->truths[n] = compared(what, array_real(a, array_broadcast_index(a, out->dims, out->size, n)),
					  array_real(b, array_broadcast_index(b, out->dims, out->size, n)));
	return out;
}

struct array *fold_where(const struct fold *f, int unused)
{
	const struct array *which = in(f, 0), *yes = in(f, 1), *no = in(f, 2);
	struct array both = { 0 }, *out = NULL;

	(void)unused;
	if (yes && no && array_broadcast(yes->dims, yes->size, no->dims, no->size, &both.dims, both.size))
		out = pair(f, yes, which, &both);
	if (!out || yes->whole != no->whole || yes->truth != no->truth)
		return NULL;
	for (int64_t n = 0; n < out->elements; n++) {
		const struct array *from =
			array_real(which, array_broadcast_index(which, out->dims, out->size, n)) != 0 ? yes : no;

		array_copy(out, n, from, array_broadcast_index(from, out->dims, out->size, n));
	}
	return out;
}

struct array *fold_range(const struct fold *f, int unused)
{
	double begin, end, step, count;
	struct array *out;

	(void)unused;
	if (f->inputs != 3 || !array_scalar(in(f, 0), &begin) || !array_scalar(in(f, 1), &end) ||
	    !array_scalar(in(f, 2), &step) || step == 0)
		return NULL;
	count = ceil((end - begin) / step);
	if (!(count >= 0 && count <= (double)MOST_ARRAY_ELEMENTS))
		return NULL;
	out = take(f, in(f, 0), 1, &(int64_t){ (int64_t)count });
	for (int64_t i = 0; out && i < out->elements; i++)
		array_set(out, i, begin + (double)i * step, array_cut(begin + (double)i * step));
	return out;
}

struct array *fold_running(const struct fold *f, int unused)
{
	const struct array *from = in(f, 0);
	double number;
	int axis = in(f, 1) && array_scalar(in(f, 1), &number) ? array_axis((int64_t)number, from->dims) : -1;
	struct array *out;
	int64_t step;

	(void)unused;
	if (axis < 0 || from->truth || integer_of(f->node, "exclusive", 0) || integer_of(f->node, "reverse", 0))
		return NULL;
	out = take(f, from, from->dims, from->size);
	step = array_part(from, axis + 1, from->dims);
	for (int64_t i = 0; out && i < out->elements; i++) {
		int64_t before = i / step % from->size[axis] > 0 ? i - step : -1;

		if (from->whole)
			out->integers[i] = (int64_t)((uint64_t)from->integers[i] +
						     (before < 0 ? 0 : (uint64_t)out->integers[before]));
		else
			out->reals[i] = from->reals[i] + (before < 0 ? 0 : out->reals[before]);
	}
	return out;
}

/* The mean over some axes. */
struct array *fold_mean(const struct fold *f, int unused)
{
	const struct array *from = in(f, 0);
	bool chosen[PD_ONNX_DIMS], keeps = integer_of(f->node, "keepdims", 1) != 0;
	struct extent to = { 0 };
	int64_t each = 1;
	struct array *out;

	(void)unused;
	if (from->whole || !extent_axes(f->node, in(f, 1), from->dims, chosen))
		return NULL;
	for (int d = 0; d < from->dims; d++) {
		each *= chosen[d] ? from->size[d] : 1;
		if (!chosen[d] || keeps)
			to.size[to.dims++] = chosen[d] ? 1 : from->size[d];
	}
	out = take(f, from, to.dims, to.size);
	for (int64_t n = 0; out && n < from->elements; n++) {
		int64_t at = 0, rest = n;

		for (int d = 0; d < from->dims; d++) {
			int64_t step = array_part(from, d + 1, from->dims);

			at = chosen[d] ? at : at * from->size[d] + rest / step;
			rest %= step;
		}
		out->reals[at] += from->reals[n] / (double)each;
	}
	return out;
}

/* The product of matrices; axes before the last two are the same, or only the first has some. */
struct array *fold_product(const struct fold *f, int unused)
{
	const struct array *a = in(f, 0), *b = in(f, 1);
	int64_t size[PD_ONNX_DIMS], inner, rows, columns, batches;
	struct array *out;

	(void)unused;
	if (!b || a->whole || b->whole || a->dims < 2 || b->dims < 2 || b->dims > a->dims)
		return NULL;
	inner = a->size[a->dims - 1];
	rows = a->size[a->dims - 2];
	columns = b->size[b->dims - 1];
	batches = array_part(a, 0, a->dims - 2);
	if (b->size[b->dims - 2] != inner || (array_part(b, 0, b->dims - 2) != batches && b->dims > 2))
		return NULL;
	memcpy(size, a->size, sizeof(size));
	size[a->dims - 1] = columns;
	out = take(f, a, a->dims, size);
	if (!out || out->elements > MOST_ARRAY_ELEMENTS / (inner + 1))
		return NULL;
	for (int64_t n = 0; n < out->elements; n++) {
		int64_t row = n / columns, first = b->dims > 2 ? row / rows * inner * columns : 0;

		for (int64_t i = 0; i < inner; i++)
			out->reals[n] += a->reals[row * inner + i] * b->reals[first + i * columns + n % columns];
	}
	return out;
}
