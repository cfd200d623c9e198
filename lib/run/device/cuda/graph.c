/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cuda/graph.h"

#include "run/device/cuda/graph_cache.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_LEAST 2           /* fewer are as fast when launched singly */

#define KINDS 8                 /* the most kinds of passes and iterations of a net */

/* A graph that can be launched, with the events that it records between parts of an iteration. */
struct instance {
	struct instance *next;
	cudaGraphExec_t made;
	cudaEvent_t ends[PD_CUDA_JOB];
};

/* Passes of one kind have the same kernels in the same order. */
struct kind {
	struct pd_graph_key like;	/* the key of the kind's first pass */
	int events;                     /* events that each graph records */
	cudaGraph_t model;              /* the graph that was captured first */
	struct instance *spares[PD_CUDA_SPARES];
	int spare_count;
};

struct pd_cuda_graphs {
	struct pd_graph_cache cache;
	struct instance *instances;     /* all instances */
	bool off;                       /* a pass could not be captured */
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

static void free_instance(struct instance *in)
{
	if (in->made)
		cudaGraphExecDestroy(in->made);
	for (int i = 0; i < PD_CUDA_JOB; i++)
		if (in->ends[i])
			cudaEventDestroy(in->ends[i]);
	free(in);
}

void pd_cuda_graphs_free(struct pd_cuda_graphs *graphs)
{
	if (!graphs)
		return;
	for (int k = 0; k < graphs->kind_count; k++)
		cudaGraphDestroy(graphs->kinds[k].model);
	/* the models refer to events of instances, so they go first */
	while (graphs->instances) {
		struct instance *in = graphs->instances;

		graphs->instances = in->next;
		free_instance(in);
	}
	free(graphs);
}

/* Returns an instance with its events but without a graph, or NULL. */
static struct instance *new_instance(struct pd_cuda_graphs *graphs, int events,
				     struct pd_error *err)
{
	struct instance *in = pd_zalloc(sizeof(*in));

	in->next = graphs->instances;
	graphs->instances = in;
	for (int i = 0; i < events; i++)
		if (pd_cuda_check(cudaEventCreateWithFlags(&in->ends[i], cudaEventDisableTiming),
				  "an event", err) < 0)
			return NULL;
	return in;
}

/* Returns whether passes with these keys have the same kernels in the same order. */
static bool alike(const struct pd_graph_key *a, const struct pd_graph_key *b)
{
	return a->backward == b->backward && a->evaluate == b->evaluate && a->again == b->again &&
	       a->part == b->part && a->iteration == b->iteration && a->updates == b->updates &&
	       a->update == b->update;
}

/* Returns the kind of a pass, or NULL. */
static struct kind *find_kind(struct pd_cuda_graphs *graphs, const struct pd_graph_key *key)
{
	for (int k = 0; k < graphs->kind_count; k++)
		if (alike(&graphs->kinds[k].like, key))
			return &graphs->kinds[k];
	return NULL;
}

/*
 * Makes the graph its kind's model, if the kind has none, and its instance the first spare one of a net that
 * will be settled; returns whether it did.
 */
static bool keep_model(struct pd_cuda_graphs *graphs, const struct pd_graph_key *key,
		       int events, cudaGraph_t graph, struct instance *in)
{
	if (graphs->settled || graphs->kind_count == KINDS || find_kind(graphs, key))
		return false;
	graphs->kinds[graphs->kind_count++] = (struct kind){
		.like = *key, .events = events, .model = graph, .spares = { in },
		.spare_count = in->made != NULL,
	};
	return true;
}

static int add_spare(struct pd_cuda_graphs *graphs, struct kind *kind, cudaStream_t stream,
		     struct pd_error *err)
{
	struct instance *in = new_instance(graphs, kind->events, err);

	if (!in || pd_cuda_check(cudaGraphInstantiateWithFlags(&in->made, kind->model, 0),
				 "a graph", err) < 0)
		return -1;
	kind->spares[kind->spare_count++] = in;
	return pd_cuda_check(cudaGraphUpload(in->made, stream), "a graph", err);
}

int pd_cuda_graphs_settle(struct pd_cuda_graphs *graphs, int64_t turns, cudaStream_t stream,
			  struct pd_error *err)
{
	int enough = turns < PD_CUDA_SPARES ? (int)turns : PD_CUDA_SPARES;

