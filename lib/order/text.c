/* SPDX-License-Identifier: Apache-2.0 */
/* Lists as texts, and back. */
#include "order/order.h"

#include "base/mem.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

char *pd_order_text(const struct pd_order *order, int position)
{
	const struct pd_order_list *list = &order->lists[position];
	char *text;
	size_t size;
	FILE *out = pd_mem_stream(&text, &size);

	for (size_t k = 0; k < list->count; k++) {
		const struct pd_order_op *op = &list->ops[k];
		bool second = k > 0 && op[-1].beside;

		fprintf(out, "%s%s%d%c%d%s", k == 0 ? "" : second ? ";" : ",", op->beside ? "(" : "", op->stage,
			PD_ORDER_LETTERS[op->pass], op->microbatch, second ? PD_ORDER_PAIR_END : "");
	}
	pd_mem_stream_close(out);
	return text;
}

/* Reads digits; returns what is behind them, or NULL if there are none, or they are more than most. */
static const char *number(const char *text, int most, int *out_p)
{
	int64_t n = 0;
	const char *end = text;

	for (; isdigit((unsigned char)*end) && n <= most; end++)
		n = 10 * n + (*end - '0');
	*out_p = (int)n;
	return end > text && n <= most ? end : NULL;
}

/* Reads an operation of the position; returns what is behind it, or NULL with the error set. */
static const char *read_op(struct pd_order *order, int position, const char *text, struct pd_error *err)
{
	int stage = 0, microbatch = 0;
	const char *letter = number(text, order->stages - 1, &stage);
	const char *pass = letter && *letter ? strchr(PD_ORDER_LETTERS, *letter) : NULL;
	const char *end = pass ? number(letter + 1, order->microbatches - 1, &microbatch) : NULL;

	if (!end) {
		pd_error_input(err, "expected an operation such as 2F0 (stage 0 to %d; F, I, W or B; microbatch 0 to "
			       "%d), found \"%.20s\"", order->stages - 1, order->microbatches - 1, text);
		return NULL;
	}
	if (order->position_of[stage] != position) {
		pd_error_input(err, "stage %d is at position %d, not here: found \"%.20s\"", stage,
			       order->position_of[stage], text);
		return NULL;
	}
	pd_order_add(order, (enum pd_order_pass)(pass - PD_ORDER_LETTERS), stage, microbatch);
	return end;
}

/* Tells whether two operations may be a pair. */
static bool is_pair(const struct pd_order_op *ops)
{
	return ops[0].pass == PD_ORDER_F && (ops[1].pass == PD_ORDER_B || ops[1].pass == PD_ORDER_I);
}

/* Reads "(0F7;7B3)OVERLAP_F_B". */
static const char *read_pair(struct pd_order *order, int position, const char *text, struct pd_error *err)
{
	const char *middle = read_op(order, position, text + 1, err), *end;
	const struct pd_order_list *list = &order->lists[position];

	if (!middle)
		return NULL;
	end = *middle == ';' ? read_op(order, position, middle + 1, err) : middle;
	if (!end)
		return NULL;
	if (*middle != ';' || strncmp(end, PD_ORDER_PAIR_END, strlen(PD_ORDER_PAIR_END)) != 0 ||
	    !is_pair(&list->ops[list->count - 2])) {
		pd_error_input(err, "expected a pair such as (0F7;7B3)OVERLAP_F_B, found \"%.40s\"", text);
		return NULL;
	}
	list->ops[list->count - 2].beside = true;
	return end + strlen(PD_ORDER_PAIR_END);
}

int pd_order_read(struct pd_order *order, int position, const char *text, struct pd_error *err)
{
	while (*text) {
		text = *text == '(' ? read_pair(order, position, text, err) : read_op(order, position, text, err);
		if (!text)
			return -1;
		if (*text && *text != ',')
			return pd_error_input(err, "expected a comma between operations, found \"%.20s\"", text);
		if (*text == ',' && !*++text)
			return pd_error_input(err, "expected an operation behind the last comma");
	}
	return 0;
}
