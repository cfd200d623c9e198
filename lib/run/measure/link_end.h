/* SPDX-License-Identifier: Apache-2.0 */
/* One of the two processes that measure a link (link.c). */
#pragma once

#include "run/measure/link.h"

/* The ways in which an end can end; the most important for the message is last. */
enum pd_link_ending { PD_LINK_GOOD, PD_LINK_SILENT, PD_LINK_LONELY, PD_LINK_FAILED, PD_LINK_DIED };

/* An end's answer; short enough to arrive in one piece. */
struct pd_link_answer {
	enum pd_link_ending ending;
	struct pd_link_found found;
	struct pd_error err;
};

/*
 * Runs process `rank`; socket leads to the other one.  Returns -1 if it failed; answer->err says
 * why.  Its resources end with the process: a device is not closed.
 */
int pd_link_end_live(const struct pd_link_ends *ends, int rank, int socket,
		     struct pd_link_answer *answer);
