/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: the header of a .npy file, and the types of its elements. */
#ifndef PD_DATA_NPY_H
#define PD_DATA_NPY_H

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

/* Reads the header of a file of so many bytes; nothing behind it is looked at. */
int pd_npy_header_read(const char *file, const uint8_t *bytes, int64_t count,
		       struct pd_npy_header *header_p, struct pd_error *err);

/* Elements lie at any address, little-endian. */
struct pd_npy_type {
	const char *name;               /* as in a header */
	int bytes;                      /* of an element */
	bool negative;                  /* has numbers below 0 */
	void (*to_f32)(const uint8_t *from, int64_t count, float *to);
	/* Of whole numbers, else NULL: */
	void (*to_i32)(const uint8_t *from, int64_t count, int32_t *to);
	/* The first of `count` elements that is not in the range; count: there is none. */
	int64_t (*find_outside)(const uint8_t *from, int64_t count,
				const struct pd_dataset_range *range);
	/* One element; where it has numbers below 0, their bits in 64. */
	uint64_t (*value)(const uint8_t *from);
};

/* The type called name, or NULL. */
const struct pd_npy_type *pd_npy_type_find(const char *name);
/* "|b1, |u1, ...": those that an i32 input takes, or all, which an f32 input does; returns text. */
#define PD_NPY_LIST_BYTES 96
const char *pd_npy_type_list(bool whole, char text[PD_NPY_LIST_BYTES]);

#endif
