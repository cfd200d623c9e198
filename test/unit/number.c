/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt.h"

#include "base/mem.h"
#include "tap.h"

typedef int parser(const char *text, int64_t *out_p, struct pd_error *err);

static int parse_small(const char *text, int64_t *out_p, struct pd_error *err)
{
	return pd_parse_count(text, -5, 100, out_p, err);
}

int main(void)
{
	static const struct {
		parser *parse;
		const char *text;
		int64_t value;          /* the number, or -1 if it is refused */
	} cases[] = {
		{ parse_small, "100", 100 }, { parse_small, "101", -1 }, { parse_small, "-6", -1 },
		{ parse_small, "-5", -5 }, { parse_small, "", -1 }, { parse_small, " 1", -1 },
		{ parse_small, "1 ", -1 }, { parse_small, "1.5", -1 }, { parse_small, "0x10", -1 },
		{ parse_small, "99999999999999999999", -1 },
		{ pd_parse_bytes, "4096", 4096 }, { pd_parse_bytes, "16GB", 16000000000 },
		{ pd_parse_bytes, "1.5KiB", 1536 }, { pd_parse_bytes, "2MiB", 2 << 20 },
		{ pd_parse_bytes, "-1", -1 }, { pd_parse_bytes, "inf", -1 }, { pd_parse_bytes,
									       "nan", -1 },
		{ pd_parse_bytes, "1e30GB", -1 }, { pd_parse_bytes, "3 GB", -1 }, { pd_parse_bytes,
										    "GB", -1 },
		{ pd_parse_bytes, "16gb", -1 }, { pd_parse_bytes, "10000000TB", -1 },
		{ pd_parse_rate, "12GB/s", 12000000000 }, { pd_parse_rate, "10Gbit/s", 1250000000 },
		{ pd_parse_rate, "800MiB/s", 800 << 20 }, { pd_parse_rate, "8kbit/s", 1000 },
		{ pd_parse_rate, "0x1GB/s", -1 }, { pd_parse_rate, "+1GB/s", -1 },
		{ pd_parse_rate, "5", -1 }, { pd_parse_rate, "5GB", -1 }, { pd_parse_rate,
									    "infGB/s", -1 },
		{ pd_parse_time, "30us", 30000 }, { pd_parse_time, "1.5ms", 1500000 },
		{ pd_parse_time, "2s", 2000000000 }, { pd_parse_time, "7ns", 7 },
		{ pd_parse_time, "7", -1 }, { pd_parse_time, "-7ns", -1 }, { pd_parse_time, "1e20s",
									     -1 },
	};
	struct pd_error err;
	double real = 0;
	char buf[32];

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		int64_t value = 0;

		err = (struct pd_error){ 0 };
		if (cases[i].parse(cases[i].text, &value, &err) < 0)
			value = err.status == PD_EXIT_USAGE && *err.text ? -1 : -2;
		is_int(value, cases[i].value, "\"%s\"", cases[i].text);
	}
	ok(pd_parse_real("0.5", 0, 1, &real, &err) == 0 && real == 0.5, "a real");
	ok(pd_parse_real("1.5", 0, 1, &real, &err) < 0, "out of range");
	ok(pd_parse_real("nan", 0, 1, &real, &err) < 0, "not a number");
	ok(pd_parse_real("0x1p-1", 0, 1, &real, &err) < 0, "hexadecimal");
	ok(pd_parse_real(" 1", 0, 1, &real, &err) < 0, "space before it");
	ok(pd_parse_real("-0.5", -1, 1, &real, &err) == 0 && real == -0.5, "a negative one");
	ok(pd_parse_real("0.5x", 0, 1, &real, &err) < 0, "more behind it");
	is_str(pd_show_bytes(12345678, buf), "12.3 MB", "bytes for people");
	is_str(pd_show_bytes(999, buf), "999 B", "few bytes");
	is_str(pd_show_bytes(999999, buf), "1 MB", "rounding does not give 1000 kB");
	is_str(pd_show_time(4560000, buf), "4.56 ms", "a time");
	is_str(pd_show_rate(1250000000, buf), "1.25 GB/s", "a rate");
	is_int(pd_lcm(4, 6, 12), 12, "a common multiple");
	is_int(pd_lcm(4, 6, 11), 0, "one that is too large");
	is_int(pd_lcm(pd_lcm(4, 6, 11), 1, 11), 0, "which stays so");
	is_int(pd_lcm(INT64_MAX, INT64_MAX - 1, INT64_MAX), 0, "one without room");
	return done_testing();
}
