/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/walk.h"

#include "base/mem.h"
#include "base/sort.h"
#include "doors/kineto/leaves.h"

#include <stdlib.h>
#include <string.h>

enum owner_kind { OWNER_NONE, OWNER_CALL, OWNER_NODE, OWNER_MARK };

struct owner {
	enum owner_kind kind;
	int index;
	enum pd_kineto_part part;       /* of a node */
};

/* An event that has begun, on the thread that is walked through. */
struct frame {
	int64_t end_ns;
	struct owner owner;             /* who has the time */
	bool busy;                      /* an operator runs */
	bool leaf;                      /* inside of a module that is one layer */
	bool again;                     /* inside of a recomputation */
	int node;                       /* around; -1: none */
	bool accumulates;               /* into gradients of parameters */
	bool inside;                    /* of an operator that was counted */
	int scope;                      /* the module around */
	int function;                   /* the call that operators here belong to; -1: the next begins one */
};

struct launch {
	int64_t correlation;
	struct owner owner;
};

struct walker {
	struct pd_kineto_walk *to;
	const struct pd_kineto_ops *ops;
	bool *leaves;                   /* per name: it is one layer */
	size_t depth, capacity;
	struct frame *frames;
	int64_t at_ns;                  /* up to which time has been given out */
	int last_node;                  /* of the thread; -1: none yet */
	size_t launch_count, launch_capacity;
	struct launch *launches;
};

static int by_correlation(const void *a, const void *b)
{
	const struct launch *x = a, *y = b;

	PD_ORDER(x->correlation, y->correlation);
	return 0;
}

static int by_sequence(const void *a, const void *b)
{
	const struct pd_kineto_link *x = a, *y = b;

	PD_ORDER(x->sequence, y->sequence);
	PD_ORDER(x->at_ns, y->at_ns);
	PD_ORDER(x->call, y->call);
	return 0;
}

/* Gives time to its owner. */
static void give(struct pd_kineto_walk *to, const struct owner *owner, int64_t start_ns, int64_t end_ns)
{
	struct pd_kineto_span *span;
	int64_t *ns = NULL;

	switch (owner->kind) {
	case OWNER_CALL:
		span = &to->calls[owner->index].span;
		ns = &to->calls[owner->index].ns;
		break;
	case OWNER_NODE:
		span = &to->nodes[owner->index].span;
		ns = &to->nodes[owner->index].ns[owner->part];
		break;
	case OWNER_MARK:
		span = &to->marks[owner->index].span;
		break;
	default:
		return;
	}
	pd_kineto_extend(span, &(struct pd_kineto_span){ start_ns, end_ns });
	if (ns)
		*ns = pd_plus(*ns, end_ns - start_ns);
}

/* Gives out the time until then, which the innermost event has, and closes what ends. */
static void advance(struct walker *w, int64_t until_ns)
{
	for (;;) {
		struct frame *top = &w->frames[w->depth - 1];
		int64_t end_ns = top->end_ns < until_ns ? top->end_ns : until_ns;

		if (top->busy && end_ns > w->at_ns)
			give(w->to, &top->owner, w->at_ns, end_ns);
		w->at_ns = end_ns > w->at_ns ? end_ns : w->at_ns;
		if (w->depth == 1 || top->end_ns > until_ns)
			return;
		w->depth--;
	}
}

static struct owner new_call(struct walker *w, const struct pd_kineto_op *op, int scope, const struct frame *frame)
{
	struct pd_kineto_walk *to = w->to;

	to->calls = pd_grow(to->calls, &to->call_capacity, to->call_count + 1, sizeof(*to->calls));
	to->calls[to->call_count] = (struct pd_kineto_call){
		.scope = scope, .name = op->name, .label = op->kind == PD_KINETO_LABEL, .module = op->module,
		.again = frame->again, .node = frame->node, .at_ns = op->start_ns,
		.span = PD_KINETO_NOTHING,
	};
	return (struct owner){ .kind = OWNER_CALL, .index = (int)to->call_count++ };
}

static struct owner new_node(struct walker *w, const struct pd_kineto_op *op)
{
	struct pd_kineto_walk *to = w->to;

	to->nodes = pd_grow(to->nodes, &to->node_capacity, to->node_count + 1, sizeof(*to->nodes));
	to->nodes[to->node_count] = (struct pd_kineto_node){
		.name = op->name, .sequence = op->sequence, .at_ns = op->start_ns, .span = PD_KINETO_NOTHING,
		.bytes = -1, .call = -1,
	};
	w->last_node = (int)to->node_count++;
	return (struct owner){ .kind = OWNER_NODE, .index = w->last_node };
}

static struct owner new_mark(struct walker *w, const struct pd_kineto_op *op)
{
	struct pd_kineto_walk *to = w->to;

