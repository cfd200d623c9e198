/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/layout/megatron.h"

#include "base/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that grows. */
struct spelled {
	char *text;
	size_t length, room;
};

static int append(struct spelled *to, const char *text, size_t length, long times, struct pd_error *err)
{
	if (times < 0 || (length > 0 && (size_t)times > (PD_MEGATRON_MOST - to->length) / length))
		return pd_error_input(err, "the layout has more than %d letters", PD_MEGATRON_MOST);
	to->text = pd_grow(to->text, &to->room, to->length + length * (size_t)times + 1, 1);
	for (; times > 0; times--, to->length += length)
		memcpy(to->text + to->length, text, length);
	to->text[to->length] = '\0';
	return 0;
}

/* Returns what is behind "*N", and sets N; or NULL if that is not there. */
static const char *times_behind(const char *text, long *times_p)
{
	char *end;

	if (*text != '*' || !isdigit((unsigned char)text[1]))
		return NULL;
	*times_p = strtol(text + 1, &end, 10);
	return end;
}

/* Spells out groups, "(tt|)*3", or if they are not wanted letters, "t*3". */
static int spell_out(const char *text, bool groups, struct spelled *out_p, struct pd_error *err)
{
	*out_p = (struct spelled){ 0 };
	if (append(out_p, "", 0, 0, err) < 0)
		return -1;
	while (*text) {
		size_t length = groups && *text == '(' ? strcspn(text + 1, ")") : 1;
		const char *what = groups && *text == '(' ? text + 1 : text, *next = what + length;
		long times;

		if (groups && (*text != '(' || *next != ')' || length == 0)) {
			what = text++;
			if (append(out_p, what, 1, 1, err) < 0)
				return -1;
			continue;
		}
		next = times_behind(groups ? next + 1 : next, &times);
		if (!next && groups)
			return pd_error_input(err, "the group \"(%.*s)\" has no *N behind it", (int)(length < 40 ? length
					      : 40), what);
		if (append(out_p, what, length, next ? times : 1, err) < 0)
			return -1;
		text = next ? next : text + 1;
	}
	return 0;
}

static int read_letters(const char *text, struct pd_megatron_stage **stages_p, struct pd_error *err)
{
	size_t room = 0, length = strlen(text);
	struct pd_megatron_stage *stages = pd_grow(NULL, &room, 1, sizeof(*stages));
	int count = 1;

	stages[0] = (struct pd_megatron_stage){ 0 };
	*stages_p = stages;
	for (size_t i = 0; i < length; i++)
		switch (text[i]) {
		case '|':
			*stages_p = stages = pd_grow(stages, &room, (size_t)count + 1, sizeof(*stages));
			stages[count++] = (struct pd_megatron_stage){ 0 };
			break;
		case 't':
			stages[count - 1].decoders++;
			break;
		case 'E':
			stages[count - 1].embedding++;
			break;
		case 'L':
			stages[count - 1].loss++;
			break;
		case 'm':
			return pd_error_input(err, "the layout has m, layers that predict several tokens, which no network "
					      "here has");
		default:
			return pd_error_input(err, "expected E, t, L and | in a layout, and (..)*N, found \"%.20s\"",
					      text + i);
		}
	if (text[0] != 'E' || strrchr(text, 'E') != text)
		return pd_error_input(err, "expected E, the embedding, once, and as the first letter of a layout");
	if (text[length - 1] != 'L' || strchr(text, 'L') != text + length - 1)
		return pd_error_input(err, "expected L, the loss, once, and as the last letter of a layout");
	return count;
}

int pd_megatron_read(const char *text, struct pd_megatron_stage **stages_p, struct pd_error *err)
{
	struct spelled plain = { 0 }, grouped = { 0 }, letters = { 0 };
	int count = -1;

	*stages_p = NULL;
	if (append(&plain, "", 0, 0, err) < 0)
		return -1;
	for (const char *c = text; *c; c++)
		if (*c != ',' && append(&plain, c, 1, 1, err) < 0)
			break;
	if (spell_out(plain.text, true, &grouped, err) == 0 && spell_out(grouped.text, false, &letters, err) == 0)
		count = read_letters(letters.text, stages_p, err);
	free(plain.text);
	free(grouped.text);
	free(letters.text);
	if (count >= 0)
		return count;
	free(*stages_p);
	*stages_p = NULL;
	return -1;
}

