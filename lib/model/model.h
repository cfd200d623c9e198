/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network: inputs and layers, a directed acyclic graph, with every shape worked out.
 * pd-model(5).  Knows nothing of devices or pipelines.
 *
 * Layers are held in topological order: the document's order where that is one, else
 * the order that takes, among the layers that are ready, the first in the document.
 * Tensors are numbered: inputs first, then the output of each layer, so the output of
 * layer l is tensor model->input_count + l.  Shapes leave out the batch dimension.
 */
#pragma once

#include "base/error.h"
#include "model/dtype.h"
#include "model/graph.h"
#include "model/kind.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define PD_MAX_LAYERS 1000000
#define PD_MAX_DIMS 4                   /* channels, height, width; or axes of a sequence first */
#define PD_MAX_EXTENT (INT64_C(1) << 30) /* of one dimension */

struct pd_shape {
	int dims;                       /* 0 (a scalar per sample) to PD_MAX_DIMS */
	int64_t size[PD_MAX_DIMS];
};

/* Elements of one sample; never overflows for a shape in a model that was read. */
int64_t pd_shape_elements(const struct pd_shape *shape);

/*
 * The width is the size of the last axis, and rows are its number in one sample; not for a scalar.
 */
int64_t pd_shape_width(const struct pd_shape *shape);
int64_t pd_shape_rows(const struct pd_shape *shape);

/* Channels x places as planes with a height of 1; a shape of other dimensions stays what it is. */
struct pd_shape pd_shape_plane(const struct pd_shape *shape);

/* A shape around one of its axes: the elements of those before it, its own, of those behind it. */
struct pd_axis {
	int64_t outer, extent, inner;
};
struct pd_axis pd_shape_axis(const struct pd_shape *shape, int64_t axis);
/*
 * A shape around the axes along which it is repeated to become another of as many dimensions, where these lie
 * side by side and it has one place: `extent` times.  Extent 1: they are alike; 0: it cannot be so.
 */
struct pd_axis pd_shape_repeats(const struct pd_shape *in, const struct pd_shape *out);

struct pd_input {
	char *name;
	enum pd_dtype dtype;
	struct pd_shape shape;
	/* f32: what is taken off the numbers of each channel, and what they are then divided by */
	int64_t channels;               /* equal parts of a sample; 0: numbers are taken as they are */
	float *mean, *deviation;
};

/*
 * How a parameter or state begins: as one number; as random ones, uniform in [-value, value), or
 * normal with that deviation; as the numbers of the document; or as what a file says, without which it
 * is nothing to train with.
 */
enum pd_begins { PD_BEGINS_CONSTANT, PD_BEGINS_UNIFORM, PD_BEGINS_NORMAL, PD_BEGINS_LISTED, PD_BEGINS_GIVEN };

/* A tensor that a layer keeps: a parameter, or a state. */
struct pd_layer_tensor {
	const char *name;               /* "weight"; lives for ever */
	int dims;
	int64_t size[4];                /* conv2d weight: O, I/groups, KH, KW; linear: O, I; conv1d: O,
					   I/groups, K; conv_transpose2d: I, O/groups, KH, KW */
	int64_t elements;
	enum pd_begins begins;
	float value;
	const json_t *listed;           /* the document's */
	int64_t zero_row;               /* of its first axis, which begins with zeros; -1: none */
};

struct pd_layer {
	char *name;
	enum pd_layer_kind kind;
	int input_count;
	int *inputs;                    /* tensor numbers */
	struct pd_shape output;
	int shares;                     /* layer whose parameters it uses, or -1 */
	bool frozen;                    /* no update moves its parameters; as its owner, if it shares */
	const json_t *names;            /* the document's, or NULL (outside.h) */

	/* attributes; those a kind does not have are zero */
	int64_t out_channels;           /* conv2d; linear's out_features, prelu's num_parameters too */
	int64_t kernel[2], stride[2], padding[2], dilation[2], groups;  /* conv1d: of planes with a height of 1 */
	int64_t output_padding[2];      /* conv_transpose2d */
	bool transposed;                /* the convolution that leads from the output to the input */
	int64_t output_size[2];         /* upsample: 0 where scale_factor is given */
	double scale_factor[2];         /* upsample: 0 where output_size is given */
	int mode;                       /* upsample: enum pd_resize_mode */
	bool align_corners;
	struct pd_shape normalized_shape;       /* layernorm: the last axes of its input */
	int64_t heads, kv_heads;        /* attention */
	bool causal;
	int64_t window;                 /* the keys that a query sees at most, its own the last; 0: all before */
	double scale;                   /* of scores; never 0 once it is read */
	int64_t relative_buckets, max_distance; /* of the bias that is added to them; 0: there is none */
	bool bias;
	bool elementwise_affine;        /* groupnorm's affine, too */
	int64_t num_groups;             /* groupnorm */
	bool count_include_pad;
	double eps, momentum, p;
	int approximate;                /* gelu: enum pd_gelu */
	/* numbers of a curve: leaky_relu's negative_slope; affine's times and plus; clamp's min and max */
	double alpha, beta;
	int64_t num_embeddings, embedding_dim;
	int64_t padding_idx;            /* embedding; -1: none */
	bool numbered;                  /* embedding: a row is that of a place, counted without the padding */
	/* Axes of a sample, from 0, once shapes are known; PD_NO_AXIS: none.  In documents 1 is the
	 * first and -1 the last. */
	int64_t dim, dim0, dim1;
	struct pd_shape mask;           /* dropout: its input's, with 1 along axes that share one */
	int64_t start, end;             /* slice */
	bool keepdim;
	struct pd_shape shape;          /* reshape, parameter */
	bool broadcasts;                /* add, mul: its inputs' shapes differ */
	int64_t head_dim, rotary_dim;   /* rope: features of a head, and those that are rotated */
	double base, factor, low_freq_factor, high_freq_factor;
	int64_t original_positions;
	bool interleaved;
	int64_t ignore_index;           /* softmax_cross_entropy */
	double label_smoothing;
	int64_t hidden_size, lanes;     /* lstm; lanes: whose state is carried on; 0: none */
	int64_t biases;                 /* lstm: of a gate; 0 without bias once shapes are known */
	bool bidirectional;
	double weight_dropout;          /* lstm, embedding */
	double weight;                  /* mse */

