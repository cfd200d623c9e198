/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests what a rank makes of bytes that come over a connection with the right word (lib/run/transport/tcp): frames and
 * grants that fit nothing it expects, and bytes at random.  The other rank is played by hand.
 */
#include "run/transport/tcp/tcp.h"

#include "base/mem.h"
#include "base/rng.h"
#include "run/transport/provider.h"
#include "tap.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES 100
#define GUARD 64                        /* bytes around a buffer that nobody may write */
#define TAG 5

/* Rank 0, and what rank 1 has. */
static struct {
	struct pd_gate gate;
	struct pd_transport *t;
	int listener, port;
	int to, from;                   /* connections: of frames to rank 0, of its own frames */
	char room[GUARD + BYTES + GUARD];
	struct pd_event received, sent;
} pair;

static int step(void)
{
	return pair.t->ops->progress(pair.t);
}

/* Reads so many bytes while rank 0 goes on. */
static bool hear(int fd, void *bytes, size_t count)
{
	size_t got = 0;

	for (int i = 0; i < 20000 && got < count; i++) {
		ssize_t n = recv(fd, (char *)bytes + got, count - got, MSG_DONTWAIT);

		got += n > 0 ? (size_t)n : 0;
		if (step() == 0 && n < 0)
			poll(NULL, 0, 1);
	}
	return got == count;
}

static void say(int fd, const void *bytes, size_t count)
{
	if (send(fd, bytes, count, MSG_NOSIGNAL) != (ssize_t)count)
		diag("not sent");
}

static int accept_from(int listener)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };

	for (int i = 0; i < 20000 && poll(&p, 1, 1) == 0; i++)
		step();
	return accept(listener, NULL, NULL);
}

/* Connects as rank 1 does, with the right words. */
static bool join(const struct tcp_address *theirs, const struct pd_words *own)
{
	const struct tcp_guest *guest = &theirs->guest[1];
	uint8_t word[PD_WORD_BYTES];
	bool good;

	pair.to = pd_socket_connect(theirs->at, theirs->port);
	pd_socket_at_once(pair.to);
	say(pair.to, guest->words.ask, PD_WORD_BYTES);
	good = guest->rank == 1 && hear(pair.to, word, PD_WORD_BYTES) &&
	       pd_words_same(word, guest->words.answer);
	pair.from = accept_from(pair.listener);
	good = good && hear(pair.from, word, PD_WORD_BYTES) && pd_words_same(word, own->ask);
	say(pair.from, own->answer, PD_WORD_BYTES);
	return good;
}

static bool begin(void)
{
	struct pd_transport_config config = { .rank = 0, .ranks = 2, .gate = &pair.gate, .asked = true };
	struct tcp_address *own = pd_zalloc(sizeof(*own) + sizeof(struct tcp_guest));
	const void *addresses[2] = { NULL, own };
	size_t lengths[2] = { 0, sizeof(*own) + sizeof(struct tcp_guest) };
	struct pd_error err = { 0 };
	const void *theirs;
	bool good;

	memset(pair.room, 'r', sizeof(pair.room));
	pd_gate_init(&pair.gate, &err);
	pair.t = pd_provider_tcp.open(&config, &err);
	pair.listener = pd_socket_listen(PD_LOOPBACK, &pair.port, &err);
	strcpy(own->at, PD_LOOPBACK);
	own->port = pair.port;
	own->guests = 1;
	memset(&own->guest[0].words, 'w', sizeof(own->guest[0].words));
	own->guest[0].rank = 0;
	pd_provider_tcp.connector->address(pair.t, &theirs, &lengths[0]);
	good = pd_provider_tcp.connector->connect(pair.t, addresses, lengths, &err) == 0 &&
	       join(theirs, &own->guest[0].words);
	free(own);
	return good;
}

/* Rank 0 expects a message, and would send one. */
static void post(void)
{
	pd_event_arm(&pair.received);
	pd_event_arm(&pair.sent);
	pair.t->ops->recv(pair.t, 1, TAG, pair.room + GUARD, BYTES, NULL, &pair.received);
	pair.t->ops->send(pair.t, 1, TAG, pair.room, BYTES, NULL, &pair.sent);
}

/* Lets rank 0 take all that has come. */
static void settle(void)
{
	for (int i = 0, idle = 0; i < 20000 && idle < 5 && !atomic_load(&pair.gate.failed); i++) {
		idle = step() == 0 ? idle + 1 : 0;
		if (idle)
			poll(NULL, 0, 1);
	}
}

static bool untouched(size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		if (pair.room[i] != 'r')
			return false;
	return true;
}

static bool guarded(void)
{
	return untouched(0, GUARD) && untouched(GUARD + BYTES, sizeof(pair.room));
}

static void end(void)
{
	pair.t->ops->close(pair.t);
	pd_gate_release(&pair.gate);
	close(pair.listener);
	close(pair.to);
	close(pair.from);
}

/* ---- what does not fit ---- */

