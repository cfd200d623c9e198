/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention of many heads, without the layer around it.
 *
 *     S = scale Q K^T + B,  P = softmax(S) by rows,  O = D(P) V
 *
 * where D, dropout, sets elements of P to zero and scales the others.  B, if there is one, has a number for
 * each head and bucket of places of keys less those of queries (model/relative.h).  Query head j uses key-value
 * head j * kv_heads / heads.  Tensors are plain: rows of heads side by side.
 *
 * Neither S nor P is ever in memory: tiles of them are made where they are used, forward with a
 * running maximum m and sum l of each row (Milakov and Gimelshein 2018, Dao et al. 2022).  Backward
 * makes P again from L = m + log l, which forward keeps: one number a row and head.
 */
#pragma once

#include "model/relative.h"
#include "model/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_attention {
	enum pd_dtype dtype;
	int64_t batch, heads, kv_heads;
	int64_t queries, keys;          /* rows of a sample */
	int64_t width, value_width;     /* of one head's queries and keys; of its values */
	bool causal;                    /* query i sees keys 0 to i */
	int64_t window;                 /* and of them the last so many; 0: all */
	float scale;
	float p;                        /* of dropout */
	uint64_t seed, stream;          /* its random numbers (base/rng.h) */
	struct pd_relative relative;
	int threads;
};

/* The tensors that one pass reads and writes. */
struct pd_attention_pass {
	const void *q, *k, *v;
	const int32_t *lengths;         /* by sample: keys from there on are not seen; NULL: all are */
	const void *bias;               /* by bucket and head; NULL: there is none */
	void *o;
	float *logs;                    /* L by sample, head and query, in units of log 2 */
	const void *d_o;
	void *dq, *dk, *dv;             /* NULL where nobody wants it */
	float *d_bias;                  /* by sample, head and bucket, to be added up; NULL without bias */
	int64_t first_sample;           /* its global number */
	bool drops;
	void *room;
};

/* Bytes of room, for all threads. */
size_t pd_attention_room(const struct pd_attention *a, bool back);
/* Writes o and logs. */
void pd_attention_forward(const struct pd_attention *a, const struct pd_attention_pass *pass);
/* Reads what forward wrote.  A thread adds up all gradients of a key-value head of a sample, in one
 * order: the bits do not depend on their number. */
void pd_attention_backward(const struct pd_attention *a, const struct pd_attention_pass *pass);
