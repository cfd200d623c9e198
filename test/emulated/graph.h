/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of cuDNN's graph API that convolutions need; cudnn.cc includes it.  A descriptor is a list of
 * attributes, and from a plan all descriptors can be found that led to it.  Engine 0 is not deterministic,
 * engine 1 has a knob, and both use tensor cores; engine 2 is the fallback.  Graphs that cuDNN 9.19
 * refuses are refused in the same way: they are accepted, but no engine is proposed (struct meaning,
 * offered).
 */
#include <list>
#include <map>

struct descriptor {
	cudnnBackendDescriptorType_t type;
	bool whole;
	std::map<int, std::vector<char>> values;

	template <typename T> std::vector<T> all(int name) const
	{
		auto found = values.find(name);

		if (found == values.end())
			return {};
		const T *first = (const T *)found->second.data();
		return std::vector<T>(first, first + found->second.size() / sizeof(T));
	}
	template <typename T> T one(int name) const
	{
		std::vector<T> list = all<T>(name);

		return list.size() == 1 ? list[0] : T();
	}
	const descriptor &part(int name) const
	{
		return *one<const descriptor *>(name);
	}
	template <typename T> void put(int name, const std::vector<T> &list)
	{
		const char *first = (const char *)list.data();

		values[name] = std::vector<char>(first, first + list.size() * sizeof(T));
	}
};

static const std::map<int, size_t> attribute_sizes = {
	{ CUDNN_TYPE_HANDLE, sizeof(void *) }, { CUDNN_TYPE_DATA_TYPE, sizeof(cudnnDataType_t) },
	{ CUDNN_TYPE_BOOLEAN, sizeof(bool) }, { CUDNN_TYPE_INT64, sizeof(int64_t) },
	{ CUDNN_TYPE_FLOAT, sizeof(float) }, { CUDNN_TYPE_VOID_PTR, sizeof(void *) },
	{ CUDNN_TYPE_CONVOLUTION_MODE, sizeof(cudnnConvolutionMode_t) },
	{ CUDNN_TYPE_HEUR_MODE, sizeof(cudnnBackendHeurMode_t) },
	{ CUDNN_TYPE_KNOB_TYPE, sizeof(cudnnBackendKnobType_t) },
	{ CUDNN_TYPE_NUMERICAL_NOTE, sizeof(cudnnBackendNumericalNote_t) },
	{ CUDNN_TYPE_POINTWISE_MODE, sizeof(cudnnPointwiseMode_t) },
	{ CUDNN_TYPE_BACKEND_DESCRIPTOR, sizeof(void *) },
};

static array array_of(const descriptor &tensor)
{
	std::vector<int64_t> size = tensor.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
	std::vector<int64_t> step = tensor.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
	cudnnDataType_t type = tensor.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
	array a = {};

	a.type = type == CUDNN_DATA_HALF ? F16 : type == CUDNN_DATA_BFLOAT16 ? BF16 : F32;
	for (int i = 0; i < 4; i++) {
		a.size[i] = (int)size[i];
		a.step[i] = step[i];
	}
	return a;
}

static int64_t id_of(const descriptor &tensor)
{
	return tensor.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)
		? 0 : tensor.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
}

/*
 * A graph as a convolution, with the ids of its tensors in memory (0 for a virtual tensor).
 * offered: all tensors in memory have one type, virtual ones are f32, and a relu follows a bias.  The
 * library has no engine for other graphs, such as a gradient in f32 of inputs of 16 bits.
 * aligned: all tensors are aligned to 16 bytes, as all engines but the last demand.
 */
struct meaning {
	convolution c;
	enum way way;
	int64_t x, w, y, bias, out;
	bool offered, aligned;
};

static void look_at(const descriptor &tensor, meaning *m)
{
	array a = array_of(tensor);

	m->offered &= a.type == (id_of(tensor) ? m->c.x.type : F32);
	m->aligned &= tensor.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) >= 16;
}

