/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of checkpoints as a rank sees it.  It is that of the first process, whose lock it finds
 * there; or its host has one of its own, which the first rank that locks it keeps.
 */
#include "run/rank/internal.h"

#include "base/checksum.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/lock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int64_t step_of(const json_t *message)
{
	return pd_member_int(message, "step");
}

static int find_keeper(struct rank *rank, const json_t *message, struct pd_error *err)
{
	struct rank_folder *folder = &rank->folder;
	const char *run = pd_member_text(message, "run");
	int64_t highest;

	folder->directory = pd_strdup(pd_member_text(message, "directory"));
	folder->keeper = pd_checkpoint_keeper(folder->directory, run);
	if (folder->keeper < 0)
		folder->lock = pd_checkpoint_lock(folder->directory, pd_member_text(message, "what"),
						  run, rank->process->rank, err);
	if (folder->lock)
		folder->keeper = rank->process->rank;
	else if (folder->keeper < 0)    /* another rank may have been quicker */
		folder->keeper = pd_checkpoint_keeper(folder->directory, run);
	if (folder->keeper < 0 ||
	    pd_checkpoint_highest(folder->directory, INT64_MAX, &highest, err) < 0)
		return -1;
	return say(rank, json_pack("{s:s, s:i, s:I}", "event", "folder", "keeper", folder->keeper,
				   "highest", (json_int_t)highest));
}

/* Says whether the same checkpoint is here, and the numbers of its files that are. */
static int look_for_files(struct rank *rank, const json_t *message)
{
	const char *text = pd_member_text(message, "checksum");
	struct pd_checkpoint *ck = pd_checkpoint_open_part(rank->folder.directory, step_of(message),
							   NULL);
	json_t *files = json_array();
	uint64_t checksum = 0, run = 0;
	int64_t strange = -1;
	bool same, other;

	if (pd_checksum_parse(pd_member_text(message, "run"), &run))
		strange = pd_checkpoint_of_another_run(rank->folder.directory, run);
	same = ck && pd_checksum_parse(text, &checksum) &&
	       pd_checkpoint_info(ck)->document_checksum == checksum;
	other = ck && !same;
	for (int i = 0; same && i < pd_checkpoint_info(ck)->file_count; i++)
		if (pd_checkpoint_holds(ck, i))
			pd_json_add(files, json_integer(i));
	pd_checkpoint_close(ck);
	return say(rank, json_pack("{s:s, s:b, s:b, s:I, s:o}", "event", "holds", "document",
				   (int)same, "other", (int)other, "strange", (json_int_t)strange,
				   "files", files));
}

static int send_file(struct rank *rank, const json_t *message, struct pd_error *err)
{
	struct pd_checkpoint_file file = pd_job_file_of(message);
	FILE *to = pd_channel_stream(&rank->process->channel);
	int status;

	if (!to)
		return pd_error_failed(err, "a checkpoint's file cannot be sent: %s", strerror(errno));
	status = pd_checkpoint_send(rank->folder.directory, step_of(message), &file, to, err);
	fclose(to);
	return status < 0 ? -1 : say(rank, json_pack("{s:s}", "event", "sent"));
}

static void take_bytes(void *file, const char *bytes, size_t count)
{
	fwrite(bytes, 1, count, ((struct pd_file *)file)->stream);      /* the commit finds a failure */
}

static int receive(struct rank *rank, const json_t *message, struct pd_error *err)
{
	struct pd_checkpoint_file file = pd_job_file_of(message);

	pd_channel_on_bytes(&rank->process->channel, take_bytes, &rank->folder.coming);
	return pd_checkpoint_receive(rank->folder.directory, step_of(message), &file,
				     &rank->folder.coming, err);
}

static int received(struct rank *rank, const json_t *message, struct pd_error *err)
{
	const char *directory = rank->folder.directory;
	int64_t step = step_of(message);
	struct pd_checkpoint_file file = pd_job_file_of(message);
	struct pd_checkpoint *ck = pd_checkpoint_open_part(directory, step, err);
	int status = -1;

	pd_channel_on_bytes(&rank->process->channel, NULL, NULL);
	if (ck)
		status = pd_checkpoint_received(directory, pd_checkpoint_info(ck), &file,
						&rank->folder.coming, err);
	pd_checkpoint_close(ck);
	if (status == 0)
		status = pd_checkpoint_adopt(directory, step, &file, err);
	return status < 0 ? -1 : say(rank, json_pack("{s:s}", "event", "has"));
}

static int publish(struct rank *rank, const json_t *message, struct pd_error *err)
{
	const char *document = pd_member_text(message, "document");

	if (pd_checkpoint_lock_keep(rank->folder.lock, err) < 0 ||
	    pd_checkpoint_publish(rank->folder.directory, step_of(message), document,
				  strlen(document), err) < 0)
		return -1;
	return say(rank, json_pack("{s:s, s:I}", "event", "published", "step",
				   (json_int_t)step_of(message)));
}

static int handle(struct rank *rank, const json_t *message, struct pd_error *err)
{
	if (pd_message_is(message, "folder"))
		return find_keeper(rank, message, err);
	if (pd_message_is(message, "look"))
		return look_for_files(rank, message);
	if (pd_message_is(message, "send"))
		return send_file(rank, message, err);
	if (pd_message_is(message, "receive"))
		return receive(rank, message, err);
	if (pd_message_is(message, "received"))
		return received(rank, message, err);
	if (pd_message_is(message, "publish"))
		return publish(rank, message, err);
	if (pd_message_is(message, "prune"))
		return pd_checkpoint_prune(rank->folder.directory, step_of(message),
					   (int)pd_member_int(message, "keep"), err);
	return 1;
}

int rank_folder_message(struct rank *rank, const json_t *message, struct pd_error *err)
{
	int status = handle(rank, message, err);

	return status < 0 ? -1 : !status;
}

int rank_folder_begin(struct rank *rank, int64_t step, struct pd_error *err)
{
	return rank->folder.keeper ? pd_checkpoint_join(rank->folder.directory, step, err) : 0;
}

void rank_folder_release(struct rank *rank)
{
	pd_checkpoint_unlock(rank->folder.lock);
	free(rank->folder.directory);
}
