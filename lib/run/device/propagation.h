/* SPDX-License-Identifier: Apache-2.0 */
/* What a primitive of a library computes: the output, or the gradient of the input or of the weights. */
#pragma once

enum pd_propagation { PD_FORWARD, PD_BACKWARD_DATA, PD_BACKWARD_WEIGHTS, PD_PROPAGATIONS };
