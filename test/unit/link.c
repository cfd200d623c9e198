/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "engine/device/device.h"
#include "run/measure/link.h"
#include "tap.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct pd_transport *open_fails(const struct pd_transport_config *config,
				       struct pd_error *err)
{
	if (config->rank == 1)
		return pd_provider_ucx.open(config, err);
	pd_error_failed(err, "no link today");
	return NULL;
}

static struct pd_transport *open_dies(const struct pd_transport_config *config,
				      struct pd_error *err)
{
	if (config->rank == 1)
		kill(getpid(), SIGKILL);
	return pd_provider_ucx.open(config, err);
}

static struct pd_transport *open_hangs(const struct pd_transport_config *config,
				       struct pd_error *err)
{
	if (config->rank == 0)
		for (;;)
			pause();
	return pd_provider_ucx.open(config, err);
}

/*
 * The device that replaces the list of devices: the CPU's, as if the host could not read its memory.
 * Both ends of a link share it, so that their messages are staged.
 */
static struct pd_device_ops device_separate;
const struct pd_device_ops *const pd_devices[] = { NULL };

const struct pd_device_ops *pd_device_find(const char *name, struct pd_error *err)
{
	if (strcmp(name, "apart") != 0) {
		pd_error_failed(err, "--device=%s: no such device today", name);
		return NULL;
	}
	device_separate = pd_device_cpu;
	device_separate.separate_memory = true;
	return &device_separate;
}

static void test_device(void)
{
	struct pd_link_ends ends = { .device = "apart" };
	struct pd_link_found found = { 0 };
	struct pd_error err = { .text = "" };

	is_int(pd_measure_link(&ends, &found, &err), 0,
	       "measured between devices that have something to do");
	diag("%s latency %.1f us, bandwidth %.2f GB/s", err.text, (double)found.latency_ns / 1e3,
	     (double)found.bandwidth_bytes_per_s / 1e9);
	ok(found.latency_ns > 100 && found.latency_ns < 200000000, "latency between 0.1 us and 200 ms");
	ok(found.bandwidth_bytes_per_s > 2000000 && found.bandwidth_bytes_per_s < 500000000000, "0.002 to 500 GB/s");
	is_int(waitpid(-1, NULL, WNOHANG), -1, "no child is left");
	ends.device = "none";
	is_int(pd_measure_link(&ends, &found, &err), -1, "a device that is none");
	is_str(err.text, "--device=none: no such device today", "is told");
}

static int died_after;

static int send_then_die(struct pd_transport *t, int peer, uint64_t tag, const void *buf,
			 size_t bytes, const struct pd_event *after, struct pd_event *done)
{
	if (peer == 0 && ++died_after == 1000)
		kill(getpid(), SIGKILL);
	return pd_transport_ucx.send(t, peer, tag, buf, bytes, after, done);
}

/* UCX's functions with some replaced; open() must pass them on. */
static struct pd_transport_ops middle;

static struct pd_transport *open_middle(const struct pd_transport_config *config,
					struct pd_error *err)
{
	struct pd_transport *t = pd_provider_ucx.open(config, err);

	if (t)
		t->ops = &middle;
	return t;
}

static void fails(const struct pd_transport_provider *provider, int64_t limit_ns,
		  const char *why)
{
	struct pd_link_found found = { .bandwidth_bytes_per_s = -7, .latency_ns = -7 };
	int64_t begun_ns = pd_now_ns();
	struct pd_error err = {.text = ""};

	is_int(pd_measure_link_within(&(struct pd_link_ends){ .transport = provider }, limit_ns,
				      &found, &err), -1, "an error");
	is_str(err.text, why, "its reason");
	ok(found.bandwidth_bytes_per_s == -7 && found.latency_ns == -7, "no result");
	ok(pd_now_ns() - begun_ns < limit_ns + 3000000000, "in time");
	ok(waitpid(-1, NULL, WNOHANG) == -1, "no child is left");
}

int main(void)
{
	const int64_t second_ns = 1000000000;
	struct pd_link_found found = { 0 };
	struct pd_error err;
	struct pd_transport_provider provider = pd_provider_ucx;
	int fds = dup(0);

	close(fds);
	is_int(pd_measure_link(&(struct pd_link_ends){ .device = NULL },
			       &found, &err), 0, "measured");
	ok(found.spread.low > 0 && found.spread.low <= 1 && found.spread.high >= 1, "and how it varied");
	diag("latency %.1f us, bandwidth %.2f GB/s", (double)found.latency_ns / 1e3,
	     (double)found.bandwidth_bytes_per_s / 1e9);
	ok(found.latency_ns > 100 && found.latency_ns < 20000000, "latency between 0.1 us and 20 ms");
	ok(found.bandwidth_bytes_per_s > 20000000 && found.bandwidth_bytes_per_s < 500000000000, "0.02 to 500 GB/s");
	is_int(waitpid(-1, NULL, WNOHANG), -1, "no child is left");

	provider.open = open_fails;
	fails(&provider, 30 * second_ns, "no link today");
	provider.open = open_dies;
	fails(&provider, 30 * second_ns, "link: process 2 of 2 died");
	provider.open = open_hangs;
	fails(&provider, second_ns, "link: no result within 1.0 s");
	middle = pd_transport_ucx;
	middle.send = send_then_die;
	provider.open = open_middle;
	fails(&provider, 30 * second_ns, "link: process 2 of 2 died");
	if (!test_quick())
		test_device();
	is_int(dup(0), fds, "no descriptor is left");
	return done_testing();
}
