/* SPDX-License-Identifier: Apache-2.0 */
#include "measure/link.h"
#include "base/clock.h"
#include "tap.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct pd_transport *open_fails(const struct pd_transport_config *config,
				       struct pd_error *err)
{
	if (config->rank == 1)
		return pd_transport_ucx.open(config, err);
	pd_error_failed(err, "no link today");
	return NULL;
}

static struct pd_transport *open_dies(const struct pd_transport_config *config,
				      struct pd_error *err)
{
	if (config->rank == 1)
		kill(getpid(), SIGKILL);
	return pd_transport_ucx.open(config, err);
}

static struct pd_transport *open_hangs(const struct pd_transport_config *config,
				       struct pd_error *err)
{
	if (config->rank == 0)
		for (;;)
			pause();
	return pd_transport_ucx.open(config, err);
}

static int died_after;

static int send_then_die(struct pd_transport *t, int peer, uint64_t tag, const void *buf,
			 size_t bytes, const struct pd_event *after, struct pd_event *done)
{
	if (peer == 0 && ++died_after == 1000)
		kill(getpid(), SIGKILL);
	return pd_transport_ucx.send(t, peer, tag, buf, bytes, after, done);
}

/* UCX's with other functions; open() must hand those on. */
static struct pd_transport_ops middle;

static struct pd_transport *open_middle(const struct pd_transport_config *config,
					struct pd_error *err)
{
	struct pd_transport *t = pd_transport_ucx.open(config, err);

	if (t)
		t->ops = &middle;
	return t;
}

static void fails(const struct pd_transport_ops *ops, int64_t limit_ns, const char *why)
{
	int64_t bandwidth = -7, latency_ns = -7, begun_ns = pd_now_ns();
	struct pd_error err = {.text = ""};

	is_int(pd_measure_link_within(ops, limit_ns, &bandwidth, &latency_ns, &err), -1,
	       "an error");
	is_str(err.text, why, "its reason");
	ok(bandwidth == -7 && latency_ns == -7, "no result");
	ok(pd_now_ns() - begun_ns < limit_ns + 3000000000, "in time");
	ok(waitpid(-1, NULL, WNOHANG) == -1, "no child is left");
}

int main(void)
{
	const int64_t second_ns = 1000000000;
	int64_t bandwidth = 0, latency_ns = 0;
	struct pd_error err;
	struct pd_transport_ops ops = pd_transport_ucx;
	int fds = dup(0);

	close(fds);
	is_int(pd_measure_link(&pd_transport_ucx, &bandwidth, &latency_ns, &err), 0, "measured");
	diag("latency %.1f us, bandwidth %.2f GB/s", (double)latency_ns / 1e3,
	     (double)bandwidth / 1e9);
	ok(latency_ns > 100 && latency_ns < 20000000, "latency between 0.1 us and 20 ms");
	ok(bandwidth > 20000000 && bandwidth < 500000000000, "0.02 to 500 GB/s");
	is_int(waitpid(-1, NULL, WNOHANG), -1, "no child is left");

	ops.open = open_fails;
	fails(&ops, 30 * second_ns, "no link today");
	ops.open = open_dies;
	fails(&ops, 30 * second_ns, "link: process 2 of 2 died");
	ops.open = open_hangs;
	fails(&ops, second_ns, "link: no result within 1.0 s");
	middle = pd_transport_ucx;
	middle.send = send_then_die;
	ops.open = open_middle;
	fails(&ops, 30 * second_ns, "link: process 2 of 2 died");
	is_int(dup(0), fds, "no descriptor is left");
	return done_testing();
}