	if (!graphs || graphs->settled)
		return 0;
	graphs->cache = (struct pd_graph_cache){ 0 };
	for (int k = 0; k < graphs->kind_count; k++)
		while (graphs->kinds[k].spare_count < enough)
			if (add_spare(graphs, &graphs->kinds[k], stream, err) < 0)
				return -1;
	graphs->settled = true;
	return pd_cuda_check(cudaStreamSynchronize(stream), "a graph", err);
}

/* Returns whether the work reads any number of struct pd_pass_numbers. */
static bool reads_now(const struct pd_compiled *net, const struct pd_work *w)
{
	unsigned draws = w->kind == PD_WORK_FORWARD ? PD_KIND_RANDOM : PD_KIND_REDRAWS;

	if (w->kind == PD_WORK_UPDATE)
		return true;
	for (int l = w->from; l < w->from + w->count; l++)
		if (pd_layer_is(net->layers[l].layer, PD_KIND_LOSS) ||
		    net->layers[l].layer->lanes > 0 ||
		    (!w->pass.evaluate && pd_layer_is(net->layers[l].layer, draws)))
			return true;
	return false;
}

static int set_now(const struct pd_cuda_job *job, struct pd_error *err)
{
	const struct pd_work *first = job->works[0], *last = job->works[job->count - 1];
	struct pd_cuda_engine *engine = job->net->engine;
	struct pd_pass_numbers numbers = { last->pass.first_sample, last->pass.valid,
					   engine->loss };
	bool read = false;

	for (int i = 0; i < job->count; i++)
		read = read || reads_now(job->net, job->works[i]);
	if (!read)
		return 0;
	if (first->kind == PD_WORK_UPDATE)
		numbers.choice = pd_cuda_choice_of(&first->update);
	return pd_cuda_check(pd_kernel_set_numbers(engine->stream, engine->numbers, &numbers),
			     "a minibatch's numbers", err);
}

static int queue_one(struct pd_compiled *net, const struct pd_work *w, struct pd_error *err)
{
	struct pd_cuda_engine *engine = net->engine;

	if (w->kind == PD_WORK_UPDATE)
		return pd_cuda_update(engine->stream, net, &w->update, w->from, w->count,
				      &engine->numbers->choice, NULL, NULL, err);
	return w->kind == PD_WORK_FORWARD
		? pd_compiled_forward(net, &w->pass, w->from, w->count, err)
		: pd_compiled_backward(net, &w->pass, w->from, w->count, err);
}

/* Queues a job. how: the flags of cudaEventRecordWithFlags. */
static int queue(const struct pd_cuda_job *job, const cudaEvent_t *ends, unsigned how,
		 struct pd_error *err)
{
	struct pd_cuda_engine *engine = job->net->engine;

	for (int i = 0; i < job->count; i++) {
		if (queue_one(job->net, job->works[i], err) < 0)
			return -1;
		if (i < job->count - 1 &&
		    pd_cuda_check(cudaEventRecordWithFlags(ends[i], engine->stream, how),
				  "an event", err) < 0)
			return -1;
	}
	return 0;
}

/* Says once why kernels are launched by themselves, which is slow but right. */
static void say(const char *what, const char *why)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	cudaGetLastError();     /* clears the error, which is reported here */
	if (!atomic_flag_test_and_set(&said))
		fprintf(stderr, "the GPU's work cannot be %s (%s): every kernel is launched by "
			"itself\n", what, why);
}

static void give_up(struct pd_cuda_graphs *graphs, const char *why)
{
	graphs->off = true;
	say("captured in graphs", why);
}

/* Captures a job as a graph without running it; NULL: *why. */
static cudaGraph_t capture(const struct pd_cuda_job *job, const cudaEvent_t *ends,
			   struct pd_error *why)
{
	struct pd_cuda_engine *engine = job->net->engine;
	cudaGraph_t graph = NULL;
	bool good;

