/* SPDX-License-Identifier: Apache-2.0 */
#include "base/activity.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads a process's or a thread's line of statistics: its state, and its processor time if asked for. */
static char state_of(const char *path, long *ticks_p)
{
	unsigned long user, system;
	char text[1024], *after, state;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	after = strrchr(text, ')');     /* behind the program's name, which may have any characters */
	if (!after || sscanf(after, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &state, &user,
			     &system) != 3)
		return 0;
	if (ticks_p)
		*ticks_p = (long)(user + system);
	return state;
}

enum pd_activity pd_activity_of(pid_t pid, long *ticks_p)
{
	enum pd_activity activity = PD_ASLEEP;
	long before = *ticks_p;
	struct dirent *entry;
	char path[320];
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	state_of(path, ticks_p);
	if (*ticks_p > before)
		return PD_RUNS;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	threads = opendir(path);
	while (threads && activity != PD_RUNS && (entry = readdir(threads))) {
		char state;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, entry->d_name);
		state = entry->d_name[0] == '.' ? 0 : state_of(path, NULL);
		activity = state == 'R' ? PD_RUNS : state == 'D' ? PD_HELD_UP : activity;
	}
	if (threads)
		closedir(threads);
	return activity;
}
