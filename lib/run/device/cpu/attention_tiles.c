/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tile is QUERIES x KEYS of P.  What goes into its products is copied, as f32, into rows padded
 * to PD_TILE_PAD: keys and values once for many tiles.  The scale and log2 e are multiplied into
 * the queries, so that exponentials and logarithms are those of 2.
 *
 * Forward goes along the keys for each tile of queries.  Backward goes along the queries for each
 * tile of keys, so that their gradients are made in one place; those of all queries of the job are
 * added up in the room meanwhile.  So P is made once, not once for either (as where several threads
 * share a head).
 */
#include "run/device/cpu/attention.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/rng.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/tile.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define QUERIES 64
#define KEYS 128                /* a multiple of PD_TILE_PAD and of 4 */
#define LOG2_E 1.44269504088896341

/* One thread's part of the room.  Rows of `width` and `value_width` are padded. */
struct room {
	float *k, *k_turned, *v;        /* forward: all keys; backward: a tile of them */
	float *q, *d_o, *o;             /* a tile of queries */
	float *p, *dp, *mask;           /* tiles of QUERIES x KEYS */
	float *most, *sum;              /* by query of a tile */
	float *dk, *dv;                 /* a tile of keys */
	float *dq, *delta;              /* all queries of all heads of a job */
	/* by head of a job and place of a key less that of a query, from the least on: B, in units of log 2, and dS */
	float *bias, *d_bias;
};

static float *reserve_floats(char *base, size_t *at_p, int64_t floats)
{
	float *part = base ? (float *)(base + *at_p) : NULL;

	*at_p += pd_align(sizeof(float) * (size_t)floats);
	return part;
}

static int64_t group_of(const struct pd_attention *a)
{
	return a->heads / a->kv_heads;
}

/* Places of keys less those of queries, and what a tile reads behind the last one. */
static int64_t diagonals_of(const struct pd_attention *a)
{
	return a->relative.buckets > 0 ? a->queries + a->keys - 1 + PD_TILE_PAD : 0;
}

/* Lays out a thread's room and returns its bytes; with base NULL, only counts them. */
static size_t lay_out(const struct pd_attention *a, bool back, char *base, struct room *room)
{
	int64_t width = pd_tile_padded(a->width), values = pd_tile_padded(a->value_width);
	int64_t keys = back ? KEYS : pd_tile_padded(a->keys);
	size_t at = 0;

	room->k = reserve_floats(base, &at, KEYS * width);
	room->k_turned = reserve_floats(base, &at, keys * width);
	room->v = reserve_floats(base, &at, keys * values);
	room->q = reserve_floats(base, &at, QUERIES * width);
	room->o = reserve_floats(base, &at, QUERIES * values);
	room->p = reserve_floats(base, &at, QUERIES * KEYS);
	room->mask = reserve_floats(base, &at, a->p > 0 ? QUERIES * KEYS : 0);
	room->bias = reserve_floats(base, &at, (back ? group_of(a) : 1) * diagonals_of(a));
	if (!back) {
		room->most = reserve_floats(base, &at, QUERIES);
		room->sum = reserve_floats(base, &at, QUERIES);
		return at;
	}
	room->d_o = reserve_floats(base, &at, QUERIES * values);
	room->dp = reserve_floats(base, &at, QUERIES * KEYS);
	room->dk = reserve_floats(base, &at, KEYS * width);
	room->dv = reserve_floats(base, &at, KEYS * values);
	room->dq = reserve_floats(base, &at, group_of(a) * a->queries * width);
	room->delta = reserve_floats(base, &at, group_of(a) * a->queries);
	room->d_bias = reserve_floats(base, &at, group_of(a) * diagonals_of(a));
	return at;
}

size_t pd_attention_room(const struct pd_attention *a, bool back)
{
	struct room room;

	return (size_t)a->threads * lay_out(a, back, NULL, &room);
}

/* ---- a job: one head of one sample, or in backward one key-value head and those that use it ---- */

struct job {
	const struct pd_attention *a;
	const struct pd_attention_pass *pass;
	const struct pd_tile_ops *ops;
	int64_t sample, kv_head;
	int64_t length;                 /* keys that are seen */
	int64_t width, values;          /* padded */
	int64_t diagonals;
	struct room room;
};

