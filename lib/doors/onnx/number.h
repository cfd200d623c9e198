/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: numbers of a file, which has f32, as a document has them. */
#pragma once

/* An f32 as the shortest decimal number that is read as it. */
double shortest(double number);
