/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/ops.h"

#include "base/mem.h"
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *begins;
	enum pd_kineto_op_kind kind;
} named[] = {
#define EVENT(beginning, kind) { beginning, PD_KINETO_##kind },
#include "doors/kineto/event.def"
#undef EVENT
};

enum category_use { MODULES, ANNOTATIONS, OPERATORS, LAUNCHES, WORK, ASIDE, OTHERS, UNKNOWN };

static const struct {
	const char *name;
	enum category_use use;
} categories[] = {
#define CATEGORY(name, use) { name, use },
#include "doors/kineto/category.def"
#undef CATEGORY
};

/* What the trace calls types, and how many bytes they have. */
static const struct {
	const char *name;
	enum pd_dtype dtype;
	int64_t bytes;
} types[] = {
	{ "float", PD_F32, 4 }, { "c10::Half", PD_F16, 2 }, { "c10::BFloat16", PD_BF16, 2 }, { "double", PD_F32, 8 },
};

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

static enum pd_kineto_op_kind by_name(const char *name, enum pd_kineto_op_kind other)
{
	for (size_t i = 0; i < PD_COUNT(named); i++)
		if (begins(name, named[i].begins))
			return named[i].kind;
	return other;
}

static bool ends(const char *text, const char *with)
{
	size_t all = strlen(text), part = strlen(with);

	return all >= part && strcmp(text + all - part, with) == 0;
}

/* Whatever the device is, what launches its work is called so. */
static enum category_use category_use(const char *category)
{
	for (size_t i = 0; i < PD_COUNT(categories); i++)
		if (strcmp(category, categories[i].name) == 0)
			return categories[i].use;
	return ends(category, "_runtime") || ends(category, "_driver") ? LAUNCHES : UNKNOWN;
}

static enum pd_kineto_op_kind kind_of(enum category_use use, const char *name, bool launches)
{
	switch (use) {
	case MODULES:
		return begins(name, PD_KINETO_MODULE) ? PD_KINETO_LABEL : PD_KINETO_NONE;
	case ANNOTATIONS:
		return by_name(name, PD_KINETO_LABEL);
	case OPERATORS:
		return by_name(name, PD_KINETO_OPERATOR);
	case WORK:
		return begins(name, "nccl") ? PD_KINETO_NONE : PD_KINETO_KERNEL;
	default:
		return use == LAUNCHES && launches ? PD_KINETO_LAUNCH : PD_KINETO_NONE;
	}
}

/* Refuses what a device did that is not known: without its times those of launching would be taken. */
static int check_category(struct pd_kineto_ops *ops, const char *category, const char *name,
			  json_t *args, enum category_use use, struct pd_error *err)
{
	ops->device |= use == LAUNCHES || use == WORK;
	if (use < OTHERS)
		return 0;
	if (use == OTHERS || json_object_get(args, "correlation") || json_object_get(args, "stream") ||
	    json_object_get(args, "device"))
		return pd_error_input(err, "%s: event \"%.60s\": category \"%.60s\" is of a device that is not known: "
				      "expected \"kernel\", \"gpu_memcpy\" or \"gpu_memset\"", ops->file, name, category);
	if (!ops->unread)
		ops->unread = pd_strdup(category);
	return 0;
}

int pd_kineto_ops_name(struct pd_kineto_ops *ops, const char *name)
{
	json_t *known = json_object_get(ops->numbers, name);

	if (known)
		return (int)json_integer_value(known);
	ops->names = pd_grow(ops->names, &ops->name_capacity, (size_t)ops->name_count + 1, sizeof(*ops->names));
	ops->names[ops->name_count] = pd_strdup(name);
	pd_json_set(ops->numbers, name, json_integer(ops->name_count));
	return ops->name_count++;
}

/* Reads a number that says what belongs together; -1 if there is none. */
static int identity(const struct pd_kineto_ops *ops, json_t *object, const char *key, const char *event, int64_t *out_p,
		    struct pd_error *err)
{
	json_t *value = json_object_get(object, key);

	*out_p = value ? json_integer_value(value) : -1;
	if (!value || json_is_integer(value))
		return 0;
	return pd_error_input(err, "%s: event \"%.60s\": expected an integer as \"%s\"", ops->file, event, key);
}

