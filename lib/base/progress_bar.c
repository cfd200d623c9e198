/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress_bar.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		return size.ws_col;
	return 80;
}

void pd_progress_bar_begin(struct pd_progress_bar *bar, const char *what, int64_t total,
			   bool hidden)
{
	*bar = (struct pd_progress_bar){ .what = what, .total = total, .begun_ns = pd_now_ns() };
	bar->shown = !hidden && isatty(STDERR_FILENO);
}

void pd_progress_bar_show(struct pd_progress_bar *bar, int64_t done, const char *note)
{
	int64_t now = pd_now_ns();
	double part = bar->total > 0 ? (double)done / (double)bar->total : 0;
	int most, width, full;
	char cells[64];

	if (!bar->shown || now - bar->begun_ns < bar->after_ns ||
	    (bar->drawn_ns && now - bar->drawn_ns < 100000000 && done < bar->total))
		return;
	bar->drawn_ns = now;
	if (part > 1)
		part = 1;
	most = columns() - (int)strlen(bar->what) - 9;  /* columns for bar and note; the last one
							   stays empty */
	width = most - (note ? (int)strlen(note) + 1 : 0);
	if (width > 40)
		width = 40;
	if (width < 4)
		width = 4;
	most -= width + 1;
	full = (int)(part * width);
	for (int i = 0; i < width; i++)
		cells[i] = i < full ? '#' : '.';
	cells[width] = 0;
	fprintf(stderr, "\r%s [%s] %3d%%%s%.*s\033[K", bar->what, cells, (int)(part * 100),
		note ? " " : "", most > 0 ? most : 0, note ? note : "");
	fflush(stderr);
}

void pd_progress_bar_hide(struct pd_progress_bar *bar)
{
	if (bar->shown && bar->drawn_ns)
		fputs("\r\033[K", stderr);
	bar->drawn_ns = 0;
}

void pd_progress_bar_end(struct pd_progress_bar *bar)
{
	pd_progress_bar_hide(bar);
	bar->shown = 0;
}
