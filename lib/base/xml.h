/* SPDX-License-Identifier: Apache-2.0 */
/* Writes text into an XML document. */
#pragma once

#include <stdio.h>

/* Escapes the characters that have a meaning in XML. */
static inline void pd_put_xml(const char *text, FILE *out)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		default:
			putc(*text, out);
		}
}
