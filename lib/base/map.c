/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int pd_file_map_open(struct pd_file_map *map, const char *file, const char *what, struct pd_error *err)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	void *bytes;

	*map = (struct pd_file_map){ 0 };
	if (fd < 0 || fstat(fd, &st) != 0) {
		pd_error_input(err, "%s: cannot open: %s", file, strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		pd_error_input(err, "%s: expected a file, found a directory or device", file);
	} else if (st.st_size == 0) {
		pd_error_input(err, "%s: expected %s, found nothing in it", file, what);
	} else {
		bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (bytes != MAP_FAILED) {
			map->bytes = bytes;
			map->count = st.st_size;
		} else if (errno == ENOMEM) {
			pd_error_failed(err, "out of memory: %s: its %" PRId64 " bytes cannot be "
					"mapped", file, (int64_t)st.st_size);
		} else {
			pd_error_input(err, "%s: cannot be mapped into memory: %s", file,
				       strerror(errno));
		}
	}
	if (fd >= 0)
		close(fd);
	return map->bytes ? 0 : -1;
}

void pd_file_map_close(struct pd_file_map *map)
{
	if (map->bytes)
		munmap((void *)map->bytes, (size_t)map->count);
	*map = (struct pd_file_map){ 0 };
}
