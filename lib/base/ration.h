/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a JSON document may take while it is read.  A document of a few megabytes can be
 * written so that its values take hundreds: two bytes make a number of forty, three an object of
 * more than two hundred.  What is counted is what jansson allocates and has not freed.
 */
#ifndef PD_BASE_RATION_H
#define PD_BASE_RATION_H

#include <stdbool.h>

/*
 * A network of 16,384 layers, with its profile, takes 50 MB: the largest that can be planned, and
 * five times as much.
 */
#define PD_RATION_BYTES (256 << 20)

/* Has jansson allocate here; where there is no memory pd_mem_exhausted() is called. */
void pd_ration_install(void);
/* From now on this thread's documents take so much in all; not nested. */
void pd_ration_begin(void);
/* No longer; true: there was not enough, and so the document was not read. */
bool pd_ration_end(void);

#endif
