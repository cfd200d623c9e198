/* SPDX-License-Identifier: Apache-2.0 */
#include "measure/hearing.h"

#include "base/json.h"

#include <time.h>

#define PATIENCE_S 120                  /* asleep, for what a process does, and for it to begin */

static int failed(const struct pd_hearing *h, int r, int verdict, struct pd_error *err)
{
	const struct pd_launcher_ops *ops = h->launcher->ops;
	const char *host = h->seats[r].host;
	char fate[PD_FATE_TEXT];

	for (int i = 0; i < 2000 && verdict < 0 && ops->ended(h->launcher, r) == PD_STILL_RUNS; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	if (verdict < 0 && ops->ended(h->launcher, r) != PD_STILL_RUNS)
		return pd_error_failed(err, "rank %d on host %s %s", r, host, ops->fate(h->launcher, r, fate));
	return pd_error_failed(err, "rank %d on host %s has not answered for %d s", r, host, PATIENCE_S);
}

static void rank_failed(const struct pd_hearing *h, int r, const json_t *message, struct pd_error *err)
{
	const char *text = pd_member_text(message, "text");

	if (pd_member_int(message, "status") == PD_EXIT_USAGE)
		pd_error_input(err, "%s", text);
	else
		pd_error_failed(err, "rank %d on host %s: %s", r, h->seats[r].host, text);
}

/* Waits for the next message of a rank, as long as it does anything. */
static int wait_for(const struct pd_hearing *h, int r, json_t **message_p)
{
	const struct pd_launcher_ops *ops = h->launcher->ops;
	int verdict;

	for (int asleep_s = 0; (verdict = pd_channel_wait(ops->channel(h->launcher, r), 1000, message_p)) == 0 &&
	     asleep_s < PATIENCE_S;) {
		ops->look(h->launcher);
		asleep_s += ops->activity(h->launcher, r) == PD_ASLEEP;
	}
	return verdict;
}

json_t *pd_hear(const struct pd_hearing *h, int r, const char *event, struct pd_error *err)
{
	json_t *message = NULL;
	int verdict;

	while ((verdict = wait_for(h, r, &message)) > 0 &&
	       !pd_message_is(message, event)) {
		bool bad = pd_message_is(message, "error");

		if (bad)
			rank_failed(h, r, message, err);
		json_decref(message);
		if (bad)
			return NULL;
	}
	if (verdict > 0)
		return message;
	failed(h, r, verdict, err);
	return NULL;
}
