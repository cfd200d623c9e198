/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What layers multiply and move, from the model alone (kind_cost.def): the operations and bytes of each kernel
 * of a microbatch, whatever device runs it.
 */
#pragma once

#include "model/model.h"

enum pd_cost_part { PD_COST_FORWARD, PD_COST_INPUT, PD_COST_WEIGHT, PD_COST_PARTS };

/* `times` products of matrices, rows x depth and depth x columns, that one kernel makes side by side. */
struct pd_product {
	int64_t rows, columns, depth, times;
	bool attention;                 /* of an attention, whose kernel makes several, one behind the other */
	int64_t in_turn;                /* kernels of which each waits for the one before, as an LSTM's steps do */
};

#define PD_PRODUCTS 4

struct pd_cost {
	int product_count;
	struct pd_product products[PD_PRODUCTS];
	double bytes;                   /* read and written; 0 and no products: there is no kernel */
};

/* Counts the cost of a part of a layer in a microbatch of `batch` samples. */
void pd_cost_of(const struct pd_model *model, int layer, int64_t batch, enum pd_dtype dtype,
		enum pd_cost_part part, struct pd_cost *out_p);
/* Returns multiplications and additions of the products, two for each pair of numbers. */
double pd_cost_operations(const struct pd_cost *cost);
/* Returns the bytes that a layer keeps from forward to backward: its output, and what its kind keeps besides. */
double pd_cost_kept_bytes(const struct pd_model *model, int layer, int64_t batch, enum pd_dtype dtype);

/* Private to this folder: the functions that kind_cost.def names. */
struct pd_cost_layer {
	const struct pd_model *model;
	const struct pd_layer *layer;
	int64_t batch;
	enum pd_cost_part part;
};
void pd_products_none(const struct pd_cost_layer *of, struct pd_cost *cost);
void pd_products_linear(const struct pd_cost_layer *of, struct pd_cost *cost);
void pd_products_conv(const struct pd_cost_layer *of, struct pd_cost *cost);
void pd_products_attention(const struct pd_cost_layer *of, struct pd_cost *cost);
void pd_products_additive(const struct pd_cost_layer *of, struct pd_cost *cost);
void pd_products_lstm(const struct pd_cost_layer *of, struct pd_cost *cost);
