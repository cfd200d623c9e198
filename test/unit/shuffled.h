/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport and a device for many members in one process.  Transfers from one rank to another take
 * place one by one, in the order in which the sender gave them to the transport unless they may overtake,
 * and otherwise in any.  Often a sender learns of the end of one long after its receiver.  A stream does
 * a thing when it is told to.
 */
#pragma once

#include "device/device.h"
#include "transport/transport.h"

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
	uint64_t order;                 /* in which it was sent; 0: only awaited so far */
	bool arrived;                   /* its receiver has it, and its sender does not know yet */
};

struct post {
	struct mail *mail;
	int count;                      /* letters that have not arrived */
	size_t room;
	uint64_t order, rng;
	int64_t clock;                  /* ticks: everything at a time of its own */
	int64_t first[MEMBERS];         /* when a member's first letter left, or first sum was made */
	int wrong;
	bool overtake;                  /* letters of one sender to one receiver arrive in any order, too */
};
extern struct post post;
extern size_t allocated;                /* bytes, by shuffled_device */

struct end {
	struct pd_transport base;
	int rank;
};

/* A device whose only stream does a thing when told to. */
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
/* first: the member who did it, where that is what began an all-reduce if nothing did before; or -1. */
void complete(struct pd_event *ev, int first);
/* These do one thing, if they can. */
bool deliver(void);
bool work(struct stream *s);

uint16_t narrow(const struct pd_rounding *r, float x);
float widen(const struct pd_rounding *r, uint16_t x);