/* Adds a tensor's size; what is no tensor of real numbers adds nothing. */
static void add_size(struct pd_kineto_op *op, json_t *dims, const char *type)
{
	int64_t elements = 1;
	json_t *extent;
	size_t i, d;

	for (i = 0; type && i < PD_COUNT(types) && strcmp(type, types[i].name) != 0; i++)
		;
	if (!type || i == PD_COUNT(types))
		return;
	json_array_foreach(dims, d, extent)
		elements = json_integer_value(extent) >= 0 ? pd_times(elements, json_integer_value(extent)) : 0;
	op->elements = pd_plus(op->elements, elements);
	op->bytes = pd_plus(op->bytes, pd_times(elements, types[i].bytes));
	op->dtype = types[i].dtype;
}

/* What nodes get are gradients of what forward made; other operators' sizes tell nothing that is asked for. */
static void add_sizes(struct pd_kineto_op *op, const char *name, json_t *args)
{
	json_t *dims = json_object_get(args, "Input Dims"), *names = json_object_get(args, "Input type"), *one;
	size_t i;

	if (op->kind == PD_KINETO_OPERATOR && !begins(name, "aten::"))
		json_array_foreach(dims, i, one)
			add_size(op, one, json_string_value(json_array_get(names, i)));
}

int pd_kineto_ops_take(void *to, json_t *event, struct pd_error *err)
{
	struct pd_kineto_ops *ops = to;
	const char *name = json_string_value(json_object_get(event, "name"));
	const char *category = json_string_value(json_object_get(event, "cat"));
	const char *phase = json_string_value(json_object_get(event, "ph"));
	json_t *args = json_object_get(event, "args");
	struct pd_kineto_op op = { .sequence = -1 };
	enum category_use use = category ? category_use(category) : ASIDE;
	int64_t process = 0, thread = 0;

	if (!name || !category || !phase || strcmp(phase, "X") != 0)
		return 0;
	if (check_category(ops, category, name, args, use, err) < 0)
		return -1;
	op.kind = kind_of(use, name, json_object_get(args, "correlation") != NULL);
	ops->compiled |= op.kind == PD_KINETO_COMPILED;
	if (op.kind >= PD_KINETO_COMPILED)
		return 0;
	if (pd_kineto_times(event, ops->file, &op.start_ns, &op.end_ns, err) < 0 ||
	    identity(ops, args, "correlation", name, &op.correlation, err) < 0 ||
	    identity(ops, args, "Sequence number", name, &op.sequence, err) < 0)
		return -1;
	if (op.kind != PD_KINETO_KERNEL && (identity(ops, event, "pid", name, &process, err) < 0 ||
					    identity(ops, event, "tid", name, &thread, err) < 0))
		return -1;
	op.thread = (int64_t)((uint64_t)process << 32 ^ (uint64_t)thread);
	op.module = begins(name, PD_KINETO_MODULE);
	op.name = pd_kineto_ops_name(ops, op.module ? name + strlen(PD_KINETO_MODULE) : name);
	add_sizes(&op, name, args);
	ops->ops = pd_grow(ops->ops, &ops->capacity, ops->count + 1, sizeof(*ops->ops));
	ops->ops[ops->count++] = op;
	return 0;
}

static int in_order(const void *a, const void *b)
{
	const struct pd_kineto_op *x = a, *y = b;

	PD_ORDER(x->thread, y->thread);
	PD_ORDER(x->start_ns, y->start_ns);
	PD_ORDER(y->end_ns, x->end_ns);
	PD_ORDER(x->kind, y->kind);
	PD_ORDER(x->name, y->name);
	return 0;
}

void pd_kineto_ops_sort(struct pd_kineto_ops *ops)
{
	if (ops->count > 0)
		qsort(ops->ops, ops->count, sizeof(*ops->ops), in_order);
}

void pd_kineto_ops_begin(struct pd_kineto_ops *ops, const char *file)
{
	*ops = (struct pd_kineto_ops){ .file = file, .numbers = json_object() };
}

void pd_kineto_ops_release(struct pd_kineto_ops *ops)
{
	for (int n = 0; n < ops->name_count; n++)
		free(ops->names[n]);
	free(ops->names);
	free(ops->ops);
	free(ops->unread);
	json_decref(ops->numbers);
}