static struct job job_of(const struct pd_attention *a, const struct pd_attention_pass *pass, bool back,
			 int64_t sample, int64_t kv_head)
{
	size_t bytes = pd_attention_room(a, back) / (size_t)a->threads;
	struct job j = {
		.a = a, .pass = pass, .ops = pd_tile_ops(), .sample = sample, .kv_head = kv_head,
		.length = a->keys,
		.width = pd_tile_padded(a->width), .values = pd_tile_padded(a->value_width),
		.diagonals = diagonals_of(a),
	};

	if (pass->lengths)
		j.length = pd_min(pass->lengths[sample], a->keys);
	if (j.length < 0)
		j.length = 0;
	lay_out(a, back, (char *)pass->room + (size_t)omp_get_thread_num() * bytes, &j.room);
	return j;
}

/* Rows of one head of a tensor. */
struct rows {
	const void *tensor;
	int64_t first, count;           /* rows of the batch */
	int64_t heads, head, width;
};

static struct rows query_rows(const struct job *j, const void *q, int64_t head, int64_t from,
			      int64_t count, int64_t width)
{
	return (struct rows){ q, j->sample * j->a->queries + from, count, j->a->heads, head, width };
}

static struct rows key_rows(const struct job *j, const void *k, int64_t from, int64_t count,
			    int64_t width)
{
	return (struct rows){ k, j->sample * j->a->keys + from, count, j->a->kv_heads, j->kv_head,
			      width };
}

static int64_t place_of(const struct rows *rows, int64_t r)
{
	return ((rows->first + r) * rows->heads + rows->head) * rows->width;
}

/* Copies rows, padded with zeros to `width`. */
static void read_rows(const struct job *j, float *dst, int64_t width, struct rows rows)
{
	size_t count = (size_t)rows.width;

	for (int64_t r = 0; r < rows.count; r++, dst += width) {
		if (j->a->dtype == PD_F32)
			memcpy(dst, (const float *)rows.tensor + place_of(&rows, r),
			       count * sizeof(*dst));
		else
			pd_cpu_widen(j->a->dtype, dst,
				     (const uint16_t *)rows.tensor + place_of(&rows, r), count);
		for (int64_t i = rows.width; i < width; i++)
			dst[i] = 0;
	}
}

static void write_rows(const struct job *j, struct rows rows, const float *src, int64_t width)
{
	size_t count = (size_t)rows.width;

	for (int64_t r = 0; r < rows.count; r++, src += width)
		if (j->a->dtype == PD_F32)
			memcpy((float *)rows.tensor + place_of(&rows, r), src, count * sizeof(*src));
		else
			pd_cpu_narrow(j->a->dtype, (uint16_t *)rows.tensor + place_of(&rows, r), src,
				      count);
}

/* Copies keys, turned so that a row of dst has element i of `dst_row` keys. */
static void read_turned(const struct job *j, float *dst, int64_t dst_row, struct rows rows,
			int64_t width, float *copy)
{
	int64_t padded = pd_tile_padded(rows.count);

	read_rows(j, copy, width, rows);
	memset(copy + rows.count * width, 0,
	       sizeof(float) * (size_t)((padded - rows.count) * width));
	j->ops->transpose(dst, dst_row, copy, width, padded, width);
}

static void read_queries(const struct job *j, int64_t head, int64_t from, int64_t count)
{
	read_rows(j, j->room.q, j->width,
		  query_rows(j, j->pass->q, head, from, count, j->a->width));
	j->ops->scale(j->room.q, (float)(j->a->scale * LOG2_E), count * j->width);
}

/* Counts the keys that query i sees, from key `first` on. */
static int64_t seen(const struct job *j, int64_t i, int64_t first)
{
	int64_t keys = j->a->causal ? pd_min(i + 1, j->length) : j->length;

	return keys > first ? keys - first : 0;
}

/* Returns the first key that query i sees. */
static int64_t first_seen(const struct job *j, int64_t i)
{
	return j->a->window > 0 && i >= j->a->window ? i - j->a->window + 1 : 0;
}

/* ---- bias: a row of a tile has its diagonals side by side ---- */

/* Returns the numbers of head `number` of the job from that of a query's key k on. */
static float *diagonal(const struct job *j, float *of_heads, int64_t number, int64_t q, int64_t k)
{
	return of_heads + number * j->diagonals + k - q + j->a->queries - 1;
}

PD_VECTOR static void add_row(float *restrict to, const float *restrict from, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		to[i] += from[i];
}

