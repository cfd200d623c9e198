/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/hosts.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/device/device.h"
#include "run/launch/exchange_server.h"
#include "run/launch/meeting.h"
#include "run/launch/place.h"
#include "run/launch/process.h"
#include "run/socket/socket.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct agent {
	struct pd_channel first;        /* to the first process */
	int rank_fd;                    /* the rank's connection, until it has it */
	struct pd_process process;
	struct pd_exchange_server exchange;
	struct pd_seat seat;
	bool started, told;             /* told: how the rank has ended */
	bool over, end;
	int status;
};

/* Returns the processors that this process may use: a cpu_set_t in hexadecimal. */
static char *processors(void)
{
	cpu_set_t cpus;
	char *text = pd_zalloc(2 * sizeof(cpus) + 1);

	CPU_ZERO(&cpus);
	sched_getaffinity(0, sizeof(cpus), &cpus);
	for (size_t i = 0; i < sizeof(cpus); i++)
		sprintf(text + 2 * i, "%02x", ((unsigned char *)&cpus)[i]);
	return text;
}

/* Returns the devices that this process's rank may use, if they can be told apart. */
static json_t *visible_devices(void)
{
	json_t *places = json_array();
	struct pd_error none;

	for (int i = 0; pd_devices[i]; i++) {
		int count = pd_devices[i]->place ? pd_devices[i]->count(&none) : 0;

		for (int ordinal = 0; ordinal < count; ordinal++) {
			char place[PD_DEVICE_PLACE];

			pd_devices[i]->place(ordinal, place);
			pd_json_add(places, json_string(place));
		}
	}
	return places;
}

json_t *pd_hosts_place(void)
{
	char host[PD_SEAT_HOST] = "", boot[64] = "", *text = processors();
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
	json_t *place;

	gethostname(host, sizeof(host) - 1);
	if (file && !fgets(boot, sizeof(boot), file))
		boot[0] = 0;
	if (file)
		fclose(file);
	place = json_pack("{s:s, s:o, s:s, s:s, s:o}", "event", "place", "host", pd_json_bytes(host),
			  "boot", boot, "processors", text, "devices", visible_devices());
	free(text);
	return place;
}

/* Ignores the signals that the launcher sends to all: the first process acts on them. */
static int mind_no_signals(void)
{
	static const int firsts[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
	sigset_t children;

	for (size_t i = 0; i < PD_COUNT(firsts); i++)
		signal(firsts[i], SIG_IGN);
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	sigprocmask(SIG_BLOCK, &children, NULL);
	return signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
}

static int start_rank(struct agent *a, const json_t *message, struct pd_error *err)
{
	int rank = (int)pd_member_int(message, "rank"), status;

	if (pd_seat_parse(json_object_get(message, "seat"), &a->seat) < 0)
		return pd_error_failed(err, "the first process sent a seat that cannot be read");
	a->process.exchange = pd_exchange_server_begin(&a->exchange, err);
	if (a->process.exchange < 0)
		return -1;
	status = pd_process_start_on(&a->process, a->rank_fd, rank, &a->seat, err);
	close(a->process.exchange);
	close(a->rank_fd);
	a->rank_fd = -1;
	a->started = status == 0;
	return status;
}

static int handle(struct agent *a, const json_t *message, struct pd_error *err)
{
	if (pd_message_is(message, "ping"))
		return pd_channel_send(&a->first, json_pack("{s:s, s:I}", "event", "pong", "ns",
							    (json_int_t)pd_now_ns()), err);
	if (pd_message_is(message, "look"))
		return pd_channel_send(&a->first, json_pack("{s:s, s:i}", "event", "activity", "activity",
							    (int)pd_activity_of(a->process.pid,
										&a->process.ticks)),
				       err);
	if (pd_message_is(message, "start"))
		return start_rank(a, message, err);
	if (pd_message_is(message, "kill"))
		pd_process_kill(&a->process);
	a->over |= pd_message_is(message, "over");
	if (pd_message_is(message, "end")) {
		a->end = true;
		a->status = (int)pd_member_int(message, "status");
	}
	return 0;
}

static int tell_end(struct agent *a, struct pd_error *err)
{
	char fate[PD_FATE_TEXT];

	a->told = true;
	return pd_channel_send(&a->first, json_pack("{s:s, s:b, s:s}", "event", "ended",
						    "well", (int)(a->process.status == 0), "fate",
						    pd_process_fate(&a->process, fate)), err);
}

/* The first process is gone.  One agent of each host says so, unless it was to be expected. */
static int on_gone(const struct agent *a, struct pd_error *err)
{
	if (a->over)
		return PD_EXIT_YES;
	if (a->started && a->seat.local > 0)
		return PD_EXIT_FAILED;
	return pd_error_failed(err, "the first process of the run is gone, or its host cannot be "
			       "reached: the ranks on %s end",
			       a->seat.host[0] ? a->seat.host : "this host");
}

static int serve(struct agent *a, int children, struct pd_error *err)
{
	struct signalfd_siginfo info;
	json_t *message;
	int verdict = 0;

	while (!a->end) {
		struct pollfd fds[] = { { .fd = a->first.fd, .events = POLLIN },
					{ .fd = children, .events = POLLIN } };

		poll(fds, 2, -1);
		while (read(children, &info, sizeof(info)) == sizeof(info))
			;
		while (!a->end && (verdict = pd_channel_receive(&a->first, &message)) > 0) {
			int status = handle(a, message, err);

			json_decref(message);
			if (status < 0)
				return -1;
		}
		if (!a->end && verdict < 0)
			return on_gone(a, err);
		if (a->started && !a->told && pd_process_ended(&a->process) &&
		    tell_end(a, err) < 0)
			return on_gone(a, err);
	}
	return a->status;
}

/* Makes two connections: of this process, and of its rank. */
static int join(struct agent *a, const json_t *invitation, struct pd_error *err)
{
	int number = pd_hosts_job()->rank, fd;

	pd_socket_allow_many();
	fd = pd_meeting_join(invitation, number, PD_MEETING_AGENT, err);
	if (fd < 0)
		return -1;
	pd_socket_watch(fd);
	pd_channel_init(&a->first, fd, PD_SEND_PATIENCE_S);
	a->rank_fd = pd_meeting_join(invitation, number, PD_MEETING_RANK, err);
	return a->rank_fd < 0 ? -1 : pd_channel_send(&a->first, pd_hosts_place(), err);
}

int pd_hosts_agent(struct pd_error *err)
{
	struct agent agent = { .first.fd = -1, .rank_fd = -1,
			       .process = { .channel.fd = -1, .words = -1, .exchange = -1 } };
	char *text = pd_pmix_hear(err);
	json_t *invitation, *refused;
	int status, children;

	if (!text) {
		pd_pmix_end();
		return -1;
	}
	invitation = json_loads(text, 0, NULL);
	free(text);
	refused = json_object_get(invitation, "status");
	if (refused) {
		status = (int)json_integer_value(refused);
	} else {
		children = mind_no_signals();
		status = join(&agent, invitation, err);
		if (status == 0)
			status = serve(&agent, children, err);
		pd_process_kill(&agent.process);
		pd_channel_release(&agent.first);
	}
	pd_exchange_server_end(&agent.exchange);
	json_decref(invitation);
	return status;
}
