/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/graph.h"

#include "device/cuda/repeat.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_LEAST 2           /* fewer are launched singly as fast */

struct pd_cuda_graphs {
	struct pd_repeats repeats;
	bool off;                       /* one could not be captured */
};

struct pd_cuda_graphs *pd_cuda_graphs_new(void)
{
	const char *wish = getenv("PD_CUDA_GRAPHS");

	return wish && strcmp(wish, "no") == 0 ? NULL
					       : pd_zalloc(sizeof(struct pd_cuda_graphs));
}

void pd_cuda_graphs_free(struct pd_cuda_graphs *graphs)
{
	if (!graphs)
		return;
	for (size_t i = 0; i < PD_COUNT(graphs->repeats.places); i++)
		if (graphs->repeats.places[i].made)
			cudaGraphExecDestroy(graphs->repeats.places[i].made);
	free(graphs);
}

/* Is anything in these layers of what struct pd_kernel_now holds? */
static bool reads_now(const struct pd_compiled *net, const struct pd_work *w)
{
	bool drops = w->kind == PD_WORK_FORWARD && !w->pass.evaluate;

	for (int l = w->from; l < w->from + w->count; l++)
		if (net->layers[l].kind->is_loss ||
		    (drops && net->layers[l].layer->kind == PD_LAYER_dropout))
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

/* Leaves place->made, or place->never, or neither, and no graph will be made any more. */
static void make(struct pd_compiled *net, const struct pd_work *w, struct pd_repeat *place)
{
	struct pd_cuda_engine *engine = net->engine;
	struct pd_error why;
	cudaGraph_t graph = capture(net, w, &why);
	cudaGraphExec_t made = NULL;
	size_t nodes = 0;

	if (!graph) {
		give_up(engine->graphs, why.text);
		return;
	}
	place->note = engine->loss_layer;
	if (pd_cuda_check(cudaGraphGetNodes(graph, NULL, &nodes), "a graph", &why) < 0) {
		give_up(engine->graphs, why.text);
	} else if (nodes < NODES_LEAST) {
		place->never = true;
	} else if (pd_cuda_check(cudaGraphInstantiateWithFlags(&made, graph, 0), "a graph",
				 &why) < 0) {
		give_up(engine->graphs, why.text);
	} else {
		place->made = made;
	}
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
	if (graphs && w->from == net->first && w->count == net->count) {
		const struct pd_repeat_key key =
			pd_repeat_key(&w->pass, w->kind == PD_WORK_BACKWARD, w->from, w->count);

		place = pd_repeats_see(&graphs->repeats, &key);
	}
	/* the first time, libraries make up their minds and kernels are loaded */
	if (place && place->seen > 1 && !place->made && !place->never && !graphs->off)
		make(net, w, place);
	if (!place || !place->made)
		return queue(net, w, err);
	engine->loss_layer = place->note;
	return pd_cuda_check(cudaGraphLaunch(place->made, engine->stream), "a graph", err);
}