	to->marks = pd_grow(to->marks, &to->mark_capacity, to->mark_count + 1, sizeof(*to->marks));
	to->marks[to->mark_count] = (struct pd_kineto_mark){
		.kind = op->kind, .at_ns = op->start_ns, .span = PD_KINETO_NOTHING,
	};
	return (struct owner){ .kind = OWNER_MARK, .index = (int)to->mark_count++ };
}

static void open_label(struct walker *w, const struct pd_kineto_op *op, struct frame *frame)
{
	if (frame->owner.kind == OWNER_MARK || frame->leaf)
		return;
	frame->again |= frame->owner.kind == OWNER_NODE;
	frame->owner = (struct owner){ .kind = OWNER_NONE };
	frame->busy = false;
	frame->leaf = w->leaves[op->name];
	if (frame->leaf)
		frame->owner = new_call(w, op, -1, frame);
	else
		frame->scope = op->name;
}

static bool is_product(const char *name)
{
	return strcmp(name, "aten::mm") == 0 || strcmp(name, "aten::matmul") == 0 || strcmp(name, "aten::addmm") == 0;
}

/* An operator of a node: which part of it that is, and how large what the node got was. */
static void open_part(struct walker *w, const struct pd_kineto_op *op, struct frame *frame)
{
	struct pd_kineto_node *node = &w->to->nodes[frame->owner.index];
	const char *name = w->ops->names[op->name];

	if (frame->accumulates) {
		node->parameters = pd_plus(node->parameters, frame->inside ? 0 : op->elements);
		frame->inside = true;
	} else if (node->bytes < 0) {
		node->bytes = op->bytes;
		node->dtype = op->dtype;
	} else if (!frame->inside && is_product(name)) {
		frame->inside = true;
		frame->owner.part = node->products++ == 0 ? PD_KINETO_FIRST : PD_KINETO_SECOND;
	} else if (!frame->inside && node->products > 0 && strcmp(name, "aten::sum") == 0) {
		frame->owner.part = PD_KINETO_WEIGHT;
	}
}

static void open_operator(struct walker *w, const struct pd_kineto_op *op, struct frame *up, struct frame *frame)
{
	frame->busy = true;
	if (frame->owner.kind == OWNER_NODE)
		open_part(w, op, frame);
	if (frame->owner.kind == OWNER_NONE) {
		if (up->function < 0)
			up->function = new_call(w, op, frame->scope, frame).index;
		frame->owner = (struct owner){ .kind = OWNER_CALL, .index = up->function };
	}
	if (frame->owner.kind == OWNER_CALL)
		w->to->calls[frame->owner.index].works = true;
	if (frame->owner.kind == OWNER_CALL && op->sequence >= 0) {
		struct pd_kineto_walk *to = w->to;

		to->links = pd_grow(to->links, &to->link_capacity, to->link_count + 1, sizeof(*to->links));
		to->links[to->link_count++] = (struct pd_kineto_link){ op->sequence, op->start_ns, frame->owner.index };
	}
}

static void open_accumulate(struct walker *w, struct frame *frame)
{
	if (w->last_node < 0)
		return;
	frame->owner = (struct owner){ OWNER_NODE, w->last_node, PD_KINETO_WEIGHT };
	frame->busy = frame->accumulates = true;
	w->to->nodes[w->last_node].accumulates = true;
}

static void add_launch(struct walker *w, const struct pd_kineto_op *op, const struct owner *owner)
{
	w->launches = pd_grow(w->launches, &w->launch_capacity, w->launch_count + 1, sizeof(*w->launches));
	w->launches[w->launch_count++] = (struct launch){ op->correlation, *owner };
}

static void open(struct walker *w, const struct pd_kineto_op *op)
{
	struct frame frame = w->frames[w->depth - 1], *up;

	w->frames = pd_grow(w->frames, &w->capacity, w->depth + 1, sizeof(*w->frames));
	up = &w->frames[w->depth - 1];
	frame.function = -1;
	frame.end_ns = op->end_ns < frame.end_ns ? op->end_ns : frame.end_ns;
	if (op->kind < PD_KINETO_OPERATOR)
		up->function = -1;
	switch (op->kind) {
	case PD_KINETO_STEP:
		new_mark(w, op);
		break;
	case PD_KINETO_OPTIMIZER:
	case PD_KINETO_LOAD:
	case PD_KINETO_ASIDE:
		frame.owner = new_mark(w, op);
		frame.busy = true;
		break;
	case PD_KINETO_LABEL:
		open_label(w, op, &frame);
		break;
	case PD_KINETO_NODE:
		frame = (struct frame){ .end_ns = frame.end_ns, .owner = new_node(w, op), .busy = true, .scope = -1,
					.function = -1 };
		frame.node = frame.owner.index;
		break;
	case PD_KINETO_ACCUMULATE:
		open_accumulate(w, &frame);
		break;
	case PD_KINETO_OPERATOR:
		open_operator(w, op, up, &frame);
		break;
	default:
		add_launch(w, op, &frame.owner);
		return;
	}
	w->frames[w->depth++] = frame;
}