/* The diagonals of a bucket, as indices of a head's. */
static struct pd_relative_range range_of(const struct job *j, int32_t bucket)
{
	struct pd_relative_range range = pd_relative_range(&j->a->relative, bucket);
	int64_t least_place = 1 - j->a->queries;

	range.begin = range.begin < least_place ? 0 : (int32_t)pd_min(range.begin - least_place, j->diagonals);
	range.end = range.end < least_place ? 0 : (int32_t)pd_min(range.end - least_place, j->diagonals);
	return range;
}

/* Writes the bias of one head as that of head `number` of the job. */
static void read_bias(const struct job *j, int64_t head, int64_t number)
{
	for (int32_t b = 0; b < j->a->relative.buckets; b++) {
		struct pd_relative_range range = range_of(j, b);
		float room, bias = *pd_cpu_wide(j->a->dtype, j->pass->bias, b * j->a->heads + head, 1, &room);

		for (int32_t d = range.begin; d < range.end; d++)
			j->room.bias[number * j->diagonals + d] = (float)(bias * LOG2_E);
	}
}

/* Writes the gradients of the buckets of a head, which is head `number` of the job. */
static void write_bias(const struct job *j, int64_t head, int64_t number)
{
	int32_t buckets = j->a->relative.buckets;
	float *d_bias = j->pass->d_bias + (j->sample * j->a->heads + head) * buckets;

	for (int32_t b = 0; b < buckets; b++) {
		struct pd_relative_range range = range_of(j, b);

		d_bias[b] = 0;
		for (int32_t d = range.begin; d < range.end; d++)
			d_bias[b] += j->room.d_bias[number * j->diagonals + d];
	}
}

/* S of queries from q and `keys` keys from k on; k_turned: those, in rows of `row`.  number: as in diagonal(). */
static void scores(const struct job *j, int64_t number, int64_t q, int64_t count, int64_t k, int64_t keys,
		   const float *k_turned, int64_t row)
{
	struct pd_tile_product product = {
		.m = count, .n = pd_tile_padded(keys), .k = j->a->width,
		.a = j->room.q, .a_row = j->width, .a_column = 1,
		.b = k_turned, .ldb = row, .c = j->room.p, .ldc = KEYS,
	};

	j->ops->multiply(&product);
	for (int64_t i = 0; i < count; i++) {
		if (j->diagonals > 0)
			add_row(j->room.p + i * KEYS, diagonal(j, j->room.bias, number, q + i, k), product.n);
		for (int64_t at = pd_min(first_seen(j, q + i) - k, product.n) - 1; at >= 0; at--)
			j->room.p[i * KEYS + at] = -INFINITY;
		for (int64_t at = seen(j, q + i, k); at < product.n; at++)
			j->room.p[i * KEYS + at] = -INFINITY;
	}
}

/* ---- dropout ---- */

/* Numbers of four elements each of a sample: of head h, query i and keys 4 n to 4 n + 3. */
PD_VECTOR static void draw(float *mask, const struct pd_attention *a, uint32_t sample, uint64_t first,
			   float kept)
{
	uint32_t c0[KEYS / 4], c1[KEYS / 4], c2[KEYS / 4], c3[KEYS / 4];
	uint32_t least_kept = (uint32_t)ceilf(a->p * 0x1p24f);
	uint32_t k0 = (uint32_t)a->seed, k1 = (uint32_t)(a->seed >> 32);

	for (uint64_t i = 0; i < KEYS / 4; i++) {
		uint64_t stream = a->stream + ((first + i) >> 32 << 24);

		c0[i] = (uint32_t)(first + i);
		c1[i] = sample;
		c2[i] = (uint32_t)stream;
		c3[i] = (uint32_t)(stream >> 32);
	}
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < KEYS / 4; i++) {
			uint64_t p0 = (uint64_t)0xD2511F53 * c0[i];
			uint64_t p1 = (uint64_t)0xCD9E8D57 * c2[i];

			c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
			c1[i] = (uint32_t)p1;
			c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
			c3[i] = (uint32_t)p0;
		}
		k0 += 0x9E3779B9;
		k1 += 0xBB67AE85;
	}
	for (int i = 0; i < KEYS / 4; i++) {
		mask[4 * i] = c0[i] >> 8 >= least_kept ? kept : 0;
		mask[4 * i + 1] = c1[i] >> 8 >= least_kept ? kept : 0;
		mask[4 * i + 2] = c2[i] >> 8 >= least_kept ? kept : 0;
		mask[4 * i + 3] = c3[i] >> 8 >= least_kept ? kept : 0;
	}
}