static bool convolution_of(const descriptor &op, meaning *m)
{
	static const struct {
		cudnnBackendDescriptorType_t type;
		int how, x, w, y, beta;
	} ways[] = {
		{ CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA },
		{ CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA },
		{ CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
		  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA },
	};

	for (int way = 0; way < 3; way++) {
		if (op.type != ways[way].type)
			continue;
		const descriptor &how = op.part(ways[way].how), &x = op.part(ways[way].x);
		const descriptor &w = op.part(ways[way].w), &y = op.part(ways[way].y);

		m->way = (enum way)way;
		m->c = { array_of(x), array_of(w), array_of(y), {}, NULL, NULL, NULL, NULL, false };
		m->c.old = op.one<float>(ways[way].beta);
		m->offered = m->aligned = true;
		for (const descriptor *tensor : { &x, &w, &y })
			look_at(*tensor, m);
		m->x = id_of(x);
		m->w = id_of(w);
		m->y = id_of(y);
		m->out = way == FORWARD ? m->y : way == DATA ? m->x : m->w;
		for (int i = 0; i < 2; i++) {
			m->c.how.padding[i] =
				(int)how.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[i];
			m->c.how.stride[i] =
				(int)how.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[i];
			m->c.how.dilation[i] =
				(int)how.all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS)[i];
		}
		m->c.how.groups = m->c.x.size[1] / m->c.w.size[1];
		return how.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) ==
		       CUDNN_DATA_FLOAT;
	}
	return false;
}

/* Adds an operation behind a convolution's forward, which must read the output of the one before it. */
static bool follow(const descriptor &op, const descriptor **from, meaning *m)
{
	const descriptor &how = op.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
	const descriptor &y = op.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);

	if (op.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR || m->c.relu ||
	    &op.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC) != *from || id_of(**from) != 0)
		return false;
	if (how.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_RELU_FWD) {
		m->c.relu = true;
		m->c.keeps_nan = how.one<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) ==
				 CUDNN_PROPAGATE_NAN;
	} else {
		m->bias = id_of(op.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
	}
	if (!m->c.relu)
		look_at(op.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), m);
	look_at(y, m);
	m->offered &= m->bias != 0;
	*from = &y;
	m->out = m->y = id_of(y);
	m->c.y = array_of(y);
	return true;
}

static bool meaning_of(const descriptor &graph, meaning *m)
{
	std::vector<descriptor *> ops = graph.all<descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
	const descriptor *from = NULL;

	*m = {};
	if (ops.empty() || !convolution_of(*ops[0], m))
		return false;
	if (m->way == FORWARD)
		from = &ops[0]->part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
	for (size_t i = 1; i < ops.size(); i++)
		if (m->way != FORWARD || !follow(*ops[i], &from, m))
			return false;
	array x = m->c.x, w = m->c.w, y = m->c.y;
	x.type = w.type = y.type;
	return m->x && m->w && m->y && fits(x, w, m->c.how, y) &&
	       !(ops.size() > 1 && getenv("PD_EMULATED_NO_FUSION"));
}

/* Returns a new descriptor that is never freed, since others refer to it. */
static descriptor *kept(cudnnBackendDescriptorType_t type)
{
	static std::list<descriptor> all;

	all.push_back({ type, true, {} });
	return &all.back();
}

/* Returns the engines that a mode of the heuristics proposes, best first. */
static std::vector<int64_t> proposals(const descriptor &heuristics)
{
	meaning m;

	if (!meaning_of(heuristics.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), &m) || !m.offered)
		return {};
	switch (heuristics.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE)) {
	case CUDNN_HEUR_MODE_A:
		return m.aligned ? std::vector<int64_t>{ 0, 1 } : std::vector<int64_t>{};
	case CUDNN_HEUR_MODE_B:
		return m.aligned ? std::vector<int64_t>{ 1, 0 } : std::vector<int64_t>{};
	case CUDNN_HEUR_MODE_FALLBACK:
		return { 0, 2 };
	default:
		return {};
	}
}

#define KNOB_VALUE ((int64_t)-1)        /* the value of engine 1's knob */

/* Stores engine i in a configuration. */
static void propose_engine(const descriptor &heuristics, int64_t i, descriptor *config)
{
	descriptor *engine = kept(CUDNN_BACKEND_ENGINE_DESCRIPTOR);

	engine->put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, std::vector<int64_t>{ i });
	engine->put(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, std::vector<const descriptor *>{
		&heuristics.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) });
	config->put(CUDNN_ATTR_ENGINECFG_ENGINE, std::vector<descriptor *>{ engine });
	if (i == 1) {
		descriptor *knob = kept(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);

		knob->put(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
			  std::vector<cudnnBackendKnobType_t>{ CUDNN_KNOB_TYPE_STAGES });
		knob->put(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, std::vector<int64_t>{ KNOB_VALUE });
		config->put(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, std::vector<descriptor *>{ knob });
	}
	config->whole = true;
}

