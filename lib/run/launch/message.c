/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/message.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define ENVELOPE "bytes of strings"

/* Makes each byte the character of that number, from U+0000 to U+00FF. */
static void widen(json_t *string)
{
	const char *bytes = json_string_value(string);
	size_t length = json_string_length(string), used = 0;
	char *text = pd_zalloc(2 * length + 1);

	for (size_t i = 0; i < length; i++) {
		unsigned char byte = (unsigned char)bytes[i];

		if (byte & 0x80)
			text[used++] = (char)(0xc0 | byte >> 6);
		text[used++] = (char)(byte & 0x80 ? 0x80 | (byte & 0x3f) : byte);
	}
	json_string_setn_nocheck(string, text, used);
	free(text);
}

/* Undoes that. */
static void narrow(json_t *string)
{
	char *text = pd_strdup(json_string_value(string));
	size_t used = 0;

	for (const char *from = text; *from; from++) {
		unsigned char byte = (unsigned char)*from;

		if (byte & 0x80 && from[1])
			byte = (unsigned char)(byte << 6 | (*++from & 0x3f));
		text[used++] = (char)byte;
	}
	json_string_setn_nocheck(string, text, used);
	free(text);
}

static void each_string(json_t *value, void (*change)(json_t *string))
{
	const char *key;
	json_t *member;
	size_t i;

	if (json_is_string(value))
		change(value);
	json_array_foreach(value, i, member)
		each_string(member, change);
	json_object_foreach(value, key, member)
		each_string(member, change);
}

char *pd_message_text(json_t *message)
{
	char *text = json_dumps(message, JSON_COMPACT);

	if (!text) {
		json_t *copy = json_deep_copy(message); /* parts of the message may be others' */

		each_string(copy, widen);
		copy = json_pack("{s:s, s:o}", "event", ENVELOPE, "message", copy);
		text = json_dumps(copy, JSON_COMPACT);
		json_decref(copy);
	}
	if (!text)
		pd_bug("a message that cannot be written");
	json_decref(message);
	return text;
}

json_t *pd_message_parse(const char *text, size_t length)
{
	json_t *value = json_loadb(text, length, 0, NULL), *message;

	if (!pd_message_is(value, ENVELOPE))
		return value;
	message = json_incref(json_object_get(value, "message"));
	json_decref(value);
	each_string(message, narrow);
	return message;
}

int pd_message_is(const json_t *message, const char *event)
{
	const char *text = pd_member_text(message, "event");

	return text && strcmp(text, event) == 0;
}