/* ---- the shortest text ---- */

#define MOST_PERIOD 512 /* letters in a group that is looked for */

static int digits(size_t n)
{
	int count = 1;

	for (; n >= 10; n /= 10)
		count++;
	return count;
}

/* Returns how long a run of one letter is as text: "ttt" or "t*3". */
static int run_cost(size_t n)
{
	int repeated = 2 + digits(n);

	return n < (size_t)repeated ? (int)n : repeated;
}

/* How the shortest text of the letters from one on begins. */
struct beginning {
	int cost;                       /* of all of that text */
	size_t period, times;           /* a group; period 0: a run of one letter, `times` of them */
};

struct shortest {
	const char *letters;
	size_t length;
	struct beginning *best;         /* per letter, and the end */
	size_t *match;                  /* per period: letters from here on that are like those a period on */
};

/* Takes a beginning if it is shorter. */
static void offer(struct shortest *s, size_t from, size_t period, size_t times, int cost)
{
	cost += s->best[from + (period ? period : 1) * times].cost;
	if (cost < s->best[from].cost)
		s->best[from] = (struct beginning){ cost, period, times };
}

/* Offers all groups that begin at a letter, but those of one letter, which are runs. */
static void offer_groups(struct shortest *s, size_t from)
{
	const char *at = s->letters + from;
	size_t left = s->length - from, run = 0;
	int inside = 0;                 /* cost of the period but for its last run */

	for (size_t period = 1; 2 * period <= left && period <= MOST_PERIOD; period++) {
		size_t all = period + s->match[period];

		if (period > 1 && at[period - 1] != at[period - 2]) {
			inside += run_cost(run);
			run = 0;
		}
		run++;
		for (size_t times = 2; run < period && times <= all / period; times++)
			offer(s, from, period, times, inside + run_cost(run) + 3 + digits(times));
	}
}

static void find_shortest(struct shortest *s)
{
	for (size_t from = s->length; from-- > 0;) {
		const char *at = s->letters + from;
		size_t left = s->length - from;

		s->best[from].cost = INT32_MAX;
		for (size_t period = 1; period <= MOST_PERIOD && period < left; period++)
			s->match[period] = at[0] == at[period] ? s->match[period] + 1 : 0;
		for (size_t n = 1; n <= left && at[n - 1] == at[0]; n++)
			offer(s, from, 0, n, run_cost(n));
		offer_groups(s, from);
	}
}

static void print_run(FILE *out, char letter, size_t n)
{
	if (run_cost(n) < (int)n)
		fprintf(out, "%c*%zu", letter, n);
	else
		for (size_t i = 0; i < n; i++)
			putc(letter, out);
}

static void print_group(FILE *out, const char *letters, size_t period, size_t times)
{
	putc('(', out);
	for (size_t i = 0, n; i < period; i += n) {
		for (n = 1; i + n < period && letters[i + n] == letters[i];)
			n++;
		print_run(out, letters[i], n);
	}
	fprintf(out, ")*%zu", times);
}

static void spell(struct spelled *letters, const struct pd_megatron_stage *stages, int count)
{
	append(letters, "", 0, 0, NULL);
	for (int s = 0; s < count; s++) {
		append(letters, "|", 1, s > 0, NULL);
		append(letters, "E", 1, stages[s].embedding, NULL);
		append(letters, "t", 1, stages[s].decoders, NULL);
		append(letters, "L", 1, stages[s].loss, NULL);
	}
}

char *pd_megatron_text(const struct pd_megatron_stage *stages, int count)
{
	struct spelled letters = { 0 };
	struct shortest s;
	char *text = NULL;
	size_t size;
	FILE *out = pd_mem_stream(&text, &size);

	spell(&letters, stages, count);
	s = (struct shortest){ letters.text, letters.length, pd_calloc(letters.length + 1, sizeof(*s.best)),
			       pd_calloc(MOST_PERIOD + 1, sizeof(*s.match)) };
	find_shortest(&s);
	for (size_t i = 0; i < s.length; i += (s.best[i].period ? s.best[i].period : 1) * s.best[i].times)
		if (s.best[i].period)
			print_group(out, s.letters + i, s.best[i].period, s.best[i].times);
		else
			print_run(out, s.letters[i], s.best[i].times);
	pd_mem_stream_close(out);
	free(s.best);
	free(s.match);
	free(letters.text);
	return text;
}
