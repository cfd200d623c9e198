/* SPDX-License-Identifier: Apache-2.0 */
#include "base/event.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int pd_gate_init(struct pd_gate *gate, struct pd_error *err)
{
	gate->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (gate->fd < 0)
		return pd_error_failed(err, "eventfd: %s", strerror(errno));
	pthread_mutex_init(&gate->lock, NULL);
	pthread_cond_init(&gate->cond, NULL);
	atomic_store(&gate->failed, 0);
	return 0;
}

void pd_gate_release(struct pd_gate *gate)
{
	close(gate->fd);
	pthread_cond_destroy(&gate->cond);
	pthread_mutex_destroy(&gate->lock);
}

int pd_gate_failed(const struct pd_gate *gate, struct pd_error *err, const char *fmt, ...)
{
	char what[sizeof(err->text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (!gate)
		return pd_error_failed(err, "%s: failed", what);
	*err = gate->err;
	err->status = PD_EXIT_FAILED;
	return pd_error_prefix(err, "%s", what);
}

static void finish(struct pd_event *ev, enum pd_event_state state, struct pd_gate *gate)
{
	uint64_t one = 1;

	if (!gate) {
		atomic_store_explicit(&ev->state, state, memory_order_release);
		return;
	}
	/* The lock ensures that a thread about to wait does not miss the event. */
	pthread_mutex_lock(&gate->lock);
	atomic_store_explicit(&ev->state, state, memory_order_release);
	pthread_cond_broadcast(&gate->cond);
	pthread_mutex_unlock(&gate->lock);
	if (write(gate->fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		pd_bug("eventfd: %s", strerror(errno));
}

void pd_event_complete(struct pd_event *ev, int64_t start_ns, int64_t end_ns,
		       struct pd_gate *gate)
{
	ev->start_ns = start_ns;
	ev->end_ns = end_ns;
	finish(ev, PD_EVENT_DONE, gate);
}

void pd_event_fail(struct pd_event *ev, const struct pd_error *why, struct pd_gate *gate)
{
	if (gate) {
		pthread_mutex_lock(&gate->lock);
		if (!atomic_exchange(&gate->failed, 1))
			gate->err = *why;
		pthread_mutex_unlock(&gate->lock);
	}
	finish(ev, PD_EVENT_FAILED, gate);
}

void pd_event_wait(struct pd_event *ev, struct pd_gate *gate)
{
	if (pd_event_done(ev))
		return;
	pthread_mutex_lock(&gate->lock);
	while (!pd_event_done(ev))
		pthread_cond_wait(&gate->cond, &gate->lock);
	pthread_mutex_unlock(&gate->lock);
}