	/* captures this thread only: others may allocate meanwhile */
	if (pd_cuda_check(cudaStreamBeginCapture(engine->stream, cudaStreamCaptureModeThreadLocal),
			  "capturing", why) < 0)
		return NULL;
	good = queue(job, ends, cudaEventRecordExternal, why) == 0;
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

/* Instantiates the graph, or updates a spare instance to it; -1: it cannot. */
static int become(struct pd_cuda_graphs *graphs, struct instance *in, cudaGraph_t graph)
{
	cudaGraphExecUpdateResultInfo info = { .result = cudaGraphExecUpdateError };
	char text[64];
	struct pd_error why;

	if (in->made && cudaGraphExecUpdate(in->made, graph, &info) == cudaSuccess)
		return 0;
	if (in->made) {
		snprintf(text, sizeof(text), "cudaGraphExecUpdate's result %d", (int)info.result);
		say("put into a graph that is there", text);
	} else if (pd_cuda_check(cudaGraphInstantiateWithFlags(&in->made, graph, 0), "a graph",
			       &why) == 0) {
		return 0;
	} else {
		give_up(graphs, why.text);
	}
	return -1;
}

/* Sets entry->made, or entry->never, or, where no graph will be made any more, neither. */
static void make_with(const struct pd_cuda_job *job, struct instance *in,
		      struct pd_graph_entry *entry)
{
	struct pd_cuda_engine *engine = job->net->engine;
	struct pd_cuda_graphs *graphs = engine->graphs;
	struct pd_error why;
	cudaGraph_t graph;
	size_t nodes = 0;

	graph = capture(job, in->ends, &why);
	if (!graph) {
		give_up(graphs, why.text);
		return;
	}
	entry->note = engine->loses ? job->net : NULL;
	if (pd_cuda_check(cudaGraphGetNodes(graph, NULL, &nodes), "a graph", &why) < 0)
		give_up(graphs, why.text);
	else if (nodes >= NODES_LEAST && become(graphs, in, graph) == 0)
		entry->made = in;
	else
		entry->never = true;
	if (!entry->made || !keep_model(graphs, &entry->key, job->count - 1, graph, in))
		cudaGraphDestroy(graph);
}

static void make(const struct pd_cuda_job *job, struct pd_graph_entry *entry)
{
	struct pd_cuda_graphs *graphs = ((struct pd_cuda_engine *)job->net->engine)->graphs;
	struct kind *kind = find_kind(graphs, &entry->key);
	struct instance *in;
	struct pd_error why;

	if (!graphs->settled) {
		in = new_instance(graphs, job->count - 1, &why);
		if (in)
			make_with(job, in, entry);
		else
			give_up(graphs, why.text);
		return;
	}
	entry->never = !kind || kind->spare_count == 0;
	if (entry->never)
		return;
	make_with(job, kind->spares[kind->spare_count - 1], entry);
	if (entry->made)
		kind->spare_count--;
}

static struct pd_graph_key key_of(const struct pd_cuda_job *job)
{
	const struct pd_work *first = job->works[0], *last = job->works[job->count - 1];

	if (job->count == 1)
		return pd_graph_key(&last->pass, last->kind == PD_WORK_BACKWARD, last->from,
				    last->count);
	return pd_graph_key_of_iteration(&last->pass,
					 first->kind == PD_WORK_UPDATE ? &first->update : NULL,
					 last->from, last->count);
}

int pd_cuda_graphs_run(struct pd_cuda_job *job, struct pd_error *err)
{
	struct pd_cuda_engine *engine = job->net->engine;
	struct pd_cuda_graphs *graphs = engine->graphs;
	struct pd_graph_entry *entry = NULL;
	const struct instance *in;

	if (set_now(job, err) < 0)
		return -1;
	/* whole stages only: pd-profile's single layers would fill the cache */
	if (graphs && engine->whole) {
		const struct pd_graph_key key = key_of(job);

		entry = pd_graph_cache_see(&graphs->cache, &key);
	}
	/* the first time, libraries choose algorithms and kernels are loaded */
	if (entry && entry->seen > 1 && !entry->made && !entry->never && !graphs->off)
		make(job, entry);
	if (!entry || !entry->made)
		return queue(job, job->ends, cudaEventRecordDefault, err);
	engine->loses = entry->note != NULL;
	in = entry->made;
	for (int i = 0; i < job->count - 1; i++)
		job->ends[i] = in->ends[i];
	return pd_cuda_check(cudaGraphLaunch(in->made, engine->stream), "a graph", err);
}
