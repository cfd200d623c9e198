/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stage keeps of a microbatch from forward to backward, and where, if it computes some of its
 * layers again.  Devices compute with this rule, and the planner adds up its bytes.
 *
 * Layers that are computed again make segments, such as the blocks of a transformer (Chen et al.
 * 2016, arXiv:1604.06174).  What other layers keep is there for every microbatch in flight, and so
 * is what one segment computes and another begins with.  All else of a segment is in the slot, which
 * serves one microbatch after the other: from the backward of the last layer that reads it, before
 * which the segment is computed again, to that of the segment's first layer.  Segments that are
 * there at different times have the same place.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define PD_OVER_NONE (-1)
#define PD_OVER_OUTSIDE (-2)

struct pd_segment_layer {
	int segment;            /* -1: it is not computed again */
	int input_count;
	const int *inputs;      /* numbers of layers, that of the stage's first being `first` */
	int over;               /* the layer (from 0) in whose memory its output lies, or PD_OVER_... */
	bool leaves;            /* another stage reads its output */
	/* as they are to lie, one behind the other */
	size_t output_bytes;    /* where that has memory of its own */
	size_t more_bytes;      /* what it keeps besides */
	/* set by pd_segments_place */
	bool kept;              /* its output lies in what is kept for each microbatch */
	bool kept_more;         /* and so does the rest */
	int point;              /* the layer before whose backward it is computed again; -1: never */
	size_t output_at, more_at;
};

struct pd_segments {
	size_t slot_bytes, kept_bytes;
	int first_point;        /* what is computed again first, before all of backward; -1: nothing */
};

/*
 * Places what count layers keep.  Inputs below `first` come from elsewhere.  A layer that overwrites
 * the output of one that is computed again becomes part of its segment.
 */
void pd_segments_place(struct pd_segment_layer *layers, int count, int first,
		       struct pd_segments *out_p);
