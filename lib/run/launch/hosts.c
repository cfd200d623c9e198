/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/hosts.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/program.h"
#include "run/launch/exchange_server.h"
#include "run/launch/meeting.h"
#include "run/launch/other_launchers.h"
#include "run/launch/place.h"
#include "run/launch/pmix/pmix.h"
#include "run/launch/process.h"
#include "run/socket/socket.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MS 60000                 /* for one to say what it was asked */
#define END_NS INT64_C(2000000000)      /* for a rank that is killed to be gone */
#define PINGS 32                        /* of a host, for its clock; fewer where they take longer */
#define PINGS_NS INT64_C(200000000)

struct remote {
	struct pd_seat seat;
	struct pd_drift drift;          /* of its host's clock, if it is the first there */
	char *boot;                     /* of its kernel: tells hosts of one name apart */
	char *processors;               /* that it may use: a cpu_set_t in hexadecimal */
	json_t *devices;                /* those that its rank sees */
	struct pd_process process;      /* of rank 0 */
	struct pd_channel agent, channel;       /* of the others */
	bool started, ended, well, lost;
	bool looking;                   /* its agent was asked what it does, and has not answered */
	enum pd_activity activity;      /* what it said last */
	char fate[PD_FATE_TEXT];
};

struct hosts {
	struct pd_launcher base;
	int ranks, events;
	struct remote *remote;
	struct pd_exchange_server exchange;     /* of rank 0 */
};

/* ---- which process this is ---- */

/* Before main() ends there is one job, and one meeting of it. */
static struct {
	struct pd_pmix_job job;
	const char *network;            /* NULL: any */
	bool invited;
	struct hosts *hosts;
} self;

const struct pd_pmix_job *pd_hosts_job(void)
{
	return &self.job;
}

int pd_hosts_processes(void)
{
	return self.job.size;
}

int pd_hosts_network(const char *interface, struct pd_error *err)
{
	json_t *addresses = interface ? pd_socket_addresses(interface) : NULL;
	bool none = interface && json_array_size(addresses) == 0;

	json_decref(addresses);
	if (interface && self.job.size <= 1)
		return pd_error_input(err, "--network does nothing here: it is for several hosts, with mpirun or "
				      "srun");
	if (none)
		return pd_error_input(err, "--network: expected an interface of this host that is up and has an "
				      "address, as ip(8) shows them, found \"%.40s\"", interface);
	self.network = interface;
	return 0;
}

static char *refusal(int status)
{
	json_t *message = json_pack("{s:i}", "status", status);
	char *text = json_dumps(message, JSON_COMPACT);

	json_decref(message);
	return text;
}

/* Ends the agents with the status of the first process, however that ends. */
static void on_end(int status, void *unused)
{
	char *text;

	if (!self.invited) {
		text = refusal(status);
		pd_pmix_tell(text, NULL);
		free(text);
	}
	pd_pmix_end();
	for (int r = 1; self.hosts && r < self.hosts->ranks; r++)
		if (self.hosts->remote[r].agent.fd >= 0)
			pd_channel_send(&self.hosts->remote[r].agent,
					json_pack("{s:s, s:i}", "event", "end", "status", status),
					NULL);
}

int pd_hosts_begin(const char *program)
{
	struct pd_error err = { 0 };
	int found, status;

	pd_program_begin(program);
	found = pd_pmix_begin(&self.job, &err);
	if (found < 0 || (found == 0 && pd_launched_alone(&err) < 0))
		return pd_command_fail(&err);
	if (found > 0 && self.job.size == 1)
		pd_pmix_end();
	if (self.job.size <= 1)
		return -1;
	/* a launcher that is killed takes the processes along that it started, or asks for an end */
	prctl(PR_SET_PDEATHSIG, self.job.rank == 0 ? SIGTERM : SIGKILL);
	if (self.job.rank == 0) {
		on_exit(on_end, NULL);
		return -1;
	}
	status = pd_hosts_agent(&err);
	return status < 0 ? pd_command_fail(&err) : status;
}

/* ---- seats ---- */

/* Takes an agent's word on how its rank has ended, or what it does. */
static void take_word(struct remote *r, const json_t *message)
{
	if (pd_message_is(message, "ended")) {
		r->ended = true;
		r->well = pd_member_true(message, "well");
		snprintf(r->fate, sizeof(r->fate), "%s", pd_member_text(message, "fate"));
	} else if (pd_message_is(message, "activity")) {
		r->activity = (enum pd_activity)pd_member_int(message, "activity");
		r->looking = false;
	}
}

