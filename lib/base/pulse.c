/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pulse.h"

#include "base/clock.h"

#define LINKS 10000             /* some 4 cycles each */
#define CHAINS 12

int64_t pd_pulse_ns(void)
{
	int64_t shortest_ns = INT64_MAX;

	for (int chain = 0; chain < CHAINS; chain++) {
		int64_t begun_ns = pd_now_ns(), ns;
		uint64_t x = (uint64_t)begun_ns;

		for (int i = 0; i < LINKS; i++) {
			x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
			__asm__ volatile("" : "+r"(x));         /* no two links become one */
		}
		ns = pd_now_ns() - begun_ns;
		shortest_ns = ns < shortest_ns ? ns : shortest_ns;
	}
	return shortest_ns;
}
