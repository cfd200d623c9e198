/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the readers of file formats share, inside lib/data: a file read from front to
 * back, and the checks of what is found against what the model takes.
 */
#ifndef PD_DATA_FORMAT_H
#define PD_DATA_FORMAT_H

#include "data/dataset.h"

#include <zlib.h>

struct pd_source {
	char *name;
	gzFile in;                      /* reads plain and gzip files alike */
	int64_t most_bytes;             /* that a file of this size can hold */
};

/* Is there DIRECTORY/NAME or DIRECTORY/NAME.gz? */
bool pd_source_exists(const char *directory, const char *name);
/* Opens DIRECTORY/NAME or, where that is missing, DIRECTORY/NAME.gz. */
int pd_source_open(struct pd_source *source, const char *directory, const char *name,
		   struct pd_error *err);
void pd_source_close(struct pd_source *source);
/* Up to `bytes`: how many were read, fewer only at the end of the file; -1 on error. */
int64_t pd_source_read(struct pd_source *source, void *buf, int64_t bytes, struct pd_error *err);
/* Exactly `bytes` that hold `what`, or an error. */
int pd_source_fill(struct pd_source *source, void *buf, int64_t bytes, const char *what,
		   struct pd_error *err);
/* Nothing may follow. */
int pd_source_end(struct pd_source *source, struct pd_error *err);

/* Images of this shape are what the model's f32 input takes. */
int pd_format_shape(const char *file, const struct pd_model *model, int64_t channels,
		    int64_t height, int64_t width, struct pd_error *err);
/* Labels first to first + count - 1 are below `classes`. */
int pd_format_labels(const char *file, const uint8_t *labels, int64_t first, int64_t count,
		     int classes, struct pd_error *err);

/*
 * A set, read; out_p->classes is set by the caller before.  On error out_p may hold
 * memory, for pd_dataset_release.
 */
int pd_idx_read(const char *directory, const char *prefix, const struct pd_model *model,
		struct pd_dataset *out_p, struct pd_error *err);
int pd_cifar_read(const char *directory, const char *const *files, const struct pd_model *model,
		  struct pd_dataset *out_p, struct pd_error *err);

#endif
