# libpd.a: pure C, jansson, xxHash and protobuf-c; enough for pd-plan and pd-replay.
# libpddevice.a: the devices and transports that compute and move.
noinst_LIBRARIES += lib/libpd.a lib/libpddevice.a
lib_libpd_a_SOURCES =
lib_libpddevice_a_SOURCES =
PD_LIBS = lib/libpd.a $(JANSSON_LIBS) $(XXHASH_LIBS) $(PROTOBUF_C_LIBS) $(PMIX_LIBS)
PD_DEVICE_LIBS = lib/libpddevice.a $(PD_LIBS) $(ONEDNN_LIBS) $(UCX_LIBS) $(ZLIB_LIBS)

include lib/base/local.mk
include lib/socket/local.mk
include lib/onnx/local.mk
include lib/model/local.mk
include lib/network/local.mk
include lib/topology/local.mk
include lib/profile/local.mk
include lib/estimate/local.mk
include lib/order/local.mk
include lib/plan/local.mk
include lib/schedule/local.mk
include lib/layout/local.mk
include lib/trace/local.mk
include lib/device/local.mk
include lib/transport/local.mk
include lib/reduce/local.mk
include lib/weights/local.mk
include lib/data/local.mk
include lib/checkpoint/local.mk
include lib/worker/local.mk
include lib/launch/local.mk
include lib/job/local.mk
include lib/rank/local.mk
include lib/supervisor/local.mk
include lib/measure/local.mk
include lib/replay/local.mk
include lib/planner/local.mk
include lib/explain/local.mk
