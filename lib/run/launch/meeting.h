/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the processes of a run come together: the first invites, the others connect.
 *
 * An invitation says where the first process listens, and for each connection that it expects a pair
 * of random words (run/socket/door.h).  It reaches the others by way of whoever started all.
 */
#pragma once

#include "base/json.h"

#define PD_MEETING_PATIENCE_S 60        /* for all to come, and for one to get in */

/* Connections of each process but the first: of the one that starts the rank, and of the rank. */
enum pd_meeting_kind { PD_MEETING_AGENT, PD_MEETING_RANK, PD_MEETING_KINDS };

struct pd_meeting;

/* Listens at these addresses of this host, an array of texts. */
struct pd_meeting *pd_meeting_open(int processes, const json_t *addresses, struct pd_error *err);
json_t *pd_meeting_invitation(const struct pd_meeting *meeting);    /* a new reference */
/* Waits until all connections are there, so many seconds at most, and stops listening. */
int pd_meeting_wait(struct pd_meeting *meeting, int patience_s, struct pd_error *err);
/* Returns the connection, which the caller closes. */
int pd_meeting_take(struct pd_meeting *meeting, int process, enum pd_meeting_kind kind);
void pd_meeting_close(struct pd_meeting *meeting);

/* One who is invited: the connection, or -1. */
int pd_meeting_join(const json_t *invitation, int process, enum pd_meeting_kind kind,
		    struct pd_error *err);
