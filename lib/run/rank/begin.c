/* SPDX-License-Identifier: Apache-2.0 */
/* Sets a rank's parameters and running statistics before the first minibatch of a training. */
#include "run/rank/internal.h"

#include "base/finite.h"
#include "base/half.h"
#include "base/mem.h"
#include "doors/tensors/initial.h"

#include <stdlib.h>

/* Are numbers finite in the type that the network computes in? */
static bool all_finite_in(enum pd_dtype dtype, const float *numbers, int64_t count)
{
	const uint16_t last_bit = dtype == PD_F16 ? PD_F16_LAST_BIT : PD_BF16_LAST_BIT;

	if (dtype != PD_F16 && dtype != PD_BF16)
		return pd_all_finite(numbers, (size_t)count);
	for (int64_t i = 0; i < count; i++) {
		uint16_t narrow = dtype == PD_F16 ? pd_to_f16(numbers[i]) : pd_to_bf16(numbers[i]);

		if (!pd_all_finite_narrow(&narrow, last_bit, 1))
			return false;
	}
	return true;
}

/* Names a tensor that was given, if it is the first of which some number is not finite. */
static int check_given(struct rank *rank, const struct pd_named *named, const float *numbers)
{
	const struct pd_job *job = rank->job;
	bool parameter = named->part == PD_PART_PARAMETER;
	enum pd_dtype dtype = parameter ? job->plan->profile->dtype : PD_F32;

	if (rank->replica > 0 || rank->told_not_finite[PD_GIVEN_INIT] ||
	    all_finite_in(dtype, numbers, named->elements))
		return 0;
	return rank_say_not_finite(rank, PD_GIVEN_INIT, pd_format(
		"%s%s: \"%s\" has a number that is not finite in %s",
		job->evaluated_step < 0 ? "--init: " : "", job->init, named->name,
		pd_dtype_name[dtype]));
}

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

static int import_part(struct rank *rank, int part, const struct pd_initial *initial,
		       struct pd_error *err)
{
	const struct pd_named *named;
	int count = rank->device->ops->net.named(rank->parts[part].net, &named), status = 0;

	for (int n = 0; n < count && status == 0; n++) {
		float *host;

		/* lanes begin with zeros, whatever is there */
		if (named[n].part == PD_PART_STATE &&
		    pd_model_carries(rank->job->plan->profile->model, named[n].layer, 1))
			continue;
		if (!pd_initial_has(initial, named[n].name))
			continue;
		host = pd_calloc((size_t)named[n].elements, sizeof(*host));

		status = pd_initial_read(initial, named[n].name, named[n].elements, host, err);
		if (status == 0)
			status = check_given(rank, &named[n], host);
		if (status == 0)
			status = import_one(rank, part, n, &named[n], host, err);
		free(host);
	}
	return status;
}

static int import_all(struct rank *rank, struct pd_error *err)
{
	struct pd_initial *initial = pd_initial_open(rank->job->init,
						     rank->job->plan->profile->model, pd_job_anew(rank->job), err);
	uint64_t sum;
	int status = !initial || pd_initial_checksum(initial, &sum, err) < 0 ? -1
		: pd_job_check_sum(rank->job->init, sum, rank->job->init_sum, err);

	for (int i = 0; i < rank->part_count && status == 0; i++)
		status = import_part(rank, i, initial, err);
	pd_initial_close(initial);
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
	return rank->job->init ? import_all(rank, err) : 0;
}
