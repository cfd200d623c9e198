/* SPDX-License-Identifier: Apache-2.0 */
/* How far a run is, how fast it goes and how long it will still take: beside its progress bar. */
#ifndef PD_RUN_PACE_H
#define PD_RUN_PACE_H

#include <stddef.h>
#include <stdint.h>

struct pd_pace {
	int64_t total, epoch_minibatches;       /* of training; set by the owner */
	/* When the rates were worked out, and what had been done then; 0: they were not yet. */
	int64_t at_ns, at_done, at_samples;
	double samples_per_s, minibatches_per_s;        /* of late; 0: not known */
};

/* So many minibatches are done since the beginning of training, of so many samples in this run. */
void pd_pace_measure(struct pd_pace *pace, int64_t done, int64_t samples);
/* Something else goes on: the time until the next pd_pace_measure() does not count. */
void pd_pace_interrupt(struct pd_pace *pace);
/* "120/1000, epoch 2/8" into text; how long it is. */
size_t pd_pace_place(const struct pd_pace *pace, int64_t done, char *text, size_t size);
/* ", 512 samples/s, 1:20 left" into text; nothing where the rate is not known. */
void pd_pace_rate(const struct pd_pace *pace, int64_t done, char *text, size_t size);

#endif