static void walk_all(struct walker *w)
{
	int64_t thread = 0;

	w->frames = pd_grow(NULL, &w->capacity, 1, sizeof(*w->frames));
	for (size_t i = 0; i < w->ops->count; i++) {
		const struct pd_kineto_op *op = &w->ops->ops[i];

		if (op->kind == PD_KINETO_KERNEL)
			continue;
		if (w->depth == 0 || op->thread != thread) {
			if (w->depth > 0)
				advance(w, INT64_MAX);
			w->frames[0] = (struct frame){ .end_ns = INT64_MAX, .scope = -1, .function = -1, .node = -1 };
			w->depth = 1;
			w->at_ns = INT64_MIN;
			w->last_node = -1;
			thread = op->thread;
		}
		advance(w, op->start_ns);
		open(w, op);
	}
	if (w->depth > 0)
		advance(w, INT64_MAX);
}

/* A library's kernels say which gradient they make. */
static enum pd_kineto_part part_of(const char *kernel, enum pd_kineto_part part)
{
	static const struct { const char *word; enum pd_kineto_part part; } words[] = {
		{ "dgrad", PD_KINETO_INPUT }, { "grad_input", PD_KINETO_INPUT }, { "wgrad", PD_KINETO_WEIGHT },
		{ "bgrad", PD_KINETO_WEIGHT }, { "GammaBeta", PD_KINETO_WEIGHT },
	};

	for (size_t i = 0; i < PD_COUNT(words); i++)
		if (strstr(kernel, words[i].word))
			return words[i].part;
	return part;
}

static void forget_times(struct pd_kineto_walk *to)
{
	for (size_t c = 0; c < to->call_count; c++) {
		to->calls[c].ns = 0;
		to->calls[c].span = (struct pd_kineto_span)PD_KINETO_NOTHING;
	}
	for (size_t n = 0; n < to->node_count; n++) {
		memset(to->nodes[n].ns, 0, sizeof(to->nodes[n].ns));
		to->nodes[n].span = (struct pd_kineto_span)PD_KINETO_NOTHING;
	}
	for (size_t m = 0; m < to->mark_count; m++)
		if (to->marks[m].kind != PD_KINETO_LOAD)
			to->marks[m].span = (struct pd_kineto_span)PD_KINETO_NOTHING;
}

/* Where a GPU did what was launched, its times count, and not those of launching. */
static void take_kernels(struct walker *w)
{
	if (w->launch_count > 0)
		qsort(w->launches, w->launch_count, sizeof(*w->launches), by_correlation);
	for (size_t i = 0; i < w->ops->count; i++) {
		const struct pd_kineto_op *op = &w->ops->ops[i];
		const struct launch key = { .correlation = op->correlation }, *by;
		struct owner owner;

		if (op->kind != PD_KINETO_KERNEL || w->launch_count == 0)
			continue;
		by = bsearch(&key, w->launches, w->launch_count, sizeof(*w->launches), by_correlation);
		if (!by || by->owner.kind == OWNER_NONE)
			continue;
		if (!w->to->gpu)
			forget_times(w->to);
		w->to->gpu = true;
		owner = by->owner;
		owner.part = part_of(w->ops->names[op->name], owner.part);
		give(w->to, &owner, op->start_ns, op->end_ns);
	}
}

/* The node of an operator has the number of the last one before it that had it. */
static void link_nodes(struct pd_kineto_walk *to)
{
	if (to->link_count > 0)
		qsort(to->links, to->link_count, sizeof(*to->links), by_sequence);
	for (size_t n = 0; n < to->node_count; n++) {
		const struct pd_kineto_link key = { to->nodes[n].sequence, to->nodes[n].at_ns, -1 };
		size_t behind = pd_count_below(&key, to->links, to->link_count, sizeof(*to->links), by_sequence, -1);

		if (behind > 0 && key.sequence >= 0 && to->links[behind - 1].sequence == key.sequence)
			to->nodes[n].call = to->links[behind - 1].call;
	}
}

void pd_kineto_walk(struct pd_kineto_ops *ops, const regex_t *blocks, struct pd_kineto_walk *out_p)
{
	struct walker w = { .to = out_p, .ops = ops, .last_node = -1 };

	*out_p = (struct pd_kineto_walk){ .ops = ops };
	pd_kineto_ops_sort(ops);
	w.leaves = pd_kineto_leaves(ops, blocks);
	walk_all(&w);
	take_kernels(&w);
	link_nodes(out_p);
	free(w.leaves);
	free(w.frames);
	free(w.launches);
}

void pd_kineto_walk_release(struct pd_kineto_walk *walk)
{
	free(walk->calls);
	free(walk->nodes);
	free(walk->links);
	free(walk->marks);
}
