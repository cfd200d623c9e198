/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/show.h"

#include "base/mem.h"
#include "base/opt.h"
#include "plan/recompute.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_PREFIX 8

const char *pd_show_ranks(const struct pd_stage *stage, char *buf, size_t room)
{
	size_t used = 0;

	buf[0] = '\0';
	for (int i = 0, end; i < stage->replicas; i = end + 1) {
		char run[32];

		for (end = i; end + 1 < stage->replicas &&
		     stage->ranks[end + 1] == stage->ranks[end] + 1;)
			end++;
		snprintf(run, sizeof(run), end > i ? "%s%d-%d" : "%s%d", i ? "," : "",
			 stage->ranks[i], stage->ranks[end]);
		if (used + strlen(run) + 4 > room) {
			strcpy(buf + used, "...");
			break;
		}
		strcpy(buf + used, run);
		used += strlen(run);
	}
	return buf;
}

const char *pd_show_places(const struct pd_plan *plan, char buf[PD_SHOW_PLACES])
{
	long long devices = pd_degrees_devices(&plan->profile->group), all = plan->topology.devices;

	if (devices > 1)
		snprintf(buf, PD_SHOW_PLACES, "%d of %lld rank%s of %lld devices", plan->rank_count, all,
			 all == 1 ? "" : "s", devices);
	else
		snprintf(buf, PD_SHOW_PLACES, "%d of %lld device%s", plan->rank_count, all, all == 1 ? "" : "s");
	return buf;
}

const char *pd_show_device_bytes(const struct pd_plan *plan, int64_t bytes, char *buf)
{
	return pd_show_bytes(pd_degrees_each(&plan->profile->group, bytes), buf);
}

const char *pd_show_kinds(const struct pd_plan *plan, const struct pd_stage *stage, char *buf, size_t room)
{
	const struct pd_topology *topology = &plan->topology;
	unsigned seen = 0;

	buf[0] = '\0';
	for (int r = 0; r < stage->replicas && pd_topology_mixed(topology); r++) {
		int kind = pd_topology_kind_of(topology, stage->ranks[r]);
		size_t used = strlen(buf);

		if (!(seen >> kind & 1))
			snprintf(buf + used, room - used, "%s%s", seen ? ", " : "", topology->kind[kind].name);
		seen |= 1U << kind;
	}
	return buf;
}

char *pd_show_devices(const struct pd_topology *topology)
{
	char *text = NULL;
	int64_t begin = 0;

	for (int i = 0; i < topology->device_runs && pd_topology_mixed(topology); i++) {
		const struct pd_device_run *run = &topology->device_run[i];
		const struct pd_device_kind *kind = &topology->kind[run->kind];
		char *more = run->end > begin + 1
			? pd_format("%s%s%" PRId64 "-%" PRId64 " %s", text ? text : "ranks ", text ? ", " : "", begin,
				    run->end - 1, kind->name)
			: pd_format("%s%s%" PRId64 " %s", text ? text : "ranks ", text ? ", " : "", begin, kind->name);

		free(text);
		text = more;
		begin = run->end;
	}
	return text;
}

/* Returns how many bytes two names have in common, up to the last separator and before either's end. */
static size_t shared(const char *a, const char *b, size_t most)
{
	size_t n = 0;

	for (size_t i = 0; i < most && a[i] && a[i] == b[i] && a[i + 1] && b[i + 1]; i++)
		if (strchr("./_-:", a[i]))
			n = i + 1;
	return n;
}

size_t pd_layers_prefix(const struct pd_profile *profile)
{
	size_t prefix = profile->layer_count > 1 ? SIZE_MAX : 0;

	for (int l = 1; l < profile->layer_count; l++)
		prefix = shared(profile->layers[0].name, profile->layers[l].name, prefix);
	return prefix >= LEAST_PREFIX ? prefix : 0;
}

static bool begins_character(char c)
{
	return (c & 0xc0) != 0x80;
}

static int characters(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += begins_character(*text);
	return n;
}

/* Returns the text behind its first n characters. */
static const char *after(const char *text, int n)
{
	while (*text && (n > 0 || !begins_character(*text)))
		n -= begins_character(*text++);
	while (*text && !begins_character(*text))
		text++;
	return text;
}

/* Returns the name, without its middle if it is too long; free() it. */
static char *cut(const char *name, const struct pd_name_style *style, int most)
{
	int length = characters(name), left = most - characters(style->dots);
	int head = (left + 1) / 2;

	if (length <= most)
		return pd_strdup(name);
	return pd_format("%.*s%s%s", (int)(after(name, head) - name), name, style->dots,
			 after(name, length - (left - head)));
}

/* Cuts the longer of both first. */
static char *join(const char *a, const char *b, const struct pd_name_style *style)
{
	int room = style->most - characters(style->between), x = characters(a), y = characters(b);
	int first = x + y <= room || x <= room / 2 ? x : y <= room / 2 ? room - y : room / 2;
	char *from = cut(a, style, first), *to = cut(b, style, room - first);
	char *both = pd_format("%s%s%s", from, style->between, to);

	free(from);
	free(to);
	return both;
}

char *pd_show_name(const char *name, const struct pd_name_style *style)
{
	return cut(name, style, style->most);
}

char *pd_show_layers(const struct pd_profile *profile, const struct pd_stage *stage, size_t prefix,
		     const struct pd_name_style *style)
{
	const char *first = profile->layers[stage->first_layer].name + prefix;
	const char *last = profile->layers[stage->first_layer + stage->layer_count - 1].name + prefix;
	size_t common = shared(first, last, SIZE_MAX);
	char *rest, *both;

	if (stage->layer_count == 1)
		return cut(first, style, style->most);
	if (common == 0 || characters(first) + characters(style->between) + characters(last) <= style->most)
		return join(first, last, style);
	rest = pd_format("%s%s", style->dots, last + common);
	both = join(first, rest, style);
	free(rest);
	return both;
}

const char *pd_show_recomputed(const struct pd_plan *plan, int s, const char *before,
			       char buf[PD_RECOMPUTED_TEXT])
{
	if (!plan->stages[s].recompute)
		return "";
	if (pd_plan_reruns_some(plan, s))
		snprintf(buf, PD_RECOMPUTED_TEXT, "%s%d of %d layers recomputed", before,
			 pd_plan_rerun_count(plan, s), plan->stages[s].layer_count);
	else
		snprintf(buf, PD_RECOMPUTED_TEXT, "%srecomputed", before);
	return buf;
}
