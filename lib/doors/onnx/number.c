/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/onnx/translate.h"

#include <stdio.h>
#include <stdlib.h>

double shortest(double number)
{
	char text[40];

	for (int digits = 1; digits < 10; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, number);
		if (strtof(text, NULL) == (float)number)
			return strtod(text, NULL);
	}
	return number;
}
