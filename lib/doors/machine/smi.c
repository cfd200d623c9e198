/* SPDX-License-Identifier: Apache-2.0 */
/* nvidia-smi topo -m: a table of GPUs, and of what joins each two of them. */
#include "doors/machine/server.h"

#include "base/mem.h"
#include "base/names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Takes the next word of a line; returns NULL at the line's end.  Escapes that underline a heading are left out. */
static char *next_word(char **at_p)
{
	char *at = *at_p, *word;

	for (;;) {
		while (*at == ' ' || *at == '\t' || *at == '\r')
			at++;
		if (*at != '\033')
			break;
		while (*at && !isalpha((unsigned char)*at))
			at++;
		at += *at ? 1 : 0;
	}
	if (*at == '\0') {
		*at_p = at;
		return NULL;
	}
	word = at;
	while (*at && !strchr(" \t\r\033", *at))
		at++;
	if (*at && *at != '\033')
		*at++ = '\0';
	else if (*at) {         /* an escape behind the last heading */
		*at = '\0';
		at += strlen(at + 1) + 1;
	}
	*at_p = at;
	return word;
}

/* Returns the number of a GPU's name, or -1. */
static int gpu_number(const char *word)
{
	char *end;
	long number;

	if (!word || strncmp(word, "GPU", 3) != 0 || !isdigit((unsigned char)word[3]))
		return -1;
	number = strtol(word + 3, &end, 10);
	return *end == '\0' && number < PD_SERVER_DEVICES ? (int)number : -1;
}

/* Reads what joins a GPU and another: NV and a number of links, or a way over PCIe. */
static int read_cell(const char *name, const char *word, int row, int column, struct pd_server *server,
		     struct pd_error *err)
{
	static const char *const ways[] = { "X", "SYS", "NODE", "PHB", "PXB", "PIX", "SOC", NULL };
	char *end;

	if (word && strncmp(word, "NV", 2) == 0 && isdigit((unsigned char)word[2])) {
		server->nvlinks[row][column] = (int)strtol(word + 2, &end, 10);
		if (*end == '\0')
			return 0;
	}
	if (word && pd_names_index(ways, word) >= 0 && (*word == 'X') == (row == column))
		return 0;
	return pd_error_input(err, "%s: GPU%d and GPU%d: expected a way such as NV18 or SYS, found "
			      "\"%.20s\"", name, row, column, word ? word : "nothing");
}

static int read_row(const char *name, char *line, int columns, struct pd_server *server,
		    struct pd_error *err)
{
	for (int column = 0; column < columns; column++)
		if (read_cell(name, next_word(&line), server->devices, column, server, err) < 0)
			return -1;
	server->devices++;
	return 0;
}

int pd_server_parse_smi(const char *name, const char *text, struct pd_server *out, struct pd_error *err)
{
	char *copy = pd_strdup(text), *rest = copy, *line;
	int columns = 0, status = 0;

	*out = (struct pd_server){ 0 };
	while (status == 0 && (line = strsep(&rest, "\n"))) {
		char *word = next_word(&line);

		if (columns == 0)
			for (; word && gpu_number(word) == columns; word = next_word(&line))
				columns++;
		else if (gpu_number(word) == out->devices && out->devices < columns)
			status = read_row(name, line, columns, out, err);
	}
	free(copy);
	if (status == 0 && columns == 0)
		return pd_error_input(err, "%s: expected a document of pd-machine(5) or pd-topo, a table of nvidia-smi "
				      "topo -m, or NCCL's topology, found none of these", name);
	if (status == 0 && out->devices < columns)
		return pd_error_input(err, "%s: expected a table of nvidia-smi topo -m with a row for each of "
				      "its %d GPUs, found %d", name, columns, out->devices);
	return status;
}
