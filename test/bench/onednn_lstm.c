/* SPDX-License-Identifier: Apache-2.0 */
#include "onednn_lstm.h"

#include "base/mem.h"
#include "run/device/cpu/dnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(dnnl_status_t status, const char *what)
{
	if (status == dnnl_success)
		return;
	fprintf(stderr, "lstm: %s: oneDNN's status %d\n", what, (int)status);
	exit(3);
}

enum { FORWARD, BACKWARD };

/* The tensors that are brought into the layouts of the primitives, and out of them, as {from, to}. */
static const int moves[][2] = {
	{ PLAIN_WEIGHTS, WEIGHTS_AHEAD }, { PLAIN_HIDDEN_WEIGHTS, HIDDEN_WEIGHTS_AHEAD },
	{ PLAIN_WEIGHTS, WEIGHTS_BACK }, { PLAIN_HIDDEN_WEIGHTS, HIDDEN_WEIGHTS_BACK },
	{ D_WEIGHTS, PLAIN_D_WEIGHTS }, { D_HIDDEN_WEIGHTS, PLAIN_D_HIDDEN_WEIGHTS },
};

struct onednn_lstm {
	struct lstm_shape shape;
	dnnl_data_type_t type;
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_primitive_desc_t desc[2];
	dnnl_primitive_t op[2], move[PD_COUNT(moves)];
	dnnl_memory_desc_t md[TENSORS];
	dnnl_memory_t memory[TENSORS];
};

const struct lstm_shape *onednn_lstm_shape(const struct onednn_lstm *t)
{
	return &t->shape;
}

size_t onednn_lstm_bytes(const struct onednn_lstm *t, int tensor)
{
	return dnnl_memory_desc_get_size(t->md[tensor]);
}

void *onednn_lstm_data(const struct onednn_lstm *t, int tensor)
{
	void *data;

	check(dnnl_memory_get_data_handle(t->memory[tensor], &data), "memory");
	return data;
}

static void describe(struct onednn_lstm *t, int tensor, dnnl_data_type_t type,
		     dnnl_format_tag_t tag, int dims, const int64_t *size)
{
	check(dnnl_memory_desc_create_with_tag(&t->md[tensor], dims, size, type, tag), "a layout");
}

/* Describes each tensor's layout, or lets the primitive choose it, before there is a primitive. */
static void describe_all(struct onednn_lstm *t)
{
	const struct lstm_shape *s = &t->shape;
	int64_t in[] = { s->steps, s->batch, s->inputs }, out[] = { s->steps, s->batch, s->hidden };
	int64_t bias[] = { 1, 1, 4, s->hidden }, state[] = { 1, 1, s->batch, s->hidden };
	int64_t weights[] = { 1, 1, s->inputs, 4, s->hidden };
	int64_t hidden[] = { 1, 1, s->hidden, 4, s->hidden };

	describe(t, INPUT, t->type, dnnl_tnc, 3, in);
	describe(t, OUTPUT, t->type, dnnl_tnc, 3, out);
	describe(t, BIAS, dnnl_f32, dnnl_ldgo, 4, bias);
	describe(t, PLAIN_WEIGHTS, t->type, dnnl_ldgoi, 5, weights);
	describe(t, PLAIN_HIDDEN_WEIGHTS, t->type, dnnl_ldgoi, 5, hidden);
	describe(t, WEIGHTS_AHEAD, t->type, dnnl_format_tag_any, 5, weights);
	describe(t, HIDDEN_WEIGHTS_AHEAD, t->type, dnnl_format_tag_any, 5, hidden);
	describe(t, STATE_BEFORE, t->type, dnnl_ldnc, 4, state);
	describe(t, CELLS_BEFORE, dnnl_f32, dnnl_ldnc, 4, state);
	describe(t, D_INPUT, dnnl_f32, dnnl_tnc, 3, in);
	describe(t, D_OUTPUT, dnnl_f32, dnnl_tnc, 3, out);
	describe(t, D_WEIGHTS, dnnl_f32, dnnl_format_tag_any, 5, weights);
	describe(t, D_HIDDEN_WEIGHTS, dnnl_f32, dnnl_format_tag_any, 5, hidden);
	describe(t, D_BIAS, dnnl_f32, dnnl_ldgo, 4, bias);
	describe(t, PLAIN_D_WEIGHTS, dnnl_f32, dnnl_ldgoi, 5, weights);
	describe(t, PLAIN_D_HIDDEN_WEIGHTS, dnnl_f32, dnnl_ldgoi, 5, hidden);
	describe(t, D_STATE_BEFORE, dnnl_f32, dnnl_ldnc, 4, state);
	describe(t, D_CELLS_BEFORE, dnnl_f32, dnnl_ldnc, 4, state);
}

