/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/task.h"

#include "base/mem.h"
#include "run/launch/heartbeat.h"

#include <unistd.h>

static struct pd_rank_process self;

/* Tells the launcher's process, which reports it with this rank's name. */
static void out_of_memory(size_t bytes)
{
	char text[PD_MEM_TEXT];

	pd_channel_last_word(&self.channel, pd_mem_sentence(bytes, text), PD_EXIT_FAILED);
	_exit(PD_EXIT_FAILED);
}

/* Waits for the first message, and does the task that begins with it. */
static int do_task(const struct pd_rank_task *const *tasks, struct pd_error *err)
{
	struct pd_heartbeat heartbeat;
	json_t *message;
	int verdict, status;

	pd_heartbeat_begin(&heartbeat, &self.channel);
	verdict = pd_channel_wait(&self.channel, -1, &message);
	pd_heartbeat_end(&heartbeat);
	if (verdict < 0)
		return pd_error_failed(err, "the launcher is gone");
	while (*tasks && !pd_message_is(message, (*tasks)->event))
		tasks++;
	status = *tasks ? (*tasks)->run(&self, message, err)
			: pd_error_failed(err, "the launcher sent a message that begins no task");
	json_decref(message);
	return status;
}

enum pd_exit pd_rank_main(int rank, int fd, int exchange_fd, const struct pd_rank_task *const *tasks)
{
	struct pd_error err = { .status = PD_EXIT_FAILED };

	/* no time limit: a stopped supervisor may go on, and if it ends, so does this process */
	self.rank = rank;
	pd_channel_init(&self.channel, fd, 0);
	pd_exchange_init(&self.exchange, exchange_fd);
	pd_mem_on_end(out_of_memory);
	if (do_task(tasks, &err) < 0) {
		pd_channel_send(&self.channel, json_pack("{s:s, s:o, s:i, s:i, s:i}", "event", "error", "text",
							 pd_json_bytes(err.text), "status", (int)err.status, "cause",
							 (int)err.cause, "peer", err.peer), NULL);
		/* nothing is freed, since streams may wait for events that never come */
		_exit(err.status);
	}
	pd_exchange_release(&self.exchange);
	pd_channel_release(&self.channel);
	return PD_EXIT_YES;
}
