# With CUDA the device, else one that says there is none.  Kernels: nvcc compiles them with
# multiplications and additions apart, as the CPU's loops are, and tiny numbers taken as zero.
CUDA_KERNELS = lib/run/device/cuda/additive_attention.cu lib/run/device/cuda/attention.cu \
	lib/run/device/cuda/attention_bias.cu lib/run/device/cuda/attention_mma.cu \
	lib/run/device/cuda/axes.cu lib/run/device/cuda/bias.cu lib/run/device/cuda/broadcast.cu \
	lib/run/device/cuda/eltwise.cu lib/run/device/cuda/embedding.cu \
	lib/run/device/cuda/groupnorm.cu lib/run/device/cuda/layernorm.cu lib/run/device/cuda/layout.cu lib/run/device/cuda/loss.cu \
	lib/run/device/cuda/lstm.cu lib/run/device/cuda/mixed_sum.cu lib/run/device/cuda/norm.cu \
	lib/run/device/cuda/norm_back.cu lib/run/device/cuda/pass_numbers.cu lib/run/device/cuda/pool.cu \
	lib/run/device/cuda/prelu.cu lib/run/device/cuda/softmax.cu \
	lib/run/device/cuda/chunks.cu lib/run/device/cuda/squares.cu \
	lib/run/device/cuda/update.cu lib/run/device/cuda/upsample.cu lib/run/device/cuda/widen.cu
CUDA_INCLUDED = lib/run/device/cuda/arith.h lib/run/device/cuda/attention.cuh lib/run/device/cuda/mma.cuh \
	lib/run/device/cuda/host_device.cuh \
	lib/run/device/cuda/block_sum.cuh lib/run/device/cuda/channels.cuh lib/run/device/cuda/columns.cuh \
	lib/run/device/cuda/grid.cuh \
	lib/run/device/cuda/kernels.h lib/run/device/cuda/typed.cuh lib/engine/device/mixed_sum.h lib/model/relative.h lib/model/kind.h lib/model/dtype.h lib/model/dtype.def
EXTRA_DIST += $(CUDA_KERNELS) $(CUDA_INCLUDED)
NVCCFLAGS = -std=c++17 -O3 --fmad=false --ftz=true
if HAVE_CUDA
CUDA_OBJECTS = $(CUDA_KERNELS:.cu=.o)
lib_libpddevice_a_SOURCES += \
	lib/run/device/cuda/additive_attention.c lib/run/device/cuda/attention.c lib/run/device/cuda/axes.c \
	lib/run/device/cuda/batchnorm2d.c lib/run/device/cuda/broadcast.c \
	lib/run/device/cuda/choice.c lib/run/device/cuda/choice.h \
	lib/run/device/cuda/clock.c \
	lib/run/device/cuda/conv2d.c lib/run/device/cuda/conv2d.h lib/run/device/cuda/conv2d_choose.c \
	lib/run/device/cuda/conv2d_engine.c \
	lib/run/device/cuda/conv2d_graph.c lib/run/device/cuda/conv2d_graph.h \
	lib/run/device/cuda/conv2d_widen.c \
	lib/run/device/cuda/descriptor.h lib/run/device/cuda/engine_name.h \
	lib/run/device/cuda/cuda.c lib/run/device/cuda/cuda.h \
	lib/run/device/cuda/eltwise.c \
	lib/run/device/cuda/embedding.c \
	lib/run/device/cuda/poller.c \
	lib/run/device/cuda/graph.c lib/run/device/cuda/graph.h \
	lib/run/device/cuda/groupnorm.c lib/run/device/cuda/layernorm.c \
	lib/run/device/cuda/layout.c \
	lib/run/device/cuda/linear.c \
	lib/run/device/cuda/loss.c \
	lib/run/device/cuda/lstm.c \
	lib/run/device/cuda/join.c \
	lib/run/device/cuda/net.c \
	lib/run/device/cuda/plain.c \
	lib/run/device/cuda/pool2d.c lib/run/device/cuda/prelu.c lib/run/device/cuda/softmax.c \
	lib/run/device/cuda/product.c lib/run/device/cuda/product.h \
	lib/run/device/cuda/graph_cache.c lib/run/device/cuda/graph_cache.h \
	lib/run/device/cuda/stream.c lib/run/device/cuda/stream.h lib/run/device/cuda/upsample.c
lib/run/device/cuda/libpddevice_a-%.$(OBJEXT): AM_CPPFLAGS += $(CUDA_CPPFLAGS)
lib_libpddevice_a_LIBADD = $(CUDA_OBJECTS)
PD_DEVICE_LIBS += $(CUDA_LDFLAGS) $(CUDA_LIBS)
CLEANFILES += $(CUDA_OBJECTS)

# what these include: few and seldom changed
$(CUDA_OBJECTS): $(CUDA_INCLUDED) lib/base/rng.h lib/base/inline.h lib/engine/device/update.h lib/engine/device/optimizer.def lib/engine/device/hyper.def \
	lib/run/device/curve.h lib/run/device/curve.def lib/engine/device/global_norm.h
$(CUDA_OBJECTS): %.o: %.cu
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(NVCC) $(NVCCFLAGS) $(CUDA_GENCODE) -I$(top_srcdir)/lib \
		$(NVCC_WERROR) -Xcompiler -Wall,-Wno-unused-parameter,-fno-exceptions,-fno-threadsafe-statics \
		-c $< -o $@
else
lib_libpddevice_a_SOURCES += lib/run/device/cuda/absent.c
endif
