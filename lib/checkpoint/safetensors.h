/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named tensors in a file of the safetensors format: eight bytes with the length of a
 * header (little-endian), the header, a JSON object
 *
 *     {"NAME": {"dtype": "F32", "shape": [64, 10], "data_offsets": [0, 2560]}, ...,
 *      "__metadata__": {"KEY": "TEXT"}}
 *
 * filled up with spaces so that the data after it are aligned to eight bytes, then the
 * data, tensor after tensor without gaps, each in C order.  Any element type is accepted in a file;
 * tensors of F32, F16, BF16 and F64 can be read and written, as floats.
 */
#pragma once

#include "base/json.h"

#define PD_TENSOR_DIMS 8
#define PD_TENSOR_FLOATS "F32, F16, BF16 or F64"        /* the types that are floats here, for messages */

struct pd_tensor {
	char *name;
	const char *dtype;              /* as the format names it; NULL: "F32", for the writer */
	int dims;                       /* 0: a scalar */
	int64_t size[PD_TENSOR_DIMS];
	int64_t elements;
	int64_t begin_bytes, end_bytes; /* from the start of the data; the writer fills them in */
};

/* Can its elements be read as floats? */
bool pd_tensor_is_float(const struct pd_tensor *tensor);

/* A safetensors file that is read. */
struct pd_safetensors;

/* Opens a file, and reads and checks its header.  Errors count as input. */
struct pd_safetensors *pd_safetensors_open(const char *file, struct pd_error *err);
void pd_safetensors_close(struct pd_safetensors *st);
const char *pd_safetensors_file(const struct pd_safetensors *st);
/* Lists all tensors, in the order of the data. */
size_t pd_safetensors_list(const struct pd_safetensors *st, const struct pd_tensor **list_p);
/* Returns the tensor of that name, or NULL. */
const struct pd_tensor *pd_safetensors_find(const struct pd_safetensors *st, const char *name);
/*
 * Reads the tensor's elements into out (tensor->elements floats), or `count` of them from `first` on.
 * Errors count as input: they are not floats, or cannot be read.
 */
int pd_safetensors_read(const struct pd_safetensors *st, const struct pd_tensor *tensor, float *out,
			struct pd_error *err);
int pd_safetensors_read_some(const struct pd_safetensors *st, const struct pd_tensor *tensor, int64_t first,
			     int64_t count, float *out, struct pd_error *err);
/*
 * Returns XXH64 of its elements as they are in the file.  Errors count as input: they cannot be
 * read.
 */
int pd_safetensors_checksum(const struct pd_safetensors *st, const struct pd_tensor *tensor,
			    uint64_t seed, uint64_t *checksum_p, struct pd_error *err);
/* Returns XXH64 of everything before the data, with seed 0. */
uint64_t pd_safetensors_header_checksum(const struct pd_safetensors *st);
/* Returns the value of a key of __metadata__, or NULL. */
const char *pd_safetensors_metadata(const struct pd_safetensors *st, const char *key);
/* Returns the whole __metadata__, an object of strings, borrowed; NULL if there is none. */
json_t *pd_safetensors_all_metadata(const struct pd_safetensors *st);

/* Returns the bytes of a tensor that is to be written, by its dtype, dims and size. */
int64_t pd_tensor_bytes(const struct pd_tensor *tensor);
/*
 * Writes a file, which has its name when it is complete.  Of each tensor it reads name, dtype, dims and size;
 * names are unique; data has the elements of each, which is not NULL even if there are none.  metadata is an object of strings or NULL,
 * borrowed.  *checksum_p: what pd_safetensors_header_checksum() will return.  Errors count as failed.
 */
int pd_safetensors_write(const char *name, const struct pd_tensor *tensors,
			 const float *const *data, size_t count, json_t *metadata,
			 uint64_t *checksum_p, struct pd_error *err);
/* Gives the elements of a tensor, which stay until the next call; NULL: an error. */
typedef const float *pd_tensor_giver(void *context, size_t number, struct pd_error *err);
/*
 * The same, of tensors that are given one after the other.  Further errors: those of `give`; input where a
 * number is finite, and too large for the type.
 */
int pd_safetensors_write_each(const char *name, const struct pd_tensor *tensors, size_t count, json_t *metadata,
			      pd_tensor_giver *give, void *context, uint64_t *checksum_p, struct pd_error *err);
