/* SPDX-License-Identifier: Apache-2.0 */
/* Sets a rank's parameters and running statistics before the first minibatch of a training. */
#include "run/internal.h"

#include "base/finite.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/initial.h"

#include <stdlib.h>

/* Imports a tensor into the version that is read and, if there is one, the master. */
static int import_one(struct rank *rank, int part, int n, const struct pd_named *named,
		      const float *host, struct pd_error *err)
{
	const struct pd_device_ops *device = rank->device->ops;
	struct pd_net *net = rank->parts[part].net;
	void *weights = pd_weights_newest(pd_worker_weights(rank->worker, part), NULL);
	void *master = pd_worker_arena(rank->worker, part, PD_ARENA_master);
	bool bad;

	if (named->part != PD_PART_PARAMETER)
		bad = device->net.import(net, n, PD_FULL,
					 pd_worker_arena(rank->worker, part, PD_ARENA_state),
					 host) < 0;
	else
		bad = device->net.import(net, n, PD_WORKING, weights, host) < 0 ||
		      (master && device->net.import(net, n, PD_FULL, master, host) < 0);
	return bad ? pd_error_failed(err, "%s: cannot be written to the device", named->name) : 0;
}

/* Where parameters come from. */
struct source {
	struct pd_initial *initial;     /* --init, or NULL and then: */
	struct pd_checkpoint *ck;
	const char *file;
};

static int open_source(const struct pd_job *job, struct source *source, struct pd_error *err)
{
	*source = (struct source){ .file = job->evaluated ? job->evaluated : job->init };
	if (job->evaluated)
		source->ck = pd_checkpoint_open(job->evaluated, job->evaluated_step, err);
	else
		source->initial = pd_initial_open(job->init, job->plan->profile->model, err);
	return source->ck || source->initial ? 0 : -1;
}

static void close_source(struct source *source)
{
	pd_initial_close(source->initial);
	pd_checkpoint_close(source->ck);
}

static int read_source(const struct source *source, const struct pd_named *named, float *host,
		       struct pd_error *err)
{
	return source->ck ? pd_checkpoint_read(source->ck, named->name, -1, named->elements, host, err)
			  : pd_initial_read(source->initial, named->name, named->elements, host, err);
}

static int import_part(struct rank *rank, int part, const struct source *source, struct pd_error *err)
{
	const struct pd_named *named;
	int count = rank->device->ops->net.named(rank->parts[part].net, &named), status = 0;

	for (int n = 0; n < count && status == 0; n++) {
		float *host;

		/* lanes begin with zeros, whatever is there */
		if (named[n].part == PD_PART_STATE &&
		    pd_model_carries(rank->job->plan->profile->model, named[n].layer, 1))
			continue;
		host = pd_calloc((size_t)named[n].elements, sizeof(*host));

		status = read_source(source, &named[n], host, err);
		if (status == 0 && rank->replica == 0 && !rank->told_not_finite[PD_GIVEN_INIT] &&
		    !pd_all_finite(host, (size_t)named[n].elements))
			status = rank_say_not_finite(rank, PD_GIVEN_INIT, pd_format("%s%s: \"%s\" has "
				"a number that is not finite", source->ck ? "" : "--init: ",
				source->file, named[n].name));
		if (status == 0)
			status = import_one(rank, part, n, &named[n], host, err);
		free(host);
	}
	return status;
}

static int import_all(struct rank *rank, struct pd_error *err)
{
	struct source source;
	int status = open_source(rank->job, &source, err);

	for (int i = 0; i < rank->part_count && status == 0; i++)
		status = import_part(rank, i, &source, err);
	close_source(&source);
	return status;
}

int rank_begin_weights(struct rank *rank, struct pd_error *err)
{
	for (int i = 0; i < rank->part_count; i++)
		if (rank->device->ops->net.init(rank->parts[i].net,
				pd_weights_newest(pd_worker_weights(rank->worker, i), NULL),
				pd_worker_arena(rank->worker, i, PD_ARENA_master),
				pd_worker_arena(rank->worker, i, PD_ARENA_state), err) < 0)
			return -1;
	return rank->job->init || rank->job->evaluated ? import_all(rank, err) : 0;
}