static int heard(void *remote, int verdict, const json_t *message, struct pd_error *err)
{
	if (verdict <= 0)
		return pd_error_failed(err, "the process that is to start it has gone silent");
	take_word(remote, message);
	return 0;
}

static json_t *hear(struct hosts *h, int r, const char *event, struct pd_error *err)
{
	json_t *message = pd_channel_hear(&h->remote[r].agent, event, ANSWER_MS, heard, &h->remote[r], err);

	if (!message)
		pd_error_prefix(err, "rank %d", r);
	return message;
}

static int receive_place(struct hosts *h, int r, struct pd_error *err)
{
	struct remote *remote = &h->remote[r];
	json_t *place = r == 0 ? pd_hosts_place() : hear(h, r, "place", err);
	const char *host, *boot, *processors;
	json_t *devices;
	int status = 0;

	if (!place)
		return -1;
	if (json_unpack(place, "{s:s, s:s, s:s, s:o}", "host", &host, "boot", &boot, "processors",
			&processors, "devices", &devices) < 0 ||
	    strlen(processors) != 2 * sizeof(cpu_set_t)) {
		status = pd_error_failed(err, "rank %d: where it is cannot be read", r);
	} else {
		snprintf(remote->seat.host, sizeof(remote->seat.host), "%s", host);
		remote->boot = pd_strdup(boot);
		remote->processors = pd_strdup(processors);
		remote->devices = json_incref(devices);
	}
	json_decref(place);
	return status;
}

/* Hosts of one name that are not one get the beginning of what tells them apart. */
static void tell_hosts_apart(struct hosts *h)
{
	for (int r = 1; r < h->ranks; r++)
		for (int q = 0; q < r; q++) {
			struct pd_seat *seat = &h->remote[r].seat;

			if (!pd_seat_beside(seat, &h->remote[q].seat) ||
			    strcmp(h->remote[r].boot, h->remote[q].boot) == 0)
				continue;
			snprintf(seat->host + strnlen(seat->host, sizeof(seat->host) - 10), 10,
				 "/%.8s", h->remote[r].boot);
			break;
		}
}

static void count_neighbours(struct hosts *h)
{
	int hosts = 0;

	for (int r = 0; r < h->ranks; r++) {
		struct remote *a = &h->remote[r];

		for (int q = 0; q < h->ranks; q++) {
			const struct remote *b = &h->remote[q];
			bool sharer = strcmp(a->processors, b->processors) == 0;

			if (!pd_seat_beside(&a->seat, &b->seat))
				continue;
			a->seat.locals++;
			a->seat.local += q < r;
			a->seat.sharers += sharer;
			a->seat.sharer += sharer && q < r;
			if (json_equal(a->devices, b->devices)) {
				a->seat.device_sharers++;
				a->seat.device += q < r;
			}
		}
		hosts += a->seat.local == 0;
	}
	for (int r = 0; r < h->ranks; r++)
		h->remote[r].seat.hosts = hosts;
}

/* ---- clocks ---- */

/* Measures how far the clock of an agent is ahead, by the quickest of several round trips. */
static int measure_clock(struct hosts *h, int r, struct pd_clock_sample *out, struct pd_error *err)
{
	int64_t quickest = INT64_MAX, begun = pd_now_ns();

	for (int i = 0; i < PINGS && (i == 0 || pd_now_ns() - begun < PINGS_NS); i++) {
		int64_t asked = pd_now_ns(), there, back;
		json_t *answer;

		pd_channel_send(&h->remote[r].agent, json_pack("{s:s}", "event", "ping"), NULL);
		answer = hear(h, r, "pong", err);
		if (!answer)
			return -1;
		back = pd_now_ns() - asked;
		there = pd_member_int(answer, "ns");
		json_decref(answer);
		if (back >= quickest)
			continue;
		quickest = back;
		out->at_ns = asked + back / 2;
		out->ahead_ns = there - out->at_ns;
	}
	return 0;
}

/* Returns the first rank of a rank's host, whose agent's clock is measured. */
static int first_beside(const struct hosts *h, int r)
{
	int first = 0;

	while (!pd_seat_beside(&h->remote[r].seat, &h->remote[first].seat))
		first++;
	return first;
}

