/* SPDX-License-Identifier: Apache-2.0 */
/* Text inside an XML document. */
#ifndef PD_BASE_XML_H
#define PD_BASE_XML_H

#include <stdio.h>

/* What has a meaning there is written so that it has none. */
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

#endif
