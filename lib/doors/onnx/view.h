/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to this folder: a view of what a layer makes.  Exported graphs move axes about, cut them into heads
 * and join them again, mostly so that in the end nothing has moved.  So no such node makes a layer.  A value
 * is a view: of each of its axes it says where its elements are in the layer's output of one sample, and which
 * of them counts the samples.  Only what is left when a layer needs the value (place.h) becomes layers.
 */
#pragma once

#include "doors/onnx/shape.h"

#define MOST_FACTORS 16

/* Where the elements of (a part of) an axis are, or one of these. */
#define REPEATED 0                      /* one element that is the same in all places */
#define SAMPLES (-1)                    /* the samples of the batch */

struct factor {
	int64_t size, stride;
};

/* An axis is a product of factors, outermost first; one of size 1 has none, or that of the samples. */
struct view {
	int base;                       /* the layer or input */
	int64_t offset;                 /* of the first element */
	bool scaled;                    /* of an element x it shows x by + plus, which a layer has yet to compute */
	double by, plus;
	int axes;
	int first[PD_ONNX_DIMS + 1];    /* of each axis, and behind the last one */
	struct factor factor[MOST_FACTORS];
};

static inline int view_factors(const struct view *view, int axis)
{
	return view->first[axis + 1] - view->first[axis];
}

/*
 * These build a view axis by axis.  False: it has too many axes or factors.  Factors that lie side by side are
 * joined.
 */
bool view_axis(struct view *view);
bool view_factor(struct view *view, int64_t size, int64_t stride);
/* Adds an axis of another view. */
bool view_axis_of(struct view *view, const struct view *from, int axis);

int64_t view_size(const struct view *view, int axis);
/* The axis in which samples are counted, or -1. */
int view_samples(const struct view *view);
/* Does this axis count the samples, and nothing else? */
bool view_counts(const struct view *view, int axis);
/* Is an axis a repetition, or of size 1? */
bool view_repeats(const struct view *view, int axis);
struct extent view_extent(const struct view *view);
bool view_same(const struct view *a, const struct view *b);

/* A whole output, of the shape `sample`, whose samples are counted by axis `at` (-1: none is). */
bool view_whole(struct view *view, int base, const struct extent *sample, int at, int64_t batch);
/*
 * A whole output whose elements are in the order of another view's axes: what comes of it element by element
 * or row by row.  Axis `but` has `size` elements instead; -1: none.
 */
bool view_alike(struct view *view, int base, const struct view *like, int but, int64_t size);

/* Scales a view as another is. */
static inline void view_scale_as(struct view *view, const struct view *other)
{
	view->scaled = other->scaled;
	view->by = other->by;
	view->plus = other->plus;
}

/* Shows x by + plus of each element x that a view shows. */
static inline void view_scale(struct view *view, double by, double plus)
{
	double was = view->scaled ? view->by : 1;

	view->plus = (view->scaled ? view->plus * by : 0) + plus;
	view->by = was * by;
	view->scaled = view->by != 1 || view->plus != 0;
}

/* What nodes make of views.  False: no view shows that. */
bool view_permuted(struct view *view, const struct view *from, const int *order);
bool view_reshaped(struct view *view, const struct view *from, const struct extent *to);
bool view_part(struct view *view, const struct view *from, int axis, int64_t start, int64_t end);
/* Axes of size 1 come and go. */
bool view_inserted(struct view *view, const struct view *from, int axis);
bool view_removed(struct view *view, const struct view *from, int axis);
/* Repeats axes of size 1, and adds some in front, so that the axes have these sizes, or are as they were. */
bool view_expanded(struct view *view, const struct view *from, int dims, const int64_t *size);
