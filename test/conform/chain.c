/* SPDX-License-Identifier: Apache-2.0 */
#include "chain.h"

#include "base/half.h"
#include "base/mem.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(bool good, const struct pd_error *err)
{
	if (good)
		return;
	printf("Bail out! %s\n", err->text);
	exit(1);
}

struct pd_model *model_of(const char *shape, const char *layers)
{
	return model_with(shape, "", layers);
}

struct pd_model *model_with(const char *shape, const char *labels, const char *layers)
{
	char *text = pd_format("{'format': 'pd-model', 'version': 1, 'name': 'test', 'inputs': "
			       "[{'name': 'x', 'dtype': 'f32', 'shape': [%s]}, "
			       "{'name': 'y', 'dtype': 'i32', 'shape': [%s]}], 'layers': [%s]}",
			       shape, labels, layers);
	struct pd_error err = { .text = "not JSON" };
	struct pd_model *model;
	json_t *value;

	for (char *quote = text; (quote = strchr(quote, '\'')); )
		*quote = '"';
	value = json_loads(text, 0, NULL);
	check(value != NULL, &err);
	model = pd_model_parse("test", value, &err);
	check(model != NULL, &err);
	json_decref(value);
	free(text);
	return model;
}

/*
 * r1 is used at once, soon (j) and far below (p2); n1 and p1 by two layers, one of them a relu
 * that must not overwrite it; c2 twice by one layer; s1 and s2 share their parameters; r4
 * sees t3 through one flatten, and another layer does through another.
 */
static const char branching[] =
	"{'name': 'c1', 'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 20, 'kernel': 3, "
	"'padding': 1}, "
	"{'name': 'r1', 'kind': 'relu', 'inputs': ['c1']}, "
	"{'name': 'n1', 'kind': 'batchnorm2d', 'inputs': ['r1']}, "
	"{'name': 'c2', 'kind': 'conv2d', 'inputs': ['n1'], 'out_channels': 20, 'kernel': 3, "
	"'padding': 1, 'bias': false}, "
	"{'name': 'r5', 'kind': 'relu', 'inputs': ['n1']}, "
	"{'name': 'j', 'kind': 'add', 'inputs': ['c2', 'r1', 'c2', 'r5']}, "
	"{'name': 'r2', 'kind': 'relu', 'inputs': ['j']}, "
	"{'name': 'p1', 'kind': 'maxpool2d', 'inputs': ['r2'], 'kernel': 2}, "
	"{'name': 's1', 'kind': 'conv2d', 'inputs': ['p1'], 'out_channels': 20, 'kernel': 3, "
	"'padding': 1}, "
	"{'name': 't1', 'kind': 'tanh', 'inputs': ['s1']}, "
	"{'name': 's2', 'kind': 'conv2d', 'inputs': ['t1'], 'out_channels': 20, 'kernel': 3, "
	"'padding': 1, 'shares': 's1'}, "
	"{'name': 'd1', 'kind': 'dropout', 'inputs': ['s2'], 'p': 0.2}, "
	"{'name': 'p2', 'kind': 'avgpool2d', 'inputs': ['r1'], 'kernel': 2}, "
	"{'name': 'cat', 'kind': 'concat', 'inputs': ['d1', 'p1', 'p2']}, "
	"{'name': 'c3', 'kind': 'conv2d', 'inputs': ['cat'], 'out_channels': 32, 'kernel': 1}, "
	"{'name': 'p3', 'kind': 'adaptive_avgpool2d', 'inputs': ['c3'], 'output_size': [3, 3]}, "
	"{'name': 't3', 'kind': 'tanh', 'inputs': ['p3']}, "
	"{'name': 'flat', 'kind': 'flatten', 'inputs': ['t3']}, "
	"{'name': 'r4', 'kind': 'relu', 'inputs': ['flat']}, "
	"{'name': 'flat2', 'kind': 'flatten', 'inputs': ['t3']}, "
	"{'name': 'both', 'kind': 'concat', 'inputs': ['r4', 'flat2']}, "
	"{'name': 'f1', 'kind': 'linear', 'inputs': ['both'], 'out_features': 24}, "
	"{'name': 'ln', 'kind': 'layernorm', 'inputs': ['f1']}, "
	"{'name': 'g1', 'kind': 'sigmoid', 'inputs': ['ln']}, "
	"{'name': 'f2', 'kind': 'linear', 'inputs': ['g1'], 'out_features': 10}, "
	"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['f2', 'y']}";

