/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KIND FILE...: reads the files that fuzzers begin with and those that they found as contrib/fuzz does,
 * without a fuzzer, and prints for each whether it was read, or why not.  It is no test, but t1002 runs it.
 */
#include "base/error.h"

#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int pd_fuzz_read(const uint8_t *data, size_t size, struct pd_error *err);

int main(int argc, char **argv)
{
	static uint8_t data[1 << 20];

	LLVMFuzzerInitialize(&argc, &argv);
	for (int i = 1; i < argc; i++) {
		struct pd_error err = { .text = "" };
		FILE *in = fopen(argv[i], "re");
		size_t size;

		if (!in) {
			perror(argv[i]);
			return PD_EXIT_USAGE;
		}
		size = fread(data, 1, sizeof(data), in);
		fclose(in);
		if (pd_fuzz_read(data, size, &err) == 0)
			printf("%s: read\n", argv[i]);
		else
			printf("%s: refused: %s\n", argv[i], err.text);
	}
	return PD_EXIT_YES;
}