static int measure_clocks(struct hosts *h, struct pd_error *err)
{
	for (int r = 1; r < h->ranks; r++) {
		struct remote *remote = &h->remote[r];
		int first = first_beside(h, r);

		if (first == r && measure_clock(h, r, &remote->drift.first, err) < 0)
			return -1;
		remote->seat.clock_ahead_ns = h->remote[first].drift.first.ahead_ns;
	}
	return 0;
}

/* ---- all come ---- */

static int invite(struct hosts *h, struct pd_meeting *meeting, struct pd_error *err)
{
	json_t *invitation = pd_meeting_invitation(meeting);
	char *text = json_dumps(invitation, JSON_COMPACT);
	int status;

	self.invited = true;
	status = pd_pmix_tell(text, err);
	free(text);
	json_decref(invitation);
	return status < 0 ? -1 : pd_meeting_wait(meeting, PD_MEETING_PATIENCE_S, err);
}

static void take_connections(struct hosts *h, struct pd_meeting *meeting)
{
	h->events = epoll_create1(EPOLL_CLOEXEC);
	for (int r = 1; r < h->ranks; r++) {
		struct remote *remote = &h->remote[r];
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = (uint32_t)r };
		int fd = pd_meeting_take(meeting, r, PD_MEETING_AGENT);

		pd_socket_watch(fd);
		epoll_ctl(h->events, EPOLL_CTL_ADD, fd, &event);
		pd_channel_init(&remote->agent, fd, PD_SEND_PATIENCE_S);
		pd_channel_init(&remote->channel, pd_meeting_take(meeting, r, PD_MEETING_RANK),
				PD_SEND_PATIENCE_S);
	}
}

/*
 * Finds at which address of its host others reach a rank: the one from which its agent came, and for those
 * of this host the one to which agents of others came.
 */
static void find_addresses(struct hosts *h)
{
	char own[PD_SOCKET_ADDRESS] = "";

	for (int r = 1; r < h->ranks && !own[0]; r++)
		if (!pd_seat_beside(&h->remote[0].seat, &h->remote[r].seat))
			pd_socket_own_address(h->remote[r].agent.fd, own);
	for (int r = 0; r < h->ranks && own[0]; r++) {
		struct pd_seat *seat = &h->remote[r].seat;

		if (pd_seat_beside(seat, &h->remote[0].seat))
			memcpy(seat->address, own, sizeof(own));
		else
			pd_socket_peer_address(h->remote[r].agent.fd, seat->address);
	}
}

static int gather(struct hosts *h, struct pd_error *err)
{
	for (int r = 0; r < h->ranks; r++)
		if (receive_place(h, r, err) < 0)
			return -1;
	tell_hosts_apart(h);
	count_neighbours(h);
	find_addresses(h);
	return measure_clocks(h, err);
}

/*
 * Returns the addresses at which agents come.  Where the names of their hosts say by which of its addresses
 * this one is connected to them, these are not more than needed; else they are all.
 */
static json_t *own_addresses(void)
{
	json_t *list = json_array();
	char own[PD_SEAT_HOST] = "", *names, *rest, *name;
	bool known;

	if (self.job.one_host) {
		pd_json_add(list, json_string(PD_LOOPBACK));
		return list;
	}
	if (self.network) {
		json_decref(list);
		return pd_socket_addresses(self.network);
	}
	gethostname(own, sizeof(own) - 1);
	names = pd_pmix_hosts();
	known = names != NULL;
	for (name = known ? strtok_r(names, ",", &rest) : NULL; name && known;
	     name = strtok_r(NULL, ",", &rest))
		known = strcmp(name, own) == 0 || pd_socket_addresses_toward(name, list) == 0;
	free(names);
	if (known && json_array_size(list) > 0)
		return list;
	json_decref(list);
	return pd_socket_addresses(NULL);
}

static void hosts_close(struct pd_launcher *launcher);

static struct pd_launcher *hosts_open(int ranks, struct pd_error *err)
{
	struct pd_meeting *meeting;
	json_t *addresses;
	struct hosts *h;
	int status;

