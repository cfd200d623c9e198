/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/graph.h"

#include "device/cuda/repeat.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_LEAST 2           /* fewer are launched singly as fast */

#define KINDS 8                 /* of passes that one net may see; there are five */

/* Passes of a kind have the same kernels in the same order. */
struct kind {
	bool backward, evaluate, again;
	enum pd_backward_part part;
	cudaGraph_t model;              /* the first that was captured */
	cudaGraphExec_t spares[PD_CUDA_SPARES];
	int spare_count;
};

struct pd_cuda_graphs {
	struct pd_repeats repeats;
	bool off;                       /* one could not be captured */
	bool settled;
	struct kind kinds[KINDS];
	int kind_count;
};

struct pd_cuda_graphs *pd_cuda_graphs_new(void)
{
	const char *wish = getenv("PD_CUDA_GRAPHS");

	return wish && strcmp(wish, "no") == 0 ? NULL
					       : pd_zalloc(sizeof(struct pd_cuda_graphs));
}

static void forget_repeats(struct pd_cuda_graphs *graphs)
{
	for (size_t i = 0; i < PD_COUNT(graphs->repeats.places); i++)
		if (graphs->repeats.places[i].made)
			cudaGraphExecDestroy(graphs->repeats.places[i].made);
	graphs->repeats = (struct pd_repeats){ 0 };
}

void pd_cuda_graphs_free(struct pd_cuda_graphs *graphs)
{
	if (!graphs)
		return;
	forget_repeats(graphs);
	for (int k = 0; k < graphs->kind_count; k++) {
		struct kind *kind = &graphs->kinds[k];

		for (int i = 0; i < kind->spare_count; i++)
			cudaGraphExecDestroy(kind->spares[i]);
		cudaGraphDestroy(kind->model);
	}
	free(graphs);
}

/* That of a pass, or NULL. */
static struct kind *find_kind(struct pd_cuda_graphs *graphs, const struct pd_repeat_key *key)
{
	for (int k = 0; k < graphs->kind_count; k++) {
		struct kind *kind = &graphs->kinds[k];

		if (kind->backward == key->backward && kind->evaluate == key->evaluate &&
		    kind->again == key->again && kind->part == key->part)
			return kind;
	}
	return NULL;
}

/* The graph is the kind's model, where there is none so far: true. */
static bool keep_model(struct pd_cuda_graphs *graphs, const struct pd_repeat_key *key,
		       cudaGraph_t graph)
{
	if (graphs->settled || graphs->kind_count == KINDS || find_kind(graphs, key))
		return false;
	graphs->kinds[graphs->kind_count++] = (struct kind){
		.backward = key->backward, .evaluate = key->evaluate, .again = key->again,
		.part = key->part, .model = graph,
	};
	return true;
}

static int add_spare(struct kind *kind, cudaStream_t stream, struct pd_error *err)
{
	cudaGraphExec_t made;

	if (pd_cuda_check(cudaGraphInstantiateWithFlags(&made, kind->model, 0), "a graph", err) < 0)
		return -1;
	kind->spares[kind->spare_count++] = made;
	return pd_cuda_check(cudaGraphUpload(made, stream), "a graph", err);
}

int pd_cuda_graphs_settle(struct pd_cuda_graphs *graphs, cudaStream_t stream,
			  struct pd_error *err)
{
	if (!graphs || graphs->settled)
		return 0;
	forget_repeats(graphs);
	for (int k = 0; k < graphs->kind_count; k++)
		while (graphs->kinds[k].spare_count < PD_CUDA_SPARES)
			if (add_spare(&graphs->kinds[k], stream, err) < 0)
				return -1;
	graphs->settled = true;
	return pd_cuda_check(cudaStreamSynchronize(stream), "a graph", err);
}

/* Is anything in these layers of what struct pd_kernel_now holds? */
static bool reads_now(const struct pd_compiled *net, const struct pd_work *w)
{
	bool draws = w->kind == PD_WORK_FORWARD && !w->pass.evaluate;

	for (int l = w->from; l < w->from + w->count; l++)
		if (pd_layer_is(net->layers[l].layer, PD_KIND_LOSS) ||
		    (draws && pd_layer_is(net->layers[l].layer, PD_KIND_RANDOM)))
			return true;
	return false;
}

static int queue(struct pd_compiled *net, const struct pd_work *w, struct pd_error *err)
{
	return w->kind == PD_WORK_FORWARD
		? pd_compiled_forward(net, &w->pass, w->from, w->count, err)
		: pd_compiled_backward(net, &w->pass, w->from, w->count, err);
}