#if DNNL_VERSION_MAJOR < 3
static void make_descs(struct onednn_lstm *t, dnnl_primitive_attr_t attr)
{
	dnnl_memory_desc_t *md = t->md, none = pd_zalloc(sizeof(*none));
	dnnl_rnn_desc_t d;

	check(dnnl_lstm_forward_desc_init(&d, dnnl_forward_training, dnnl_unidirectional_left2right,
		md[INPUT], md[STATE_BEFORE], md[CELLS_BEFORE], md[WEIGHTS_AHEAD],
		md[HIDDEN_WEIGHTS_AHEAD], md[BIAS], md[OUTPUT], none, none, 0), "forward");
	check(dnnl_primitive_desc_create(&t->desc[FORWARD], &d, attr, t->engine, NULL), "forward");
	check(dnnl_lstm_backward_desc_init(&d, dnnl_backward, dnnl_unidirectional_left2right,
		md[INPUT], md[STATE_BEFORE], md[CELLS_BEFORE], md[WEIGHTS_AHEAD],
		md[HIDDEN_WEIGHTS_AHEAD], md[BIAS], md[OUTPUT], none, none, md[D_INPUT],
		md[D_STATE_BEFORE], md[D_CELLS_BEFORE], md[D_WEIGHTS], md[D_HIDDEN_WEIGHTS], md[D_BIAS],
		md[D_OUTPUT], none, none, 0), "backward");
	check(dnnl_primitive_desc_create(&t->desc[BACKWARD], &d, attr, t->engine, t->desc[FORWARD]),
	      "backward");
	free(none);
}
#else
static void make_descs(struct onednn_lstm *t, dnnl_primitive_attr_t attr)
{
	dnnl_memory_desc_t *md = t->md;

	check(dnnl_lstm_forward_primitive_desc_create(&t->desc[FORWARD], t->engine,
		dnnl_forward_training, dnnl_unidirectional_left2right, md[INPUT], md[STATE_BEFORE],
		md[CELLS_BEFORE], md[WEIGHTS_AHEAD], md[HIDDEN_WEIGHTS_AHEAD], NULL, NULL, md[BIAS],
		md[OUTPUT], NULL, NULL, 0, attr), "forward");
	check(dnnl_lstm_backward_primitive_desc_create(&t->desc[BACKWARD], t->engine, dnnl_backward,
		dnnl_unidirectional_left2right, md[INPUT], md[STATE_BEFORE], md[CELLS_BEFORE],
		md[WEIGHTS_AHEAD], md[HIDDEN_WEIGHTS_AHEAD], NULL, NULL, md[BIAS], md[OUTPUT], NULL,
		NULL, md[D_INPUT], md[D_STATE_BEFORE], md[D_CELLS_BEFORE], md[D_WEIGHTS],
		md[D_HIDDEN_WEIGHTS], NULL, NULL, md[D_BIAS], md[D_OUTPUT], NULL, NULL, 0,
		t->desc[FORWARD], attr), "backward");
}
#endif

