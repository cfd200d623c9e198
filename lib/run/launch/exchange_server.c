/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/exchange_server.h"

#include "base/mem.h"
#include "run/launch/channel.h"
#include "run/launch/pmix/pmix.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Answers a request for the addresses of ranks; NULL with an error. */
static json_t *get(const json_t *list, struct pd_error *err)
{
	size_t count = json_array_size(list);
	int *ranks = pd_calloc(count, sizeof(*ranks));
	char **texts = pd_calloc(count, sizeof(char *));
	json_t *addresses = json_object(), *rank;
	size_t i;
	int status;

	json_array_foreach(list, i, rank)
		ranks[i] = (int)json_integer_value(rank);
	status = pd_pmix_get_addresses(ranks, (int)count, texts, err);
	for (i = 0; i < count; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%d", ranks[i]);
		if (texts[i])
			pd_json_set(addresses, key, json_string(texts[i]));
		free(texts[i]);
	}
	free(texts);
	free(ranks);
	if (status == 0)
		return json_pack("{s:s, s:o}", "event", "addresses", "addresses", addresses);
	json_decref(addresses);
	return NULL;
}

static json_t *answer_to(const json_t *request, struct pd_error *err)
{
	if (pd_message_is(request, "get"))
		return get(json_object_get(request, "ranks"), err);
	if (pd_pmix_put_address(pd_member_text(request, "address"), err) < 0)
		return NULL;
	return json_pack("{s:s}", "event", "put");
}

/* Serves until the rank has no more requests: its end is closed. */
static void *serve(void *context)
{
	struct pd_exchange_server *server = context;
	struct pd_channel rank;
	json_t *request;

	pd_channel_init(&rank, server->fd, 0);
	while (pd_channel_wait(&rank, -1, &request) > 0) {
		struct pd_error err = { .peer = -1 };
		json_t *answer = answer_to(request, &err);

		if (!answer)
			answer = json_pack("{s:s, s:o, s:i}", "event", "error", "text",
					   pd_json_bytes(err.text), "peer",
					   err.cause == PD_CAUSE_PEER ? err.peer : -1);
		pd_channel_send(&rank, answer, NULL);
		json_decref(request);
	}
	pd_channel_release(&rank);
	pd_pmix_end();
	return NULL;
}

int pd_exchange_server_begin(struct pd_exchange_server *server, struct pd_error *err)
{
	sigset_t all, before;
	int ends[2], error;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return pd_error_failed(err, "socketpair: %s", strerror(errno));
	server->fd = ends[0];
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	error = pthread_create(&server->thread, NULL, serve, server);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	server->runs = error == 0;
	if (server->runs)
		return ends[1];
	close(ends[0]);
	close(ends[1]);
	return pd_error_failed(err, "no thread: %s", strerror(error));
}

void pd_exchange_server_end(struct pd_exchange_server *server)
{
	if (server->runs) {
		pd_pmix_give_up();
		pthread_join(server->thread, NULL);
	}
	server->runs = false;
	pd_pmix_end();
}
