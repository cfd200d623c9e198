/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose time is whose: the events of a trace that enclose each other become calls of modules, and nodes of
 * autograd's graph, each with the time of its operators.
 */
#pragma once

#include "doors/kineto/ops.h"

#include <regex.h>

/* The parts of a node's time, as far as its operators tell them apart. */
enum pd_kineto_part {
	PD_KINETO_OTHER,
	PD_KINETO_FIRST,                /* of its products of matrices */
	PD_KINETO_SECOND,
	PD_KINETO_INPUT,                /* the gradient of its input */
	PD_KINETO_WEIGHT,               /* the gradient of its parameters */
	PD_KINETO_PARTS
};

struct pd_kineto_span {
	int64_t start_ns, end_ns;       /* empty: the start is INT64_MAX, the end INT64_MIN */
};

#define PD_KINETO_NOTHING { .start_ns = INT64_MAX, .end_ns = INT64_MIN }

/* Makes a span reach over another, if that is not empty. */
static inline void pd_kineto_extend(struct pd_kineto_span *span, const struct pd_kineto_span *by)
{
	if (by->start_ns > by->end_ns)
		return;
	span->start_ns = by->start_ns < span->start_ns ? by->start_ns : span->start_ns;
	span->end_ns = by->end_ns > span->end_ns ? by->end_ns : span->end_ns;
}

/* A call of a module, or operators between such calls. */
struct pd_kineto_call {
	int scope, name;                /* names; scope is that of the module around an operator, -1: none */
	bool label, module;             /* it is of a label; of one that is a module's */
	bool works;                     /* it has an operator */
	bool again;                     /* it was a recomputation, in backward */
	int node;                       /* that recomputed it; -1: none */
	int64_t at_ns;                  /* when the processor began it */
	struct pd_kineto_span span;
	int64_t ns;
};

struct pd_kineto_node {
	int name;
	int64_t sequence;
	int64_t at_ns;
	struct pd_kineto_span span;
	int64_t ns[PD_KINETO_PARTS];
	int products;
	bool accumulates;               /* into gradients of parameters */
	int64_t parameters;             /* how many, where shapes were recorded */
	int64_t bytes;                  /* of the gradient that it got, likewise; -1: not yet known */
	enum pd_dtype dtype;
	int call;                       /* that it belongs to; -1: none */
};

/* An operator with a sequence number. */
struct pd_kineto_link {
	int64_t sequence, at_ns;
	int call;
};

/* A step of an optimizer, data that were loaded, the beginning of a step of the profiler, and what is aside. */
struct pd_kineto_mark {
	enum pd_kineto_op_kind kind;
	int64_t at_ns;
	struct pd_kineto_span span;
};

struct pd_kineto_walk {
	const struct pd_kineto_ops *ops;
	size_t call_count, call_capacity, node_count, node_capacity, link_count, link_capacity, mark_count,
	       mark_capacity;
	struct pd_kineto_call *calls;
	struct pd_kineto_node *nodes;   /* each after those of its thread that ran before */
	struct pd_kineto_link *links;
	struct pd_kineto_mark *marks;
	bool gpu;                       /* times are those of a GPU */
};

/*
 * Sorts the events and walks through them.  Modules whose names match the regular expression (NULL: none) are one
 * layer each; otherwise those are without modules or labels inside.  Every node knows its call.
 */
void pd_kineto_walk(struct pd_kineto_ops *ops, const regex_t *blocks, struct pd_kineto_walk *out_p);
void pd_kineto_walk_release(struct pd_kineto_walk *walk);
