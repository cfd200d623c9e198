/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU device: its table of functions, and memory. */
#include "run/device/cpu/cpu.h"

#include "base/mem.h"
#include "base/processors.h"
#include "base/shared_memory.h"
#include "run/device/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int cpu_count(struct pd_error *why)
{
	return 1;
}

static struct pd_device *cpu_open(const struct pd_device_config *config, struct pd_error *err)
{
	struct pd_cpu_device *cpu;

	if (config->threads < 0) {
		pd_error_input(err, "%d threads: expected 0 or more", config->threads);
		return NULL;
	}
	cpu = pd_zalloc(sizeof(*cpu));
	cpu->base.ops = &pd_device_cpu;
	cpu->threads = config->threads ? config->threads : pd_processors();
	cpu->gate = config->gate;
	return &cpu->base;
}

static void cpu_close(struct pd_device *device)
{
	free(device);
}

static void cpu_describe(struct pd_device *device, struct pd_device_info *info_p)
{
	FILE *in = fopen("/proc/cpuinfo", "r");
	char line[256];

	memset(info_p, 0, sizeof(*info_p));
	snprintf(info_p->name, sizeof(info_p->name), "CPU");
	while (in && fgets(line, sizeof(line), in))
		if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(info_p->name, sizeof(info_p->name), "%.127s",
				 strchr(line, ':') + 2);
			break;
		}
	if (in)
		fclose(in);
	info_p->threads = ((struct pd_cpu_device *)device)->threads;
	info_p->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

/* Large buffers use large pages, which pays for weights and activations. */
static void *cpu_alloc(struct pd_device *device, size_t bytes, struct pd_error *err)
{
	size_t page = (size_t)1 << 21, align = bytes >= page ? page : PD_ALIGN;
	void *ptr;

	if (posix_memalign(&ptr, align, bytes ? bytes : 1) != 0) {
		char text[PD_MEM_TEXT];

		pd_error_failed(err, "%s", pd_mem_sentence(bytes, text));
		return NULL;
	}
	if (align == page)
		madvise(ptr, bytes & ~(page - 1), MADV_HUGEPAGE);
	memset(ptr, 0, bytes);
	return ptr;
}

static void *cpu_shared_alloc(struct pd_device *device, size_t bytes, struct pd_error *err)
{
	void *ptr = pd_shared_alloc(bytes);

	return ptr ? ptr : cpu_alloc(device, bytes, err);
}

static void cpu_free(struct pd_device *device, void *ptr)
{
	if (!pd_shared_free(ptr))
		free(ptr);
}

const struct pd_device_ops pd_device_cpu = {
	.name = "cpu",
	.splits = true,
	.calls = true,
	.count = cpu_count,
	.open = cpu_open,
	.close = cpu_close,
	.describe = cpu_describe,
	.memory.alloc = cpu_alloc,
	.memory.shared_alloc = cpu_shared_alloc,
	.memory.free = cpu_free,
	.memory.host_alloc = cpu_alloc,
	.memory.host_free = cpu_free,
	.stream.open = pd_cpu_stream_open,
	.stream.close = pd_cpu_stream_close,
	.stream.submit = pd_queue_submit,
	.net.open = pd_cpu_net_open,
	.net.close = pd_cpu_net_close,
	.net.sizes = pd_compiled_sizes,
	.net.layer = pd_compiled_layer_sizes,
	.net.init = pd_compiled_init,
	.net.named = pd_compiled_named,
	.net.tied_layers = pd_compiled_tied_layers,
	.net.export = pd_cpu_net_export,
	.net.import = pd_cpu_net_import,
};
