/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace of torch.profiler has of modules: their forwards, the operators in these, and the nodes of
 * autograd's graph that backward visits.
 */
#pragma once

#include "doors/kineto/scan.h"
#include "model/dtype.h"

/* Of events that begin and end together, those of the earlier kind enclose the others. */
enum pd_kineto_op_kind {
	PD_KINETO_STEP,                 /* of the profiler */
	PD_KINETO_OPTIMIZER,            /* a step of one */
	PD_KINETO_LOAD,                 /* of data */
	PD_KINETO_ASIDE,                /* something else that is no layer's */
	PD_KINETO_LABEL,                /* a module's forward, or what record_function() named */
	PD_KINETO_NODE,                 /* of autograd's graph */
	PD_KINETO_ACCUMULATE,           /* into a parameter's gradient */
	PD_KINETO_OPERATOR,
	PD_KINETO_LAUNCH,               /* of what a GPU does */
	PD_KINETO_KERNEL,               /* done by a GPU */
	PD_KINETO_COMPILED,             /* torch.compile made it of several operators */
	PD_KINETO_NONE
};

/* What modules' names begin with in a trace; the table of names has them without it. */
#define PD_KINETO_MODULE "nn.Module: "

struct pd_kineto_op {
	enum pd_kineto_op_kind kind;
	int name;                       /* in the table of names */
	bool module;                    /* a label that is a module's */
	int64_t thread;
	int64_t start_ns, end_ns;
	int64_t sequence;               /* by which forward and backward know each other; -1: none */
	int64_t correlation;            /* by which a launch and its work know each other; -1: none */
	int64_t bytes, elements;        /* of the tensors that it got, where shapes were recorded */
	enum pd_dtype dtype;            /* theirs */
};

struct pd_kineto_ops {
	const char *file;               /* borrowed */
	size_t count, capacity;
	struct pd_kineto_op *ops;
	bool compiled;                  /* torch.compile made one of several operators */
	bool device;                    /* there is one besides the processor */
	char *unread;                   /* a category that is not known; NULL: there is none */
	json_t *numbers;                /* name -> number */
	int name_count;
	size_t name_capacity;
	char **names;
};

void pd_kineto_ops_begin(struct pd_kineto_ops *ops, const char *file);
/* Takes an event, if it is one of these; a pd_kineto_take. */
int pd_kineto_ops_take(void *to, json_t *event, struct pd_error *err);
/* Returns the number of a name in the table, which it enters. */
int pd_kineto_ops_name(struct pd_kineto_ops *ops, const char *name);
/* Puts the events of each thread in order, those that enclose others first. */
void pd_kineto_ops_sort(struct pd_kineto_ops *ops);
void pd_kineto_ops_release(struct pd_kineto_ops *ops);