/*
 * What residual networks are made of: a block whose shortcut is the input, one whose shortcut has
 * a convolution, one that normalises first and adds what it was made from, sums without a relu.
 */
static const char residual[] =
	"{'name': 'c0', 'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 8, 'kernel': 3, "
	"'padding': 1}, "
	"{'name': 'n0', 'kind': 'batchnorm2d', 'inputs': ['c0']}, "
	"{'name': 'r0', 'kind': 'relu', 'inputs': ['n0']}, "
	"{'name': 'c1', 'kind': 'conv2d', 'inputs': ['r0'], 'out_channels': 8, 'kernel': 1}, "
	"{'name': 'n1', 'kind': 'batchnorm2d', 'inputs': ['c1']}, "
	"{'name': 'a1', 'kind': 'add', 'inputs': ['n1', 'r0']}, "
	"{'name': 'r1', 'kind': 'relu', 'inputs': ['a1']}, "
	"{'name': 'c2', 'kind': 'conv2d', 'inputs': ['r1'], 'out_channels': 16, 'kernel': 3, "
	"'padding': 1}, "
	"{'name': 'n2', 'kind': 'batchnorm2d', 'inputs': ['c2']}, "
	"{'name': 'c3', 'kind': 'conv2d', 'inputs': ['r1'], 'out_channels': 16, 'kernel': 1}, "
	"{'name': 'n3', 'kind': 'batchnorm2d', 'inputs': ['c3']}, "
	"{'name': 'a2', 'kind': 'add', 'inputs': ['n2', 'n3']}, "
	"{'name': 'n4', 'kind': 'batchnorm2d', 'inputs': ['a2']}, "
	"{'name': 'r4', 'kind': 'relu', 'inputs': ['n4']}, "
	"{'name': 'c4', 'kind': 'conv2d', 'inputs': ['r4'], 'out_channels': 16, 'kernel': 1}, "
	"{'name': 'a3', 'kind': 'add', 'inputs': ['c4', 'a2', 'c4']}, "
	"{'name': 'a4', 'kind': 'add', 'inputs': ['a3', 'a2']}, "
	"{'name': 'n5', 'kind': 'batchnorm2d', 'inputs': ['a4']}, "
	"{'name': 'p', 'kind': 'adaptive_avgpool2d', 'inputs': ['n5'], 'output_size': 1}, "
	"{'name': 'flat', 'kind': 'flatten', 'inputs': ['p']}, "
	"{'name': 'f', 'kind': 'linear', 'inputs': ['flat'], 'out_features': 10}, "
	"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['f', 'y']}";

/* Sequences of 11 rows; labels are lengths, too. */
static const char sequence[] =
	"{'name': 'in', 'kind': 'linear', 'inputs': ['x'], 'out_features': 16}, "
	"{'name': 'ln', 'kind': 'layernorm', 'inputs': ['in']}, "
	"{'name': 'q', 'kind': 'linear', 'inputs': ['ln'], 'out_features': 16}, "
	"{'name': 'k', 'kind': 'linear', 'inputs': ['ln'], 'out_features': 8}, "
	"{'name': 'v', 'kind': 'linear', 'inputs': ['ln'], 'out_features': 12}, "
	"{'name': 'att', 'kind': 'attention', 'inputs': ['q', 'k', 'v', 'y'], 'heads': 4, "
	"'kv_heads': 2, 'causal': true, 'dropout': 0.1}, "
	"{'name': 'o', 'kind': 'linear', 'inputs': ['att'], 'out_features': 16}, "
	"{'name': 'sum', 'kind': 'add', 'inputs': ['o', 'in']}, "
	"{'name': 'add', 'kind': 'bias', 'inputs': ['sum']}, "
	"{'name': 'self', 'kind': 'attention', 'inputs': ['add', 'add', 'add'], 'heads': 2}, "
	"{'name': 'look', 'kind': 'additive_attention', 'inputs': ['self', 'add', 'y']}, "
	"{'name': 'again', 'kind': 'add', 'inputs': ['look', 'self']}, "
	"{'name': 'few', 'kind': 'linear', 'inputs': ['again'], 'out_features': 3}, "
	"{'name': 'flat', 'kind': 'flatten', 'inputs': ['few']}, "
	"{'name': 't', 'kind': 'tanh', 'inputs': ['flat']}, "
	"{'name': 'f', 'kind': 'linear', 'inputs': ['t'], 'out_features': 10}, "
	"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['f', 'y']}";