	if (ranks != self.job.size) {
		pd_error_input(err, "the plan has %d ranks, and %d processes were started: expected one "
			       "process for each rank", ranks, self.job.size);
		return NULL;
	}
	pd_socket_allow_many();
	addresses = own_addresses();
	meeting = pd_meeting_open(ranks, addresses, err);
	json_decref(addresses);
	if (!meeting)
		return NULL;
	h = pd_zalloc(sizeof(*h));
	h->base.ops = pd_hosts_launcher();
	h->ranks = ranks;
	h->events = -1;
	h->remote = pd_calloc((size_t)ranks, sizeof(*h->remote));
	for (int r = 0; r < ranks; r++)
		h->remote[r] = (struct remote){ .process = { .channel.fd = -1, .words = -1,
							     .exchange = -1 },
						.agent.fd = -1, .channel.fd = -1,
						.activity = PD_HELD_UP };
	self.hosts = h;
	status = invite(h, meeting, err);
	if (status == 0) {
		take_connections(h, meeting);
		status = gather(h, err);
	}
	pd_meeting_close(meeting);
	if (status == 0)
		return &h->base;
	hosts_close(&h->base);
	return NULL;
}

/*
 * From now on the end of this process may come without a word, by a signal.  The agents' connections
 * stay until then (on_end).
 */
static void hosts_close(struct pd_launcher *launcher)
{
	struct hosts *h = (struct hosts *)launcher;

	for (int r = 0; r < h->ranks; r++) {
		if (h->remote[r].agent.fd >= 0)
			pd_channel_send(&h->remote[r].agent, json_pack("{s:s}", "event", "over"), NULL);
		pd_channel_release(&h->remote[r].channel);
		free(h->remote[r].boot);
		free(h->remote[r].processors);
		json_decref(h->remote[r].devices);
		h->remote[r].devices = NULL;
		h->remote[r].boot = h->remote[r].processors = NULL;
	}
	if (h->events >= 0)
		close(h->events);
	h->events = -1;
}

/* ---- the seam ---- */

static struct remote *remote(const struct pd_launcher *launcher, int rank)
{
	return &((const struct hosts *)launcher)->remote[rank];
}

static const struct pd_seat *hosts_seat(const struct pd_launcher *launcher, int rank)
{
	return &remote(launcher, rank)->seat;
}

/* A host that does not answer is taken not to drift: what becomes of it is found out elsewhere. */
static int digit(char hex)
{
	return hex <= '9' ? hex - '0' : hex - 'a' + 10;
}

/* Returns how many processors the ranks have that run under the kernel of rank r. */
static int processors_of_kernel(const struct hosts *h, int r)
{
	int count = 0;

	for (size_t i = 0; h->remote[r].processors[i]; i++) {
		int any = 0;

		for (int q = r; q < h->ranks; q++)
			if (strcmp(h->remote[q].boot, h->remote[r].boot) == 0)
				any |= digit(h->remote[q].processors[i]);
		count += __builtin_popcount((unsigned int)any);
	}
	return count;
}

static int hosts_processors(const struct pd_launcher *launcher)
{
	const struct hosts *h = (const struct hosts *)launcher;
	int count = 0;

	for (int r = 0; r < h->ranks; r++) {
		int first = 0;

		while (strcmp(h->remote[first].boot, h->remote[r].boot) != 0)
			first++;
		if (first == r)
			count += processors_of_kernel(h, r);
	}
	return count;
}

static struct pd_drift hosts_drift(struct pd_launcher *launcher, int rank)
{
	struct hosts *h = (struct hosts *)launcher;
	int first = first_beside(h, rank);
	struct pd_drift *drift = &h->remote[first].drift;

	if (first == rank && rank > 0 && measure_clock(h, rank, &drift->last, NULL) < 0)
		drift->last = drift->first;
	return *drift;
}

static int start_own(struct hosts *h, struct pd_error *err)
{
	struct remote *r = &h->remote[0];
	int status;

	r->process.exchange = pd_exchange_server_begin(&h->exchange, err);
	if (r->process.exchange < 0)
		return -1;
	status = pd_process_start(&r->process, 0, &r->seat, err);
	close(r->process.exchange);
	return status;
}

static int hosts_start(struct pd_launcher *launcher, int rank, struct pd_error *err)
{
	struct remote *r = remote(launcher, rank);

	if (rank == 0)
		return start_own((struct hosts *)launcher, err);
	r->started = true;
	return pd_channel_send(&r->agent, json_pack("{s:s, s:i, s:o}", "event", "start", "rank", rank,
						    "seat", pd_seat_json(&r->seat)), err);
}

static struct pd_channel *hosts_channel(struct pd_launcher *launcher, int rank)
{
	struct remote *r = remote(launcher, rank);

	return rank == 0 ? &r->process.channel : &r->channel;
}

