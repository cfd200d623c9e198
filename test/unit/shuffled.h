/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport and a device for many members in one process.  Transfers take place one by one in any
 * order, except that those from one rank to another keep the order in which the sender posted them unless
 * they may overtake.  Often a sender learns of the end of a transfer long after its receiver.  A stream
 * does its next piece of work when work() is called.
 */
#pragma once

#include "engine/device/device.h"
#include "engine/transport/transport.h"

#define MEMBERS 33
#define QUEUE   3

/* A letter: a transfer that one side or both have posted. */
struct mail {
	int from, to;
	uint64_t tag;
	const void *src;
	void *dst;
	size_t bytes;
	const struct pd_event *src_after, *dst_after;
	struct pd_event *sent, *received;
	uint64_t order;                 /* the number of the send; 0: only the receive is posted */
	bool arrived;                   /* the receiver has it, but the sender does not know yet */
};

struct post {
	struct mail *mail;
	int count;                      /* letters that have not arrived */
	size_t room;
	uint64_t order, rng;
	int64_t clock;                  /* ticks, so that everything has a time of its own */
	int64_t first[MEMBERS];         /* when a member's first letter left, or first sum began */
	int wrong;
	bool overtake;                  /* letters between two ranks may arrive in any order, too */
};
extern struct post post;
extern size_t allocated;                /* bytes allocated by shuffled_device */

struct end {
	struct pd_transport base;
	int rank;
};

/* The only stream of a device, which does its work when work() is called. */
struct stream {
	struct pd_stream base;
	int member;
	struct stream_item {
		struct pd_event *wait, *done;
		struct pd_mixed_sum sum;
	} queue[QUEUE];
	int queued;
};

extern const struct pd_transport_ops shuffled_transport;
extern const struct pd_device_ops shuffled_device;

unsigned any(unsigned n);
/* Completes an event; `first` is the member whose all-reduce begins with it, unless it has begun, or -1. */
void complete(struct pd_event *ev, int first);
/* Do one transfer, or one piece of work, if possible; return whether they did. */
bool deliver(void);
bool work(struct stream *s);

uint16_t narrow(const struct pd_rounding *r, float x);
float widen(const struct pd_rounding *r, uint16_t x);
