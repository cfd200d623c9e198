/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of cuDNN's graph API, for conv2d_graph.c and conv2d_engine.c.  A descriptor made from
 * one that is NULL is NULL, too, so only the last one need be checked.
 */
#pragma once

#include "run/device/cuda/conv2d_graph.h"

static inline cudnnBackendDescriptor_t create(struct pd_dnn_bag *bag,
					      cudnnBackendDescriptorType_t type)
{
	cudnnBackendDescriptor_t made = NULL;

	if (bag->count == (int)PD_COUNT(bag->all) ||
	    cudnnBackendCreateDescriptor(type, &made) != CUDNN_STATUS_SUCCESS)
		return NULL;
	bag->all[bag->count++] = made;
	return made;
}

static inline void empty(struct pd_dnn_bag *bag)
{
	while (bag->count > 0)
		cudnnBackendDestroyDescriptor(bag->all[--bag->count]);
}

static inline bool set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		       cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
	return d && cudnnBackendSetAttribute(d, name, type, count, values) == CUDNN_STATUS_SUCCESS;
}

static inline bool set_part(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			    cudnnBackendDescriptor_t part)
{
	return part && set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static inline bool set_int(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			   int64_t value)
{
	return set(d, name, CUDNN_TYPE_INT64, 1, &value);
}

static inline bool set_float(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			     float value)
{
	return set(d, name, CUDNN_TYPE_FLOAT, 1, &value);
}

static inline bool set_type(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			    cudnnDataType_t type)
{
	return set(d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

/* Finalizes the descriptor, and returns it if all went well. */
static inline cudnnBackendDescriptor_t finish(cudnnBackendDescriptor_t d, bool good)
{
	return good && cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS ? d : NULL;
}

static inline bool get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		       cudnnBackendAttributeType_t type, int64_t room, int64_t *count_p,
		       void *values)
{
	return cudnnBackendGetAttribute(d, name, type, room, count_p, values) ==
	       CUDNN_STATUS_SUCCESS;
}
