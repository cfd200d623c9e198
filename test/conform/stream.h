/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of test/conform/stream, by file. */
#pragma once

#include "chain.h"

/* --- stream_parameters.c */
void test_named(const struct pd_device_ops *ops, struct chain *c);
void test_init(const struct pd_device_ops *ops, struct chain *c);
void test_normal_init(const struct pd_device_ops *ops);

/* --- stream_sums.c */
void test_sum(const struct pd_device_ops *ops, struct chain *c);
void test_mixed_sum(const struct pd_device_ops *ops, struct chain *c);
void test_squares(const struct pd_device_ops *ops, struct chain *c);

/* --- stream_updates.c */
void test_sgd(const struct pd_device_ops *ops, struct chain *c, float momentum);
void test_formula(const struct pd_device_ops *ops, struct chain *c, enum pd_optimizer_kind kind);
void test_by_tensor(const struct pd_device_ops *ops, struct chain *c, enum pd_optimizer_kind kind,
		    bool still);
void test_extremes(const struct pd_device_ops *ops, struct chain *c, enum pd_optimizer_kind kind);
void test_sgd_range(const struct pd_device_ops *ops, struct chain *c);
void test_agreed(const struct pd_device_ops *ops, struct chain *c, bool skip);
