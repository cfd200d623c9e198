/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/file.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

struct reader {
	struct pd_kineto_file *file;
	struct pd_kineto_file all[2];   /* of the processor; of the GPU */
};

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Tells whether the pipeline is concerned, and how.  Actions without a microbatch have no operation here. */
static bool classify(const char *name, struct pd_kineto_event *event)
{
	if (begins(name, "gloo:") || begins(name, "nccl:")) {
		event->kind = PD_KINETO_MESSAGE;
		return true;
	}
	if (begins(name, "Optimizer.step")) {
		event->kind = PD_KINETO_UPDATE;
		return true;
	}
	event->kind = PD_KINETO_ACTION;
	return begins(name, "PP:") && pd_torch_action_read(name + 3, &event->act) && event->act.microbatch >= 0;
}

static int take_action(struct reader *r, json_t *value, struct pd_error *err)
{
	const char *name = json_string_value(json_object_get(value, "name"));
	const char *phase = json_string_value(json_object_get(value, "ph"));
	const char *category = json_string_value(json_object_get(value, "cat"));
	struct pd_kineto_event event = { .start_ns = 0 };
	struct pd_kineto_file *to;

	if (!name || !phase || !category || strcmp(phase, "X") != 0 || !strstr(category, "user_annotation") ||
	    !classify(name, &event))
		return 0;
	if (pd_kineto_times(value, r->file->name, &event.start_ns, &event.end_ns, err) < 0)
		return -1;
	to = &r->all[begins(category, "gpu_")];
	to->events = pd_grow(to->events, &to->capacity, to->count + 1, sizeof(*to->events));
	to->events[to->count++] = event;
	return 0;
}

static int take_event(void *to, json_t *value, struct pd_error *err)
{
	struct reader *r = to;

	return take_action(r, value, err) < 0 ? -1 : pd_kineto_ops_take(&r->file->ops, value, err);
}

static int by_start(const void *a, const void *b)
{
	const struct pd_kineto_event *x = a, *y = b;

	PD_ORDER(x->start_ns, y->start_ns);
	PD_ORDER(y->end_ns, x->end_ns);
	PD_ORDER(x->kind, y->kind);
	return 0;
}

static bool acts(const struct pd_kineto_file *events)
{
	for (size_t i = 0; i < events->count; i++)
		if (events->events[i].kind == PD_KINETO_ACTION && events->events[i].act.action == PD_TORCH_F)
			return true;
	return false;
}

int pd_kineto_file_read(const char *name, struct pd_kineto_file *out_p, struct pd_error *err)
{
	struct reader r = { .file = out_p };
	struct pd_kineto_head head;
	int status;

	*out_p = (struct pd_kineto_file){ .name = name };
	pd_kineto_ops_begin(&out_p->ops, name);
	status = pd_kineto_scan(name, take_event, &r, &head, err);
	out_p->rank = head.rank;
	out_p->ops.device |= head.device;
	out_p->gpu = acts(&r.all[1]);
	out_p->count = r.all[out_p->gpu].count;
	out_p->events = r.all[out_p->gpu].events;
	free(r.all[!out_p->gpu].events);
	out_p->acts = acts(out_p);
	for (size_t i = 0; i < out_p->count; i++) {
		out_p->events[i].start_ns += head.base_ns;
		out_p->events[i].end_ns += head.base_ns;
	}
	if (out_p->count > 0)
		qsort(out_p->events, out_p->count, sizeof(*out_p->events), by_start);
	return status;
}

void pd_kineto_file_release(struct pd_kineto_file *file)
{
	free(file->events);
	if (file->ops.numbers)
		pd_kineto_ops_release(&file->ops);
}
