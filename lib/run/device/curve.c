/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/curve.h"

#include "model/model.h"

static const enum pd_curve curves[PD_LAYER_KINDS] = {
#define CURVE(name, cpu, flags, value, gradient) [PD_LAYER_##name] = PD_CURVE_##name,
#define VARIANT(name, cpu, flags, value, gradient)
#include "run/device/curve.def"
#undef VARIANT
#undef CURVE
};

static const unsigned flags_of[PD_CURVES] = {
#define CURVE(name, cpu, flags, value, gradient) [PD_CURVE_##name] = flags,
#define VARIANT CURVE
#include "run/device/curve.def"
#undef VARIANT
#undef CURVE
};

enum pd_curve pd_curve_of(const struct pd_layer *layer)
{
	return layer->approximate == PD_GELU_TANH ? PD_CURVE_gelu_tanh : curves[layer->kind];
}

bool pd_curve_from_output(enum pd_curve curve)
{
	return flags_of[curve] & PD_CURVE_FROM_OUTPUT;
}
