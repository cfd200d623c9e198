/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message as text.  Its strings may have any bytes (pd_json_bytes): a path is whatever the system takes.
 * JSON has only UTF-8, so a message with other bytes travels in an envelope, {"event": "bytes of strings",
 * "message": ...}, in which each byte of a string is a character.
 */
#pragma once

#include "base/json.h"

#include <stddef.h>

/* Returns the text of a message, whose reference it takes; free() it. */
char *pd_message_text(json_t *message);
/* Returns the message, or NULL if the text is none. */
json_t *pd_message_parse(const char *text, size_t length);

/* Returns whether the member "event" of a message is this word. */
int pd_message_is(const json_t *message, const char *event);
