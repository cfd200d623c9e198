/* SPDX-License-Identifier: Apache-2.0 */
#include "run/data/format.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES (INT64_C(1) << 28)  /* zlib counts in unsigned int */
#define DEFLATE_RATIO 1032              /* the most that deflate can save */

static char *path(const char *directory, const char *name, const char *suffix)
{
	return pd_format("%s/%s%s", directory, name, suffix);
}

bool pd_source_exists(const char *directory, const char *name)
{
	char *plain = path(directory, name, ""), *packed = path(directory, name, ".gz");
	bool found = access(plain, F_OK) == 0 || access(packed, F_OK) == 0;

	free(plain);
	free(packed);
	return found;
}

int pd_source_open(struct pd_source *source, const char *directory, const char *name,
		   struct pd_error *err)
{
	struct stat st = { 0 };
	int64_t size;
	int fd;

	*source = (struct pd_source){ .name = path(directory, name, "") };
	fd = open(source->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT) {
		char *packed = path(directory, name, ".gz");

		fd = open(packed, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0 || errno != ENOENT) {
			free(source->name);
			source->name = packed;
		} else {
			free(packed);
			errno = ENOENT;
		}
	}
	if (fd < 0 || fstat(fd, &st) != 0) {
		pd_error_input(err, "%s: cannot open: %s", source->name, strerror(errno));
		goto fail;
	}
	if (!S_ISREG(st.st_mode)) {
		pd_error_input(err, "%s: expected a file, found a directory or device",
			       source->name);
		goto fail;
	}
	source->in = gzdopen(fd, "rb");
	if (!source->in)
		pd_mem_exhausted(0);
	gzbuffer(source->in, 1 << 18);
	size = st.st_size;
	if (gzdirect(source->in))
		source->most_bytes = size;
	else if (!pd_mul(size, DEFLATE_RATIO, &source->most_bytes))
		source->most_bytes = INT64_MAX;
	return 0;
fail:
	if (fd >= 0)
		close(fd);
	pd_source_close(source);
	return -1;
}

void pd_source_close(struct pd_source *source)
{
	if (source->in)
		gzclose_r(source->in);
	free(source->name);
	*source = (struct pd_source){ 0 };
}

/* Returns what zlib says is wrong, less the name "<fd:3>: " that it has for the file. */
static const char *reason(const char *why)
{
	const char *name = strncmp(why, "<fd:", 4) == 0 ? strstr(why, ">: ") : NULL;

	return name ? name + 3 : why;
}

int64_t pd_source_read(struct pd_source *source, void *buf, int64_t bytes, struct pd_error *err)
{
	int64_t done = 0;

	while (done < bytes) {
		int64_t want = bytes - done < CHUNK_BYTES ? bytes - done : CHUNK_BYTES;
		int got = gzread(source->in, (char *)buf + done, (unsigned int)want);
		int code;
		const char *why = gzerror(source->in, &code);

		if (code == Z_MEM_ERROR)
			pd_mem_exhausted(0);

		/* a gzip file that ends early is told apart by Z_BUF_ERROR */
		if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
			return pd_error_input(err, "%s: cannot read: %s", source->name,
					      code == Z_ERRNO ? strerror(errno) :
					      code == Z_BUF_ERROR ? "the compressed data end early"
								  : reason(why));
		if (got == 0)
			break;
		done += got;
	}
	return done;
}

int pd_source_fill(struct pd_source *source, void *buf, int64_t bytes, const char *what,
		   struct pd_error *err)
{
	int64_t got = pd_source_read(source, buf, bytes, err);

	if (got < 0)
		return -1;
	if (got < bytes)
		return pd_error_input(err, "%s: truncated: expected %" PRId64 " bytes of %s, "
				      "found %" PRId64, source->name, bytes, what, got);
	return 0;
}

int pd_source_end(struct pd_source *source, struct pd_error *err)
{
	char byte;
	int64_t got = pd_source_read(source, &byte, 1, err);

	if (got < 0)
		return -1;
	if (got > 0)
		return pd_error_input(err, "%s: expected the end of the file after the last sample"
				      " that its header counts, found more bytes", source->name);
	return 0;
}