struct pd_model *sequence_model(void)
{
	return model_of("11, 6", sequence);
}

/*
 * The labels are lengths, too; b is used twice, and shares its parameters with e; c carries state on
 * from the minibatch before the last one.
 */
static const char recurrent[] =
	"{'name': 'a', 'kind': 'lstm', 'inputs': ['x', 'y'], 'hidden_size': 7, "
	"'bidirectional': true, 'weight_dropout': 0.3}, "
	"{'name': 'b', 'kind': 'lstm', 'inputs': ['a'], 'hidden_size': 14}, "
	"{'name': 'c', 'kind': 'lstm', 'inputs': ['b'], 'hidden_size': 14, 'lanes': 12, "
	"'weight_dropout': 0.1}, "
	"{'name': 'j', 'kind': 'add', 'inputs': ['c', 'b']}, "
	"{'name': 'd', 'kind': 'dropout', 'inputs': ['j'], 'p': 0.2}, "
	"{'name': 'e', 'kind': 'lstm', 'inputs': ['d'], 'hidden_size': 14, 'shares': 'b'}, "
	"{'name': 'f', 'kind': 'lstm', 'inputs': ['e', 'y'], 'hidden_size': 6, 'bias': false, "
	"'bidirectional': true}, "
	"{'name': 'flat', 'kind': 'flatten', 'inputs': ['f']}, "
	"{'name': 'out', 'kind': 'linear', 'inputs': ['flat'], 'out_features': 10}, "
	"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['out', 'y']}";

struct pd_model *recurrent_model(void)
{
	return model_of("9, 5", recurrent);
}

/*
 * Tokens and features, with positions; a block of attention on rotated queries and keys, which are
 * slices of one product, and one with a gate; layers along the positions; a mean beside what it is
 * taken of.
 */
static const char transformer[] =
	"{'name': 'tok', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': 10, "
	"'embedding_dim': 12, 'padding_idx': 7}, "
	"{'name': 'pos', 'kind': 'position_embedding', 'inputs': ['tok'], 'num_embeddings': 9}, "
	"{'name': 'in', 'kind': 'linear', 'inputs': ['x'], 'out_features': 12}, "
	"{'name': 'a0', 'kind': 'add', 'inputs': ['pos', 'in']}, "
	"{'name': 'n1', 'kind': 'rmsnorm', 'inputs': ['a0']}, "
	"{'name': 'qkv', 'kind': 'linear', 'inputs': ['n1'], 'out_features': 36}, "
	"{'name': 'q', 'kind': 'slice', 'inputs': ['qkv'], 'dim': 2, 'end': 12}, "
	"{'name': 'k', 'kind': 'slice', 'inputs': ['qkv'], 'dim': 2, 'start': 12, 'end': 24}, "
	"{'name': 'v', 'kind': 'slice', 'inputs': ['qkv'], 'dim': 2, 'start': 24}, "
	"{'name': 'qr', 'kind': 'rope', 'inputs': ['q'], 'head_dim': 6}, "
	"{'name': 'kr', 'kind': 'rope', 'inputs': ['k'], 'head_dim': 6, 'interleaved': true}, "
	"{'name': 'att', 'kind': 'attention', 'inputs': ['qr', 'kr', 'v'], 'heads': 2, "
	"'causal': true}, "
	"{'name': 'o', 'kind': 'linear', 'inputs': ['att'], 'out_features': 12}, "
	"{'name': 'a1', 'kind': 'add', 'inputs': ['a0', 'o']}, "
	"{'name': 'n2', 'kind': 'layernorm', 'inputs': ['a1']}, "
	"{'name': 'up', 'kind': 'linear', 'inputs': ['n2'], 'out_features': 20}, "
	"{'name': 's', 'kind': 'silu', 'inputs': ['up']}, "
	"{'name': 'gate', 'kind': 'linear', 'inputs': ['n2'], 'out_features': 20}, "
	"{'name': 'm', 'kind': 'mul', 'inputs': ['s', 'gate']}, "
	"{'name': 'd', 'kind': 'dropout', 'inputs': ['m'], 'p': 0.2, 'shared_dim': 1}, "
	"{'name': 'down', 'kind': 'linear', 'inputs': ['d'], 'out_features': 12}, "
	"{'name': 'a2', 'kind': 'add', 'inputs': ['a1', 'down']}, "
	"{'name': 't', 'kind': 'transpose', 'inputs': ['a2'], 'dim0': 1, 'dim1': 2}, "
	"{'name': 'mix', 'kind': 'linear', 'inputs': ['t'], 'out_features': 6}, "
	"{'name': 'g', 'kind': 'gelu', 'inputs': ['mix']}, "
	"{'name': 'r', 'kind': 'reshape', 'inputs': ['g'], 'shape': [6, 12]}, "
	"{'name': 'mean', 'kind': 'mean', 'inputs': ['r'], 'dim': 1, 'keepdim': true}, "
	"{'name': 'rest', 'kind': 'slice', 'inputs': ['r'], 'dim': 1, 'start': 1}, "
	"{'name': 'both', 'kind': 'concat', 'inputs': ['mean', 'rest'], 'dim': 1}, "
	"{'name': 'wide', 'kind': 'concat', 'inputs': ['both', 'a2'], 'dim': 2}, "
	"{'name': 'head', 'kind': 'linear', 'inputs': ['wide'], 'out_features': 10}, "
	"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['head', 'y'], "
	"'ignore_index': 3, 'label_smoothing': 0.1}";