/* Asks the primitives which layouts they chose. */
static void ask_all(struct onednn_lstm *t)
{
	static const struct {
		int tensor, way;
		dnnl_query_t what;
		int index;
	} chosen[] = {
		{ WEIGHTS_AHEAD, FORWARD, dnnl_query_weights_md, 0 },
		{ HIDDEN_WEIGHTS_AHEAD, FORWARD, dnnl_query_weights_md, 1 },
		{ WORKSPACE, FORWARD, dnnl_query_workspace_md, 0 },
		{ SCRATCH_AHEAD, FORWARD, dnnl_query_scratchpad_md, 0 },
		{ WEIGHTS_BACK, BACKWARD, dnnl_query_weights_md, 0 },
		{ HIDDEN_WEIGHTS_BACK, BACKWARD, dnnl_query_weights_md, 1 },
		{ D_WEIGHTS, BACKWARD, dnnl_query_diff_weights_md, 0 },
		{ D_HIDDEN_WEIGHTS, BACKWARD, dnnl_query_diff_weights_md, 1 },
		{ SCRATCH_BACK, BACKWARD, dnnl_query_scratchpad_md, 0 },
	};

	for (size_t i = 0; i < PD_COUNT(chosen); i++) {
		dnnl_memory_desc_t *md = &t->md[chosen[i].tensor];

		if (*md)
			dnnl_memory_desc_destroy(*md);
		check(dnnl_memory_desc_clone(md, dnnl_primitive_desc_query_md(t->desc[chosen[i].way],
			chosen[i].what, chosen[i].index)), "a layout");
	}
}

static dnnl_primitive_t reorder(struct onednn_lstm *t, const int *tensors)
{
	dnnl_primitive_desc_t desc;
	dnnl_primitive_t op;

	check(dnnl_reorder_primitive_desc_create(&desc, t->md[tensors[0]], t->engine,
						 t->md[tensors[1]], t->engine, NULL), "a reorder");
	check(dnnl_primitive_create(&op, desc), "a reorder");
	dnnl_primitive_desc_destroy(desc);
	return op;
}

struct onednn_lstm *onednn_lstm_open(const struct lstm_shape *s, enum pd_dtype dtype)
{
	struct onednn_lstm *t = pd_zalloc(sizeof(*t));
	dnnl_primitive_attr_t attr;

	t->shape = *s;
	t->type = dtype == PD_F32 ? dnnl_f32 : dnnl_bf16;
	check(dnnl_engine_create(&t->engine, dnnl_cpu, 0), "the engine");
	check(dnnl_stream_create(&t->stream, t->engine, dnnl_stream_default_flags), "the stream");
	check(dnnl_primitive_attr_create(&attr), "attributes");
	check(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "attributes");
	describe_all(t);
	make_descs(t, attr);
	dnnl_primitive_attr_destroy(attr);
	ask_all(t);
	for (int way = FORWARD; way <= BACKWARD; way++)
		check(dnnl_primitive_create(&t->op[way], t->desc[way]), "the primitive");
	for (size_t i = 0; i < PD_COUNT(moves); i++)
		t->move[i] = reorder(t, moves[i]);
	for (int i = 0; i < TENSORS; i++) {
		check(dnnl_memory_create(&t->memory[i], t->md[i], t->engine, DNNL_MEMORY_ALLOCATE),
		      "memory");
		memset(onednn_lstm_data(t, i), 0, onednn_lstm_bytes(t, i));
	}
	return t;
}

static void move(struct onednn_lstm *t, int first)
{
	for (int i = first; i < first + 2; i++) {
		dnnl_exec_arg_t args[] = { { DNNL_ARG_FROM, t->memory[moves[i][0]] },
					   { DNNL_ARG_TO, t->memory[moves[i][1]] } };

		check(dnnl_primitive_execute(t->move[i], t->stream, 2, args), "a reorder");
	}
}

