/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/blocks.h"

#include "base/mem.h"
#include "base/sort.h"
#include "doors/kineto/finder.h"

#include <stdlib.h>
#include <string.h>

/* A block has at most so many operators. */
#define MOST_OPERATORS 4096
/* A run has at least this part of a forward's operators. */
#define LEAST_PART 16

/* An operator that no other encloses, or what ends a forward: an operator of -1. */
struct outer {
	int64_t at_ns;
	int op;                         /* among the events */
	bool product;                   /* it has a product of matrices, or a convolution */
};

/* Operators that come several times. */
struct run {
	int begin, length, times;
};

struct seeker {
	struct pd_kineto_ops *ops;
	size_t count, capacity;
	struct outer *outers;
	int64_t *keys;                  /* of a forward's operators, by their names */
	int *products;                  /* how many have come before each of them */
	int least;                      /* operators of a run */
	size_t run_count, run_capacity;
	struct run *runs;               /* of a forward, in order */
};

static bool is_product(const char *name)
{
	static const char *const products[] = {
		"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::matmul", "aten::linear", "aten::conv",
	};

	for (size_t i = 0; i < PD_COUNT(products); i++)
		if (strncmp(name, products[i], strlen(products[i])) == 0)
			return true;
	return false;
}

static int outer_by_time(const void *a, const void *b)
{
	const struct outer *x = a, *y = b;

	PD_ORDER(x->at_ns, y->at_ns);
	PD_ORDER(x->op, y->op);
	return 0;
}

/* Lists the outer operators of all threads, and what ends forwards, by time. */
static void list_outers(struct seeker *s)
{
	int64_t end_ns = INT64_MIN, thread = 0;
	struct outer *around = NULL;    /* the operator that encloses what comes, if one does */

	for (size_t i = 0; i < s->ops->count; i++) {
		const struct pd_kineto_op *op = &s->ops->ops[i];
		bool product = op->kind == PD_KINETO_OPERATOR && is_product(s->ops->names[op->name]);

		if (op->kind == PD_KINETO_LABEL || op->kind == PD_KINETO_LAUNCH || op->kind == PD_KINETO_KERNEL)
			continue;
		if (op->thread == thread && op->start_ns < end_ns) {
			if (around)
				around->product |= product;
			continue;
		}
		thread = op->thread;
		end_ns = op->kind == PD_KINETO_STEP ? INT64_MIN : op->end_ns;
		s->outers = pd_grow(s->outers, &s->capacity, s->count + 1, sizeof(*s->outers));
		around = &s->outers[s->count++];
		*around = (struct outer){ op->start_ns, op->kind == PD_KINETO_OPERATOR ? (int)i : -1, product };
		around = around->op >= 0 ? around : NULL;
	}
	if (s->count > 0)
		qsort(s->outers, s->count, sizeof(*s->outers), outer_by_time);
}

/* Returns the thread with the most products: that of forward. */
static int64_t find_thread(const struct seeker *s)
{
	int64_t *threads = pd_calloc(s->count + 1, sizeof(*threads)), thread = 0;
	size_t count = 0, most = 0;

	for (size_t i = 0; i < s->count; i++)
		if (s->outers[i].product)
			threads[count++] = s->ops->ops[s->outers[i].op].thread;
	if (count > 0)
		qsort(threads, count, sizeof(*threads), pd_by_value);
	for (size_t i = 0, begin = 0; i < count; i++) {
		begin = i > 0 && threads[i] == threads[i - 1] ? begin : i;
		if (i + 1 - begin > most) {
			most = i + 1 - begin;
			thread = threads[i];
		}
	}
	free(threads);
	return thread;
}

static void drop_threads(struct seeker *s, int64_t thread)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->count; i++)
		if (s->outers[i].op < 0 || s->ops->ops[s->outers[i].op].thread == thread)
			s->outers[kept++] = s->outers[i];
	s->count = kept;
}

/* Finds the run, with products in it, that has most of these operators; the shortest block of equal ones. */
static struct run find_run(const struct seeker *s, int begin, int end)
{
	struct run best = { .begin = begin };

	for (int p = 1; p <= (end - begin) / 2 && p <= MOST_OPERATORS; p++)
		for (int i = begin, equal = 0; i + p < end; i++) {
			int first, times;

			equal = s->keys[i] == s->keys[i + p] ? equal + 1 : 0;
			first = i + 1 - equal;
			times = equal / p + 1;
			if (equal >= p && times * p > best.times * best.length &&
			    s->products[first + p] > s->products[first])
				best = (struct run){ first, p, times };
		}
	return best;
}

static bool is_called(const struct seeker *s, int at, const char *name)
{
	const char *called = s->ops->names[s->keys[at]], *behind = called + strlen("aten::") + strlen(name);

	return strncmp(called, "aten::", 6) == 0 && strncmp(called + 6, name, strlen(name)) == 0 &&
	       (*behind == '\0' || strcmp(behind, "_") == 0);
}

