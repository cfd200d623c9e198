/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of test/conform/layers, by kind of layer. */
#pragma once

#include "conforms.h"

void layers_attention(const struct pd_device_ops *ops);
void layers_lstm(const struct pd_device_ops *ops);
void layers_sequences(const struct pd_device_ops *ops);
/* Test the reference's gradients against finite differences. */
void layers_attention_reference(void);
void layers_lstm_reference(void);
