/* SPDX-License-Identifier: Apache-2.0 */
/* The first thing that the main() of every program does. */
#pragma once

/*
 * Call this before anything else.  It sets pd_program, opens closed standard descriptors, and
 * ignores SIGPIPE, so that a write to a closed pipe fails where it is made.  If memory runs out,
 * also jansson's, the program ends with one sentence and PD_EXIT_FAILED.
 */
void pd_program_begin(const char *name);
