/* SPDX-License-Identifier: Apache-2.0 */
/* Comma-separated values (RFC 4180) of values of JSON. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#define PD_CSV_END "\r\n"

/* Writes a number or a word, several with spaces between them as one field, or nothing for null. */
void pd_csv_put(const json_t *value, FILE *out);
