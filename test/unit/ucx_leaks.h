/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suppressions for programs whose transports are closed between hosts in the middle of transfers:
 * lib/run/transport/ucx leaves these to the end of the process, and UCX keeps their memory by pointers that
 * the leak sanitizer does not see.
 */
#pragma once

const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:libucs.so\nleak:libuct.so\nleak:libucp.so\n";
}