/* Completes the plan of an engine, or returns the error if there is none. */
static cudnnStatus_t make_plan(descriptor *plan)
{
	const descriptor &config = plan->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
	const descriptor &engine = config.part(CUDNN_ATTR_ENGINECFG_ENGINE);
	int64_t i = engine.one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
	auto knobs = config.all<const descriptor *>(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
	meaning m;

	if (!meaning_of(engine.part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH), &m) || !m.offered ||
	    (!m.aligned && i == 1))
		return CUDNN_STATUS_NOT_SUPPORTED;
	/* Without its knob, or with another value, engine 1 is not the one that was proposed. */
	if (knobs.size() != (i == 1) ||
	    (i == 1 && knobs[0]->one<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE) != KNOB_VALUE))
		return CUDNN_STATUS_BAD_PARAM;
	plan->put(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, std::vector<int64_t>{ 77 + 1000 * i });
	return CUDNN_STATUS_SUCCESS;
}

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
					   cudnnBackendDescriptor_t *p)
{
	if (type > CUDNN_BACKEND_RNG_DESCRIPTOR)
		return CUDNN_STATUS_NOT_SUPPORTED;      /* among them a description of a GPU */
	*p = new descriptor{ type, false, {} };
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t p)
{
	delete (descriptor *)p;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t p, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t count,
				       const void *values)
{
	descriptor *d = (descriptor *)p;
	const char *first = (const char *)values;

	if (d->whole || !attribute_sizes.count(type) || count < 1)
		return CUDNN_STATUS_BAD_PARAM;
	for (int64_t i = 0; i < count && type == CUDNN_TYPE_BACKEND_DESCRIPTOR; i++)
		if (!((descriptor *const *)values)[i]->whole)
			return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
	d->values[name] = std::vector<char>(first, first + count * attribute_sizes.at(type));
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t p)
{
	descriptor *d = (descriptor *)p;
	meaning m;

	if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR && !meaning_of(*d, &m))
		return CUDNN_STATUS_NOT_SUPPORTED;
	if (d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR &&
	    d->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX) > 2)
		return CUDNN_STATUS_NOT_SUPPORTED;
	if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
		cudnnStatus_t status = make_plan(d);

		if (status != CUDNN_STATUS_SUCCESS)
			return status;
	}
	if (d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
		std::vector<cudnnBackendNumericalNote_t> notes;
		int64_t i = d->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);

		if (i < 2)
			notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
		if (i == 0)
			notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
		d->put(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, notes);
	}
	d->whole = true;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const p,
				       cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t room,
				       int64_t *count, void *values)
{
	const descriptor *d = (const descriptor *)p;
	auto found = d->values.find(name);

	*count = 0;
	if (!d->whole)
		return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
	if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
		for (int64_t i : proposals(*d))
			if (*count < room)
				propose_engine(*d, i, ((descriptor **)values)[(*count)++]);
		return CUDNN_STATUS_SUCCESS;
	}
	if (found == d->values.end())
		return CUDNN_STATUS_SUCCESS;
	*count = (int64_t)(found->second.size() / attribute_sizes.at(type));
	if (*count > room)
		return CUDNN_STATUS_BAD_PARAM;
	if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR)
		memcpy(values, found->second.data(), found->second.size());
	else    /* copies into the caller's descriptors */
		for (int64_t i = 0; i < *count; i++)
			*((descriptor **)values)[i] = *((descriptor **)found->second.data())[i];
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
				  cudnnBackendDescriptor_t pack)
{
	const descriptor *d = (const descriptor *)plan, *v = (const descriptor *)pack;
	std::vector<int64_t> ids = v->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
	std::vector<void *> at = v->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
	void *workspace = v->one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
	int64_t bytes = d->one<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
	meaning m;

	if (!d->whole || !v->whole || ids.size() != at.size() ||
	    !meaning_of(d->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
				.part(CUDNN_ATTR_ENGINECFG_ENGINE)
				.part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH), &m))
		return CUDNN_STATUS_BAD_PARAM;
	std::map<int64_t, void *> place;
	for (size_t i = 0; i < ids.size(); i++)
		place[ids[i]] = at[i];
	if (!place[m.x] || !place[m.w] || !place[m.y] || (m.bias && !place[m.bias]))
		return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
	for (const auto &[id, at] : place)
		if (m.aligned && (uintptr_t)at % 16 != 0)
			return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
	m.c.px = place[m.x];
	m.c.pw = place[m.w];
	m.c.py = place[m.y];
	m.c.bias = m.bias ? place[m.bias] : NULL;
	check_places(m.c, place[m.out], workspace, (size_t)bytes);
	emulated_queue(handle->stream, [=, out = place[m.out]]() {
		soil(workspace, (size_t)bytes);
		compute(m.c, m.way, out);
	});
	return CUDNN_STATUS_SUCCESS;
}

}
