/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A seat: where a rank's process is, as its launcher knows.  A rank's number says nothing of that:
 * it counts the ranks of all hosts, while devices, processors, processes and clocks are a host's.
 *
 * How far a host's clock is ahead is measured again at the end, and what it has gained is taken
 * out of the rank's part of the trace (base/drift.h).  A rank receives its seat behind the job,
 * which is one message for all.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PD_SEAT_HOST 64
#define PD_SEAT_ADDRESS 46

struct pd_seat {
	char host[PD_SEAT_HOST];        /* the same for ranks of one host, and for no others */
	char address[PD_SEAT_ADDRESS];  /* at which other hosts reach it, a number; "": there is one host */
	int local, locals;              /* its number among the ranks of its host, and how many */
	int hosts;                      /* of the whole run */
	int sharer, sharers;            /* its number among the ranks that have the same processors, and
					   how many: of its host all, unless whoever started them dealt
					   the processors out */
	int device, device_sharers;     /* the number of its device among those that it sees, and how many
					   ranks of its host see the same: all, unless whoever started
					   them dealt the devices out */
	int64_t clock_ahead_ns;         /* of its host's pd_now_ns() before the supervisor's */
};

/* Are the two on one host? */
static inline bool pd_seat_beside(const struct pd_seat *a, const struct pd_seat *b)
{
	return strcmp(a->host, b->host) == 0;
}

json_t *pd_seat_json(const struct pd_seat *seat);       /* a new reference */
/* Returns -1 if it is none. */
int pd_seat_parse(json_t *value, struct pd_seat *out);
