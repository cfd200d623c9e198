/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/wiring.h"

#include "document.h"
#include "small_profile.h"
#include "tap.h"

#include <inttypes.h>
#include <stdio.h>

/* Returns "0>1:ab(300)" for each link: stages, tensors, bytes; then each stage's links in and out. */
static char *show(const char *graph, int stages, const int *layers)
{
	static const int ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct pd_topology topology;
	struct pd_plan *plan;
	struct pd_wiring *wiring;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	pd_topology_parse_string("8@1GB/s", &topology, NULL);
	plan = pd_plan_new(small_profile(graph), &topology, stages, layers, ones, NULL);
	wiring = pd_wiring_new(plan);
	for (int k = 0; k < wiring->link_count; k++) {
		const struct pd_link *link = &wiring->links[k];

		fprintf(out, "%s%d>%d:", k ? " " : "", link->from, link->to);
		for (int t = 0; t < link->tensor_count; t++)
			fputs(plan->profile->layers[link->tensors[t]].name, out);
		fprintf(out, "(%" PRId64 ")", link->bytes);
	}
	for (int s = 0; s < stages; s++) {
		fputs(" | ", out);
		for (int i = 0; i < wiring->in_count[s]; i++)
			fprintf(out, "%d", wiring->in[s][i]);
		fputc('/', out);
		for (int i = 0; i < wiring->out_count[s]; i++)
			fprintf(out, "%d", wiring->out[s][i]);
	}
	fclose(out);
	pd_wiring_free(wiring);
	pd_plan_free(plan);
	return text;
}

int main(void)
{
	static const struct {
		const char *what, *graph;
		int stages, layers[4];
		const char *expected;
	} cases[] = {
		{ "a chain", "a<x b<a c<b", 3, { 1, 1, 1 }, "0>1:a(100) 1>2:b(200) | /0 | 0/1 | "
		 "1/" },
		{ "one stage", "a<x b<a", 1, { 2 }, " | /" },
		{ "a tensor used in two later stages goes on from the first to the second",
		  "a<x b<a c<ab", 3, { 1, 1, 1 }, "0>1:a(100) 1>2:ab(300) | /0 | 0/1 | 1/" },
		{ "a tensor used two stages later goes there directly", "a<x b<x c<ab", 3, { 1, 1,
											     1 },
		  "0>2:a(100) 1>2:b(200) | /0 | /1 | 01/" },
		{ "several users in one stage: once", "a<x b<a c<a d<bca", 2, { 1, 3 },
		  "0>1:a(100) | /0 | 0/" },
		{ "users in the same stage and later", "a<x b<a c<ab", 2, { 2, 1 },
		  "0>1:ab(300) | /0 | 0/" },
		{ "branches, a skip over all", "a<x b<a c<x d<bc e<da", 4, { 1, 1, 1, 2 },
		  "0>1:a(100) 1>3:ab(300) 2>3:c(300) | /0 | 0/1 | /2 | 12/" },
		{ "a layer that takes a tensor twice", "a<x b<aa", 2, { 1, 1 }, "0>1:a(100) | /0 | "
		 "0/" },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		char *text = show(cases[i].graph, cases[i].stages, cases[i].layers);

		is_str(text, cases[i].expected, "%s", cases[i].what);
		free(text);
	}
	return done_testing();
}
