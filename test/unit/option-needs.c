/* SPDX-License-Identifier: Apache-2.0 */
/* What options need of each other is refused, and shown. */
#include "base/opt_needs.h"

#include "tap.h"

#include <stdlib.h>
#include <string.h>

static bool flag;
static const char *text;
static int choice;
static const char *const choices[] = { "red", "green", "blue", NULL };

static bool is_long(void)
{
	return strlen(text) > 3;
}

enum { ALONE, TEXT, COLOUR, GREEN, EITHER, NEITHER, PLAIN, OPTIONS };

static const struct pd_opt options[] = {
	[ALONE] = { "alone", 0, PD_OPT_FLAG, NULL, "", &flag, .alone = "plain", .why = "it does all" },
	[TEXT] = { "text", 0, PD_OPT_STRING, "TEXT", "", &text, .needs = "plain", .counts = is_long, .which = "long" },
	[COLOUR] = { "colour", 0, PD_OPT_CHOICE, "NAME", "", &choice, .choices = choices },
	[GREEN] = { "green", 0, PD_OPT_FLAG, NULL, "", &flag, .needs = "colour=green colour=blue" },
	[EITHER] = { "either", 0, PD_OPT_FLAG, NULL, "", &flag, .needs = "text plain" },
	[NEITHER] = { "neither", 0, PD_OPT_FLAG, NULL, "", &flag, .excludes = "plain colour=red" },
	[PLAIN] = { "plain", 0, PD_OPT_FLAG, NULL, "", &flag },
	{ 0 }
};

static const struct pd_command command = { .name = "test", .options = options };

/* Gives the options of a list of numbers, which -1 ends. */
static void check_refusal(const int *list, const char *expected)
{
	bool given[OPTIONS] = { false };
	struct pd_error err = { .text = "" };
	int status;

	for (const int *n = list; *n >= 0; n++)
		given[*n] = true;
	status = pd_opt_check_needs(&command, given, &err);
	is_str(status < 0 ? err.text : "", expected, "options %d, %d", list[0], list[0] < 0 ? -1 : list[1]);
}

static void check_help(int option, const char *expected)
{
	char *is = pd_opt_needs_text(&command, &options[option]);

	is_str(is, expected, "--%s as --help shows it", options[option].name);
	free(is);
}

#define GIVEN(...) (const int[]){ __VA_ARGS__, -1 }

int main(void)
{
	text = "abc";
	choice = 0;
	check_refusal(GIVEN(-1), "");
	check_refusal(GIVEN(ALONE, PLAIN), "");
	check_refusal(GIVEN(ALONE, TEXT), "--text does nothing with --alone: it does all");
	check_refusal(GIVEN(TEXT), "");                  /* it does not count */
	check_refusal(GIVEN(EITHER, TEXT), "--either needs --text=TEXT or --plain");
	check_refusal(GIVEN(EITHER, PLAIN), "");
	check_refusal(GIVEN(NEITHER), "--neither and --colour=red exclude each other");        /* the default */
	check_refusal(GIVEN(GREEN), "--green needs --colour=green or blue");
	text = "abcd";
	choice = 2;
	check_refusal(GIVEN(TEXT), "--text=abcd needs --plain");
	check_refusal(GIVEN(TEXT, PLAIN), "");
	check_refusal(GIVEN(GREEN), "");
	check_refusal(GIVEN(NEITHER), "");
	check_refusal(GIVEN(NEITHER, PLAIN), "--neither and --plain exclude each other");
	check_help(ALONE, "; only with --plain");
	check_help(TEXT, "; long: needs --plain");
	check_help(GREEN, "; needs --colour=green or blue");
	check_help(NEITHER, "; not with --plain or --colour=red");
	check_help(PLAIN, "");
	return done_testing();
}
