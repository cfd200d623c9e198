/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace of torch.profiler has of a pipeline: the actions of torch.distributed.pipelining, such as
 * "PP:2F0", messages of gloo and NCCL, and steps of optimizers; and what it has of modules.
 */
#pragma once

#include "doors/kineto/ops.h"
#include "doors/torch/torch.h"

enum pd_kineto_kind { PD_KINETO_ACTION, PD_KINETO_MESSAGE, PD_KINETO_UPDATE };

struct pd_kineto_event {
	enum pd_kineto_kind kind;
	struct pd_torch_named act;      /* of an action */
	int64_t start_ns, end_ns;       /* since 1970 */
};

struct pd_kineto_file {
	const char *name;               /* borrowed */
	int64_t rank;                   /* among all processes; -1: it does not say */
	bool gpu;                       /* the events are a GPU's */
	bool acts;                      /* it has actions of a pipeline */
	size_t count, capacity;
	struct pd_kineto_event *events; /* by start */
	struct pd_kineto_ops ops;       /* what it has of modules */
};

/*
 * Reads a file, event by event, so that its size does not matter.  Events of a GPU are taken where there are
 * any, else those of the processor.  Errors count as input.
 */
int pd_kineto_file_read(const char *name, struct pd_kineto_file *out_p, struct pd_error *err);
void pd_kineto_file_release(struct pd_kineto_file *file);
