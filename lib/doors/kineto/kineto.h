/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of torch.profiler become a trace of ours: each action of a pipeline an operation, with the time in
 * which its rank waited for a message apart; or, where there is no pipeline, each forward and backward of a
 * network, whose modules become layers.
 *
 * A file is read event by event (kineto_scan) and kept as what one of two ways needs: actions of a
 * pipeline (kineto_file) or modules (kineto_ops).  Of the latter the walk says whose time is
 * whose, by which events enclose each other: calls, and nodes of autograd's graph, which find
 * their calls by sequence numbers; where there are kernels their times take the place of the
 * processor's (kineto_walk).  Passes are forwards with their backwards (kineto_passes,
 * kineto_repeats), layers what most of them have (kineto_layers).  Where nothing has a name, operators that
 * repeat are labelled first (kineto_blocks).  What PyTorch names itself is a
 * row of event.def; which gradients a node makes, one of node.def.
 */
#pragma once

#include "trace/trace.h"

/* What of a trace is not in what was made of it. */
struct pd_kineto_missing {
	int blocks;                     /* that were guessed, since no modules are named; 0: they are */
	int compiled;                   /* layers, of a network that torch.compile made; 0: of one that it did not */
	bool device;                    /* there is one, and times are those of the processor */
	char unread[64];                /* a category of events that is not known; "": there is none */
	size_t passes;                  /* forwards with other layers than most */
	double backward;                /* the part of all backward's time that belongs to no module */
};

/*
 * Reads the traces of all ranks of one pipeline, in any order, or that of one process which names modules;
 * messages begin with a file's name.  The trace's plan has a layer for each stage of a pipeline, or one stage of
 * the modules that make a layer each: with blocks, a regular expression (NULL: none), those whose names match, else
 * those without others inside.  Times are medians (pd-profile(1), --from).  It is a profile of one sample.
 * Sizes are 0 where the traces do not say them.  Errors count as input.
 */
struct pd_trace *pd_kineto_read(const char *const *files, int count, const char *blocks,
				struct pd_kineto_missing *missing_p, struct pd_error *err);
