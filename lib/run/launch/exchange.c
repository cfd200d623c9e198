/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/exchange.h"

void pd_exchange_init(struct pd_exchange *exchange, int fd)
{
	if (fd >= 0)
		pd_channel_init(&exchange->server, fd, 0);
	else
		*exchange = (struct pd_exchange){ .server.fd = -1 };
}

void pd_exchange_release(struct pd_exchange *exchange)
{
	pd_channel_release(&exchange->server);
}

/* Sends a request; the answer is a new reference, or NULL. */
static json_t *ask(struct pd_exchange *exchange, json_t *request, struct pd_error *err)
{
	json_t *answer = NULL;
	const char *text;
	int peer;

	if (pd_channel_send(&exchange->server, request, err) < 0)
		return NULL;
	if (pd_channel_wait(&exchange->server, -1, &answer) < 0) {
		pd_error_failed(err, "the process that started this one is gone");
		return NULL;
	}
	if (!pd_message_is(answer, "error"))
		return answer;
	text = pd_member_text(answer, "text");
	peer = (int)pd_member_int(answer, "peer");
	if (peer >= 0)
		pd_error_peer(err, peer, "%s", text);
	else
		pd_error_failed(err, "%s", text);
	json_decref(answer);
	return NULL;
}

int pd_exchange_put(struct pd_exchange *exchange, const char *address, json_t *ready,
		    struct pd_error *err)
{
	json_t *answer;

	if (exchange->server.fd < 0) {
		pd_json_set(ready, "address", json_string(address));
		return 0;
	}
	answer = ask(exchange, json_pack("{s:s, s:s}", "event", "put", "address", address), err);
	json_decref(answer);
	return answer ? 0 : -1;
}

int pd_exchange_get(struct pd_exchange *exchange, const bool *peers, int ranks, json_t *connect,
		    struct pd_error *err)
{
	json_t *list, *answer;

	if (exchange->server.fd < 0)
		return 0;
	list = json_array();
	for (int r = 0; r < ranks; r++)
		if (peers[r])
			pd_json_add(list, json_integer(r));
	answer = ask(exchange, json_pack("{s:s, s:o}", "event", "get", "ranks", list), err);
	if (!answer)
		return -1;
	json_object_set(connect, "addresses", json_object_get(answer, "addresses"));
	json_decref(answer);
	pd_exchange_release(exchange);
	return 0;
}