/* The factors of a tile: of these queries, and of KEYS keys from k on. */
static void read_mask(const struct job *j, int64_t head, int64_t q, int64_t count, int64_t k)
{
	const struct pd_attention *a = j->a;
	uint64_t of_a_row = (uint64_t)(a->keys + 3) / 4;

	for (int64_t i = 0; i < count; i++)
		draw(j->room.mask + i * KEYS, a, (uint32_t)(j->pass->first_sample + j->sample),
		     (uint64_t)(head * a->queries + q + i) * of_a_row + (uint64_t)k / 4,
		     1 / (1 - a->p));
}

/* ---- forward ---- */

/* Turns row i of a tile of S into that of P, not yet divided by the running sum. */
static void soften(const struct job *j, int64_t i, int64_t padded)
{
	float *row = j->room.p + i * KEYS, *most = &j->room.most[i], *sum = &j->room.sum[i];
	float greatest = j->ops->greatest(row, padded);

	if (greatest > *most || isnan(greatest)) {
		float factor = exp2f(*most - greatest);

		*sum *= factor;
		if (*most != -INFINITY)
			j->ops->scale(j->room.o + i * j->values, factor, j->values);
		*most = greatest;
	}
	if (*most == -INFINITY)         /* no key has been seen */
		memset(row, 0, sizeof(*row) * (size_t)padded);
	else
		*sum += j->ops->exp2_sum(row, *most, padded);
}

static void add_values(const struct job *j, int64_t count, int64_t k, int64_t keys)
{
	j->ops->multiply(&(struct pd_tile_product){
		.m = count, .n = j->values, .k = keys,
		.a = j->room.p, .a_row = KEYS, .a_column = 1,
		.b = j->room.v + k * j->values, .ldb = j->values,
		.c = j->room.o, .ldc = j->values, .adds = true,
	});
}

static void finish(const struct job *j, int64_t head, int64_t q, int64_t count)
{
	float *logs = j->pass->logs + (j->sample * j->a->heads + head) * j->a->queries + q;

	for (int64_t i = 0; i < count; i++) {
		float sum = j->room.sum[i];

		if (seen(j, q + i, first_seen(j, q + i)) == 0) {        /* no key: P is made again as 0 */
			memset(j->room.o + i * j->values, 0, sizeof(float) * (size_t)j->values);
			logs[i] = INFINITY;
			continue;
		}
		j->ops->scale(j->room.o + i * j->values, 1 / sum, j->values);
		logs[i] = j->room.most[i] + log2f(sum);
	}
	write_rows(j, query_rows(j, j->pass->o, head, q, count, j->a->value_width), j->room.o,
		   j->values);
}

static void forward_queries(const struct job *j, int64_t head, int64_t q, int64_t count)
{
	int64_t row = pd_tile_padded(j->a->keys), last = seen(j, q + count - 1, 0);

	read_queries(j, head, q, count);
	memset(j->room.o, 0, sizeof(float) * (size_t)(count * j->values));
	for (int64_t i = 0; i < count; i++) {
		j->room.most[i] = -INFINITY;
		j->room.sum[i] = 0;
	}
	for (int64_t k = first_seen(j, q) / KEYS * KEYS; k < last; k += KEYS) {
		int64_t keys = pd_min(KEYS, last - k), padded = pd_tile_padded(keys);

		scores(j, 0, q, count, k, keys, j->room.k_turned + k, row);
		for (int64_t i = 0; i < count; i++)
			soften(j, i, padded);
		if (j->pass->drops) {
			read_mask(j, head, q, count, k);
			for (int64_t i = 0; i < count; i++)
				j->ops->times(j->room.p + i * KEYS, j->room.mask + i * KEYS, padded);
		}
		add_values(j, count, k, keys);
	}
	finish(j, head, q, count);
}

