/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same-tensors A B [PART]: tells whether two sets of tensors have the same names and the same bits, or,
 * with PART, whether no element of a tensor is off by more than that part of the largest in it.  A set is
 * a safetensors file or a checkpoint's folder; older versions (NAME@STEP) are left out, and a tensor of
 * replica K, from 1 on, is called NAME#K.  The exit status is 0 for yes, 1 for no, and 2 if a set cannot
 * be read.
 */
#include "base/mem.h"
#include "base/opt.h"
#include "checkpoint/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct member {
	char *name;
	int64_t elements;
	float *values;
};

struct set {
	struct member *members;
	size_t count, capacity;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

static void fail(const struct pd_error *err)
{
	exit(pd_command_fail(err));
}

static void add_file(struct set *set, const char *file, int replica)
{
	struct pd_error err;
	struct pd_safetensors *st = pd_safetensors_open(file, &err);
	const struct pd_tensor *list;
	size_t n;

	if (!st)
		fail(&err);
	n = pd_safetensors_list(st, &list);
	for (size_t i = 0; i < n; i++) {
		struct member *m;

		if (strchr(list[i].name, '@'))
			continue;
		set->members = pd_grow(set->members, &set->capacity, set->count + 1,
				       sizeof(*set->members));
		m = &set->members[set->count++];
		m->name = replica > 0 ? pd_format("%s#%d", list[i].name, replica)
				      : pd_strdup(list[i].name);
		m->elements = list[i].elements;
		m->values = pd_calloc((size_t)m->elements, sizeof(float));
		if (pd_safetensors_read(st, &list[i], m->values, &err) < 0)
			fail(&err);
	}
	pd_safetensors_close(st);
}

/* Adds the files of a stage and its replicas; returns whether there are any. */
static bool add_stage(struct set *set, const char *path, int stage)
{
	for (int replica = 0;; replica++) {
		char *file = replica == 0
			? pd_format("%s/stage-%d.safetensors", path, stage)
			: pd_format("%s/stage-%d-replica-%d.safetensors", path, stage, replica);
		struct stat st;
		bool there = stat(file, &st) == 0;

		if (there)
			add_file(set, file, replica);
		free(file);
		if (!there)
			return replica > 0;
	}
}

static void read_set(struct set *set, const char *path)
{
	struct stat st;
	int stage = 0;

	*set = (struct set){ 0 };
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		while (add_stage(set, path, stage))
			stage++;
	else
		add_file(set, path, 0);
	if (set->count)
		qsort(set->members, set->count, sizeof(*set->members), by_name);
}

static void release(struct set *set)
{
	for (size_t i = 0; i < set->count; i++) {
		free(set->members[i].name);
		free(set->members[i].values);
	}
	free(set->members);
}

static bool near(const struct member *x, const struct member *y, double part)
{
	double largest = 0, off = 0;

	for (int64_t k = 0; k < x->elements; k++) {
		largest = fmax(largest, fabs((double)x->values[k]));
		off = fmax(off, fabs((double)x->values[k] - (double)y->values[k]));
		if (!isfinite(x->values[k]) || !isfinite(y->values[k]))
			off = INFINITY;
	}
	printf("%s: off by %.3g of %.3g\n", x->name, off, largest);
	return off <= part * largest;
}

/* Compares two sets; part -1 demands the same bits. */
static bool same(const struct set *a, const struct set *b, double part)
{
	if (a->count != b->count) {
		printf("%zu tensors, %zu tensors\n", a->count, b->count);
		return false;
	}
	for (size_t i = 0; i < a->count; i++) {
		const struct member *x = &a->members[i], *y = &b->members[i];

		if (strcmp(x->name, y->name) != 0 || x->elements != y->elements) {
			printf("%s, %s\n", x->name, y->name);
			return false;
		}
		if (part >= 0 && !near(x, y, part))
			return false;
		for (int64_t k = 0; k < x->elements && part < 0; k++)
			if (memcmp(&x->values[k], &y->values[k], sizeof(float)) != 0) {
				printf("%s[%lld]: %.9g, %.9g\n", x->name, (long long)k,
				       (double)x->values[k], (double)y->values[k]);
				return false;
			}
	}
	return a->count > 0;
}

int main(int argc, char **argv)
{
	struct set a, b;
	bool equal;

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: same-tensors A B [PART]\n");
		return PD_EXIT_USAGE;
	}
	read_set(&a, argv[1]);
	read_set(&b, argv[2]);
	equal = same(&a, &b, argc == 4 ? atof(argv[3]) : -1);
	release(&a);
	release(&b);
	return equal ? PD_EXIT_YES : PD_EXIT_NO;
}
