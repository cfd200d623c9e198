/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first thing that the main() of every program does.
 *
 * Who ends a process: its main().  A library function fails with a sentence (base/error.h) that is
 * passed up.  One failure is not passed up, since every line could have it: running out of host
 * memory calls what main() has set (one sentence, status 3; in a rank, the supervisor is told and
 * says it).  Libraries that crash when memory is short are called where there is room enough
 * (pd_mem_expect). pd_mem_for() says what memory is for.
 */
#pragma once

/*
 * Call this before anything else.  It sets pd_program, opens closed standard descriptors, and
 * ignores SIGPIPE, so that a write to a closed pipe fails where it is made.  If memory runs out,
 * also jansson's, the program ends with one sentence and PD_EXIT_FAILED.
 */
void pd_program_begin(const char *name);