struct pd_model *transformer_model(void)
{
	return model_with("6, 8", "6", transformer);
}

struct pd_model *branching_model(void)
{
	return model_of("3, 8, 8", branching);
}

struct pd_model *residual_model(void)
{
	return model_of("3, 6, 6", residual);
}

bool chain_usable(const struct pd_device_ops *ops)
{
	const char *wanted = getenv("PD_TEST_DEVICE");

	return (!wanted || strcmp(wanted, ops->name) == 0) && ops->count(NULL) > 0;
}

enum pd_dtype chain_dtype = PD_F32;
bool chain_untimed;

static const struct {
	enum pd_dtype dtype;
	const char *way;                /* the CPU's kernels */
} types[CHAIN_TYPES] = {
	{ PD_F32, NULL }, { PD_BF16, "native" }, { PD_BF16, "wide" }, { PD_F16, NULL },
};

static const char *chain_way;           /* that was taken */

const char *chain_name(const struct pd_device_ops *ops)
{
	static char name[64];

	snprintf(name, sizeof(name), chain_dtype == PD_F32 ? "%s" : "%s in %s%s%s", ops->name,
		 pd_dtype_name[chain_dtype], chain_way ? ", " : "", chain_way ? chain_way : "");
	return name;
}

static bool knows_type(const struct pd_device_ops *ops, enum pd_dtype dtype)
{
	struct pd_model *model = branching_model();
	struct pd_device_config device = { .threads = 1 };
	struct pd_net_config config = { .model = model, .count = model->layer_count,
					.batch_size = 1, .dtype = dtype };
	struct pd_error err = { .text = "" };
	struct pd_device *d = ops->open(&device, &err);
	struct pd_net *net;
	bool knows;

	check(d != NULL, &err);
	net = ops->net.open(d, &config, &err);
	knows = net != NULL;
	if (!knows)
		diag("%s", err.text);
	if (knows)
		ops->net.close(net);
	ops->close(d);
	pd_model_free(model);
	return knows;
}

bool chain_take(const struct pd_device_ops *ops, int number)
{
	bool cpu = ops == &pd_device_cpu;

	chain_dtype = types[number].dtype;
	chain_way = cpu ? types[number].way : NULL;
	if (chain_way)
		setenv("PD_CPU_BF16", chain_way, 1);
	else
		unsetenv("PD_CPU_BF16");
	if (!cpu && types[number].way && strcmp(types[number].way, "wide") == 0)
		return false;
	return chain_dtype == PD_F32 || knows_type(ops, chain_dtype);
}

float chain_round(enum pd_dtype dtype, float x)
{
	return dtype == PD_BF16 ? pd_from_bf16(pd_to_bf16(x))
	     : dtype == PD_F16 ? pd_from_f16(pd_to_f16(x)) : x;
}

