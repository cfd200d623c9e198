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
	/*
	 * Where a device has Winograd's algorithm: products that it makes for each of these, 0: it does not suit;
	 * and the bytes of tiles and weights that it writes and reads on its way
	 */
	double winograd, winograd_bytes;
	int64_t in_turn;                /* kernels of which each waits for the one before, as an LSTM's steps do */
};

#define PD_PRODUCTS 4

struct pd_cost {
	int product_count;
	struct pd_product products[PD_PRODUCTS];
	double bytes;                   /* read and written; 0 and no products: there is no kernel */
	int apart_kernels;              /* kernels that multiply nothing and come before or behind those that do */
	double apart_bytes;             /* what these read and write */
};

/* The part of a layer that one of several devices has: one of so many parts of each. */
struct pd_share {
	int64_t inputs, output;         /* of their features */
	int64_t rows;                   /* of the rows of both */
	int64_t parameters;
	double beside;                  /* layers that read the same input are one product: theirs and its own
					   columns over its own */
};
#define PD_SHARE_ALL ((struct pd_share){ 1, 1, 1, 1, 1 })

/* A layer as it is run. */
struct pd_cost_layer {
	const struct pd_model *model;
	const struct pd_layer *layer;
	int64_t batch;                  /* samples of a microbatch */
	enum pd_dtype dtype;
	bool unfused;                   /* attention makes its scores in memory, by kernels of their own */
	bool drops_behind;              /* forward of dropout is part of the kernel behind it, but for the mask */
	struct pd_share share;
};

/* Counts the cost of a part of a layer. */
void pd_cost_count(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *out_p);
/* Returns multiplications and additions of the products, two for each pair of numbers. */
double pd_cost_operations(const struct pd_cost *cost);
/* Returns the bytes that pd-run keeps of a layer from forward to backward: its output, and what its kind keeps besides. */
double pd_cost_kept_bytes(const struct pd_cost_layer *of);
/* Returns those of a program that keeps only what backward reads. */
double pd_cost_read_bytes(const struct pd_cost_layer *of);
/* Tells whether devices can share a layer out by features, if they have so shared out its inputs. */
bool pd_cost_by_features(const struct pd_layer *layer);

/* Private to this folder: the functions that kind_cost.def names. */
void pd_products_none(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost);
void pd_products_linear(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost);
void pd_products_conv(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost);
void pd_products_attention(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost);
void pd_products_additive(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost);
void pd_products_lstm(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost);
/* Returns the bytes of an attention's scores, and what becomes of them, that are kept if it is not fused. */
double pd_products_scores_bytes(const struct pd_cost_layer *of);
