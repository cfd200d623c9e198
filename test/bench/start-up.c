/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start-up [RANKS]...: counts the messages that the start of a run on several hosts exchanges, without
 * the hosts.  The real invitation, places, seats and jobs of a plan of 64 stages (with fewer ranks, of a
 * stage each) are made and counted, a rank's part of them for every 64th rank.  A line for each number
 * of ranks gives the bytes of the invitation that the launcher's PMIx server brings each host, the
 * messages and megabytes that the first process sends and receives, the kilobytes to one rank, the peers
 * of one rank, the kilobytes of their addresses that it asks the PMIx servers for, and the seconds of
 * processor time that it takes to make all that is sent.
 */
#include "base/json.h"
#include "base/mem.h"
#include "run/job/job.h"
#include "run/launch/meeting.h"
#include "run/launch/place.h"
#include "run/socket/socket.h"
#include "run/supervisor/internal.h"
#include "run/transport/address.h"
#include "run/transport/routes.h"
#include "schedule/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STAGES 64
#define HOST_RANKS 8

/* Returns the bytes of a message as it would be sent, and frees it. */
static double bytes_of(json_t *message)
{
	double bytes = (double)json_dumpb(message, NULL, 0, JSON_COMPACT) + 1;

	json_decref(message);
	return bytes;
}

/* Returns the bytes of a message that is sent compressed, and frees it. */
static double packed_bytes(json_t *message)
{
	struct pd_packed packed = pd_pack(message);
	double bytes = (double)packed.count;

	pd_packed_release(&packed);
	return bytes;
}

static struct pd_profile *make_profile(void)
{
	json_t *list = json_array(), *document;
	struct pd_profile *profile;
	struct pd_place root;
	struct pd_error err;

	for (int l = 0; l < STAGES; l++) {
		char name[16], before[16];

		snprintf(name, sizeof(name), "layer%d", l);
		snprintf(before, sizeof(before), "layer%d", l - 1);
		json_array_append_new(list, json_pack("{ss so si si si si}", "name", name, "inputs",
				l ? json_pack("[s]", before) : json_array(),
				"forward_ns", 1000000, "backward_ns", 2000000,
				"activation_bytes", 100000, "parameter_bytes", 400000));
	}
	document = json_pack("{ss si ss si s{ss} so}", "format", "pd-profile", "version", 1, "name",
			     "made", "batch_size", 8, "device", "kind", "cpu", "layers", list);
	root = pd_place_root("made", document);
	profile = pd_profile_parse_at(&root, &err);
	json_decref(document);
	if (!profile)
		pd_bug("%s", err.text);
	return profile;
}

static struct pd_plan *make_plan(int ranks)
{
	int stages = ranks < STAGES ? ranks : STAGES, layers[STAGES], replicas[STAGES];
	struct pd_topology topology;
	struct pd_plan *plan = NULL;
	struct pd_error err;

	for (int s = 0; s < stages; s++) {
		layers[s] = STAGES / stages + (s < STAGES % stages);
		replicas[s] = ranks / stages;
	}
	if (pd_topology_parse_string("8@100GB/s+2us,65536@12GB/s+5us", &topology, &err) == 0)
		plan = pd_plan_new(make_profile(), &topology, stages, layers, replicas, &err);
	if (!plan)
		pd_bug("%s", err.text);
	return plan;
}

/* Returns the address of a real transport of this machine as text; it has a word for each peer. */
static char *make_address(int ranks, const bool *peers)
{
	struct pd_gate gate;
	struct pd_error err;
	struct pd_routes_config config = { .ranks = ranks, .peers = peers, .gate = &gate,
					   .seat = { .host = "h", .locals = 1, .hosts = 2 } };
	struct pd_transport *transport;
	char *text;

	if (pd_gate_init(&gate, &err) < 0 || !(transport = pd_routes_open(&config, &err)))
		pd_bug("%s", err.text);
	text = pd_address_text(transport);
	transport->ops->close(transport);
	pd_gate_release(&gate);
	return text;
}

static void measure(int ranks)
{
	struct pd_job job = { .plan = make_plan(ranks), .device = "cpu", .data = "/data/set",
			      .resume_step = -1 };
	struct pd_error err;
	json_t *addresses = pd_socket_addresses(NULL);
	struct pd_meeting *meeting = pd_meeting_open(ranks, addresses, &err);
	struct supervisor s = { .job = &job, .count = ranks };
	char *address;
	double invitation, sent, received = 0, seconds;
	clock_t begun = clock();
	int sampled = 0, step = ranks < 64 ? 1 : 64, peer_count = 0;
	bool *peers = pd_calloc((size_t)ranks, sizeof(*peers));

	s.schedule = pd_schedule_new(job.plan, &err);
	if (!meeting || !s.schedule)
		pd_bug("%s", err.text);
	s.ranks = pd_calloc((size_t)ranks, sizeof(*s.ranks));
	pd_schedule_peers(s.schedule, ranks / 2, peers);
	address = make_address(ranks, peers);
	invitation = bytes_of(pd_meeting_invitation(meeting));
	begun = clock();
	sent = ranks * packed_bytes(pd_job_json(&job));
	seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
	for (int r = 0; r < ranks; r += step, sampled++) {
		struct pd_seat seat = { .local = r % HOST_RANKS, .locals = HOST_RANKS,
					.hosts = (ranks + HOST_RANKS - 1) / HOST_RANKS,
					.sharers = HOST_RANKS, .sharer = r % HOST_RANKS };

		snprintf(seat.host, sizeof(seat.host), "node%05d", r / HOST_RANKS);
		begun = clock();
		sent += step * (bytes_of(supervisor_connect_message(&s, r)) +
				bytes_of(pd_seat_json(&seat)) +
				bytes_of(pd_job_place_json(&job, r, &seat)));
		seconds += step * (double)(clock() - begun) / CLOCKS_PER_SEC;
		received += step * bytes_of(pd_hosts_place());
		pd_schedule_peers(s.schedule, r, peers);
		for (int q = 0; q < ranks; q++)
			peer_count += peers[q];
	}
	/*
	 * Each rank gets a start, a job, a place and a connect message, and sends a place and a ready
	 * message.  Pings and pongs, which hosts exchange, are not counted.
	 */
	printf("%6d %12.0f %10d %10.1f %10.1f %10.1f %8.1f %10.1f %8.2f\n", ranks, invitation,
	       6 * ranks, sent / 1e6, received / 1e6, sent / ranks / 1e3,
	       (double)peer_count / sampled,
	       (double)peer_count / sampled * (double)strlen(address) / 1e3, seconds);
	free(s.ranks);
	free(peers);
	free(address);
	pd_schedule_free(s.schedule);
	pd_plan_free(job.plan);
	pd_meeting_close(meeting);
	json_decref(addresses);
}

int main(int argc, char **argv)
{
	static char *all[] = { "8", "64", "512", "4096", "16384", NULL };

	printf("%6s %12s %10s %10s %10s %10s %8s %10s %8s\n", "ranks", "invitation", "messages",
	       "sent MB", "got MB", "KB to one", "peers", "KB asked", "seconds");
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (char **ranks = argc > 1 ? argv + 1 : all; *ranks; ranks++)
		measure(atoi(*ranks));
	return 0;
}