static char *alloc(struct chain *c, size_t bytes)
{
	struct pd_error err;
	char *ptr = c->ops->memory.alloc(c->device, bytes, &err);

	check(ptr != NULL, &err);
	return ptr;
}

int chain_engines;

/* PD_TEST_ENGINES: what the plan would have recorded for each layer. */
static struct pd_net *net_open(struct chain *c, struct pd_net_config *config, struct pd_error *err)
{
	size_t layers = (size_t)c->model->layer_count;
	const char **engines = pd_calloc(layers, sizeof(*engines));
	struct pd_net *net;

	for (size_t l = 0; l < layers; l++)
		engines[l] = getenv("PD_TEST_ENGINES");
	config->engines = engines;
	net = c->ops->net.open(c->device, config, err);
	for (int l = config->first; net && l < config->first + config->count; l++) {
		struct pd_net_layer layer;

		c->ops->net.layer(net, l, &layer);
		chain_engines += layer.engines != NULL;
	}
	free(engines);
	return net;
}

static void stage_open(struct chain *c, struct stage *s, uint64_t seed)
{
	struct pd_net_config config = {
		.model = c->model, .first = s->first, .count = s->count,
		.batch_size = c->batch, .seed = seed, .split = c->split, .dtype = c->dtype,
	};
	struct pd_error err;

	s->net = net_open(c, &config, &err);
	check(s->net != NULL, &err);
	s->sizes = c->ops->net.sizes(s->net);
	s->weights = alloc(c, s->sizes->weights_bytes);
	s->master = c->dtype != PD_F32 ? alloc(c, s->sizes->full_bytes) : NULL;
	s->gradients = alloc(c, s->sizes->full_bytes);
	s->velocity = alloc(c, s->sizes->full_bytes);
	s->second = alloc(c, s->sizes->full_bytes);
	s->state = alloc(c, s->sizes->state_bytes);
	s->inbox = alloc(c, s->sizes->inbox_bytes);
	s->slot = alloc(c, s->sizes->slot_bytes);
	s->scratch = alloc(c, s->sizes->scratch_bytes);
	s->in = alloc(c, s->sizes->gradient_in_bytes);
	s->out = alloc(c, s->sizes->gradient_out_bytes);
	check(c->ops->net.init(s->net, s->weights, s->master, s->state, &err) == 0, &err);
}

static struct chain *open_all(const struct pd_device_ops *ops, const struct pd_model *model,
			      const int *cuts, int cut_count, int64_t batch, uint64_t seed,
			      int threads, bool split)
{
	struct chain *c = pd_zalloc(sizeof(*c));
	struct pd_device_config config = { .threads = threads, .gate = &c->gate,
					   .untimed = chain_untimed };
	struct pd_error err;

	c->ops = ops;
	c->model = model;
	c->split = split;
	c->dtype = chain_dtype;
	c->batch = c->valid = batch;
	check(pd_gate_init(&c->gate, &err) == 0, &err);
	c->device = ops->open(&config, &err);
	check(c->device != NULL, &err);
	c->stream = ops->stream.open(c->device, &err);
	check(c->stream != NULL, &err);
	c->stage_count = cut_count + 1;
	c->stages = pd_calloc((size_t)c->stage_count, sizeof(*c->stages));
	for (int i = 0; i <= cut_count; i++) {
		struct stage *s = &c->stages[i];

		s->first = i ? cuts[i - 1] : 0;
		s->count = (i < cut_count ? cuts[i] : model->layer_count) - s->first;
		stage_open(c, s, seed);
	}
	return c;
}

struct chain *chain_open(const struct pd_device_ops *ops, const struct pd_model *model,
			 const int *cuts, int cut_count, int64_t batch, uint64_t seed, int threads)
{
	return open_all(ops, model, cuts, cut_count, batch, seed, threads, false);
}

struct chain *chain_open_split(const struct pd_device_ops *ops, const struct pd_model *model,
			       const int *cuts, int cut_count, int64_t batch, uint64_t seed,
			       int threads)
{
	return open_all(ops, model, cuts, cut_count, batch, seed, threads, true);
}

