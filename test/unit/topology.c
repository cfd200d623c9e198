/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/contract.h"

#include "document.h"
#include "tap.h"

static int parse(const char *text, struct pd_topology *out_p, struct pd_error *err)
{
	json_t *value = document_parse(text, err);
	struct pd_place root = pd_place_root("doc", value);
	int result = value ? pd_topology_parse_at(&root, out_p, err) : -1;

	json_decref(value);
	return result;
}

static void test_string(void)
{
	struct pd_topology t;

	ok(pd_topology_read("4@12GB/s+5us,2@10Gbit/s+30us", &t, NULL) == 0, "the string form is "
	   "read");
	is_int(t.levels, 2, "levels");
	is_int(t.devices, 8, "devices");
	is_int(t.level[0].bandwidth_bytes_per_s, 12000000000, "GB/s");
	is_int(t.level[1].bandwidth_bytes_per_s, 1250000000, "Gbit/s");
	is_int(t.level[0].latency_ns, 5000, "latency");
	is_int(t.level[1].latency_ns, 30000, "latency outside");
	ok(pd_topology_read("8@1e+9B/s", &t, NULL) == 0 &&
	   t.level[0].bandwidth_bytes_per_s == 1000000000 && t.level[0].latency_ns == 0,
	   "a plus inside a number is not a latency");
	ok(pd_topology_read("1@1B/s,1@1B/s,1@1B/s,1@1B/s,1@1B/s,1@1B/s,1@1B/s,1048576@1B/s", &t,
			    NULL) == 0 && t.devices == PD_MAX_RANKS, "the largest");
}

static void test_round_trip(void)
{
	static const char text[] = "{'format': 'pd-topology', 'version': 1, 'device': "
		"{'memory_bytes': 16000000000}, 'processors': 2, 'levels': [{'count': 4, 'bandwidth_bytes_per_s': "
		"12, 'latency_ns': 5, 'shared_memory': true}, {'count': 3, 'bandwidth_bytes_per_s': 7, "
		"'latency_ns': 0}]}";
	json_t *before = document_parse(text, NULL), *after;
	struct pd_topology t;

	ok(parse(text, &t, NULL) == 0, "the document is read");
	after = pd_topology_json(&t);
	ok(json_equal(before, after), "and written as it was");
	is_int(t.memory_bytes, 16000000000, "memory");
	is_int(t.processors, 2, "processors");
	ok(t.level[0].shared_memory && !t.level[1].shared_memory, "whose ranks share a memory");
	json_decref(before);
	json_decref(after);
}

/* Two servers of two devices; those of the second are others, and their links are slower. */
static void test_kinds(void)
{
	static const char text[] = "{'format': 'pd-topology', 'version': 1, 'devices': [{'name': 'A', 'count': 1, "
		"'memory_bytes': 80}, {'name': 'B', 'count': 2, 'memory_bytes': 16}, {'name': 'A', 'count': 1, "
		"'memory_bytes': 80}], 'levels': [{'count': 2, 'links': [{'count': 3, 'bandwidth_bytes_per_s': 8, "
		"'latency_ns': 1}, {'count': 1, 'bandwidth_bytes_per_s': 2, 'latency_ns': 9}]}, {'count': 2, 'links': "
		"[{'count': 1, 'bandwidth_bytes_per_s': 5, 'latency_ns': 3}, {'count': 1, 'bandwidth_bytes_per_s': "
		"4, 'latency_ns': 7}]}]}";
	json_t *before = document_parse(text, NULL), *after;
	struct pd_topology t;
	int64_t end;

	ok(parse(text, &t, NULL) == 0, "devices and links that differ are read");
	after = pd_topology_json(&t);
	ok(json_equal(before, after), "and written as they were");
	ok(t.kinds == 2 && pd_topology_mixed(&t), "there are two kinds");
	ok(pd_topology_kind_of(&t, 0) == 0 && pd_topology_kind_of(&t, 2) == 1 && pd_topology_kind_of(&t, 3) == 0,
	   "a rank's kind follows from its number");
	ok(pd_topology_run(&t, 1, &end) == 1 && end == 3, "neighbours of one kind");
	is_int(pd_topology_memory_of(&t, 1), 16, "their memory");
	is_int(t.level[0].bandwidth_bytes_per_s, 2, "a level's bandwidth is that of its slowest link");
	is_int(t.level[0].latency_ns, 9, "and its latency the longest");
	is_int(pd_topology_fastest_link(&t, 0).bandwidth_bytes_per_s, 8, "the fastest");
	is_int(pd_topology_transfer_ns(&t, 0, 1, 8), 1000000001, "between two on fast links");
	is_int(pd_topology_transfer_ns(&t, 2, 3, 8), 4000000009, "one of them on a slow link");
	is_int(pd_topology_transfer_ns(&t, 0, 2, 20), 5000000007, "between servers, the slower of their links");
	is_int(pd_topology_transfer_ns(&t, 3, 0, 20), 10000000007, "and of the devices'");
	json_decref(before);
	json_decref(after);
}

