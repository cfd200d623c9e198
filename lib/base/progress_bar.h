/* SPDX-License-Identifier: Apache-2.0 */
/* A progress bar on standard error, drawn only when that is a terminal. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pd_progress_bar {
	const char *what;
	int64_t total;
	int64_t drawn_ns, begun_ns;
	int64_t after_ns;               /* it is drawn so long after it began; 0 unless the caller sets it */
	int shown;
};

/* `what` stands before the bar and is borrowed.  A hidden bar is not drawn on a terminal either. */
void pd_progress_bar_begin(struct pd_progress_bar *bar, const char *what, int64_t total,
			   bool hidden);
/*
 * Draws at most ten times a second.  `note`, or NULL, follows the bar, as far as the line has room.
 */
void pd_progress_bar_show(struct pd_progress_bar *bar, int64_t done, const char *note);
/* Erases the bar until it is shown again, so that a line can be written. */
void pd_progress_bar_hide(struct pd_progress_bar *bar);
void pd_progress_bar_end(struct pd_progress_bar *bar);
