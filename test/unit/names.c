/* SPDX-License-Identifier: Apache-2.0 */
/* Which name of a set was meant. */
#include "base/names.h"

#include "tap.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = { "gpus", "topology", "straight", "stages", "conv2d", "resnet", "resnet18",
				     "resnet50", "f32", "bf16", "f16", "lr", "flush", "2bw", NULL };

static void meant(const char *word, const char *name)
{
	char text[PD_MEANT_TEXT], expected[PD_MEANT_TEXT] = "";

	if (name)
		snprintf(expected, sizeof(expected), "; did you mean \"%s\"?", name);
	is_str(pd_names_say(names, word, text), expected, "\"%.70s\"", word);
}

int main(void)
{
	struct pd_error err;
	char long_word[200];

	meant("gps", "gpus");
	meant("gpsu", "gpus");                  /* two letters exchanged are one step */
	meant("topologie", "topology");
	meant("Conv2D", "conv2d");
	meant("conv-2d", "conv2d");
	meant("resnet5", "resnet50");           /* equally far from resnet, which has less of it */
	meant("float32", "f32");
	meant("bfloat16", "bf16");
	meant("flsh", "flush");
	meant("flushing", "flush");
	meant("topo-file", "topology");
	meant("num-stages", "stages");
	meant("stages-per-rank", "stages");
	meant("2wb", "2bw");
	meant("gpipe", NULL);
	meant("", NULL);
	meant("l", NULL);
	meant("nothing like it", NULL);
	memset(long_word, 'x', sizeof(long_word) - 1);
	long_word[sizeof(long_word) - 1] = '\0';
	meant(long_word, NULL);

	is_int(pd_names_find(names, "flush", &err), 12, "a name has a number");
	is_int(pd_names_find((const char *const[]){ "svg", "dot", NULL }, "svgg", &err), -1, "no name has none");
	is_str(err.text, "expected one of svg, dot, found \"svgg\"; did you mean \"svg\"?", "what is said then");
	is_int(err.status, PD_EXIT_USAGE, "it is an error of usage");
	return done_testing();
}