static void test_transfers(void)
{
	struct pd_topology t;

	/* There are two devices per server, three servers per rack, and two racks. */
	pd_topology_parse_string("2@8B/s+1ns,3@4B/s+2ns,2@5B/s+3ns", &t, NULL);
	is_int(pd_topology_level(&t, 0, 1), 0, "in one server");
	is_int(pd_topology_level(&t, 1, 2), 1, "between servers");
	is_int(pd_topology_level(&t, 5, 6), 2, "between racks");
	is_int(pd_topology_level(&t, 11, 0), 2, "either way");
	is_int(pd_topology_transfer_ns(&t, 0, 1, 16), 1 + 2000000000, "over the inner link");
	is_int(pd_topology_transfer_ns(&t, 0, 2, 16), 2 + 4000000000, "over the next");
	is_int(pd_topology_transfer_ns(&t, 0, 6, 16), 3 + 4000000000,
	       "the slowest link on the way counts, the outermost's latency");
	is_int(pd_topology_transfer_ns(&t, 0, 1, 1), 1 + 125000000, "one byte");
	is_int(pd_topology_transfer_ns(&t, 0, 1, INT64_MAX), INT64_MAX, "no overflow");
	ok(pd_topology_flat(3, 7, 1, &t, NULL) == 0 && t.devices == 3 &&
	   pd_topology_transfer_ns(&t, 0, 2, 1) == 1 + 142857143, "flat, rounded up");
}

