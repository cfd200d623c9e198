/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/machine/machine.h"

#include "base/document_folder.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "doors/machine/folder.h"
#include "doors/machine/server.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_BYTES (16 << 20)           /* of a text */

static struct pd_document_folder machine_folder(void)
{
	return (struct pd_document_folder){ getenv("PD_MACHINES"), PD_MACHINES_FOLDER, NULL };
}

/* A document. */
struct machine_sheet {
	char *name;
	const char *device;             /* of the document */
	int64_t devices, adapters;
	int64_t memory_bytes;           /* of a device; 0: its data sheet's */
	struct pd_level link;           /* from one device to others; bandwidth 0: the data sheet's */
	struct pd_level adapter;        /* one of the network's */
};

#define IN(member) PD_MEMBER(struct machine_sheet, member)
#define RATE PD_ROW_INT, .needed = true, .least = 1
#define LATENCY PD_ROW_INT, .most = PD_MAX_LATENCY_NS

static const struct pd_key_row link_rows[] = {
	{ "bandwidth_bytes_per_s", RATE, IN(link.bandwidth_bytes_per_s) },
	{ "latency_ns", LATENCY, IN(link.latency_ns) },
	{ NULL }
};

static const struct pd_key_row network_rows[] = {
	{ "adapters", PD_ROW_INT, .needed = true, .least = 1, .most = 1 << 10, IN(adapters) },
	{ "bandwidth_bytes_per_s", RATE, .most = INT64_C(1) << 50, IN(adapter.bandwidth_bytes_per_s) },
	{ "latency_ns", LATENCY, IN(adapter.latency_ns) },
	{ NULL }
};

const struct pd_key_row pd_machine_rows[] = {
	PD_ROWS_HEADER("pd-machine", 1),
	{ "name", PD_ROW_TEXT, .needed = true, IN(name) },
	{ "device", PD_ROW_WORD, .needed = true, IN(device) },
	{ "devices", PD_ROW_INT, .needed = true, .least = 1, .most = PD_MAX_RANKS, IN(devices) },
	{ "memory_bytes", PD_ROW_INT, .least = 1, IN(memory_bytes) },
	{ "link", PD_ROW_OBJECT, .rows = link_rows },
	{ "network", PD_ROW_OBJECT, .rows = network_rows },
	{ "sources", PD_ROW_BY },
	{ NULL }
};

/* A machine that is being read. */
struct machine_reader {
	const char *file;               /* what messages call it */
	const char *device;             /* that an option names; or NULL */
	int64_t servers;
	bool quiet;
	struct pd_named_machine *out;
};

/* Reads the data sheet of the devices: of the document, unless it says none. */
static int read_device(struct machine_reader *r, const char *device, struct pd_error *err)
{
	char meant[PD_MEANT_TEXT];

	if (device && r->device && strcmp(device, r->device) != 0)
		return pd_error_input(err, "--device=%.60s: %s has devices \"%.60s\"", r->device, r->file,
				      device);
	if (!device)
		device = r->device;
	if (!device)
		return pd_error_input(err, "%s does not say which devices it has: give --device=NAME, such as "
				      "--device=h100-sxm (pd-device(5))", r->file);
	if (!pd_sheet_known(device))
		return pd_error_input(err, "expected a device by its data sheet (pd-device(5)), found "
				      "\"%.60s\"%s", device, pd_sheet_say(device, meant));
	r->out->sheet = pd_sheet_read(device, err);
	return r->out->sheet ? 0 : -1;
}

/* Joins the servers, whose devices share what all adapters carry. */
static int join_servers(struct machine_reader *r, double bytes_per_s, int64_t latency_ns,
			struct pd_error *err)
{
	struct pd_topology *topology = &r->out->topology;

	if (r->servers == 1)
		return 0;
	if (bytes_per_s < 1)
		return pd_error_input(err, "%s does not say how servers are joined: expected one server, or "
				      "--topology, such as 8@450GB/s,2@400GB/s, and --device", r->file);
	if (!pd_mul(topology->devices, r->servers, &topology->devices) ||
	    topology->devices > PD_MAX_RANKS)
		return pd_error_input(err, "%s: expected at most %d devices in all", r->file, PD_MAX_RANKS);
	topology->level[topology->levels++] =
		(struct pd_level){ r->servers, (int64_t)bytes_per_s, latency_ns };
	return 0;
}

static int use_sheet(struct machine_reader *r, const struct machine_sheet *sheet,
		     struct pd_error *err)
{
	struct pd_level link = sheet->link;