	/*
	 * The layer's parameters and states stand in the order of its kind's row.  Parameters of
	 * another layer that it shares have the same shapes.
	 */
	int parameter_count, state_count;
	struct pd_layer_tensor *parameters, *states;
	int64_t parameter_elements;

	/* What its i32 input may be: from index_least to below index_limit, and index_other, unless that
	 * is PD_NO_NUMBER; index_limit 0: it has no such input. */
	int64_t index_least, index_limit, index_other;
};

#define PD_NO_AXIS (-1)
#define PD_NO_NUMBER INT64_MIN

enum pd_resize_mode { PD_RESIZE_NEAREST, PD_RESIZE_BILINEAR };
enum pd_gelu { PD_GELU_NONE, PD_GELU_TANH };

static inline bool pd_layer_is(const struct pd_layer *layer, enum pd_kind_flag flag)
{
	return pd_kinds[layer->kind].flags & flag;
}

/* Tells whether updates move parameters of the layer. */
static inline bool pd_layer_learns(const struct pd_layer *layer)
{
	return layer->parameter_count > 0 && !layer->frozen;
}

struct pd_model {
	char *name;
	int input_count, layer_count;
	struct pd_input *inputs;
	struct pd_layer *layers;
	json_t *json;                   /* the document, carried along; owned */
	enum pd_dtype dtype;            /* what it is usually computed in; PD_DTYPES: it does not say */

	int *numbers;                   /* per layer, its place before pd_model_reorder; or NULL */

	/* made by pd_model_index() (order.h) */
	json_t *names;                  /* name -> tensor */
	struct pd_uses uses;            /* tensor -> layers */
	bool *gradient;                 /* tensor: does a gradient flow into it? */
};

/* Reads a document (takes a reference to value); document is its name in messages. */
struct pd_model *pd_model_parse(const char *document, json_t *value, struct pd_error *err);
/* Reads a model that is part of another document. */
struct pd_place;
struct pd_model *pd_model_parse_at(const struct pd_place *place, struct pd_error *err);
struct pd_model *pd_model_read(const char *file, struct pd_error *err);
void pd_model_free(struct pd_model *model);

int pd_model_tensors(const struct pd_model *model);
/* The producer is the layer whose output the tensor is, or -1 for an input. */
const struct pd_shape *pd_model_shape(const struct pd_model *model, int tensor);
enum pd_dtype pd_model_dtype(const struct pd_model *model, int tensor);
int pd_model_producer(const struct pd_model *model, int tensor);
const char *pd_model_tensor_name(const struct pd_model *model, int tensor);
/* Counts the layers that use a tensor, and writes them in ascending order into out, unless NULL. */
int pd_model_consumers(const struct pd_model *model, int tensor, int *out);
/*
 * Puts the layers into another topological order: order[n] is the layer that becomes layer n.
 * The document stays what it was.
 */
void pd_model_reorder(struct pd_model *model, const int *order);
/* Copies a model in another order.  The copy has no document, nor names for pd_model_find(). */
struct pd_model *pd_model_in_order(const struct pd_model *model, const int *order);
/* Returns the layer's number in the document's order, from which its random numbers are drawn. */
static inline int pd_model_number(const struct pd_model *model, int layer)
{
	return model->numbers ? model->numbers[layer] : layer;
}
/* Returns the layer called name, or -1. */
int pd_model_find(const struct pd_model *model, const char *name);
/* Tells whether a gradient flows into this tensor.  (Some layer below it has parameters.) */
bool pd_model_needs_gradient(const struct pd_model *model, int tensor);
/* Counts the parameters; those that layers share count once. */
int64_t pd_model_parameters(const struct pd_model *model);
/* Counts the losses, outputs that training minimises, among `count` layers from `first` on. */
int pd_model_losses(const struct pd_model *model, int first, int count);
/* Tells whether one of those layers carries state from minibatch to minibatch (lanes). */
bool pd_model_carries(const struct pd_model *model, int first, int count);
/*
 * Refuses batches in which a channel that is normalised over the batch would have one value: it would be 0,
 * whatever it was.
 */
int pd_model_check_batch(const struct pd_model *model, int64_t batch_size, struct pd_error *err);
/* The lanes that they have; 0: no layer carries state. */
int64_t pd_model_lanes(const struct pd_model *model);
/*
 * These return the image-like input (f32) and the label input (i32, scalar) of a classification
 * network, or -1.
 */
int pd_model_label_input(const struct pd_model *model);
int pd_model_data_input(const struct pd_model *model);
