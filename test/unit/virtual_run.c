/* SPDX-License-Identifier: Apache-2.0 */
#include "virtual_run.h"

#include "base/mem.h"
#include "engine/device/sim/sim.h"
#include "engine/transport/sim/sim.h"
#include "engine/worker/worker.h"

static void note(void *context, const struct pd_record *record)
{
	struct virtual_run *run = context;

	run->records = pd_grow(run->records, &run->capacity, run->count + 1,
			       sizeof(*run->records));
	run->records[run->count++] = *record;
}

static void drive(struct pd_sim *sim, struct pd_worker **workers, int ranks,
		  const struct virtual_hooks *hooks)
{
	struct pd_error err;
	bool done[ranks];
	int live = ranks;

	for (int r = 0; r < ranks; r++)
		done[r] = false;
	do {
		if (hooks->advanced)
			hooks->advanced();
		for (int r = 0; r < ranks; r++) {
			enum pd_worker_state state;

			do
				state = pd_worker_step(workers[r], &err);
			while (state == PD_WORKER_BUSY);
			if (state == PD_WORKER_FAILED)
				pd_bug("%s", err.text);
			live -= state == PD_WORKER_DONE && !done[r];
			done[r] = done[r] || state == PD_WORKER_DONE;
		}
	} while (live > 0 && pd_sim_advance(sim));
	if (live > 0)
		pd_bug("it stalls");
}

static struct pd_worker *worker_of(const struct pd_schedule *schedule, struct pd_sim *sim,
				   struct pd_loader *loader, struct pd_worker_config *config)
{
	struct pd_worker_stage nets[schedule->chunks];
	int stages[schedule->chunks];
	struct pd_error err;
	struct pd_worker *worker;

	pd_schedule_stages(schedule, config->rank, stages);
	for (int i = 0; i < schedule->chunks; i++)
		nets[i] = (struct pd_worker_stage){ .net = pd_sim_net(sim, stages[i]),
						    .loader = loader };
	config->stages = nets;
	worker = pd_worker_new(config, &err);
	if (!worker)
		pd_bug("%s", err.text);
	return worker;
}

static struct pd_sim_fabric *fabric;

int virtual_rank_of(const struct pd_transport *transport)
{
	int r = 0;

	while (pd_sim_transport(fabric, r) != transport)
		r++;
	return r;
}

struct virtual_run virtual_run(const struct pd_plan *plan, const struct virtual_hooks *hooks,
			       struct pd_loader *loader, const struct pd_phase *phase)
{
	struct pd_schedule *schedule = pd_schedule_new(plan, NULL);
	struct pd_sim *sim = pd_sim_new(plan, schedule->wiring);
	struct pd_worker *workers[plan->rank_count];
	struct virtual_run run = { 0 };

	fabric = pd_sim_fabric_new(sim, &plan->topology);
	for (int r = 0; r < plan->rank_count; r++) {
		struct pd_worker_config config = {
			.schedule = schedule, .rank = r, .device = pd_sim_device(sim, r),
			.transport = pd_sim_transport(fabric, r),
			.batch_size = plan->profile->batch_size, .optimizer = { .hyper.momentum = 1 },
			.retired = note, .context = &run,
		};

		if (hooks->device)
			config.device->ops = hooks->device;
		if (hooks->transport)
			config.transport->ops = hooks->transport;
		workers[r] = worker_of(schedule, sim, loader, &config);
		pd_worker_begin(workers[r], phase, 0);
	}
	drive(sim, workers, plan->rank_count, hooks);
	for (int r = 0; r < plan->rank_count; r++)
		pd_worker_free(workers[r]);
	pd_sim_fabric_free(fabric);
	pd_sim_free(sim);
	pd_schedule_free(schedule);
	return run;
}