void chain_close(struct chain *c)
{
	c->ops->stream.close(c->stream);
	for (int i = 0; i < c->stage_count; i++) {
		struct stage *s = &c->stages[i];

		c->ops->net.close(s->net);
		c->ops->memory.free(c->device, s->weights);
		if (s->master)
			c->ops->memory.free(c->device, s->master);
		c->ops->memory.free(c->device, s->gradients);
		c->ops->memory.free(c->device, s->velocity);
		c->ops->memory.free(c->device, s->second);
		c->ops->memory.free(c->device, s->state);
		c->ops->memory.free(c->device, s->inbox);
		c->ops->memory.free(c->device, s->slot);
		c->ops->memory.free(c->device, s->scratch);
		c->ops->memory.free(c->device, s->in);
		c->ops->memory.free(c->device, s->out);
	}
	c->ops->close(c->device);
	pd_gate_release(&c->gate);
	free(c->stages);
	free(c);
}

static void copy(struct chain *c, void *dst, const void *src, size_t bytes, enum pd_copy way)
{
	struct pd_event ev;

	pd_event_arm(&ev);
	c->ops->stream.copy(c->stream, dst, src, bytes, way, &ev);
	pd_event_wait(&ev, &c->gate);
}

/* As the loader rounds. */
static void *rounded(const struct chain *c, const float *x)
{
	size_t n = (size_t)(c->batch * pd_shape_elements(&c->model->inputs[0].shape));
	uint16_t *out = pd_calloc(n, sizeof(*out));

	for (size_t i = 0; i < n; i++)
		out[i] = c->dtype == PD_BF16 ? pd_to_bf16(x[i]) : pd_to_f16(x[i]);
	return out;
}

void chain_load(struct chain *c, const float *x, const int32_t *y)
{
	bool rounds = c->dtype != PD_F32 && c->model->inputs[0].dtype == PD_F32;
	void *narrow = rounds ? rounded(c, x) : NULL;

	for (int i = 0; i < c->stage_count; i++)
		for (int k = 0; k < c->stages[i].sizes->in_count; k++) {
			const struct pd_net_tensor *t = &c->stages[i].sizes->in[k];
			const void *src = t->tensor != 0 ? (const void *)y
					  : narrow ? narrow : (const void *)x;

			if (t->tensor < c->model->input_count)
				copy(c, c->stages[i].inbox + t->offset, src, t->bytes,
				     PD_COPY_TO_DEVICE);
		}
	free(narrow);
}

static bool pass_once(struct chain *c, struct stage *s, bool back, enum pd_backward_part part,
		      bool again)
{
	struct pd_pass p = {
		.weights = s->weights, .state = s->state, .gradients = s->gradients,
		.inbox = s->inbox, .slot = s->slot, .scratch = s->scratch, .gradient_in = s->in,
		.gradient_out = s->out, .first_sample = c->first_sample, .valid = c->valid,
		.evaluate = c->evaluate, .losses = &c->loss, .part = part,
		.again = again,
	};
	int step = c->singly ? 1 : s->count;
	struct pd_event ev;

	if (part == PD_BACKWARD_WEIGHT)
		p.gradient_in = p.gradient_out = NULL;
	for (int done = 0; done < s->count; done += step) {
		int from = back ? s->first + s->count - done - step : s->first + done;

		pd_event_arm(&ev);
		if (back)
			c->ops->net.backward(c->stream, s->net, &p, from, step, &ev);
		else
			c->ops->net.forward(c->stream, s->net, &p, from, step, &ev);
		pd_event_wait(&ev, &c->gate);
		if (pd_event_failed(&ev))
			return false;
	}
	return true;
}

static bool pass(struct chain *c, struct stage *s, bool back)
{
	enum pd_backward_part part = back && c->parts ? PD_BACKWARD_INPUT : PD_BACKWARD_ALL;

	return pass_once(c, s, back, part, false) &&
	       (!c->twice || pass_once(c, s, back, part, !back));
}

static void spoil(struct chain *c, void *memory, size_t bytes)
{
	char *rubbish = malloc(bytes ? bytes : 1);

	memset(rubbish, 0xff, bytes);
	copy(c, memory, rubbish, bytes, PD_COPY_TO_DEVICE);
	free(rubbish);
}

static bool weight_parts(struct chain *c)
{
	for (int i = c->stage_count - 1; i >= 0; i--) {
		struct stage *s = &c->stages[i];

		spoil(c, s->scratch, s->sizes->scratch_bytes);
		spoil(c, s->in, s->sizes->gradient_in_bytes);
		spoil(c, s->out, s->sizes->gradient_out_bytes);
		if (!pass_once(c, s, true, PD_BACKWARD_WEIGHT, false))
			return false;
	}
	return true;
}

