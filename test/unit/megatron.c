/* SPDX-License-Identifier: Apache-2.0 */
/* Holds layouts of Megatron against its own way to read them, two regular expressions; and writes them again. */
#include "doors/layout/megatron.h"

#include "base/mem.h"
#include "tap.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>

static uint32_t state = 1;

static int below(int n)
{
	state = state * 1664525 + 1013904223;
	return (int)((state >> 8) % (uint32_t)n);
}

/* Replaces each match of "(WHAT)\*(N)" by WHAT, N times, as re.sub does; takes the text. */
static char *expand(char *text, const char *expression)
{
	regmatch_t match[3];
	regex_t regex;
	char *rest = text, *made = pd_strdup(""), *longer;

	regcomp(&regex, expression, REG_EXTENDED);
	while (regexec(&regex, rest, 3, match, 0) == 0) {
		longer = pd_format("%s%.*s", made, (int)match[0].rm_so, rest);
		for (long n = strtol(rest + match[2].rm_so, NULL, 10); n > 0; n--) {
			char *before = longer;

			longer = pd_format("%s%.*s", before, (int)(match[1].rm_eo - match[1].rm_so),
					   rest + match[1].rm_so);
			free(before);
		}
		free(made);
		made = longer;
		rest += match[0].rm_eo;
	}
	longer = pd_format("%s%s", made, rest);
	free(made);
	free(text);
	regfree(&regex);
	return longer;
}

/* Returns a layout's letters as Megatron reads it; free() them. */
static char *letters_of(const char *text)
{
	char *plain = pd_strdup(text), *to = plain;

	for (const char *c = text; *c; c++)
		if (*c != ',')
			*to++ = *c;
	*to = '\0';
	return expand(expand(plain, "\\(([^)]+)\\)\\*([0-9]+)"), "(.)\\*([0-9]+)");
}

/* Tells whether stages are those of the letters. */
static bool same(const struct pd_megatron_stage *stages, int count, const char *letters)
{
	char *text = pd_strdup(letters), *rest = text, *stage;
	int s = 0;
	bool right = count >= 0;

	while (right && (stage = strsep(&rest, "|"))) {
		int t = 0;

		for (const char *c = stage; *c; c++)
			t += *c == 't';
		right = s < count && stages[s].decoders == t && stages[s].embedding == (strchr(stage, 'E') != NULL) &&
			stages[s].loss == (strchr(stage, 'L') != NULL);
		s++;
	}
	free(text);
	return right && s == count;
}

/* Reads a layout in both ways, writes it, and reads that. */
static bool goes_round(const char *text, char **shortest_p)
{
	struct pd_megatron_stage *stages = NULL, *again = NULL;
	char *letters = letters_of(text);
	struct pd_error err;
	int count = pd_megatron_read(text, &stages, &err), back;
	bool right = same(stages, count, letters);

	*shortest_p = NULL;
	if (right) {
		*shortest_p = pd_megatron_text(stages, count);
		back = pd_megatron_read(*shortest_p, &again, &err);
		right = same(again, back, letters) && strlen(*shortest_p) <= strlen(text);
	}
	if (!right)
		diag("%s: %s, written as %s", text, letters, *shortest_p ? *shortest_p : "nothing");
	free(letters);
	free(stages);
	free(again);
	return right;
}

static void append(char **text, const char *more)
{
	char *longer = pd_format("%s%s", *text, more);

	free(*text);
	*text = longer;
}

/* Appends letters and repeated letters, at random. */
static void append_letters(char **text, int most)
{
	for (int n = 1 + below(most); n > 0; n--) {
		char repeated[24];

		snprintf(repeated, sizeof(repeated), "%c*%d", below(3) ? 't' : '|', below(13));
		append(text, below(4) == 0 ? repeated : below(3) ? "t" : below(4) ? "|" : ",");
	}
}

static char *random_layout(void)
{
	char *text = pd_strdup("E"), behind[16];

	for (int n = below(5); n >= 0; n--) {
		if (below(2)) {
			append_letters(&text, 6);
			continue;
		}
		append(&text, "(t");            /* a group of nothing is none */
		append_letters(&text, 4);
		snprintf(behind, sizeof(behind), ")*%d", below(12));
		append(&text, behind);
	}
	append(&text, "L");
	return text;
}

static void test_random(void)
{
	int wrong = 0;

	for (int i = 0; i < 200; i++) {
		char *text = random_layout(), *shortest;

		wrong += !goes_round(text, &shortest);
		free(text);
		free(shortest);
	}
	is_int(wrong, 0, "200 random layouts: read as Megatron does, written no longer, and read again");
}

static void test_shortest(void)
{
	static const struct { const char *text, *shortest; } cases[] = {
		{ "EL", "EL" }, { "E|L", "E|L" }, { "E||t|L", "E||t|L" }, { "Etttt|ttttL", "Et*4|t*4L" },
		{ "E,t,t,t|t|L", "Ettt|t|L" }, { "Et*3|(tt|)*28L", "Et(tt|)*29L" },
		{ "Ett|tt|tt|tt|L", "E(tt|)*4L" }, { "E|t*12|t*12|t*12|t*12|L", "E|(t*12|)*4L" },
		{ "Et|t|t|t|t|t|t|tL", "E(t|)*7tL" }, { "Et*10|t*10L", "Et*10|t*10L" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *shortest;

		if (ok(goes_round(cases[i].text, &shortest), "%s goes round", cases[i].text))
			is_int((int64_t)strlen(shortest), (int64_t)strlen(cases[i].shortest), "%s is as short as %s",
			       shortest, cases[i].shortest);
		free(shortest);
	}
}

static void test_wrong(void)
{
	static const char *const texts[] = {
		"", "tL", "Et", "tEL", "ELt", "EEtL", "EtLL", "E(ttL", "E(tt)L", "E()*2L", "Et)*2L", "ExL", "EtmL",
		"E*2tL", "Et*L", "E((t)*2)*2L", "Et*99999999999L", "E(t*1000000|)*1000000L",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct pd_megatron_stage *stages;
		struct pd_error err;

		if (!ok(pd_megatron_read(texts[i], &stages, &err) < 0, "\"%s\" is refused", texts[i]))
			free(stages);
	}
}

static void test_long(void)
{
	struct pd_megatron_stage *stages = pd_calloc(4096, sizeof(*stages));
	char *text;

	for (int s = 0; s < 4096; s++)
		stages[s].decoders = 4;
	stages[0].embedding = stages[4095].loss = 1;
	text = pd_megatron_text(stages, 4096);
	is_str(text, "Et*4(|t*4)*4095L", "4096 equal stages are a few letters");
	free(text);
	free(stages);
}

int main(void)
{
	test_random();
	test_shortest();
	test_wrong();
	test_long();
	return done_testing();
}
