/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits the memory that a JSON document takes while it is read.  The values of a document of a few
 * megabytes can take hundreds: a number of two bytes takes forty, an object of three more than two
 * hundred.  The limit counts what jansson has allocated and not freed.
 */
#pragma once

#include <stdbool.h>

/*
 * This is five times the 50 MB of the largest profile that can be planned, a network of 16,384
 * layers.
 */
#define PD_JSON_LIMIT_BYTES (256 << 20)

/* Makes jansson allocate here.  Without memory pd_mem_exhausted() is called. */
void pd_json_limit_install(void);
/* From now on, documents of this thread share one limit.  Calls are not nested. */
void pd_json_limit_begin(void);
/* Ends the limit.  Returns true if it was exceeded, and so the document was not read. */
bool pd_json_limit_end(void);
