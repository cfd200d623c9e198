/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares a model on a device with the reference, and the reference with finite differences.
 */
#pragma once

#include "chain.h"
#include "ref.h"

#define CLASSES 9
#define SEED 12345

/* The relative errors that gradients and losses may have in 16 bits. */
extern const double conform_tolerances[PD_DTYPES];

/* Returns the i-th random number of a stream, from -1 to 1. */
float conform_random(uint32_t stream, int64_t i);
/* Sets weights of a new net that are 0, such as biases, to other numbers; returns all, to be freed. */
float *conform_weights(struct chain *c);
/* Copies parameters in the order of chain_export() to the layers of the reference that own them. */
void conform_import(struct ref *r, const float *weights);
/* Gives both the same random inputs, and labels below CLASSES. */
void conform_load(struct chain *c, struct ref *r);
/* Rounds x to the type that chains compute in, as the reference should. */
double conform_round(double x);
/* Tell whether gradients of parameters, and states, in the order of chain_export(), are the reference's. */
bool conform_gradients(const struct ref *r, const float *got, double tolerance);
bool conform_state(const struct ref *r, const float *got, double tolerance);

/*
 * Runs forward, backward and an evaluation; returns whether loss, gradients and states are the
 * reference's.  The first `valid` samples of the batch count.
 */
bool conforms(const struct pd_device_ops *ops, const struct pd_model *model, int64_t batch,
	      int64_t valid, double tolerance);
/*
 * Returns a model with these layers, the last of which is called 'it', between a convolution and a linear
 * layer.  Each element of the output of 'it' changes the loss, since there are no classes that vanish.
 */
struct pd_model *model_around(int64_t channels, int64_t height, int64_t width, const char *layers);
/*
 * Tests that the reference's gradients are (loss(w + h) - loss(w - h)) / 2h for some elements of every
 * parameter of the model, and frees the model.
 */
void conform_differences(struct pd_model *model, const char *what);