static void execute(struct onednn_lstm *t, int way)
{
	bool back = way == BACKWARD;
	const dnnl_exec_arg_t args[] = {
		{ DNNL_ARG_SRC_LAYER, t->memory[INPUT] },
		{ DNNL_ARG_SRC_ITER, t->memory[STATE_BEFORE] },
		{ DNNL_ARG_SRC_ITER_C, t->memory[CELLS_BEFORE] },
		{ DNNL_ARG_WEIGHTS_LAYER, t->memory[back ? WEIGHTS_BACK : WEIGHTS_AHEAD] },
		{ DNNL_ARG_WEIGHTS_ITER,
		  t->memory[back ? HIDDEN_WEIGHTS_BACK : HIDDEN_WEIGHTS_AHEAD] },
		{ DNNL_ARG_BIAS, t->memory[BIAS] }, { DNNL_ARG_DST_LAYER, t->memory[OUTPUT] },
		{ DNNL_ARG_WORKSPACE, t->memory[WORKSPACE] },
		{ DNNL_ARG_SCRATCHPAD, t->memory[back ? SCRATCH_BACK : SCRATCH_AHEAD] },
		/* The last eight arguments are taken by backward alone. */
		{ DNNL_ARG_DIFF_DST_LAYER, t->memory[D_OUTPUT] },
		{ DNNL_ARG_DIFF_SRC_LAYER, t->memory[D_INPUT] },
		{ DNNL_ARG_DIFF_SRC_ITER, t->memory[D_STATE_BEFORE] },
		{ DNNL_ARG_DIFF_SRC_ITER_C, t->memory[D_CELLS_BEFORE] },
		{ DNNL_ARG_DIFF_WEIGHTS_LAYER, t->memory[D_WEIGHTS] },
		{ DNNL_ARG_DIFF_WEIGHTS_ITER, t->memory[D_HIDDEN_WEIGHTS] },
		{ DNNL_ARG_DIFF_BIAS, t->memory[D_BIAS] },
	};

	check(dnnl_primitive_execute(t->op[way], t->stream, back ? (int)PD_COUNT(args) : 9, args),
	      "the primitive");
}

void onednn_lstm_run(struct onednn_lstm *t)
{
	move(t, 0);
	execute(t, FORWARD);
	move(t, 2);
	for (int i = D_WEIGHTS; i <= D_BIAS; i++)       /* backward adds to these */
		memset(onednn_lstm_data(t, i), 0, onednn_lstm_bytes(t, i));
	execute(t, BACKWARD);
	move(t, 4);
	check(dnnl_stream_wait(t->stream), "the stream");
}

size_t onednn_lstm_besides(const struct onednn_lstm *t)
{
	size_t ahead = onednn_lstm_bytes(t, SCRATCH_AHEAD) + onednn_lstm_bytes(t, WEIGHTS_AHEAD) +
		       onednn_lstm_bytes(t, HIDDEN_WEIGHTS_AHEAD);
	size_t back = onednn_lstm_bytes(t, SCRATCH_BACK) + onednn_lstm_bytes(t, WEIGHTS_BACK) +
		      onednn_lstm_bytes(t, HIDDEN_WEIGHTS_BACK) + onednn_lstm_bytes(t, D_WEIGHTS) +
		      onednn_lstm_bytes(t, D_HIDDEN_WEIGHTS);

	return ahead > back ? ahead : back;
}

void onednn_lstm_close(struct onednn_lstm *t)
{
	for (size_t i = 0; i < PD_COUNT(moves); i++)
		dnnl_primitive_destroy(t->move[i]);
	for (int i = 0; i < TENSORS; i++) {
		dnnl_memory_destroy(t->memory[i]);
		dnnl_memory_desc_destroy(t->md[i]);
	}
	for (int way = FORWARD; way <= BACKWARD; way++) {
		dnnl_primitive_destroy(t->op[way]);
		dnnl_primitive_desc_destroy(t->desc[way]);
	}
	dnnl_stream_destroy(t->stream);
	dnnl_engine_destroy(t->engine);
	free(t);
}