/* Tells whether a block may begin there: behind the sum that ends a residual one, or what is applied to the sum. */
static bool is_behind_sum(const struct seeker *s, int begin, int at)
{
	/* Batch normalisation counts its batches by an addition, and others add an epsilon. */
	static const char *const within[] = { "relu", "batch_norm", "rsqrt", "sqrt" };

	for (size_t i = 0; i < PD_COUNT(within); i++)
		if (at == begin || is_called(s, at, within[i]))
			return false;
	return is_called(s, at - 1, "add") ||
	       (at - 1 > begin && is_called(s, at - 2, "add") &&
		(is_called(s, at - 1, "relu") || is_called(s, at - 1, "dropout")));
}

/* Which of the operators that repeat is the first of a block is open as far as they go on behind the last. */
static void shift_run(const struct seeker *s, int begin, int end, struct run *run)
{
	int last = run->begin + run->length * run->times;

	for (int by = 0; !is_behind_sum(s, begin, run->begin + by); by++)
		if (last + by >= end || s->keys[last + by] != s->keys[last + by - run->length])
			return;
	while (!is_behind_sum(s, begin, run->begin))
		run->begin++;
}

static void find_runs(struct seeker *s, int begin, int end)
{
	struct run run = find_run(s, begin, end);

	if (run.times == 0 || run.times * run.length < s->least)
		return;
	shift_run(s, begin, end, &run);
	find_runs(s, begin, run.begin);
	s->runs = pd_grow(s->runs, &s->run_capacity, s->run_count + 1, sizeof(*s->runs));
	s->runs[s->run_count++] = run;
	find_runs(s, run.begin + run.length * run.times, end);
}

static void add_event(struct seeker *s, enum pd_kineto_op_kind kind, const char *name,
		      const struct pd_kineto_op *like, int64_t start_ns, int64_t end_ns)
{
	struct pd_kineto_ops *ops = s->ops;
	struct pd_kineto_op event = {
		.kind = kind, .thread = like->thread, .start_ns = start_ns, .end_ns = end_ns, .sequence = -1,
		.correlation = -1,
	};

	event.name = pd_kineto_ops_name(ops, name);
	ops->ops = pd_grow(ops->ops, &ops->capacity, ops->count + 1, sizeof(*ops->ops));
	ops->ops[ops->count++] = event;
}

static void add_label(struct seeker *s, int block, const struct outer *first,
		      const struct outer *last)
{
	const struct pd_kineto_op begin = s->ops->ops[first->op];
	char *name = pd_format("block_%d", block);

	add_event(s, PD_KINETO_LABEL, name, &begin, begin.start_ns, s->ops->ops[last->op].end_ns);
	free(name);
}

/* Has the forward of another microbatch begin behind an operator. */
static void add_end(struct seeker *s, const struct outer *last)
{
	const struct pd_kineto_op end = s->ops->ops[last->op];

	add_event(s, PD_KINETO_STEP, "forward", &end, end.end_ns, end.end_ns);
}

/* Labels the blocks of one forward of one microbatch; returns how many there are. */
static int label_forward(struct seeker *s, const struct outer *outers, int begin, int end)
{
	int blocks = 0, held = 0;

	s->run_count = 0;
	s->least = (end - begin) / LEAST_PART;
	find_runs(s, begin, end);
	for (size_t r = 0; r < s->run_count; r++)
		held += s->products[s->runs[r].begin + s->runs[r].length * s->runs[r].times] -
			s->products[s->runs[r].begin];
	if (held == 0 || held < (s->products[end] - s->products[begin] + 1) / 2)
		return 0;
	for (size_t r = 0; r < s->run_count; r++)
		for (int t = 0; t < s->runs[r].times; t++, blocks++) {
			const struct outer *first = &outers[s->runs[r].begin + t * s->runs[r].length];

			add_label(s, blocks, first, first + s->runs[r].length - 1);
		}
	return blocks;
}

/* Labels what lies between two ends: forwards of one microbatch, or of several that do the same. */
static int label_forwards(struct seeker *s, const struct outer *outers, int count)
{
	int blocks = 0, period;

	/* Nothing has a gradient of what follows a loss, such as the ones that its backward begins with. */
	while (count > 0 && s->ops->ops[outers[count - 1].op].sequence < 0)
		count--;
	for (int i = 0; i < count; i++) {
		s->keys[i] = s->ops->ops[outers[i].op].name;
		s->products[i + 1] = s->products[i] + outers[i].product;
	}
	period = pd_kineto_period(s->keys, count);
	for (int begin = 0; begin < count; begin += period) {
		int here = label_forward(s, outers, begin, begin + period);

		if (begin > 0 && here > 0)
			add_end(s, &outers[begin - 1]);
		blocks = here > blocks ? here : blocks;
	}
	return blocks;
}

int pd_kineto_blocks(struct pd_kineto_ops *ops)
{
	struct seeker s = { .ops = ops };
	int blocks = 0;

	list_outers(&s);
	drop_threads(&s, find_thread(&s));
	s.keys = pd_calloc(s.count + 1, sizeof(*s.keys));
	s.products = pd_calloc(s.count + 2, sizeof(*s.products));
	for (size_t i = 0, begin = 0; s.count > 0 && i <= s.count; i++)
		if (i == s.count || s.outers[i].op < 0) {
			int here = label_forwards(&s, s.outers + begin, (int)(i - begin));

			blocks = here > blocks ? here : blocks;
			begin = i + 1;
		}
	free(s.outers);
	free(s.keys);
	free(s.products);
	free(s.runs);
	return blocks;
}