static const struct pd_net_tensor *find(const struct pd_net_tensor *list, int count, int tensor)
{
	for (int i = 0; i < count; i++)
		if (list[i].tensor == tensor)
			return &list[i];
	return NULL;
}

/* What leaves stage i goes to the first later one that takes it; its gradient comes back. */
static void cross(struct chain *c, int i, bool back)
{
	struct stage *from = &c->stages[i];

	for (int k = 0; k < from->sizes->out_count; k++) {
		const struct pd_net_tensor *out = &from->sizes->out[k], *in = NULL;
		struct stage *to = from;

		while (!in) {
			to++;
			in = find(to->sizes->in, to->sizes->in_count, out->tensor);
		}
		if (!back)
			copy(c, to->inbox + in->offset,
			     (out->inbox ? from->inbox : from->slot) + out->offset,
			     in->bytes, PD_COPY_WITHIN);
		else if (out->gradient_offset != SIZE_MAX)
			copy(c, from->in + out->gradient_offset, to->out + in->gradient_offset,
			     in->bytes, PD_COPY_WITHIN);
	}
}

bool chain_forward(struct chain *c)
{
	for (int i = 0; i < c->stage_count; i++) {
		if (!pass(c, &c->stages[i], false))
			return false;
		cross(c, i, false);
	}
	return true;
}

bool chain_backward(struct chain *c)
{
	for (int i = c->stage_count - 1; i >= 0; i--) {
		cross(c, i, true);
		if (!pass(c, &c->stages[i], true))
			return false;
	}
	return !c->parts || weight_parts(c);
}

void chain_step(struct chain *c, const struct pd_update *how)
{
	for (int i = 0; i < c->stage_count; i++) {
		struct stage *s = &c->stages[i];
		struct pd_update update = *how;
		struct pd_event ev;

		update.weights = update.next = s->weights;
		update.master = s->master;
		update.gradients = s->gradients;
		update.velocity = how->kind != PD_SGD || how->momentum != 0 ? s->velocity : NULL;
		update.second = s->second;
		pd_event_arm(&ev);
		c->ops->net.update(c->stream, s->net, &update, s->first, s->count, &ev);
		pd_event_wait(&ev, &c->gate);
	}
}

void chain_update(struct chain *c, float rate, float momentum, float decay)
{
	chain_step(c, &(struct pd_update){ .rate = rate, .momentum = momentum,
					   .weight_decay = decay });
}

static char *arena_of(const struct stage *s, enum arena arena)
{
	switch (arena) {
	case WEIGHTS:
		return s->weights;
	case GRADIENTS:
		return s->gradients;
	case VELOCITY:
		return s->velocity;
	case STATE:
		return s->state;
	default:
		return s->master ? s->master : s->weights;
	}
}

float *chain_export(struct chain *c, enum arena arena, int64_t *count_p)
{
	float *all = NULL;
	size_t capacity = 0, count = 0;

	for (int i = 0; i < c->stage_count; i++) {
		struct stage *s = &c->stages[i];
		const struct pd_named *list;
		int n = c->ops->net.named(s->net, &list);

		for (int k = 0; k < n; k++) {
			size_t elements = (size_t)list[k].elements;

			if ((list[k].part == PD_PART_STATE) != (arena == STATE))
				continue;
			all = pd_grow(all, &capacity, count + elements, sizeof(*all));
			c->ops->net.export(s->net, k, arena == WEIGHTS ? PD_WORKING : PD_FULL,
					   arena_of(s, arena), all + count);
			count += elements;
		}
	}
	*count_p = (int64_t)count;
	return all;
}

void chain_import_weights(struct chain *c, const float *all)
{
	for (int i = 0; i < c->stage_count; i++) {
		struct stage *s = &c->stages[i];
		const struct pd_named *list;
		int n = c->ops->net.named(s->net, &list);

		for (int k = 0; k < n; k++) {
			if (list[k].part == PD_PART_STATE)
				continue;
			c->ops->net.import(s->net, k, PD_WORKING, s->weights, all);
			all += list[k].elements;
		}
	}
}
