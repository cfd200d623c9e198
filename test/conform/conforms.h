/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model on a device, held against the reference; and the reference against finite differences.
 */
#pragma once

#include "chain.h"
#include "ref.h"

#define CLASSES 9
#define SEED 12345

/* What gradients and losses in 16 bits may be off by. */
extern const double conform_tolerances[PD_DTYPES];

/* The i-th number of a stream of random ones from -1 to 1. */
float conform_random(uint32_t stream, int64_t i);
/* The weights of a new net, but no bias is 0; the caller frees them. */
float *conform_weights(struct chain *c);
/* Gives the reference owned parameters in the order of chain_export(). */
void conform_import(struct ref *r, const float *weights);
/* Gives both the same random inputs, and labels below CLASSES. */
void conform_load(struct chain *c, struct ref *r);
/* Rounds as the reference is to in the type that chains compute in. */
double conform_round(double x);
/* Compares parameters' gradients, and states, in the order of chain_export(). */
bool conform_gradients(const struct ref *r, const float *got, double tolerance);
bool conform_state(const struct ref *r, const float *got, double tolerance);

/*
 * Runs forward, backward and an evaluation; compares loss, gradients and states.  valid: so many
 * samples of the batch count.
 */
bool conforms(const struct pd_device_ops *ops, const struct pd_model *model, int64_t batch,
	      int64_t valid, double tolerance);
/*
 * Puts layers, the last of which is called 'it', between a convolution and a linear layer.  Each
 * element of what 'it' makes changes the loss: there are no classes that vanish.
 */
struct pd_model *model_around(int64_t channels, int64_t height, int64_t width, const char *layers);
/*
 * A test: compares (loss(w + h) - loss(w - h)) / 2h with the reference's gradients, for some elements
 * of every parameter of the model, which it frees.
 */
void conform_differences(struct pd_model *model, const char *what);
