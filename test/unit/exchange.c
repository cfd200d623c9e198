/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a rank's exchange of addresses without a server, with one, with one that fails or is gone. */
#include "run/launch/exchange.h"

#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const bool peers[] = { true, false, true };

static void without_server(void)
{
	json_t *ready = json_object(), *connect = json_pack("{s:{s:s}}", "addresses", "2", "ab");
	struct pd_exchange exchange;
	struct pd_error err;

	pd_exchange_init(&exchange, -1);
	is_int(pd_exchange_put(&exchange, "cd", ready, &err), 0, "no exchange: an address is put");
	is_str(json_string_value(json_object_get(ready, "address")), "cd", "into the message");
	is_int(pd_exchange_get(&exchange, peers, 3, connect, &err), 0, "others are got");
	is_str(json_string_value(json_object_get(json_object_get(connect, "addresses"), "2")), "ab",
	       "from the message");
	json_decref(ready);
	json_decref(connect);
}

static void begin(struct pd_exchange *exchange, struct pd_channel *server)
{
	int pair[2];

	ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "a socket");
	pd_exchange_init(exchange, pair[0]);
	pd_channel_init(server, pair[1], 0);
}

/* Checks that the next request, as text, is the expected one. */
static void asked(struct pd_channel *server, const char *expected, const char *what)
{
	json_t *request = NULL;
	char *text;

	ok(pd_channel_receive(server, &request) == 1, "a request");
	text = json_dumps(request, JSON_COMPACT | JSON_SORT_KEYS);
	is_str(text, expected, what);
	free(text);
	json_decref(request);
}

static void with_server(void)
{
	json_t *ready = json_object(), *connect = json_object(), *got;
	struct pd_exchange exchange;
	struct pd_channel server;
	struct pd_error err;

	begin(&exchange, &server);
	pd_channel_send(&server, json_pack("{s:s}", "event", "put"), &err);
	is_int(pd_exchange_put(&exchange, "cd", ready, &err), 0, "an exchange: an address is put");
	asked(&server, "{\"address\":\"cd\",\"event\":\"put\"}", "there");
	is_int((long)json_object_size(ready), 0, "and not into the message");
	pd_channel_send(&server, json_pack("{s:s, s:{s:s, s:s}}", "event", "addresses", "addresses",
					   "0", "cd", "2", "ab"), &err);
	is_int(pd_exchange_get(&exchange, peers, 3, connect, &err), 0, "others are got");
	asked(&server, "{\"event\":\"get\",\"ranks\":[0,2]}", "from there, of peers alone");
	got = json_object_get(connect, "addresses");
	is_str(json_string_value(json_object_get(got, "2")), "ab", "and stand in the message");
	ok(pd_channel_receive(&server, &got) < 0, "the exchange is over then");
	pd_channel_release(&server);
	json_decref(ready);
	json_decref(connect);
}

static void without_an_address(void)
{
	json_t *ready = json_object(), *connect = json_object();
	struct pd_error err = { .cause = PD_CAUSE_OWN };
	struct pd_exchange exchange;
	struct pd_channel server;

	begin(&exchange, &server);
	pd_channel_send(&server, json_pack("{s:s, s:s, s:i}", "event", "error", "text", "it is not there",
					   "peer", 2), &err);
	ok(pd_exchange_get(&exchange, peers, 3, connect, &err) < 0, "an address that does not come");
	ok(err.cause == PD_CAUSE_PEER && err.peer == 2, "is that rank's failure");
	is_str(err.text, "it is not there", "as the server says");
	pd_channel_send(&server, json_pack("{s:s, s:s, s:i}", "event", "error", "text", "it takes none",
					   "peer", -1), &err);
	ok(pd_exchange_put(&exchange, "cd", ready, &err) < 0, "one that the server does not take");
	ok(err.cause == PD_CAUSE_OWN, "is this rank's");
	pd_channel_release(&server);
	ok(pd_exchange_get(&exchange, peers, 3, connect, &err) < 0, "a server that is gone");
	pd_exchange_release(&exchange);
	json_decref(ready);
	json_decref(connect);
}

int main(void)
{
	without_server();
	with_server();
	without_an_address();
	return done_testing();
}