static void give_up(struct pd_cuda_graphs *graphs, const char *why)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	graphs->off = true;
	cudaGetLastError();     /* said here, and nobody else's */
	if (!atomic_flag_test_and_set(&said))
		fprintf(stderr, "the GPU's work cannot be captured in graphs (%s): every kernel is "
			"launched by itself\n", why);
}

/* Captured and not run; NULL: *why. */
static cudaGraph_t capture(struct pd_compiled *net, const struct pd_work *w, struct pd_error *why)
{
	struct pd_cuda_engine *engine = net->engine;
	cudaGraph_t graph = NULL;
	bool good;

	/* of this thread alone: others may allocate meanwhile */
	if (pd_cuda_check(cudaStreamBeginCapture(engine->stream, cudaStreamCaptureModeThreadLocal),
			  "capturing", why) < 0)
		return NULL;
	good = queue(net, w, why) == 0;
	if (cudaStreamEndCapture(engine->stream, &graph) != cudaSuccess && good) {
		pd_error_failed(why, "%s", cudaGetErrorString(cudaGetLastError()));
		good = false;
	}
	if (good && graph)
		return graph;
	if (graph)
		cudaGraphDestroy(graph);
	if (good)
		pd_error_failed(why, "nothing was captured");
	return NULL;
}

/* Instantiates the graph, or has one of the kind's spares become it.  NULL: there is none. */
static cudaGraphExec_t instance_of(struct pd_cuda_graphs *graphs, const struct pd_repeat_key *key,
				   cudaGraph_t graph)
{
	cudaGraphExecUpdateResultInfo info;
	cudaGraphExec_t made = NULL;
	struct pd_error why;
	struct kind *kind;

	if (!graphs->settled) {
		if (pd_cuda_check(cudaGraphInstantiateWithFlags(&made, graph, 0), "a graph",
				  &why) < 0)
			give_up(graphs, why.text);
		return made;
	}
	kind = find_kind(graphs, key);
	made = kind->spares[--kind->spare_count];
	if (cudaGraphExecUpdate(made, graph, &info) == cudaSuccess)
		return made;
	cudaGetLastError();
	kind->spare_count++;
	return NULL;
}

/* Leaves place->made, or place->never, or neither, and no graph will be made any more. */
static void make(struct pd_compiled *net, const struct pd_work *w, struct pd_repeat *place)
{
	struct pd_cuda_engine *engine = net->engine;
	struct pd_cuda_graphs *graphs = engine->graphs;
	struct pd_error why;
	cudaGraph_t graph;
	size_t nodes = 0;

	if (graphs->settled) {
		const struct kind *kind = find_kind(graphs, &place->key);

		place->never = !kind || kind->spare_count == 0;
		if (place->never)
			return;
	}
	graph = capture(net, w, &why);
	if (!graph) {
		give_up(graphs, why.text);
		return;
	}
	place->note = engine->loses ? net : NULL;
	if (pd_cuda_check(cudaGraphGetNodes(graph, NULL, &nodes), "a graph", &why) < 0) {
		give_up(graphs, why.text);
	} else if (nodes < NODES_LEAST) {
		place->never = true;
	} else {
		place->made = instance_of(graphs, &place->key, graph);
		place->never = !place->made;
	}
	if (!place->made || !keep_model(graphs, &place->key, graph))
		cudaGraphDestroy(graph);
}

int pd_cuda_graphs_pass(struct pd_compiled *net, const struct pd_work *w, struct pd_error *err)
{
	struct pd_cuda_engine *engine = net->engine;
	struct pd_cuda_graphs *graphs = engine->graphs;
	struct pd_repeat *place = NULL;

	if (reads_now(net, w)) {
		const struct pd_kernel_now now = { w->pass.first_sample, w->pass.valid,
						   engine->loss };

		if (pd_cuda_check(pd_kernel_set_now(engine->stream, engine->now, &now),
				  "a minibatch's numbers", err) < 0)
			return -1;
	}
	/* of a whole stage: pd-profile's layers one by one would take all the places */
	if (graphs && engine->whole) {
		const struct pd_repeat_key key =
			pd_repeat_key(&w->pass, w->kind == PD_WORK_BACKWARD, w->from, w->count);

		place = pd_repeats_see(&graphs->repeats, &key);
	}
	/* the first time, libraries make up their minds and kernels are loaded */
	if (place && place->seen > 1 && !place->made && !place->never && !graphs->off)
		make(net, w, place);
	if (!place || !place->made)
		return queue(net, w, err);
	engine->loses = place->note != NULL;
	return pd_cuda_check(cudaGraphLaunch(place->made, engine->stream), "a graph", err);
}
