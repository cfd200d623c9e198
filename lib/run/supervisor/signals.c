/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals that ask a run to end.  The first asks for an orderly end, a second one, some time later,
 * for an end at once.
 */
#include "run/supervisor/internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/*
 * Signals that come so soon after the first count as the same.  timeout(1) signals first its child,
 * then the group; systemd sends SIGHUP right after SIGTERM; and when a terminal goes, its shell
 * signals its jobs again.
 */
#define SAME_WISH_NS SECOND_NS

/*
 * Leaves a signal ignored that was ignored at the start (nohup, or a background job of a script).
 */
static void add_unless_ignored(sigset_t *set, int signal)
{
	struct sigaction action;

	if (sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
		sigaddset(set, signal);
}

int supervisor_catch_signals(struct supervisor *s, struct pd_error *err)
{
	static const int wishes[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < PD_COUNT(wishes); i++)
		add_unless_ignored(&set, wishes[i]);
	sigprocmask(SIG_BLOCK, &set, &s->old_mask);
	s->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return s->signal_fd < 0 ? pd_error_failed(err, "signalfd: %s", strerror(errno)) : 0;
}

void supervisor_read_signals(struct supervisor *s)
{
	struct signalfd_siginfo info;

	while (!s->at_once && read(s->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		int64_t now = pd_now_ns();
		bool again = s->signal != 0;

		if (info.ssi_signo == SIGCHLD)
			continue;       /* the sockets say which rank */
		if (again && now - s->wished_ns < SAME_WISH_NS)
			continue;
		if (!again)
			s->wished_ns = now;
		s->signal = (int)info.ssi_signo;
		if (s->done == s->count && !again)
			continue;       /* all ranks are done: what is left is written */
		s->at_once = again || s->job->lists;
		s->stop_asked = true;
		if (!s->at_once) {
			supervisor_ask_stop(s);
			continue;
		}
		supervisor_say_stopped(s, again ? "interrupted twice: stopped at once" :
				       "interrupted: a schedule cannot be cut short; stopped at"
				       " once");
	}
}

void supervisor_release_signals(struct supervisor *s)
{
	struct signalfd_siginfo late;

	if (s->signal_fd >= 0) {
		/* drops a signal that came when all was done */
		while (read(s->signal_fd, &late, sizeof(late)) == sizeof(late))
			;
		close(s->signal_fd);
	}
	sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
}
