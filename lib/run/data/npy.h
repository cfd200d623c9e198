/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of NumPy, private to this folder: the header of a .npy file, the types of its elements, and an array
 * that has the samples of an input.
 */
#pragma once

#include "base/error.h"
#include "base/map.h"
#include "engine/data/dataset.h"
#include "run/data/zip.h"

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

/* An array with the samples of one input. */
struct pd_npy_column {
	char *file;                     /* for messages; owned */
	const struct pd_input *input;
	struct pd_file_map map;         /* of a file of its own */
	uint8_t *unpacked;              /* of an archive, if it was compressed there; owned */
	const uint8_t *data;            /* in map, unpacked, or an archive */
	const struct pd_npy_type *type;
	int64_t data_at;                /* the byte at which they begin */
	int64_t samples, elements;      /* of one sample */
	bool channels_last;             /* in images, which are read with the channels first */
};

/* The state of a set. */
struct pd_npy_set {
	int count;                      /* columns that are open, or about to be */
	struct pd_npy_column *columns;  /* one per input of the model */
	struct pd_zip zip;              /* where they are, or empty */
};

/* Reads the header, in the first `count` of `total` bytes, and checks that it is of samples of the input. */
int pd_npy_column_describe(struct pd_npy_column *column, const uint8_t *bytes, int64_t count, int64_t total,
			   struct pd_error *err);
/* Takes all bytes, and checks whole numbers. */
int pd_npy_column_fill(struct pd_npy_column *column, const uint8_t *bytes,
		       struct pd_dataset_range range, struct pd_error *err);
/* Checks that the last column has as many samples as the first, and sets the set's. */
int pd_npy_check_samples(struct pd_dataset *set, struct pd_error *err);
/* These are the read(), file() and close() of both formats. */
void pd_npy_read(const struct pd_dataset *set, int input, int64_t sample, void *out);
const char *pd_npy_file(const struct pd_dataset *set, int input);
void pd_npy_close(struct pd_dataset *set);