static void forward_head(const struct job *j, int64_t head)
{
	const struct pd_attention *a = j->a;
	int64_t row = pd_tile_padded(a->keys);

	for (int64_t k = 0; k < j->length; k += KEYS) {
		int64_t keys = pd_min(KEYS, j->length - k);

		read_turned(j, j->room.k_turned + k, row,
			    key_rows(j, j->pass->k, k, keys, a->width), j->width, j->room.k);
	}
	read_rows(j, j->room.v, j->values, key_rows(j, j->pass->v, 0, j->length, a->value_width));
	if (j->diagonals > 0)
		read_bias(j, head, 0);
	for (int64_t q = 0; q < a->queries; q += QUERIES)
		forward_queries(j, head, q, pd_min(QUERIES, a->queries - q));
}

void pd_attention_forward(const struct pd_attention *a, const struct pd_attention_pass *pass)
{
#pragma omp parallel for schedule(dynamic) num_threads(a->threads)
	for (int64_t n = 0; n < a->batch * a->heads; n++) {
		int64_t head = n % a->heads;
		struct job j = job_of(a, pass, false, n / a->heads, head / group_of(a));

		forward_head(&j, head);
	}
}

/* ---- backward ---- */

/*
 * Of S makes dS / scale = P (D(dP) - delta), in dp, and D(P), in p: delta, the sum over a row of
 * O dO, is that of P D(dP).
 */
static void back_rows(const struct job *j, int64_t head, int64_t q, int64_t count, int64_t k,
		      int64_t padded, const float *delta)
{
	const float *logs = j->pass->logs + (j->sample * j->a->heads + head) * j->a->queries + q;
	const struct room *room = &j->room;

	if (j->pass->drops)
		read_mask(j, head, q, count, k);
	for (int64_t i = 0; i < count; i++) {
		float *p = room->p + i * KEYS, *dp = room->dp + i * KEYS;
		const float *mask = room->mask + i * KEYS;

		j->ops->exp2_sum(p, logs[i], padded);
		if (j->pass->drops)
			j->ops->times(dp, mask, padded);
		j->ops->softmax_back(dp, p, delta[i], padded);
		if (j->pass->drops)
			j->ops->times(p, mask, padded);
	}
}

/* The gradients of keys, or of values: C += A^T B, for a tile A of P or dS. */
static void add_keys(const struct job *j, float *c, const float *a, const float *b, int64_t width,
		     int64_t keys, int64_t count)
{
	j->ops->multiply(&(struct pd_tile_product){
		.m = keys, .n = width, .k = count, .a = a, .a_row = 1, .a_column = KEYS,
		.b = b, .ldb = width, .c = c, .ldc = width, .adds = true,
	});
}

/* Adds dS of a tile, as far as queries see its keys, to what its diagonals have. */
static void add_diagonals(const struct job *j, int64_t number, int64_t q, int64_t count, int64_t k, int64_t keys)
{
	for (int64_t i = 0; i < count; i++) {
		int64_t from = first_seen(j, q + i) > k ? first_seen(j, q + i) - k : 0;
		int64_t end = pd_min(seen(j, q + i, k), keys);

		add_row(diagonal(j, j->room.d_bias, number, q + i, k + from), j->room.dp + i * KEYS + from,
			end - from);
	}
}

/* One tile.  number: of the head among those that use the job's. */
static void back_tile(const struct job *j, int64_t number, int64_t q, int64_t count, int64_t k,
		      int64_t keys)
{
	int64_t head = j->kv_head * group_of(j->a) + number, at = number * j->a->queries + q;
	const struct room *room = &j->room;

	read_queries(j, head, q, count);
	read_rows(j, room->d_o, j->values,
		  query_rows(j, j->pass->d_o, head, q, count, j->a->value_width));
	scores(j, number, q, count, k, keys, room->k_turned, KEYS);
	j->ops->multiply(&(struct pd_tile_product){
		.m = count, .n = pd_tile_padded(keys), .k = j->a->value_width,
		.a = room->d_o, .a_row = j->values, .a_column = 1,
		.b = room->v, .ldb = KEYS, .c = room->dp, .ldc = KEYS,
	});
	back_rows(j, head, q, count, k, pd_tile_padded(keys), room->delta + at);
	if (j->diagonals > 0)
		add_diagonals(j, number, q, count, k, keys);
	add_keys(j, room->dv, room->p, room->d_o, j->values, keys, count);
	add_keys(j, room->dk, room->dp, room->q, j->width, keys, count);
	j->ops->multiply(&(struct pd_tile_product){
		.m = count, .n = j->width, .k = keys,
		.a = room->dp, .a_row = KEYS, .a_column = 1, .b = room->k, .ldb = j->width,
		.c = room->dq + at * j->width, .ldc = j->width, .adds = true,
	});
}