/* The agent is gone, or its host is: so is the rank, whose channel says nothing of that. */
static void lose(struct remote *r)      /* with errno, or 0 */
{
	bool silent = errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH;

	if (!r->ended && r->started) {
		r->lost = true;
		if (silent)
			snprintf(r->fate, sizeof(r->fate), "has not been heard of for %d s, nor has its host",
				 PD_SOCKET_SILENCE_S);
		else
			snprintf(r->fate, sizeof(r->fate), "is lost with the process that started it");
		shutdown(r->channel.fd, SHUT_RDWR);
	}
	pd_channel_release(&r->agent);
}

/* Takes what an agent says. */
static void attend(struct remote *r)
{
	json_t *message;
	int verdict = 0;

	errno = 0;
	while (r->agent.fd >= 0 && (verdict = pd_channel_receive(&r->agent, &message)) > 0) {
		take_word(r, message);
		json_decref(message);
	}
	if (verdict < 0)
		lose(r);
}

static int hosts_fd(const struct pd_launcher *launcher)
{
	return ((const struct hosts *)launcher)->events;
}

static void hosts_look(struct pd_launcher *launcher)
{
	struct hosts *h = (struct hosts *)launcher;
	struct epoll_event events[64];
	int n = epoll_wait(h->events, events, PD_COUNT(events), 0);

	for (int i = 0; i < n; i++)
		attend(&h->remote[events[i].data.u32]);
}

static enum pd_ended hosts_ended(struct pd_launcher *launcher, int rank)
{
	struct remote *r = remote(launcher, rank);

	if (rank == 0) {
		if (!pd_process_ended(&r->process))
			return PD_STILL_RUNS;
		return r->process.status == 0 ? PD_ENDED_WELL : PD_ENDED_BADLY;
	}
	attend(r);
	if (r->started && !r->ended && !r->lost)
		return PD_STILL_RUNS;
	return r->ended && r->well ? PD_ENDED_WELL : PD_ENDED_BADLY;
}

/*
 * The answer is that to the last call's question.  An agent that does not answer is not given time by its
 * host, which is no fault of its rank; that a host is lost is found out otherwise.
 */
static enum pd_activity hosts_activity(struct pd_launcher *launcher, int rank)
{
	struct remote *r = remote(launcher, rank);
	enum pd_activity activity;

	if (rank == 0)
		return pd_activity_of(r->process.pid, &r->process.ticks);
	if (r->agent.fd >= 0)
		attend(r);
	if (r->looking || r->agent.fd < 0)
		return PD_HELD_UP;
	activity = r->activity;
	r->looking = true;
	pd_channel_send(&r->agent, json_pack("{s:s}", "event", "look"), NULL);
	return activity;
}

static const char *hosts_fate(const struct pd_launcher *launcher, int rank, char buf[PD_FATE_TEXT])
{
	const struct remote *r = remote(launcher, rank);

	if (rank == 0)
		return pd_process_fate(&r->process, buf);
	snprintf(buf, PD_FATE_TEXT, "%s", r->fate);
	return buf;
}

static void hosts_kill(struct pd_launcher *launcher, int rank)
{
	struct remote *r = remote(launcher, rank);
	int64_t until = pd_now_ns() + END_NS;

	if (rank == 0) {
		pd_process_kill(&r->process);
		pd_exchange_server_end(&((struct hosts *)launcher)->exchange);
	} else if (hosts_ended(launcher, rank) == PD_STILL_RUNS) {
		pd_channel_send(&r->agent, json_pack("{s:s}", "event", "kill"), NULL);
	}
	while (rank > 0 && hosts_ended(launcher, rank) == PD_STILL_RUNS && pd_now_ns() < until)
		usleep(500);
	pd_channel_release(&r->channel);
}

static const struct pd_launcher_ops launcher_hosts = {
	.name = "hosts",
	.open = hosts_open,
	.close = hosts_close,
	.seat = hosts_seat,
	.processors = hosts_processors,
	.drift = hosts_drift,
	.start = hosts_start,
	.channel = hosts_channel,
	.ended = hosts_ended,
	.activity = hosts_activity,
	.fd = hosts_fd,
	.look = hosts_look,
	.fate = hosts_fate,
	.kill = hosts_kill,
};

const struct pd_launcher_ops *pd_hosts_launcher(void)
{
	return self.job.size > 1 ? &launcher_hosts : &pd_launcher_fork;
}
