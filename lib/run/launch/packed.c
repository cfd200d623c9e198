/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/packed.h"

#include "base/error.h"
#include "base/mem.h"
#include "run/launch/message.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct pd_packed pd_pack(json_t *message)
{
	char *text = pd_message_text(message);
	struct pd_packed packed = { .bytes = strlen(text) };
	uLongf count = compressBound(packed.bytes);

	packed.text = pd_zalloc(count);
	if (compress((Bytef *)packed.text, &count, (Bytef *)text, packed.bytes) != Z_OK)
		pd_bug("channel: a message that cannot be compressed");
	packed.count = count;
	free(text);
	return packed;
}

void pd_packed_release(struct pd_packed *packed)
{
	free(packed->text);
	*packed = (struct pd_packed){ 0 };
}

json_t *pd_unpack(const struct pd_packed *packed)
{
	char *text = pd_zalloc(packed->bytes);
	uLongf bytes = packed->bytes;
	json_t *message = NULL;

	if (uncompress((Bytef *)text, &bytes, (const Bytef *)packed->text, packed->count) == Z_OK)
		message = pd_message_parse(text, bytes);
	free(text);
	return message;
}
