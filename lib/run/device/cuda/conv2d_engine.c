/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines for a convolution's graph are those that cuDNN's heuristics propose, or one by its name.
 * They are always made anew from their names, so that a run makes exactly what was timed.
 */
#include "run/device/cuda/descriptor.h"

/* Reads the engine and knobs of a configuration; -1: cuDNN does not say them. */
static int read_name(cudnnBackendDescriptor_t config, struct pd_engine_name *name)
{
	struct pd_dnn_bag bag = { .count = 0 };
	cudnnBackendDescriptor_t engine = create(&bag, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	cudnnBackendDescriptor_t knobs[PD_ENGINE_KNOBS];
	int64_t n = 0, got = 0;
	bool good = engine && get(config, CUDNN_ATTR_ENGINECFG_ENGINE,
				  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got, &engine) &&
		    get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got,
			&name->index);

	for (int k = 0; k < PD_ENGINE_KNOBS && good; k++) {
		knobs[k] = create(&bag, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
		good = knobs[k] != NULL;
	}
	good = good && get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
			   CUDNN_TYPE_BACKEND_DESCRIPTOR, PD_ENGINE_KNOBS, &n, knobs);
	good = good && n <= PD_ENGINE_KNOBS && name->index >= 0;
	for (int k = 0; k < n && good; k++) {
		cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;

		good = get(knobs[k], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
			   &got, &type) &&
		       get(knobs[k], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got,
			   &name->knobs[k].value);
		name->knobs[k].type = (int)type;
	}
	name->knob_count = (int)n;
	empty(&bag);
	return good ? 0 : -1;
}

static bool same_name(const struct pd_engine_name *a, const struct pd_engine_name *b)
{
	bool same = a->index == b->index && a->knob_count == b->knob_count;

	for (int k = 0; k < a->knob_count && same; k++)
		same = a->knobs[k].type == b->knobs[k].type &&
		       a->knobs[k].value == b->knobs[k].value;
	return same;
}

/*
 * Appends the proposals of one mode of the heuristics to n names, until there are `most`; returns
 * the new number.
 */
static int propose(const struct pd_dnn_graph *g, cudnnBackendHeurMode_t mode,
		   struct pd_engine_name *names, int n, int most)
{
	struct pd_dnn_bag bag = { .count = 0 };
	cudnnBackendDescriptor_t found[PD_DNN_ENGINES], d;
	int64_t count = 0;
	bool good;

	d = create(&bag, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	d = finish(d, set_part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph) &&
		   set(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
	good = d != NULL;
	for (size_t i = 0; i < PD_COUNT(found) && good; i++) {
		found[i] = create(&bag, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
		good = found[i] != NULL;
	}
	if (!good || !get(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
			  (int64_t)PD_COUNT(found), &count, found))
		count = 0;
	for (int64_t i = 0; i < count && i < (int64_t)PD_COUNT(found) && n < most; i++) {
		bool known = read_name(found[i], &names[n]) < 0;

		for (int k = 0; k < n && !known; k++)
			known = same_name(&names[k], &names[n]);
		n += !known;
	}
	empty(&bag);
	return n;
}

int pd_dnn_propose(const struct pd_dnn_graph *g, struct pd_engine_name names[PD_DNN_ENGINES])
{
	int n = propose(g, CUDNN_HEUR_MODE_A, names, 0, PD_DNN_ENGINES / 2);

	/* B often proposes the same as A; a quarter is left for the fallbacks */
	n = propose(g, CUDNN_HEUR_MODE_B, names, n, PD_DNN_ENGINES * 3 / 4);
	return propose(g, CUDNN_HEUR_MODE_FALLBACK, names, n, PD_DNN_ENGINES);
}

/*
 * Returns whether the engine is deterministic and keeps to the wanted arithmetic: for exact f32 no
 * tensor cores, which compute TF32.
 */
static bool keeps(cudnnBackendDescriptor_t engine, bool exact)
{
	cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	int64_t n = 0;

	if (!get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
		 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes))
		return false;
	for (int64_t i = 0; i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
		if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
		    notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
		    (exact && notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
		    notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
			return false;
	return true;
}

static cudnnBackendDescriptor_t configure(struct pd_dnn_bag *bag, cudnnBackendDescriptor_t engine,
					  const struct pd_engine_name *name)
{
	cudnnBackendDescriptor_t knobs[PD_ENGINE_KNOBS], d;
	bool good = true;

	for (int k = 0; k < name->knob_count && good; k++) {
		cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)name->knobs[k].type;

		d = create(bag, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
		knobs[k] = finish(d, set(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
					 CUDNN_TYPE_KNOB_TYPE, 1, &type) &&
				  set_int(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
					  name->knobs[k].value));
		good = knobs[k] != NULL;
	}
	d = create(bag, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	return finish(d, good && set_part(d, CUDNN_ATTR_ENGINECFG_ENGINE, engine) &&
		      (name->knob_count == 0 ||
		       set(d, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
			   name->knob_count, knobs)));
}

int pd_dnn_engine_open(struct pd_dnn_engine *e, const struct pd_dnn_graph *g, cudnnHandle_t dnn,
		       const struct pd_engine_name *name)
{
	cudnnBackendDescriptor_t engine = create(&e->bag, CUDNN_BACKEND_ENGINE_DESCRIPTOR), d;
	int64_t bytes = -1, n = 0;

	e->bias = g->bias;
	e->relu = g->relu;
	e->name = *name;
	engine = finish(engine, set_part(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, g->graph) &&
			set_int(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, name->index));
	if (engine && keeps(engine, g->exact)) {
		cudnnBackendDescriptor_t config = configure(&e->bag, engine, name);

		d = create(&e->bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
		e->plan = finish(d, set(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
					&dnn) &&
				 set_part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
	}
	if (e->plan && get(e->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
			   &n, &bytes) &&
	    bytes >= 0 && (uint64_t)bytes <= PD_CUDA_WORKSPACE_MOST) {
		e->workspace = (size_t)bytes;
		return 0;
	}
	pd_dnn_engine_close(e);
	return -1;
}

void pd_dnn_engine_close(struct pd_dnn_engine *e)
{
	empty(&e->bag);
	e->plan = NULL;
	e->workspace = 0;
}

cudnnStatus_t pd_dnn_run(const struct pd_dnn_engine *e, cudnnHandle_t dnn,
			 const struct pd_dnn_data *data)
{
	static const int64_t ids[] = { 'x', 'w', 'y', 'b' };
	const void *const at[] = { data->x, data->w, data->y, data->bias };
	struct pd_dnn_bag bag = { .count = 0 };
	cudnnBackendDescriptor_t d = create(&bag, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
	int64_t n = e->bias ? 4 : 3;
	cudnnStatus_t status = CUDNN_STATUS_INTERNAL_ERROR;

	d = finish(d, set(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids) &&
		   set(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at) &&
		   set(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
		       &data->workspace));
	if (d)
		status = cudnnBackendExecute(dnn, e->plan, d);
	empty(&bag);
	return status;
}
