/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and printing of numbers with units. */
#include "base/opt.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
	const char *name;
	double factor;
};

static const struct unit byte_units[] = {
	{ "", 1 }, { "B", 1 },
	{ "kB", 1e3 }, { "KB", 1e3 }, { "MB", 1e6 }, { "GB", 1e9 }, { "TB", 1e12 },
	{ "KiB", 0x1p10 }, { "MiB", 0x1p20 }, { "GiB", 0x1p30 }, { "TiB", 0x1p40 },
	{ NULL, 0 }
};
static const struct unit rate_units[] = {
	{ "B/s", 1 }, { "kB/s", 1e3 }, { "KB/s", 1e3 }, { "MB/s", 1e6 }, { "GB/s", 1e9 },
	{ "TB/s", 1e12 }, { "KiB/s", 0x1p10 }, { "MiB/s", 0x1p20 }, { "GiB/s", 0x1p30 },
	{ "kbit/s", 125 }, { "Mbit/s", 125e3 }, { "Gbit/s", 125e6 }, { "Tbit/s", 125e9 },
	{ NULL, 0 }
};
static const struct unit time_units[] = {
	{ "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }, { NULL, 0 }
};

int pd_parse_count(const char *text, int64_t min, int64_t max, int64_t *out_p, struct pd_error *err)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (end == text || *end || errno || isspace((unsigned char)*text) || value < min ||
	    value > max)
		return pd_error_input(err, "expected a whole number from %" PRId64 " to %" PRId64
				      ", found \"%.60s\"", min, max, text);
	*out_p = value;
	return 0;
}

/* Parses like strtod, but refuses "inf", "nan", "0x1" and leading space: *end_p is then text. */
static double decimal(const char *text, char **end_p)
{
	const char *digits = text + (*text == '-' || *text == '+');

	if (strncasecmp(digits, "0x", 2) == 0 ||
	    !(isdigit((unsigned char)*digits) || *digits == '.')) {
		*end_p = (char *)text;
		return 0;
	}
	return strtod(text, end_p);
}

int pd_parse_real(const char *text, double min, double max, double *out_p, struct pd_error *err)
{
	char *end;
	double value = decimal(text, &end);

	if (end == text || *end || !isfinite(value) || value < min || value > max)
		return pd_error_input(err, "expected a number from %g to %g, found \"%.60s\"",
				      min, max, text);
	*out_p = value;
	return 0;
}

static int with_unit(const char *text, const struct unit *units, const char *what, int64_t *out_p,
		     struct pd_error *err)
{
	char *end;
	double value = decimal(text, &end);

	if (end != text && *text != '-' && *text != '+' && isfinite(value))
		for (; units->name; units++)
			if (strcmp(end, units->name) == 0 && value * units->factor < 9e18) {
				*out_p = (int64_t)llround(value * units->factor);
				return 0;
			}
	return pd_error_input(err, "expected %s, found \"%.60s\"", what, text);
}

/* Tells whether it ends with a letter that may mean a power of 1000 or of 1024. */
static bool is_prefix_alone(const char *text)
{
	char *end;

	decimal(text, &end);
	return end != text && *end && strchr("kKMGT", *end) && (!end[1] || strcmp(end + 1, "i") == 0);
}

int pd_parse_bytes(const char *text, int64_t *out_p, struct pd_error *err)
{
	if (is_prefix_alone(text))
		return pd_error_input(err, "found \"%.60s\": a GB has 1000^3 bytes, a GiB 1024^3, 7 %% more: expected "
				      "such as 16GB or 16GiB", text);
	return with_unit(text, byte_units, "a number of bytes such as 4096, 16GB or 512MiB", out_p,
			 err);
}

int pd_parse_rate(const char *text, int64_t *out_p, struct pd_error *err)
{
	return with_unit(text, rate_units, "a rate such as 12GB/s or 10Gbit/s", out_p, err);
}

int pd_parse_time(const char *text, int64_t *out_p, struct pd_error *err)
{
	return with_unit(text, time_units, "a time such as 30us or 1.5ms", out_p, err);
}

static const char *show(double value, const char *const *units, double step, int count,
			const char *after, char *buf)
{
	int i = 0;

	while (i + 1 < count && fabs(value) >= step * 0.9995) {
		value /= step;
		i++;
	}
	if (i == 0 && value == floor(value))
		snprintf(buf, 32, "%.0f %s%s", value, units[i], after);
	else
		snprintf(buf, 32, "%.3g %s%s", value, units[i], after);
	return buf;
}

const char *pd_show_bytes(int64_t bytes, char *buf)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB" };

	return show((double)bytes, units, 1000, 6, "", buf);
}

const char *pd_show_rate(int64_t bytes_per_s, char *buf)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB" };

	return show((double)bytes_per_s, units, 1000, 6, "/s", buf);
}

const char *pd_show_time(int64_t ns, char *buf)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };

	return show((double)ns, units, 1000, 4, "", buf);
}
