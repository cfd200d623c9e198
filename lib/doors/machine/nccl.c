/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's topology: XML with <gpu>s, each inside the <pci> that it is, <nvlink>s inside those,
 * and <net>s with their speed in Mbit/s.
 */
#include "doors/machine/server.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WORD 64
#define SWITCH "0x0680"                 /* how the class of a bridge begins */
#define GPU "0x03"

/* What has been read. */
struct nccl_reader {
	const char *name;
	struct pd_server *server;
	char bus[WORD];                                 /* of the innermost <pci> */
	char buses[PD_SERVER_DEVICES][WORD];            /* of the GPUs */
	struct nccl_link {
		int device, count;
		char target[WORD];
	} links[PD_SERVER_DEVICES * PD_SERVER_DEVICES];
	int link_count;
};

/* Finds the value of an attribute between the name of a tag and its end. */
static bool take_attribute(const char *tag, const char *end, const char *key, char value[WORD])
{
	size_t length = strlen(key);

	for (const char *at = tag; at < end && (at = strstr(at, key)) && at < end; at += length) {
		const char *from = at + length + 2, *quote;

		if (at[-1] > ' ' || at[length] != '=' || at[length + 1] != '"')
			continue;
		quote = strchr(from, '"');
		if (!quote || quote > end || quote - from >= WORD)
			return false;
		snprintf(value, WORD, "%.*s", (int)(quote - from), from);
		return true;
	}
	return false;
}

static int nccl_expected(const struct nccl_reader *r, const char *what, struct pd_error *err)
{
	return pd_error_input(err, "%s: expected %s", r->name, what);
}

static int read_gpu(struct nccl_reader *r, struct pd_error *err)
{
	if (r->server->devices == PD_SERVER_DEVICES)
		return nccl_expected(r, "a server of at most 64 GPUs", err);
	snprintf(r->buses[r->server->devices++], WORD, "%s", r->bus);
	return 0;
}

static int read_nvlink(struct nccl_reader *r, const char *tag, const char *end,
		       struct pd_error *err)
{
	struct nccl_link *link = &r->links[r->link_count];
	char count[WORD], class[WORD];
	int device = r->server->devices - 1;

	if (device < 0 || r->link_count == PD_SERVER_DEVICES * PD_SERVER_DEVICES ||
	    !take_attribute(tag, end, "count", count) || !take_attribute(tag, end, "tclass", class) ||
	    !take_attribute(tag, end, "target", link->target) || atoi(count) < 1 || atoi(count) > 1024)
		return nccl_expected(r, "<nvlink>s inside a <gpu>, each with target, count and tclass",
				     err);
	*link = (struct nccl_link){ .device = device, .count = atoi(count) };
	take_attribute(tag, end, "target", link->target);
	if (strncmp(class, SWITCH, strlen(SWITCH)) == 0)
		r->server->switched[device] += link->count;
	else if (strncmp(class, GPU, strlen(GPU)) == 0)
		r->link_count++;
	return 0;
}

static int read_net(struct nccl_reader *r, const char *tag, const char *end, struct pd_error *err)
{
	char speed[WORD];
	double mbits;

	if (!take_attribute(tag, end, "speed", speed))
		return nccl_expected(r, "a speed, in Mbit/s, of every <net>", err);
	mbits = strtod(speed, NULL);
	if (!(mbits > 0) || mbits > 1e9)
		return nccl_expected(r, "a speed above 0, in Mbit/s, of every <net>", err);
	r->server->network_bytes_per_s += mbits * 1e6 / 8;
	return 0;
}

static bool is_tag(const char *tag, const char *name)
{
	size_t length = strlen(name);

	return strncmp(tag, name, length) == 0 && strchr(" \t\r\n/>", tag[length]) && tag[length];
}

static int read_tag(struct nccl_reader *r, const char *tag, const char *end, struct pd_error *err)
{
	if (is_tag(tag, "pci") && !take_attribute(tag, end, "busid", r->bus))
		return nccl_expected(r, "a busid of every <pci>", err);
	if (is_tag(tag, "gpu"))
		return read_gpu(r, err);
	if (is_tag(tag, "nvlink"))
		return read_nvlink(r, tag, end, err);
	return is_tag(tag, "net") ? read_net(r, tag, end, err) : 0;
}

/* Says which devices links go to, now that all are known. */
static void join_links(struct nccl_reader *r)
{
	for (int l = 0; l < r->link_count; l++)
		for (int d = 0; d < r->server->devices; d++)
			if (strcasecmp(r->links[l].target, r->buses[d]) == 0)
				r->server->nvlinks[r->links[l].device][d] += r->links[l].count;
}

int pd_server_parse_nccl(const char *name, const char *text, struct pd_server *out,
			 struct pd_error *err)
{
	struct nccl_reader *r = pd_zalloc(sizeof(*r));
	const char *at = text, *end;
	int status = 0;

	*out = (struct pd_server){ 0 };
	r->name = name;
	r->server = out;
	while (status == 0 && (at = strchr(at, '<'))) {
		bool comment = strncmp(at, "<!--", 4) == 0;

		end = comment ? strstr(at, "-->") : strchr(at, '>');
		if (!end)
			status = nccl_expected(r, "a whole document: a tag does not end", err);
		else if (!comment)
			status = read_tag(r, at + 1, end, err);
		at = end ? end + 1 : at + 1;
	}
	if (status == 0 && out->devices == 0)
		status = nccl_expected(r, "NCCL's topology (NCCL_TOPO_DUMP_FILE), with a <gpu> for each "
				       "GPU", err);
	if (status == 0)
		join_links(r);
	free(r);
	return status;
}