static void test_errors(void)
{
	static const struct {
		const char *text, *message;
	} strings[] = {
		{ "4@", "expected a rate such as" }, { "@1GB/s", "expected a whole number from 1" },
		{ "4@12GB", "expected a rate such as" }, { "4@12GB/s,", "expected "
							  "COUNT@BANDWIDTH" },
		{ "0@1GB/s", "expected a whole number from 1" }, { "4@0GB/s", "at least 1B/s" },
		{ "4@-1GB/s", "expected a rate" }, { "4@1GB/s+5", "expected a time" },
		{ "4@1GB/s+-5us", "expected a time" }, { "2x@1GB/s", "expected a whole number" },
		{ "4@nanGB/s", "expected a rate" }, { "4@infGB/s", "expected a rate" },
		{ "1048576@1GB/s,2@1GB/s", "expected at most 8 levels and 1048576 devices" },
		{ "1@1B/s,1@1B/s,1@1B/s,1@1B/s,1@1B/s,1@1B/s,1@1B/s,1@1B/s,1@1B/s", "at most 8 "
		 "levels" },
		{ "4@1GB/s+200days", "expected a time" }, { "4@1GB/s+8e9s", "at most 10s" },
	};
	static const struct {
		const char *text, *message;
	} documents[] = {
		{ "{}", "doc: format: expected \"pd-topology\", found nothing" },
		{ "{'format': 'pd-topology', 'version': 1}", "doc: levels: expected an array" },
		{ "{'format': 'pd-topology', 'version': 1, 'levels': []}", "expected 1 to 8 "
		 "levels" },
		{ "{'format': 'pd-topology', 'version': 1, 'levels': [{'count': 2}]}",
		  "levels[0].bandwidth_bytes_per_s: expected" },
		{ "{'format': 'pd-topology', 'version': 1, 'levels': [{'count': 2, "
		  "'bandwidth_bytes_per_s': 0}]}", "found 0" },
		{ "{'format': 'pd-topology', 'version': 1, 'levels': [{'count': 1048576, "
		  "'bandwidth_bytes_per_s': 1}, {'count': 1048576, 'bandwidth_bytes_per_s': 1}]}",
		  "levels[1]: expected at most 1048576 devices" },
		{ "{'format': 'pd-topology', 'version': 1, 'device': {'memory_bytes': -1}, "
		 "'levels': []}",
		  "device.memory_bytes: expected a whole number, at least 0, found -1" },
		{ "{'format': 'pd-topology', 'version': 1, 'levels': [{'count': 2, 'speed': 1}]}",
		  "levels[0]: unknown key \"speed\"" },
		{ "{'format': 'pd-topology', 'version': 1, 'levels': [{'count': 2, "
		  "'bandwidth_bytes_per_s': 1, 'shared_memory': 1}]}",
		  "levels[0].shared_memory: expected true or false" },
	};

	for (size_t i = 0; i < PD_COUNT(strings); i++) {
		struct pd_error err = { .text = "it was read" };
		struct pd_topology t;

		if (!ok(pd_topology_read(strings[i].text, &t, &err) < 0 &&
			strstr(err.text, strings[i].message), "refused: %s", strings[i].text))
			diag("%s", err.text);
	}
	for (size_t i = 0; i < PD_COUNT(documents); i++) {
		struct pd_error err = { .text = "it was read" };
		struct pd_topology t;

		if (!ok(parse(documents[i].text, &t, &err) < 0 &&
			strstr(err.text, documents[i].message), "refused: %s",
			documents[i].message))
			diag("%s", err.text);
	}
}

static void contracts(const char *machine, int64_t devices, bool spans, int levels, int64_t count, int64_t bandwidth)
{
	struct pd_topology t;
	struct pd_error err;

	pd_topology_parse_string(machine, &t, &err);
	t.memory_bytes = 100;
	if (pd_topology_contract(&t, devices, spans, &t, &err) < 0)
		t = (struct pd_topology){ .levels = 0 };
	is_int(t.levels, levels, "%s in groups of %d: levels", machine, (int)devices);
	is_int(t.level[0].count, count, "%s in groups of %d", machine, (int)devices);
	is_int(t.level[0].bandwidth_bytes_per_s, bandwidth, "its links");
	is_int(t.memory_bytes, levels ? 100 * devices : 0, "its memory");
}

static void test_groups(void)
{
	contracts("8@3B/s,4@2B/s", 1, false, 2, 8, 3);
	contracts("8@3B/s,4@2B/s", 2, false, 2, 4, 6);
	contracts("8@3B/s,4@2B/s", 8, false, 1, 4, 2);
	contracts("8@3B/s,4@2B/s", 16, false, 0, 0, 0);
	contracts("8@3B/s,4@2B/s", 16, true, 1, 2, 4);
	contracts("8@3B/s,4@2B/s", 32, true, 1, 1, 8);
	contracts("8@3B/s,4@2B/s", 64, true, 0, 0, 0);
	contracts("6@3B/s,4@2B/s", 4, true, 0, 0, 0);
}

int main(void)
{
	test_groups();
	test_string();
	test_round_trip();
	test_kinds();
	test_transfers();
	test_errors();
	return done_testing();
}
