/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN's engine, and the type in which ops compute. */
#include "run/device/cpu/dnn.h"
#include "run/device/cpu/tile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pd_dnn_failed(struct pd_error *err, const char *what, dnnl_status_t status)
{
	static const char *const names[] = {
		[dnnl_success] = "success", [dnnl_out_of_memory] = "out of memory",
		[dnnl_invalid_arguments] = "invalid arguments",
		[dnnl_unimplemented] = "not implemented", [dnnl_last_impl_reached] = "no kernel",
		[dnnl_runtime_error] = "runtime error", [dnnl_not_required] = "not required",
	};

	return pd_error_failed(err, "oneDNN: %s: %s", what,
			       (size_t)status < PD_COUNT(names) ? names[status] : "unknown error");
}

/*
 * Returns whether products of bf16 are faster than those of f32.  With matrix instructions (AMX)
 * they are.  Processors that have AMX, but hidden, take three times as long for VDPBF16PS as for a
 * fused multiply-add of half as many products (measured: 0.83 and 0.27 ns at 2.7 GHz); they are
 * recognised by AVX512-FP16.  By their data sheets, other processors with VDPBF16PS are at least as
 * fast as in f32.
 */
static bool is_quick(unsigned isa)
{
	if ((isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx)
		return true;
#if defined(__x86_64__) && __GNUC__ >= 12 && !defined(__clang__)
	return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16 &&
	       !__builtin_cpu_supports("avx512fp16");
#else
	return false;
#endif
}

/* Chooses the type in which ops compute: by the processor, unless PD_CPU_BF16 is set. */
static int choose(enum pd_dtype dtype, dnnl_data_type_t *type_p, struct pd_error *err)
{
	unsigned isa = dnnl_get_effective_cpu_isa();
	const char *wish = getenv("PD_CPU_BF16");
	bool native = wish && strcmp(wish, "native") == 0, wide = wish && strcmp(wish, "wide") == 0;

	*type_p = dnnl_f32;
	if (dtype != PD_BF16 || wide || (!native && !is_quick(isa)))
		return 0;
	if ((isa & dnnl_cpu_isa_avx512_core) != dnnl_cpu_isa_avx512_core)
		return pd_error_input(err, "dtype bf16: PD_CPU_BF16 is \"native\", and this "
				      "processor has no AVX-512, which oneDNN needs for that; "
				      "expected \"wide\"");
	*type_p = dnnl_bf16;
	return 0;
}

/* Returns the names of all tables of tiles that this processor can run, best first. */
static const char *names_of_tiles(void)
{
	static _Thread_local char names[64];
	const struct pd_tile_ops *ops;
	size_t end = 0;

	for (int n = 0; (ops = pd_tile_ops_of(n)); n++)
		end += (size_t)snprintf(names + end, sizeof(names) - end, "%s\"%s\"", n ? " or " : "", ops->name);
	return names;
}

struct pd_onednn *pd_onednn_open(enum pd_dtype dtype, struct pd_error *err)
{
	const char *wish = getenv("PD_CPU_WINOGRAD");
	struct pd_onednn *dnn;
	dnnl_data_type_t of_ops;
	dnnl_status_t status;

	if (!pd_tile_ops()) {
		pd_error_input(err, "PD_CPU_TILES is \"%s\", which this processor has no kernels for; "
			       "expected %s", getenv("PD_CPU_TILES"), names_of_tiles());
		return NULL;
	}
	if (choose(dtype, &of_ops, err) < 0)
		return NULL;
	dnn = pd_zalloc(sizeof(*dnn));
	dnn->type = dtype == PD_BF16 ? dnnl_bf16 : dtype == PD_F16 ? dnnl_f16 : dnnl_f32;
	dnn->of_ops = of_ops;
	dnn->winograd = !wish || strcmp(wish, "no") != 0;
	pd_mem_expect(PD_DNN_ROOM);
	status = dnnl_engine_create(&dnn->engine, dnnl_cpu, 0);
	if (status == dnnl_success)
		status = dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_in_order);
	if (status == dnnl_success)
		status = dnnl_primitive_attr_create(&dnn->attr);
	if (status == dnnl_success)
		status = dnnl_primitive_attr_set_scratchpad_mode(dnn->attr,
								 dnnl_scratchpad_mode_user);
	if (status == dnnl_success)
		return dnn;
	pd_dnn_failed(err, "engine", status);
	pd_onednn_close(dnn);
	return NULL;
}

bool pd_onednn_widens(const struct pd_onednn *dnn)
{
	return dnn->type != dnn->of_ops;
}

void pd_onednn_close(struct pd_onednn *dnn)
{
	if (!dnn)
		return;
	while (dnn->ops) {
		struct pd_primitive *op = dnn->ops;

		dnn->ops = pd_dnn_next(op);
		pd_dnn_op_free(op);
	}
	while (dnn->layouts) {
		struct pd_layout *layout = dnn->layouts;

		dnn->layouts = layout->next;
		dnnl_memory_desc_destroy(layout->md);
		free(layout);
	}
	if (dnn->attr)
		dnnl_primitive_attr_destroy(dnn->attr);
	if (dnn->stream)
		dnnl_stream_destroy(dnn->stream);
	if (dnn->engine)
		dnnl_engine_destroy(dnn->engine);
	free(dnn);
}
