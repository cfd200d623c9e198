/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a .npy file, and the types of its elements; private to this folder. */
#pragma once

#include "base/error.h"
#include "data/dataset.h"

#include <stdbool.h>
#include <stdint.h>

#define PD_NPY_DIMS 64                  /* at most; NumPy 2 has as many */
#define PD_NPY_TYPE_BYTES 16

struct pd_npy_header {
	char type[PD_NPY_TYPE_BYTES];   /* "<f4" */
	bool fortran_order;
	int dims;
	int64_t size[PD_NPY_DIMS];
	int64_t data_at;                /* the byte at which the elements begin */
};

/* Reads the header of a file of `count` bytes, and looks at nothing behind it. */
int pd_npy_header_read(const char *file, const uint8_t *bytes, int64_t count,
		       struct pd_npy_header *header_p, struct pd_error *err);

/* Elements are little-endian and may lie at any address. */
struct pd_npy_type {
	const char *name;               /* as in a header */
	int bytes;
	bool negative;                  /* has numbers below 0 */
	bool is_byte;                   /* of an image */
	void (*to_f32)(const uint8_t *from, int64_t count, float *to);
	/* NULL unless elements are whole numbers */
	void (*to_i32)(const uint8_t *from, int64_t count, int32_t *to);
	/* The first of `count` elements that is not in the range; count: there is none. */
	int64_t (*find_outside)(const uint8_t *from, int64_t count,
				const struct pd_dataset_range *range);
	/* One element; where it has numbers below 0, their bits in 64. */
	uint64_t (*value)(const uint8_t *from);
};

/* Returns the type called name, or NULL. */
const struct pd_npy_type *pd_npy_type_find(const char *name);
/*
 * Lists the types that an i32 input takes (whole), or an f32 input, as "|b1, |u1, ..."; returns
 * text.
 */
#define PD_NPY_LIST_BYTES 96
const char *pd_npy_type_list(bool whole, char text[PD_NPY_LIST_BYTES]);
