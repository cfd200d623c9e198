/* SPDX-License-Identifier: Apache-2.0 */
#include "described.h"

#include <cudnn.h>

/* The numbers that the library has given these since version 9.8. */
#define DEVICE_DESCRIPTOR ((cudnnBackendDescriptorType_t)38)
#define DEVICE_JSON ((cudnnBackendAttributeName_t)2702)
#define HEURISTICS_DEVICE ((cudnnBackendAttributeName_t)204)
#define ENGINE_DEVICE ((cudnnBackendAttributeName_t)1307)
#define PLAN_DEVICE ((cudnnBackendAttributeName_t)407)

/* The library's own functions and the ones called in their place, under the linker's names. */
cudnnStatus_t __real_cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
						  cudnnBackendDescriptor_t *made_p);
cudnnStatus_t __real_cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
					      cudnnBackendAttributeName_t name,
					      cudnnBackendAttributeType_t type, int64_t count,
					      const void *values);
cudnnStatus_t __wrap_cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
						  cudnnBackendDescriptor_t *made_p);
cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
					      cudnnBackendAttributeName_t name,
					      cudnnBackendAttributeType_t type, int64_t count,
					      const void *values);

static cudnnBackendDescriptor_t device;
static int plans;

int double_described_plans(void)
{
	return plans;
}

int double_described_open(const char *json, size_t bytes)
{
	if (__real_cudnnBackendCreateDescriptor(DEVICE_DESCRIPTOR, &device) != CUDNN_STATUS_SUCCESS) {
		device = NULL;
		return 0;
	}
	if (__real_cudnnBackendSetAttribute(device, DEVICE_JSON, CUDNN_TYPE_CHAR, (int64_t)bytes,
					    json) == CUDNN_STATUS_SUCCESS &&
	    cudnnBackendFinalize(device) == CUDNN_STATUS_SUCCESS)
		return 1;
	double_described_close();
	return -1;
}

void double_described_close(void)
{
	if (device)
		cudnnBackendDestroyDescriptor(device);
	device = NULL;
}

static cudnnStatus_t describe(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name)
{
	return __real_cudnnBackendSetAttribute(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
}

cudnnStatus_t __wrap_cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
						  cudnnBackendDescriptor_t *made_p)
{
	cudnnStatus_t status = __real_cudnnBackendCreateDescriptor(type, made_p);

	if (status != CUDNN_STATUS_SUCCESS)
		return status;
	if (type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
		return describe(*made_p, HEURISTICS_DEVICE);
	if (type == CUDNN_BACKEND_ENGINE_DESCRIPTOR)
		return describe(*made_p, ENGINE_DEVICE);
	return status;
}

cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
					      cudnnBackendAttributeName_t name,
					      cudnnBackendAttributeType_t type, int64_t count,
					      const void *values)
{
	if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
		return CUDNN_STATUS_SUCCESS;
	plans += name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE;
	if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
		return describe(d, PLAN_DEVICE);
	return __real_cudnnBackendSetAttribute(d, name, type, count, values);
}
