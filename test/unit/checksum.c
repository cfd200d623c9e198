/* SPDX-License-Identifier: Apache-2.0 */
#include "base/checksum.h"

#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define BYTES 100

static unsigned char data[BYTES];

/* The results of another implementation of XXH64 for the first so many bytes, with two seeds. */
static const struct {
	size_t bytes;
	uint64_t zero, golden;
} known[] = {
	{ 0, 0xef46db3751d8e999, 0xc4349fc93c010000 }, { 1, 0x1f25c8d0bc1f4bb6, 0x79826bcd749d267a },
	{ 3, 0x31d2363f52e564c9, 0x78efd77575e26575 }, { 4, 0x9bb64b7d66ee9fda, 0x6f0a6c97d68bf353 },
	{ 8, 0xdab99d95c6f90092, 0xa2f1e28437a78a1b }, { 14, 0xc7f1d4d0acfa5a14, 0x11c9ca8b8889a9f1 },
	{ 31, 0xa2aa5f33cc4a6119, 0x755437271d1d0a84 }, { 32, 0x23c3c17ef790fd97, 0xbf624b932c090428 },
	{ 33, 0x50a7cfc7ba588784, 0x7aceaf1e9d34ea35 }, { 63, 0x5e3e54b431c7493c, 0x2c8ddce5c85d0d9d },
	{ 64, 0x0eb64b3ef6eeb01f, 0x4af341f14e3a6fc9 }, { 100, 0xa61f8d4c170fe531, 0xf6d8f65c625abb4f },
};

static void test_known(void)
{
	bool all = true;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		all = all && pd_checksum(0, data, known[i].bytes) == known[i].zero &&
		      pd_checksum(0x9e3779b97f4a7c15, data, known[i].bytes) == known[i].golden;
	ok(all, "what others make of the same bytes");
}

static void test_pieces(void)
{
	struct pd_checksum sum;

	pd_checksum_begin(&sum, 0);
	pd_checksum_add(&sum, data, 37);
	pd_checksum_add(&sum, NULL, 0);
	pd_checksum_add(&sum, data + 37, BYTES - 37);
	ok(pd_checksum_end(&sum) == 0xa61f8d4c170fe531, "in pieces");
}

static void test_text(void)
{
	static const char *const bad[] = { NULL, "", "0123456789abcde", "0123456789abcdef0",
					   "0123456789abcdeF", " 123456789abcdef", "0x23456789abcdef" };
	char text[PD_CHECKSUM_DIGITS + 1];
	uint64_t value = 1;
	bool none = true;

	is_str(pd_checksum_text(0x0123456789abcdef, text), "0123456789abcdef", "sixteen digits");
	ok(pd_checksum_parse(text, &value) && value == 0x0123456789abcdef, "and back");
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		none = none && !pd_checksum_parse(bad[i], &value);
	ok(none, "no other text is one");
}

int main(void)
{
	for (int i = 0; i < BYTES; i++)
		data[i] = (unsigned char)(i * 7 + 3);
	test_known();
	test_pieces();
	test_text();
	return done_testing();
}
