/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named tensors in a file of the safetensors format: eight bytes with the length of a
 * header (little-endian), the header, a JSON object
 *
 *     {"NAME": {"dtype": "F32", "shape": [64, 10], "data_offsets": [0, 2560]}, ...,
 *      "__metadata__": {"KEY": "TEXT"}}
 *
 * filled up with spaces so that the data after it are aligned to eight bytes, then the
 * data, tensor after tensor without gaps, each in C order.  Written: F32 only.  Any element
 * type is accepted in a file; tensors of F32, F16 and BF16 can be read, as floats.
 */
#ifndef PD_CHECKPOINT_SAFETENSORS_H
#define PD_CHECKPOINT_SAFETENSORS_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_TENSOR_DIMS 8

struct pd_tensor {
	char *name;
	const char *dtype;              /* "F32", as the format names it; not read by the writer */
	int dims;                       /* 0: a scalar */
	int64_t size[PD_TENSOR_DIMS];
	int64_t elements;
	int64_t begin_bytes, end_bytes; /* from the start of the data; the writer fills them in */
};

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
 * Reads the tensor's elements into out (tensor->elements floats).  Errors count as input: its type
 * is not F32, F16 or BF16, or it cannot be read.
 */
int pd_safetensors_read(const struct pd_safetensors *st, const struct pd_tensor *tensor, float *out,
			struct pd_error *err);
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

/* A safetensors file that is written, under a temporary name until it is committed. */
struct pd_safetensors_writer;

/*
 * Writes the header.  It reads name, dims and size of each tensor; names are unique.  metadata is
 * an object of strings or NULL, borrowed.  Errors count as failed.
 */
struct pd_safetensors_writer *pd_safetensors_create(const char *file,
						    const struct pd_tensor *tensors, size_t count,
						    json_t *metadata, struct pd_error *err);
/* Returns what pd_safetensors_header_checksum() will return for the file. */
uint64_t pd_safetensors_written_header(const struct pd_safetensors_writer *writer);
/* Writes the elements of the next tensor in the list's order. */
int pd_safetensors_put(struct pd_safetensors_writer *writer, const float *data,
		       struct pd_error *err);
/* Commits the file after all tensors: syncs and names it.  Frees the writer, also on error. */
int pd_safetensors_commit(struct pd_safetensors_writer *writer, struct pd_error *err);
/* Discards the file.  NULL is allowed. */
void pd_safetensors_abandon(struct pd_safetensors_writer *writer);

#endif
