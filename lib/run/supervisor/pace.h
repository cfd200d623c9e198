/* SPDX-License-Identifier: Apache-2.0 */
/* The progress, rate and remaining time of a run, beside its progress bar. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_pace {
	int64_t total, epoch_minibatches;       /* of training; set by the owner */
	/* When rates were computed last (0: never), and what had been done by then. */
	int64_t at_ns, at_done, at_samples;
	double samples_per_s, minibatches_per_s;        /* recent rates; 0: not known */
};

/*
 * Updates the rates: so many minibatches of the training are done, and so many samples in this run.
 */
void pd_pace_measure(struct pd_pace *pace, int64_t done, int64_t samples);
/* Leaves out the time until the next pd_pace_measure(), in which something else goes on. */
void pd_pace_interrupt(struct pd_pace *pace);
/*
 * A stretch of training between two reports.  Replicas end their minibatches together, in rounds of so
 * many; the last round of an epoch may be shorter.  The rate of a stretch is that of its whole rounds:
 * its ends are where a round ended.  Between a round's minibatches passes no time that says anything.
 */
struct pd_pace_stretch {
	int64_t round, epoch;           /* minibatches */
	int64_t begun;                  /* where the first round began */
	int64_t from, to, from_ns, to_ns;       /* minibatches done, and when */
	double rate;                    /* of the newest whole rounds; 0: there was none */
};

/* Begins rounds of so many minibatches, of which so many are done; keeps the rate. */
void pd_pace_stretch_begin(struct pd_pace_stretch *stretch, int64_t round, int64_t epoch, int64_t done,
			   int64_t now_ns);
/* Takes note that another minibatch is done; returns whether a round has ended. */
bool pd_pace_stretch_done(struct pd_pace_stretch *stretch, int64_t done, int64_t now_ns);
/*
 * Ends a stretch and begins the next.  Returns minibatches per second; without a whole round, those of the
 * newest one before, or not a number if there is none.
 */
double pd_pace_stretch_end(struct pd_pace_stretch *stretch);
/* Writes "120/1000, epoch 2/8" into text, and returns its length. */
size_t pd_pace_place(const struct pd_pace *pace, int64_t done, char *text, size_t size);
/* Writes ", 512 samples/s, 1:20 left" into text, or "" where the rate is not known. */
void pd_pace_rate(const struct pd_pace *pace, int64_t done, char *text, size_t size);