static const struct {
	struct frame frame;
	const char *sentence;
} frames[] = {
	{ { TAG + 1, BYTES, BYTES }, "100 bytes that nobody expects (tag 0x6)" },
	{ { TAG, BYTES + 1, BYTES }, "a message of 101 bytes, where 100 are expected" },
	{ { TAG, BYTES - 1, BYTES - 1 }, "a message of 99 bytes, where 100 are expected" },
	{ { TAG, BYTES, BYTES + 1 }, "101 bytes that nobody expects" },
	{ { TAG, BYTES, 0 }, "0 bytes that nobody expects" },
	{ { TAG, BYTES, UINT64_MAX }, "18446744073709551615 bytes that nobody expects" },
	{ { UINT64_MAX, UINT64_MAX, UINT64_MAX }, "18446744073709551615 bytes that nobody expects" },
};

static void wrong_frames(void)
{
	char payload[2 * BYTES];

	memset(payload, 'p', sizeof(payload));
	for (size_t i = 0; i < PD_COUNT(frames); i++) {
		if (!begin())
			diag("not connected");
		post();
		say(pair.to, &frames[i].frame, sizeof(frames[i].frame));
		say(pair.to, payload, sizeof(payload));
		settle();
		ok(strstr(pair.gate.err.text, frames[i].sentence) && pair.gate.err.cause == PD_CAUSE_PEER &&
		   pair.gate.err.peer == 1, "frame %zu: \"%s\"", i, pair.gate.err.text);
		ok(untouched(0, sizeof(pair.room)) && pd_event_failed(&pair.received), "and nothing is written");
		end();
	}
}

static void right_frames(void)
{
	struct frame parts[] = { { TAG, BYTES, 60 }, { TAG, BYTES, 40 } };
	struct grant grant, own = { TAG, BYTES };
	char payload[BYTES];
	struct frame head;

	memset(payload, 'p', sizeof(payload));
	ok(begin(), "two who know their words are connected");
	post();
	ok(hear(pair.to, &grant, sizeof(grant)) && grant.tag == TAG && grant.bytes == BYTES,
	   "a receive that is posted is granted");
	for (int i = 0; i < 2; i++) {
		settle();
		ok(!pd_event_done(&pair.received), "part %d has not come", i + 1);
		say(pair.to, &parts[i], sizeof(parts[i]));
		say(pair.to, payload, parts[i].bytes);
	}
	settle();
	ok(pd_event_done(&pair.received) && !pd_event_failed(&pair.received) && guarded() &&
	   memcmp(pair.room + GUARD, payload, BYTES) == 0, "both parts have, and nothing else is written");
	ok(!pd_event_done(&pair.sent), "nothing is sent without a grant");
	say(pair.from, &own, sizeof(own));
	ok(hear(pair.from, &head, sizeof(head)) && head.tag == TAG && head.total == BYTES &&
	   head.bytes == BYTES && hear(pair.from, payload, BYTES) && payload[0] == 'r', "with one it is");
	say(pair.to, &parts[1], sizeof(parts[1]));
	settle();
	ok(strstr(pair.gate.err.text, "40 bytes that nobody expects"), "a part once more: \"%s\"",
	   pair.gate.err.text);
	end();
}

static void wrong_grants(void)
{
	static const struct grant wrong[][2] = {
		{ { TAG + 1, BYTES }, { TAG + 1, BYTES } },
		{ { TAG + 1, BYTES }, { UINT64_C(1) << 48, BYTES } },
	};

	for (int i = 0; i < 2; i++) {
		if (!begin())
			diag("not connected");
		post();
		say(pair.from, wrong[i], sizeof(wrong[i]));
		settle();
		ok(strstr(pair.gate.err.text, "a grant that is out of place"), "grants %d: \"%s\"", i,
		   pair.gate.err.text);
		end();
	}
}

/* ---- bytes at random ---- */

static uint64_t pick(uint64_t random)
{
	static const uint64_t values[] = { 0, 1, TAG, TAG + 1, BYTES / 2, BYTES - 1, BYTES, BYTES + 1,
					   FRAME_BYTES, FRAME_BYTES + 1, UINT64_MAX, UINT64_C(1) << 48 };

	return random % 16 < PD_COUNT(values) ? values[random % 16] : random;
}

static uint64_t mix(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 20;
}

static void fuzz(int times)
{
	int bad = 0, unconnected = 0;

	for (int i = 0; i < times; i++) {
		uint64_t state = (uint64_t)i, words[12];

		unconnected += !begin();
		post();
		for (int k = 0; k < 12; k++)
			words[k] = pick(mix(&state));
		say(mix(&state) % 2 ? pair.to : pair.from, words, mix(&state) % sizeof(words));
		settle();
		for (int k = 0; k < 12; k++)
			words[k] = pick(mix(&state));
		send(mix(&state) % 2 ? pair.to : pair.from, words, mix(&state) % sizeof(words), MSG_NOSIGNAL);
		settle();
		bad += !guarded();
		end();
		bad += !pd_event_done(&pair.received) || !pd_event_done(&pair.sent);
	}
	is_int(unconnected, 0, "%d times connected", times);
	is_int(bad, 0, "whatever comes, nothing is written but what is expected, and all events end");
}

int main(void)
{
	right_frames();
	wrong_frames();
	wrong_grants();
	fuzz(test_quick() ? 50 : 300);
	return done_testing();
}
