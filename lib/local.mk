# libpd.a: pure C, jansson, xxHash and protobuf-c; enough for pd-plan and pd-replay.
# libpddevice.a: the devices and transports that compute and move.
noinst_LIBRARIES += lib/libpd.a lib/libpddevice.a
lib_libpd_a_SOURCES =
lib_libpddevice_a_SOURCES =
PD_LIBS = lib/libpd.a $(JANSSON_LIBS) $(XXHASH_LIBS) $(PROTOBUF_C_LIBS) $(PMIX_LIBS)
PD_DEVICE_LIBS = lib/libpddevice.a $(PD_LIBS) $(ONEDNN_LIBS) $(UCX_LIBS) $(ZLIB_LIBS)

include lib/base/local.mk
include lib/model/local.mk
include lib/network/local.mk
include lib/doors/onnx/local.mk
include lib/doors/huggingface/local.mk
include lib/doors/network/local.mk
include lib/topology/local.mk
include lib/sums/local.mk
include lib/profile/local.mk
include lib/estimate/local.mk
include lib/doors/machine/local.mk
include lib/order/local.mk
include lib/plan/local.mk
include lib/memory/local.mk
include lib/schedule/local.mk
include lib/doors/layout/local.mk
include lib/trace/local.mk
include lib/doors/torch/local.mk
include lib/doors/kineto/local.mk
include lib/engine/device/local.mk
include lib/engine/transport/local.mk
include lib/engine/reduce/local.mk
include lib/engine/data/local.mk
include lib/engine/worker/local.mk
include lib/predict/local.mk
include lib/planner/local.mk
include lib/explain/local.mk
include lib/checkpoint/local.mk
include lib/doors/tensors/local.mk
include lib/run/socket/local.mk
include lib/run/device/local.mk
include lib/run/transport/local.mk
include lib/run/data/local.mk
include lib/run/launch/local.mk
include lib/run/job/local.mk
include lib/run/rank/local.mk
include lib/run/supervisor/local.mk
include lib/run/measure/local.mk
