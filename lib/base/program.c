/* SPDX-License-Identifier: Apache-2.0 */
#include "base/program.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/json_limit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * Opens something in place of closed standard descriptors, which the next file opened would take. 
 * It is opened in the wrong direction, so that writing a document to it is an error.
 */
static void restore_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* Ends the process without flushing: half a document is worth nothing. */
static void end(size_t bytes)
{
	char text[PD_MEM_TEXT];

	pd_say("%s", pd_mem_sentence(bytes, text));
	_exit(PD_EXIT_FAILED);
}

void pd_program_begin(const char *name)
{
	pd_program = name;
	restore_descriptors();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);       /* a limit on files is an error of the write, as a full disk is */
	pd_mem_on_end(end);
	pd_json_limit_install();
}