static void back_keys(const struct job *j, int64_t k, int64_t keys)
{
	const struct pd_attention *a = j->a;
	const struct room *room = &j->room;
	int64_t seen_here = pd_min(keys, j->length - k);         /* or less than 1 */
	int64_t first = a->causal ? k / QUERIES * QUERIES : 0;
	int64_t end = a->window > 0 ? pd_min(a->queries, k + keys - 1 + a->window) : a->queries;

	memset(room->dk, 0, sizeof(float) * (size_t)(keys * j->width));
	memset(room->dv, 0, sizeof(float) * (size_t)(keys * j->values));
	if (seen_here > 0) {
		/* turned by way of the room for dv */
		read_turned(j, room->v, KEYS, key_rows(j, j->pass->v, k, seen_here, a->value_width),
			    j->values, room->dv);
		memset(room->dv, 0, sizeof(float) * (size_t)(pd_tile_padded(keys) * j->values));
		read_turned(j, room->k_turned, KEYS, key_rows(j, j->pass->k, k, seen_here, a->width),
			    j->width, room->k);
		for (int64_t number = 0; number < group_of(a); number++)
			for (int64_t q = first; q < end; q += QUERIES) {
				int64_t count = pd_min(QUERIES, a->queries - q);

				back_tile(j, number, q, count, k,
					  pd_min(seen_here, seen(j, q + count - 1, k)));
			}
	}
	j->ops->scale(room->dk, (float)(1 / LOG2_E), keys * j->width);
	if (j->pass->dk)
		write_rows(j, key_rows(j, j->pass->dk, k, keys, a->width), room->dk, j->width);
	if (j->pass->dv)
		write_rows(j, key_rows(j, j->pass->dv, k, keys, a->value_width), room->dv,
			   j->values);
}

/* delta of all queries of the job. */
static void read_deltas(const struct job *j)
{
	const struct pd_attention *a = j->a;
	const struct room *room = &j->room;

	for (int64_t number = 0; number < group_of(a); number++)
		for (int64_t q = 0; q < a->queries; q += QUERIES) {
			int64_t head = j->kv_head * group_of(a) + number;
			int64_t count = pd_min(QUERIES, a->queries - q);
			float *delta = room->delta + number * a->queries + q;

			read_rows(j, room->o, j->values,
				  query_rows(j, j->pass->o, head, q, count, a->value_width));
			read_rows(j, room->d_o, j->values,
				  query_rows(j, j->pass->d_o, head, q, count, a->value_width));
			for (int64_t i = 0; i < count; i++)
				delta[i] = j->ops->dot(room->o + i * j->values,
						       room->d_o + i * j->values, j->values);
		}
}

static void backward_head(const struct job *j)
{
	const struct pd_attention *a = j->a;
	int64_t floats = group_of(a) * a->queries * j->width;

	read_deltas(j);
	memset(j->room.dq, 0, sizeof(float) * (size_t)floats);
	memset(j->room.d_bias, 0, sizeof(float) * (size_t)(group_of(a) * j->diagonals));
	for (int64_t number = 0; number < group_of(a) && j->diagonals > 0; number++)
		read_bias(j, j->kv_head * group_of(a) + number, number);
	for (int64_t k = 0; k < a->keys; k += KEYS)
		back_keys(j, k, pd_min(KEYS, a->keys - k));
	for (int64_t number = 0; number < group_of(a) && j->diagonals > 0; number++)
		write_bias(j, j->kv_head * group_of(a) + number, number);
	if (!j->pass->dq)
		return;
	j->ops->scale(j->room.dq, a->scale, floats);
	for (int64_t number = 0; number < group_of(a); number++)
		write_rows(j, query_rows(j, j->pass->dq, j->kv_head * group_of(a) + number, 0,
					 a->queries, a->width),
			   j->room.dq + number * a->queries * j->width, j->width);
}

void pd_attention_backward(const struct pd_attention *a, const struct pd_attention_pass *pass)
{
#pragma omp parallel for schedule(dynamic) num_threads(a->threads)
	for (int64_t n = 0; n < a->batch * a->kv_heads; n++) {
		struct job j = job_of(a, pass, true, n / a->kv_heads, n % a->kv_heads);

		backward_head(&j);
	}
}
