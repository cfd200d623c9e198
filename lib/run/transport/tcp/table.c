/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/tcp/tcp.h"

#include "base/mem.h"

#include <stdlib.h>

#define FIRST_BUCKETS 256

static size_t bucket_of(const struct tcp_table *table, bool receive, int peer, uint64_t tag)
{
	uint64_t key = (tag << 17 | (uint64_t)peer << 1 | receive) * UINT64_C(0x9e3779b97f4a7c15);

	return (size_t)(key >> 32) & (table->size - 1);
}

static void put(struct tcp_table *table, struct pd_transfer *x)
{
	struct pd_transfer **at = &table->buckets[bucket_of(table, x->receive, x->peer, x->tag)];

	x->chain = *at;
	*at = x;
}

static void grow(struct tcp_table *table)
{
	struct tcp_table larger = { .size = table->size ? 2 * table->size : FIRST_BUCKETS,
				    .count = table->count };

	larger.buckets = pd_calloc(larger.size, sizeof(struct pd_transfer *));
	for (size_t b = 0; b < table->size; b++)
		for (struct pd_transfer *x = table->buckets[b], *next; x; x = next) {
			next = x->chain;
			put(&larger, x);
		}
	free(table->buckets);
	*table = larger;
}

void tcp_table_add(struct tcp_table *table, struct pd_transfer *x)
{
	if (table->count == table->size)
		grow(table);
	put(table, x);
	table->count++;
}

struct pd_transfer *tcp_table_find(const struct tcp_table *table, bool receive, int peer, uint64_t tag)
{
	struct pd_transfer *x = table->size ? table->buckets[bucket_of(table, receive, peer, tag)] : NULL;

	while (x && !(x->receive == receive && x->peer == peer && x->tag == tag))
		x = x->chain;
	return x;
}

void tcp_table_remove(struct tcp_table *table, struct pd_transfer *x)
{
	struct pd_transfer **at = &table->buckets[bucket_of(table, x->receive, x->peer, x->tag)];

	while (*at != x)
		at = &(*at)->chain;
	*at = x->chain;
	table->count--;
}

struct pd_transfer *tcp_table_any(const struct tcp_table *table, int peer)
{
	for (size_t b = 0; b < table->size; b++)
		for (struct pd_transfer *x = table->buckets[b]; x; x = x->chain)
			if (peer < 0 || x->peer == peer)
				return x;
	return NULL;
}
