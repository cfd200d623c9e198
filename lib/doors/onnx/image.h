/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: what nodes have in common that see images, samples of channels, height and width. */
#pragma once

#include "doors/onnx/translate.h"

/* What windows of convolutions and pools say. */
struct window {
	int64_t kernel[2], stride[2], padding[2], dilation[2];
};

/* Sets the sample that input 0 shows, an image whose samples come first. */
int image_in(struct graph *g, const struct pd_onnx_node *node, const struct view **view_p, int *base_p,
	     struct extent *sample_p, struct pd_error *err);
/* Gives the output of a node the image that a layer makes. */
int image_set(struct graph *g, const struct pd_onnx_node *node, int layer, const struct extent *sample,
	      struct pd_error *err);
/* Sets a pair of attributes, unless both are what the layer has anyway. */
void image_pair(json_t *attributes, const char *key, const int64_t pair[2], int64_t usual);
/*
 * Adds a convolution, of samples that become `sample`; more is its output_padding, or NULL.  The channels and groups
 * are those of the sample and the node.
 */
int image_convolve(struct graph *g, const struct pd_onnx_node *node, const char *kind, int base,
		   const struct extent *sample, const struct window *w, const int64_t more[2],
		   const struct pd_onnx_tensor *weight, const struct pd_onnx_tensor *bias, struct pd_error *err);
/* Adds a number for each channel of a layer, in a layer of its own, where one of both is frozen.  Returns the sum. */
int image_bias(struct graph *g, const struct pd_onnx_node *node, int layer, const struct pd_onnx_tensor *bias);
/* Reads a window; the kernel is 0 where the node leaves it out. */
int image_window(const struct pd_onnx_node *node, struct window *w, struct pd_error *err);
/* Of a convolution: its weight of so many axes, and its bias, which is NULL if there is none, or one of zeros. */
int image_weights(struct graph *g, const struct pd_onnx_node *node, int dims,
		  const struct pd_onnx_tensor **weight_p, const struct pd_onnx_tensor **bias_p,
		  struct pd_error *err);
