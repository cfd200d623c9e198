/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ONNX file as plain structs: the nodes of its graph, its tensors (initializers) by name, and what is
 * known of the shapes of values.  The graph is in memory, at most about twice as large as the file; tensors
 * that lie in files beside it are mapped when they are first read.
 *
 * Text and data belong to the struct pd_onnx.  No name is NULL: one that the file leaves out is "".
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define PD_ONNX_DIMS 8

/* Types of elements, with ONNX's numbers. */
enum pd_onnx_type {
	PD_ONNX_F32 = 1, PD_ONNX_U8 = 2, PD_ONNX_I8 = 3, PD_ONNX_U16 = 4, PD_ONNX_I16 = 5,
	PD_ONNX_I32 = 6, PD_ONNX_I64 = 7, PD_ONNX_BOOL = 9, PD_ONNX_F16 = 10, PD_ONNX_F64 = 11,
	PD_ONNX_U32 = 12, PD_ONNX_U64 = 13, PD_ONNX_BF16 = 16,
};

/* What a tensor was in PyTorch.  Old exporters do not say: then it is a parameter. */
enum pd_onnx_role {
	PD_ONNX_PARAMETER,
	PD_ONNX_BUFFER,                 /* of a module: no update moves it */
	PD_ONNX_CONSTANT,               /* as a buffer, but no state_dict has it */
};

struct pd_onnx_tensor {
	const char *name;
	enum pd_onnx_role role;
	int type;                       /* enum pd_onnx_type, or one that cannot be read */
	int dims;                       /* 0: a scalar */
	int64_t size[PD_ONNX_DIMS];
	int64_t elements;
	/* Private to this folder. */
	const uint8_t *data;            /* NULL: in another file, and not read yet */
	int width;                      /* bytes of an element there */
	const char *location;           /* the file, relative to the folder of this one; NULL: it is here */
	int64_t offset_bytes, file_bytes;       /* there; -1 bytes: up to its end */
};

enum pd_onnx_attribute_kind {
	PD_ONNX_NUMBER, PD_ONNX_INTEGER, PD_ONNX_TEXT, PD_ONNX_TENSOR, PD_ONNX_NUMBERS, PD_ONNX_INTEGERS,
	PD_ONNX_OTHER,
};

struct pd_onnx_attribute {
	const char *name;
	enum pd_onnx_attribute_kind kind;
	union {
		float number;
		int64_t integer;
		const char *text;
		struct pd_onnx_tensor *tensor;
		const float *numbers;
		const int64_t *integers;
	};
	size_t count;                   /* of numbers or integers */
};

struct pd_onnx_node {
	const char *op, *domain, *name;
	size_t inputs, outputs, attributes;
	const char *const *input;       /* names of values; "": left out */
	const char *const *output;
	const struct pd_onnx_attribute *attribute;
	char *scope;                    /* the module that PyTorch made it in, such as "layer1.0.conv1"; "" */
	int64_t padding;                /* of an embedding: padding_idx of PyTorch's; -1: none */
};

/* What is known of a value: an input, an output, or one between nodes. */
struct pd_onnx_value {
	const char *name;
	int type;                       /* 0: not known */
	int dims;                       /* -1: not known */
	int64_t size[PD_ONNX_DIMS];     /* -1: not known */
	const char *symbol;             /* the name of a size that is not known, or NULL */
};

struct pd_onnx {
	const char *file;
	const char *producer;
	int64_t opset;
	size_t nodes, tensors, inputs, outputs, values;
	struct pd_onnx_node *node;
	struct pd_onnx_tensor *tensor;  /* in the order of their names */
	struct pd_onnx_value *input, *output, *value;   /* inputs are those that are no tensors */
	struct pd_onnx_memory *memory;
};

/* Errors count as input: it is no ONNX file, is damaged, or would take too much memory. */
struct pd_onnx *pd_onnx_open(const char *file, struct pd_error *err);
void pd_onnx_close(struct pd_onnx *onnx);
/* Returns the tensor of that name, or NULL. */
struct pd_onnx_tensor *pd_onnx_find(const struct pd_onnx *onnx, const char *name);
/* "F32", "BF16", "I64", as the safetensors format has it; "?" if it is another. */
const char *pd_onnx_type_name(int type);
/*
 * Reads all elements, of F32, F16, BF16 or F64, into out (tensor->elements floats).  Errors count as input:
 * another type, or a file beside the model that is missing, too short, or outside its folder.
 */
int pd_onnx_read(const struct pd_onnx *onnx, struct pd_onnx_tensor *tensor, float *out,
		 struct pd_error *err);
/* The same for any type that has a number here, as doubles, and for whole numbers and booleans. */
int pd_onnx_read_doubles(const struct pd_onnx *onnx, struct pd_onnx_tensor *tensor, double *out,
			 struct pd_error *err);
int pd_onnx_read_integers(const struct pd_onnx *onnx, struct pd_onnx_tensor *tensor, int64_t *out,
			  struct pd_error *err);
bool pd_onnx_is_integer(int type);
bool pd_onnx_is_float(int type);
/* Returns the attribute of that name and kind, or NULL. */
const struct pd_onnx_attribute *pd_onnx_attribute(const struct pd_onnx_node *node, const char *name,
						  enum pd_onnx_attribute_kind kind);
