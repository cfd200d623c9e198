/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A door: ports at which guests are expected, and strangers may come.
 *
 * For every guest there is a pair of random words that serve once: one by which the guest is known, one
 * by which the guest knows that the door is the right one.  They reach the guest by a way of their own.
 * The first, its ask, is the first thing on its connection, and all that is read before it is right; until
 * then nothing is said.  Words travel unencrypted, but one that has been seen on the network is worth
 * nothing, unless it overtakes the packet in which it was: its connection is there already.
 *
 * Strangers are let in without delay, and only so many may stay without a word.  When another comes, the
 * oldest of those leaves whose address has the most: so many silent ones of one host are in nobody's way
 * but their own, and a guest who was taken for one of them comes again.  Addresses of IPv6 count by their
 * first 64 bits.  Once all guests have come, nobody listens any more.
 *
 * Nothing here blocks.  One thread uses a door.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_WORD_BYTES 16
#define PD_MOST_STRANGERS 256

struct pd_words { uint8_t ask[PD_WORD_BYTES], answer[PD_WORD_BYTES]; };

struct pd_door;

/* Makes words for so many guests. */
struct pd_door *pd_door_open(size_t guests, struct pd_error *err);
void pd_door_close(struct pd_door *door);       /* NULL: there is none */
/* Listens at one more address of this host; returns the port, or -1. */
int pd_door_listen(struct pd_door *door, const char *address, struct pd_error *err);
const struct pd_words *pd_door_words(const struct pd_door *door, size_t guest);
/* Expects a guest no more.  Once there is no other, nobody listens. */
void pd_door_forget(struct pd_door *door, size_t guest);

/* Can be read when somebody is at the door. */
int pd_door_fd(const struct pd_door *door);
/*
 * Looks who is there: gives the connections of guests, which the caller closes; their calls do not block.
 * Returns how many guests are still missing.
 */
size_t pd_door_look(struct pd_door *door, void (*came)(void *context, size_t guest, int fd),
		    void *context);

/* Compares words in a time that does not depend on where they differ. */
bool pd_words_same(const uint8_t *a, const uint8_t *b);
