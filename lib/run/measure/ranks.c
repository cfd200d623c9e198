/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/ranks.h"

#include "base/json.h"

#define PATIENCE_S 120                  /* asleep, for what a process does, and for it to begin */

void pd_ranks_end(struct pd_launcher *launcher, int ranks)
{
	for (int r = 0; r < ranks; r++)
		launcher->ops->kill(launcher, r);
	launcher->ops->close(launcher);
}

struct pd_launcher *pd_ranks_begin(const struct pd_launcher_ops *ops, int ranks, json_t *request, struct pd_error *err)
{
	struct pd_launcher *launcher = ops->open(ranks, err);
	int status = 0;

	for (int r = 0; r < ranks && launcher && status == 0; r++) {
		json_t *message = json_copy(request);

		pd_json_set(message, "seat", pd_seat_json(ops->seat(launcher, r)));
		status = ops->start(launcher, r, err);
		if (status == 0)
			status = pd_channel_send(ops->channel(launcher, r), json_incref(message), err);
		json_decref(message);
	}
	json_decref(request);
	if (status == 0)
		return launcher;
	pd_ranks_end(launcher, ranks);
	return NULL;
}

struct heard { struct pd_launcher *launcher; int rank, asleep_s; };

/* It listens as long as the rank does anything. */
static int take(void *context, int verdict, const json_t *message, struct pd_error *err)
{
	struct heard *heard = context;
	struct pd_launcher *launcher = heard->launcher;
	const char *host = launcher->ops->seat(launcher, heard->rank)->host;
	const char *text = pd_member_text(message, "text");
	char fate[PD_FATE_TEXT];

	launcher->ops->look(launcher);
	if (verdict < 0)
		return pd_error_failed(err, "rank %d on host %s %s", heard->rank, host,
				       pd_launcher_gone(launcher, heard->rank, fate));
	heard->asleep_s = verdict > 0 ? 0 : heard->asleep_s +
			  (launcher->ops->activity(launcher, heard->rank) == PD_ASLEEP);
	if (heard->asleep_s >= PATIENCE_S)
		return pd_error_failed(err, "rank %d on host %s has not answered for %d s", heard->rank, host, PATIENCE_S);
	if (!pd_message_is(message, "error"))
		return 0;
	return pd_member_int(message, "status") == PD_EXIT_USAGE
		? pd_error_input(err, "%s", text)
		: pd_error_failed(err, "rank %d on host %s: %s", heard->rank, host, text);
}

json_t *pd_ranks_hear(struct pd_launcher *launcher, int rank, const char *event, struct pd_error *err)
{
	return pd_channel_hear(launcher->ops->channel(launcher, rank), event, 1000, take,
			       &(struct heard){ launcher, rank, 0 }, err);
}