	if (read_device(r, sheet->device, err) < 0)
		return -1;
	if (link.bandwidth_bytes_per_s == 0) {
		link.bandwidth_bytes_per_s = r->out->sheet->link.bandwidth_bytes_per_s;
		link.latency_ns = r->out->sheet->link.latency_ns;
	}
	if (link.bandwidth_bytes_per_s == 0 && sheet->devices > 1)
		return pd_error_input(err, "%s: link: expected one, since the data sheet of \"%s\" has none",
				      r->file, r->out->sheet->name);
	if (pd_topology_flat(sheet->devices, pd_max(1, link.bandwidth_bytes_per_s), link.latency_ns,
			     &r->out->topology, err) < 0)
		return -1;
	r->out->topology.memory_bytes = sheet->memory_bytes ? sheet->memory_bytes
							    : r->out->sheet->memory_bytes;
	return join_servers(r, (double)sheet->adapters * (double)sheet->adapter.bandwidth_bytes_per_s,
			    sheet->adapter.latency_ns, err);
}

/* Reads a machine, or a whole topology, whose devices an option names. */
static int read_document(struct machine_reader *r, struct pd_error *err)
{
	json_t *json = pd_json_load(r->file, err);
	struct pd_place root = pd_place_root(r->file, json);
	struct machine_sheet sheet = { 0 };
	const char *format = json ? pd_member_text(json, "format") : NULL;
	int status = -1;

	if (format && strcmp(format, "pd-topology") == 0 && r->servers > 1)
		pd_error_input(err, "%s: it says all that there is, not what one server has: expected it "
			       "without %" PRId64 "x", r->file, r->servers);
	else if (format && strcmp(format, "pd-topology") == 0)
		status = pd_topology_parse_at(&root, &r->out->topology, err) < 0 ? -1
		       : read_device(r, NULL, err);
	else if (json && pd_rows_read(&root, pd_machine_rows, &sheet, err) == 0)
		status = use_sheet(r, &sheet, err);
	free(sheet.name);
	json_decref(json);
	return status;
}

/* Reads what another program prints of one server. */
static int read_server(struct machine_reader *r, const char *text, struct pd_error *err)
{
	struct pd_server *server = pd_zalloc(sizeof(*server));
	bool xml = *text == '<';
	int status = (xml ? pd_server_parse_nccl : pd_server_parse_smi)(r->file, text, server, err);

	if (status == 0)
		status = read_device(r, NULL, err);
	if (status == 0)
		status = pd_server_levels(r->file, server, r->out->sheet, r->quiet, &r->out->topology, err);
	if (status == 0)
		status = join_servers(r, server->network_bytes_per_s, r->out->sheet->link.latency_ns, err);
	free(server);
	return status;
}

static int read_machine_file(struct machine_reader *r, struct pd_error *err)
{
	size_t bytes;
	char *text = pd_file_read(r->file, MOST_BYTES, &bytes, err), *first = text;
	int status;

	if (!text)
		return -1;
	while (isspace((unsigned char)*first))
		first++;
	status = *first == '{' ? read_document(r, err) : read_server(r, first, err);
	free(text);
	return status;
}

/* Takes a number of servers, and the x behind it, from the front. */
static const char *take_servers(const char *what, int64_t *servers_p)
{
	char *end;
	long long servers = strtoll(what, &end, 10);

	*servers_p = 1;
	if (end == what || *end != 'x' || !end[1] || servers < 1 || servers > PD_MAX_RANKS ||
	    !isdigit((unsigned char)*what))
		return what;
	*servers_p = servers;
	return end + 1;
}

int pd_named_machine_read(const char *what, const char *device, bool quiet, struct pd_named_machine *out,
		    struct pd_error *err)
{
	struct machine_reader r = { .device = device, .quiet = quiet, .out = out };
	const struct pd_document_folder folder = machine_folder();
	const char *name = take_servers(what, &r.servers);
	bool named = !pd_is_document_file(name) && access(name, F_OK) != 0;
	char *file = named ? pd_document_file(&folder, name) : pd_strdup(name);
	char meant[PD_MEANT_TEXT];
	int status = -1;

	*out = (struct pd_named_machine){ 0 };
	r.file = file;
	if (access(file, F_OK) == 0)
		status = read_machine_file(&r, err);
	else if (named && pd_document_folder_missing(&folder))
		pd_error_input(err, "\"%.60s\": the folder of machines that are known by name, %s, is not there: "
			       "PD_MACHINES names another (pd(7))", what,
			       pd_document_folder_missing(&folder));
	else if (named)
		pd_error_input(err, "expected a machine (pd-machine(5)), such as dgx-h100 or 8xdgx-h100, or a "
			       "file, found \"%.60s\"%s", what,
			       pd_document_meant(&folder, name, meant));
	else
		pd_error_input(err, "%s: no such file", name);
	free(file);
	if (status < 0)
		pd_named_machine_release(out);
	return status < 0 ? pd_error_prefix(err, "--on") : 0;
}

void pd_named_machine_release(struct pd_named_machine *machine)
{
	pd_sheet_free(machine->sheet);
	machine->sheet = NULL;
}
