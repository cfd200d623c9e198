/* SPDX-License-Identifier: Apache-2.0 */
/* What the main() of every program does first. */
#ifndef PD_BASE_PROGRAM_H
#define PD_BASE_PROGRAM_H

/*
 * Sets pd_program; gives closed standard descriptors something to be; ignores SIGPIPE, so that a
 * reader that leaves is seen where it is written to; and has running out of memory, jansson's too,
 * end the program with one sentence and PD_EXIT_FAILED.  Before anything else.
 */
void pd_program_begin(const char *name);

#endif
