/* SPDX-License-Identifier: Apache-2.0 */
/* What options need of each other: columns of the table, checked once all are read, and shown by
 * --help. */
#pragma once

#include "base/opt.h"

/* given[i]: option i of the table was on the command line.  Returns -1 with *err at the first that
 * may not be. */
int pd_opt_check_needs(const struct pd_command *command, const bool *given, struct pd_error *err);

/* Gives an option a value; NULL: it was named without one. */
int pd_opt_store(const struct pd_opt *o, const char *text, struct pd_error *err);

/* Returns what --help says of it, such as "; needs --checkpoint", or ""; free() it. */
char *pd_opt_needs_text(const struct pd_command *command, const struct pd_opt *o);
